//! Matrix products as the operations ask for them, row by row, and as cuBLASLt wants them, column by column.

use super::queue::Address;

/// How numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    F32,
    Bf16,
}

impl Kind {
    /// Bytes per number.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// A row-major matrix on the device, or the transpose of one. Of several, `apart` numbers lie between the beginnings of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand {
    pub(crate) at: Address,
    pub(crate) kind: Kind,
    /// Numbers from one stored row to the next.
    pub(crate) stride: usize,
    pub(crate) transposed: bool,
    pub(crate) apart: usize,
}

impl Operand {
    pub(crate) fn new(at: Address, kind: Kind, stride: usize) -> Self {
        Self {
            at,
            kind,
            stride,
            transposed: false,
            apart: 0,
        }
    }

    pub(crate) fn transposed(self) -> Self {
        let transposed = !self.transposed;
        Self { transposed, ..self }
    }

    pub(crate) fn apart(self, apart: usize) -> Self {
        Self { apart, ..self }
    }
}

/// `out = left · right`, or `out += left · right`, then bias and ReLU; `batch` times. Sums are f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    /// Of `out`.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Summands of each number.
    pub(crate) inner: usize,
    pub(crate) left: Operand,
    pub(crate) right: Operand,
    pub(crate) out: Operand,
    pub(crate) add: bool,
    pub(crate) batch: usize,
    /// A number per column, stored as `out` is; 0 without one.
    pub(crate) bias: Address,
    pub(crate) relu: bool,
}

impl Product {
    /// One product that overwrites, with nothing after it.
    pub(crate) fn new(
        [rows, columns, inner]: [usize; 3],
        left: Operand,
        right: Operand,
        out: Operand,
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

    /// The same memory read column by column holds each matrix's transpose, so what is to be computed is outᵀ = rightᵀ · leftᵀ: the
    /// operands change places, and what was stored as it is used still is.
    pub(crate) fn by_columns(&self) -> ByColumns {
        let operand = |operand: Operand, [rows, columns]: [usize; 2]| {
            let [rows, columns] = if operand.transposed {
                [columns, rows]
            } else {
                [rows, columns]
            };
            Stored {
                at: operand.at,
                kind: operand.kind,
                // Stored row-major as rows × columns, which is columns × rows by columns.
                rows: columns,
                columns: rows,
                stride: operand.stride,
                transposed: operand.transposed,
                apart: operand.apart,
            }
        };
        ByColumns {
            m: self.columns,
            n: self.rows,
            k: self.inner,
            a: operand(self.right, [self.inner, self.columns]),
            b: operand(self.left, [self.rows, self.inner]),
            d: operand(self.out, [self.rows, self.columns]),
        }
    }
}

/// D (m × n) = op(A) · op(B) with column-major storage, in BLAS's words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByColumns {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Stored,
    pub(crate) b: Stored,
    pub(crate) d: Stored,
}

/// A matrix as it lies in memory, column by column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) at: Address,
    pub(crate) kind: Kind,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Numbers from one column to the next: BLAS's leading dimension.
    pub(crate) stride: usize,
    /// Whether the product reads its transpose.
    pub(crate) transposed: bool,
    /// Numbers from one of a batch to the next.
    pub(crate) apart: usize,
}
