//! A task's `events.jsonl`: read line by line as it grows, and appended to for users' programs.
//! Only complete lines count; the unfinished line of a killed task is ignored.

use crate::allowance::{Allowance, LineDecision, Weight};
use crate::opener::is_refusal;
use crate::task_file::TaskFile;
use muster_model::assignment::TaskReport;
use muster_model::report::MAX_LINE_BYTES;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Size of one read.
const BLOCK_BYTES: usize = 64 << 10;
/// Maximum distance to the end of a line: a file without line ends would delay the other tasks.
const SCAN_BYTES: u64 = 16 << 20;

/// Position between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventPosition {
    /// Number of lines before it.
    pub line: u64,
    /// Number of bytes before it.
    pub byte: u64,
}

/// Consecutive lines; each is the JSON of a `TaskReport`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLines {
    /// Number of the first line; if all were dropped, the number after the last.
    pub first: u64,
    pub reports: Vec<String>,
    /// Position after the last line.
    pub end: EventPosition,
    /// Whether no complete line followed them at the time of the read.
    pub is_all: bool,
}

/// Appends reports with one `write(2)`, so that several writers do not mix their lines and a reader
/// sees no partial line.
///
/// # Errors
/// If the file cannot be written, or accepts only a part of the lines.
pub fn append(file: &TaskFile, reports: &[TaskReport]) -> io::Result<()> {
    let mut lines = Vec::new();
    for report in reports {
        serde_json::to_writer(&mut lines, report)?;
        lines.push(b'\n');
    }
    if lines.is_empty() {
        return Ok(());
    }
    let mut file = file.append()?;
    if file.write(&lines)? < lines.len() {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "half an event was written",
        ));
    }
    Ok(())
}

/// Passes every report so far to `take`, one at a time: the reports of a long task may not fit into
/// memory.
///
/// # Errors
/// If the file cannot be read.
pub fn each(file: &TaskFile, mut take: impl FnMut(&TaskReport)) -> io::Result<()> {
    let (mut tail, mut from) = (EventTail::default(), EventPosition::default());
    loop {
        let lines = tail.read(file, from, BLOCK_BYTES, 0)?;
        for line in &lines.reports {
            take(&serde_json::from_str(line)?);
        }
        if lines.is_all {
            return Ok(());
        }
        from = lines.end;
    }
}

/// Reader of an event file; opens the file once it exists.
#[derive(Debug, Default)]
pub struct EventTail {
    file: Option<File>,
    /// Number of the line in whose place a note reports that the file was refused.
    refused_at: Option<u64>,
    /// Limits of the task; `None` passes every line.
    allowance: Option<Allowance>,
}

impl EventTail {
    /// Returns a reader that drops lines above the allowance of a task.
    #[must_use]
    pub fn bounded() -> Self {
        Self {
            allowance: Some(Allowance::default()),
            ..Self::default()
        }
    }

