//! Records of an event file: the framing of `TFRecord` files. A record is its length, the checksum
//! of the length, the data and the checksum of the data. Checksums are masked CRC-32C.

use std::io;
use std::os::unix::fs::FileExt;

/// Maximum size of a record that is read. Longer records are images or graphs.
pub(super) const MAX_RECORD_BYTES: u64 = 256 << 10;
/// Bytes before and behind the data.
const HEAD_BYTES: u64 = 12;
const FOOT_BYTES: u64 = 4;
const CRC_POLYNOMIAL: u32 = 0x82F6_3B78;
const CRC_TABLE: [u32; 256] = crc_table();

/// What an event file has at a position.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextRecord {
    /// A record, and the position behind it.
    Whole { data: Vec<u8>, next: u64 },
    /// A record above [`MAX_RECORD_BYTES`], which is not read.
    Skipped { next: u64 },
    /// The record is not complete yet.
    Torn,
    /// A checksum is wrong. The position of the next record is unknown.
    Broken,
}

/// Reads the record at `position` of a file with `length` bytes.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn next(file: &impl FileExt, position: u64, length: u64) -> io::Result<NextRecord> {
    let left = length.saturating_sub(position);
    if left < HEAD_BYTES {
        return Ok(NextRecord::Torn);
    }
    let mut size = [0; 8];
    file.read_exact_at(&mut size, position)?;
    if read_u32(file, position + 8)? != masked_crc(&size) {
        return Ok(NextRecord::Broken);
    }
    let size = u64::from_le_bytes(size);
    if size > left - HEAD_BYTES || left - HEAD_BYTES - size < FOOT_BYTES {
        return Ok(NextRecord::Torn);
    }
    let next = position + HEAD_BYTES + size + FOOT_BYTES;
    if size > MAX_RECORD_BYTES {
        return Ok(NextRecord::Skipped { next });
    }
    let mut data = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    file.read_exact_at(&mut data, position + HEAD_BYTES)?;
    if read_u32(file, next - FOOT_BYTES)? != masked_crc(&data) {
        return Ok(NextRecord::Broken);
    }
    Ok(NextRecord::Whole { data, next })
}

fn read_u32(file: &impl FileExt, position: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, position)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Returns the masked CRC-32C, as `tensorflow/core/lib/hash/crc32c.h` defines it.
pub(super) fn masked_crc(data: &[u8]) -> u32 {
    let crc = !data.iter().fold(!0_u32, |crc, byte| {
        (crc >> 8) ^ CRC_TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)]
    });
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ CRC_POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write as _;

    /// Returns the bytes of one record.
    pub(in super::super) fn framed(data: &[u8]) -> Vec<u8> {
        let size = (data.len() as u64).to_le_bytes();
        let mut bytes = size.to_vec();
        bytes.extend(masked_crc(&size).to_le_bytes());
        bytes.extend(data);
        bytes.extend(masked_crc(data).to_le_bytes());
        bytes
    }

    fn file(bytes: &[u8]) -> (File, u64) {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        (file, bytes.len() as u64)
    }

    #[test]
    fn checksum_is_that_of_the_standard() {
        let crc = masked_crc(b"123456789").wrapping_sub(0xA282_EAD8);
        assert_eq!(crc.rotate_left(15), 0xE306_9283, "RFC 3720, appendix B.4");
    }

    #[test]
    fn records_are_read_up_to_a_torn_one() {
        let whole = framed(b"first");
        let mut bytes = whole.clone();
        bytes.extend(framed(b"second"));
        let first = NextRecord::Whole {
            data: b"first".to_vec(),
            next: whole.len() as u64,
        };
        for length in whole.len()..bytes.len() {
            let (file, length) = file(&bytes[..length]);
            assert_eq!(next(&file, 0, length).expect("read"), first);
            let second = next(&file, whole.len() as u64, length).expect("read");
            assert_eq!(second, NextRecord::Torn, "{length}");
        }
    }

    #[test]
    fn wrong_checksums_are_found() {
        let right = framed(b"data");
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            let (file, length) = file(&wrong);
            let found = next(&file, 0, length).expect("read");
            assert_eq!(found, NextRecord::Broken, "byte {at}");
        }
    }

    #[test]
    fn long_record_is_skipped() {
        let bytes = framed(&vec![7; 300 << 10]);
        let (file, length) = file(&bytes);
        let found = next(&file, 0, length).expect("read");
        assert_eq!(found, NextRecord::Skipped { next: length });
        let torn = next(&file, 0, length - 1).expect("read");
        assert_eq!(torn, NextRecord::Torn);
    }
}
