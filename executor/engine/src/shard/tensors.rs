//! The shard's numbers: its parameters, the optimizer's state of them, and one update.
//!
//! Both are worked on in chunks that stay in a core's cache: a chunk's gradients are summed over the workers and applied before
//! the next chunk is touched, so each number travels from memory once per step.

use crate::assign::{Piece, common, local};
use crate::model::{Block, Role};
use crate::optimizer::{self, Optimizer, Rule};
use std::ops::Range;
use std::thread;

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

fn add_up(sum: &mut [f32], others: &[&mut [f32]], threads: usize) {
    let mut chunks: Vec<Chunk<'_>> = sum
        .chunks_mut(CHUNK)
        .enumerate()
        .map(|(index, sum)| Chunk {
            offset: index * CHUNK,
            parameters: &mut [],
            sum,
            state: &mut [],
        })
        .collect();
    share(&mut chunks, threads, |chunk| chunk.add(others));
}

/// Does `work` on every chunk, on some threads.
fn share(chunks: &mut [Chunk<'_>], threads: usize, work: impl Fn(&mut Chunk<'_>) + Sync) {
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
struct Chunk<'a> {
    offset: usize,
    parameters: &'a mut [f32],
    sum: &'a mut [f32],
    state: &'a mut [f32],
}

impl Chunk<'_> {
    fn add(&mut self, others: &[&mut [f32]]) {
        for other in others {
            let other = &other[self.offset..self.offset + self.sum.len()];
            for (sum, value) in self.sum.iter_mut().zip(other) {
                *sum += value;
            }
        }
    }

    /// `trusts` are by segment; without them every tensor's is 1.
    fn update(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn adam() -> Optimizer {
        Optimizer::new(Rule::Adam {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
        })
    }

    fn values(count: usize, salt: usize) -> Vec<f32> {
        (0..count)
            .map(|i| ((i * 7919 + salt * 104_729) % 1000) as f32 / 500.0 - 1.0)
            .collect()
    }

    /// The chunked, threaded update against one call of the optimizer over everything.
    #[test]
    fn an_update_is_the_optimizers_own_on_the_sum_in_rank_order() {
        let count = CHUNK * 40 + 123;
        for threads in [1, 3] {
            let mut tensors = Tensors::new(adam(), Segment::weights(count), threads);
            let start = values(count, 0);
            tensors.fill_with(|parts| parts[0].copy_from_slice(&start));
            let mut expected = start;
            let mut state = vec![0.0; count * 2];
            for step in 0..3 {
                let mut gradients: Vec<Vec<f32>> =
                    (1..4).map(|salt| values(count, salt + step)).collect();
                let sum: Vec<f32> = (0..count)
                    .map(|i| (gradients[0][i] + gradients[1][i]) + gradients[2][i])
                    .collect();
                adam().update(step as u64, &mut expected, &sum, &mut state, 0.25);
                let mut gradients: Vec<&mut [f32]> =
                    gradients.iter_mut().map(Vec::as_mut_slice).collect();
                tensors.update(step as u64, &mut gradients, 0.25);
            }
            assert_eq!(tensors.parameters(), expected);
            assert_eq!(
                tensors.parts()[1..].concat(),
                state,
                "planes come out whole and in order"
            );
        }
    }

    #[test]
    fn what_is_filled_comes_out_in_the_same_order() {
        let count = CHUNK * 2 + 5;
        let mut tensors = Tensors::new(adam(), Segment::weights(count), 1);
        let all = values(count * 3, 1);
        tensors.fill_with(|parts| {
            let mut rest = all.as_slice();
            for part in parts {
                let (here, tail) = rest.split_at(part.len());
                part.copy_from_slice(here);
                rest = tail;
            }
            assert!(rest.is_empty());
        });
        assert_eq!(tensors.parts().concat(), all);
    }

    /// One shard's content, dealt to two others, is there again in their parts and their checksums.
    #[test]
    fn what_is_taken_over_is_the_same_to_the_bit() {
        let count = CHUNK * 3 + 77;
        let piece = |offset, len| Piece { offset, len };
        let whole = [piece(100, count)];
        let cut = CHUNK + 10;
        let first = [
            piece(100, 5),
            piece(100 + cut, CHUNK),
            piece(100 + count - 3, 3),
        ];
        let second = [
            piece(105, cut - 5),
            piece(100 + cut + CHUNK, count - cut - CHUNK - 3),
        ];
        let mut all = Tensors::new(adam(), Segment::weights(count), 1);
        let mut salt = 0;
        all.fill_with(|parts| {
            for part in parts {
                salt += 1;
                part.copy_from_slice(&values(part.len(), salt));
            }
        });
        let parts: Vec<Tensors> = [&first[..], &second[..]]
            .map(|pieces| {
                let mut part =
                    Tensors::new(adam(), Segment::weights(crate::assign::load(pieces)), 1);
                part.take_over(pieces, &all, &whole);
                part
            })
            .into();
        let sum = parts[0]
            .checksum(&first)
            .wrapping_add(parts[1].checksum(&second));
        assert_eq!(sum, all.checksum(&whole));
        let mut back = Tensors::new(adam(), Segment::weights(count), 1);
        back.take_over(&whole, &parts[0], &first);
        assert_ne!(
            back.checksum(&whole),
            all.checksum(&whole),
            "half is missing"
        );
        back.take_over(&whole, &parts[1], &second);
        assert_eq!(back.parts(), all.parts());
        let (index, bit) = (CHUNK + 3, 1);
        back.fill_with(|parts| {
            parts[2][index % CHUNK] = f32::from_bits(parts[2][index % CHUNK].to_bits() ^ bit)
        });
        assert_ne!(
            back.checksum(&whole),
            all.checksum(&whole),
            "one bit is another"
        );
    }

    #[test]
    fn a_shard_without_parameters_is_no_special_case() {
        let mut tensors = Tensors::new(adam(), Segment::weights(0), 1);
        tensors.update(0, &mut [&mut [], &mut []], 1.0);
        assert_eq!(tensors.parts().concat(), [0.0; 0]);
    }

    #[test]
    fn a_shard_knows_which_blocks_its_pieces_are_of() {
        let mut offset = 0;
        let mut block = |len: usize, role| {
            offset += len;
            Block {
                name: String::new(),
                offset: offset - len,
                len,
                shape: vec![len],
                role,
                fill: crate::model::Fill::Constant(0.0),
            }
        };
        let blocks = [
            block(10, Role::Weight),
            block(4, Role::Bias),
            block(6, Role::Statistic),
        ];
        let piece = |offset, len| Piece { offset, len };
        let segments = Segment::of(&blocks, &[piece(2, 3), piece(7, 5), piece(15, 5)]);
        let expected = [
            (0..3, Role::Weight),
            (3..6, Role::Weight),
            (6..8, Role::Bias),
            (8..13, Role::Statistic),
        ];
        assert_eq!(
            segments,
            expected.map(|(range, role)| Segment { range, role })
        );
    }

    /// Statistics go their own way, and LARS has a factor of each tensor, wherever chunks cut them.
    #[test]
    fn each_segment_is_updated_by_its_role() {
        let rule = Rule::Lars {
            lr: 0.1,
            momentum: 0.9,
            weight_decay: 0.01,
            trust: 0.02,
        };
        let optimizer = Optimizer::new(rule);
        let ends = [CHUNK + 7, CHUNK + 9, 3 * CHUNK, 3 * CHUNK + 100];
        let roles = [Role::Weight, Role::Bias, Role::Weight, Role::Statistic];
        let mut start = 0;
        let segments = ends.iter().zip(roles).map(|(&end, role)| {
            let range = std::mem::replace(&mut start, end)..end;
            Segment { range, role }
        });
        let segments: Vec<Segment> = segments.collect();
        let count = ends[3];
        let mut tensors = Tensors::new(optimizer.clone(), segments.clone(), 2);
        let mut expected = values(count, 0);
        tensors.fill_with(|parts| parts[0].copy_from_slice(&expected));
        let mut state = vec![0.0; count];
        for step in 0..3 {
            let mut gradients = [values(count, step + 1), values(count, step + 5)];
            let sum: Vec<f32> = gradients[0]
                .iter()
                .zip(&gradients[1])
                .map(|(a, b)| a + b)
                .collect();
            for Segment { range, role } in segments.clone() {
                let (params, sum) = (&mut expected[range.clone()], &sum[range.clone()]);
                let state = &mut state[range];
                match role {
                    Role::Weight => optimizer.update(step as u64, params, sum, state, 0.5),
                    Role::Bias => {
                        optimizer.update_part(step as u64, params, sum, [state, &mut []], 0.5, 1.0)
                    }
                    Role::Statistic => params.iter_mut().zip(sum).for_each(|(p, g)| *p -= 0.5 * g),
                }
            }
            let mut gradients: Vec<&mut [f32]> =
                gradients.iter_mut().map(Vec::as_mut_slice).collect();
            tensors.update(step as u64, &mut gradients, 0.5);
        }
        assert_eq!(tensors.parameters(), expected);
    }
}
