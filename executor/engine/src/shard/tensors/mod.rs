//! The shard's numbers: its parameters, the optimizer's state of them, and one update.
//!
//! Both are worked on in chunks that stay in a core's cache: a chunk's gradients are summed over the workers and applied before
//! the next chunk is touched, so each number travels from memory once per step.

mod chunk;
#[cfg(test)]
mod tests;

use crate::assign::{Piece, common, local};
use crate::model::{Block, Role};
use crate::optimizer::{self, Optimizer, Rule};
use chunk::{Chunk, add_up, share};
use std::ops::Range;

/// Parameters in a chunk; 64 KiB each of parameters, gradients and every plane of state.
const CHUNK: usize = 16 << 10;

/// Fewer chunks than this are not worth starting a thread for.
const CHUNKS_PER_THREAD: usize = 16;

/// A part of a block that this shard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// In the shard's local order.
    pub range: Range<usize>,
    pub role: Role,
}

impl Segment {
    /// What a shard that holds `pieces` has of the network's `blocks`.
    #[must_use]
    pub fn of(blocks: &[Block], pieces: &[Piece]) -> Vec<Self> {
        let mut out = Vec::new();
        let mut held = 0;
        for piece in pieces {
            let from = blocks.partition_point(|block| block.range().end <= piece.offset);
            for block in &blocks[from..] {
                let start = block.offset.max(piece.offset);
                let end = block.range().end.min(piece.range().end);
                if start >= end {
                    break;
                }
                let range = held..held + (end - start);
                held = range.end;
                out.push(Self {
                    range,
                    role: block.role,
                });
            }
        }
        out
    }

    /// Parameters of no network in particular.
    #[must_use]
    pub fn weights(len: usize) -> Vec<Self> {
        let (range, role) = (0..len, Role::Weight);
        vec![Self { range, role }]
    }
}

/// What a step's sum of gradients is multiplied by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// 1 over the targets that it is over.
    pub scale: f32,
    /// What clipping leaves; running statistics, which are no gradients, are not clipped.
    pub clip: f32,
    /// Of the learning rate.
    pub rate: f32,
}

impl Default for Factors {
    fn default() -> Self {
        Self {
            scale: 1.0,
            clip: 1.0,
            rate: 1.0,
        }
    }
}

/// Of one shard, in its local order.
#[derive(Debug)]
pub struct Tensors {
    optimizer: Optimizer,
    threads: usize,
    segments: Vec<Segment>,
    parameters: Vec<f32>,
    /// Chunk after chunk; within one, plane after plane, as [`Optimizer::update`] wants it.
    state: Vec<f32>,
    /// The parameters as the workers have them, where answers are encoded; otherwise empty. It moves with the pieces.
    known: Vec<f32>,
}

impl Tensors {
    /// Zeros, until they are filled. `segments` tile the parameters in order.
    #[must_use]
    pub fn new(optimizer: Optimizer, segments: Vec<Segment>, threads: usize) -> Self {
        let parameters = segments.last().map_or(0, |segment| segment.range.end);
        let state = parameters * optimizer.state_len_per_param();
        Self {
            threads: threads.max(1),
            segments: joined(segments, &optimizer),
            optimizer,
            parameters: vec![0.0; parameters],
            state: vec![0.0; state],
            known: Vec::new(),
        }
    }

    /// Keeps what the workers know from now on; they know all of it.
    #[must_use]
    pub fn with_known(mut self) -> Self {
        self.known = self.parameters.clone();
        self
    }

    /// What the workers have: the parameters themselves, where answers are not encoded.
    #[must_use]
    pub fn known(&self) -> &[f32] {
        match self.known.is_empty() {
            true => &self.parameters,
            false => &self.known,
        }
    }

    /// The parameters, and what the workers know of them.
    pub fn parameters_and_known(&mut self) -> (&[f32], &mut [f32]) {
        (&self.parameters, &mut self.known)
    }

    /// Numbers that a move takes along for each parameter.
    #[must_use]
    pub fn numbers_per_parameter(&self) -> usize {
        1 + self.state_per_parameter() + usize::from(!self.known.is_empty())
    }

    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Numbers of optimizer state per parameter.
    #[must_use]
    pub fn state_per_parameter(&self) -> usize {
        self.optimizer.state_len_per_param()
    }

    /// Everything in the order of the wire: the parameters, the state plane by plane, and what the workers know where it is kept.
    #[must_use]
    pub fn parts(&self) -> Vec<&[f32]> {
        self.by_plane().into_iter().flatten().collect()
    }

    fn by_plane(&self) -> Vec<Vec<&[f32]>> {
        let planes = self.state_per_parameter();
        let mut by_plane: Vec<Vec<&[f32]>> = vec![Vec::new(); planes + 1];
        by_plane[0].push(&self.parameters);
        for chunk in self.state.chunks(CHUNK * planes.max(1)) {
            let len = chunk.len() / planes;
            for (plane, part) in by_plane[1..].iter_mut().zip(chunk.chunks(len)) {
                plane.push(part);
            }
        }
        if !self.known.is_empty() {
            by_plane.push(vec![&self.known]);
        }
        by_plane
    }

