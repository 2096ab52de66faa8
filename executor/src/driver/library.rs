//! NVIDIA's driver library (`libcuda`), loaded at run time. CUDA 12.8 introduced its calls that
//! move the memory of another process to the host and back.
//!
//! Only the lock receives an arguments structure; its layout is the same in all versions (`cuda.h`
//! of 12.8 to 13.4). The other calls receive a null pointer, so their layouts need not be known. A
//! restore requires `cuInit` before, or persistence mode.

use super::DriverError;
use libloading::{Library, Symbol};
use std::ffi::{c_int, c_uint, c_void};
use std::fs;
use std::ptr;

/// Name by which the loader finds the installed driver.
const NAME: &str = "libcuda.so.1";
/// Oldest supported version: CUDA 12.8.
const LEAST: c_int = 12_080;

/// Success (`CUresult`).
const SUCCESS: c_int = 0;

/// Name prefix of the threads that the driver starts in each process that uses it.
const THREADS: &str = "cuda";

/// State of a process in the driver (`CUprocessState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudaProcessState {
    Running,
    /// Its calls to the driver block.
    Locked,
    /// Its device memory is on the host.
    Moved,
    /// The driver cannot restore it.
    Failed,
    /// In transition, or a state of a newer driver.
    Other(c_int),
}

/// Operations of the driver on a process.
pub(super) trait Driver {
    /// Returns the state; `None` for a process that uses no GPU.
    ///
    /// # Errors
    /// If the process uses the driver but the driver does not return its state.
    fn state(&self, pid: i32) -> Result<Option<CudaProcessState>, DriverError>;
    /// # Errors
    /// If the driver refuses, or exceeds the time-out.
    fn lock(&self, pid: i32, timeout_ms: u32) -> Result<(), DriverError>;
    /// # Errors
    /// If the driver refuses.
    fn checkpoint(&self, pid: i32) -> Result<(), DriverError>;
    /// # Errors
    /// If the driver refuses; the process may then be lost.
    fn restore(&self, pid: i32) -> Result<(), DriverError>;
    /// # Errors
    /// If the driver refuses.
    fn unlock(&self, pid: i32) -> Result<(), DriverError>;
}

/// `CUcheckpointLockArgs`.
#[repr(C)]
struct LockArguments {
    timeout_ms: c_uint,
    reserved0: c_uint,
    reserved1: [u64; 7],
}

/// Type of `Checkpoint`, `Restore` and `Unlock`, which receive a null pointer as arguments.
type Act = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

/// The loaded and initialised library.
pub(super) struct Cuda {
    lock: unsafe extern "C" fn(c_int, *mut LockArguments) -> c_int,
    checkpoint: Act,
    restore: Act,
    unlock: Act,
    state: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    thread: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    /// `12080` means 12.8.
    version: c_int,
    _library: Library,
}

impl Cuda {
    /// # Errors
    /// If there is no driver, or if it lacks these calls.
    pub(super) fn load() -> Result<Self, DriverError> {
        // SAFETY: loading runs the library's initialisers. It is the driver that every GPU program
        // loads, and this helper process has no state to lose.
        let library = unsafe { Library::new(NAME) }
            .map_err(|source| DriverError::Load { name: NAME, source })?;
        // SAFETY: the types are those of cuda.h.
        let version: unsafe extern "C" fn(*mut c_int) -> c_int =
            unsafe { find(&library, "cuDriverGetVersion") }?;
        let mut number = 0;
        // SAFETY: the call writes one integer.
        done("cuDriverGetVersion", None, unsafe { version(&mut number) })?;
        if number < LEAST {
            return Err(DriverError::Old {
                version: shown(number),
                least: shown(LEAST),
            });
        }
        // SAFETY: as above, for each of them.
        let cuda = unsafe {
            Self {
                lock: find(&library, "cuCheckpointProcessLock")?,
                checkpoint: find(&library, "cuCheckpointProcessCheckpoint")?,
                restore: find(&library, "cuCheckpointProcessRestore")?,
                unlock: find(&library, "cuCheckpointProcessUnlock")?,
                state: find(&library, "cuCheckpointProcessGetState")?,
                thread: find(&library, "cuCheckpointProcessGetRestoreThreadId")?,
                version: number,
                _library: library,
            }
        };
        // SAFETY: `cuInit` takes flags; 0 means none.
        let init: unsafe extern "C" fn(c_uint) -> c_int =
            unsafe { find(&cuda._library, "cuInit") }?;
        // SAFETY: as above.
        done("cuInit", None, unsafe { init(0) })?;
        Ok(cuda)
    }

