//! Memory for arenas and what is sent of them: in huge pages where the kernel gives them, whose translations the processor keeps while it goes over an arena.

use bytemuck::Pod;
use rustix::mm::{Advice, madvise};

/// Of a huge page, on x86-64 and on most others.
pub const HUGE: usize = 2 << 20;

/// Zeros; untouched, they take no memory.
#[must_use]
pub fn zeros<T: Pod>(len: usize) -> Vec<T> {
    let values = vec![T::zeroed(); len];
    ask_for_huge(&values);
    values
}

/// Zeros whose pages are in place.
#[must_use]
pub fn touched_zeros(len: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(len);
    ask_for_huge(&values);
    values.resize(len, 0.0);
    values
}

/// Makes `values` so many numbers, whatever they are, for somebody to write.
pub fn resize<T: Pod>(values: &mut Vec<T>, len: usize) {
    match values.capacity() < len {
        true => *values = zeros(len),
        false => values.resize(len, T::zeroed()),
    }
}

/// For all that the vector has room for.
fn ask_for_huge<T>(values: &Vec<T>) {
    let bytes = values.capacity() * size_of::<T>();
    let first = values.as_ptr().cast::<u8>().align_offset(HUGE);
    let whole = bytes.saturating_sub(first) / HUGE * HUGE;
    if whole > 0 {
        let start = values.as_ptr().wrapping_byte_add(first).cast_mut();
        // SAFETY: the advice changes how pages of this vector are backed, not what they hold. Kernels without huge pages refuse; that is
        // fine.
        let _ = unsafe { madvise(start.cast(), whole, Advice::LinuxHugepage) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Kilobytes that are in place in the stretch of memory that holds `address`.
    fn resident(address: usize) -> usize {
        let maps = fs::read_to_string("/proc/self/smaps").expect("Linux");
        let mut holds = false;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-') {
                let bound = |text| usize::from_str_radix(text, 16).expect("an address");
                holds = (bound(start)..bound(end)).contains(&address);
            } else if holds && first == "Rss:" {
                let kilobytes = words.next().and_then(|text| text.parse().ok());
                return kilobytes.expect("a number");
            }
        }
        panic!("nothing is mapped there")
    }

    #[test]
    fn touched_zeros_are_zeros_that_take_memory() {
        let len = (16 << 20) / size_of::<f32>();
        let values = touched_zeros(len);
        let found = resident(values.as_ptr().addr() + (8 << 20));
        // What lies before the first huge page and after the last is another stretch.
        assert!(found >= 14 << 10, "{found} kB of 14 MB are in place");
        assert_eq!(values.len(), len);
        assert!(values.iter().all(|&value| value == 0.0));
    }
}
