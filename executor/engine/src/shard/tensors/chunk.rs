//! An update's work on chunks, shared out among threads.

use super::{CHUNK, CHUNKS_PER_THREAD, Factors, Segment};
use crate::model::Role;
use crate::optimizer::{self, Optimizer};
use std::thread;

pub(super) fn add_up(sum: &mut [f32], others: &[&mut [f32]], threads: usize) {
    let mut chunks: Vec<Chunk<'_>> = sum
        .chunks_mut(CHUNK)
        .enumerate()
        .map(|(index, sum)| Chunk {
            offset: index * CHUNK,
            start: index * CHUNK,
            parameters: &mut [],
            sum,
            state: &mut [],
        })
        .collect();
    share(&mut chunks, threads, |chunk| chunk.add(others));
}

/// Does `work` on every chunk, on some threads.
pub(super) fn share(
    chunks: &mut [Chunk<'_>],
    threads: usize,
    work: impl Fn(&mut Chunk<'_>) + Sync,
) {
    let threads = threads.min(chunks.len() / CHUNKS_PER_THREAD).max(1);
    let share = chunks.len().div_ceil(threads).max(1);
    let work = &work;
    thread::scope(|scope| {
        let mut shares = chunks.chunks_mut(share);
        let own = shares.next();
        for share in shares {
            scope.spawn(|| share.iter_mut().for_each(work));
        }
        if let Some(own) = own {
            own.iter_mut().for_each(work);
        }
    });
}

/// What one pass of an update touches.
pub(super) struct Chunk<'a> {
    /// Among the shard's numbers.
    pub offset: usize,
    /// Among the gradients that are added up.
    pub start: usize,
    pub parameters: &'a mut [f32],
    pub sum: &'a mut [f32],
    pub state: &'a mut [f32],
}

impl Chunk<'_> {
    pub fn add(&mut self, others: &[&mut [f32]]) {
        for other in others {
            let other = &other[self.start..self.start + self.sum.len()];
            for (sum, value) in self.sum.iter_mut().zip(other) {
                *sum += value;
            }
        }
    }

    /// `trusts` are by segment; without them every tensor's is 1.
    pub fn update(
        &mut self,
        optimizer: &Optimizer,
        segments: &[Segment],
        trusts: Option<&[f32]>,
        update: u64,
        factors: Factors,
    ) {
        let scale = factors.scale * factors.clip;
        let len = self.sum.len();
        let (first, second) = self.state.split_at_mut(len.min(self.state.len()));
        let chunk = self.offset..self.offset + len;
        let from = segments.partition_point(|segment| segment.range.end <= chunk.start);
        for (index, segment) in segments.iter().enumerate().skip(from) {
            if segment.range.start >= chunk.end {
                break;
            }
            let start = segment.range.start.max(chunk.start) - chunk.start;
            let part = start..segment.range.end.min(chunk.end) - chunk.start;
            let (parameters, sum) = (&mut self.parameters[part.clone()], &self.sum[part.clone()]);
            if segment.role == Role::Statistic {
                optimizer::follow(parameters, sum, factors.scale);
                continue;
            }
            let plane = |plane: &'_ [f32]| if plane.is_empty() { 0..0 } else { part.clone() };
            let planes = [plane(first), plane(second)];
            let [one, two] = planes;
            let trust = trusts.map_or(1.0, |trusts| trusts[index]);
            optimizer.update_part(
                update,
                parameters,
                sum,
                [&mut first[one], &mut second[two]],
                scale,
                trust,
            );
        }
    }
}
