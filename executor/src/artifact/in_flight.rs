//! Bytes of contents that this node is writing, per job. An admission counts recorded artifacts
//! only, so parallel uploads would each get the whole remainder of a limit.

use super::error::ArtifactError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are being written, by the folder of the job's contents.
#[derive(Debug, Clone, Default)]
pub(super) struct BytesInFlight(Arc<Mutex<BTreeMap<String, u64>>>);

/// Bytes that one upload has reserved; dropping it releases them.
#[derive(Debug)]
pub(super) struct ReservedBytes {
    all: BytesInFlight,
    folder: String,
    most_bytes: u64,
    bytes: u64,
}

impl BytesInFlight {
    /// Reserves the announced bytes of an upload. All uploads of the job may have `most_bytes`
    /// together.
    ///
    /// # Errors
    /// [`ArtifactError::Grown`]; [`ArtifactError::Busy`] while other uploads take the rest.
    pub(super) fn reserve(
        &self,
        folder: &str,
        (announced, most_bytes): (u64, u64),
    ) -> Result<ReservedBytes, ArtifactError> {
        let mut reserved = ReservedBytes {
            all: self.clone(),
            folder: folder.to_owned(),
            most_bytes,
            bytes: 0,
        };
        reserved.cover(announced)?;
        Ok(reserved)
    }
}

impl ReservedBytes {
    /// Reserves more, so that the upload may have this number of bytes.
    ///
    /// # Errors
    /// As [`BytesInFlight::reserve`].
    pub(super) fn cover(&mut self, bytes: u64) -> Result<(), ArtifactError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let most_bytes = self.most_bytes;
        if bytes > most_bytes {
            return Err(ArtifactError::Grown { most_bytes });
        }
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = all.entry(self.folder.clone()).or_default();
        let new = sum.saturating_add(more);
        // Another upload may replace an artifact and need no further bytes. So this upload is
        // repeated.
        if new > most_bytes {
            return Err(ArtifactError::Busy);
        }
        *sum = new;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sum) = all.get_mut(&self.folder) {
            *sum -= self.bytes;
            if *sum == 0 {
                all.remove(&self.folder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_uploads_share_the_limit_of_their_job() {
        let all = BytesInFlight::default();
        let mut first = all.reserve("a", (60, 100)).expect("there is room");
        let refused = all.reserve("a", (50, 100)).expect_err("no room");
        assert!(matches!(refused, ArtifactError::Busy), "{refused}");
        let refused = all.reserve("a", (101, 100)).expect_err("above the limit");
        assert!(matches!(refused, ArtifactError::Grown { most_bytes: 100 }));
        let mut second = all.reserve("a", (0, 100)).expect("nothing is announced");
        second.cover(40).expect("there is room");
        assert!(second.cover(41).is_err());
        first.cover(60).expect("it is reserved");
        let _other = all.reserve("b", (100, 100)).expect("of another job");
        drop(first);
        second.cover(100).expect("there is room again");
        drop(second);
        let all = all.0.lock().expect("free");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["b"]);
    }
}
