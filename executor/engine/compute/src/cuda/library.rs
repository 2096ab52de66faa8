//! Detection of CUDA's libraries, also in folders where the system does not search.
//!
//! `cudarc` loads them by name on first use and panics where one is missing. Each library is
//! therefore looked up here first. A library in a toolkit or a Python installation is opened by its
//! path; once it is open, it is found by its name.

use super::error::DeviceError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// CUDA libraries: driver, kernel compiler, matrix products; convolutions and sums over several
/// GPUs, which are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CudaLibrary {
    Driver,
    Compiler,
    Products,
    Convolutions,
    Sums,
}

/// Name by which the system finds NCCL.
const NCCL: &str = "libnccl.so.2";

impl CudaLibrary {
    /// Makes the library usable.
    ///
    /// # Errors
    /// If it is not found.
    pub(crate) fn find(self) -> Result<(), DeviceError> {
        if self.is_present() {
            return Ok(());
        }
        // The driver's library must be the installed one; another copy has another version or is a
        // stub.
        if self != Self::Driver {
            for folder in folders() {
                self.open_in(&folder);
                if self.is_present() {
                    return Ok(());
                }
            }
        }
        Err(DeviceError::Missing {
            library: self.name(),
            hint: self.hint(),
        })
    }

    fn is_present(self) -> bool {
        // SAFETY: CUDA's own libraries are loaded, whose initialisers have no effect on this
        // process.
        unsafe {
            match self {
                Self::Driver => cudarc::driver::sys::is_culib_present(),
                Self::Compiler => cudarc::nvrtc::sys::is_culib_present(),
                Self::Products => cudarc::cublaslt::sys::is_culib_present(),
                Self::Convolutions => cudarc::cudnn::sys::is_culib_present(),
                Self::Sums => libloading::Library::new(NCCL).is_ok(),
            }
        }
    }

    /// Opens NCCL, for callers that look up its functions by name.
    ///
    /// # Errors
    /// If it is not found.
    pub(crate) fn sums() -> Result<libloading::Library, DeviceError> {
        Self::Sums.find()?;
        // SAFETY: as in `is_present`.
        let library = unsafe { libloading::Library::new(NCCL) };
        library.map_err(|error| DeviceError::Failed {
            action: "open libnccl".to_owned(),
            cause: error.to_string(),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Driver => "libcuda",
            Self::Compiler => "libnvrtc",
            Self::Products => "libcublasLt",
            Self::Convolutions => "libcudnn",
            Self::Sums => "libnccl",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Driver => "it comes with NVIDIA's driver",
            Self::Compiler => {
                "it comes with CUDA or PyPI's nvidia-cuda-nvrtc; MUSTER_CUDA_LIBRARIES may name its folder"
            }
            Self::Products => {
                "it comes with CUDA or PyPI's nvidia-cublas; MUSTER_CUDA_LIBRARIES may name its folder"
            }
            Self::Convolutions => {
                "it comes with PyPI's nvidia-cudnn-cu13; MUSTER_CUDA_LIBRARIES may name its folder"
            }
            Self::Sums => {
                "it comes with PyPI's nvidia-nccl-cu13; MUSTER_CUDA_LIBRARIES may name its folder"
            }
        }
    }

    /// Major versions, newest first.
    fn versions(self) -> &'static [&'static str] {
        match self {
            // cuDNN opens its other parts from its own folder.
            Self::Convolutions => &["9"],
            Self::Sums => &["2"],
            Self::Driver | Self::Compiler | Self::Products => &["13", "12"],
        }
    }

    /// Opens the library's file in a folder, if it exists, for the rest of the process.
    pub(crate) fn open_in(self, folder: &Path) {
        if self == Self::Compiler {
            open_builtins(folder);
        }
        for version in self.versions() {
            let file = folder.join(format!("{}.so.{version}", self.name()));
            if !file.exists() {
                continue;
            }
            if open(&file) {
                return;
            }
        }
    }
}

/// Opens a library for the rest of the process.
fn open(file: &Path) -> bool {
    // SAFETY: as in `is_present`. The library is never closed, so its symbols stay valid.
    let library = unsafe { libloading::Library::new(file) };
    library.map(std::mem::forget).is_ok()
}

/// Opens the compiler's internal library, which the compiler loads by name without searching its
/// own folder.
fn open_builtins(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libnvrtc-builtins.so.") {
            open(&path);
        }
    }
}

/// Folders that may contain CUDA's libraries, besides those that the system searches.
fn folders() -> Vec<PathBuf> {
    let named = variable("MUSTER_CUDA_LIBRARIES");
    let mut folders: Vec<PathBuf> = std::env::split_paths(&named)
        .filter(|path| path.is_absolute())
        .collect();
    let homes = ["CUDA_HOME", "CUDA_PATH"].map(|name| PathBuf::from(variable(name)));
    let homes = homes.into_iter().chain(["/usr/local/cuda".into()]);
    folders.extend(
        homes
            .filter(|home| home.is_absolute())
            .map(|home| home.join("lib64")),
    );
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .map(|name| PathBuf::from(variable(name)))
        .into();
    prefixes.push(PathBuf::from(variable("HOME")).join(".local"));
    prefixes.extend(["/usr/local".into(), "/usr".into()]);
    // The first Python on the PATH may have another prefix.
    let path = variable("PATH");
    prefixes.extend(
        std::env::split_paths(&path)
            .filter(|folder| folder.join("python3").exists())
            .filter_map(|folder| folder.parent().map(Path::to_owned)),
    );
    for prefix in prefixes.iter().filter(|prefix| prefix.is_absolute()) {
        folders.extend(in_python(prefix));
    }
    folders
}

/// `lib/python3*/{site,dist}-packages/nvidia/*/lib` below a prefix, newest first.
fn in_python(prefix: &Path) -> Vec<PathBuf> {
    let pythons = entries(&prefix.join("lib")).into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("python3")
    });
    pythons
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)))
        .flat_map(|packages| entries(&packages.join("nvidia")))
        .map(|package| package.join("lib"))
        .filter(|folder| folder.is_dir())
        .collect()
}

/// Returns the entries of a folder in reverse order of their names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.reverse();
    paths
}

/// Returns an environment variable, empty if it is not set.
fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_installations_are_searched_for_libraries() {
        let prefix = tempfile::tempdir().expect("a folder");
        let here = [
            "lib/python3.12/site-packages/nvidia/cu13/lib",
            "lib/python3.12/site-packages/nvidia/cublas/lib",
            "lib/python3/dist-packages/nvidia/cu13/lib",
        ];
        let here = here.map(|folder| prefix.path().join(folder));
        for folder in &here {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::create_dir_all(prefix.path().join("lib/perl5")).expect("a folder");
        let found = in_python(prefix.path());
        assert_eq!(found.len(), 3);
        assert!(here.iter().all(|folder| found.contains(folder)));
        assert_eq!(in_python(Path::new("/nowhere")), Vec::<PathBuf>::new());
    }
}
