//! Rate limit of a task's `events.jsonl`, in lines and bytes. Excess lines are dropped, and a note
//! reports them once a minute.
//!
//! The unused rate accumulates, so that nothing is lost of a task whose node could not report for
//! hours. The scheduler itself bounds what it stores per job; this limit keeps a correct node from
//! exceeding that bound.

use muster_model::assignment::TaskReport;
use std::ops::Range;

/// Interval of notes about dropped lines.
const TELL_EVERY_MS: u64 = 60_000;
/// Limit of samples, evaluations, checkpoints and notes.
const LINES: LineRateLimit = LineRateLimit {
    per_s: 50,
    at_once: 100_000,
};
/// Limit of the bytes of these lines.
const BYTES: LineRateLimit = LineRateLimit {
    per_s: 16 << 10,
    at_once: 16 << 20,
};
/// Limit of lines that change the course of a job. They have a budget of their own, so that other
/// lines cannot exhaust it.
const STEPS: LineRateLimit = LineRateLimit {
    per_s: 2,
    at_once: 1_000,
};
/// Time over which the unused rate accumulates.
const ADDS_UP_S: u64 = 12 * 3600;
/// Maximum number of lines that report the end of a task, over its whole life. The first one
/// counts.
const MAX_ENDS: u32 = 10;

/// A rate and an initial burst.
#[derive(Debug, Clone, Copy)]
struct LineRateLimit {
    per_s: u64,
    at_once: u64,
}

/// Token bucket, in thousandths of a unit.
#[derive(Debug, Clone, Copy)]
struct LineTokenBucket {
    rate: LineRateLimit,
    left_milli: u64,
    at_ms: u64,
}

impl LineTokenBucket {
    fn new(rate: LineRateLimit, now_ms: u64) -> Self {
        Self {
            rate,
            left_milli: rate.at_once * 1000,
            at_ms: now_ms,
        }
    }

    fn refill(&mut self, now_ms: u64) {
        let LineRateLimit { per_s, at_once } = self.rate;
        let most_milli = (at_once + per_s * ADDS_UP_S) * 1000;
        let new_milli = now_ms.saturating_sub(self.at_ms).saturating_mul(per_s);
        self.left_milli = self.left_milli.saturating_add(new_milli).min(most_milli);
        self.at_ms = self.at_ms.max(now_ms);
    }

    fn has(&self, count: u64) -> bool {
        self.left_milli >= count * 1000
    }

    fn take(&mut self, count: u64) {
        self.left_milli -= count * 1000;
    }
}

/// Decision about a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineDecision {
    Pass,
    Drop,
    /// Dropped, with this note in its place.
    Replace(String),
}

/// Remaining allowance of one task.
#[derive(Debug, Default)]
pub struct Allowance {
    /// `None` before the first line.
    buckets: Option<LineTokenBuckets>,
    ends: u32,
    /// Lines below this number have been judged. A repeated read gives the same verdict.
    judged: u64,
    /// Judged lines that were dropped without a note, ascending.
    dropped: Vec<Range<u64>>,
    /// Judged lines that a note has replaced.
    replaced: Vec<(u64, String)>,
    told_ms: Option<u64>,
    count: u64,
}

#[derive(Debug)]
struct LineTokenBuckets {
    lines: LineTokenBucket,
    bytes: LineTokenBucket,
    steps: LineTokenBucket,
}

impl LineTokenBuckets {
    fn new(now_ms: u64) -> Self {
        Self {
            lines: LineTokenBucket::new(LINES, now_ms),
            bytes: LineTokenBucket::new(BYTES, now_ms),
            steps: LineTokenBucket::new(STEPS, now_ms),
        }
    }

    fn take(&mut self, bytes: u64, weight: Weight, now_ms: u64) -> bool {
        for bucket in [&mut self.lines, &mut self.bytes, &mut self.steps] {
            bucket.refill(now_ms);
        }
        match weight {
            Weight::End => true,
            Weight::Step if self.steps.has(1) => {
                self.steps.take(1);
                true
            }
            Weight::Rest if self.lines.has(1) && self.bytes.has(bytes) => {
                self.lines.take(1);
                self.bytes.take(bytes);
                true
            }
            Weight::Step | Weight::Rest => false,
        }
    }
}

/// Class of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// End of the task.
    End,
    /// The course of the job depends on it.
    Step,
    Rest,
}

impl From<&TaskReport> for Weight {
    fn from(report: &TaskReport) -> Self {
        match report {
            TaskReport::Finished { .. } | TaskReport::Failed { .. } => Self::End,
            TaskReport::Listening { .. }
            | TaskReport::Ready { .. }
            | TaskReport::WorkersRestarted { .. }
            | TaskReport::Suspended { .. }
            | TaskReport::Continued { .. }
            | TaskReport::Resized { .. }
            | TaskReport::PeerGone { .. }
            | TaskReport::CheckpointRequestEnded { .. }
            | TaskReport::Activity { .. }
            | TaskReport::Interrupted { .. } => Self::Step,
            TaskReport::Progress { .. }
            | TaskReport::Pace { .. }
            | TaskReport::Evaluated { .. }
            | TaskReport::Metrics { .. }
            | TaskReport::ObjectivesMeasured { .. }
            | TaskReport::CheckpointWritten { .. }
            | TaskReport::CheckpointPruned { .. }
            | TaskReport::CheckpointReported { .. }
            | TaskReport::Note { .. } => Self::Rest,
        }
    }
}

