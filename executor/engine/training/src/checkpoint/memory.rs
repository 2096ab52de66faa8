//! Memory of arenas that are being loaded, and the source of each of their bytes.

use super::CheckpointArena;
use super::load::PartSource;
use super::mapping::{ArenaSpan, Mapping};
use super::parts::CheckpointPart;
use muster_compute::pages::HUGE;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;

/// Minimum length in bytes of an arena that is mapped. Below it, mapping costs as much as reading.
const MAPPED_FROM: usize = 1 << 20;

/// Contiguous bytes of an arena in one part.
pub(super) struct PartRun {
    pub part: usize,
    pub arena: usize,
    /// Offset in the arena.
    pub at: usize,
    /// Offset in the file.
    pub offset: u64,
    pub bytes: usize,
}

/// Runs of all parts in order; `data_at` contains the offset of each part's data.
pub(super) fn place(parts: &[CheckpointPart], data_at: &[u64]) -> Vec<PartRun> {
    let mut out = Vec::new();
    for (index, (part, &data_at)) in parts.iter().zip(data_at).enumerate() {
        let mut offset = data_at;
        for (arena, start, len) in part.runs() {
            let bytes = len * size_of::<f32>();
            out.push(PartRun {
                part: index,
                arena,
                at: start * size_of::<f32>(),
                offset,
                bytes,
            });
            offset += bytes as u64;
        }
    }
    out
}

/// Arena that is being loaded.
pub(super) enum LoadArena {
    Own(Vec<f32>),
    /// With the ranges that consist of mapped files.
    Mapped(Mapping, Vec<Range<usize>>),
}

impl LoadArena {
    /// Creates the memory, mapped over files where this is possible and saves time. Mapping affects
    /// speed only, so a failure is not an error.
    pub fn of<'s>(floats: usize, runs: &[&PartRun], sources: &[Box<dyn PartSource + 's>]) -> Self {
        Self::mapped(floats, runs, sources).unwrap_or_else(|| Self::Own(vec![0.0; floats]))
    }

    fn mapped<'s>(
        floats: usize,
        runs: &[&PartRun],
        sources: &[Box<dyn PartSource + 's>],
    ) -> Option<Self> {
        let files = runs.iter().map(|run| sources[run.part].mappable());
        let files: Vec<Option<&File>> = files.collect();
        if floats * size_of::<f32>() < MAPPED_FROM || files.iter().all(Option::is_none) {
            return None;
        }
        let longest = runs
            .iter()
            .max_by_key(|run| run.bytes)
            .expect("there is one");
        let lead = (longest.offset as usize + HUGE - longest.at % HUGE) % HUGE;
        let mut mapping = Mapping::reserve(floats, lead).ok()?;
        let mut laid = Vec::new();
        for (run, file) in runs.iter().zip(files) {
            let Some(file) = file else { continue };
            let range = mapping.lay(run.at, file, run.offset, run.bytes).ok()?;
            if !range.is_empty() {
                laid.push(range);
            }
        }
        (!laid.is_empty()).then_some(Self::Mapped(mapping, laid))
    }

    pub fn rest(&mut self) -> ArenaRest<'_> {
        let spans = match self {
            Self::Own(values) => vec![ArenaSpan::Fill(bytemuck::cast_slice_mut(values))],
            Self::Mapped(mapping, laid) => mapping.spans(laid),
        };
        ArenaRest {
            spans: spans.into(),
            given: 0,
        }
    }

    pub fn into_plane(self) -> CheckpointArena {
        match self {
            Self::Own(values) => values.into(),
            Self::Mapped(mapping, _) => CheckpointArena::Mapped(mapping),
        }
    }
}

/// Rest of an arena whose spans have not been taken yet.
pub(super) struct ArenaRest<'a> {
    spans: VecDeque<ArenaSpan<'a>>,
    given: usize,
}

impl<'a> ArenaRest<'a> {
    /// Takes `bytes` bytes from byte `at` on, which must be the next ones. `None` if they are not,
    /// or if fewer are left.
    pub fn take(&mut self, at: usize, bytes: usize) -> Option<Vec<ArenaSpan<'a>>> {
        if at != self.given {
            return None;
        }
        self.given += bytes;
        let mut out = Vec::new();
        let mut wanted = bytes;
        while wanted > 0 {
            let span = self.spans.pop_front()?;
            let len = wanted.min(span.len());
            let (taken, rest) = span.split_at(len);
            if rest.len() > 0 {
                self.spans.push_front(rest);
            }
            out.push(taken);
            wanted -= len;
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::load::PartFile;
    use std::fs;

    /// Returns bytes that state the page in which they are.
    fn data(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 4096) as u8).collect()
    }

    fn run(part: usize, at: usize, offset: u64, bytes: usize) -> PartRun {
        PartRun {
            part,
            arena: 0,
            at,
            offset,
            bytes,
        }
    }

    /// A short run of one file and a long run of another, with different positions in their huge
    /// pages.
    #[test]
    fn longest_run_is_aligned_to_huge_pages_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let [short, long] = [300 * 4096, 900 * 4096];
        let mut sources: Vec<Box<dyn PartSource>> = Vec::new();
        for (name, len) in [("short", short + 4096), ("long", long + 3 * 4096)] {
            let path = folder.path().join(name);
            fs::write(&path, data(len)).unwrap();
            sources.push(Box::new(PartFile::open(path).unwrap()));
        }
        assert!(
            sources[1].mappable().is_some(),
            "files of the temporary folder cannot be mapped: set TMPDIR to a folder on a local disk"
        );
        let runs = [run(0, 0, 4096, short), run(1, short, 3 * 4096, long)];
        let floats = (short + long) / size_of::<f32>();
        let memory = LoadArena::of(floats, &[&runs[0], &runs[1]], &sources);
        let plane = memory.into_plane();
        assert!(plane.is_mapped());
        let address = plane.as_ptr().addr() + short;
        assert_eq!(address % HUGE, 3 * 4096);
        let bytes: &[u8] = bytemuck::cast_slice(&plane);
        assert!(bytes[..short] == data(short + 4096)[4096..]);
        assert!(bytes[short..] == data(long + 3 * 4096)[3 * 4096..]);
    }
}
