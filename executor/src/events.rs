//! A task's `events.jsonl`: read line by line as it grows, and appended to for tasks that do not know of it. Only whole lines count: what a killed task left unfinished is no report.

use muster_model::assignment::TaskReport;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Longest line that is passed on as it is.
pub const MAX_LINE_BYTES: usize = 256 << 10;
/// Read at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// Between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Lines before it.
    pub line: u64,
    /// Bytes before it.
    pub byte: u64,
}

/// A run of lines; each is the JSON of a `TaskReport`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// Number of the first.
    pub first: u64,
    pub reports: Vec<String>,
    /// After the last.
    pub end: Position,
    /// Whether no whole line lay behind them when they were read.
    pub is_all: bool,
}

/// Adds reports with one `write(2)`, so that several writers do not mix their lines and a reader never sees half of one.
///
/// # Errors
/// If the file cannot be written, or takes only a part of the lines.
pub fn append(path: &Path, reports: &[TaskReport]) -> io::Result<()> {
    let mut lines = Vec::new();
    for report in reports {
        serde_json::to_writer(&mut lines, report)?;
        lines.push(b'\n');
    }
    if lines.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    if file.write(&lines)? < lines.len() {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "half an event was written",
        ));
    }
    Ok(())
}

/// Gives `take` every report so far, one after the other: a task that has run for weeks has more than should be in memory at once.
///
/// # Errors
/// If the file cannot be read.
pub fn each(path: &Path, mut take: impl FnMut(&TaskReport)) -> io::Result<()> {
    let (mut tail, mut from) = (EventTail::default(), Position::default());
    loop {
        let lines = tail.read(path, from, BLOCK_BYTES)?;
        for line in &lines.reports {
            take(&serde_json::from_str(line)?);
        }
        if lines.is_all {
            return Ok(());
        }
        from = lines.end;
    }
}

/// The reading end; the file is opened once it exists.
#[derive(Debug, Default)]
pub struct EventTail {
    file: Option<File>,
}

impl EventTail {
    /// Whole lines from a position on, until they come to `max_bytes`; empty if there is none.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&mut self, path: &Path, from: Position, max_bytes: usize) -> io::Result<Lines> {
        let mut lines = Lines {
            first: from.line,
            reports: Vec::new(),
            end: from,
            is_all: false,
        };
        let Some(file) = self.open(path)? else {
            lines.is_all = true;
            return Ok(lines);
        };
        let (mut pending, mut skipped, mut taken) = (Vec::new(), 0_u64, 0);
        let mut block = vec![0; BLOCK_BYTES];
        let mut at = from.byte;
        while taken < max_bytes {
            let count = file.read_at(&mut block, at)?;
            if count == 0 {
                lines.is_all = true;
                break;
            }
            at += count as u64;
            let mut rest = &block[..count];
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                skipped += keep(&mut pending, &rest[..end]);
                rest = &rest[end + 1..];
                let bytes = pending.len() as u64 + skipped;
                let report = checked(&pending, skipped, lines.end.line);
                lines.end = Position {
                    line: lines.end.line + 1,
                    byte: lines.end.byte + bytes + 1,
                };
                taken += report.len();
                lines.reports.push(report);
                (pending, skipped) = (Vec::new(), 0);
                if taken >= max_bytes {
                    return Ok(lines);
                }
            }
            skipped += keep(&mut pending, rest);
        }
        Ok(lines)
    }

    fn open(&mut self, path: &Path) -> io::Result<Option<&File>> {
        if self.file.is_none() {
            match File::open(path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(self.file.as_ref())
    }
}

/// Adds to a line up to its longest; returns the bytes that were left out.
fn keep(line: &mut Vec<u8>, piece: &[u8]) -> u64 {
    let kept = piece.len().min(MAX_LINE_BYTES - line.len());
    line.extend_from_slice(&piece[..kept]);
    (piece.len() - kept) as u64
}

/// The line, if it is a report; else a note in its place, so that the numbers of the lines after it stay.
fn checked(line: &[u8], skipped: u64, number: u64) -> String {
    let problem = if skipped > 0 {
        format!("line {number} of its events is longer than {MAX_LINE_BYTES} bytes")
    } else {
        match TaskReport::read(&String::from_utf8_lossy(line)) {
            Ok(report) => return json(&report),
            Err(error) => format!("line {number} of its events cannot be kept: {error}"),
        }
    };
    json(&TaskReport::Note { message: problem })
}

fn json(report: &TaskReport) -> String {
    serde_json::to_string(report).expect("a report is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> String {
        serde_json::to_string(&TaskReport::Note {
            message: text.to_owned(),
        })
        .expect("JSON")
    }

    #[test]
    fn only_whole_lines_with_their_numbers() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        let mut tail = EventTail::default();
        let start = Position::default();
        assert_eq!(
            tail.read(&path, start, 1_000).expect("read").reports,
            Vec::<String>::new()
        );
        let mut file = File::create(&path).expect("created");
        write!(file, "{}\n{}", note("a"), &note("b")[..5]).expect("written");
        let lines = tail.read(&path, start, 1_000).expect("read");
        assert_eq!((lines.first, &lines.reports), (0, &vec![note("a")]));
        writeln!(file, "{}", &note("b")[5..]).expect("written");
        let more = tail.read(&path, lines.end, 1_000).expect("read");
        assert_eq!((more.first, more.reports), (1, vec![note("b")]));
        let again = EventTail::default().read(&path, start, 1).expect("read");
        assert_eq!(
            (again.reports, again.end),
            (vec![note("a")], lines.end),
            "a bound cuts between lines"
        );
    }

    #[test]
    fn what_is_appended_is_read() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        for message in ["a", "b"] {
            let message = message.to_owned();
            append(&path, &[TaskReport::Note { message }]).expect("appended");
        }
        let lines = EventTail::default().read(&path, Position::default(), 1_000);
        assert_eq!(lines.expect("read").reports, [note("a"), note("b")]);
    }

    #[test]
    fn each_is_given_once_over_many_blocks() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        let note = |number: usize| TaskReport::Note {
            message: format!("{number} {}", "x".repeat(BLOCK_BYTES / 3)),
        };
        let all: Vec<TaskReport> = (0..10).map(note).collect();
        append(&path, &all).expect("appended");
        let mut given = Vec::new();
        each(&path, |report| given.push(report.clone())).expect("read");
        assert_eq!(given, all);
    }

    #[test]
    fn garbage_becomes_a_note_and_shifts_nothing() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        let long = "x".repeat(3 * MAX_LINE_BYTES);
        std::fs::write(
            &path,
            format!("{}\nrubbish\n{long}\n{}\n", note("a"), note("b")),
        )
        .expect("written");
        let lines = EventTail::default()
            .read(&path, Position::default(), 1 << 20)
            .expect("read");
        assert_eq!(lines.reports.len(), 4);
        assert!(
            lines.reports[1].contains("no report"),
            "{}",
            lines.reports[1]
        );
        assert!(lines.reports[2].contains("longer"), "{}", lines.reports[2]);
        assert_eq!(lines.reports[3], note("b"));
        assert_eq!(
            lines.end.byte,
            std::fs::metadata(&path).expect("there").len()
        );
    }
}
