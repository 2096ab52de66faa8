//! Checksums of part files, computed from memory while the files are written, and the test for
//! finite parameters.

use super::contents::all_finite;
use super::files::hex;
use super::parts::CheckpointPart;
use super::{CheckpointError, FileSum};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Number of threads. They keep pace with a fast disk; more would only take cores from training.
const THREADS: usize = 2;

/// Block length in bytes, which stays in a core's cache between the two checksums.
const BLOCK_BYTES: usize = 256 << 10;

/// Computes the checksums of each part, by its name.
///
/// # Errors
/// [`CheckpointError::Diverged`] for parameters that are not finite.
pub fn sums(
    parts: &[CheckpointPart],
    arenas: &[&[f32]],
) -> Result<BTreeMap<String, FileSum>, CheckpointError> {
    let finite = AtomicBool::new(true);
    let todo = Mutex::new(parts.iter());
    let done = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 1..THREADS.min(parts.len()) {
            scope.spawn(|| sum_parts(&todo, arenas, &done, &finite));
        }
        sum_parts(&todo, arenas, &done, &finite);
    });
    if finite.into_inner() {
        Ok(done.into_inner().expect("no panic while it was held"))
    } else {
        Err(CheckpointError::Diverged)
    }
}

/// Processes the parts `todo` until none is left.
fn sum_parts(
    todo: &Mutex<slice::Iter<'_, CheckpointPart>>,
    arenas: &[&[f32]],
    done: &Mutex<BTreeMap<String, FileSum>>,
    finite: &AtomicBool,
) {
    loop {
        let part = todo.lock().expect("no panic while it is held").next();
        let Some(part) = part else { return };
        let mut file = PartChecksums::of(part, arenas);
        while !file.is_over() {
            file.sum_block();
        }
        finite.fetch_and(file.finite, Ordering::Relaxed);
        let (name, sum) = file.finish();
        let mut done = done.lock().expect("no panic while it is held");
        done.insert(name, sum);
    }
}

/// Checksums of a part in progress.
struct PartChecksums<'a> {
    part: &'a CheckpointPart,
    /// Slices that are not processed yet.
    slices: std::vec::IntoIter<&'a [u8]>,
    rest: &'a [u8],
    sha256: Sha256,
    bytes: usize,
    crc32: Vec<u32>,
    crc: crc32fast::Hasher,
    under_crc: usize,
    /// Whether all processed parameters are finite.
    finite: bool,
}

impl<'a> PartChecksums<'a> {
    fn of(part: &'a CheckpointPart, arenas: &[&'a [f32]]) -> Self {
        let header = part.header();
        let mut sha256 = Sha256::new();
        sha256.update(&header);
        let mut slices = part.slices(arenas).into_iter();
        Self {
            part,
            rest: slices.next().unwrap_or_default(),
            slices,
            sha256,
            bytes: header.len(),
            crc32: Vec::new(),
            crc: crc32fast::Hasher::new(),
            under_crc: 0,
            finite: true,
        }
    }

    /// Whether all bytes are processed.
    fn is_over(&self) -> bool {
        self.rest.is_empty() && self.slices.as_slice().iter().all(|slice| slice.is_empty())
    }

    /// Processes the next bytes; none if the present slice is empty.
    fn sum_block(&mut self) {
        if self.rest.is_empty() {
            self.rest = self.slices.next().unwrap_or_default();
        }
        let len = self.rest.len().min(BLOCK_BYTES);
        let (block, rest) = self
            .rest
            .split_at(len.min(FileSum::CRC_BYTES - self.under_crc));
        self.rest = rest;
        self.sha256.update(block);
        if self.part.holds_parameters() {
            self.finite &= all_finite(bytemuck::cast_slice(block));
        }
        self.crc.update(block);
        self.bytes += block.len();
        self.under_crc += block.len();
        if self.under_crc == FileSum::CRC_BYTES {
            self.crc32.push(std::mem::take(&mut self.crc).finalize());
            self.under_crc = 0;
        }
    }

    fn finish(mut self) -> (String, FileSum) {
        if self.under_crc > 0 {
            self.crc32.push(self.crc.finalize());
        }
        let sum = FileSum {
            bytes: self.bytes as u64,
            sha256: hex(&self.sha256.finalize()),
            crc32: self.crc32,
        };
        (self.part.name.clone(), sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::parts::PartTensor;

    /// Lengths of tensors, each of which fills a part: zero, less than a block, exactly the bytes
    /// of a CRC, and more.
    const LENS: [usize; 6] = [0, 1000, 1 << 20, 70_001, (1 << 20) + 77, 2_300_000];

    /// Arena 0 in one part per tensor, arena 1 in two parts, of which the first has tensors that
    /// are not neighbours.
    fn parts() -> (Vec<CheckpointPart>, [Vec<f32>; 2]) {
        let mut end = 0;
        let mut model = Vec::new();
        for len in LENS {
            model.extend(CheckpointPart::cut(
                &format!("m{len}"),
                vec![tensor(0, end, len)],
                1,
            ));
            end += len;
        }
        let apart = vec![tensor(1, 300_000, 123_457), tensor(1, 5, 99_999)];
        let mut parts = model;
        parts.extend(CheckpointPart::cut("apart", apart, usize::MAX));
        parts.extend(CheckpointPart::cut(
            "rest",
            vec![tensor(1, 0, end)],
            usize::MAX,
        ));
        CheckpointPart::place(&mut parts);
        (parts, [1, 2].map(|salt| values(end, salt)))
    }

    fn tensor(arena: usize, offset: usize, len: usize) -> PartTensor {
        PartTensor {
            name: format!("t{arena}.{offset}.{len}"),
            shape: vec![len],
            arena,
            offset,
            len,
        }
    }

    fn values(count: usize, salt: usize) -> Vec<f32> {
        (0..count)
            .map(|i| (i * 7919 % 10_007 + salt) as f32)
            .collect()
    }

    #[test]
    fn sums_match_the_written_files() {
        let (parts, arenas) = parts();
        let arenas = [arenas[0].as_slice(), &arenas[1]];
        let found = sums(&parts, &arenas).expect("all are finite");
        assert_eq!(found.len(), parts.len());
        for part in &parts {
            let data = part.slices(&arenas).concat();
            let file = [part.header(), data.clone()].concat();
            let expected = FileSum {
                bytes: file.len() as u64,
                sha256: hex(&Sha256::digest(&file)),
                crc32: data
                    .chunks(FileSum::CRC_BYTES)
                    .map(crc32fast::hash)
                    .collect(),
            };
            assert_eq!(found[&part.name], expected, "{}", part.name);
        }
    }

    #[test]
    fn non_finite_parameter_is_detected_at_any_position() {
        let (parts, mut arenas) = parts();
        let last = arenas[0].len() - 1;
        for (at, value) in [
            (0, f32::NAN),
            (1 << 20, f32::INFINITY),
            (last, f32::NEG_INFINITY),
        ] {
            let sound = std::mem::replace(&mut arenas[0][at], value);
            let found = sums(&parts, &[&arenas[0], &arenas[1]]);
            assert!(
                matches!(found, Err(CheckpointError::Diverged)),
                "{value} at {at}"
            );
            arenas[0][at] = sound;
        }
        arenas[1][last] = f32::NAN;
        let found = sums(&parts, &[&arenas[0], &arenas[1]]);
        assert!(found.is_ok(), "the optimizer's values are its own matter");
    }
}
