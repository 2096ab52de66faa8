//! Kernels that can still contribute at a point, with their log terms so far.

/// Reusable buffers.
#[derive(Default)]
pub(super) struct Near {
    /// Kernel numbers, ascending.
    pub kernels: Vec<u32>,
    /// One term per kernel, in the same order.
    pub terms: Vec<f64>,
}

impl Near {
    /// Starts with all kernels and their first terms.
    pub fn all(&mut self, terms: &[f64]) {
        self.terms.clear();
        self.terms.extend_from_slice(terms);
        self.kernels.clear();
        self.kernels.extend(0..terms.len() as u32);
    }

    /// Removes kernels with a term below `least`. Branch-free, because the branch would be
    /// unpredictable.
    pub fn keep_above(&mut self, least: f64) {
        let mut kept = 0;
        for i in 0..self.terms.len() {
            let (kernel, term) = (self.kernels[i], self.terms[i]);
            self.kernels[kept] = kernel;
            self.terms[kept] = term;
            kept += usize::from(term >= least);
        }
        self.kernels.truncate(kept);
        self.terms.truncate(kept);
    }
}
