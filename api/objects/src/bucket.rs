//! A prefix in a bucket. Names are relative to it.

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use muster_model::place::{BucketAddress, Service};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::task::JoinSet;

/// Maximum number of parts in transfer: it hides the latency of each, and bounds the memory of a
/// writer beside training.
const IN_FLIGHT: usize = 4;

/// Size of a part. All services accept parts from 5 MiB on; small parts cost requests, large ones
/// memory.
const PART_BYTES: usize = 8 << 20;

/// S3 accepts at most 10,000 parts per object.
const MAX_PARTS: usize = 9_000;

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The address or the environment describes no usable bucket.
    #[error("could not open {address}")]
    Open {
        /// Address of the bucket.
        address: String,
        /// Error of the object store.
        #[source]
        source: object_store::Error,
    },
    /// A request failed, after the retries of the object store.
    #[error("could not {doing} {object}")]
    Request {
        /// Verb of the request, such as "read".
        doing: &'static str,
        /// Address of the object.
        object: String,
        /// Error of the object store.
        #[source]
        source: object_store::Error,
    },
    /// The object is larger than the caller accepts.
    #[error("{object} has {bytes} bytes; at most {max_bytes} are read")]
    TooLarge {
        /// Address of the object.
        object: String,
        /// Size of the object.
        bytes: u64,
        /// Maximum size that the caller accepts.
        max_bytes: u64,
    },
    /// The runtime of [`Blocking`](crate::Blocking) could not start.
    #[error("could not start the threads that talk to the object store")]
    Runtime(#[source] io::Error),
}

/// Version of an object's content when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion(UpdateVersion);

/// An upload in parts. It is invisible until it is completed. Its parts stay, and cost money, until
/// it is completed or aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Name of the object within the prefix.
    pub name: String,
    /// Id that the service gave the upload.
    pub id: String,
}

/// A part of an upload that the service has received.
#[derive(Debug, Clone)]
pub struct SentPart(PartId);

/// Content of an object during its download.
pub struct ObjectDownload {
    /// Size of the object.
    pub bytes: u64,
    /// Chunks of the content, in order.
    pub content: BoxStream<'static, io::Result<Vec<u8>>>,
}

/// A prefix in a bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ObjectBucket {
    objects: Arc<dyn ObjectStore>,
    parts: Arc<dyn DebugMultipartStore>,
    address: BucketAddress,
}

/// Adds `Debug`, which the services implement and the trait does not require.
trait DebugMultipartStore: MultipartStore + std::fmt::Debug {}

impl<T: MultipartStore + std::fmt::Debug> DebugMultipartStore for T {}

