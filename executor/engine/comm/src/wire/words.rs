//! Encoding of metadata that consists of 64-bit words, little endian.

use super::WireError;

/// Encodes `N` words; `BYTES` must be eight times `N`.
pub(super) fn encode<const N: usize, const BYTES: usize>(words: [u64; N]) -> [u8; BYTES] {
    const { assert!(8 * N == BYTES) };
    let mut out = [0; BYTES];
    for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    out
}

/// Decodes `N` words; `what` names them in the error.
///
/// # Errors
/// [`WireError::Malformed`] if the number of words differs.
pub(super) fn decode<const N: usize>(
    bytes: &[u8],
    what: &'static str,
) -> Result<[u64; N], WireError> {
    match bytes.as_chunks::<8>() {
        (words, []) => {
            let words: &[[u8; 8]; N] = words.try_into().map_err(|_| WireError::Malformed(what))?;
            Ok(words.map(u64::from_le_bytes))
        }
        _ => Err(WireError::Malformed(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_decode_only_at_their_exact_length() {
        let bytes: [u8; 16] = encode([1, u64::MAX - 1]);
        assert_eq!(bytes[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode::<2>(&bytes, "two").unwrap(), [1, u64::MAX - 1]);
        for length in [0, 8, 15] {
            assert!(decode::<2>(&bytes[..length], "two").is_err());
        }
        assert!(decode::<1>(&bytes, "one").is_err());
    }
}
