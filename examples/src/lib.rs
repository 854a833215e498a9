//! The guides, so that the code in them is compiled with the tests. The examples are in `examples/`.

#[doc = include_str!("../../docs/guides/dead-letter-directory.md")]
pub mod dead_letter_directory {}

#[doc = include_str!("../../docs/guides/from-the-java-framework.md")]
pub mod from_the_java_framework {}

#[doc = include_str!("../../docs/guides/kafka.md")]
pub mod kafka {}

#[doc = include_str!("../../docs/guides/managed-databases.md")]
pub mod managed_databases {}

#[doc = include_str!("../../docs/guides/outbox.md")]
pub mod outbox {}

#[doc = include_str!("../../docs/guides/queue.md")]
pub mod queue {}

#[doc = include_str!("../../docs/guides/several-nodes.md")]
pub mod several_nodes {}

#[doc = include_str!("../../docs/guides/testing.md")]
#[expect(clippy::test_attr_in_doctest, reason = "the guide shows tests; here they are compiled")]
pub mod testing {}

#[doc = include_str!("../../docs/guides/webhooks.md")]
pub mod webhooks {}

#[doc = include_str!("../../docs/guides/writer-only.md")]
pub mod writer_only {}
