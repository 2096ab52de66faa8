//! Choice of the device on which a task computes.

use super::blas::{CublasLt, WORKSPACE};
use super::compiler;
use super::dnn;
use super::error::{DeviceError, failure};
use super::kernels;
use super::library::CudaLibrary;
use super::nccl::{AllReduceError, Nccl, NcclId};
use super::product::ElementType;
use super::queue::DeviceQueue;
use super::stream::GpuStream;
use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUdevice_attribute;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Requested device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// First GPU granted to the task if it is usable, else the CPU.
    #[default]
    Auto,
    Cpu,
    /// GPU with this index among those visible to the process; an error if it is unusable.
    Cuda(usize),
}

/// Precision of products and storage format of values between operations. Parameters and their
/// gradients are always f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ComputePrecision {
    /// f32 values and products.
    F32,
    /// f32 values; products on tensor cores, which use 10 bits of each factor's significand.
    #[default]
    Tf32,
    /// bf16 values and products; sums are f32.
    Bf16,
}

/// Device on which passes run.
#[derive(Debug, Clone, Default)]
pub enum Device {
    #[default]
    Cpu,
    Cuda(CudaDevice),
    /// Emulator that replaces a GPU in tests, in f32.
    #[cfg(any(test, feature = "emulator"))]
    Emulated,
    /// Emulator with a stand-in for NCCL.
    #[cfg(any(test, feature = "emulator"))]
    Ranked(Arc<super::emulator::EmulatedGpu>),
}

/// Queue of a device, and the kind of values between operations.
pub(crate) type TypedQueue = (Box<dyn DeviceQueue>, ElementType);

/// NCCL and the properties of a device for sums with other devices.
#[derive(Debug, Clone)]
pub struct NcclSupport {
    pub(crate) nccl: Arc<Nccl>,
    /// Identity of the GPU among all GPUs.
    pub gpu: String,
    /// Properties that must be equal for the same update to give the same bits: the GPU's model and
    /// the precision.
    pub kind: String,
}

impl NcclSupport {
    /// Version of NCCL.
    #[must_use]
    pub fn version(&self) -> String {
        self.nccl.version()
    }

    /// Returns the id of a new communicator.
    ///
    /// # Errors
    /// If NCCL fails.
    pub fn id(&self) -> Result<NcclId, AllReduceError> {
        self.nccl.id()
    }
}

/// GPU with its context and precision.
#[derive(Clone)]
pub struct CudaDevice {
    context: Arc<CudaContext>,
    name: String,
    capability: [usize; 2],
    precision: ComputePrecision,
    /// Version of cuDNN, or the reason why convolutions are products on patches.
    convolutions: Result<String, DeviceError>,
}

impl Device {
    /// Opens the chosen device. `granted` is whether `CUDA_VISIBLE_DEVICES` grants the task GPUs.
    /// On a node of CPU slots a task must not use a GPU that was not granted. The second value is
    /// the reason for using the CPU where a GPU may have been expected, for the log.
    ///
    /// # Errors
    /// If a GPU was requested by number and is unusable.
    pub fn open(
        choice: DeviceChoice,
        granted: bool,
        precision: ComputePrecision,
    ) -> Result<(Self, Option<String>), DeviceError> {
        match choice {
            DeviceChoice::Cpu => Ok((Self::Cpu, None)),
            DeviceChoice::Cuda(ordinal) => {
                Ok((Self::Cuda(CudaDevice::open(ordinal, precision)?), None))
            }
            DeviceChoice::Auto if !granted => Ok((Self::Cpu, None)),
            DeviceChoice::Auto => match CudaDevice::open(0, precision) {
                Ok(gpu) => Ok((Self::Cuda(gpu), None)),
                Err(error) => Ok((Self::Cpu, Some(error.to_string()))),
            },
        }
    }

