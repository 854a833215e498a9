//! One suite of tests over several stores, so that all of them keep the same promises.

use crate::skip;

/// Runs each test over each store.
///
/// A test is written once, as an async function of a harness, and becomes one test per store, named
/// `<test>::<store>`. The functions behind `over` are async and return `Option<Harness>`: `None` means
/// that there is no such store here and that the test is [skipped](crate::skip()), as
/// [`servers::postgres`](crate::servers) says when it finds no server. The harnesses may be of different
/// types as long as the tests make sense for each. Attributes and documentation are kept, both on a test
/// and on a store.
///
/// ```
/// use std::collections::HashMap;
///
/// type Store = HashMap<String, u32>;
///
/// async fn an_empty_map() -> Option<Store> {
///     Some(Store::new())
/// }
///
/// backstop_testkit::suite! {
///     over { empty: an_empty_map, again: an_empty_map }
///
///     /// What is written can be read: `what_is_written_can_be_read::empty` and `…::again`.
///     async fn what_is_written_can_be_read(mut store) {
///         store.insert("apples".to_owned(), 3);
///         assert_eq!(store.get("apples"), Some(&3));
///     }
/// }
/// ```
///
/// What the tests spawn runs on two threads beside the test's own. `over { … } on 4 threads` gives it four, and
/// `over { … } on 1 thread` the test's own alone, as under `#[tokio::test]`: then all that is logged can be caught.
///
/// A test sees what the module around the suite sees. Within it the name of a store hides a function of
/// the same name, so the functions behind `over` are called `fresh_sqlite` rather than `sqlite`.
// The body is expanded once per store, not made generic over a trait. So a suite needs no trait that
// repeats every method of the stores, a mistake is reported with the concrete types in the line that
// holds it (once per store only where it differs by store), and no test meets the limits of async
// functions in traits. The price is that each body is type-checked once per store; code is generated
// per store either way, and that is where the time goes.
#[macro_export]
macro_rules! suite {
    (
        over $stores:tt on $threads:literal $(thread)? $(threads)?
        $($(#[$attribute:meta])* async fn $name:ident($store:pat) $body:block)*
    ) => {
        $($crate::suite! { @test $stores $threads [$(#[$attribute])*] $name ($store) $body })*
    };
    (
        over $stores:tt
        $($(#[$attribute:meta])* async fn $name:ident($store:pat) $body:block)*
    ) => {
        $($crate::suite! { @test $stores 2 [$(#[$attribute])*] $name ($store) $body })*
    };
    (
        @test { $($(#[$only:meta])* $label:ident: $fresh:path),* $(,)? } $threads:literal
        $attributes:tt $name:ident ($store:pat) $body:block
    ) => {
        mod $name {
            #[allow(unused_imports, clippy::wildcard_imports, reason = "a test sees what is around its suite")]
            use super::*;

            $($crate::suite! { @case [$(#[$only])*] $attributes $label $fresh, $threads ($store) $body })*
        }
    };
    (
        @case [$($only:tt)*] [$($attribute:tt)*] $label:ident $fresh:path, $threads:literal ($store:pat) $body:block
    ) => {
        $($only)*
        $($attribute)*
        #[test]
        fn $label() {
            $crate::suite::block_on_threads($threads, async {
                let ::core::option::Option::Some($store) = $crate::suite::found($fresh().await) else {
                    return;
                };
                $body
            });
        }
    };
}

/// Runs a test to its end, on a runtime with two workers.
///
/// What [`suite!`] does with each test. It is `#[tokio::test(flavor = "multi_thread", worker_threads = 2)]`
/// for code that cannot name tokio: the body runs on the test's own thread, whatever it spawns does not.
///
/// ```
/// backstop_testkit::suite::block_on(async {
///     assert_eq!(tokio::spawn(async { 7 }).await.unwrap(), 7);
/// });
/// ```
///
/// # Panics
///
/// If the machine has no threads left.
pub fn block_on(test: impl Future<Output = ()>) {
    block_on_threads(2, test);
}

/// Runs a test with this many workers, or on the test's own thread alone.
#[doc(hidden)]
pub fn block_on_threads(threads: usize, test: impl Future<Output = ()>) {
    let mut runtime = if threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = runtime.worker_threads(threads).enable_all().build();
    runtime.expect("starting a runtime needs threads").block_on(test);
}

/// Passes a harness on. If there is none, it makes sure that the test is marked as skipped, even if the function that
/// gave none forgot to.
#[doc(hidden)]
pub fn found<H>(harness: Option<H>) -> Option<H> {
    if harness.is_none() && !skip::is_marked() {
        skip::skip("its store is not here, and did not say why");
    }
    harness
}
