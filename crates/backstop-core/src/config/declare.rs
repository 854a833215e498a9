//! The macros that declare settings.

/// Declares a [`Config`](crate::config::Config): each setting once, with its meaning, type, default, key, kind and rule.
///
/// ```text
/// config! {
///     /// What it is for.
///     #[derive(Debug, Clone, PartialEq)]
///     pub struct Config {
///         /// The meaning: one or two sentences, for rustdoc and for the reference page.
///         field: Type = default => "key": one(KIND);
///         field: Type = default => "key": one(KIND), required("what for");  // must be given
///         field: Option<Type> = None => "key": one(KIND), unset("what that means");
///         field: Vec<Type> = Vec::new() => "key": many(KIND), unset("…");
///         field: BTreeMap<String, Type> = BTreeMap::new() => "key": map(KIND), unset("…");
///         field: other::Config = other::Config::default() => "key": group;
///         field: Vec<other::Config> = Vec::new() => "key": groups;
///         // Keys of another Config among these; its settings are listed for the setters.
///         ..field: shared::Config = shared::Config::default() => { name: Type }
///     }
///     rules: check_between;         // fn(&Config, &mut Faults), for what must hold between settings
///     setters: Builder.config;      // fluent setters for a builder with such a field; a group has none
/// }
/// ```
///
/// A setting that is declared has a field, a key, a line of the reference, a rule and a setter; there is no other place
/// for one.
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $meaning:literal])+
                $field:ident : $type:ty = $default:expr
                    => $key:literal : $holds:ident $(($kind:expr))? $(, $absent:ident ($why:literal))? ;
            )*
            $(
                .. $flat:ident : $flat_type:ty = $flat_default:expr
                    => { $($flat_field:ident : $flat_field_type:ty),* $(,)? }
            )?
        }
        $(rules: $rules:path;)?
        $(setters: $builder:ident . $config:ident;)?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $(
                $(#[doc = $meaning])+
                #[doc = $crate::config!(@default_in_words $default $(, $absent($why))?)]
                $vis $field: $type,
            )*
            $(
                /// Settings that others have too.
                $vis $flat: $flat_type,
            )?
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($flat: $flat_default,)? }
            }
        }

        impl $crate::config::Config for $name {
            const KEYS: &'static [$crate::config::Key] = {
                const OWN: &[$crate::config::Key] = &[$($crate::config::Key {
                    name: $key,
                    holds: $crate::config!(
                        @holds $holds [$($kind)?] [$($absent($why))?] $name $field $type
                    ),
                    meaning: ::std::concat!($($meaning),+).trim_ascii(),
                }),*];
                $crate::config!(@keys OWN $($flat_type)?)
            };

            fn take(
                &mut self,
                given: &mut $crate::config::hidden::serde_json::Map<
                    ::std::string::String,
                    $crate::config::hidden::serde_json::Value,
                >,
            ) -> ::std::result::Result<(), $crate::config::Unreadable> {
                $(
                    if let Some(value) = given.remove($key).filter(|value| !value.is_null()) {
                        $crate::config!(@take $holds [$($kind)?] value, $key, self.$field);
                    }
                )*
                $($crate::config::Config::take(&mut self.$flat, given)?;)?
                Ok(())
            }

            fn written(
                &self,
            ) -> $crate::config::hidden::serde_json::Map<
                ::std::string::String,
                $crate::config::hidden::serde_json::Value,
            > {
                let mut written = $crate::config::hidden::serde_json::Map::new();
                $(written.insert($key.to_owned(), $crate::config!(@written $holds self.$field));)*
                $(written.extend($crate::config::Config::written(&self.$flat));)?
                written
            }

            fn check(&self, faults: &mut $crate::setting::Faults) {
                $($crate::config!(
                    @check $holds [$($kind)?] [$($absent($why))?] faults, $key, &self.$field
                );)*
                $($crate::config::Config::check(&self.$flat, faults);)?
                $($rules(self, faults);)?
            }
        }

        impl<'de> $crate::config::hidden::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::config::hidden::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                $crate::config::read(deserializer)
            }
        }

        $crate::config!(
            @setters $vis [$($builder $config)?]
            [$([$holds $field, $type, [$($meaning)+], [$crate::config!(@default_in_words $default $(, $absent($why))?)]])*]
            [$($flat, $flat_type, $([$flat_field, $flat_field_type])*)?]
        );
    };

    // The end of a setting's documentation.
    (@default_in_words $default:expr) => { ::std::concat!("\nDefaults to `", ::std::stringify!($default), "`.") };
    (@default_in_words $default:expr, required($why:literal)) => { ::std::concat!("\nRequired: ", $why, ".") };
    (@default_in_words $default:expr, unset($why:literal)) => {
        ::std::concat!("\nDefaults to `", ::std::stringify!($default), "`. Without a value: ", $why, ".")
    };

    // All keys of a struct, with those of the one that is spread in it.
    (@keys $own:ident) => { $own };
    (@keys $own:ident $flat:ty) => {{
        const ALL: [$crate::config::Key; $own.len() + <$flat as $crate::config::Config>::KEYS.len()] =
            $crate::config::join($own, <$flat as $crate::config::Config>::KEYS);
        &ALL
    }};

    // What stands under a key.
    (@holds one [$kind:expr] [$($absent:tt)*] $($of:tt)*) => {
        $crate::config::Holds::One($kind, $crate::config!(@absent $($absent)*))
    };
    (@holds many [$kind:expr] [$($absent:tt)*] $($of:tt)*) => {
        $crate::config::Holds::Many($kind, $crate::config!(@absent $($absent)*))
    };
    (@holds map [$kind:expr] [$($absent:tt)*] $($of:tt)*) => {
        $crate::config::Holds::Map($kind, $crate::config!(@absent $($absent)*))
    };
    (@holds group [] [] $name:ident $field:ident $type:ty) => {
        // With the defaults that this struct gives it, which may be other ones than its own.
        $crate::config::Holds::Group($crate::config::Group {
            keys: <$type as $crate::config::Config>::KEYS,
            defaults: || $crate::config::Config::written(&<$name as ::std::default::Default>::default().$field),
        })
    };
    (@holds groups [] [] $name:ident $field:ident $type:ty) => {
        $crate::config::Holds::Groups(
            <<$type as ::std::iter::IntoIterator>::Item as $crate::config::Config>::GROUP
        )
    };
    (@absent) => { $crate::config::Absent::Default };
    (@absent required($why:literal)) => { $crate::config::Absent::Required($why) };
    (@absent unset($why:literal)) => { $crate::config::Absent::Unset($why) };

    // Reading a value that is given.
    (@take group [] $value:ident, $key:literal, $place:expr) => {
        let $crate::config::hidden::serde_json::Value::Object(mut below) = $value else {
            return Err($crate::config::Unreadable::at($key, "must be keys with values"));
        };
        $crate::config::Config::take(&mut $place, &mut below)?;
        $crate::config::nothing_left(&below)?;
    };
    (@take groups [] $value:ident, $key:literal, $place:expr) => {
        $place = $crate::config::hidden::serde_json::from_value($value)
            .map_err(|error| $crate::config::Unreadable::at($key, error))?;
    };
    (@take $values:ident [$kind:expr] $value:ident, $key:literal, $place:expr) => {
        $place = $crate::config::Setting::read(&$value, $kind)
            .map_err(|rule| $crate::config::Unreadable::at($key, rule))?;
    };

    (@written group $place:expr) => {
        $crate::config::hidden::serde_json::Value::Object($crate::config::Config::written(&$place))
    };
    (@written groups $place:expr) => {
        $place.iter().map($crate::config::Config::written).collect::<$crate::config::hidden::serde_json::Value>()
    };
    (@written $values:ident $place:expr) => { $crate::config::Setting::written(&$place) };

    // What code has set, by the rules that hold for a file.
    (@check group [] [] $faults:ident, $key:literal, $value:expr) => {
        $faults.under($key, |faults| $crate::config::Config::check($value, faults))
    };
    (@check groups [] [] $faults:ident, $key:literal, $value:expr) => {
        for (index, each) in $value.iter().enumerate() {
            $faults.under(&::std::format!("{}[{index}]", $key), |faults| {
                $crate::config::Config::check(each, faults)
            });
        }
    };
    (@check $values:ident [$kind:expr] [required($why:literal)] $faults:ident, $key:literal, $value:expr) => {
        if $crate::config::Setting::is_given($value) {
            $crate::config!(@check $values [$kind] [] $faults, $key, $value)
        } else {
            $faults.add($key, ::std::concat!("is required: ", $why))
        }
    };
    (@check $values:ident [$kind:expr] [$($absent:tt)*] $faults:ident, $key:literal, $value:expr) => {
        for rule in $crate::config::Setting::broken_rules($value, $kind) {
            $faults.add($key, rule);
        }
    };

    // A group has no setter: the builder decides what to call it, and whether it is flat there.
    (@setter group $($rest:tt)*) => {};
    (
        @setter $holds:ident $vis:vis [$config:ident]
        $field:ident, $type:ty, [$($meaning:literal)+], [$default:expr]
    ) => {
        $(#[doc = $meaning])+
        #[doc = $default]
        $vis fn $field(mut self, $field: impl $crate::config::Given<$type>) -> Self {
            self.$config.$field = $crate::config::Given::given($field);
            self
        }
    };

    // Setters of a builder. What is listed of the spread struct must be all that it has.
    (@setters $vis:vis [] [$($own:tt)*] [$($flat:tt)*]) => {};
    (
        @setters $vis:vis [$builder:ident $config:ident]
        [$([$holds:ident $field:ident, $type:ty, [$($meaning:literal)+], [$default:expr]])*]
        [$($flat:ident, $flat_type:ty, $([$flat_field:ident, $flat_field_type:ty])*)?]
    ) => {
        impl $builder {
            $($crate::config!(@setter $holds $vis [$config] $field, $type, [$($meaning)+], [$default]);)*
            $($(
                #[doc = ::std::concat!(
                    "Sets [`", ::std::stringify!($flat_field), "`](", ::std::stringify!($flat_type), "::",
                    ::std::stringify!($flat_field), "), and returns the builder."
                )]
                $vis fn $flat_field(mut self, $flat_field: impl $crate::config::Given<$flat_field_type>) -> Self {
                    self.$config.$flat.$flat_field = $crate::config::Given::given($flat_field);
                    self
                }
            )*)?
        }

        $(const _: fn($flat_type) = |all| {
            type Spread = $flat_type;
            let Spread { $($flat_field: _),* } = all;
        };)?
    };
}

