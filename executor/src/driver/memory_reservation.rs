//! Memory reservations of tasks whose memory is being moved. The helpers of a node work at the same
//! time without knowledge of each other. Without reservations each would find the same free memory.
//!
//! A reservation is a file that its holder has locked, so it ends with its holder. It
//! counts in full until the whole move has ended, although a part is already used by then: an
//! overestimate only delays other moves.

use super::DriverError;
use super::memory_budget::GpuBytes;
use crate::disk;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Attempts to lock the gate, which each holder keeps only for its check.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);
const PREFIX: &str = "promise.";

/// Memory that one task has reserved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ReservedMemory {
    /// On the host, and the cgroups that it counts against.
    pub host: u64,
    pub cgroups: Vec<PathBuf>,
    pub gpus: GpuBytes,
}

/// Handle of a reservation; it is released on drop.
#[derive(Debug, Default)]
pub(super) struct MemoryReservation(Option<(File, PathBuf)>);

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// All reservations of this node.
#[derive(Debug)]
pub(super) struct MemoryReservations {
    folder: PathBuf,
}

impl MemoryReservations {
    /// # Errors
    /// If the folder does not exist and cannot be created.
    pub(super) fn at(folder: &Path) -> Result<Self, DriverError> {
        let reservations = Self {
            folder: folder.to_owned(),
        };
        fs::create_dir_all(folder).map_err(reservations.failed())?;
        Ok(reservations)
    }

    /// Makes the reservation that `decide` derives from the reservations of other helpers. If there
    /// is no room, returns the reason of `decide`.
    ///
    /// # Errors
    /// If the reservations or the free memory cannot be read.
    pub(super) fn reserve<W>(
        &self,
        decide: impl FnOnce(&[ReservedMemory]) -> Result<Result<ReservedMemory, W>, DriverError>,
    ) -> Result<Result<MemoryReservation, W>, DriverError> {
        let _gate = self.gate()?;
        let others = self.read().map_err(self.failed())?;
        match decide(&others)? {
            Ok(reserved) => self.store(&reserved).map(Ok).map_err(self.failed()),
            Err(why) => Ok(Err(why)),
        }
    }

    fn gate(&self) -> Result<File, DriverError> {
        let gate = disk::hold(&self.folder.join("gate")).map_err(self.failed())?;
        for _ in 0..TRIES {
            match gate.try_lock() {
                Ok(()) => return Ok(gate),
                Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(self.failed()(error)),
            }
        }
        Err(self.failed()(io::ErrorKind::WouldBlock.into()))
    }

    /// Returns the reservations of living holders, and removes the others.
    fn read(&self) -> io::Result<Vec<ReservedMemory>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
                continue;
            }
            let file = match disk::open(&entry.path()) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            match file.try_lock_shared() {
                Ok(()) => {
                    let _ = fs::remove_file(entry.path());
                }
                Err(TryLockError::WouldBlock) => found.push(serde_json::from_reader(&file)?),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Writes a reservation. Readers see it complete, because they hold the gate too.
    fn store(&self, reserved: &ReservedMemory) -> io::Result<MemoryReservation> {
        let mut number = 0;
        let (file, path) = loop {
            let path = self.folder.join(format!("{PREFIX}{number}"));
            match File::create_new(&path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        };
        file.lock()?;
        serde_json::to_writer(&file, reserved)?;
        Ok(MemoryReservation(Some((file, path))))
    }

    fn failed(&self) -> impl Fn(io::Error) -> DriverError + '_ {
        move |source| DriverError::Promises {
            path: self.folder.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(bytes: u64) -> ReservedMemory {
        ReservedMemory {
            host: bytes,
            ..ReservedMemory::default()
        }
    }

    /// Reserves `bytes` of 100.
    fn ask(reservations: &MemoryReservations, bytes: u64) -> Result<MemoryReservation, u64> {
        let judged = reservations.reserve(|others| {
            let free = 100 - others.iter().map(|one| one.host).sum::<u64>();
            Ok(if free < bytes {
                Err(free)
            } else {
                Ok(host(bytes))
            })
        });
        judged.expect("our own folder")
    }

    #[test]
    fn reserved_memory_is_not_reserved_again() {
        let place = tempfile::tempdir().expect("a folder");
        let reservations = MemoryReservations::at(&place.path().join("new")).expect("made");
        let first = ask(&reservations, 60).expect("all is free");
        let second = ask(&reservations, 40).expect("there is as much");
        assert_eq!(ask(&reservations, 1).err(), Some(0));
        drop(first);
        assert_eq!(ask(&reservations, 61).err(), Some(60));
        drop(second);
        drop(ask(&reservations, 100).expect("all is free again"));
        let left = fs::read_dir(place.path().join("new")).expect("there");
        assert_eq!(left.count(), 1, "the gate alone");
    }

    #[test]
    fn reservation_of_a_killed_holder_is_released() {
        let place = tempfile::tempdir().expect("a folder");
        let reservations = MemoryReservations::at(place.path()).expect("made");
        let mut killed = ask(&reservations, 100).expect("all is free");
        assert!(ask(&reservations, 1).is_err());
        // The kernel releases the lock; the file remains.
        drop(killed.0.take());
        assert!(ask(&reservations, 100).is_ok());
    }
}
