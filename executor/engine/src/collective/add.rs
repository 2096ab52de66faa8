//! Sums of slices. Which operand comes first does not matter to a sum of two; the order of three or more is fixed by the callers.

use crate::layer::simd::vectorised;

vectorised! {
    /// `out = a + b`. All have the same length.
    pub fn add(out: &mut [f32], a: &[f32], b: &[f32]) {
        let len = out.len();
        let (a, b) = (&a[..len], &b[..len]);
        for i in 0..len {
            out[i] = a[i] + b[i];
        }
    }

    /// `out += a`. Both have the same length.
    pub fn add_to(out: &mut [f32], a: &[f32]) {
        let len = out.len();
        let a = &a[..len];
        for i in 0..len {
            out[i] += a[i];
        }
    }
}
