//! Memory for arenas that are being loaded, and which of their bytes come from where.

use super::Plane;
use super::load::Source;
use super::mapping::{Mapping, Span};
use super::parts::{PAGE, Part};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;

/// An arena of fewer bytes is read: mapping it would cost as much.
const MAPPED_FROM: usize = 1 << 20;

/// What an arena has in a row in one part, in bytes.
pub(super) struct Run {
    pub part: usize,
    pub arena: usize,
    /// In the arena.
    pub at: usize,
    /// In the file.
    pub offset: u64,
    pub bytes: usize,
}

/// Part by part, of which the data begin there.
pub(super) fn place(parts: &[Part], data_at: &[u64]) -> Vec<Run> {
    let mut out = Vec::new();
    for (index, (part, &data_at)) in parts.iter().zip(data_at).enumerate() {
        let mut offset = data_at;
        for (arena, start, len) in part.runs() {
            let bytes = len * size_of::<f32>();
            out.push(Run {
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

/// An arena that is being loaded.
pub(super) enum Memory {
    Own(Vec<f32>),
    /// With the bytes over which files lie.
    Mapped(Mapping, Vec<Range<usize>>),
}

impl Memory {
    /// Over files, where that saves anything and is possible: it is a matter of speed only, so that it fails is no failure.
    pub fn of<'s>(floats: usize, runs: &[&Run], sources: &[Box<dyn Source + 's>]) -> Self {
        let own = || Self::Own(vec![0.0; floats]);
        let files = runs.iter().map(|run| sources[run.part].mappable());
        let files: Vec<Option<&File>> = files.collect();
        if floats * size_of::<f32>() < MAPPED_FROM || files.iter().all(Option::is_none) {
            return own();
        }
        let lead = (runs[0].offset % PAGE as u64) as usize;
        let Ok(mut mapping) = Mapping::reserve(floats, lead) else {
            return own();
        };
        let mut laid = Vec::new();
        for (run, file) in runs.iter().zip(files) {
            let Some(file) = file else { continue };
            match mapping.lay(run.at, file, run.offset, run.bytes) {
                Ok(range) if range.is_empty() => {}
                Ok(range) => laid.push(range),
                Err(_) => return own(),
            }
        }
        match laid.is_empty() {
            true => own(),
            false => Self::Mapped(mapping, laid),
        }
    }

    pub fn rest(&mut self) -> Rest<'_> {
        let spans = match self {
            Self::Own(values) => vec![Span::Fill(bytemuck::cast_slice_mut(values))],
            Self::Mapped(mapping, laid) => mapping.spans(laid),
        };
        Rest {
            spans: spans.into(),
            given: 0,
        }
    }

    pub fn into_plane(self) -> Plane {
        match self {
            Self::Own(values) => values.into(),
            Self::Mapped(mapping, _) => Plane::Mapped(mapping),
        }
    }
}

/// What of an arena is still to be given out, from the front.
pub(super) struct Rest<'a> {
    spans: VecDeque<Span<'a>>,
    given: usize,
}

impl<'a> Rest<'a> {
    /// So many bytes from byte `at` on, which must be the next ones. `None` where they are not, or there are not so many.
    pub fn take(&mut self, at: usize, bytes: usize) -> Option<Vec<Span<'a>>> {
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
