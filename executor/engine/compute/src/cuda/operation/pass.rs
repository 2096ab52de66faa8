//! Operands of an operation's pass on a device, and steps that several operations use.

use crate::cuda::arenas::DeviceArenas;
use crate::cuda::product::{ElementType, MatrixOperand, MatrixProduct};
use crate::cuda::queue::{DeviceAddress, DeviceQueue, KernelArgument, THREADS, int};
use crate::layer::matrix::WriteMode;

/// Maximum number of chunks of a sum over rows: enough blocks for a large GPU, and few partial sums
/// to add.
const CHUNKS: usize = 512;
/// Minimum number of rows of a chunk.
const MIN_ROWS: usize = 64;

/// Elements that one thread processes (`PACK` of the kernels).
pub(super) const PACK: usize = 8;

/// Columns of a block of the column kernels, without and with vector loads.
const TILES: [usize; 2] = [32, 64];

/// Maximum number of chunks that are added by one thread per column; more are added by one block
/// per eight columns.
const FEW_CHUNKS: usize = 8;

/// Operands of a pass over one operation.
pub(in crate::cuda) struct DevicePass<'a> {
    pub(in crate::cuda) queue: &'a mut dyn DeviceQueue,
    pub(in crate::cuda) arenas: &'a DeviceArenas,
    pub(in crate::cuda) examples: usize,
    pub(in crate::cuda) is_training: bool,
    /// Kind of values.
    pub(in crate::cuda) kind: ElementType,
    /// Key of the step and place of the first example, as two 64-bit integers.
    pub(in crate::cuda) draw: DeviceAddress,
    pub(in crate::cuda) inputs: &'a [DeviceAddress],
    /// Number of elements per example of each input.
    pub(in crate::cuda) input_lens: &'a [usize],
    pub(in crate::cuda) output: DeviceAddress,
    /// Number of elements from one row of the output, and of its gradient, to the next, if rows are
    /// padded.
    pub(in crate::cuda) output_stride: Option<usize>,
    /// May be changed in place, because it is not read afterwards. 0 in a forward pass.
    pub(in crate::cuda) d_output: DeviceAddress,
    /// Addresses by position of the input; `None` where no gradient is needed.
    pub(in crate::cuda) d_inputs: &'a [Option<DeviceAddress>],
    pub(in crate::cuda) write: WriteMode,
    pub(in crate::cuda) write_shared: WriteMode,
    pub(in crate::cuda) saved: DeviceAddress,
    pub(in crate::cuda) scratch: DeviceAddress,
}

/// Number of blocks of kernels that move `count` elements, [`PACK`] per thread.
pub(in crate::cuda) fn pack_blocks(count: usize) -> usize {
    count.div_ceil(PACK).div_ceil(THREADS)
}

/// Size in bytes of adjacent areas, each aligned to 256 bytes.
pub(in crate::cuda) fn areas_len(lens: &[usize]) -> usize {
    lens.iter().map(|len| len.next_multiple_of(256)).sum()
}

/// Maximum size in bytes of the partial sums of one quantity over any number of rows.
pub(super) fn partial_len(columns: usize) -> usize {
    CHUNKS * columns * 4
}

/// Whether rows of `width` values at these addresses can be moved [`PACK`] elements at a time.
pub(super) fn is_wide(width: usize, rows: &[DeviceAddress]) -> bool {
    width.is_multiple_of(PACK) && rows.iter().all(|at| at.is_multiple_of(16))
}

/// Number of blocks of row kernels whose threads keep to their columns, and number of rows of each
/// block.
pub(super) fn row_blocks([rows, columns]: [usize; 2], is_wide: bool) -> (usize, usize) {
    // Enough blocks for a large GPU, and enough rows per block to amortise each thread's reads of
    // its column parameters.
    let tiles = columns.div_ceil(TILES[usize::from(is_wide)]);
    let per_block = (rows * tiles / 2048).next_multiple_of(128).clamp(128, 1024);
    (rows.div_ceil(per_block) * tiles, per_block)
}

/// Number of chunks, and of rows per chunk.
pub(super) fn chunks(rows: usize) -> (usize, usize) {
    let per_chunk = rows.div_ceil(CHUNKS).max(MIN_ROWS);
    (rows.div_ceil(per_chunk), per_chunk)
}