impl ObjectBucket {
    /// Opens a bucket with credentials of the environment; nothing is sent yet.
    ///
    /// # Errors
    /// If the environment's settings for the service contradict each other.
    pub fn open(address: &BucketAddress) -> Result<Self, ObjectsError> {
        // TLS is rustls with ring in the whole workspace. An error means that the process has
        // already chosen a provider, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |source| ObjectsError::Open {
            address: address.to_string(),
            source,
        };
        let name = &address.bucket;
        Ok(match address.service {
            Service::S3 => {
                let builder = AmazonS3Builder::from_env().with_bucket_name(name);
                Self::of(builder.build().map_err(failed)?, address)
            }
            Service::Gcs => {
                let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(name);
                Self::of(builder.build().map_err(failed)?, address)
            }
            Service::Azure => {
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(name);
                Self::of(builder.build().map_err(failed)?, address)
            }
        })
    }

    fn of<S: ObjectStore + MultipartStore>(store: S, address: &BucketAddress) -> Self {
        let store = Arc::new(store);
        Self {
            objects: Arc::clone(&store) as Arc<dyn ObjectStore>,
            parts: store,
            address: address.clone(),
        }
    }

    /// Returns the address of an object for users.
    #[must_use]
    pub fn describe(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn path(&self, name: &str) -> Path {
        match self.address.prefix.as_str() {
            "" => Path::from(name),
            prefix => Path::from(format!("{prefix}/{name}")),
        }
    }

    fn failed(
        &self,
        doing: &'static str,
        name: &str,
    ) -> impl FnOnce(object_store::Error) -> ObjectsError {
        let object = self.describe(name);
        move |source| ObjectsError::Request {
            doing,
            object,
            source,
        }
    }

    /// Returns a small object and its version; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ObjectsError::Request`]; [`ObjectsError::TooLarge`].
    pub async fn get(
        &self,
        name: &str,
        max_bytes: u64,
    ) -> Result<Option<(Vec<u8>, ObjectVersion)>, ObjectsError> {
        let found = match self.objects.get(&self.path(name)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(self.failed("read", name))?,
        };
        if found.meta.size > max_bytes {
            return Err(ObjectsError::TooLarge {
                object: self.describe(name),
                bytes: found.meta.size,
                max_bytes,
            });
        }
        let version = ObjectVersion(UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        });
        let bytes = found.bytes().await.map_err(self.failed("read", name))?;
        Ok(Some((bytes.into(), version)))
    }

    /// Returns the bytes of a range, fewer at the object's end; `None` if the object does not
    /// exist.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn range(
        &self,
        name: &str,
        range: Range<u64>,
    ) -> Result<Option<impl AsRef<[u8]> + use<>>, ObjectsError> {
        match self.objects.get_range(&self.path(name), range).await {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            found => found.map(Some).map_err(self.failed("read", name)),
        }
    }

    /// Returns the length of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn len(&self, name: &str) -> Result<Option<u64>, ObjectsError> {
        match self.objects.head(&self.path(name)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            found => found
                .map(|meta| Some(meta.size))
                .map_err(self.failed("look for", name)),
        }
    }

    /// Downloads a large object; `None` if it does not exist. It is read in parts, because a large
    /// object or a slow reader would exceed the time limit of one request.
    ///
    /// # Errors
    /// [`ObjectsError::Request`]. Later failures are part of the content, for example if the object
    /// was replaced meanwhile.
    pub async fn download(&self, name: &str) -> Result<Option<ObjectDownload>, ObjectsError> {
        let path = self.path(name);
        let meta = match self.objects.head(&path).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(self.failed("look for", name))?,
        };
        let (objects, bytes, tag) = (Arc::clone(&self.objects), meta.size, meta.e_tag);
        let parts = stream::try_unfold(0, move |at| {
            let (objects, path, tag) = (Arc::clone(&objects), path.clone(), tag.clone());
            async move {
                if at >= bytes {
                    return Ok::<_, io::Error>(None);
                }
                let end = (at + PART_BYTES as u64).min(bytes);
                let options = GetOptions {
                    range: Some((at..end).into()),
                    if_match: tag,
                    ..GetOptions::default()
                };
                let part = objects.get_opts(&path, options).await;
                let part = part.map_err(io::Error::other)?.bytes().await;
                Ok(Some((Vec::from(part.map_err(io::Error::other)?), end)))
            }
        });
        Ok(Some(ObjectDownload {
            bytes,
            content: parts.boxed(),
        }))
    }

    /// Writes an object, and replaces an existing one.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), ObjectsError> {
        let put = self.objects.put(&self.path(name), bytes.into()).await;
        put.map(drop).map_err(self.failed("write", name))
    }

    /// Compare-and-set: writes an object if it still has the version that was read, or still does
    /// not exist. Returns `false` otherwise.
    ///
    /// A request that is repeated after a lost answer finds its own write and returns `false`; the
    /// caller then reads again.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn replace(
        &self,
        name: &str,
        bytes: Vec<u8>,
        read: Option<&ObjectVersion>,
    ) -> Result<bool, ObjectsError> {
        let mode = match read {
            Some(ObjectVersion(version)) => PutMode::Update(version.clone()),
            None => PutMode::Create,
        };
        let options = PutOptions::from(mode);
        match self
            .objects
            .put_opts(&self.path(name), bytes.into(), options)
            .await
        {
            Ok(_) => Ok(true),
            Err(
                object_store::Error::Precondition { .. }
                | object_store::Error::AlreadyExists { .. },
            ) => Ok(false),
            // The object that was read was removed. If none was read, the bucket is missing.
            Err(object_store::Error::NotFound { .. }) if read.is_some() => Ok(false),
            Err(source) => Err(self.failed("write", name)(source)),
        }
    }

    /// Returns the names of all objects in a folder and below, relative to the folder.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn list(&self, folder: &str) -> Result<Vec<String>, ObjectsError> {
        self.list_if(folder, |_| true).await
    }

    /// Returns the names of those objects of a folder that were last written before `before`.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn list_older(
        &self,
        folder: &str,
        before: SystemTime,
    ) -> Result<Vec<String>, ObjectsError> {
        self.list_if(folder, |meta| SystemTime::from(meta.last_modified) < before)
            .await
    }

    async fn list_if(
        &self,
        folder: &str,
        is_listed: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<String>, ObjectsError> {
        let path = self.path(folder);
        let found: Vec<_> = self
            .objects
            .list(Some(&path))
            .try_collect()
            .await
            .map_err(self.failed("list", folder))?;
        let listed = found.iter().filter(|meta| is_listed(meta));
        let names = listed.filter_map(|meta| {
            let parts = meta.location.prefix_match(&path)?;
            let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        });
        Ok(names.collect())
    }

    /// Removes objects. Missing objects are not an error.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn delete(&self, names: &[String]) -> Result<(), ObjectsError> {
        // One request per object: few services remove several per request, and they differ.
        for name in names {
            match self.objects.delete(&self.path(name)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(self.failed("remove", name)(source)),
            }
        }
        Ok(())
    }

    /// Whether an object of this size is uploaded in parts.
    #[must_use]
    pub fn needs_parts(bytes: usize) -> bool {
        bytes > PART_BYTES
    }

    /// Begins an upload in parts.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn begin(&self, name: &str) -> Result<Upload, ObjectsError> {
        let id = self.parts.create_multipart(&self.path(name)).await;
        Ok(Upload {
            name: name.to_owned(),
            id: id.map_err(self.failed("begin to write", name))?,
        })
    }

    /// Sends the content of an upload and completes it.
    ///
    /// # Errors
    /// [`ObjectsError::Request`]; the caller must then abort the upload.
    pub async fn upload(&self, upload: &Upload, content: &[&[u8]]) -> Result<(), ObjectsError> {
        let path = self.path(&upload.name);
        let bytes = content.iter().map(|slice| slice.len()).sum::<usize>();
        let part_bytes = Self::part_bytes(bytes as u64);
        let mut rest = RemainingSlices(content.to_vec());
        let mut sending = JoinSet::new();
        let mut sent: Vec<Option<SentPart>> = Vec::new();
        loop {
            let part = rest.take(part_bytes);
            let is_last = part.is_empty();
            if sending.len() == IN_FLIGHT || is_last {
                let Some(done) = sending.join_next().await else {
                    break;
                };
                let (at, id): (usize, object_store::Result<PartId>) =
                    done.expect("sending a part does not panic");
                let id = id.map_err(self.failed("write", &upload.name))?;
                sent[at] = Some(SentPart(id));
            }
            if is_last {
                continue;
            }
            let at = sent.len();
            sent.push(None);
            let (parts, path, id) = (Arc::clone(&self.parts), path.clone(), upload.id.clone());
            sending.spawn(async move {
                (
                    at,
                    parts.put_part(&path, &id, at, PutPayload::from(part)).await,
                )
            });
        }
        let sent = sent.into_iter();
        let sent = sent.map(|part| part.expect("all were sent"));
        self.complete(upload, sent.collect()).await
    }

    /// Returns the size of a part for an object of up to `bytes` bytes whose content comes in
    /// pieces.
    #[must_use]
    pub fn part_bytes(bytes: u64) -> usize {
        let least = bytes
            .div_ceil(MAX_PARTS as u64)
            .next_multiple_of(1 << 20)
            .max(PART_BYTES as u64);
        usize::try_from(least).expect("a part fits the memory")
    }

    /// Sends a part of an upload. Parts are numbered from 0; all but the last have the same size.
    ///
    /// # Errors
    /// [`ObjectsError::Request`]; the caller must then abort the upload.
    pub async fn send_part(
        &self,
        upload: &Upload,
        number: usize,
        bytes: Vec<u8>,
    ) -> Result<SentPart, ObjectsError> {
        let path = self.path(&upload.name);
        let sent = self.parts.put_part(&path, &upload.id, number, bytes.into());
        let id = sent.await.map_err(self.failed("write", &upload.name))?;
        Ok(SentPart(id))
    }

    /// Completes an upload whose parts were sent.
    ///
    /// # Errors
    /// [`ObjectsError::Request`]; the caller must then abort the upload.
    pub async fn complete(&self, upload: &Upload, sent: Vec<SentPart>) -> Result<(), ObjectsError> {
        let path = self.path(&upload.name);
        let sent = sent.into_iter().map(|part| part.0).collect();
        let completed = self.parts.complete_multipart(&path, &upload.id, sent).await;
        completed
            .map(drop)
            .map_err(self.failed("complete", &upload.name))
    }

    /// Aborts an upload. A missing upload is not an error.
    ///
    /// # Errors
    /// [`ObjectsError::Request`].
    pub async fn abort(&self, upload: &Upload) -> Result<(), ObjectsError> {
        let path = self.path(&upload.name);
        match self.parts.abort_multipart(&path, &upload.id).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.failed("give up", &upload.name)(source)),
        }
    }
}

