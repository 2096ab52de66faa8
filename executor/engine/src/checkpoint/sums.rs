//! The sums of part files, from memory: they are taken while the files are written.

use super::FileSum;
use super::files::hex;
use super::parts::Part;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

/// SHA-256 of one core just keeps up with a good disk; more threads would only take cores from training.
const THREADS: usize = 2;

/// Small enough to stay in a core's cache between the two sums.
const BLOCK_BYTES: usize = 256 << 10;

/// Of each part, by its name.
#[must_use]
pub fn sums(parts: &[Part], arenas: &[&[f32]]) -> BTreeMap<String, FileSum> {
    let todo = Mutex::new(parts.iter());
    let done = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let part = todo.lock().expect("no panic while it is held").next();
            let Some(part) = part else { return };
            let sum = sum(&part.header(), &part.slices(arenas));
            let mut done = done.lock().expect("no panic while it is held");
            done.insert(part.name.clone(), sum);
        }
    };
    thread::scope(|scope| {
        for _ in 1..THREADS.min(parts.len()) {
            scope.spawn(work);
        }
        work();
    });
    done.into_inner().expect("no panic while it was held")
}

fn sum(header: &[u8], slices: &[&[u8]]) -> FileSum {
    let mut sha256 = Sha256::new();
    sha256.update(header);
    let mut bytes = header.len();
    let mut crc32 = Vec::new();
    let mut crc = crc32fast::Hasher::new();
    let mut under_crc = 0;
    for slice in slices {
        let mut rest = *slice;
        while !rest.is_empty() {
            let len = rest
                .len()
                .min(BLOCK_BYTES)
                .min(FileSum::CRC_BYTES - under_crc);
            let (block, tail) = rest.split_at(len);
            rest = tail;
            sha256.update(block);
            crc.update(block);
            bytes += len;
            under_crc += len;
            if under_crc == FileSum::CRC_BYTES {
                crc32.push(std::mem::take(&mut crc).finalize());
                under_crc = 0;
            }
        }
    }
    if under_crc > 0 {
        crc32.push(crc.finalize());
    }
    FileSum {
        bytes: bytes as u64,
        sha256: hex(&sha256.finalize()),
        crc32,
    }
}
