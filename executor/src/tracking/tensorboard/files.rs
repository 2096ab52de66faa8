//! Event files of one task: positions up to which they are read, and the values behind them.

use super::super::message::LoggedMetric;
use super::claim::ClaimedNames;
use super::event::Event;
use super::record::{self, NextRecord};
use crate::artifact::walk;
use muster_model::metric::{self, MAX_NAME_BYTES};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;

/// Part of the name by which TensorBoard finds event files.
const PART_OF_NAME: &str = "tfevents";
/// Maximum number of event files of a task.
const MAX_FILES: usize = 100;
/// Maximum number of bytes that one pass reads of one file while its task runs.
pub(super) const MAX_BYTES_OF_FILE: u64 = 4 << 20;
/// Bytes that each record counts in any case, so that a sparse file costs no more than a full one.
const LEAST_RECORD_BYTES: u64 = 64;
/// Maximum number of metrics from event files. The store has the same limit for a job.
pub(super) const MAX_NAMES: usize = 500;
/// Approximate maximum number of values of one pass.
const MAX_VALUES: usize = 50_000;
/// Maximum number of tags per file that were declared scalars.
const MAX_DECLARED: usize = 1_000;

/// State of the event files of one task. It outlives the daemon in the task's folder.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EventFiles {
    files: BTreeMap<String, EventFile>,
    /// Metrics whose values come from event files.
    pub names: ClaimedNames,
    /// Metrics that came by another interface first.
    #[serde(skip)]
    pub foreign: ClaimedNames,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct EventFile {
    inode: u64,
    position: u64,
    /// Nothing more is read: a record was broken.
    is_over: bool,
    #[serde(skip)]
    declared: BTreeSet<String>,
}

/// What one pass has read.
#[derive(Debug, Default)]
pub(super) struct EventPass {
    /// In the order of their times.
    pub values: Vec<LoggedMetric>,
    /// Events for the job's history.
    pub notes: Vec<String>,
    /// A position has changed.
    pub has_moved: bool,
    /// Another pass would read more at once.
    pub has_more: bool,
    /// Bytes that were read, about.
    pub bytes: u64,
}

impl EventFiles {
    /// Whether a metric is known, whichever interface has logged it first.
    pub(super) fn has_seen(&self, name: &str) -> bool {
        self.names.contains(name) || self.foreign.contains(name)
    }

    /// Whether the state has at most as many entries as this daemon writes. A task can replace the
    /// file.
    pub(super) fn is_bounded(&self) -> bool {
        self.files.len() <= MAX_FILES && self.names.len() <= MAX_NAMES
    }

    /// Reads the next values of all event files below a folder, about `most_bytes` in all and
    /// `most_bytes_of_file` of each.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn read(
        &mut self,
        output: &Path,
        (most_bytes, most_bytes_of_file): (u64, u64),
    ) -> io::Result<EventPass> {
        let mut pass = EventPass::default();
        let found = walk::walk(output)?;
        if found.is_incomplete {
            pass.has_more = true;
            return Ok(pass);
        }
        let files = found.files.iter();
        let mut files: Vec<_> = files.filter(|file| is_event_file(&file.name)).collect();
        // Known files first, so that the limit never changes which files are read.
        files.sort_by_key(|file| (!self.files.contains_key(&file.name), &file.name));
        if files.len() > MAX_FILES {
            pass.notes.push(format!(
                "its task has more than {MAX_FILES} event files of TensorBoard; the metrics of {:?} and others are not read",
                files[MAX_FILES].name
            ));
        }
        files.truncate(MAX_FILES);
        let kept: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        self.files.retain(|name, _| kept.contains(name.as_str()));
        for found in files {
            let file = self.files.entry(found.name.clone()).or_default();
            if file.inode != found.stamp.inode() {
                *file = EventFile {
                    inode: found.stamp.inode(),
                    ..EventFile::default()
                };
            }
            if file.is_over || file.position == found.stamp.bytes {
                continue;
            }
            if pass.bytes >= most_bytes || pass.values.len() >= MAX_VALUES {
                pass.has_more = true;
                break;
            }
            // The program may have removed it since.
            let Ok((opened, stamp)) = walk::open(output, &found.name) else {
                continue;
            };
            if stamp.inode() == file.inode {
                let source = (found.name.as_str(), stamp.bytes);
                file.read(&opened, source, most_bytes_of_file, &mut pass);
            }
        }
        pass.values.sort_by_key(|value| value.timestamp_ms);
        Ok(pass)
    }
}

