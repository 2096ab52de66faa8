//! Validation of a manifest before it is used. It can come from a shared folder or a bucket, and it
//! determines how much memory is allocated.

use super::Manifest;

/// Maximum length of a manifest in bytes; far more than any valid manifest has.
pub(super) const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// Maximum number of state planes; no optimizer has more.
const MAX_PLANES: usize = 16;

impl Manifest {
    /// Checks that blocks follow one another without gaps and have the length of their shape, and
    /// that all tensors together are not longer than the listed files. The memory for them is thus
    /// limited by the sizes of the files.
    ///
    /// # Errors
    /// A description of the violation.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut end = 0usize;
        for block in &self.blocks {
            let sides = block.shape.iter();
            let len = sides.copied().try_fold(1usize, usize::checked_mul);
            let next = end.checked_add(block.len);
            if block.offset != end || len != Some(block.len) || next.is_none() {
                return Err(format!("its block {:?} lies elsewhere", block.name));
            }
            end = next.unwrap_or(end);
        }
        if self.state_planes.len() > MAX_PLANES {
            let planes = self.state_planes.len();
            return Err(format!("it has {planes} planes of optimizer state"));
        }
        let floats = end.checked_mul(1 + self.state_planes.len());
        let mut extras = self.extras.iter();
        let floats = extras.try_fold(floats, |sum, (_, len)| Some(sum?.checked_add(*len)));
        let bytes = floats
            .flatten()
            .and_then(|floats| floats.checked_mul(size_of::<f32>()));
        let mut files = self.files.values();
        let listed = files.try_fold(0u64, |sum, file| sum.checked_add(file.bytes));
        match (bytes, listed) {
            (Some(bytes), Some(listed)) if bytes as u64 <= listed => Ok(()),
            _ => Err("its tensors are longer than its files".to_owned()),
        }
    }
}