    /// Creates the queue of the device; `None` for the CPU.
    ///
    /// # Errors
    /// If the compiler or the GPU fails.
    pub(crate) fn queue(&self) -> Result<Option<TypedQueue>, DeviceError> {
        Ok(match self {
            Self::Cpu => None,
            Self::Cuda(gpu) => Some((Box::new(gpu.stream()?), gpu.kind())),
            #[cfg(any(test, feature = "emulator"))]
            Self::Emulated => {
                let queue = super::emulator::Emulator::new(ElementType::F32);
                Some((
                    Box::new(super::emulator::DeferredQueue::new(queue)),
                    ElementType::F32,
                ))
            }
            #[cfg(any(test, feature = "emulator"))]
            Self::Ranked(gpu) => Some((Box::new(gpu.queue()), ElementType::F32)),
        })
    }

    /// Returns what the device needs for sums with other GPUs, or the reason why it has none.
    pub fn nccl_support(&self) -> Result<NcclSupport, String> {
        match self {
            Self::Cpu => Err("it computes on the CPU".to_owned()),
            Self::Cuda(gpu) => gpu.nccl_support().map_err(|error| error.to_string()),
            #[cfg(any(test, feature = "emulator"))]
            Self::Emulated => Err("it has no NCCL".to_owned()),
            #[cfg(any(test, feature = "emulator"))]
            Self::Ranked(gpu) => gpu.nccl_support(),
        }
    }

    /// Whether passes run on the host.
    pub fn is_cpu(&self) -> bool {
        matches!(self, Self::Cpu)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("the CPU"),
            Self::Cuda(gpu) => write!(
                f,
                "{} ({:?}, {})",
                gpu.name,
                gpu.precision,
                gpu.convolutions()
            ),
            #[cfg(any(test, feature = "emulator"))]
            Self::Emulated | Self::Ranked(_) => f.write_str("an emulated GPU"),
        }
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {:?})", self.name, self.capability)
    }
}

impl FromStr for DeviceChoice {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| DeviceError::Unknown(text.to_owned())),
        }
    }
}

impl FromStr for ComputePrecision {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        match text {
            "f32" => Ok(Self::F32),
            "tf32" => Ok(Self::Tf32),
            "bf16" => Ok(Self::Bf16),
            _ => Err(DeviceError::Precision(text.to_owned())),
        }
    }
}

impl ComputePrecision {
    pub(crate) fn kind(self) -> ElementType {
        match self {
            Self::F32 | Self::Tf32 => ElementType::F32,
            Self::Bf16 => ElementType::Bf16,
        }
    }
}

impl CudaDevice {
    /// Opens a GPU. All required libraries are looked up first, because `cudarc` panics where one
    /// is missing. cuDNN is optional.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn open(ordinal: usize, precision: ComputePrecision) -> Result<Self, DeviceError> {
        for library in [
            CudaLibrary::Driver,
            CudaLibrary::Compiler,
            CudaLibrary::Products,
        ] {
            library.find()?;
        }
        let count = CudaContext::device_count().map_err(failure("count GPUs"))?;
        let count = usize::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(DeviceError::NoSuchGpu { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(failure("open a context"))?;
        // `cudarc` would record its own events during graph capture. Only its memory types need
        // them, and this module does not use those.
        // SAFETY: memory is allocated and freed by address, never by those types.
        unsafe { context.disable_event_tracking() };
        let name = context.name().map_err(failure("ask its name"))?;
        let capability = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        let [major, minor] = capability.map(|attribute| {
            let number = context.attribute(attribute);
            number.map_err(failure("ask its compute capability"))
        });
        let [major, minor] = [major? as usize, minor? as usize];
        if major < 8 {
            let gpu = name;
            return Err(DeviceError::TooOld { gpu, major, minor });
        }
        Ok(Self {
            context,
            name,
            capability: [major, minor],
            precision,
            convolutions: convolutions(),
        })
    }

    /// Returns the same GPU with convolutions as products on patches, as without cuDNN.
    #[must_use]
    pub fn without_cudnn(self) -> Self {
        let convolutions = Err(DeviceError::Declined);
        Self {
            convolutions,
            ..self
        }
    }

    /// Describes how convolutions are computed.
    #[must_use]
    pub fn convolutions(&self) -> String {
        match &self.convolutions {
            Ok(version) => format!("convolutions by cuDNN {version}"),
            Err(why) => format!("convolutions as products: {why}"),
        }
    }

    fn nccl_support(&self) -> Result<NcclSupport, DeviceError> {
        let nccl = Nccl::find()?;
        let uuid = self.context.uuid().map_err(|error| DeviceError::Failed {
            action: "ask which it is".to_owned(),
            cause: error.to_string(),
        })?;
        let [major, minor] = self.capability;
        Ok(NcclSupport {
            nccl,
            gpu: uuid.bytes.map(|byte| format!("{byte:02x}")).concat(),
            kind: format!("{} ({major}.{minor}, {:?})", self.name, self.precision),
        })
    }

    /// Name that the driver reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn kind(&self) -> ElementType {
        self.precision.kind()
    }

