//! NVIDIA's driver library (`libcuda`), looked for at run time: its calls that take the memory of another process off the GPUs and bring it
//! back, of CUDA 12.8 and newer.
//!
//! Only `Lock` is given arguments, whose layout has been the same in all versions (`cuda.h` of 12.8 to 13.4); the others take none, so that
//! no version's layout of theirs can be the wrong one. `Restore` wants `cuInit` called before, or persistence mode.

use super::DriverError;
use libloading::{Library, Symbol};
use std::ffi::{c_int, c_uint, c_void};
use std::fs;
use std::ptr;

/// Where the loader finds it, in the place that the driver was installed to.
const NAME: &str = "libcuda.so.1";
/// CUDA 12.8, which has brought the calls.
const LEAST: c_int = 12_080;

/// Results of the driver that mean something here (`CUresult`).
const SUCCESS: c_int = 0;

/// With it the names of the threads begin that the driver starts in each process that uses it.
const THREADS: &str = "cuda";

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
    /// If the driver is at work in the process, and yet says nothing of it.
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
        // Which error it is that says so depends on the driver. Whoever was forked from a process on a GPU has its files of the driver open
        // too, but none of its threads.
        if code != SUCCESS && !has_thread(pid, THREADS) {
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

/// Whether the name of one of its threads begins so.
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
    fn a_thread_is_seen_from_outside() {
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
    fn versions_are_shown_as_people_write_them() {
        assert_eq!(shown(12_080), "12.8");
        assert_eq!(shown(13_000), "13.0");
    }
}
