//! Encryption of users' secrets: values that print nothing, keys, and sealed values.
//!
//! The API server seals values before it stores them. The scheduler opens them when a node starts a
//! task. Architecture invariant: this crate does not know the store, and the store knows no key.

mod clock;
mod keyring;
mod sealed;
mod source;
mod value;

pub use keyring::{KeyError, Keyring, new_key};
pub use sealed::{OpenError, Owner, Sealed};
pub use source::{KeySource, SecretKeys};
pub use value::{MAX_VALUE_BYTES, SecretValue};
