//! IDX file format of MNIST and its successors, plain or compressed with gzip.
//!
//! The file has a big-endian header (two zero bytes, element type, number of dimensions, each
//! dimension as u32) followed by the elements. Only unsigned bytes occur in the supported data
//! sets. The reader checks everything that the format allows, so that a truncated file or a file of
//! the wrong kind never becomes a slightly wrong training set.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Maximum number of element bytes, after decompression.
const MAX_BYTES: u64 = 1 << 32;
/// IDX code of unsigned bytes.
const UNSIGNED_BYTE: u8 = 0x08;

/// Error in an IDX file, with its position.
#[derive(Debug, thiserror::Error)]
#[error("{path}: at byte {offset}", path = .path.display())]
pub struct IdxError {
    pub path: PathBuf,
    /// Offset in bytes, after decompression.
    pub offset: u64,
    #[source]
    pub problem: IdxProblem,
}

#[derive(Debug, thiserror::Error)]
pub enum IdxProblem {
    #[error("cannot open the file")]
    Open(#[source] io::Error),
    #[error("cannot read on")]
    Read(#[source] io::Error),
    #[error("the file ends in its header")]
    HeaderCut,
    #[error(
        "begins with {found:02x?}, not with two zero bytes, type 08 (unsigned byte) and {dimensions} dimensions"
    )]
    Magic { found: [u8; 4], dimensions: u8 },
    #[error("dimension {dimension} is 0")]
    EmptyDimension { dimension: usize },
    #[error("the header promises more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the file ends after {found} of {expected} bytes of data")]
    DataCut { expected: u64, found: u64 },
    #[error("there is data after the last element")]
    Trailing,
    #[error("label {label} is not below {classes} classes")]
    Label { label: u8, classes: usize },
}

/// Grey images, one after another, each in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdxImages {
    pub count: usize,
    pub height: usize,
    pub width: usize,
    /// count × height × width.
    pub pixels: Vec<u8>,
}

/// Reads a file of images (three dimensions).
///
/// # Errors
/// If the file cannot be read or does not match its header exactly.
pub fn read_images(path: &Path) -> Result<IdxImages, IdxError> {
    let ([count, height, width], pixels) = read::<3>(path)?;
    Ok(IdxImages {
        count,
        height,
        width,
        pixels,
    })
}

/// Reads a file of labels (one dimension), each of which must be below `classes`.
///
/// # Errors
/// If the file cannot be read or does not match its header exactly, or a label is too large.
pub fn read_labels(path: &Path, classes: usize) -> Result<Vec<u8>, IdxError> {
    let (_, labels) = read::<1>(path)?;
    match labels
        .iter()
        .position(|&label| usize::from(label) >= classes)
    {
        None => Ok(labels),
        Some(at) => Err(IdxError {
            path: path.to_owned(),
            offset: 8 + at as u64,
            problem: IdxProblem::Label {
                label: labels[at],
                classes,
            },
        }),
    }
}

/// Adds the position to a problem.
fn failed(path: &Path, offset: u64) -> impl FnOnce(IdxProblem) -> IdxError {
    move |problem| IdxError {
        path: path.to_owned(),
        offset,
        problem,
    }
}

fn read<const D: usize>(path: &Path) -> Result<([usize; D], Vec<u8>), IdxError> {
    let mut reader = open(path).map_err(failed(path, 0))?;
    let mut magic = [0; 4];
    header(&mut reader, &mut magic).map_err(failed(path, 0))?;
    if magic != [0, 0, UNSIGNED_BYTE, D as u8] {
        let dimensions = D as u8;
        return Err(failed(path, 0)(IdxProblem::Magic {
            found: magic,
            dimensions,
        }));
    }
    let mut sides = [0; D];
    let mut offset = 4;
    let mut expected = 1_u64;
    for (dimension, side) in sides.iter_mut().enumerate() {
        let mut bytes = [0; 4];
        header(&mut reader, &mut bytes).map_err(failed(path, offset))?;
        let value = u32::from_be_bytes(bytes);
        if value == 0 {
            return Err(failed(path, offset)(IdxProblem::EmptyDimension {
                dimension,
            }));
        }
        *side = value as usize;
        expected = expected
            .checked_mul(u64::from(value))
            .filter(|&bytes| bytes <= MAX_BYTES)
            .ok_or_else(|| failed(path, offset)(IdxProblem::TooLarge))?;
        offset += 4;
    }
    // The buffer grows with the content, so that a header alone reserves no memory. One additional
    // byte reveals trailing data.
    let mut data = Vec::new();
    let outcome = reader.take(expected + 1).read_to_end(&mut data);
    let found = data.len() as u64;
    outcome.map_err(|source| failed(path, offset + found)(IdxProblem::Read(source)))?;
    match found.cmp(&expected) {
        std::cmp::Ordering::Less => Err(failed(path, offset + found)(IdxProblem::DataCut {
            expected,
            found,
        })),
        std::cmp::Ordering::Greater => Err(failed(path, offset + expected)(IdxProblem::Trailing)),
        std::cmp::Ordering::Equal => Ok((sides, data)),
    }
}

/// Detects compression by the first bytes and not by the name of the file.
fn open(path: &Path) -> Result<Box<dyn Read>, IdxProblem> {
    let mut reader = BufReader::new(File::open(path).map_err(IdxProblem::Open)?);
    let compressed = reader
        .fill_buf()
        .map_err(IdxProblem::Read)?
        .starts_with(&[0x1f, 0x8b]);
    Ok(if compressed {
        Box::new(MultiGzDecoder::new(reader))
    } else {
        Box::new(reader)
    })
}

fn header(reader: &mut dyn Read, bytes: &mut [u8]) -> Result<(), IdxProblem> {
    reader
        .read_exact(bytes)
        .map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => IdxProblem::HeaderCut,
            _ => IdxProblem::Read(source),
        })
}