    /// Compiles and loads the kernels and creates the streams.
    ///
    /// # Errors
    /// If the compiler or the GPU fails.
    pub(crate) fn stream(&self) -> Result<GpuStream, DeviceError> {
        let code = compiler::compile(self.kind(), self.capability)?;
        let code = cudarc::nvrtc::Ptx::from_binary(code);
        let module = self
            .context
            .load_module(code)
            .map_err(failure("load the kernels"))?;
        let functions = kernels::names(self.kind()).into_iter().map(|name| {
            let function = module.load_function(name);
            function
                .map(|function| (name, function))
                .map_err(failure(&format!("find the kernel {name}")))
        });
        let functions = functions.collect::<Result<HashMap<_, _>, _>>()?;
        let mut stream = GpuStream::new(self.context.clone(), functions)?;
        let workspace = stream.take(WORKSPACE)?;
        let is_exact = self.precision == ComputePrecision::F32;
        stream.set_blas(CublasLt::new(workspace, is_exact)?);
        if self.convolutions.is_ok() {
            stream.use_dnn(is_exact)?;
        }
        Ok(stream)
    }
}

/// Returns the version of cuDNN, if it is found and not declined. The GPU's context must be bound
/// to the thread.
fn convolutions() -> Result<String, DeviceError> {
    if std::env::var_os("MUSTER_WITHOUT_CUDNN").is_some_and(|value| !value.is_empty()) {
        Err(DeviceError::Declined)
    } else {
        dnn::probe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_precisions_are_parsed() {
        assert_eq!("auto".parse::<DeviceChoice>().unwrap(), DeviceChoice::Auto);
        assert_eq!("cpu".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cpu);
        assert_eq!(
            "cuda".parse::<DeviceChoice>().unwrap(),
            DeviceChoice::Cuda(0)
        );
        assert_eq!(
            "cuda:3".parse::<DeviceChoice>().unwrap(),
            DeviceChoice::Cuda(3)
        );
        for text in ["", "gpu", "cuda:", "cuda:x", "CPU"] {
            let error = text.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains("auto, cpu, cuda or cuda:N"), "{error}");
        }
        assert_eq!(
            "bf16".parse::<ComputePrecision>().unwrap(),
            ComputePrecision::Bf16
        );
        assert!("fp8".parse::<ComputePrecision>().is_err());
    }

    /// The machine may or may not have a driver.
    #[test]
    fn auto_without_driver_selects_the_cpu_with_a_reason() {
        let (device, why) =
            Device::open(DeviceChoice::Auto, false, ComputePrecision::Tf32).unwrap();
        assert!(matches!(device, Device::Cpu) && why.is_none());
        if CudaLibrary::Driver.find().is_ok() {
            return;
        }
        let (device, why) = Device::open(DeviceChoice::Auto, true, ComputePrecision::Tf32).unwrap();
        assert!(matches!(device, Device::Cpu));
        assert!(why.unwrap().contains("libcuda was not found"));
        let refused = Device::open(DeviceChoice::Cuda(0), true, ComputePrecision::Tf32);
        assert!(refused.unwrap_err().to_string().contains("libcuda"));
    }
}
