//! Memory for arenas and send buffers. It uses huge pages where the kernel provides them, which
//! reduces TLB misses in a pass over an arena.

use bytemuck::Pod;
use rustix::mm::{Advice, madvise};

/// Size of a huge page in bytes on x86-64 and most other architectures.
pub const HUGE: usize = 2 << 20;

/// Allocates `len` zeros. Pages that are not touched use no memory.
#[must_use]
pub fn zeros<T: Pod>(len: usize) -> Vec<T> {
    let values = vec![T::zeroed(); len];
    ask_for_huge(&values);
    values
}

/// Allocates `len` zeros whose pages are all populated.
#[must_use]
pub fn touched_zeros(len: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(len);
    ask_for_huge(&values);
    values.resize(len, 0.0);
    values
}

/// Sets the length of `values` to `len`. The content is unspecified; the caller overwrites it.
pub fn resize<T: Pod>(values: &mut Vec<T>, len: usize) {
    if values.capacity() < len {
        *values = zeros(len);
    } else {
        values.resize(len, T::zeroed());
    }
}

/// Advises huge pages for the whole capacity of the vector.
fn ask_for_huge<T>(values: &Vec<T>) {
    let bytes = values.capacity() * size_of::<T>();
    let first = values.as_ptr().cast::<u8>().align_offset(HUGE);
    let whole = bytes.saturating_sub(first) / HUGE * HUGE;
    if whole > 0 {
        let start = values.as_ptr().wrapping_byte_add(first).cast_mut();
        // SAFETY: the advice changes how the pages of this vector are backed, not their content. An
        // error of a kernel without huge pages is harmless.
        let _ = unsafe { madvise(start.cast(), whole, Advice::LinuxHugepage) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Populated kilobytes of the mapping that contains `address`.
    fn resident(address: usize) -> usize {
        let maps = fs::read_to_string("/proc/self/smaps").expect("Linux");
        let mut holds = false;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-') {
                let [start, end] =
                    [start, end].map(|text| usize::from_str_radix(text, 16).expect("an address"));
                holds = (start..end).contains(&address);
            } else if holds && first == "Rss:" {
                let kilobytes = words.next().and_then(|text| text.parse().ok());
                return kilobytes.expect("a number");
            }
        }
        panic!("nothing is mapped there")
    }

    #[test]
    fn touched_zeros_are_zero_and_resident() {
        let len = (16 << 20) / size_of::<f32>();
        let values = touched_zeros(len);
        let found = resident(values.as_ptr().addr() + (8 << 20));
        // The memory before the first huge page and after the last one is another mapping.
        assert!(found >= 14 << 10, "{found} kB of 14 MB are in place");
        assert_eq!(values.len(), len);
        assert!(values.iter().all(|&value| value == 0.0));
    }
}
