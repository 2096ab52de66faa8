//! Memory for arenas and what is sent of them: in huge pages where the kernel gives them, whose translations the processor keeps while it goes over an arena.

use bytemuck::Pod;
use rustix::mm::{Advice, madvise};

/// Of a huge page, on x86-64 and on most others.
pub const HUGE: usize = 2 << 20;

/// Zeros; untouched, they take no memory.
#[must_use]
pub fn zeros<T: Pod>(len: usize) -> Vec<T> {
    let mut values = vec![T::zeroed(); len];
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

/// Makes `values` so many numbers, whatever they are, for somebody to write.
pub fn resize<T: Pod>(values: &mut Vec<T>, len: usize) {
    match values.capacity() < len {
        true => *values = zeros(len),
        false => values.resize(len, T::zeroed()),
    }
}
