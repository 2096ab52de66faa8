//! Idleness of a running program: no output, no metric, and no use of CPU or GPU.
//!
//! The executor measures it, reports when a task becomes idle or active, and repeats the report of
//! an idle task. Idleness lasts up to the newest report: a lost report of activity must not end a
//! job that is in use.

use crate::task::Role;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Difference of the computed starts of one idleness that delays of its reports can cause.
const SAME_WITHIN_MS: u64 = 30_000;

/// Report of an executor that a task is idle. All durations end at the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleReport {
    /// Milliseconds since the last activity of any kind.
    pub idle_ms: u64,
    /// Milliseconds since the last output; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_ms: Option<u64>,
    /// Milliseconds since the last logged metric; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_ms: Option<u64>,
    /// Milliseconds since a remote session carried data; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_ms: Option<u64>,
    /// Highest CPU use of a measurement since then, in thousandths of a core.
    pub cpu_milli: u32,
    pub gpu: GpuEvidence,
}

/// What is known of the use of an idle task's GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum GpuEvidence {
    /// The task has no GPU.
    #[default]
    Absent,
    /// The driver reports no use.
    Unused,
    /// The driver does not report the use.
    Unknown,
}

/// Idleness of a task. Times are Unix milliseconds of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Idleness {
    /// Time of the last activity of any kind.
    pub since_ms: i64,
    /// Time of the newest report, up to which the task was idle.
    #[serde(default)]
    pub reported_ms: i64,
    /// Time of the last output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_ms: Option<i64>,
    /// Time of the last logged metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric_ms: Option<i64>,
    /// Time at which a remote session last carried data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_ms: Option<i64>,
    /// Highest CPU use of a measurement since then, in thousandths of a core.
    #[serde(default)]
    pub cpu_milli: u32,
    #[serde(default)]
    pub gpu: GpuEvidence,
}

impl Idleness {
    /// Returns the idleness that a report states. Delayed reports make it shorter, never longer.
    #[must_use]
    pub fn of(report: &IdleReport, now_ms: i64) -> Self {
        let before = |ago_ms: u64| now_ms.saturating_sub(i64::try_from(ago_ms).unwrap_or(i64::MAX));
        Self {
            since_ms: before(report.idle_ms),
            reported_ms: now_ms,
            output_ms: report.output_ms.map(before),
            metric_ms: report.metric_ms.map(before),
            session_ms: report.session_ms.map(before),
            cpu_milli: report.cpu_milli,
            gpu: report.gpu,
        }
    }

    /// Returns the idleness after a further report. A report of the same idleness keeps the time of
    /// the last activity and extends the duration to the measured one.
    #[must_use]
    pub fn after(before: Option<&Self>, report: &IdleReport, now_ms: i64) -> Self {
        let new = Self::of(report, now_ms);
        let same = before.filter(|before| {
            new.for_ms() >= before.for_ms()
                && new.since_ms.abs_diff(before.since_ms) <= SAME_WITHIN_MS
        });
        same.map_or(new, |before| {
            let idle_ms = i64::try_from(report.idle_ms).unwrap_or(i64::MAX);
            Self::of(report, before.since_ms.saturating_add(idle_ms))
        })
    }

    /// Milliseconds of idleness that the executor has measured.
    fn for_ms(&self) -> i64 {
        self.reported_ms.saturating_sub(self.since_ms)
    }

    /// Returns the evidence as text at a time of the control plane.
    #[must_use]
    pub fn evidence(&self, now_ms: i64) -> String {
        let ago = |at_ms: i64| span(now_ms.saturating_sub(at_ms));
        let output = self.output_ms.map_or_else(
            || "no output".to_owned(),
            |at| format!("no output for {}", ago(at)),
        );
        let metric = self
            .metric_ms
            .map_or_else(String::new, |at| format!(", no metric for {}", ago(at)));
        let session = self.session_ms.map_or_else(String::new, |at| {
            format!(", no remote session for {}", ago(at))
        });
        let (used, unknown) = match self.gpu {
            GpuEvidence::Absent => ("CPU", ""),
            GpuEvidence::Unused => ("CPU or GPU", ""),
            GpuEvidence::Unknown => ("CPU", " (GPU use unknown)"),
        };
        let idle = ago(self.since_ms);
        format!("{output}{metric}{session}, no {used} use for {idle}{unknown}")
    }
}