    /// Lets `fill` write everything, in the order of [`Self::parts`].
    pub fn fill_with<R>(&mut self, fill: impl FnOnce(&mut [&mut [f32]]) -> R) -> R {
        fill(&mut self.parts_mut().into_iter().flatten().collect::<Vec<_>>())
    }

    fn parts_mut(&mut self) -> Vec<Vec<&mut [f32]>> {
        let planes = self.state_per_parameter();
        let mut by_plane: Vec<Vec<&mut [f32]>> = (0..=planes).map(|_| Vec::new()).collect();
        by_plane[0].push(self.parameters.as_mut_slice());
        for chunk in self.state.chunks_mut(CHUNK * planes.max(1)) {
            let len = chunk.len() / planes;
            for (plane, part) in by_plane[1..].iter_mut().zip(chunk.chunks_mut(len)) {
                plane.push(part);
            }
        }
        if !self.known.is_empty() {
            by_plane.push(vec![self.known.as_mut_slice()]);
        }
        by_plane
    }

    /// Of everything, plane by plane, the parts at these ascending ranges of the local order.
    #[must_use]
    pub fn select(&self, ranges: &[Range<usize>]) -> Vec<&[f32]> {
        let wanted = in_every_plane(ranges, self.parameters.len(), self.numbers_per_parameter());
        let parts = self.by_plane().into_iter().flatten().collect();
        carve(parts, &wanted, |part: &[f32], at| part.split_at(at))
    }

    /// Lets `fill` write those parts.
    pub fn fill_selected<R>(
        &mut self,
        ranges: &[Range<usize>],
        fill: impl FnOnce(&mut [&mut [f32]]) -> R,
    ) -> R {
        let wanted = in_every_plane(ranges, self.parameters.len(), self.numbers_per_parameter());
        let parts = self.parts_mut().into_iter().flatten().collect();
        fill(&mut carve(parts, &wanted, |part: &mut [f32], at| {
            part.split_at_mut(at)
        }))
    }

    /// Takes over from `other` what both hold: `pieces` of this one, `others` of the other.
    pub fn take_over(&mut self, pieces: &[Piece], other: &Self, others: &[Piece]) {
        let both = common(pieces, others);
        let from = other.select(&local(others, &both));
        self.fill_selected(&local(pieces, &both), |parts| {
            let mut from = from.into_iter();
            let mut source: &[f32] = &[];
            for part in parts {
                let mut rest: &mut [f32] = part;
                while !rest.is_empty() {
                    if source.is_empty() {
                        source = from.next().expect("both have the same parts");
                    }
                    let len = rest.len().min(source.len());
                    let (here, tail) = rest.split_at_mut(len);
                    here.copy_from_slice(&source[..len]);
                    (rest, source) = (tail, &source[len..]);
                }
            }
        });
    }

    /// A checksum of every bit and its place in the whole arena. Those of shards that hold different pieces add up (wrapping) to
    /// the checksum of all they hold together, however it is cut: each number is multiplied by an odd number of its own place.
    #[must_use]
    pub fn checksum(&self, pieces: &[Piece]) -> u64 {
        let mut sum = 0u64;
        for (plane, parts) in self.by_plane().into_iter().enumerate() {
            let mut parts = parts.into_iter();
            let mut part: &[f32] = &[];
            for piece in pieces {
                let mut range = piece.range();
                while !range.is_empty() {
                    if part.is_empty() {
                        part = parts.next().expect("the pieces are those of the tensors");
                    }
                    let len = range.len().min(part.len());
                    sum = sum.wrapping_add(checksum(plane, range.start, &part[..len]));
                    (part, range.start) = (&part[len..], range.start + len);
                }
            }
        }
        sum
    }

    /// Adds up `gradients` in their order, into the first, and applies the sum as update number `update`, counted from 0. The same
    /// arguments give the same bits whatever the number of threads.
    pub fn update(&mut self, update: u64, gradients: &mut [&mut [f32]], scale: f32) {
        let factors = Factors {
            scale,
            ..Factors::default()
        };
        self.update_by(update, gradients, factors);
    }

