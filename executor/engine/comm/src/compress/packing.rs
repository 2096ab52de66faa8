//! Packing of codes of four to eight bits, one per byte, and unpacking. Works on eight codes at a
//! time in an integer register, while the vector units compute the next codes.

/// Packs the lowest `B` bits of each group of eight bytes into the first `B` bytes of a word.
#[inline(always)]
pub(super) fn pack<const B: usize>(codes: [u8; 32]) -> [[u8; 8]; 4] {
    let mut out = [[0; 8]; 4];
    let (words, _) = codes.as_chunks::<8>();
    for (to, from) in out.iter_mut().zip(words) {
        *to = pack_word::<B>(u64::from_le_bytes(*from)).to_le_bytes();
    }
    out
}

/// Masks of every other field of 8, 16 and 32 bits, of which the lowest `B`, 2`B` and 4`B` bits are
/// used.
const fn every_other(bits: usize) -> [u64; 3] {
    [
        ((1 << bits) - 1) * 0x0001_0001_0001_0001,
        ((1 << (2 * bits)) - 1) * 0x0000_0001_0000_0001,
        (1 << (4 * bits)) - 1,
    ]
}

/// Moves each field next to its neighbour, three times.
#[inline(always)]
fn pack_word<const B: usize>(codes: u64) -> u64 {
    if B == 8 {
        return codes;
    }
    let [bytes, words, longs] = every_other(B);
    let gap = 8 - B;
    let x = (codes & bytes) | (codes & bytes << 8) >> gap;
    let x = (x & words) | (x & words << 16) >> (2 * gap);
    (x & longs) | (x & longs << 32) >> (4 * gap)
}

/// Unpacks to one byte per code.
#[inline(always)]
pub(super) fn unpack_word<const B: usize>(packed: u64) -> u64 {
    if B == 8 {
        return packed;
    }
    let [bytes, words, longs] = every_other(B);
    let gap = 8 - B;
    let x = (packed & longs) | (packed << (4 * gap)) & longs << 32;
    let x = (x & words) | (x << (2 * gap)) & words << 16;
    (x & bytes) | (x << gap) & bytes << 8
}

#[cfg(test)]
mod tests {
    use super::{pack_word, unpack_word};
    use proptest::prelude::*;

    /// Compares with packing by shifting one code after the other.
    fn check<const B: usize>(codes: u64) {
        let mask = (1 << B) - 1;
        let plain = codes.to_le_bytes();
        let expected = plain.iter().rev().fold(0, |packed: u64, code| {
            packed.wrapping_shl(B as u32) | u64::from(*code) & mask
        });
        assert_eq!(pack_word::<B>(codes), expected);
        let kept = codes & (mask * 0x0101_0101_0101_0101);
        assert_eq!(unpack_word::<B>(expected), kept);
    }

    proptest! {
        #[test]
        fn words_are_packed_and_unpacked(codes: u64) {
            check::<4>(codes);
            check::<5>(codes);
            check::<6>(codes);
            check::<7>(codes);
            check::<8>(codes);
        }
    }
}
