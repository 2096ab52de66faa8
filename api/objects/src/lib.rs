//! Objects in a bucket for checkpoints: S3, Google Cloud Storage and Azure.
//!
//! This crate is the only user of `object_store`. Credentials, endpoints and regions come from the
//! environment of the process, by the names that each service's own tools read (`AWS_…`,
//! `GOOGLE_…`, `AZURE_…`), never from an address. It must not know what an object contains.
//!
//! [`ObjectBucket`] is for callers with an async runtime. [`Blocking`] is for threads that may
//! block, and has its own runtime.

#![deny(missing_docs)]

mod blocking;
mod bucket;

pub use blocking::Blocking;
pub use bucket::{ObjectBucket, ObjectDownload, ObjectVersion, ObjectsError, SentPart, Upload};
