//! Interface of the passes to a device: memory, copies, kernels, matrix products and optionally
//! convolutions, executed in the order of the requests.
//!
//! There are two implementations: a GPU's stream ([`super::stream`]) and, in tests, the emulator,
//! which runs the same kernels on the CPU. All code above this interface, with every address, shape
//! and argument, is therefore tested without a GPU.
//!
//! Requests return no errors, because errors of a device are asynchronous and persistent. The first
//! error is kept and returned by [`DeviceQueue::finish`].

use super::convolution::{ComputedOperand, ConvolutionCall, ConvolutionShape};
use super::error::DeviceError;
use super::nccl::{NcclCommunicator, PollCallback};
use super::product::MatrixProduct;
use crate::layer::window::ImageWindows;

/// Address of a byte on the device.
pub(crate) type DeviceAddress = u64;

/// Default number of threads per block.
pub(crate) const THREADS: usize = 256;

/// Kernel argument, by its bytes in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelArgument(pub(crate) [u64; 5]);

/// Executes requests in order. Addresses are valid until they are freed.
pub(crate) trait DeviceQueue: Send {
    /// Allocates device memory, aligned to 256 bytes, with undefined content.
    ///
    /// # Errors
    /// If the device is out of memory.
    fn allocate(&mut self, bytes: usize) -> Result<DeviceAddress, DeviceError>;

    /// Waits for all work, then frees memory.
    fn free(&mut self, at: DeviceAddress);

    /// Allocates pinned host memory, which lives as long as the queue.
    ///
    /// # Errors
    /// If the system does not provide the memory.
    fn pin(&mut self, bytes: usize) -> Result<&'static mut [u8], DeviceError>;

    /// Copies to the device. `from` must be memory of [`Self::pin`] and stay unchanged until the
    /// next [`Self::finish`].
    fn upload(&mut self, from: &[u8], to: DeviceAddress);

    /// Starts a copy into memory of [`Self::pin`], concurrently with later requests. [`Self::wait`]
    /// with the number of the download waits for it. Numbers count from 0 after each
    /// [`Self::finish`].
    fn download(&mut self, from: DeviceAddress, to: &mut [u8]);

    /// Waits until the `number`th download since the last [`Self::finish`] has arrived.
    fn wait(&mut self, number: usize);

    fn copy(&mut self, from: DeviceAddress, to: DeviceAddress, bytes: usize);

    fn zero(&mut self, at: DeviceAddress, bytes: usize);

    /// Launches `blocks` blocks of `threads` threads each.
    fn launch(
        &mut self,
        kernel: &'static str,
        blocks: usize,
        threads: usize,
        arguments: &[KernelArgument],
    );

    fn multiply(&mut self, product: &MatrixProduct);

    /// Whether [`Self::convolve`] supports this. The first answer holds for any number of examples;
    /// the first question has the largest number.
    fn can_convolve(
        &mut self,
        filters: &ConvolutionShape,
        computed: ComputedOperand,
        examples: usize,
    ) -> bool;

    /// Computes a convolution that [`Self::can_convolve`] has accepted.
    fn convolve(&mut self, convolution: &ConvolutionCall);

    /// Binds the device to the calling thread, for libraries that use the thread's device.
    fn enter(&mut self);

    /// Starts the sum of `numbers` floats over all ranks, in place. It follows the previous
    /// requests and runs concurrently with later ones. The floats are in use until
    /// [`Self::has_summed`]. Errors between ranks are reported by the communicator and do not
    /// affect this queue.
    fn sum(
        &mut self,
        ranks: &mut NcclCommunicator,
        at: DeviceAddress,
        numbers: usize,
        poll: PollCallback<'_>,
    );

    /// Whether the sums that were started last have completed.
    fn has_summed(&mut self) -> bool;

    /// Waits for everything but sums.
    ///
    /// # Errors
    /// The first error since the queue was created; every later call returns it again.
    fn finish(&mut self) -> Result<(), DeviceError>;

    /// Whether requests can be recorded for replay; a synchronous queue gains nothing by it.
    fn can_record(&self) -> bool {
        false
    }

    /// Starts recording: requests are recorded and not executed. Until [`Self::recorded`], uploads,
    /// copies, kernels, products and convolutions are allowed, all of shapes that the queue has
    /// executed before. At each replay an upload reads the current content of host memory.
    fn record(&mut self) {}

    /// Ends the recording and returns its number.
    fn recorded(&mut self) -> usize {
        0
    }

    /// Executes the recording with this number.
    fn replay(&mut self, _number: usize) {}

    /// Discards all recordings, because their addresses are no longer valid.
    fn forget(&mut self) {}
}

impl From<DeviceAddress> for KernelArgument {
    fn from(at: DeviceAddress) -> Self {
        Self([at, 0, 0, 0, 0])
    }
}

impl From<f32> for KernelArgument {
    fn from(value: f32) -> Self {
        Self([u64::from(value.to_bits()), 0, 0, 0, 0])
    }
}

impl From<f64> for KernelArgument {
    fn from(value: f64) -> Self {
        Self([value.to_bits(), 0, 0, 0, 0])
    }
}

impl From<bool> for KernelArgument {
    fn from(value: bool) -> Self {
        Self([u64::from(value), 0, 0, 0, 0])
    }
}

/// `int` or `long long`: a little-endian machine reads both from the same place.
pub(crate) fn int(value: usize) -> KernelArgument {
    KernelArgument([value as u64, 0, 0, 0, 0])
}

impl From<&ImageWindows> for KernelArgument {
    /// Layout of `struct window` of the kernels: ten ints.
    fn from(window: &ImageWindows) -> Self {
        let pairs = [
            window.image,
            window.kernel,
            window.stride,
            window.padding,
            window.output(),
        ];
        Self(pairs.map(|[height, width]| height as u64 | (width as u64) << 32))
    }
}

/// Applies bias and ReLU after a product that has not applied them.
pub(crate) fn finish_product(queue: &mut dyn DeviceQueue, product: &MatrixProduct) {
    let (out, shape) = (product.out.at, [product.rows, product.columns]);
    add_bias(
        queue,
        (out, product.out.stride),
        shape,
        (product.bias, product.relu),
    );
}

/// Adds the bias and applies ReLU to `rows` × `columns` values with a stride. The bias has one
/// value per column; address 0 means no bias.
pub(crate) fn add_bias(
    queue: &mut dyn DeviceQueue,
    (at, stride): (DeviceAddress, usize),
    [rows, columns]: [usize; 2],
    (bias, relu): (DeviceAddress, bool),
) {
    let count = rows * columns;
    let arguments = [
        at.into(),
        bias.into(),
        int(count),
        int(columns),
        int(stride),
        relu.into(),
    ];
    queue.launch("bias_relu", count.div_ceil(THREADS), THREADS, &arguments);
}
