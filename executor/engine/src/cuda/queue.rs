//! What the passes ask of a device: memory, copies, kernels, matrix products and perhaps convolutions, carried out in the order in which they are asked for.
//!
//! There are two of them: a GPU's stream ([`super::stream`]), and in tests the emulator, which runs the same kernels on the CPU. So all that
//! stands above this line, every address, shape and argument, is tried out without a GPU.
//!
//! Asking gives no errors: a device's come late and stay. The first one is kept and returned by [`Queue::finish`].

use super::convolution::{Convolution, Filters, Wanted};
use super::error::DeviceError;
use super::nccl::{Communicator, Look};
use super::product::Product;
use crate::layer::window::Window;

/// Of a byte on the device.
pub(crate) type Address = u64;

/// Threads per block of kernels that do not say otherwise.
pub(crate) const THREADS: usize = 256;

/// One argument of a kernel, as its bytes lie in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument(pub(crate) [u64; 5]);

/// Carries out what it is asked for, in order. Addresses are valid until they are freed.
pub(crate) trait Queue: Send {
    /// Device memory, aligned to 256 bytes. Its content is anything.
    ///
    /// # Errors
    /// When the device has no such room.
    fn allocate(&mut self, bytes: usize) -> Result<Address, DeviceError>;

    /// Waits for all work, then gives memory back.
    fn free(&mut self, at: Address);

    /// Host memory that the device can reach without help, which lives as long as the queue.
    ///
    /// # Errors
    /// When the machine does not grant it.
    fn pin(&mut self, bytes: usize) -> Result<&'static mut [u8], DeviceError>;

    /// `from` must be memory of [`Self::pin`] and stay as it is until the next [`Self::finish`].
    fn upload(&mut self, from: &[u8], to: Address);

    /// Starts a copy into memory of [`Self::pin`] beside the work that is asked for from now on; [`Self::wait`] with the same number says
    /// when it is there. Numbers count from 0 after each [`Self::finish`].
    fn download(&mut self, from: Address, to: &mut [u8]);

    /// Until the `number`th download since the last [`Self::finish`] has arrived.
    fn wait(&mut self, number: usize);

    fn copy(&mut self, from: Address, to: Address, bytes: usize);

    fn zero(&mut self, at: Address, bytes: usize);

    /// Of `blocks` blocks of `threads` threads each.
    fn launch(
        &mut self,
        kernel: &'static str,
        blocks: usize,
        threads: usize,
        arguments: &[Argument],
    );

    fn multiply(&mut self, product: &Product);

    /// Whether [`Self::convolve`] does this. What a queue has answered once it answers always, whatever the number of examples, which is
    /// the largest when it is asked first.
    fn can_convolve(&mut self, filters: &Filters, wanted: Wanted, examples: usize) -> bool;

    /// Only what [`Self::can_convolve`] has agreed to.
    fn convolve(&mut self, convolution: &Convolution);

    /// Makes the device that of the calling thread, for libraries which take it from there.
    fn enter(&mut self);

    /// Starts the sum over all ranks of so many floats, in place, after what was asked for so far and beside what is asked for from now on, until
    /// [`Self::has_summed`] says that nobody writes them any more. What goes wrong between ranks is the communicator's to tell, and this
    /// queue goes on.
    fn sum(&mut self, ranks: &mut Communicator, at: Address, numbers: usize, look: Look<'_>);

    /// Whether the sums that were started last are over.
    fn has_summed(&mut self) -> bool;

    /// Waits for everything but sums.
    ///
    /// # Errors
    /// The first thing that went wrong since the queue was made; from then on every call gives it again.
    fn finish(&mut self) -> Result<(), DeviceError>;

    /// Whether what is asked for can be written down; a queue that does all at once gains nothing by it.
    fn can_record(&self) -> bool {
        false
    }

    /// From now on what is asked for is written down in place of being done. Until [`Self::recorded`], uploads, copies, kernels, products
    /// and convolutions may be asked for, all of shapes that the queue has met before. An upload reads what lies in the host's memory whenever
    /// it is replayed.
    fn record(&mut self) {}

    /// Ends it; how many were written down before.
    fn recorded(&mut self) -> usize {
        0
    }

    /// Does what was written down after so many others.
    fn replay(&mut self, _number: usize) {}

    /// Forgets all of them, since addresses in them are no longer valid.
    fn forget(&mut self) {}
}

impl From<Address> for Argument {
    fn from(at: Address) -> Self {
        Self([at, 0, 0, 0, 0])
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self([u64::from(value.to_bits()), 0, 0, 0, 0])
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self([value.to_bits(), 0, 0, 0, 0])
    }
}

impl From<bool> for Argument {
    fn from(value: bool) -> Self {
        Self([u64::from(value), 0, 0, 0, 0])
    }
}

/// An `int` or a `long long`: little-endian machines read either from the same place.
pub(crate) fn int(value: usize) -> Argument {
    Argument([value as u64, 0, 0, 0, 0])
}

impl From<&Window> for Argument {
    /// As `struct window` of the kernels: ten ints.
    fn from(window: &Window) -> Self {
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

/// Bias and ReLU after a product that has not seen to them itself.
pub(crate) fn finish_product(queue: &mut dyn Queue, product: &Product) {
    let (out, shape) = (product.out.at, [product.rows, product.columns]);
    add_bias(
        queue,
        (out, product.out.stride),
        shape,
        (product.bias, product.relu),
    );
}

/// To `rows` × `columns` values at an address with a stride; the bias is a value per column, or 0 without one.
pub(crate) fn add_bias(
    queue: &mut dyn Queue,
    (at, stride): (Address, usize),
    [rows, columns]: [usize; 2],
    (bias, relu): (Address, bool),
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
