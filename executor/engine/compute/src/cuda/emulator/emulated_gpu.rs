//! Emulated GPU that sums with others through a stand-in for NCCL (`stand_in_nccl.cpp`). It tests
//! only the engine's side of the interface.

use super::{DeferredQueue, Emulator, build};
use crate::cuda::device::NcclSupport;
use crate::cuda::nccl::Nccl;
use crate::cuda::product::ElementType;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Emulated GPU of one worker.
#[derive(Debug)]
pub struct EmulatedGpu {
    nccl_support: Result<NcclSupport, String>,
    /// Number of sums that this device was asked for.
    sums: AtomicU64,
    /// Number of the sum in which the process dies; 0 for none.
    dies_in: u64,
    updates: AtomicU64,
    /// Number of the Adam update after which one parameter is wrong; 0 for none.
    strays_in: u64,
}

/// Behaviour that is compiled into the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandInBehaviour {
    Usual,
    /// Another version.
    Newer,
    /// Older than the oldest supported version.
    Ancient,
    /// Communicators cannot be created.
    Refuses,
    /// Communicators work, and every sum fails.
    Fails,
    /// Every sum fails at all ranks but the first, which waits.
    FailsAtOthers,
}

impl StandInBehaviour {
    pub(crate) fn open(self) -> Result<Arc<Nccl>, crate::cuda::DeviceError> {
        static BUILT: Mutex<Vec<(StandInBehaviour, tempfile::TempDir)>> = Mutex::new(Vec::new());
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
        // SAFETY: the library was just compiled.
        Nccl::of(unsafe { libloading::Library::new(path) }.expect("the stand-in loads"))
    }
}

impl EmulatedGpu {
    /// GPU with this number; all have the same model.
    pub fn new(number: usize, stand_in: StandInBehaviour) -> Self {
        let nccl_support = stand_in.open().map(|nccl| NcclSupport {
            nccl,
            gpu: format!("{number:032x}"),
            kind: "emulated".to_owned(),
        });
        Self::of(nccl_support.map_err(|error| error.to_string()))
    }

    fn of(nccl_support: Result<NcclSupport, String>) -> Self {
        Self {
            nccl_support,
            sums: AtomicU64::new(0),
            dies_in: 0,
            updates: AtomicU64::new(0),
            strays_in: 0,
        }
    }

    /// The process dies by a panic when it is asked for the sum with this number, counted from 1.
    pub fn dying_in(self, dies_in: u64) -> Self {
        Self { dies_in, ..self }
    }

    /// One parameter is wrong after the update with this number, counted from 1, as after a memory
    /// error.
    pub fn straying_in(self, strays_in: u64) -> Self {
        Self { strays_in, ..self }
    }

    /// GPU on a machine without NCCL.
    pub fn without_library() -> Self {
        Self::of(Err("the CUDA library libnccl was not found".to_owned()))
    }

    pub(crate) fn nccl_support(&self) -> Result<NcclSupport, String> {
        self.nccl_support.clone()
    }

    /// Number of sums that it was asked for.
    pub fn sums(&self) -> u64 {
        self.sums.load(Ordering::SeqCst)
    }

    pub(crate) fn queue(self: &Arc<Self>) -> DeferredQueue {
        let mut queue = Emulator::new(ElementType::F32);
        queue.gpu = Some(Arc::clone(self));
        DeferredQueue::new(queue)
    }

    /// Whether the last update corrupted a parameter.
    pub(super) fn has_strayed(&self) -> bool {
        1 + self.updates.fetch_add(1, Ordering::SeqCst) == self.strays_in
    }

    pub(super) fn count(&self) {
        let sums = 1 + self.sums.fetch_add(1, Ordering::SeqCst);
        assert!(sums != self.dies_in, "told to die in sum {sums}");
    }
}
