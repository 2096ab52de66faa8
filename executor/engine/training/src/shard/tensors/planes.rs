//! Access to the shard's values plane by plane: reading and filling, whole or in part, and the
//! checksum.

use super::{CHUNK, Tensors};
use muster_comm::assign::{ParameterPiece, common, local};
use std::ops::Range;

impl Tensors {
    /// Returns everything in the order of transfers: the parameters, the state plane by plane, and
    /// the known parameters, if they are stored.
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

    /// Returns, plane by plane, the parts at these ascending ranges of the local order.
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

    /// Copies from `other` all values that both hold: `pieces` of this one, `others` of the other.
    pub fn take_over(
        &mut self,
        pieces: &[ParameterPiece],
        other: &Self,
        others: &[ParameterPiece],
    ) {
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

    /// Returns a checksum of every bit and its place in the whole arena. The checksums of shards
    /// with different pieces add up (wrapping) to that of their joint content, for every division.
    /// Each value is multiplied by an odd number that depends on its place.
    #[must_use]
    pub fn checksum(&self, pieces: &[ParameterPiece]) -> u64 {
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

/// Returns the parts of a sequence of slices at these ascending ranges.
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
    let products = values.iter().enumerate().map(|(i, value)| {
        let place = first.wrapping_add(i as u32);
        let mixed = value.to_bits() ^ place.wrapping_mul(0x9E37_79B1);
        u64::from(mixed).wrapping_mul(u64::from(place.wrapping_mul(0x85EB_CA77) | 1))
    });
    products.fold(0, u64::wrapping_add)
}
