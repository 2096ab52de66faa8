//! Matrix products, row-major as operations request them and column-major as cuBLASLt needs them.

use super::queue::DeviceAddress;

/// Storage format of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ElementType {
    F32,
    Bf16,
}

impl ElementType {
    /// Bytes per element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Row-major matrix on the device, or its transpose. In a batch, `batch_stride` is the number of
/// elements from one matrix to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixOperand {
    pub(crate) at: DeviceAddress,
    pub(crate) kind: ElementType,
    /// Number of elements from one stored row to the next.
    pub(crate) stride: usize,
    pub(crate) transposed: bool,
    pub(crate) batch_stride: usize,
}

impl MatrixOperand {
    pub(crate) fn new(at: DeviceAddress, kind: ElementType, stride: usize) -> Self {
        Self {
            at,
            kind,
            stride,
            transposed: false,
            batch_stride: 0,
        }
    }

    pub(crate) fn transposed(self) -> Self {
        let transposed = !self.transposed;
        Self { transposed, ..self }
    }

    pub(crate) fn batch_stride(self, batch_stride: usize) -> Self {
        Self {
            batch_stride,
            ..self
        }
    }

    /// Returns the operand of `rows` × `columns` as it is stored in column-major order.
    fn by_columns(self, [rows, columns]: [usize; 2]) -> ColumnMajorMatrix {
        // Stored row-major as rows × columns, which is column-major columns × rows.
        let [rows, columns] = if self.transposed {
            [rows, columns]
        } else {
            [columns, rows]
        };
        ColumnMajorMatrix {
            at: self.at,
            kind: self.kind,
            rows,
            columns,
            stride: self.stride,
            transposed: self.transposed,
            batch_stride: self.batch_stride,
        }
    }
}

/// `out = left · right` or `out += left · right`, followed by bias and ReLU; `batch` times. Sums
/// are f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixProduct {
    /// Rows of `out`.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Number of summands of each element.
    pub(crate) inner: usize,
    pub(crate) left: MatrixOperand,
    pub(crate) right: MatrixOperand,
    pub(crate) out: MatrixOperand,
    pub(crate) add: bool,
    pub(crate) batch: usize,
    /// Address of one value per column, in the kind of `out`; 0 for a product without bias.
    pub(crate) bias: DeviceAddress,
    pub(crate) relu: bool,
}

impl MatrixProduct {
    /// Single product that overwrites, without bias and ReLU.
    pub(crate) fn new(
        [rows, columns, inner]: [usize; 3],
        left: MatrixOperand,
        right: MatrixOperand,
        out: MatrixOperand,
    ) -> Self {
        Self {
            rows,
            columns,
            inner,
            left,
            right,
            out,
            add: false,
            batch: 1,
            bias: 0,
            relu: false,
        }
    }

    /// Returns the product in column-major order. Memory read column by column holds each matrix's
    /// transpose, so the product becomes outᵀ = rightᵀ · leftᵀ. The operands swap places, and their
    /// transposition flags are unchanged.
    pub(crate) fn by_columns(&self) -> ColumnMajorProduct {
        ColumnMajorProduct {
            m: self.columns,
            n: self.rows,
            k: self.inner,
            a: self.right.by_columns([self.inner, self.columns]),
            b: self.left.by_columns([self.rows, self.inner]),
            d: self.out.by_columns([self.rows, self.columns]),
        }
    }
}

/// D (m × n) = op(A) · op(B) with column-major storage, in the terms of BLAS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnMajorProduct {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: ColumnMajorMatrix,
    pub(crate) b: ColumnMajorMatrix,
    pub(crate) d: ColumnMajorMatrix,
}

/// Matrix in column-major storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnMajorMatrix {
    pub(crate) at: DeviceAddress,
    pub(crate) kind: ElementType,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Number of elements from one column to the next: the leading dimension of BLAS.
    pub(crate) stride: usize,
    /// Whether the product reads the transpose.
    pub(crate) transposed: bool,
    /// Number of elements from one matrix of a batch to the next.
    pub(crate) batch_stride: usize,
}
