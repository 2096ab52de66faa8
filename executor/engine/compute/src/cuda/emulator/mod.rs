//! Emulated GPU, only for tests (feature `emulator`): a queue that executes every request on the
//! CPU at once. Kernels are compiled from their own source by the machine's C++ compiler; matrix
//! products and convolutions follow their definition. Addresses are those of host memory.

mod deferred;
mod emulated_gpu;

use crate::cuda::convolution::{ComputedOperand, ConvolutionCall, ConvolutionShape};
use crate::cuda::error::DeviceError;
use crate::cuda::kernels;
use crate::cuda::nccl::{NcclCommunicator, PollCallback};
use crate::cuda::product::{ColumnMajorMatrix, ElementType, MatrixProduct};
use crate::cuda::queue::{DeviceAddress, DeviceQueue, KernelArgument};
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(crate) use deferred::DeferredQueue;
pub use emulated_gpu::{EmulatedGpu, StandInBehaviour};

/// The state of the kernels is global.
static RUNNING: Mutex<()> = Mutex::new(());

/// Kernels whose threads synchronise with each other.
const COOPERATIVE: &[&str] = &[
    "sum_columns",
    "finish_columns",
    "finish_moments",
    "column_moments",
    "batch_norm_sums",
    "layer_norm_sums",
    "layer_norm",
    "d_layer_norm",
    "d_embed",
    "causal_softmax",
    "d_causal_softmax",
    "attend_32",
    "attend_64",
    "d_queries_32",
    "d_queries_64",
    "d_keys_32",
    "d_keys_64",
    "cross_entropy",
    "squared",
    "binary",
    "total",
    "squares",
    "weight_by_output",
    "d_weight_by_output",
];

type LaunchFn = unsafe extern "C" fn(u32, u32, u32, *mut *mut c_void, bool, bool);

/// Kernels for values of one kind.
struct EmulatedKernels {
    launch: LaunchFn,
    names: Vec<&'static str>,
}

/// Executes every request at once, on the calling thread.
pub(crate) struct Emulator {
    kernels: &'static EmulatedKernels,
    launches: usize,
    blocks: Vec<Box<[u64]>>,
    /// Whether products leave bias and ReLU to a separate kernel, as a queue may have to.
    pub(crate) is_plain: bool,
    /// Convolutions that the queue supports, as with cuDNN, which may reject some of them.
    pub(crate) convolves: &'static [ComputedOperand],
    /// Emulated GPU of this queue, if there are several.
    pub(super) gpu: Option<Arc<EmulatedGpu>>,
    /// Stream of sums for the stand-in for NCCL: the number of running sums.
    sums: Box<AtomicU64>,
}

impl Emulator {
    pub(crate) fn new(kind: ElementType) -> Self {
        static KERNELS: [OnceLock<EmulatedKernels>; 2] = [OnceLock::new(), OnceLock::new()];
        let kernels = KERNELS[usize::from(kind == ElementType::Bf16)].get_or_init(|| compile(kind));
        Self {
            kernels,
            launches: 0,
            blocks: Vec::new(),
            is_plain: false,
            convolves: &[],
            gpu: None,
            sums: Box::default(),
        }
    }

    /// Allocates memory with all bits set, which is NaN, so that reads of uninitialised memory
    /// show.
    fn take(&mut self, bytes: usize) -> DeviceAddress {
        // 32 additional words for the alignment that devices guarantee.
        self.blocks
            .push(vec![u64::MAX; bytes.div_ceil(8) + 32].into());
        let block = self.blocks.last().expect("just pushed");
        (block.as_ptr() as u64).next_multiple_of(256)
    }
}

impl DeviceQueue for Emulator {
    fn allocate(&mut self, bytes: usize) -> Result<DeviceAddress, DeviceError> {
        Ok(self.take(bytes))
    }

    fn free(&mut self, at: DeviceAddress) {
        self.blocks
            .retain(|block| (block.as_ptr() as u64).next_multiple_of(256) != at);
    }

