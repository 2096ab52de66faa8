//! Reports to the scheduler and their acknowledgements.
//!
//! At most one report of facts (states and events) and one of logs is unacknowledged. So a long log
//! delays a fact by at most one bounded message. Unacknowledged data is read from the disk again
//! and not kept in memory.
//!
//! The end of a task follows the rest of its log, because a reader that follows the log stops
//! there. The scheduler records the reports of a session in order.

use crate::events::{EventPosition, EventTail};
use crate::ledger::{Ledger, LedgerEntry};
use crate::log::LogTail;
use crate::log_once::LogOnce;
use muster_model::assignment::Observed;
use muster_model::id::TaskId;
use muster_proto::session::{LogChunk, Report, TaskEvent, TaskEvents, TaskStatus};
use std::collections::BTreeMap;

/// Maximum size of events in one report. With the longest line and the frame it stays far below
/// [`muster_proto::MAX_MESSAGE_BYTES`].
const EVENT_BYTES: usize = 4 << 20;
/// Maximum size of one task's events in one report, so that every task makes progress.
const TASK_EVENT_BYTES: usize = 512 << 10;
/// Maximum size of logs in one report; small, so that a fact behind it does not wait long.
const LOG_BYTES: usize = 512 << 10;
const TASK_LOG_BYTES: usize = 128 << 10;
/// Maximum delay of an end by a log, because an ended task still holds its GPUs.
const MAX_LOG_DELAY_MS: u64 = 1_000;

/// Maximum delay of an end by the upload of the task's files. They are uploaded after it, too. With
/// the delay, most jobs have all artifacts when they end, and refusals become events of the job.
const MAX_OUTPUT_DELAY_MS: u64 = 30_000;
/// The same while a declared checkpoint waits. The next start continues from it only if it is
/// recorded before that.
const MAX_CHECKPOINT_DELAY_MS: u64 = 300_000;

/// State of reporting within one session.
#[derive(Debug, Default)]
pub struct ReportOutbox {
    number: u64,
    facts: Option<InFlightReport>,
    logs: Option<InFlightReport>,
    /// States acknowledged in this session; all others are reported.
    told: BTreeMap<TaskId, Observed>,
    tails: BTreeMap<TaskId, Tails>,
    facts_at_ms: u64,
    logs_at_ms: u64,
    /// Index of the task with which the next log report begins.
    turn: usize,
}

#[derive(Debug)]
struct Tails {
    events: EventTail,
    log: LogTail,
    logged: LogOnce,
    /// Time at which the task was first seen ended in this session.
    ended_at_ms: Option<u64>,
    /// Whether all output of the ended task was sent in this session.
    is_log_sent: bool,
}

impl Default for Tails {
    fn default() -> Self {
        Self {
            events: EventTail::bounded(),
            log: LogTail::default(),
            logged: LogOnce::default(),
            ended_at_ms: None,
            is_log_sent: false,
        }
    }
}

impl Tails {
    /// Whether the end of a task may be reported, as far as its log is concerned.
    fn is_log_over(&mut self, entry: &LedgerEntry, now_ms: u64) -> bool {
        let since_ms = *self.ended_at_ms.get_or_insert(now_ms);
        entry.is_log_drained || self.is_log_sent || now_ms >= since_ms + MAX_LOG_DELAY_MS
    }

    /// Whether the end of a task may be reported, as far as its artifacts and checkpoints are
    /// concerned.
    fn is_output_over(&mut self, entry: &LedgerEntry, now_ms: u64) -> bool {
        let since_ms = *self.ended_at_ms.get_or_insert(now_ms);
        let delay_ms = if entry.has_waiting_checkpoint {
            MAX_CHECKPOINT_DELAY_MS
        } else {
            MAX_OUTPUT_DELAY_MS
        };
        entry.is_output_kept || now_ms >= since_ms + delay_ms
    }
}

/// Content of a sent report without acknowledgement.
#[derive(Debug, Default)]
struct InFlightReport {
    number: u64,
    statuses: Vec<(TaskId, Observed)>,
    events: Vec<(TaskId, EventPosition)>,
    logs: Vec<(TaskId, u64)>,
}

impl ReportOutbox {
    /// Begins a session: all states and all unacknowledged data are sent again.
    pub fn restart(&mut self) {
        (self.facts, self.logs, self.number) = (None, None, 0);
        self.told.clear();
        for tails in self.tails.values_mut() {
            (tails.ended_at_ms, tails.is_log_sent) = (None, false);
        }
        (self.facts_at_ms, self.logs_at_ms) = (0, 0);
    }