/// Declares an enum whose variants are the words of a setting, and the [`ValueKind`](crate::config::ValueKind) of it.
///
/// ```
/// backstop_core::choice! {
///     /// How much is said.
///     pub enum Level {
///         /// Little.
///         Quiet = "quiet",
///         /// All of it.
///         Loud = "loud",
///     }
/// }
///
/// assert_eq!(Level::Loud.to_string(), "loud");
/// assert_eq!(Level::KIND.rule(), "one of quiet, loud");
/// ```
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name { $($(#[$variant_meta])* $variant),* }

        impl $name {
            /// Its words as a kind of setting.
            $vis const KIND: $crate::config::ValueKind = $crate::config::ValueKind::Choice(&[$($word),*]);
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),* })
            }
        }

        impl $crate::config::Setting for $name {
            fn read(
                value: &$crate::config::hidden::serde_json::Value,
                _: $crate::config::ValueKind,
            ) -> ::std::result::Result<Self, ::std::string::String> {
                let word: ::std::string::String = $crate::config::Setting::read(value, Self::KIND)?;
                match word.as_str() {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(::std::format!("must be {}", Self::KIND.rule())),
                }
            }

            fn written(&self) -> $crate::config::hidden::serde_json::Value {
                self.to_string().into()
            }

            fn broken_rules(&self, _: $crate::config::ValueKind) -> ::std::vec::Vec<::std::string::String> {
                ::std::vec::Vec::new()
            }
        }
    };
}
