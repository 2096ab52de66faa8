//! NVIDIA's driver library (`libcuda`), looked for at run time: its calls that take the memory of another process off the GPUs and bring it
//! back, of CUDA 12.8 and newer.
//!
//! Only `Lock` is given arguments, whose layout has been the same in all versions; the others take none, so that no version's layout of
//! theirs can be the wrong one.

use super::DriverError;
use libloading::{Library, Symbol};
use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

/// Where the loader finds it, in the place that the driver was installed to.
const NAME: &str = "libcuda.so.1";
/// CUDA 12.8, which has brought the calls.
const LEAST: c_int = 12_080;

/// Results of the driver that mean something here (`CUresult`).
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const NOT_INITIALIZED: c_int = 3;
const OPERATING_SYSTEM: c_int = 304;

/// How a process stands with the driver (`CUprocessState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    /// Its calls to the driver wait.
    Locked,
    /// Its device memory lies on the host.
    Moved,
    /// The driver has lost it.
    Failed,
    /// On the way from one to the other, or one that a newer driver knows.
    Other(c_int),
}

/// What the driver does with a process.
pub(super) trait Driver {
    /// `None` of a process that has nothing on a GPU.
    ///
    /// # Errors
    /// If the process has the driver open, and yet the driver says nothing of it.
    fn state(&self, pid: i32) -> Result<Option<State>, DriverError>;
    /// # Errors
    /// If the driver refuses, or has not done it in that time.
    fn lock(&self, pid: i32, timeout_ms: u32) -> Result<(), DriverError>;
    /// # Errors
    /// If the driver refuses.
    fn checkpoint(&self, pid: i32) -> Result<(), DriverError>;
    /// # Errors
    /// If the driver refuses, which may leave the process without a way back.
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

/// Of `Checkpoint`, `Restore` and `Unlock`: none are given.
type Act = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

/// The library, loaded and initialised.
pub(super) struct Cuda {
    lock: unsafe extern "C" fn(c_int, *mut LockArguments) -> c_int,
    checkpoint: Act,
    restore: Act,
    unlock: Act,
    state: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    thread: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    /// `12080` is 12.8.
    version: c_int,
    _library: Library,
}

impl Cuda {
    /// # Errors
    /// If there is no driver, or one without these calls.
    pub(super) fn load() -> Result<Self, DriverError> {
        // SAFETY: loading runs the library's initialisers. It is the driver that every program with a GPU loads, and what looks for it
        // here is a process of its own, with nothing to lose.
        let library = unsafe { Library::new(NAME) }
            .map_err(|source| DriverError::Load { name: NAME, source })?;
        // SAFETY: the types are those of cuda.h.
        let version: unsafe extern "C" fn(*mut c_int) -> c_int =
            unsafe { find(&library, "cuDriverGetVersion") }?;
        let mut number = 0;
        // SAFETY: it writes one integer.
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
        // SAFETY: `cuInit` takes flags, of which there are none.
        let init: unsafe extern "C" fn(c_uint) -> c_int =
            unsafe { find(&cuda._library, "cuInit") }?;
        // SAFETY: as above.
        done("cuInit", None, unsafe { init(0) })?;
        Ok(cuda)
    }

    /// As people write it.
    pub(super) fn version(&self) -> String {
        shown(self.version)
    }
}

impl Driver for Cuda {
    fn state(&self, pid: i32) -> Result<Option<State>, DriverError> {
        // Whoever has something on a GPU has a thread of the driver's that would bring it back.
        let mut thread = 0;
        // SAFETY: it writes one integer.
        let code = unsafe { (self.thread)(pid, &mut thread) };
        if matches!(code, INVALID_VALUE | NOT_INITIALIZED | OPERATING_SYSTEM)
            && !opens(pid, Path::new("/dev/nvidia-uvm"))
        {
            return Ok(None);
        }
        done("cuCheckpointProcessGetRestoreThreadId", Some(pid), code)?;
        let mut state = 0;
        // SAFETY: it writes one integer.
        let code = unsafe { (self.state)(pid, &mut state) };
        done("cuCheckpointProcessGetState", Some(pid), code)?;
        Ok(Some(match state {
            0 => State::Running,
            1 => State::Locked,
            2 => State::Moved,
            3 => State::Failed,
            other => State::Other(other),
        }))
    }

    fn lock(&self, pid: i32, timeout_ms: u32) -> Result<(), DriverError> {
        let mut arguments = LockArguments {
            // 0 would be for ever.
            timeout_ms: timeout_ms.max(1),
            reserved0: 0,
            reserved1: [0; 7],
        };
        // SAFETY: the arguments live until the call is over, and have the layout of cuda.h.
        let code = unsafe { (self.lock)(pid, &mut arguments) };
        done("cuCheckpointProcessLock", Some(pid), code)
    }

    fn checkpoint(&self, pid: i32) -> Result<(), DriverError> {
        // SAFETY: the arguments are optional.
        let code = unsafe { (self.checkpoint)(pid, ptr::null_mut()) };
        done("cuCheckpointProcessCheckpoint", Some(pid), code)
    }

    fn restore(&self, pid: i32) -> Result<(), DriverError> {
        // SAFETY: the arguments are optional. Without them all comes back to the GPUs that it was on.
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
    // SAFETY: by the caller's word.
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

/// Whether a process has this file open.
fn opens(pid: i32, path: &Path) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    open.flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_seen_from_outside() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("device");
        let own = i32::try_from(std::process::id()).expect("small");
        let file = std::fs::File::create(&path).expect("made");
        assert!(opens(own, &path));
        drop(file);
        assert!(!opens(own, &path));
    }

    #[test]
    fn versions_are_shown_as_people_write_them() {
        assert_eq!(shown(12_080), "12.8");
        assert_eq!(shown(13_000), "13.0");
    }
}
