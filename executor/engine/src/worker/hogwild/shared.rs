//! Parameters that several threads read and write at the same time without locks.
//!
//! Each number is an atomic of 32 bits that is read and written without order, so that no reader sees half a number and nothing here is
//! undefined; which of two writers' changes of one number stays is chance, as Hogwild has it (Recht, Ré, Wright and Niu, NIPS 2011).

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers that are changed at once: few, so that little of what others do meanwhile is overwritten, and enough for vectors.
const CHUNK: usize = 256;

/// The numbers of one arena.
#[derive(Debug)]
pub struct Shared {
    bits: Vec<AtomicU32>,
}

impl Shared {
    /// Zeros.
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

    /// Others may write meanwhile: each number is one that was there.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn read(&self, into: &mut [f32]) {
        assert_eq!(into.len(), self.bits.len(), "one value per number");
        read(&self.bits, into);
    }

    /// Changes a range a few numbers at a time: `change` is given those that are there and the same part of `by`, which is as long as the range.
    /// What it leaves as it was is not written, so that who changes other numbers loses nothing.
    ///
    /// # Panics
    /// When the range leaves the arena, or `by` has another length.
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
    fn a_range_is_changed_and_nothing_else() {
        let shared = Shared::new(1000);
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

    /// The sparse case that Hogwild is sure of: threads whose gradients have no number in common lose nothing, though all of them go over the
    /// whole arena.
    #[test]
    fn changes_of_different_numbers_are_all_there() {
        let (threads, times, len) = (4, 2000, 1024);
        let shared = Shared::new(len);
        thread::scope(|scope| {
            for thread in 0..threads {
                let shared = &shared;
                scope.spawn(move || {
                    let own = |i: usize| if i % threads == thread { 1.0 } else { 0.0 };
                    let by: Vec<f32> = (0..len).map(own).collect();
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
