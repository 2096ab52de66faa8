//! Lease of the node on its tasks: the time until which they may run without a session.
//!
//! The lease counts from the SENDING of the newest acknowledged heartbeat. The scheduler counts
//! from its reception, which is later, so tasks stop before the scheduler gives their GPUs away.
//! The daemon writes the deadline. Each shim reads and enforces it, also while the daemon is dead.

use crate::config::ExecutorConfig;
use crate::disk;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attempts to read a file that the daemon may be rewriting.
const READS: u32 = 3;

/// The lease file, as the daemon writes it.
#[derive(Debug, Clone)]
pub struct Lease {
    path: PathBuf,
    /// Second path of the file, for pods.
    also: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Deadline {
    deadline_boottime_ms: u64,
    /// Repetition of the deadline: the file is rewritten in place, and a reader may see a partial
    /// write. Absent in files of the previous release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<u64>,
}

/// The lease as a shim reads it.
#[derive(Debug)]
pub struct LeaseWatch {
    lease: Lease,
    deadline_ms: u64,
}

impl Lease {
    #[must_use]
    pub fn of(data: &Path) -> Self {
        Self {
            path: data.join("lease"),
            also: None,
        }
    }

    /// Returns the lease to grant. Shims read it in their data folder, which differs for pods; pods
    /// of the previous release read it in the daemon's data folder.
    #[must_use]
    pub fn granted(config: &ExecutorConfig) -> Self {
        let (data, shims) = (&config.data_dir, config.data_of_shims());
        Self {
            also: (shims != *data).then(|| shims.join("lease")),
            ..Self::of(data)
        }
    }

    /// Extends the lease to `lease_ms` after the sending time of an acknowledged heartbeat.
    ///
    /// # Errors
    /// If the file cannot be written; the tasks then stop at the old deadline.
    pub fn grant(&self, sent_boottime_ms: u64, lease_ms: u64) -> io::Result<()> {
        let deadline_boottime_ms = sent_boottime_ms.saturating_add(lease_ms);
        let deadline = Deadline {
            deadline_boottime_ms,
            again: Some(deadline_boottime_ms),
        };
        let mut paths = [&self.path].into_iter().chain(&self.also);
        paths.try_for_each(|path| disk::rewrite(path, &deadline, false))
    }

    /// Returns the deadline in milliseconds of `CLOCK_BOOTTIME`, if it can be read.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        (0..READS).find_map(|_| {
            let read: Deadline = disk::read(&self.path).ok().flatten()?;
            let is_whole = read
                .again
                .is_none_or(|again| again == read.deadline_boottime_ms);
            is_whole.then_some(read.deadline_boottime_ms)
        })
    }
}

impl LeaseWatch {
    #[must_use]
    pub fn new(lease: Lease) -> Self {
        Self {
            lease,
            deadline_ms: 0,
        }
    }

    /// Whether the deadline has passed. The file is read only after the known deadline has passed,
    /// so most calls cost nothing. If it cannot be read, the known deadline holds; without one
    /// there is no lease.
    #[must_use]
    pub fn is_expired(&mut self, now_boottime_ms: u64) -> bool {
        if now_boottime_ms < self.deadline_ms {
            return false;
        }
        if let Some(deadline_ms) = self.lease.deadline_ms() {
            self.deadline_ms = deadline_ms;
        }
        now_boottime_ms >= self.deadline_ms
    }

    /// Returns the time until the known deadline.
    #[must_use]
    pub fn left(&self, now_boottime_ms: u64) -> Duration {
        Duration::from_millis(self.deadline_ms.saturating_sub(now_boottime_ms))
    }

    /// Returns the deadline, if it has passed; without a known deadline, now.
    #[must_use]
    pub fn expired_at_ms(&mut self, now_boottime_ms: u64) -> Option<u64> {
        let is_expired = self.is_expired(now_boottime_ms);
        let at_ms = match self.deadline_ms {
            0 => now_boottime_ms,
            known => known,
        };
        is_expired.then_some(at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_counts_from_the_sending_and_is_extended() {
        let data = tempfile::tempdir().expect("folder");
        let lease = Lease::of(data.path());
        let mut watch = LeaseWatch::new(lease.clone());
        assert!(watch.is_expired(1), "no lease was ever granted");
        lease.grant(1_000, 500).expect("written");
        assert!(!watch.is_expired(1_499));
        assert!(watch.is_expired(1_500));
        lease.grant(1_400, 500).expect("written");
        assert!(!watch.is_expired(1_500));
        std::fs::remove_file(data.path().join("lease")).expect("removed");
        assert!(!watch.is_expired(1_899), "the last one known counts");
        assert!(watch.is_expired(1_900));
    }

    #[test]
    fn half_rewritten_lease_extends_nothing() {
        let data = tempfile::tempdir().expect("folder");
        let lease = Lease::of(data.path());
        lease.grant(1_000, 500).expect("written");
        let whole = std::fs::read_to_string(data.path().join("lease")).expect("there");
        let half = whole.replacen("1500", "9500", 1);
        std::fs::write(data.path().join("lease"), half).expect("written");
        assert_eq!(lease.deadline_ms(), None);
        let of_before = r#"{"deadline_boottime_ms":1700}"#;
        std::fs::write(data.path().join("lease"), of_before).expect("written");
        assert_eq!(lease.deadline_ms(), Some(1_700));
        lease.grant(2_000, 500).expect("rewritten");
        assert_eq!(lease.deadline_ms(), Some(2_500));
    }

    #[test]
    fn lease_is_granted_at_the_old_and_new_path_of_pods() {
        let data = tempfile::tempdir().expect("folder");
        let shown = data.path().join("shown");
        std::fs::create_dir(&shown).expect("our own folder");
        let lease = Lease {
            also: Some(shown.join("lease")),
            ..Lease::of(data.path())
        };
        lease.grant(1_000, 500).expect("written");
        for data in [data.path(), &shown] {
            assert_eq!(Lease::of(data).deadline_ms(), Some(1_500));
        }
    }
}
