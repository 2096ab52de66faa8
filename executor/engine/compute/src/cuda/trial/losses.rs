//! Tests of the cross-entropy kernel: unaligned and padded rows, equal scores, and the number of
//! correct labels.

use crate::cuda::emulator::Emulator;
use crate::cuda::product::ElementType;
use crate::cuda::queue::{DeviceAddress, DeviceQueue, int};

const ROWS: usize = 9;

/// Bytes of numbers that bf16 represents exactly.
fn bytes(kind: ElementType, numbers: &[f32]) -> Vec<u8> {
    let each = numbers.iter().map(|x| x.to_bits().to_le_bytes());
    each.flat_map(|bytes| bytes[4 - kind.size()..].to_vec())
        .collect()
}

fn numbers(kind: ElementType, bytes: &[u8]) -> Vec<f32> {
    let each = bytes.chunks(kind.size()).map(|bytes| {
        let mut whole = [0; 4];
        whole[4 - kind.size()..].copy_from_slice(bytes);
        f32::from_le_bytes(whole)
    });
    each.collect()
}

/// Scores of a row and its label. In every other row the largest score occurs twice.
fn row(row: usize, classes: usize) -> (Vec<f32>, usize) {
    let mut scores: Vec<f32> = (0..classes)
        .map(|i| ((row * 7 + i * 13) % 29) as f32 / 8.0)
        .collect();
    let first = (row * 37 + 3) % classes;
    // Adjacent, or far apart.
    let second = match row % 4 {
        3 => (first + 1).min(classes - 1),
        _ => (row * 53 + classes / 2) % classes,
    };
    scores[first] = 6.0;
    if row % 2 == 1 {
        scores[second] = 6.0;
    }
    (scores, if row.is_multiple_of(3) { second } else { first })
}

fn uploaded(queue: &mut Emulator, bytes: &[u8]) -> DeviceAddress {
    let at = queue.allocate(bytes.len()).expect("room");
    queue.upload(bytes, at);
    at
}

fn downloaded(queue: &mut Emulator, at: DeviceAddress, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    queue.download(at, &mut bytes);
    bytes
}

fn check(kind: ElementType, classes: usize, stride: usize, threads: usize) {
    let what = format!("{kind:?}, {classes} classes, {stride} apart, {threads} threads");
    let mut queue = Emulator::new(kind);
    let rows: Vec<_> = (0..ROWS).map(|index| row(index, classes)).collect();
    let mut scores = vec![f32::NAN; ROWS * stride];
    for (to, (from, _)) in scores.chunks_mut(stride).zip(&rows) {
        to[..classes].copy_from_slice(from);
    }
    let labels: Vec<u8> = rows
        .iter()
        .flat_map(|(_, label)| (*label as u32).to_le_bytes())
        .collect();
    let (scores, empty) = (bytes(kind, &scores), vec![0xff; 8 * ROWS]);
    let at = [&scores, &labels, &scores].map(|bytes| uploaded(&mut queue, bytes));
    let [losses, rights] = [&empty; 2].map(|bytes| uploaded(&mut queue, bytes));
    let arguments = [
        at[0].into(),
        at[1].into(),
        int(classes),
        int(stride),
        at[2].into(),
        losses.into(),
        rights.into(),
    ];
    queue.launch("cross_entropy", ROWS, threads, &arguments);
    let d = numbers(kind, &downloaded(&mut queue, at[2], scores.len()));
    let [losses, rights] = [losses, rights].map(|at| {
        let bytes = downloaded(&mut queue, at, 8 * ROWS);
        let each = bytes.chunks(8).map(|x| x.try_into().expect("eight bytes"));
        each.map(f64::from_le_bytes).collect::<Vec<f64>>()
    });
    for (index, (scores, label)) in rows.iter().enumerate() {
        let sum: f64 = scores.iter().map(|x| f64::from(*x).exp()).sum();
        let loss = sum.ln() - f64::from(scores[*label]);
        assert!((losses[index] - loss).abs() < 1e-5, "{what}: row {index}");
        let best = scores.iter().position(|x| *x == 6.0);
        let is_right = f64::from(u8::from(best == Some(*label)));
        assert_eq!(rights[index], is_right, "{what}: row {index} is right");
        let d = &d[index * stride..][..stride];
        for (i, score) in scores.iter().enumerate() {
            let own = if i == *label { 1.0 } else { 0.0 };
            let apart = f64::from(d[i]) - (f64::from(*score).exp() / sum - own);
            assert!(apart.abs() < 4e-3, "{what}: row {index}, {i}: {apart} off");
        }
        assert!(d[classes..].iter().all(|x| *x == 0.0), "{what}: the rest");
    }
}

#[test]
fn cross_entropy_handles_any_row_alignment() {
    for kind in [ElementType::F32, ElementType::Bf16] {
        for (classes, stride) in [(5, 5), (5, 8), (43, 43), (43, 48), (301, 301), (1100, 1101)] {
            for threads in [32, 256] {
                check(kind, classes, stride, threads);
            }
        }
    }
}