impl DevicePass<'_> {
    /// Returns the addresses of areas of these lengths in `from`, in the layout of [`areas_len`].
    pub(super) fn areas<const N: usize>(
        mut from: DeviceAddress,
        lens: [usize; N],
    ) -> [DeviceAddress; N] {
        lens.map(|len| {
            let at = from;
            from += len.next_multiple_of(256) as u64;
            at
        })
    }

    /// Number of elements of an input.
    pub(super) fn input_len(&self, index: usize) -> usize {
        self.examples * self.input_lens[index]
    }

    /// Number of rows of `width` elements in the first input.
    pub(super) fn rows(&self, width: usize) -> usize {
        self.input_len(0) / width
    }

    /// Size of `values` values in bytes.
    pub(super) fn bytes(&self, values: usize) -> u64 {
        (values * self.kind.size()) as u64
    }

    /// Address of the parameter at `place` of the arena, as f32.
    pub(super) fn parameter(&self, place: usize) -> DeviceAddress {
        self.arenas.parameter(place)
    }

    /// Address of the same parameter in the kind of values, aligned for products.
    pub(super) fn weight(&self, place: usize) -> DeviceAddress {
        self.arenas.weight(place)
    }

    /// Address of its gradient, f32.
    pub(super) fn gradient(&self, place: usize) -> DeviceAddress {
        self.arenas.gradient(place)
    }

    pub(super) fn values(&self, at: DeviceAddress, stride: usize) -> MatrixOperand {
        MatrixOperand::new(at, self.kind, stride)
    }

    /// Launches one thread for each of `count` items.
    pub(super) fn each(
        &mut self,
        kernel: &'static str,
        count: usize,
        arguments: &[KernelArgument],
    ) {
        self.queue
            .launch(kernel, count.div_ceil(THREADS), THREADS, arguments);
    }

    /// Launches one thread for every [`PACK`] of `count` elements.
    pub(super) fn packs(
        &mut self,
        kernel: &'static str,
        count: usize,
        arguments: &[KernelArgument],
    ) {
        self.queue
            .launch(kernel, pack_blocks(count), THREADS, arguments);
    }

    /// Launches one warp for each of `rows`.
    pub(super) fn warps(
        &mut self,
        kernel: &'static str,
        rows: usize,
        arguments: &[KernelArgument],
    ) {
        self.each(kernel, rows * 32, arguments);
    }

    /// Launches blocks of columns for each chunk of rows.
    pub(super) fn tiles(
        &mut self,
        kernel: &'static str,
        [rows, columns]: [usize; 2],
        is_wide: bool,
        arguments: &[KernelArgument],
    ) {
        let blocks = chunks(rows).0 * columns.div_ceil(TILES[usize::from(is_wide)]);
        self.queue.launch(kernel, blocks, THREADS, arguments);
    }

    /// Adds the partial sums of `rows` rows.
    pub(super) fn finish_columns(
        &mut self,
        partial: DeviceAddress,
        rows: usize,
        columns: usize,
        sum: DeviceAddress,
        write: WriteMode,
    ) {
        self.finish_two(partial, rows, [columns, 0], [sum, 0], write);
    }

    /// Adds the partial sums of `rows` rows of two quantities. In each chunk the columns of the
    /// first quantity precede those of the second.
    pub(super) fn finish_two(
        &mut self,
        partial: DeviceAddress,
        rows: usize,
        [first, second]: [usize; 2],
        [sum, rest]: [DeviceAddress; 2],
        write: WriteMode,
    ) {
        let (number, columns) = (chunks(rows).0, first + second);
        let are_few = number <= FEW_CHUNKS;
        let arguments = [
            partial.into(),
            int(number),
            int(columns),
            int(first),
            sum.into(),
            rest.into(),
            (write == WriteMode::Add).into(),
            are_few.into(),
        ];
        let blocks = columns.div_ceil(if are_few { THREADS } else { 8 });
        self.queue
            .launch("finish_columns", blocks, THREADS, &arguments);
    }

    /// Sums the first `columns` of `rows` rows of `stride` values from `x` on into a gradient.
    /// `partial` has the size of [`partial_len`].
    pub(super) fn sum_columns(
        &mut self,
        x: DeviceAddress,
        stride: usize,
        [rows, columns]: [usize; 2],
        partial: DeviceAddress,
        sum: DeviceAddress,
        write: WriteMode,
    ) {
        let is_wide = is_wide(columns, &[x]) && is_wide(stride, &[]);
        let arguments = [
            x.into(),
            int(stride),
            int(rows),
            int(columns),
            int(chunks(rows).1),
            partial.into(),
            is_wide.into(),
        ];
        self.tiles("sum_columns", [rows, columns], is_wide, &arguments);
        self.finish_columns(partial, rows, columns, sum, write);
    }

    /// Backward pass of a ReLU, in place.
    pub(super) fn mask(&mut self, count: usize) {
        let arguments = [self.d_output.into(), self.output.into(), int(count)];
        self.packs("mask", count, &arguments);
    }

    /// Computes a product that overwrites a gradient of parameters or adds to it.
    pub(super) fn multiply_gradient(
        &mut self,
        shape: [usize; 3],
        left: MatrixOperand,
        right: MatrixOperand,
        out: (DeviceAddress, usize),
        write: WriteMode,
    ) {
        let out = MatrixOperand::new(out.0, ElementType::F32, out.1);
        let product = MatrixProduct::new(shape, left, right, out);
        self.queue.multiply(&MatrixProduct {
            add: write == WriteMode::Add,
            ..product
        });
    }
}
