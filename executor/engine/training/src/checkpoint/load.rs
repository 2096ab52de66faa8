//! Loading of part files into arenas. A file is mapped if its alignment allows it, and read
//! otherwise. Several threads read and verify one chunk each while it is in the cache.

use super::mapping::{ArenaSpan, keeps_unlinked, populate};
use super::memory::{ArenaRest, LoadArena, PartRun, place};
use super::parts::CheckpointPart;
use super::{CheckpointArena, CheckpointError, Contents, FileSum, Manifest};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::vec;

/// Maximum number of threads for files; memory bandwidth limits more.
const MAX_THREADS: usize = 4;

/// Number of bytes of a file that are read and verified at a time, so that a block is still in the
/// cache when it is verified.
const BLOCK_BYTES: usize = 256 << 10;

/// Source of a part's bytes: a file, or an object in a bucket.
pub(super) trait PartSource: Sync {
    /// Fills `into` from this offset of the part.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), CheckpointError>;

    /// Length of the whole part in bytes.
    fn bytes(&self) -> u64;

    /// Path for errors.
    fn path(&self) -> &Path;

    /// The part's file, if it may be mapped.
    fn mappable(&self) -> Option<&File> {
        None
    }

    /// Number of bytes per read.
    fn block_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    /// Number of threads that read at the same time.
    fn threads(&self) -> usize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        cores.min(MAX_THREADS)
    }
}

/// Part file on the disk.
pub(super) struct PartFile {
    file: File,
    bytes: u64,
    path: PathBuf,
}

impl PartFile {
    /// Opens the file. A missing file means that the checkpoint is damaged.
    pub fn open(path: PathBuf) -> Result<Self, CheckpointError> {
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match opened {
            Ok((bytes, file)) => Ok(Self { file, bytes, path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CheckpointError::damaged(&path, "it is missing"))
            }
            Err(error) => Err(CheckpointError::io("open", &path)(error)),
        }
    }
}

impl PartSource for PartFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), CheckpointError> {
        match self.file.read_exact_at(into, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(CheckpointError::damaged(&self.path, "it is cut short"))
            }
            other => other.map_err(CheckpointError::io("read", &self.path)),
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn mappable(&self) -> Option<&File> {
        keeps_unlinked(&self.file).then_some(&self.file)
    }
}

/// Range that one thread reads and verifies at a time.
struct ReadChunk<'a> {
    source: &'a dyn PartSource,
    offset: u64,
    pieces: Vec<ArenaSpan<'a>>,
    crc32: u32,
}

/// Loads all tensors of the manifest, which must have been checked. `open` opens a part by its
/// name.
///
/// # Errors
/// [`CheckpointError::Damaged`] names the file that differs from the manifest.
pub(super) fn load<'s>(
    manifest: &Manifest,
    path: &Path,
    mut open: impl FnMut(&str) -> Result<Box<dyn PartSource + 's>, CheckpointError>,
) -> Result<Contents<CheckpointArena>, CheckpointError> {
    let parts = manifest.parts();
    // There may be further files, for other readers.
    if let Some(part) = parts
        .iter()
        .find(|part| !manifest.files.contains_key(&part.name))
    {
        let what = format!("it does not list {}, which its tensors need", part.name);
        return Err(CheckpointError::damaged(path, what));
    }
    let sources: Vec<Box<dyn PartSource + 's>> = parts
        .iter()
        .map(|part| open(&part.name))
        .collect::<Result<_, _>>()?;
    // Checked before memory is allocated, so that the memory is limited by the sizes of the files.
    let data_at: Vec<u64> = parts
        .iter()
        .zip(&sources)
        .map(|(part, source)| check_header(part, source.as_ref(), &manifest.files[&part.name]))
        .collect::<Result<_, _>>()?;
    let runs = place(&parts, &data_at);
    let mut memories: Vec<LoadArena> = manifest
        .arena_lens()
        .into_iter()
        .enumerate()
        .map(|(arena, floats)| {
            let runs: Vec<&PartRun> = runs.iter().filter(|run| run.arena == arena).collect();
            LoadArena::of(floats, &runs, &sources)
        })
        .collect();
    let mut rest: Vec<ArenaRest<'_>> = memories.iter_mut().map(LoadArena::rest).collect();
    let mut chunks = Vec::new();
    for (index, ((part, source), data_at)) in parts.iter().zip(&sources).zip(data_at).enumerate() {
        let sum = &manifest.files[&part.name];
        let of_part = runs.iter().filter(|run| run.part == index);
        let pieces = of_part
            .map(|run| rest[run.arena].take(run.at, run.bytes))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| CheckpointError::damaged(path, "its blocks overlap"))?;
        let pieces = pieces.into_iter().flatten().collect();
        chunks.extend(cut(source.as_ref(), data_at, pieces, &sum.crc32));
    }
    read_all(chunks)?;
    let arenas = memories.into_iter().map(LoadArena::into_plane).collect();
    Ok(Contents::of(manifest, arenas))
}