/// Remainder of some slices.
struct RemainingSlices<'a>(Vec<&'a [u8]>);

impl RemainingSlices<'_> {
    /// Copies the first `bytes` bytes, or the remainder if it is shorter.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let left = self.0.iter().map(|slice| slice.len()).sum::<usize>();
        let mut out = Vec::with_capacity(bytes.min(left));
        while out.len() < bytes {
            let Some(first) = self.0.first_mut() else {
                break;
            };
            let (here, rest) = first.split_at(first.len().min(bytes - out.len()));
            out.extend_from_slice(here);
            *first = rest;
            if rest.is_empty() {
                self.0.remove(0);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use std::time::Duration;

    fn bucket() -> ObjectBucket {
        let address = BucketAddress {
            service: Service::S3,
            bucket: "bucket".to_owned(),
            prefix: "some/prefix".to_owned(),
        };
        ObjectBucket::of(InMemory::new(), &address)
    }

    #[test]
    fn slices_are_cut_into_parts() {
        let mut rest = RemainingSlices(vec![b"abc", b"", b"defg", b"h"]);
        assert_eq!(rest.take(4), b"abcd");
        assert_eq!(rest.take(3), b"efg");
        assert_eq!(rest.take(3), b"h");
        assert_eq!(rest.take(3), b"");
    }

    #[tokio::test]
    async fn object_is_replaced_only_at_the_version_that_was_read() {
        let bucket = bucket();
        assert!(bucket.replace("index", b"1".to_vec(), None).await.unwrap());
        assert!(!bucket.replace("index", b"2".to_vec(), None).await.unwrap());
        let (content, first) = bucket.get("index", 1).await.unwrap().expect("it is there");
        assert_eq!(content, b"1");
        assert!(
            bucket
                .replace("index", b"3".to_vec(), Some(&first))
                .await
                .unwrap()
        );
        assert!(
            !bucket
                .replace("index", b"4".to_vec(), Some(&first))
                .await
                .unwrap()
        );
        assert_eq!(bucket.get("index", 1).await.unwrap().unwrap().0, b"3");
        assert!(bucket.get("other", 1).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn object_above_the_bound_is_not_read() {
        let bucket = bucket();
        bucket.put("manifest", vec![b'x'; 101]).await.unwrap();
        assert_eq!(
            bucket.get("manifest", 101).await.unwrap().unwrap().0.len(),
            101
        );
        let error = bucket.get("manifest", 100).await.expect_err("too large");
        assert_eq!(
            error.to_string(),
            "s3://bucket/some/prefix/manifest has 101 bytes; at most 100 are read"
        );
    }

    #[tokio::test]
    async fn upload_in_pieces_is_visible_when_complete() {
        let bucket = bucket();
        let upload = bucket.begin("a/pieces").await.unwrap();
        let mut sent = Vec::new();
        for (number, byte) in [b'x', b'y', b'z'].into_iter().enumerate() {
            let part = bucket.send_part(&upload, number, vec![byte; 3]).await;
            sent.push(part.unwrap());
        }
        assert_eq!(bucket.len("a/pieces").await.unwrap(), None);
        bucket.complete(&upload, sent).await.unwrap();
        let read = bucket.range("a/pieces", 0..9).await.unwrap();
        assert_eq!(read.expect("it is there").as_ref(), b"xxxyyyzzz");
        assert_eq!(ObjectBucket::part_bytes(0), PART_BYTES);
        let large = ObjectBucket::part_bytes(1 << 40) as u64;
        assert!(large * MAX_PARTS as u64 >= 1 << 40);
    }

    #[tokio::test]
    async fn upload_is_in_order_and_visible_only_when_complete() {
        let bucket = bucket();
        let content: Vec<u8> = (0..PART_BYTES * 6 + 4321)
            .map(|i| (i % 251) as u8)
            .collect();
        let upload = bucket.begin("a/large").await.unwrap();
        assert!(bucket.list("").await.unwrap().is_empty());
        let (first, second) = content.split_at(12_345_678);
        bucket.upload(&upload, &[first, second]).await.unwrap();
        assert_eq!(
            bucket.len("a/large").await.unwrap(),
            Some(content.len() as u64)
        );
        let read = bucket
            .range("a/large", 0..content.len() as u64)
            .await
            .unwrap();
        assert!(read.expect("it is there").as_ref() == content);
        assert_eq!(bucket.list("a").await.unwrap(), ["large"]);
        let (past, future) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1 << 33));
        assert!(bucket.list_older("a", past).await.unwrap().is_empty());
        let older = bucket.list_older("a", past + future).await.unwrap();
        assert_eq!(older, ["large"]);
        bucket
            .delete(&["a/large".to_owned(), "a/none".to_owned()])
            .await
            .unwrap();
        assert!(bucket.list("").await.unwrap().is_empty());
    }
}