impl Allowance {
    /// Judges a line. Lines come in ascending order and may be repeated.
    pub fn judge(&mut self, line: u64, bytes: usize, weight: Weight, now_ms: u64) -> LineDecision {
        if line < self.judged {
            return self.judged_before(line);
        }
        self.judged = line + 1;
        let buckets = self
            .buckets
            .get_or_insert_with(|| LineTokenBuckets::new(now_ms));
        let mut passes = buckets.take(bytes as u64, weight, now_ms);
        if weight == Weight::End {
            passes = self.ends < MAX_ENDS;
            self.ends += 1;
        }
        if passes {
            return LineDecision::Pass;
        }
        self.count += 1;
        if self.told_ms.is_some_and(|at| now_ms < at + TELL_EVERY_MS) {
            match self.dropped.last_mut() {
                Some(last) if last.end == line => last.end = line + 1,
                _ => self.dropped.push(line..line + 1),
            }
            return LineDecision::Drop;
        }
        self.told_ms = Some(now_ms);
        let note = format!(
            "events from line {line} on are dropped: a task may tell {} lines and {} bytes a second in the long run; {} lines were dropped so far",
            LINES.per_s, BYTES.per_s, self.count
        );
        self.replaced.push((line, note.clone()));
        LineDecision::Replace(note)
    }

    /// Forgets lines below this number, which are not read again.
    pub fn forget(&mut self, line: u64) {
        self.dropped.retain(|range| range.end > line);
        self.replaced.retain(|(number, _)| *number >= line);
    }

    fn judged_before(&self, line: u64) -> LineDecision {
        if let Some((_, note)) = self.replaced.iter().find(|(number, _)| *number == line) {
            return LineDecision::Replace(note.clone());
        }
        if self.dropped.iter().any(|range| range.contains(&line)) {
            return LineDecision::Drop;
        }
        LineDecision::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_allowance_are_dropped_and_noted_once() {
        let mut allowance = Allowance::default();
        for line in 0..LINES.at_once {
            let verdict = allowance.judge(line, 10, Weight::Rest, 0);
            assert_eq!(verdict, LineDecision::Pass, "{line}");
        }
        let next = LINES.at_once;
        let told = allowance.judge(next, 10, Weight::Rest, 1);
        assert!(matches!(&told, LineDecision::Replace(note) if note.contains("50 lines")));
        assert_eq!(
            allowance.judge(next + 1, 10, Weight::Rest, 1),
            LineDecision::Drop
        );
        // A repeated read gives the same verdicts.
        assert_eq!(allowance.judge(next, 10, Weight::Rest, 900_000), told);
        assert_eq!(
            allowance.judge(next + 1, 10, Weight::Rest, 900_000),
            LineDecision::Drop
        );
        assert_eq!(
            allowance.judge(0, 10, Weight::Rest, 900_000),
            LineDecision::Pass
        );
        let later = allowance.judge(next + 2, 10, Weight::Rest, 1_000);
        assert_eq!(later, LineDecision::Pass);
    }

    #[test]
    fn bytes_above_the_allowance_are_dropped() {
        let mut allowance = Allowance::default();
        let all = 16 << 20;
        assert_eq!(allowance.judge(0, all, Weight::Rest, 0), LineDecision::Pass);
        let second = allowance.judge(1, 1, Weight::Rest, 0);
        assert!(matches!(second, LineDecision::Replace(_)));
    }

    #[test]
    fn backlog_of_an_outage_passes() {
        let mut allowance = Allowance::default();
        allowance.judge(0, 100, Weight::Rest, 0);
        let hour_s = 3_600;
        for line in 1..hour_s * LINES.per_s {
            let verdict = allowance.judge(line, 100, Weight::Rest, hour_s * 1_000);
            assert_eq!(verdict, LineDecision::Pass, "{line}");
        }
    }

    #[test]
    fn end_of_a_task_passes_after_a_flood() {
        let mut allowance = Allowance::default();
        let last = 2 * LINES.at_once;
        for line in 0..last {
            allowance.judge(line, 1_000, Weight::Rest, 0);
        }
        assert_eq!(
            allowance.judge(last, 100, Weight::Step, 0),
            LineDecision::Pass
        );
        assert_eq!(
            allowance.judge(last + 1, 100, Weight::End, 0),
            LineDecision::Pass
        );
        for line in last + 2..last + 20 {
            allowance.judge(line, 100, Weight::End, 0);
        }
        let again = allowance.judge(last + 20, 100, Weight::End, 0);
        assert_eq!(again, LineDecision::Drop);
    }
}
