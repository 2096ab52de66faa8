//! Convolutions by cuDNN. The algorithm of each shape is chosen once and cached.
//!
//! Only cuDNN's heuristics are used, and only algorithms that cuDNN declares deterministic. A
//! measured choice, or sums in arbitrary order, would not give the same bits in every run.

use super::convolution::{ComputedOperand, ConvolutionCall, ConvolutionShape};
use super::error::DeviceError;
use super::library::CudaLibrary;
use super::product::ElementType;
use super::queue::DeviceAddress;
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

/// Maximum workspace of an algorithm in bytes.
const WORKSPACE: usize = 512 << 20;
/// Number of algorithms that are requested; more than exist.
const MOST: usize = 16;
/// First version whose libraries load each other, 9.0.0.
const OLDEST: usize = 90_000;

/// cuDNN handle with a cache of plans.
pub(crate) struct Cudnn {
    handle: sys::cudnnHandle_t,
    answers: HashMap<(ConvolutionShape, ComputedOperand), bool>,
    plans: HashMap<(ConvolutionShape, ComputedOperand, usize), ConvolutionPlan>,
    /// Largest workspace of the best algorithm of any plan, in bytes.
    workspace: usize,
    /// Whether f32 convolutions use all bits; else tensor cores use 10 bits of the significand
    /// (TF32).
    is_exact: bool,
}

/// cuDNN's description of a convolution, and its algorithms, best first.
struct ConvolutionPlan {
    descriptors: ConvolutionDescriptors,
    choices: Vec<AlgorithmCandidate>,
}

#[derive(Clone, Copy)]
struct AlgorithmCandidate {
    algorithm: ConvolutionAlgorithm,
    math: sys::cudnnMathType_t,
    workspace: usize,
}