/// Idleness of a whole job, as a round has found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IdleFinding {
    /// The task that became idle last.
    pub role: Role,
    pub idle: Idleness,
    /// Milliseconds for which all tasks were idle.
    pub for_ms: u64,
    /// Milliseconds of idleness after which the interactive job ends; absent for other jobs, and
    /// while the use of GPUs is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_after_ms: Option<u64>,
}

impl IdleFinding {
    fn now_ms(&self) -> i64 {
        let for_ms = i64::try_from(self.for_ms).unwrap_or(i64::MAX);
        self.idle.since_ms.saturating_add(for_ms)
    }

    /// Returns the evidence as text, at the time of the finding.
    #[must_use]
    pub fn evidence(&self) -> String {
        self.idle.evidence(self.now_ms())
    }

    /// Returns what follows from the finding.
    #[must_use]
    pub fn consequence(&self) -> String {
        if self.idle.gpu == GpuEvidence::Unknown {
            return "the job runs on: the use of its GPUs is unknown".to_owned();
        }
        let Some(ends_after_ms) = self.ends_after_ms else {
            return "the job runs on; it restarts by itself only with verdicts.hang_s".to_owned();
        };
        let left_ms = ends_after_ms.saturating_sub(self.for_ms);
        let left = span(i64::try_from(left_ms).unwrap_or(i64::MAX));
        format!("the interactive job ends in {left} without use")
    }
}

impl fmt::Display for IdleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is idle: {}", self.role, self.evidence())
    }
}

/// Returns a duration with a unit that fits.
#[must_use]
pub fn span(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_names_each_sign_of_life_with_its_age() {
        let minute = 60_000;
        let report = IdleReport {
            idle_ms: 31 * minute,
            output_ms: Some(41 * minute),
            metric_ms: None,
            session_ms: None,
            cpu_milli: 4,
            gpu: GpuEvidence::Unused,
        };
        let now_ms = 100_000_000;
        let idle = Idleness::of(&report, now_ms);
        assert_eq!(
            idle.evidence(now_ms),
            "no output for 41 min, no CPU or GPU use for 31 min"
        );
        let later = Idleness {
            gpu: GpuEvidence::Unknown,
            output_ms: None,
            metric_ms: idle.output_ms,
            ..idle
        };
        assert_eq!(
            later.evidence(now_ms + 60_000),
            "no output, no metric for 42 min, no CPU use for 32 min (GPU use unknown)"
        );
    }

    fn report(idle_s: u64) -> IdleReport {
        IdleReport {
            idle_ms: idle_s * 1_000,
            ..IdleReport::default()
        }
    }

    #[test]
    fn renewed_idleness_keeps_its_start() {
        let first = Idleness::of(&report(60), 1_000_000);
        // The second report is delayed by 9 s.
        let second = Idleness::after(Some(&first), &report(120), 1_069_000);
        assert_eq!(second.since_ms, first.since_ms);
        assert_eq!(second.for_ms(), 120_000);
        // The report of the activity is lost.
        let other = Idleness::after(Some(&second), &report(60), 1_300_000);
        assert_eq!((other.since_ms, other.for_ms()), (1_240_000, 60_000));
        let longer = Idleness::after(Some(&second), &report(180), 1_400_000);
        assert_eq!((longer.since_ms, longer.for_ms()), (1_220_000, 180_000));
        assert_eq!(Idleness::after(None, &report(60), 1_000_000), first);
    }

    #[test]
    fn finding_names_what_follows() {
        let finding = IdleFinding {
            role: Role::Worker { rank: 0 },
            idle: Idleness::of(&report(48 * 60), 0),
            for_ms: 48 * 60_000,
            ends_after_ms: Some(60 * 60_000),
        };
        assert_eq!(
            finding.consequence(),
            "the interactive job ends in 12 min without use"
        );
        assert_eq!(
            finding.to_string(),
            "worker-0 is idle: no output, no CPU use for 48 min"
        );
        let mut unknown = finding;
        unknown.idle.gpu = GpuEvidence::Unknown;
        assert_eq!(
            unknown.consequence(),
            "the job runs on: the use of its GPUs is unknown"
        );
    }
}
