//! NCCL, NVIDIA's library of sums over several GPUs: loaded on demand, with the few functions that
//! are needed.
//!
//! The bindings of `cudarc` use one library per process and panic for each missing symbol. Here a
//! library is a value, so that tests can replace it by a stand-in, and a problem with the real
//! library is a readable error.
//!
//! The module is independent of jobs and workers. Its inputs are ranks, an id that all of them
//! share, and device memory.

mod communicator;

pub use communicator::{AllReduceError, NcclCommunicator, PollCallback};

use super::error::DeviceError;
use super::library::CudaLibrary;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// `NCCL_VERSION(2, 22, 3)`: the header with which these declarations were compared. It is the
/// first version in which a communicator connects lazily, so that creating one without blocking
/// needs no stream.
const OLDEST: c_int = 22_203;
const OLDEST_TEXT: &str = "2.22.3";

/// Size of the id by which ranks find each other, in bytes.
pub const ID_BYTES: usize = 128;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NcclId(pub [u8; ID_BYTES]);

/// `ncclConfig_t` of 2.22; a newer library recognises by `size` that later fields are absent and
/// uses their defaults.
#[repr(C)]
struct NcclConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl NcclConfig {
    /// Calls return at once, so that a waiting caller can check whether the other ranks are alive.
    fn without_blocking() -> Self {
        /// `NCCL_CONFIG_UNDEF_INT`.
        const LEFT_OUT: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: OLDEST.unsigned_abs(),
            blocking: 0,
            cga_cluster_size: LEFT_OUT,
            min_ctas: LEFT_OUT,
            max_ctas: LEFT_OUT,
            net_name: std::ptr::null(),
            split_share: LEFT_OUT,
        }
    }
}

/// `ncclComm_t`.
type NcclComm = *mut c_void;
/// `ncclResult_t`; newer libraries have more values.
type NcclResult = c_uint;

const SUCCESS: NcclResult = 0;
/// `ncclInvalidArgument`.
const INVALID: NcclResult = 4;
const IN_PROGRESS: NcclResult = 7;
/// `ncclFloat32` and `ncclSum`.
const FLOATS: c_int = 7;
const SUM: c_int = 0;

/// NCCL with its functions.
pub(crate) struct Nccl {
    get_unique_id: unsafe extern "C" fn(*mut NcclId) -> NcclResult,
    init: unsafe extern "C" fn(*mut NcclComm, c_int, NcclId, c_int, *mut NcclConfig) -> NcclResult,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        NcclComm,
        *mut c_void,
    ) -> NcclResult,
    async_error: unsafe extern "C" fn(NcclComm, *mut NcclResult) -> NcclResult,
    abort: unsafe extern "C" fn(NcclComm) -> NcclResult,
    error_string: unsafe extern "C" fn(NcclResult) -> *const c_char,
    last_error: unsafe extern "C" fn(NcclComm) -> *const c_char,
    version: c_int,
    /// Library that contains the functions.
    _library: libloading::Library,
}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nccl({})", self.version())
    }
}

impl Nccl {
    /// Opens the NCCL of the machine.
    ///
    /// # Errors
    /// If it is missing, too old, or lacks a symbol.
    pub(crate) fn find() -> Result<Arc<Self>, DeviceError> {
        Self::of(CudaLibrary::sums()?)
    }

    /// # Errors
    /// See [`Self::find`].
    pub(crate) fn of(library: libloading::Library) -> Result<Arc<Self>, DeviceError> {
        // SAFETY: each function has the type that `nccl.h` declares for its name. The value keeps
        // the library, so the functions stay valid.
        unsafe {
            let get_version: unsafe extern "C" fn(*mut c_int) -> NcclResult =
                symbol(&library, "ncclGetVersion")?;
            let mut version = 0;
            if get_version(&raw mut version) != SUCCESS || version < OLDEST {
                return Err(DeviceError::OldNccl {
                    found: text(version),
                    oldest: OLDEST_TEXT,
                });
            }
            Ok(Arc::new(Self {
                get_unique_id: symbol(&library, "ncclGetUniqueId")?,
                init: symbol(&library, "ncclCommInitRankConfig")?,
                all_reduce: symbol(&library, "ncclAllReduce")?,
                async_error: symbol(&library, "ncclCommGetAsyncError")?,
                abort: symbol(&library, "ncclCommAbort")?,
                error_string: symbol(&library, "ncclGetErrorString")?,
                last_error: symbol(&library, "ncclGetLastError")?,
                version,
                _library: library,
            }))
        }
    }

    /// Version in its usual notation.
    pub fn version(&self) -> String {
        text(self.version)
    }

    /// Creates an id for one communicator. The process that has created it must live until all
    /// ranks have joined.
    ///
    /// # Errors
    /// Errors of NCCL.
    pub fn id(&self) -> Result<NcclId, AllReduceError> {
        let mut id = NcclId([0; ID_BYTES]);
        // SAFETY: NCCL writes exactly the bytes of the type.
        let answer = unsafe { (self.get_unique_id)(&raw mut id) };
        match answer {
            SUCCESS => Ok(id),
            answer => Err(self.refused("make an id", answer, std::ptr::null_mut())),
        }
    }

    fn refused(&self, action: &'static str, answer: NcclResult, raw: NcclComm) -> AllReduceError {
        // SAFETY: both functions return static, terminated strings; the communicator, if there is
        // one, has not been aborted.
        let texts = unsafe { [(self.error_string)(answer), (self.last_error)(raw)] };
        let [kind, detail] = texts.map(|text| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        });
        let cause = match detail.trim() {
            "" => kind,
            detail => format!("{kind}: {detail}"),
        };
        AllReduceError::Refused { action, cause }
    }
}

/// # Safety
/// The symbol must have that type, and must not be used after the library is closed.
unsafe fn symbol<F: Copy>(
    library: &libloading::Library,
    symbol: &'static str,
) -> Result<F, DeviceError> {
    // SAFETY: guaranteed by the caller.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found
        .map(|found| *found)
        .map_err(|_| DeviceError::Symbol { symbol })
}

/// Since 2.9 a version is major · 10,000 + minor · 100 + patch.
fn text(version: c_int) -> String {
    let [major, minor, patch] = [version / 10_000, version / 100 % 100, version % 100];
    format!("{major}.{minor}.{patch}")
}