    /// Returns a report of changed states, at once, and of new events, every `interval_ms` or
    /// together with states.
    ///
    /// An end is reported together with the last event of its task or later. Otherwise the
    /// scheduler would take a finished task for one that vanished. It is reported after the rest of
    /// the task's log, or after [`MAX_LOG_DELAY_MS`], and after the upload of its artifacts, or
    /// after [`MAX_OUTPUT_DELAY_MS`].
    pub fn facts(
        &mut self,
        ledger: &Ledger,
        interval_ms: u64,
        now_ms: u64,
        now_unix_ms: i64,
    ) -> Option<Report> {
        let is_due = now_ms >= self.facts_at_ms + interval_ms;
        if self.facts.is_some() || !(is_due || self.has_news(ledger)) {
            return None;
        }
        self.facts_at_ms = now_ms;
        let at = (now_ms, now_unix_ms);
        let mut report = Report {
            generation: ledger.generation,
            ..Report::default()
        };
        let mut flight = InFlightReport::default();
        let mut budget = EVENT_BYTES;
        for (id, entry) in known(ledger) {
            let Some(observed) = entry.observed() else {
                continue;
            };
            let mut has_all_events = entry.acknowledged.end;
            if !entry.acknowledged.end && budget > 0 {
                let tails = self.tails.entry(*id).or_default();
                let (events, end, is_all) =
                    read_events(tails, entry, budget.min(TASK_EVENT_BYTES), at);
                has_all_events = is_all;
                if let Some(events) = events {
                    budget = budget.saturating_sub(
                        events
                            .events
                            .iter()
                            .map(|event| event.report_json.len())
                            .sum(),
                    );
                    report.events.push(events);
                    flight.events.push((*id, end));
                }
            }
            let is_due = !entry.is_ended() || {
                let tails = self.tails.entry(*id).or_default();
                tails.is_log_over(entry, now_ms)
                    && tails.is_output_over(entry, now_ms)
                    && has_all_events
            };
            if is_due && self.told.get(id) != Some(&observed) {
                report.statuses.push(TaskStatus {
                    task_id: id.to_string(),
                    revision: entry.launch.revision,
                    observed_json: serde_json::to_string(&observed).expect("a state is JSON"),
                });
                flight.statuses.push((*id, observed));
            }
        }
        if report.statuses.is_empty() && report.events.is_empty() {
            return None;
        }
        self.number += 1;
        (report.number, flight.number) = (self.number, self.number);
        self.facts = Some(flight);
        Some(report)
    }

    /// Returns the next parts of logs: every `interval_ms`, and without a pause while more is
    /// available than fits into one report or the end of a task waits for its log.
    pub fn logs(&mut self, ledger: &mut Ledger, interval_ms: u64, now_ms: u64) -> Option<Report> {
        let is_due = now_ms >= self.logs_at_ms + interval_ms || self.has_untold_end(ledger);
        if self.logs.is_some() || !is_due {
            return None;
        }
        let mut report = Report {
            generation: ledger.generation,
            ..Report::default()
        };
        let mut flight = InFlightReport::default();
        let mut budget = LOG_BYTES;
        let ids: Vec<TaskId> = known(ledger)
            .filter(|(_, entry)| !entry.is_log_drained)
            .map(|(id, _)| *id)
            .collect();
        let first = self.turn % ids.len().max(1);
        for id in ids[first..].iter().chain(&ids[..first]) {
            if budget == 0 {
                break;
            }
            let entry = ledger.entries.get_mut(id).expect("listed above");
            let tails = self.tails.entry(*id).or_default();
            // Before the read: a task that ends after this line is read once more.
            let is_ended = entry.is_ended();
            let chunk = read_log(&mut tails.log, entry, budget.min(TASK_LOG_BYTES));
            let Some(chunk) = chunk else {
                tails.is_log_sent = is_ended;
                continue;
            };
            let end = chunk.offset + chunk.data.len() as u64;
            // Another part may follow, because the log was rotated.
            tails.is_log_sent =
                is_ended && !matches!(tails.log.read(entry.folder.path(), end, 1), Ok(Some(_)));
            budget -= chunk.data.len();
            flight.logs.push((*id, end));
            report.logs.push(chunk);
        }
        self.turn = self.turn.wrapping_add(report.logs.len().max(1));
        // A full report means that there is more: continue after its acknowledgement.
        let has_more = report
            .logs
            .iter()
            .any(|chunk| chunk.data.len() == TASK_LOG_BYTES)
            || budget == 0;
        self.logs_at_ms = if has_more { 0 } else { now_ms };
        if report.logs.is_empty() {
            return None;
        }
        self.number += 1;
        (report.number, flight.number) = (self.number, self.number);
        self.logs = Some(flight);
        Some(report)
    }

