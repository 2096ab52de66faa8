//! Measured maximum throughput of a GPU, with which a benchmark compares a step. Training does not
//! use it.

use super::device::CudaDevice;
use super::error::DeviceError;
use super::operation::pack_blocks;
use super::product::{MatrixOperand, MatrixProduct};
use super::queue::{DeviceAddress, DeviceQueue, THREADS, int};
use crate::clock;

/// Rows and columns of the matrices: enough to fill the largest GPU many times.
const SIDE: usize = 8192;
/// Bytes per copy: several times the size of the largest cache.
const COPIED: usize = 1 << 29;
const REPETITIONS: usize = 20;

/// Throughput of one GPU, in a session's precision.
#[derive(Debug, Clone, Copy)]
pub struct GpuThroughput {
    /// Floating-point operations per second in products of 8192 × 8192 random matrices.
    pub products: f64,
    /// Bytes read and written per second by copies within the GPU's memory.
    pub copies: f64,
}

impl CudaDevice {
    /// Measures the throughput. Takes about a second and up to 2 GiB of the GPU's memory.
    ///
    /// # Errors
    /// Errors of the GPU.
    pub fn throughput(&self) -> Result<GpuThroughput, DeviceError> {
        let (mut stream, kind) = (self.stream()?, self.kind());
        let queue: &mut dyn DeviceQueue = &mut stream;
        let matrix = SIDE * SIDE * kind.size();
        let [left, right, out] = [
            queue.allocate(matrix)?,
            queue.allocate(matrix)?,
            queue.allocate(matrix)?,
        ];
        // Products of zeros are faster than those of other values.
        let numbers = queue.pin(4 * SIDE * SIDE)?;
        let mut state = 1_u32;
        for number in numbers.chunks_exact_mut(4) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number_of = (state >> 8) as f32 / 8_388_608.0 - 1.0;
            number.copy_from_slice(&number_of.to_ne_bytes());
        }
        let upload = queue.allocate(numbers.len())?;
        queue.upload(numbers, upload);
        for to in [left, right] {
            let arguments = [upload.into(), to.into(), int(SIDE * SIDE)];
            queue.launch("cast_in", pack_blocks(SIDE * SIDE), THREADS, &arguments);
        }
        let [left, right, out] =
            [left, right, out].map(|at: DeviceAddress| MatrixOperand::new(at, kind, SIDE));
        let product = MatrixProduct::new([SIDE; 3], left, right, out);
        let seconds = timed(queue, |queue| queue.multiply(&product))?;
        let products = 2.0 * (SIDE as f64).powi(3) / seconds;
        for at in [left.at, right.at, out.at, upload] {
            queue.free(at);
        }
        let [from, to] = [queue.allocate(COPIED)?, queue.allocate(COPIED)?];
        queue.zero(from, COPIED);
        let seconds = timed(queue, |queue| queue.copy(from, to, COPIED))?;
        Ok(GpuThroughput {
            products,
            copies: 2.0 * COPIED as f64 / seconds,
        })
    }
}

/// Seconds per repetition, after a first call that is not counted.
fn timed(
    queue: &mut dyn DeviceQueue,
    ask: impl Fn(&mut dyn DeviceQueue),
) -> Result<f64, DeviceError> {
    ask(queue);
    queue.finish()?;
    let began = clock::now();
    for _ in 0..REPETITIONS {
        ask(queue);
    }
    queue.finish()?;
    Ok(began.elapsed().as_secs_f64() / REPETITIONS as f64)
}