/// Checks that lengths and header are exactly those that follow from the manifest. Returns the
/// offset of the data.
fn check_header(
    part: &CheckpointPart,
    source: &dyn PartSource,
    sum: &FileSum,
) -> Result<u64, CheckpointError> {
    let header = part.header();
    let expected = (header.len() + part.data_bytes()) as u64;
    let crcs = part.data_bytes().div_ceil(FileSum::CRC_BYTES);
    if source.bytes() != expected || sum.bytes != expected || sum.crc32.len() != crcs {
        let what = format!("it has {} bytes instead of {expected}", source.bytes());
        return Err(CheckpointError::damaged(source.path(), what));
    }
    let mut found = vec![0; header.len()];
    source.read_at(0, &mut found)?;
    if found != header {
        let what = "its header is not what the manifest says";
        return Err(CheckpointError::damaged(source.path(), what));
    }
    Ok(header.len() as u64)
}

/// Cuts the data of a part at the boundaries of its checksums.
fn cut<'a>(
    source: &'a dyn PartSource,
    data_at: u64,
    pieces: Vec<ArenaSpan<'a>>,
    crcs: &[u32],
) -> Vec<ReadChunk<'a>> {
    let mut pieces = pieces.into_iter();
    let mut present: Option<ArenaSpan<'a>> = None;
    let mut out = Vec::with_capacity(crcs.len());
    for (index, &crc32) in crcs.iter().enumerate() {
        let mut chunk = ReadChunk {
            source,
            offset: data_at + (index * FileSum::CRC_BYTES) as u64,
            pieces: Vec::new(),
            crc32,
        };
        let mut wanted = FileSum::CRC_BYTES;
        while wanted > 0 {
            let Some(span) = present.take().or_else(|| pieces.next()) else {
                break;
            };
            let len = wanted.min(span.len());
            let (taken, rest) = span.split_at(len);
            present = (rest.len() > 0).then_some(rest);
            chunk.pieces.push(taken);
            wanted -= len;
        }
        out.push(chunk);
    }
    out
}

fn read_all(chunks: Vec<ReadChunk<'_>>) -> Result<(), CheckpointError> {
    let threads = chunks.first().map_or(1, |chunk| chunk.source.threads());
    let threads = threads.min(chunks.len()).max(1);
    let chunks = Mutex::new(chunks.into_iter());
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|_| scope.spawn(|| read_remaining(&chunks)))
            .collect();
        let own = read_remaining(&chunks);
        let others = others
            .into_iter()
            .map(|other| other.join().expect("reading does not panic"));
        others.fold(own, |first, other| first.and(other))
    })
}

/// Reads chunks until none is left.
fn read_remaining(chunks: &Mutex<vec::IntoIter<ReadChunk<'_>>>) -> Result<(), CheckpointError> {
    loop {
        let chunk = chunks.lock().expect("no panic while it is held").next();
        let Some(chunk) = chunk else { return Ok(()) };
        chunk.read()?;
    }
}

impl ReadChunk<'_> {
    fn read(self) -> Result<(), CheckpointError> {
        let mut crc = crc32fast::Hasher::new();
        let mut offset = self.offset;
        for piece in self.pieces {
            let bytes = piece.len() as u64;
            match piece {
                ArenaSpan::Fill(piece) => {
                    let mut offset = offset;
                    for block in piece.chunks_mut(self.source.block_bytes()) {
                        self.source.read_at(offset, block)?;
                        crc.update(block);
                        offset += block.len() as u64;
                    }
                }
                ArenaSpan::Laid(piece) => {
                    populate(piece).map_err(CheckpointError::io("read", self.source.path()))?;
                    crc.update(piece);
                }
            }
            offset += bytes;
        }
        if crc.finalize() == self.crc32 {
            return Ok(());
        }
        let what = format!("its data from byte {} on have another sum", self.offset);
        Err(CheckpointError::damaged(self.source.path(), what))
    }
}
