//! An emulated GPU that sums with others by a stand-in for NCCL (`stand_in_nccl.cpp`), which proves this side of the contract only.

use super::emulator::{Emulator, build};
use super::late::Late;
use crate::cuda::device::Means;
use crate::cuda::nccl::Nccl;
use crate::cuda::product::Kind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One worker's.
#[derive(Debug)]
pub struct Ranked {
    means: Result<Means, String>,
    /// Sums that this device has been asked for.
    sums: AtomicU64,
    /// The one in whose stead its process dies; 0: none.
    dies_in: u64,
    updates: AtomicU64,
    /// The update by Adam after which one of its parameters is not what it should be; 0: none.
    strays_in: u64,
}

/// What is compiled into the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandIn {
    Usual,
    /// Of another version.
    Newer,
    /// Older than any that is used.
    Ancient,
    /// No communicator comes about.
    Refuses,
    /// Communicators stand, and every sum fails.
    Fails,
    /// The same at all ranks but the first, which waits.
    FailsAtOthers,
}

impl StandIn {
    pub(crate) fn open(self) -> Result<Arc<Nccl>, crate::cuda::DeviceError> {
        static BUILT: Mutex<Vec<(StandIn, tempfile::TempDir)>> = Mutex::new(Vec::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if built.iter().all(|(which, _)| *which != self) {
            let folder = tempfile::tempdir().expect("a folder");
            let source = folder.path().join("nccl.cpp");
            let how = match self {
                Self::Usual => "",
                Self::Newer => "#define VERSION 22801\n",
                Self::Ancient => "#define VERSION 21805\n",
                Self::Refuses => "#define REFUSES\n",
                Self::Fails => "#define FAILS 0\n",
                Self::FailsAtOthers => "#define FAILS 1\n",
            };
            let text = format!("{how}{}", include_str!("stand_in_nccl.cpp"));
            std::fs::write(&source, text).expect("the source is written");
            build(&source, &folder.path().join("libnccl.so.2"));
            built.push((self, folder));
        }
        let found = built.iter().find(|(which, _)| *which == self);
        let path = found.expect("just built").1.path().join("libnccl.so.2");
        // SAFETY: the library is what was just compiled.
        Nccl::of(unsafe { libloading::Library::new(path) }.expect("the stand-in loads"))
    }
}

impl Ranked {
    /// The GPU of that number, of one kind with all others.
    pub(crate) fn new(number: usize, stand_in: StandIn) -> Self {
        let means = stand_in.open().map(|nccl| Means {
            nccl,
            gpu: format!("{number:032x}"),
            kind: "emulated".to_owned(),
        });
        Self::of(means.map_err(|error| error.to_string()))
    }

    fn of(means: Result<Means, String>) -> Self {
        Self {
            means,
            sums: AtomicU64::new(0),
            dies_in: 0,
            updates: AtomicU64::new(0),
            strays_in: 0,
        }
    }

    /// Its process dies, by a panic, when it is asked for the sum of that number, counted from 1.
    pub(crate) fn dying_in(self, dies_in: u64) -> Self {
        Self { dies_in, ..self }
    }

    /// One of its parameters is another after the update of that number, counted from 1, as by broken memory.
    pub(crate) fn straying_in(self, strays_in: u64) -> Self {
        Self { strays_in, ..self }
    }

    /// Where there is no library.
    pub(crate) fn without_library() -> Self {
        Self::of(Err("the CUDA library libnccl was not found".to_owned()))
    }

    pub(crate) fn means(&self) -> Result<Means, String> {
        self.means.clone()
    }

    /// Sums that it was asked for.
    pub(crate) fn sums(&self) -> u64 {
        self.sums.load(Ordering::SeqCst)
    }

    pub(crate) fn queue(self: &Arc<Self>) -> Late {
        let mut queue = Emulator::new(Kind::F32);
        queue.ranked = Some(Arc::clone(self));
        Late::new(queue)
    }

    /// Whether the update that was just made went astray.
    pub(super) fn has_strayed(&self) -> bool {
        1 + self.updates.fetch_add(1, Ordering::SeqCst) == self.strays_in
    }

    pub(super) fn count(&self) {
        let sums = 1 + self.sums.fetch_add(1, Ordering::SeqCst);
        assert!(sums != self.dies_in, "told to die in sum {sums}");
    }
}