#[derive(Clone, Copy)]
enum ConvolutionAlgorithm {
    Output(sys::cudnnConvolutionFwdAlgo_t),
    Image(sys::cudnnConvolutionBwdDataAlgo_t),
    Weight(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// Result of the heuristics for an algorithm.
struct AlgorithmHeuristic {
    algorithm: ConvolutionAlgorithm,
    status: sys::cudnnStatus_t,
    determinism: sys::cudnnDeterminism_t,
    math: sys::cudnnMathType_t,
}

/// Descriptors; null where one could not be created.
struct ConvolutionDescriptors {
    image: sys::cudnnTensorDescriptor_t,
    output: sys::cudnnTensorDescriptor_t,
    weight: sys::cudnnFilterDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
}

/// Returns cuDNN's version if the library is present and starts on the GPU whose context is bound
/// to the thread.
///
/// # Errors
/// Names what is missing.
pub(crate) fn probe() -> Result<String, DeviceError> {
    CudaLibrary::Convolutions.find()?;
    let version = result::get_version();
    if version < OLDEST {
        return Err(failure("start")(format!(
            "version {version} is older than 9"
        )));
    }
    let handle = result::create_handle().map_err(failure("start"))?;
    // SAFETY: just created and not used elsewhere.
    unsafe { result::destroy_handle(handle) }.map_err(failure("start"))?;
    let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
    Ok(format!("{major}.{minor}.{patch}"))
}

impl Cudnn {
    /// Starts cuDNN on a stream of the thread's context.
    ///
    /// # Errors
    /// If the library is missing or does not start.
    ///
    /// # Safety
    /// The stream must outlive this value.
    pub(crate) unsafe fn new(
        stream: sys::cudaStream_t,
        is_exact: bool,
    ) -> Result<Self, DeviceError> {
        CudaLibrary::Convolutions.find()?;
        let handle = result::create_handle().map_err(failure("start"))?;
        let dnn = Self {
            handle,
            answers: HashMap::new(),
            plans: HashMap::new(),
            workspace: 0,
            is_exact,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { result::set_stream(dnn.handle, stream) }.map_err(failure("start"))?;
        Ok(dnn)
    }

    /// Whether cuDNN has an algorithm for `examples` examples. The first answer is cached and holds
    /// for any number of examples.
    pub(crate) fn can(
        &mut self,
        filters: &ConvolutionShape,
        computed: ComputedOperand,
        examples: usize,
    ) -> bool {
        if let Some(answer) = self.answers.get(&(*filters, computed)) {
            return *answer;
        }
        let answer = self.plan(filters, computed, examples).is_ok();
        self.answers.insert((*filters, computed), answer);
        answer
    }

    /// Enqueues the convolution. `room` provides device memory of at least the given number of
    /// bytes, which stays allocated until the work is done.
    ///
    /// # Errors
    /// If there is no memory, or no algorithm accepts the convolution after all.
    ///
    /// # Safety
    /// The operands' addresses must be device memory of at least the size of their shapes, and the
    /// context of the stream must be the thread's.
    pub(crate) unsafe fn convolve(
        &mut self,
        convolution: &ConvolutionCall,
        room: &mut dyn FnMut(usize) -> Result<DeviceAddress, DeviceError>,
    ) -> Result<(), DeviceError> {
        let (filters, computed) = (&convolution.filters, convolution.computed);
        let key = (*filters, computed, convolution.examples);
        if !self.plans.contains_key(&key) {
            self.plan(filters, computed, convolution.examples)
                .map_err(failure("choose an algorithm of"))?;
        }
        let plan = self.plans.get_mut(&key).expect("just made");
        let mut last = sys::cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED;
        // An algorithm that fails when it is first used is not tried again.
        while let Some(choice) = plan.choices.first() {
            let workspace = match choice.workspace {
                0 => 0,
                bytes => room(bytes.max(self.workspace))?,
            };
            // SAFETY: guaranteed by the caller; the workspace has the size that the algorithm
            // requires.
            match unsafe {
                plan.descriptors
                    .ask(self.handle, choice, convolution, workspace)
            } {
                Ok(()) => return Ok(()),
                Err(CudnnError(status)) => last = status,
            }
            plan.choices.remove(0);
        }
        Err(failure("convolve with")(format!(
            "{last:?}, {convolution:?}; MUSTER_WITHOUT_CUDNN=1 does without it"
        )))
    }

    /// # Errors
    /// If cuDNN has no algorithm.
    fn plan(
        &mut self,
        filters: &ConvolutionShape,
        computed: ComputedOperand,
        examples: usize,
    ) -> Result<(), CudnnError> {
        use sys::cudnnMathType_t::{
            CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH,
            CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
        };
        let math = match (filters.kind, self.is_exact) {
            (ElementType::Bf16, _) => CUDNN_TENSOR_OP_MATH,
            (ElementType::F32, true) => CUDNN_FMA_MATH,
            // Default math allows TF32 for f32.
            (ElementType::F32, false) => CUDNN_DEFAULT_MATH,
        };
        let descriptors = ConvolutionDescriptors::new(filters, examples, math)?;
        let mut choices = Vec::new();
        // SAFETY: descriptors are complete and alive.
        for found in unsafe { descriptors.find(self.handle, computed) }? {
            let is_good = found.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                && found.determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC
                && match math {
                    CUDNN_FMA_MATH => [CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH].contains(&found.math),
                    // This math would convert values to f16.
                    _ => found.math != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
                };
            if !is_good {
                continue;
            }
            // An algorithm is valid only together with the math type that the heuristics returned.
            let math = match math {
                CUDNN_FMA_MATH => CUDNN_FMA_MATH,
                _ => found.math,
            };
            // SAFETY: as above.
            let workspace = unsafe { descriptors.workspace(self.handle, found.algorithm, math) };
            // An error means that the algorithm does not support the math type.
            if let Ok(workspace @ 0..=WORKSPACE) = workspace {
                choices.push(AlgorithmCandidate {
                    algorithm: found.algorithm,
                    math,
                    workspace,
                });
            }
        }
        let status = sys::cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED;
        let best = choices.first().ok_or(CudnnError(status))?;
        self.workspace = self.workspace.max(best.workspace);
        let plan = ConvolutionPlan {
            descriptors,
            choices,
        };
        self.plans.insert((*filters, computed, examples), plan);
        Ok(())
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: created by this value and no longer used.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl ConvolutionDescriptors {
    fn new(
        filters: &ConvolutionShape,
        examples: usize,
        math: sys::cudnnMathType_t,
    ) -> Result<Self, CudnnError> {
        use std::ptr::null_mut;
        let kind = match filters.kind {
            ElementType::F32 => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
            ElementType::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        };
        let format = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
        let window = &filters.window;
        let ([image_height, image_width], [height, width]) = (window.image, window.output());
        // Dimensions are named in the order N, C, H, W for any order in memory.
        let image = four([examples, filters.channels_in, image_height, image_width])?;
        let output = four([examples, filters.channels_out, height, width])?;
        let [kernel_height, kernel_width] = window.kernel;
        let weight = four([
            filters.channels_out,
            filters.group_in(),
            kernel_height,
            kernel_width,
        ])?;
        let [padding, stride] = [window.padding, window.stride];
        let [top, left, down, right] = four([padding[0], padding[1], stride[0], stride[1]])?;
        let groups = int(filters.groups)?;
        let mut made = Self {
            image: null_mut(),
            output: null_mut(),
            weight: null_mut(),
            convolution: null_mut(),
        };
        // SAFETY: each descriptor is created before it is set, and belongs to `made`, which
        // destroys it.
        unsafe {
            made.image = result::create_tensor_descriptor()?;
            result::set_tensor4d_descriptor(made.image, format, kind, image)?;
            made.output = result::create_tensor_descriptor()?;
            result::set_tensor4d_descriptor(made.output, format, kind, output)?;
            made.weight = result::create_filter_descriptor()?;
            result::set_filter4d_descriptor(made.weight, kind, format, weight)?;
            made.convolution = result::create_convolution_descriptor()?;
            let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
            let sums = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
            result::set_convolution2d_descriptor(
                made.convolution,
                top,
                left,
                down,
                right,
                1,
                1,
                mode,
                sums,
            )?;
            result::set_convolution_group_count(made.convolution, groups)?;
            result::set_convolution_math_type(made.convolution, math)?;
        }
        Ok(made)
    }

    /// Returns the results of the heuristics, best first.
    ///
    /// # Safety
    /// The handle must be alive.
    unsafe fn find(
        &self,
        handle: sys::cudnnHandle_t,
        computed: ComputedOperand,
    ) -> Result<Vec<AlgorithmHeuristic>, CudnnError> {
        let (x, w, y, c) = (self.image, self.weight, self.output, self.convolution);
        macro_rules! found {
            ($ask:path, $algorithm:path, $($operand:expr),*) => {{
                // SAFETY: descriptors are alive, and the buffer holds the requested number of
                // results.
                let found = list(|most, count, results| unsafe {
                    $ask(handle, $($operand),*, most, count, results)
                })?;
                found.into_iter().map(|found| AlgorithmHeuristic {
                    algorithm: $algorithm(found.algo),
                    status: found.status,
                    determinism: found.determinism,
                    math: found.mathType,
                }).collect()
            }};
        }
        Ok(match computed {
            ComputedOperand::Output => {
                found!(
                    result::get_convolution_forward_algorithm,
                    ConvolutionAlgorithm::Output,
                    x,
                    w,
                    c,
                    y
                )
            }
            ComputedOperand::Image => {
                found!(
                    result::get_convolution_backward_data_algorithm,
                    ConvolutionAlgorithm::Image,
                    w,
                    y,
                    c,
                    x
                )
            }
            ComputedOperand::Weight => {
                found!(
                    result::get_convolution_backward_filter_algorithm,
                    ConvolutionAlgorithm::Weight,
                    x,
                    y,
                    c,
                    w
                )
            }
        })
    }

    /// Returns the workspace of an algorithm in bytes.
    ///
    /// # Safety
    /// The handle must be alive.
    unsafe fn workspace(
        &self,
        handle: sys::cudnnHandle_t,
        algorithm: ConvolutionAlgorithm,
        math: sys::cudnnMathType_t,
    ) -> Result<usize, CudnnError> {
        let (x, w, y, c) = (self.image, self.weight, self.output, self.convolution);
        // SAFETY: descriptors are alive.
        unsafe {
            result::set_convolution_math_type(c, math)?;
            match algorithm {
                ConvolutionAlgorithm::Output(algorithm) => {
                    result::get_convolution_forward_workspace_size(handle, x, w, c, y, algorithm)
                }
                ConvolutionAlgorithm::Image(algorithm) => {
                    result::get_convolution_backward_data_workspace_size(
                        handle, w, y, c, x, algorithm,
                    )
                }
                ConvolutionAlgorithm::Weight(algorithm) => {
                    result::get_convolution_backward_filter_workspace_size(
                        handle, x, y, c, w, algorithm,
                    )
                }
            }
        }
    }

    /// # Safety
    /// The handle must be alive, and the memory must have the sizes of the shapes and of the
    /// choice.
    unsafe fn ask(
        &self,
        handle: sys::cudnnHandle_t,
        choice: &AlgorithmCandidate,
        convolution: &ConvolutionCall,
        workspace: DeviceAddress,
    ) -> Result<(), CudnnError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let (one, zero): (*const c_void, *const c_void) =
            ((&raw const one).cast(), (&raw const zero).cast());
        let [x, w, y] =
            [convolution.image, convolution.weight, convolution.output].map(|at| at as *mut c_void);
        let (space, bytes) = (workspace as *mut c_void, choice.workspace);
        // SAFETY: descriptors are alive. Scalars are read on the host before the call returns. The
        // caller guarantees the memory.
        unsafe {
            result::set_convolution_math_type(self.convolution, choice.math)?;
            match choice.algorithm {
                ConvolutionAlgorithm::Output(algorithm) => result::convolution_forward(
                    handle,
                    one,
                    self.image,
                    x,
                    self.weight,
                    w,
                    self.convolution,
                    algorithm,
                    space,
                    bytes,
                    zero,
                    self.output,
                    y,
                ),
                ConvolutionAlgorithm::Image(algorithm) => result::convolution_backward_data(
                    handle,
                    one,
                    self.weight,
                    w,
                    self.output,
                    y,
                    self.convolution,
                    algorithm,
                    space,
                    bytes,
                    zero,
                    self.image,
                    x,
                ),
                ConvolutionAlgorithm::Weight(algorithm) => result::convolution_backward_filter(
                    handle,
                    one,
                    self.image,
                    x,
                    self.output,
                    y,
                    self.convolution,
                    algorithm,
                    space,
                    bytes,
                    zero,
                    self.weight,
                    w,
                ),
            }
        }
    }
}

impl Drop for ConvolutionDescriptors {
    fn drop(&mut self) {
        // SAFETY: descriptors that are not null were created by `new` and are no longer used.
        unsafe {
            for tensor in [self.image, self.output] {
                if !tensor.is_null() {
                    let _ = result::destroy_tensor_descriptor(tensor);
                }
            }
            if !self.weight.is_null() {
                let _ = result::destroy_filter_descriptor(self.weight);
            }
            if !self.convolution.is_null() {
                let _ = result::destroy_convolution_descriptor(self.convolution);
            }
        }
    }
}

/// Returns the results that `ask` writes. Its arguments are the maximum number of results, the
/// destination of the number, and the destination of the results.
fn list<T: Copy>(
    ask: impl FnOnce(c_int, *mut c_int, *mut T) -> Result<(), CudnnError>,
) -> Result<Vec<T>, CudnnError> {
    let mut results = [const { MaybeUninit::<T>::uninit() }; MOST];
    let mut count = 0;
    ask(MOST as c_int, &raw mut count, results.as_mut_ptr().cast())?;
    let count = usize::try_from(count).unwrap_or(0);
    let written = results.iter().take(count);
    // SAFETY: the library has written `count` results.
    Ok(written
        .map(|found| unsafe { found.assume_init() })
        .collect())
}

/// Converts a size, which cuDNN limits to 31 bits.
fn int(number: usize) -> Result<c_int, CudnnError> {
    let too_large = CudnnError(sys::cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED);
    c_int::try_from(number).map_err(|_| too_large)
}

fn four([a, b, c, d]: [usize; 4]) -> Result<[c_int; 4], CudnnError> {
    Ok([int(a)?, int(b)?, int(c)?, int(d)?])
}

fn failure<E: std::fmt::Display>(action: &str) -> impl FnOnce(E) -> DeviceError + use<E> {
    let action = format!("{action} cuDNN");
    move |error| DeviceError::Failed {
        action,
        cause: error.to_string(),
    }
}