    /// Returns the version in the usual notation, such as 12.8.
    pub(super) fn version(&self) -> String {
        shown(self.version)
    }
}

impl Driver for Cuda {
    fn state(&self, pid: i32) -> Result<Option<CudaProcessState>, DriverError> {
        // A process with device memory has a driver thread that would restore it.
        let mut thread = 0;
        // SAFETY: the call writes one integer.
        let code = unsafe { (self.thread)(pid, &mut thread) };
        // The error code for its absence depends on the driver. A process forked from one on a GPU
        // inherits the open files of the driver but not its threads.
        if code != SUCCESS && !has_thread(pid, THREADS) {
            return Ok(None);
        }
        done("cuCheckpointProcessGetRestoreThreadId", Some(pid), code)?;
        let mut state = 0;
        // SAFETY: the call writes one integer.
        let code = unsafe { (self.state)(pid, &mut state) };
        done("cuCheckpointProcessGetState", Some(pid), code)?;
        Ok(Some(match state {
            0 => CudaProcessState::Running,
            1 => CudaProcessState::Locked,
            2 => CudaProcessState::Moved,
            3 => CudaProcessState::Failed,
            other => CudaProcessState::Other(other),
        }))
    }

    fn lock(&self, pid: i32, timeout_ms: u32) -> Result<(), DriverError> {
        let mut arguments = LockArguments {
            // 0 would mean no time limit.
            timeout_ms: timeout_ms.max(1),
            reserved0: 0,
            reserved1: [0; 7],
        };
        // SAFETY: the arguments live until the call returns, and have the layout of cuda.h.
        let code = unsafe { (self.lock)(pid, &mut arguments) };
        done("cuCheckpointProcessLock", Some(pid), code)
    }

    fn checkpoint(&self, pid: i32) -> Result<(), DriverError> {
        // SAFETY: the arguments are optional.
        let code = unsafe { (self.checkpoint)(pid, ptr::null_mut()) };
        done("cuCheckpointProcessCheckpoint", Some(pid), code)
    }

    fn restore(&self, pid: i32) -> Result<(), DriverError> {
        // SAFETY: the arguments are optional. Without them the memory returns to its former GPUs.
        let code = unsafe { (self.restore)(pid, ptr::null_mut()) };
        done("cuCheckpointProcessRestore", Some(pid), code)
    }

    fn unlock(&self, pid: i32) -> Result<(), DriverError> {
        // SAFETY: the arguments are optional.
        let code = unsafe { (self.unlock)(pid, ptr::null_mut()) };
        done("cuCheckpointProcessUnlock", Some(pid), code)
    }
}

/// # Safety
/// `T` must be the type of the function of that name.
unsafe fn find<T: Copy>(library: &Library, name: &'static str) -> Result<T, DriverError> {
    // SAFETY: guaranteed by the caller.
    let symbol: Result<Symbol<'_, T>, _> = unsafe { library.get(name) };
    symbol
        .map(|symbol| *symbol)
        .map_err(|source| DriverError::Lacks { call: name, source })
}

fn done(call: &'static str, pid: Option<i32>, code: c_int) -> Result<(), DriverError> {
    match code {
        SUCCESS => Ok(()),
        code => Err(DriverError::Refused { call, pid, code }),
    }
}

fn shown(version: c_int) -> String {
    format!("{}.{}", version / 1_000, version % 1_000 / 10)
}

/// Whether a thread of the process has a name with this prefix.
fn has_thread(pid: i32, prefix: &str) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn thread_of_another_process_is_found_by_name() {
        let own = i32::try_from(std::process::id()).expect("small");
        assert!(!has_thread(own, THREADS));
        let (end, ended) = mpsc::channel::<()>();
        let started = thread::Builder::new()
            .name("cuda-EvtHandlr".to_owned())
            .spawn(move || ended.recv());
        let started = started.expect("started");
        while !has_thread(own, THREADS) {
            thread::yield_now();
        }
        drop(end);
        assert!(started.join().expect("no panic").is_err());
        assert!(!has_thread(-1, THREADS));
    }

    #[test]
    fn version_is_formatted_as_major_and_minor() {
        assert_eq!(shown(12_080), "12.8");
        assert_eq!(shown(13_000), "13.0");
    }
}