    /// The same with all its factors.
    pub fn update_by(&mut self, update: u64, gradients: &mut [&mut [f32]], factors: Factors) {
        let scale = factors.scale * factors.clip;
        let slowed;
        let optimizer = match factors.rate == 1.0 {
            true => &self.optimizer,
            false => {
                slowed = self.optimizer.slowed(factors.rate);
                &slowed
            }
        };
        let planes = optimizer.state_len_per_param();
        let threads = self.threads;
        let (first, others) = gradients
            .split_first_mut()
            .expect("a step has at least one gradient");
        let others: &[&mut [f32]] = others;
        let trusts = match self.optimizer.rule {
            Rule::Lars { .. } => {
                add_up(first, others, threads);
                Some(self.trusts(first, scale))
            }
            _ => None,
        };
        let others = if trusts.is_some() { &[] } else { others };
        let mut state = self.state.chunks_mut(CHUNK * planes.max(1));
        let mut chunks: Vec<Chunk<'_>> = self
            .parameters
            .chunks_mut(CHUNK)
            .zip(first.chunks_mut(CHUNK))
            .enumerate()
            .map(|(index, (parameters, sum))| Chunk {
                offset: index * CHUNK,
                parameters,
                sum,
                state: state.next().unwrap_or_default(),
            })
            .collect();
        let segments = &self.segments;
        share(&mut chunks, threads, |chunk| {
            chunk.add(others);
            chunk.update(optimizer, segments, trusts.as_deref(), update, factors);
        });
    }

    /// Adds up `gradients` in their order, into the first; the square of the norm of the sum times `scale`.
    pub fn sum_up(&self, gradients: &mut [&mut [f32]], scale: f32) -> f64 {
        let (first, others) = gradients
            .split_first_mut()
            .expect("a step has at least one gradient");
        add_up(first, others, self.threads);
        self.square_norm(first, scale)
    }

    /// The square of the norm of these gradients times `scale`. Running statistics are no gradients.
    #[must_use]
    pub fn square_norm(&self, gradients: &[f32], scale: f32) -> f64 {
        let counted = self
            .segments
            .iter()
            .filter(|segment| segment.role != Role::Statistic);
        let parts: Vec<(&[f32], f32)> = counted
            .map(|segment| (&gradients[segment.range.clone()], scale))
            .collect();
        optimizer::square_norm(&parts, self.threads)
    }

    /// Of each segment.
    fn trusts(&self, sum: &[f32], scale: f32) -> Vec<f32> {
        let of = |segment: &Segment| match segment.role {
            Role::Weight => {
                let range = segment.range.clone();
                self.optimizer
                    .trust(&self.parameters[range.clone()], &sum[range], scale)
            }
            Role::Bias | Role::Statistic => 1.0,
        };
        self.segments.iter().map(of).collect()
    }
}

fn in_every_plane(ranges: &[Range<usize>], len: usize, planes: usize) -> Vec<Range<usize>> {
    (0..planes)
        .flat_map(|plane| {
            let start = plane * len;
            ranges
                .iter()
                .map(move |range| range.start + start..range.end + start)
        })
        .collect()
}

/// The parts of a sequence of slices at ascending ranges of it.
fn carve<T: std::ops::Deref<Target = [f32]>>(
    parts: Vec<T>,
    wanted: &[Range<usize>],
    split_at: impl Fn(T, usize) -> (T, T),
) -> Vec<T> {
    let mut out = Vec::with_capacity(wanted.len());
    let mut wanted = wanted.iter().cloned();
    let mut range = wanted.next().unwrap_or(0..0);
    let mut at = 0;
    for part in parts {
        let mut rest = part;
        while !rest.is_empty() && !range.is_empty() {
            let skip = (range.start - at).min(rest.len());
            let (_, tail) = split_at(rest, skip);
            at += skip;
            let take = if at == range.start {
                range.len().min(tail.len())
            } else {
                0
            };
            let (here, tail) = split_at(tail, take);
            if take > 0 {
                out.push(here);
            }
            at += take;
            range.start += take;
            while range.is_empty() {
                match wanted.next() {
                    Some(next) => range = next,
                    None => return out,
                }
            }
            rest = tail;
        }
        at += rest.len();
    }
    out
}

fn checksum(plane: usize, start: usize, values: &[f32]) -> u64 {
    let first = (start as u32).wrapping_add((plane as u32).wrapping_mul(0x632B_E5AB));
    let of = |(i, value): (usize, &f32)| {
        let place = first.wrapping_add(i as u32);
        let mixed = value.to_bits() ^ place.wrapping_mul(0x9E37_79B1);
        u64::from(mixed).wrapping_mul(u64::from(place.wrapping_mul(0x85EB_CA77) | 1))
    };
    values.iter().enumerate().map(of).fold(0, u64::wrapping_add)
}

/// Neighbours that are updated alike become one, so that most shards have one segment.
fn joined(segments: Vec<Segment>, optimizer: &Optimizer) -> Vec<Segment> {
    let by_tensor = matches!(optimizer.rule, Rule::Lars { .. });
    let mut out: Vec<Segment> = Vec::new();
    for segment in segments {
        let follows = |role| role == Role::Statistic;
        match out.last_mut() {
            Some(last) if !by_tensor && follows(last.role) == follows(segment.role) => {
                last.range.end = segment.range.end
            }
            _ => out.push(segment),
        }
    }
    out
}