impl EventFile {
    fn read(
        &mut self,
        file: &File,
        (name, length): (&str, u64),
        most_bytes: u64,
        pass: &mut EventPass,
    ) {
        let folder = name
            .rsplit_once('/')
            .and_then(|(folder, _)| below_run(folder));
        let mut left = most_bytes;
        loop {
            if left == 0 || pass.values.len() >= MAX_VALUES {
                pass.has_more |= self.position < length;
                return;
            }
            let next = match record::next(file, self.position, length) {
                Ok(NextRecord::Torn) => return,
                Ok(NextRecord::Skipped { next }) => {
                    left = left.saturating_sub(LEAST_RECORD_BYTES);
                    pass.bytes += LEAST_RECORD_BYTES;
                    next
                }
                Ok(NextRecord::Whole { data, next }) => {
                    let bytes = (next - self.position).max(LEAST_RECORD_BYTES);
                    left = left.saturating_sub(bytes);
                    pass.bytes += bytes;
                    match Event::decode(data.as_slice()) {
                        Ok(event) => self.take(folder, &event, pass),
                        Err(_) => return self.end(name, "is no event", pass),
                    }
                    next
                }
                Ok(NextRecord::Broken) => return self.end(name, "has a wrong checksum", pass),
                Err(error) => {
                    tracing::warn!(%error, file = name, "an event file cannot be read");
                    return;
                }
            };
            self.position = next;
            pass.has_moved = true;
        }
    }

    fn end(&mut self, name: &str, problem: &str, pass: &mut EventPass) {
        self.is_over = true;
        pass.has_moved = true;
        pass.notes.push(format!(
            "the metrics of the event file {name:?} end at its byte {}: the next record {problem}",
            self.position
        ));
    }

    fn take(&mut self, folder: Option<&str>, event: &Event, pass: &mut EventPass) {
        let values = event.summary.iter().flat_map(|summary| &summary.values);
        for value in values {
            let is_declared = self.declared.contains(&value.tag);
            let Some(number) = value.number(is_declared) else {
                continue;
            };
            // A writer may declare a tag only once.
            if !is_declared && value.is_declared_scalar() && self.declared.len() < MAX_DECLARED {
                self.declared.insert(value.tag.clone());
            }
            let Some(key) = name_of(folder, &value.tag) else {
                pass.notes.push(format!(
                    "metrics of TensorBoard with names above {MAX_NAME_BYTES} bytes are not kept"
                ));
                continue;
            };
            pass.values.push(LoggedMetric {
                key,
                value: number,
                timestamp_ms: milliseconds(event.wall_time),
                step: u64::try_from(event.step).unwrap_or(0),
            });
        }
        pass.notes.dedup();
    }
}

fn is_event_file(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    name.contains(PART_OF_NAME)
}

/// Returns the part of a folder that names metrics. Folders that writers name by default, with the
/// time or a number of the run, do not: `runs/Nov30_10-46-55_host` of PyTorch's `SummaryWriter` and
/// `lightning_logs/version_0`. Another start would give the same metric another name.
fn below_run(folder: &str) -> Option<&str> {
    let mut rest = folder;
    let mut parent = "";
    while !rest.is_empty() {
        let (name, below) = rest.split_once('/').unwrap_or((rest, ""));
        let is_run = match parent {
            "runs" => is_dated(name),
            "lightning_logs" => name.strip_prefix("version_").is_some_and(is_number),
            _ => false,
        };
        if is_run {
            return Some(below).filter(|below| !below.is_empty());
        }
        (parent, rest) = (name, below);
    }
    Some(folder)
}

/// Whether the name begins with a time such as `Nov30_10-46-55_`.
fn is_dated(name: &str) -> bool {
    let pattern = b"aaa00_00-00-00_";
    let bytes = name.as_bytes();
    bytes.len() >= pattern.len()
        && bytes.iter().zip(pattern).all(|(byte, kind)| match kind {
            b'a' => byte.is_ascii_alphabetic(),
            b'0' => byte.is_ascii_digit(),
            kind => byte == kind,
        })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the name of the metric of a tag in a folder; `None` if it is too long or empty. Other
/// characters than those of names become `_`.
fn name_of(folder: Option<&str>, tag: &str) -> Option<String> {
    let mut name = folder.map_or(String::new(), |folder| format!("{folder}/"));
    for c in tag.chars().take(MAX_NAME_BYTES + 1) {
        name.push(c);
    }
    let mut text = [0; 4];
    let name: String = name
        .chars()
        .map(|c| {
            if metric::is_name(c.encode_utf8(&mut text)) {
                c
            } else {
                '_'
            }
        })
        .collect();
    (!tag.is_empty() && metric::is_name(&name)).then_some(name)
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1_000.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_folders_of_runs_name_no_metrics() {
        for (folder, expected) in [
            ("runs/Nov30_10-46-55_host-1", None),
            (
                "out/runs/Nov30_10-46-55_host/loss_train",
                Some("loss_train"),
            ),
            ("lightning_logs/version_12", None),
            ("lightning_logs/version_x", Some("lightning_logs/version_x")),
            ("runs/large", Some("runs/large")),
            ("eval", Some("eval")),
        ] {
            assert_eq!(below_run(folder), expected, "{folder}");
        }
    }
}