    /// Returns complete lines from a position on, up to about `max_bytes` or to the first dropped
    /// line between them; empty if there is none. If safe file access refuses the file, a note
    /// takes the place of a line.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(
        &mut self,
        file: &TaskFile,
        from: EventPosition,
        max_bytes: usize,
        now_ms: u64,
    ) -> io::Result<EventLines> {
        if let Some(allowance) = &mut self.allowance {
            allowance.forget(from.line);
        }
        let mut lines = EventLines {
            first: from.line,
            reports: Vec::new(),
            end: from,
            is_all: false,
        };
        match self.open(file) {
            Ok(true) => {}
            Ok(false) => {
                lines.is_all = true;
                return Ok(lines);
            }
            Err(error) if is_refusal(&error) => return Ok(self.refused(lines, &error)),
            Err(error) => return Err(error),
        }
        let file = self.file.as_ref().expect("it is open");
        let (mut pending, mut skipped, mut taken) = (Vec::new(), 0_u64, 0);
        let mut block = vec![0; BLOCK_BYTES];
        let mut at = from.byte;
        while taken < max_bytes {
            if at - from.byte >= SCAN_BYTES {
                if lines.end == from {
                    skip(&mut lines, file.metadata()?.len().max(at));
                }
                break;
            }
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
                let next = EventPosition {
                    line: lines.end.line + 1,
                    byte: lines.end.byte + bytes + 1,
                };
                let report = checked(&pending, skipped, lines.end.line);
                let report = judged(&mut self.allowance, report, lines.end.line, now_ms);
                match report {
                    Some(report) => {
                        taken += report.len();
                        lines.reports.push(report);
                    }
                    // The lines of a run are numbered without gaps.
                    None if !lines.reports.is_empty() => return Ok(lines),
                    None => lines.first = next.line,
                }
                lines.end = next;
                (pending, skipped) = (Vec::new(), 0);
                if taken >= max_bytes {
                    return Ok(lines);
                }
            }
            skipped += keep(&mut pending, rest);
        }
        Ok(lines)
    }

    fn refused(&mut self, mut lines: EventLines, error: &io::Error) -> EventLines {
        let line = *self.refused_at.get_or_insert(lines.first);
        if lines.first <= line {
            let message = format!("what it reports is not read: {error}");
            lines.reports.push(json(&TaskReport::Note { message }));
            lines.end.line += 1;
        }
        lines.is_all = true;
        lines
    }

    /// Opens the file; returns whether it exists.
    fn open(&mut self, file: &TaskFile) -> io::Result<bool> {
        if self.file.is_none() {
            match file.open() {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Appends to a line up to the maximum length; returns the number of omitted bytes.
fn keep(line: &mut Vec<u8>, piece: &[u8]) -> u64 {
    let kept = piece.len().min(MAX_LINE_BYTES - line.len());
    line.extend_from_slice(&piece[..kept]);
    (piece.len() - kept) as u64
}

/// Puts a note in place of a line without end, and of everything that follows it at present.
fn skip(lines: &mut EventLines, file_bytes: u64) {
    let line = lines.end.line;
    let message = format!(
        "line {line} of its events is without an end; all up to byte {file_bytes} is left out"
    );
    lines.reports.push(json(&TaskReport::Note { message }));
    lines.end = EventPosition {
        line: line + 1,
        byte: file_bytes,
    };
}

/// Returns the line to report, if the allowance permits one.
fn judged(
    allowance: &mut Option<Allowance>,
    report: TaskReport,
    number: u64,
    now_ms: u64,
) -> Option<String> {
    let text = json(&report);
    let Some(allowance) = allowance else {
        return Some(text);
    };
    match allowance.judge(number, text.len(), Weight::from(&report), now_ms) {
        LineDecision::Pass => Some(text),
        LineDecision::Drop => None,
        LineDecision::Replace(message) => Some(json(&TaskReport::Note { message })),
    }
}

/// Returns the line's report. An invalid line becomes a note, so that later lines keep their
/// numbers.
fn checked(line: &[u8], skipped: u64, number: u64) -> TaskReport {
    let problem = if skipped > 0 {
        format!("line {number} of its events is longer than {MAX_LINE_BYTES} bytes")
    } else {
        match TaskReport::read(&String::from_utf8_lossy(line)) {
            Ok(report) => return report,
            Err(error) => format!("line {number} of its events cannot be kept: {error}"),
        }
    };
    TaskReport::Note { message: problem }
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
    fn only_complete_lines_are_read_with_their_numbers() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        let file = TaskFile::new(&path);
        let mut tail = EventTail::default();
        let start = EventPosition::default();
        assert_eq!(
            tail.read(&file, start, 1_000, 0).expect("read").reports,
            Vec::<String>::new()
        );
        let mut written = File::create(&path).expect("created");
        write!(written, "{}\n{}", note("a"), &note("b")[..5]).expect("written");
        let lines = tail.read(&file, start, 1_000, 0).expect("read");
        assert_eq!((lines.first, &lines.reports), (0, &vec![note("a")]));
        writeln!(written, "{}", &note("b")[5..]).expect("written");
        let more = tail.read(&file, lines.end, 1_000, 0).expect("read");
        assert_eq!((more.first, more.reports), (1, vec![note("b")]));
        let again = EventTail::default().read(&file, start, 1, 0).expect("read");
        assert_eq!(
            (again.reports, again.end),
            (vec![note("a")], lines.end),
            "a bound cuts between lines"
        );
    }

    #[test]
    fn appended_reports_are_read() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        let file = TaskFile::new(&path);
        for message in ["a", "b"] {
            let message = message.to_owned();
            append(&file, &[TaskReport::Note { message }]).expect("appended");
        }
        let lines = EventTail::default().read(&file, EventPosition::default(), 1_000, 0);
        assert_eq!(lines.expect("read").reports, [note("a"), note("b")]);
    }

    #[test]
    fn each_report_is_passed_once_across_blocks() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        let file = TaskFile::new(&path);
        let all: Vec<TaskReport> = (0..20)
            .map(|number| TaskReport::Note {
                message: format!("{number} {}", "x".repeat(MAX_LINE_BYTES / 2)),
            })
            .collect();
        append(&file, &all).expect("appended");
        let mut given = Vec::new();
        each(&file, |report| given.push(report.clone())).expect("read");
        assert_eq!(given, all);
    }

    #[test]
    fn invalid_line_becomes_a_note_and_keeps_numbers() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("events.jsonl");
        let file = TaskFile::new(&path);
        let long = "x".repeat(3 * MAX_LINE_BYTES);
        std::fs::write(
            &path,
            format!("{}\nrubbish\n{long}\n{}\n", note("a"), note("b")),
        )
        .expect("written");
        let lines = EventTail::default()
            .read(&file, EventPosition::default(), 1 << 20, 0)
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

    /// A sparse file of 4 TiB: zeros without a line end, more than fits into memory.
    #[test]
    fn line_without_an_end_is_skipped() {
        let folder = tempfile::tempdir().expect("folder");
        let file = TaskFile::new(folder.path().join("events.jsonl"));
        let written = File::create(file.path()).expect("created");
        written.set_len(1 << 42).expect("sparse");
        let mut tail = EventTail::default();
        let first = tail
            .read(&file, EventPosition::default(), 1_000, 0)
            .expect("read");
        assert!(first.reports[0].contains("without an end") && !first.is_all);
        assert_eq!((first.end.line, first.end.byte), (1, 1 << 42));
        append(
            &file,
            &[TaskReport::Note {
                message: "a".to_owned(),
            }],
        )
        .expect("appended");
        let rest = tail.read(&file, first.end, 1_000, 0).expect("read");
        assert_eq!((rest.reports, rest.is_all), (vec![note("a")], true));
    }

    #[test]
    fn other_file_kind_is_noted_once_and_not_read() {
        let folder = tempfile::tempdir().expect("folder");
        let file = TaskFile::new(folder.path().join("events.jsonl"));
        let secret = folder.path().join("secret");
        std::fs::write(&secret, format!("{}\n", note("only ours"))).expect("written");
        std::os::unix::fs::symlink(&secret, file.path()).expect("linked");
        let mut tail = EventTail::default();
        let start = EventPosition::default();
        let told = tail.read(&file, start, 1_000, 0).expect("a note");
        assert!(told.reports[0].contains("is a link") && told.is_all);
        let again = tail.read(&file, start, 1_000, 0).expect("not acknowledged");
        assert_eq!(again, told);
        let more = tail.read(&file, told.end, 1_000, 0).expect("acknowledged");
        assert_eq!(
            (more.reports.len(), more.end, more.is_all),
            (0, told.end, true)
        );
        let message = [TaskReport::Note {
            message: "a".to_owned(),
        }];
        assert!(append(&file, &message).is_err());
        std::fs::remove_file(file.path()).expect("removed");
        append(&file, &message).expect("appended");
        let lines = tail.read(&file, told.end, 1_000, 0).expect("read");
        assert_eq!((lines.first, lines.reports), (1, vec![note("a")]));
    }

    #[test]
    fn flood_is_dropped_and_the_end_after_it_is_reported() {
        let folder = tempfile::tempdir().expect("folder");
        let file = TaskFile::new(folder.path().join("events.jsonl"));
        let flood = format!("{}\n", note(&"x".repeat(10_000))).repeat(10_000);
        std::fs::write(file.path(), flood).expect("written");
        let end = TaskReport::Failed {
            message: "over".to_owned(),
            retryable: false,
            lacks: None,
        };
        append(&file, std::slice::from_ref(&end)).expect("appended");
        let mut tail = EventTail::bounded();
        let (mut from, mut told) = (EventPosition::default(), Vec::new());
        loop {
            let lines = tail.read(&file, from, 512 << 10, 0).expect("read");
            assert!(lines.end.line > from.line, "it gets on");
            assert_eq!(lines.first + lines.reports.len() as u64, lines.end.line);
            told.extend(lines.reports);
            from = lines.end;
            if lines.is_all {
                break;
            }
        }
        assert_eq!(from.line, 10_001);
        let bytes: usize = told.iter().map(String::len).sum();
        assert!(bytes < 17 << 20, "{bytes} bytes");
        assert!(told[told.len() - 2].contains("are dropped"));
        assert_eq!(told[told.len() - 1], json(&end));
    }
}
