//! Compilation of the kernels to a GPU's machine code by NVRTC.
//!
//! The target is machine code and not PTX. The driver would have to support the version of the PTX
//! and would compile it again.

use super::error::DeviceError;
use super::kernels;
use super::library::CudaLibrary;
use super::product::ElementType;
use cudarc::nvrtc::result::{
    NvrtcError, compile_program, create_program, destroy_program, get_program_log,
};
use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString};

/// Compiles the kernels for values of one kind, on GPUs of compute capability `major`.`minor`.
///
/// # Errors
/// If the compiler is missing or fails.
pub(crate) fn compile(
    kind: ElementType,
    [major, minor]: [usize; 2],
) -> Result<Vec<u8>, DeviceError> {
    CudaLibrary::Compiler.find()?;
    let source = CString::new(kernels::source(kind)).expect("the source has no zero byte");
    let program = create_program(&source, Some(c"muster.cu"))
        .map_err(|error| failed("the program was refused", error))?;
    let options = [
        format!("--gpu-architecture=sm_{major}{minor}"),
        "--std=c++17".to_owned(),
    ];
    // SAFETY: the program was just created, is destroyed below and not used afterwards. NVRTC
    // reports the sizes of the buffers.
    unsafe {
        let compiled = compile_program(program, &options);
        let code = match compiled {
            Ok(()) => machine_code(program).map_err(|error| failed("no machine code", error)),
            Err(_) => Err(DeviceError::Compile { log: log(program) }),
        };
        destroy_program(program).map_err(|error| failed("the program stays", error))?;
        code
    }
}

fn failed(what: &str, error: NvrtcError) -> DeviceError {
    DeviceError::Compile {
        log: format!("{what}: {error}"),
    }
}

/// # Safety
/// `program` must have been compiled for a real architecture.
unsafe fn machine_code(program: sys::nvrtcProgram) -> Result<Vec<u8>, NvrtcError> {
    let mut len = 0;
    // SAFETY: guaranteed by the caller; `code` has the length that NVRTC reports.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &raw mut len).result()?;
        let mut code = vec![0_u8; len];
        sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()).result()?;
        Ok(code)
    }
}

/// # Safety
/// `program` must not have been destroyed.
unsafe fn log(program: sys::nvrtcProgram) -> String {
    // SAFETY: guaranteed by the caller.
    let log = unsafe { get_program_log(program) }.unwrap_or_default();
    let bytes: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| "no log".to_owned(),
        |log| log.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// NVRTC needs no GPU. If it is not installed, `scripts/ensure-nvrtc` downloads it; on a
    /// machine without access to it this test fails.
    #[test]
    fn kernels_compile_for_current_gpu_architectures() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/ensure-nvrtc");
        let said = Command::new(script).output().expect("the script starts");
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(
            said.status.success(),
            "the GPU's kernels cannot be compiled here: {errors}"
        );
        let folder = String::from_utf8(said.stdout).expect("a path");
        CudaLibrary::Compiler.open_in(folder.trim_end().as_ref());
        for kind in [ElementType::F32, ElementType::Bf16] {
            let names = kernels::names(kind);
            assert!(names.len() > 40, "kernels are found by their names");
            for capability in [[8, 0], [9, 0]] {
                let code = compile(kind, capability).unwrap_or_else(|error| panic!("{error}"));
                for name in &names {
                    let symbol = format!("\0{name}\0");
                    let mut parts = code.windows(symbol.len());
                    assert!(
                        parts.any(|part| part == symbol.as_bytes()),
                        "{name} for {kind:?} on {capability:?}"
                    );
                }
            }
        }
    }
}
