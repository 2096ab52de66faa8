//! Format of a sparse chunk: a word with the count and, in its top bit, the form; the positions, as
//! offsets of 16 bits or as one bit per value of the chunk, whichever is shorter; then the values
//! (`f32`), in order.

use super::super::lanes::{Lanes, SimdKernel};
use super::super::{CHUNK, DecodeError, front};
use std::mem::take;

/// One bit per value of a chunk, lowest first.
pub(super) type Marks = [u64; CHUNK / 64];

const HEADER: usize = 4;

const BITMAP: u32 = 1 << 31;

/// Above one value in 16, one bit per value is shorter than offsets.
pub(super) const MAX_OFFSETS: usize = CHUNK / 16;

fn is_bitmap(count: usize, len: usize) -> bool {
    2 * count > len.div_ceil(8)
}

/// Encoded positions of a chunk's values.
enum SparsePositions<'a> {
    Offsets(&'a [[u8; 2]]),
    Bitmap(&'a [u8]),
}

pub(super) fn max_bytes(len: usize) -> usize {
    HEADER + len.div_ceil(8) + 4 * len
}

/// Moves the marked values to the output, leaves zeros in their place, and returns the number of
/// bytes. It is a kernel for its population counts.
pub(super) struct SparseEncodeKernel<'a> {
    pub(super) marks: &'a Marks,
    pub(super) values: &'a mut [f32],
    /// Zeroed at the same positions, unless it is empty.
    pub(super) also: &'a mut [f32],
    pub(super) out: &'a mut [u8],
}

impl SimdKernel for SparseEncodeKernel<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> usize {
        write(self.marks, self.values, self.also, self.out)
    }
}

#[inline(always)]
fn write(marks: &Marks, values: &mut [f32], also: &mut [f32], out: &mut [u8]) -> usize {
    let words = &marks[..values.len().div_ceil(64)];
    let count = words.iter().map(|word| word.count_ones() as usize).sum();
    let bitmap = is_bitmap(count, values.len());
    let header = count as u32 | if bitmap { BITMAP } else { 0 };
    out[..HEADER].copy_from_slice(&header.to_le_bytes());
    if bitmap {
        let places = values.len().div_ceil(8);
        let (bits, numbers) = out[HEADER..].split_at_mut(places);
        bits.copy_from_slice(&bytemuck::cast_slice(words)[..places]);
        let (numbers, _) = numbers.as_chunks_mut::<4>();
        let mut numbers = numbers.iter_mut();
        for_each_mark(words, |offset| {
            if let Some(to) = numbers.next() {
                *to = take(&mut values[offset]).to_le_bytes();
            }
            if let Some(value) = also.get_mut(offset) {
                *value = 0.0;
            }
        });
        return HEADER + places + 4 * count;
    }
    let mut offsets = [0; MAX_OFFSETS + 4];
    flatten(words, &mut offsets);
    let (places, numbers) = out[HEADER..].split_at_mut(2 * count);
    let (places, _) = places.as_chunks_mut::<2>();
    let (numbers, _) = numbers.as_chunks_mut::<4>();
    for ((place, number), offset) in places.iter_mut().zip(numbers).zip(&offsets[..count]) {
        *place = offset.to_le_bytes();
        *number = take(&mut values[usize::from(*offset)]).to_le_bytes();
    }
    if !also.is_empty() {
        for offset in &offsets[..count] {
            also[usize::from(*offset)] = 0.0;
        }
    }
    HEADER + 6 * count
}

/// Writes the offsets of the marks and returns their number; `None`, and nothing written, if there
/// are more than fit.
pub(super) struct MarkOffsetsKernel<'a> {
    pub(super) words: &'a [u64],
    pub(super) offsets: &'a mut [u16; MAX_OFFSETS + 4],
}

impl SimdKernel for MarkOffsetsKernel<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> Option<usize> {
        let count: usize = self
            .words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum();
        (count <= MAX_OFFSETS).then(|| flatten(self.words, self.offsets))
    }
}

/// Writes the offsets of the marks. Always writes four per word and only then checks for more: with
/// few marks per word, a branch for each would often be mispredicted.
#[inline(always)]
fn flatten(words: &[u64], offsets: &mut [u16; MAX_OFFSETS + 4]) -> usize {
    let mut count = 0;
    for (index, word) in words.iter().enumerate() {
        let base = (index * 64) as u16;
        let mut rest = *word;
        let marks = rest.count_ones() as usize;
        let four = &mut offsets[count..count + 4];
        for to in &mut *four {
            // After the last mark this is an offset of 64, which the next word overwrites.
            *to = base.wrapping_add(rest.trailing_zeros() as u16);
            rest &= rest.wrapping_sub(1);
        }
        if marks > 4 {
            for to in &mut offsets[count + 4..count + marks] {
                *to = base + rest.trailing_zeros() as u16;
                rest &= rest.wrapping_sub(1);
            }
        }
        count += marks;
    }
    count
}

pub(super) fn for_each_mark(words: &[u64], mut visit: impl FnMut(usize)) {
    for (index, word) in words.iter().enumerate() {
        let mut rest = *word;
        while rest != 0 {
            visit(index * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// Calls `visit` with each value of a chunk of `len` values and its offset, in order, and returns
/// the number of bytes read.
pub(super) fn read(
    bytes: &[u8],
    len: usize,
    mut visit: impl FnMut(usize, f32),
) -> Result<usize, DecodeError> {
    let header = front(bytes, HEADER)?;
    let header = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let count = (header & !BITMAP) as usize;
    let bitmap = header & BITMAP != 0;
    // Each count has only one valid form, so that equal chunks have equal bytes. The announced
    // count is checked before it is used.
    if count > len || bitmap != is_bitmap(count, len) {
        return Err(DecodeError::Count { got: count, len });
    }
    let places = if bitmap { len.div_ceil(8) } else { 2 * count };
    let whole = front(bytes, HEADER + places + 4 * count)?;
    let (places, numbers) = whole[HEADER..].split_at(places);
    let (numbers, _) = numbers.as_chunks::<4>();
    let places = if bitmap {
        SparsePositions::Bitmap(places)
    } else {
        SparsePositions::Offsets(places.as_chunks::<2>().0)
    };
    match places {
        SparsePositions::Offsets(offsets) => {
            let mut least = 0;
            for (offset, number) in offsets.iter().zip(numbers) {
                let offset = usize::from(u16::from_le_bytes(*offset));
                if offset < least || offset >= len {
                    return Err(DecodeError::Index { got: offset, len });
                }
                visit(offset, f32::from_le_bytes(*number));
                least = offset + 1;
            }
        }
        SparsePositions::Bitmap(bits) => {
            let marked: usize = bits.iter().map(|byte| byte.count_ones() as usize).sum();
            if marked != count {
                return Err(DecodeError::Count { got: marked, len });
            }
            let mut numbers = numbers.iter();
            for (index, byte) in bits.iter().enumerate() {
                let mut rest = *byte;
                while rest != 0 {
                    let offset = index * 8 + rest.trailing_zeros() as usize;
                    if offset >= len {
                        return Err(DecodeError::Index { got: offset, len });
                    }
                    if let Some(number) = numbers.next() {
                        visit(offset, f32::from_le_bytes(*number));
                    }
                    rest &= rest - 1;
                }
            }
        }
    }
    Ok(whole.len())
}
