//! Memory for arenas: in huge pages where the kernel gives them, whose translations the processor keeps while it goes over an arena.

use rustix::mm::{Advice, madvise};

/// Of a huge page, on x86-64 and on most others.
const HUGE: usize = 2 << 20;

/// Zeros; untouched, they take no memory.
#[must_use]
pub fn zeros(len: usize) -> Vec<f32> {
    let mut values = vec![0.0; len];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    let first = bytes.as_ptr().align_offset(HUGE);
    let whole = bytes.len().saturating_sub(first) / HUGE * HUGE;
    if whole > 0 {
        let start = bytes[first..].as_mut_ptr();
        // SAFETY: the advice changes how pages of this vector are backed, not what they hold. Kernels without huge pages refuse; that is
        // fine.
        let _ = unsafe { madvise(start.cast(), whole, Advice::LinuxHugepage) };
    }
    values
}
