//! Parameters that several threads read and write at the same time without locks.
//!
//! Each value is a 32-bit atomic with relaxed order, so no reader sees half a value and no
//! behaviour is undefined. If two threads change one value at the same time, either change may be
//! lost, as in Hogwild (Recht, Ré, Wright and Niu, NIPS 2011).

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of values per read and write. A small number overwrites few changes of other threads;
/// this one suffices for vector instructions.
const CHUNK: usize = 256;

/// Values of one arena.
#[derive(Debug)]
pub struct AtomicArena {
    bits: Vec<AtomicU32>,
}

impl AtomicArena {
    /// Creates `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            bits: (0..len).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// # Panics
    /// When the lengths differ.
    pub fn write(&self, values: &[f32]) {
        assert_eq!(values.len(), self.bits.len(), "one value per number");
        for (bits, value) in self.bits.iter().zip(values) {
            bits.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    /// Reads all values. Other threads may write meanwhile, so the values can be of different
    /// times.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn read(&self, into: &mut [f32]) {
        assert_eq!(into.len(), self.bits.len(), "one value per number");
        read(&self.bits, into);
    }

    /// Changes a range, `CHUNK` values at a time. `change` receives the present values and the
    /// same part of `by`, which is as long as the range. Unchanged values are not written, so other
    /// threads' changes of them are not lost.
    ///
    /// # Panics
    /// When the range exceeds the arena, or `by` has another length.
    pub fn change(
        &self,
        range: Range<usize>,
        by: &[f32],
        mut change: impl FnMut(&mut [f32], &[f32]),
    ) {
        assert_eq!(range.len(), by.len(), "one change per number");
        let (mut before, mut after) = ([0.0; CHUNK], [0.0; CHUNK]);
        for (bits, by) in self.bits[range].chunks(CHUNK).zip(by.chunks(CHUNK)) {
            let (before, after) = (&mut before[..bits.len()], &mut after[..bits.len()]);
            read(bits, before);
            after.copy_from_slice(before);
            change(after, by);
            for ((bits, before), after) in bits.iter().zip(before).zip(after) {
                if before.to_bits() != after.to_bits() {
                    bits.store(after.to_bits(), Ordering::Relaxed);
                }
            }
        }
    }
}

fn read(bits: &[AtomicU32], into: &mut [f32]) {
    for (value, bits) in into.iter_mut().zip(bits) {
        *value = f32::from_bits(bits.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn add(own: &mut [f32], by: &[f32]) {
        for (own, by) in own.iter_mut().zip(by) {
            *own += by;
        }
    }

    #[test]
    fn change_affects_only_its_range() {
        let shared = AtomicArena::new(1000);
        let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        shared.write(&values);
        shared.change(100..700, &[0.5; 600], add);
        let mut got = vec![0.0; 1000];
        shared.read(&mut got);
        for (i, got) in got.into_iter().enumerate() {
            let moved = if (100..700).contains(&i) { 0.5 } else { 0.0 };
            assert_eq!(got, i as f32 + moved);
        }
    }

    /// The sparse case of Hogwild: threads whose gradients have no value in common lose no change,
    /// although each thread covers the whole arena.
    #[test]
    fn concurrent_changes_of_different_values_are_kept() {
        let (threads, times, len) = (4, 2000, 1024);
        let shared = AtomicArena::new(len);
        thread::scope(|scope| {
            for thread in 0..threads {
                let shared = &shared;
                scope.spawn(move || {
                    let by: Vec<f32> = (0..len)
                        .map(|i| if i % threads == thread { 1.0 } else { 0.0 })
                        .collect();
                    for _ in 0..times {
                        shared.change(0..len, &by, add);
                    }
                });
            }
        });
        let mut got = vec![0.0; len];
        shared.read(&mut got);
        assert!(got.iter().all(|&got| got == times as f32), "{got:?}");
    }
}