    fn pin(&mut self, bytes: usize) -> Result<&'static mut [u8], DeviceError> {
        let at = self.take(bytes);
        // SAFETY: just allocated with this size, and kept as long as the emulator.
        Ok(unsafe { std::slice::from_raw_parts_mut(at as *mut u8, bytes) })
    }

    fn upload(&mut self, from: &[u8], to: DeviceAddress) {
        // SAFETY: callers pass memory of this queue.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
    }

    fn download(&mut self, from: DeviceAddress, to: &mut [u8]) {
        // SAFETY: callers pass memory of this queue.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
    }

    fn wait(&mut self, _number: usize) {}

    fn copy(&mut self, from: DeviceAddress, to: DeviceAddress, bytes: usize) {
        // SAFETY: callers pass memory of this queue.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
    }

    fn zero(&mut self, at: DeviceAddress, bytes: usize) {
        // SAFETY: callers pass memory of this queue.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes) };
    }

    fn launch(
        &mut self,
        kernel: &'static str,
        blocks: usize,
        threads: usize,
        arguments: &[KernelArgument],
    ) {
        assert!(
            blocks > 0 && blocks < 1 << 31,
            "{blocks} blocks of {kernel}"
        );
        let names = &self.kernels.names;
        let index = names.iter().position(|name| *name == kernel);
        let index = index.unwrap_or_else(|| panic!("no kernel {kernel}"));
        let mut arguments = arguments.to_vec();
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| argument.0.as_mut_ptr().cast())
            .collect();
        // Null pointers reveal a kernel that reads too many arguments.
        pointers.extend([std::ptr::null_mut(); 4]);
        self.launches += 1;
        let backwards = self.launches.is_multiple_of(2);
        let cooperative = COOPERATIVE.contains(&kernel);
        let _alone = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the arguments outlive the call; callers guarantee their pointers.
        unsafe {
            (self.kernels.launch)(
                index as u32,
                blocks as u32,
                threads as u32,
                pointers.as_mut_ptr(),
                cooperative,
                backwards,
            );
        }
        if let Some(gpu) = &self.gpu
            && kernel == "adam"
            && gpu.has_strayed()
        {
            // SAFETY: the first argument is the address of parameters, which are memory of this
            // queue.
            unsafe { *(arguments[0].0[0] as *mut f32) += 1.0 };
        }
    }

    fn multiply(&mut self, product: &MatrixProduct) {
        let by_columns = product.by_columns();
        let (m, n, k) = (by_columns.m, by_columns.n, by_columns.k);
        check(&by_columns.a, [m, k]);
        check(&by_columns.b, [k, n]);
        check(&by_columns.d, [m, n]);
        let is_plain = self.is_plain && (product.bias != 0 || product.relu);
        for index in 0..product.batch {
            for column in 0..n {
                for row in 0..m {
                    let summands = (0..k).map(|l| {
                        let a = read(&by_columns.a, index, [row, l]);
                        a * read(&by_columns.b, index, [l, column])
                    });
                    let mut sum = summands.sum::<f32>();
                    let at = place(&by_columns.d, index, [row, column]);
                    if product.add {
                        sum += load(by_columns.d.kind, at);
                    }
                    // The bias has one value per row of the column-major matrix.
                    if product.bias != 0 && !is_plain {
                        let size = by_columns.d.kind.size();
                        let bias = product.bias + (row * size) as u64;
                        sum += load(by_columns.d.kind, bias);
                    }
                    if product.relu && !is_plain && sum < 0.0 {
                        sum = 0.0;
                    }
                    store(by_columns.d.kind, at, sum);
                }
            }
        }
        if is_plain {
            crate::cuda::queue::finish_product(self, product);
        }
    }

    fn can_convolve(
        &mut self,
        _filters: &ConvolutionShape,
        computed: ComputedOperand,
        _examples: usize,
    ) -> bool {
        self.convolves.contains(&computed)
    }

    fn convolve(&mut self, convolution: &ConvolutionCall) {
        let (filters, computed) = (&convolution.filters, convolution.computed);
        assert!(self.convolves.contains(&computed), "it has said so");
        let (window, kind) = (&filters.window, filters.kind);
        let ([rows, columns], [height, width]) = (window.output(), window.image);
        let image = convolution.examples * height * width * filters.channels_in;
        let output = convolution.examples * rows * columns * filters.channels_out;
        let weight = filters.weight_len();
        let mut x = load_all(kind, convolution.image, image);
        let mut w = load_all(kind, convolution.weight, weight);
        let mut y = load_all(kind, convolution.output, output);
        // The wanted operand is overwritten.
        match computed {
            ComputedOperand::Image => x.fill(0.0),
            ComputedOperand::Weight => w.fill(0.0),
            ComputedOperand::Output => y.fill(0.0),
        }
        let (group_in, group_out) = (filters.group_in(), filters.group_out());
        let [kernel_rows, kernel_columns] = window.kernel;
        for (at_y, y) in y.iter_mut().enumerate() {
            let (out, position) = (at_y % filters.channels_out, at_y / filters.channels_out);
            let (column, row) = (position % columns, position / columns % rows);
            let example = position / columns / rows;
            for at in 0..filters.patch_len() {
                let (channel, tap) = (at % group_in, at / group_in);
                let (tap_row, tap_column) = (tap / kernel_columns, tap % kernel_columns);
                assert!(tap_row < kernel_rows);
                // Position on the image with its padding.
                let row = row * window.stride[0] + tap_row;
                let column = column * window.stride[1] + tap_column;
                let place =
                    (row.checked_sub(window.padding[0])).zip(column.checked_sub(window.padding[1]));
                let Some((row, column)) = place else { continue };
                if row >= height || column >= width {
                    continue;
                }
                let channel = out / group_out * group_in + channel;
                let at_x = ((example * height + row) * width + column) * filters.channels_in;
                let (at_x, at_w) = (at_x + channel, out * filters.patch_len() + at);
                match computed {
                    ComputedOperand::Output => *y += x[at_x] * w[at_w],
                    ComputedOperand::Image => x[at_x] += *y * w[at_w],
                    ComputedOperand::Weight => w[at_w] += x[at_x] * *y,
                }
            }
        }
        let (at, numbers) = match computed {
            ComputedOperand::Output => (convolution.output, y),
            ComputedOperand::Image => (convolution.image, x),
            ComputedOperand::Weight => (convolution.weight, w),
        };
        for (index, number) in numbers.into_iter().enumerate() {
            store(kind, at + (index * kind.size()) as u64, number);
        }
    }

    fn enter(&mut self) {}

    fn sum(
        &mut self,
        ranks: &mut NcclCommunicator,
        at: DeviceAddress,
        numbers: usize,
        poll: PollCallback<'_>,
    ) {
        if let Some(gpu) = &self.gpu {
            gpu.count();
        }
        // SAFETY: callers pass memory of this queue and do not use it until `has_summed`.
        unsafe {
            ranks.sum(
                at,
                numbers,
                std::ptr::from_ref(&*self.sums).cast_mut().cast(),
                poll,
            )
        };
    }

    fn has_summed(&mut self) -> bool {
        self.sums.load(Ordering::SeqCst) == 0
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn check(stored: &ColumnMajorMatrix, [rows, columns]: [usize; 2]) {
    let used = if stored.transposed {
        [stored.columns, stored.rows]
    } else {
        [stored.rows, stored.columns]
    };
    assert_eq!(used, [rows, columns], "the shape of {stored:?}");
    assert!(stored.stride >= stored.rows, "{stored:?} overlaps itself");
}

fn place(stored: &ColumnMajorMatrix, index: usize, [row, column]: [usize; 2]) -> DeviceAddress {
    let [row, column] = if stored.transposed {
        [column, row]
    } else {
        [row, column]
    };
    let number = index * stored.batch_stride + row + column * stored.stride;
    stored.at + (number * stored.kind.size()) as u64
}

fn read(stored: &ColumnMajorMatrix, index: usize, at: [usize; 2]) -> f32 {
    load(stored.kind, place(stored, index, at))
}

fn load_all(kind: ElementType, at: DeviceAddress, len: usize) -> Vec<f32> {
    (0..len)
        .map(|index| load(kind, at + (index * kind.size()) as u64))
        .collect()
}

fn load(kind: ElementType, at: DeviceAddress) -> f32 {
    // SAFETY: callers pass memory of the emulator.
    unsafe {
        match kind {
            ElementType::F32 => *(at as *const f32),
            ElementType::Bf16 => f32::from_bits(u32::from(*(at as *const u16)) << 16),
        }
    }
}

fn store(kind: ElementType, at: DeviceAddress, value: f32) {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // SAFETY: callers pass memory of the emulator.
    unsafe {
        match kind {
            ElementType::F32 => *(at as *mut f32) = value,
            ElementType::Bf16 => *(at as *mut u16) = rounded as u16,
        }
    }
}

/// Compiles the kernels with the machine's C++ compiler.
fn compile(kind: ElementType) -> EmulatedKernels {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (
        folder.path().join("kernels.cpp"),
        folder.path().join("k.so"),
    );
    let names = kernels::names(kind);
    let calls = names.iter().map(|name| {
        format!("    {{\"{name}\", [](void** from) {{ emulator::call({name}, from); }}}},\n")
    });
    let calls: String = calls.collect();
    let text = format!(
        "{}\n{}\nstruct entry {{ const char* name; void (*call)(void**); }};\nstatic const entry entries[] = {{\n{calls}}};\n\
         extern \"C\" void launch(unsigned index, unsigned blocks, unsigned threads, void** from, bool cooperative, bool backwards) {{\n\
         \x20   emulator::launch(entries[index].name, entries[index].call, blocks, threads, from, cooperative, backwards);\n}}\n",
        include_str!("emulator.hpp"),
        kernels::source(kind),
    );
    std::fs::write(&source, text).expect("the source is written");
    build(&source, &library);
    // SAFETY: the library was just compiled and is never closed; the function has this type.
    let launch = unsafe {
        let library = libloading::Library::new(&library).expect("the kernels load");
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        *library
            .get::<LaunchFn>(b"launch")
            .expect("the function is there")
    };
    EmulatedKernels { launch, names }
}

fn build(source: &Path, library: &Path) {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let built = Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-fPIC", "-shared", "-pthread"])
        .arg("-U_FORTIFY_SOURCE")
        .args(["-ffp-contract=off", "-Wno-unused", "-o"])
        .args([library, source])
        .output();
    let built = built.unwrap_or_else(|error| {
        panic!("the GPU's kernels are tried out on the CPU with a C++ compiler, and {compiler} cannot be started ({error}): install g++, or name one in CXX")
    });
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{compiler}: {said}");
}
