//! The kernels that may still count at a point, with the logarithms of what they are worth there so far.

/// Room to work in, kept from one point to the next.
#[derive(Default)]
pub(super) struct Near {
    /// By number, ascending.
    pub kernels: Vec<u32>,
    /// One a kernel, in the same order.
    pub terms: Vec<f64>,
}

impl Near {
    /// All kernels, each with its first term.
    pub fn all(&mut self, terms: &[f64]) {
        self.terms.clear();
        self.terms.extend_from_slice(terms);
        self.kernels.clear();
        self.kernels.extend(0..terms.len() as u32);
    }

    /// Leaves out who is below. Without a branch for each, which would go one way as often as the other.
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
