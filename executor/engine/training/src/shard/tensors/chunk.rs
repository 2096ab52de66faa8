//! Work of an update on chunks, divided among threads.

use super::{CHUNK, CHUNKS_PER_THREAD, Factors, Segment};
use muster_compute::model::ParameterRole;
use muster_compute::optimizer::{self, OptimizerConfig};
use std::ops::Range;
use std::thread;

pub(super) fn add_up(sum: &mut [f32], others: &[&mut [f32]], threads: usize) {
    let mut chunks: Vec<UpdateChunk<'_>> = sum
        .chunks_mut(CHUNK)
        .enumerate()
        .map(|(index, sum)| UpdateChunk {
            offset: index * CHUNK,
            start: index * CHUNK,
            parameters: &mut [],
            sum,
            state: &mut [],
        })
        .collect();
    share(&mut chunks, threads, CHUNKS_PER_THREAD, |chunk| {
        chunk.add(others);
    });
}

/// Does `work` on every chunk, on up to `threads` threads with at least `least` chunks each.
pub(super) fn share<T: Send>(
    chunks: &mut [T],
    threads: usize,
    least: usize,
    work: impl Fn(&mut T) + Sync,
) {
    let threads = threads.min(chunks.len() / least).max(1);
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

/// Memory of one pass of an update.
pub(super) struct UpdateChunk<'a> {
    /// Position among the shard's values.
    pub offset: usize,
    /// Position among the gradients in the sum.
    pub start: usize,
    pub parameters: &'a mut [f32],
    pub sum: &'a mut [f32],
    pub state: &'a mut [f32],
}

impl UpdateChunk<'_> {
    pub fn add(&mut self, others: &[&mut [f32]]) {
        for other in others {
            let other = &other[self.start..self.start + self.sum.len()];
            for (sum, value) in self.sum.iter_mut().zip(other) {
                *sum += value;
            }
        }
    }

    pub fn update(&mut self, rule: &UpdateRules<'_>) {
        let (first, second) = self
            .state
            .split_at_mut(self.sum.len().min(self.state.len()));
        rule.update(self.offset, self.parameters, self.sum, [first, second]);
    }
}

/// Settings of an update, the same for all values.
pub(super) struct UpdateRules<'a> {
    pub optimizer: &'a OptimizerConfig,
    pub segments: &'a [Segment],
    /// LARS factors by segment; without them every factor is 1.
    pub trusts: Option<&'a [f32]>,
    pub update: u64,
    pub factors: Factors,
}

impl UpdateRules<'_> {
    /// Updates the values from `offset` on; `planes` are their state, of the same length or empty.
    pub fn update(
        &self,
        offset: usize,
        parameters: &mut [f32],
        sum: &[f32],
        planes: [&mut [f32]; 2],
    ) {
        let scale = self.factors.scale * self.factors.clip;
        let [first, second] = planes;
        let here = offset..offset + sum.len();
        let from = self
            .segments
            .partition_point(|segment| segment.range.end <= here.start);
        for (index, segment) in self.segments.iter().enumerate().skip(from) {
            if segment.range.start >= here.end {
                break;
            }
            let start = segment.range.start.max(here.start) - here.start;
            let part = start..segment.range.end.min(here.end) - here.start;
            let (parameters, sum) = (&mut parameters[part.clone()], &sum[part.clone()]);
            if segment.role == ParameterRole::Statistic {
                optimizer::follow(parameters, sum, self.factors.scale);
                continue;
            }
            let [one, two] = [in_plane(first, &part), in_plane(second, &part)];
            let trust = self.trusts.map_or(1.0, |trusts| trusts[index]);
            self.optimizer.update_part(
                self.update,
                parameters,
                sum,
                [&mut first[one], &mut second[two]],
                scale,
                trust,
            );
        }
    }
}

/// Returns `part`, or nothing of a plane that the optimizer does not have.
fn in_plane(plane: &[f32], part: &Range<usize>) -> Range<usize> {
    if plane.is_empty() { 0..0 } else { part.clone() }
}
