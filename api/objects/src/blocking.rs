//! Synchronous form of [`ObjectBucket`], for threads that may block. It owns its runtime.

use super::bucket::{ObjectBucket, ObjectVersion, ObjectsError, Upload};
use muster_model::place::BucketAddress;
use std::future::Future;
use tokio::runtime::{Builder, Runtime};

/// Number of threads. Uploads wait for the network and compute TLS; two threads beside training
/// suffice.
const THREADS: usize = 2;

/// A bucket for concurrent use by several threads. Must not be used on a thread of a runtime.
#[derive(Debug)]
pub struct Blocking {
    runtime: Runtime,
    bucket: ObjectBucket,
}

impl Blocking {
    /// See [`ObjectBucket::open`].
    ///
    /// # Errors
    /// See [`ObjectBucket::open`]; [`ObjectsError::Runtime`].
    pub fn open(address: &BucketAddress) -> Result<Self, ObjectsError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("objects")
            .enable_all()
            .build()
            .map_err(ObjectsError::Runtime)?;
        Ok(Self {
            runtime,
            bucket: ObjectBucket::open(address)?,
        })
    }

    fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime.block_on(answer)
    }

    /// See [`ObjectBucket::describe`].
    #[must_use]
    pub fn describe(&self, name: &str) -> String {
        self.bucket.describe(name)
    }

    /// See [`ObjectBucket::get`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`]; [`ObjectsError::TooLarge`].
    pub fn get(
        &self,
        name: &str,
        max_bytes: u64,
    ) -> Result<Option<(Vec<u8>, ObjectVersion)>, ObjectsError> {
        self.wait(self.bucket.get(name, max_bytes))
    }

    /// Fills `into` from this offset on. Returns the number of bytes read; `None` if the object
    /// does not exist.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn read_at(
        &self,
        name: &str,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Option<usize>, ObjectsError> {
        let range = offset..offset + into.len() as u64;
        let found = self.wait(self.bucket.range(name, range))?;
        Ok(found.map(|found| {
            let found = found.as_ref();
            into[..found.len()].copy_from_slice(found);
            found.len()
        }))
    }

    /// See [`ObjectBucket::len`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn len(&self, name: &str) -> Result<Option<u64>, ObjectsError> {
        self.wait(self.bucket.len(name))
    }

    /// See [`ObjectBucket::put`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ObjectsError> {
        self.wait(self.bucket.put(name, bytes))
    }

    /// See [`ObjectBucket::replace`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn replace(
        &self,
        name: &str,
        bytes: Vec<u8>,
        read: Option<&ObjectVersion>,
    ) -> Result<bool, ObjectsError> {
        self.wait(self.bucket.replace(name, bytes, read))
    }

    /// See [`ObjectBucket::list`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn list(&self, folder: &str) -> Result<Vec<String>, ObjectsError> {
        self.wait(self.bucket.list(folder))
    }

    /// See [`ObjectBucket::delete`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn delete(&self, names: &[String]) -> Result<(), ObjectsError> {
        self.wait(self.bucket.delete(names))
    }

    /// See [`ObjectBucket::begin`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn begin(&self, name: &str) -> Result<Upload, ObjectsError> {
        self.wait(self.bucket.begin(name))
    }

    /// See [`ObjectBucket::upload`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn upload(&self, upload: &Upload, content: &[&[u8]]) -> Result<(), ObjectsError> {
        self.wait(self.bucket.upload(upload, content))
    }

    /// See [`ObjectBucket::abort`].
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub fn abort(&self, upload: &Upload) -> Result<(), ObjectsError> {
        self.wait(self.bucket.abort(upload))
    }
}