    /// Stores what the scheduler has acknowledged.
    pub fn acknowledge(&mut self, number: u64, ledger: &mut Ledger) {
        let mut flights = [&mut self.facts, &mut self.logs].into_iter();
        let flight = flights.find_map(|flight| flight.take_if(|flight| flight.number == number));
        let Some(flight) = flight else {
            tracing::warn!(number, "a report was acknowledged that is not under way");
            return;
        };
        let mut touched = Vec::new();
        for (id, end) in flight.events {
            if let Some(entry) = ledger.entries.get_mut(&id) {
                entry.acknowledged.events = end;
                touched.push(id);
            }
        }
        for (id, end) in flight.logs {
            if let Some(entry) = ledger.entries.get_mut(&id) {
                entry.acknowledged.log_bytes = end;
                touched.push(id);
            }
        }
        for (id, observed) in flight.statuses {
            if let Some(entry) = ledger.entries.get_mut(&id)
                && matches!(observed, Observed::Gone { .. })
            {
                entry.acknowledged.end = true;
                touched.push(id);
            }
            self.told.insert(id, observed);
        }
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            ledger.entries[&id].store_acknowledged();
        }
    }

    /// Returns the time at which both kinds of reports may be sent.
    #[must_use]
    pub fn due_ms(&self, interval_ms: u64) -> u64 {
        self.facts_at_ms.max(self.logs_at_ms) + interval_ms
    }

    /// Whether all data of all tasks is acknowledged.
    #[must_use]
    pub fn is_drained(&self, ledger: &Ledger) -> bool {
        known(ledger).all(|(_, entry)| entry.is_log_drained && entry.acknowledged.end)
    }

    /// Closes the files of a forgotten task.
    pub fn forget(&mut self, id: TaskId) {
        self.tails.remove(&id);
        self.told.remove(&id);
    }

    fn has_untold_end(&self, ledger: &Ledger) -> bool {
        known(ledger).any(|(id, entry)| {
            let is_told = matches!(self.told.get(id), Some(Observed::Gone { .. }));
            entry.is_ended() && !entry.is_log_drained && !is_told
        })
    }

    fn has_news(&self, ledger: &Ledger) -> bool {
        known(ledger).any(|(id, entry)| {
            entry
                .observed()
                .is_some_and(|observed| self.told.get(id) != Some(&observed))
        })
    }
}

fn known(ledger: &Ledger) -> impl Iterator<Item = (&TaskId, &LedgerEntry)> {
    ledger
        .entries
        .iter()
        .filter(|(_, entry)| !entry.is_forgotten())
}

/// Returns new events, the position after them, and whether they are all. An unreadable file counts
/// as read completely: a disk error must not prevent the report of an end.
fn read_events(
    tails: &mut Tails,
    entry: &LedgerEntry,
    max_bytes: usize,
    (now_ms, now_unix_ms): (u64, i64),
) -> (Option<TaskEvents>, EventPosition, bool) {
    let lines = match tails.events.read(
        &entry.folder.events(),
        entry.acknowledged.events,
        max_bytes,
        now_ms,
    ) {
        Ok(lines) => lines,
        Err(error) => {
            if tails.logged.is_new(&error.to_string()) {
                tracing::error!(task.id = %entry.launch.task_id, %error, "cannot read the events of a task");
            }
            return (None, entry.acknowledged.events, true);
        }
    };
    let (end, is_all) = (lines.end, lines.is_all);
    // If all lines were dropped, only the number of the next line is sent.
    if end.line == entry.acknowledged.events.line {
        return (None, end, is_all);
    }
    let events = lines.reports.into_iter().map(|report_json| TaskEvent {
        at_unix_ms: now_unix_ms,
        report_json,
    });
    let events = TaskEvents {
        task_id: entry.launch.task_id.to_string(),
        revision: entry.launch.revision,
        first_seq: lines.first,
        events: events.collect(),
    };
    (Some(events), end, is_all)
}

/// Returns the next part of a log, and records that the log of an ended task is complete.
fn read_log(tail: &mut LogTail, entry: &mut LedgerEntry, max_bytes: usize) -> Option<LogChunk> {
    // Before the read: a task that ends after this line is read once more.
    let is_ended = entry.is_ended();
    match tail.read(entry.folder.path(), entry.acknowledged.log_bytes, max_bytes) {
        Ok(Some(slice)) => Some(LogChunk {
            task_id: entry.launch.task_id.to_string(),
            offset: slice.offset,
            data: slice.bytes,
        }),
        Ok(None) => {
            entry.is_log_drained = is_ended;
            None
        }
        Err(error) => {
            entry.report_file_error("its log cannot be read", &error);
            entry.is_log_drained = is_ended;
            None
        }
    }
}
