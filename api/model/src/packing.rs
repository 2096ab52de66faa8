//! Measurements of a job of one worker: its GPU use and its rate, alone and beside another job.
//! They decide on packing.

use crate::id::JobId;
use serde::{Deserialize, Serialize};

/// Samples in the mean of a rate. Older samples count less and less.
const WINDOW: u32 = 8;
/// After a change of the other job on the GPU, samples within this time are ignored, and so is the
/// first one later: it spans the change.
const UNSETTLED_MS: i64 = 2_000;
/// Maximum number of pairs that are kept, the newest.
const MOST_PAIRS: usize = 8;

/// GPU use of a task since the last report, as its node measures it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Current memory on its GPU. On a CPU slot: resident memory of all its processes. `None` if
    /// the node cannot measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Peak of this memory since this executor started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Share of its GPU's time, or of its slot's cores: 0 to 1, and above 1 if slots are not
    /// limited to their cores.
    pub busy: f64,
    /// Milliseconds over which `busy` is the mean; the task ran for all of them.
    pub over_ms: u64,
    /// Whether the task is suspended; the memory is then what it keeps.
    #[serde(default)]
    pub stands: bool,
}

/// GPU use of a job, for users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Newest measurement of its memory; absent if its node cannot measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Peak of its memory, including earlier starts of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Share of its GPU's time while it was alone there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_alone: Option<f64>,
}

/// All measurements of a job of one worker. Unknown fields, written by other releases, are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Revision of all measurements except `peak_bytes` and `hurt`. Another placement or batch
    /// makes them invalid.
    pub revision: u64,
    /// Peak of its memory in any revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Newest measurement of its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Time of the newest memory measurement: Unix milliseconds of the process that keeps this
    /// record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_ms: Option<i64>,
    /// Whether `memory_bytes` was measured during a suspension.
    #[serde(default)]
    pub stands: bool,
    /// Milliseconds in which it ran alone on its GPU and was measured.
    #[serde(default)]
    pub alone_ms: u64,
    /// Share of its GPU's time in that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_alone: Option<f64>,
    /// Step rate in that time.
    #[serde(default)]
    pub alone: Rate,
    /// Rates beside other jobs, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Together>,
    /// Other job on its GPU at the last measurement, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub company: Option<Company>,
    /// Set after a change. Samples before this time, and the first one after it, are ignored. Unix
    /// milliseconds of the process that keeps this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled_until_ms: Option<i64>,
    /// Failure of the job beside another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hurt: Option<Hurt>,
}

/// Other job on the GPU of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Company {
    pub job: JobId,
    /// Unix milliseconds of the process that keeps this record.
    pub since_ms: i64,
}

/// A job was killed or failed while it shared its GPU. Neither job is packed again, and the failure
/// is not charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hurt {
    /// Revision that ended in this way.
    pub revision: u64,
    pub beside: JobId,
}

/// Mean of the newest samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub steps_per_s: f64,
    pub samples: u32,
}

/// Rate of a job beside another one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Together {
    pub job: JobId,
    pub rate: Rate,
    /// Start of the sharing: Unix milliseconds of the process that keeps this record.
    pub since_ms: i64,
    /// Time of the newest measurement of the pair; `since_ms` before the first one.
    pub last_ms: i64,
}

impl Measured {
    /// Returns what remains valid in this revision of the job.
    #[must_use]
    pub fn in_revision(self, revision: u64) -> Self {
        if self.revision == revision {
            self
        } else {
            Self {
                revision,
                peak_bytes: self.peak_bytes,
                hurt: self.hurt,
                ..Self::default()
            }
        }
    }

    /// Adds a measurement of the node that was made while `company` was on the same GPU. Ignores a
    /// `busy` that cannot be a share of time.
    pub fn take_usage(&mut self, report: &UsageReport, company: Option<Company>, now_ms: i64) {
        self.memory_bytes = report.memory_bytes;
        self.stands = report.stands;
        if report.memory_bytes.is_some() {
            self.told_ms = Some(now_ms);
        }
        self.peak_bytes = self
            .peak_bytes
            .max(report.memory_bytes)
            .max(report.peak_bytes);
        if report.stands {
            return;
        }
        self.accompany(company, now_ms);
        let is_settled = self.unsettled_until_ms.is_none_or(|until| now_ms > until);
        if company.is_some() || !is_settled {
            return;
        }
        self.alone_ms = self.alone_ms.saturating_add(report.over_ms);
        if report.busy.is_finite() && report.busy >= 0.0 {
            let weight = 1.0 / f64::from(WINDOW);
            self.busy_alone = Some(match self.busy_alone {
                Some(before) => before + (report.busy - before) * weight,
                None => report.busy,
            });
        }
    }

    /// Adds a rate sample that was reported while `company` was on the same GPU.
    pub fn take_rate(&mut self, steps_per_s: f64, company: Option<Company>, now_ms: i64) {
        self.accompany(company, now_ms);
        if let Some(until_ms) = self.unsettled_until_ms {
            if now_ms >= until_ms {
                self.unsettled_until_ms = None;
            }
            return;
        }
        if !steps_per_s.is_finite() || steps_per_s < 0.0 {
            return;
        }
        match company {
            None => self.alone.take(steps_per_s),
            Some(Company { job, .. }) => {
                let mut pairs = self.together.iter_mut();
                if let Some(pair) = pairs.find(|pair| pair.job == job) {
                    pair.rate.take(steps_per_s);
                }
            }
        }
    }

    /// Marks a change, such as a suspension: the next samples are ignored.
    pub fn unsettle(&mut self, now_ms: i64) {
        self.unsettled_until_ms = Some(now_ms.saturating_add(UNSETTLED_MS));
    }

    /// Sets the other job on the GPU. A new sharing is measured afresh, even with the same job.
    fn accompany(&mut self, company: Option<Company>, now_ms: i64) {
        if self.company != company {
            self.company = company;
            self.unsettle(now_ms);
            if let Some(Company { job, since_ms }) = company {
                self.meet(job, since_ms);
            }
        }
        let pair = self
            .together
            .iter_mut()
            .find(|pair| company.is_some_and(|one| one.job == pair.job));
        if let Some(pair) = pair {
            pair.last_ms = now_ms;
        }
    }

    fn meet(&mut self, job: JobId, since_ms: i64) {
        self.together.retain(|pair| pair.job != job);
        if self.together.len() == MOST_PAIRS {
            self.together.remove(0);
        }
        self.together.push(Together {
            job,
            rate: Rate::default(),
            since_ms,
            last_ms: since_ms,
        });
    }

    /// Returns its rate beside this job divided by its rate alone; `None` if one of them is
    /// unknown.
    #[must_use]
    pub fn part_beside(&self, job: JobId) -> Option<f64> {
        let alone = self.alone.known().filter(|rate| *rate > 0.0)?;
        Some(self.beside(job)?.rate.known()? / alone)
    }

    /// Returns the measurements beside this job.
    #[must_use]
    pub fn beside(&self, job: JobId) -> Option<&Together> {
        self.together.iter().find(|pair| pair.job == job)
    }

    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            memory_bytes: self.memory_bytes,
            peak_bytes: self.peak_bytes,
            busy_alone: self.busy_alone,
        }
    }
}

impl Rate {
    /// Returns the steps per second; `None` without samples.
    fn known(self) -> Option<f64> {
        (self.samples > 0).then_some(self.steps_per_s)
    }

    fn take(&mut self, steps_per_s: f64) {
        self.samples = self.samples.saturating_add(1);
        let weight = 1.0 / f64::from(self.samples.min(WINDOW));
        self.steps_per_s += (steps_per_s - self.steps_per_s) * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn job(number: u128) -> JobId {
        JobId(Uuid::from_u128(number))
    }

    fn beside(number: u128, since_ms: i64) -> Option<Company> {
        let job = job(number);
        Some(Company { job, since_ms })
    }

    fn usage(memory: u64, busy: f64) -> UsageReport {
        UsageReport {
            memory_bytes: Some(memory),
            busy,
            over_ms: 1_000,
            ..UsageReport::default()
        }
    }

    #[test]
    fn rates_alone_and_beside_are_separate_and_skip_changes() {
        let mut known = Measured::default();
        for _ in 0..3 {
            known.take_rate(10.0, None, 0);
        }
        assert_eq!((known.alone.steps_per_s, known.alone.samples), (10.0, 3));
        for (at_ms, steps_per_s) in [
            (1_000, 9.0),
            (2_900, 9.0),
            (3_000, 7.5),
            (3_100, 6.0),
            (4_000, 8.0),
        ] {
            known.take_rate(steps_per_s, beside(1, 900), at_ms);
        }
        assert_eq!(known.alone.samples, 3, "nothing of it was alone");
        let pair = known.beside(job(1)).copied().expect("they met");
        assert_eq!((pair.rate.steps_per_s, pair.rate.samples), (7.0, 2));
        assert_eq!((pair.since_ms, pair.last_ms), (900, 4_000));
        assert_eq!(known.part_beside(job(1)), Some(0.7));
        known.take_rate(1.0, None, 5_000);
        known.take_rate(1.0, None, 7_000);
        assert_eq!(known.alone.samples, 3, "it has only just parted");
        known.take_rate(12.0, None, 7_001);
        assert_eq!(known.alone.steps_per_s, 10.5);
    }

    #[test]
    fn returning_guest_is_measured_afresh_without_new_reports() {
        let mut known = Measured::default();
        known.take_rate(10.0, None, 0);
        for at_ms in [3_000, 6_000, 9_000] {
            known.take_rate(7.0, beside(1, 1_000), at_ms);
        }
        assert_eq!(known.beside(job(1)).expect("met").rate.samples, 1);
        known.take_rate(7.0, beside(1, 50_000), 51_000);
        let pair = known.beside(job(1)).expect("met again");
        assert_eq!((pair.rate.samples, pair.since_ms), (0, 50_000));
    }

    #[test]
    fn newest_samples_weigh_most_and_invalid_ones_nothing() {
        let mut known = Measured::default();
        (0..50).for_each(|_| known.take_rate(10.0, None, 0));
        (0..50).for_each(|_| known.take_rate(20.0, None, 0));
        assert!(known.alone.steps_per_s > 19.9, "{known:?}");
        let before = known.clone();
        known.take_rate(f64::NAN, None, 0);
        known.take_rate(-1.0, None, 0);
        assert_eq!(known, before);
    }

    #[test]
    fn pair_is_kept_once_and_the_oldest_is_dropped() {
        let mut known = Measured::default();
        for number in 0..20 {
            known.take_rate(1.0, beside(number % 10, number as i64), number as i64);
        }
        assert_eq!(known.together.len(), MOST_PAIRS);
        assert_eq!(known.beside(job(9)).expect("newest").since_ms, 19);
        assert!(known.beside(job(0)).is_none());
    }

    #[test]
    fn time_alone_counts_only_while_running_alone() {
        let mut known = Measured::default();
        known.take_usage(&usage(100, 0.5), None, 0);
        assert_eq!((known.alone_ms, known.busy_alone), (1_000, Some(0.5)));
        known.take_usage(&usage(60, 0.9), beside(1, 0), 1_000);
        let standing = UsageReport {
            stands: true,
            ..usage(40, 0.9)
        };
        known.take_usage(&standing, None, 2_000);
        assert_eq!((known.alone_ms, known.busy_alone), (1_000, Some(0.5)));
        assert_eq!(
            (known.memory_bytes, known.peak_bytes, known.stands),
            (Some(40), Some(100), true)
        );
        let unknown = UsageReport {
            busy: f64::NAN,
            over_ms: 500,
            ..UsageReport::default()
        };
        known.take_usage(&unknown, None, 2_100);
        assert_eq!(known.alone_ms, 1_000, "the other has only just left");
        known.take_usage(&unknown, None, 9_000);
        assert_eq!((known.alone_ms, known.busy_alone), (1_500, Some(0.5)));
        assert_eq!((known.memory_bytes, known.told_ms), (None, Some(2_000)));
    }

    #[test]
    fn only_peak_and_failure_beside_outlive_a_revision() {
        let mut known = Measured::default();
        known.take_usage(&usage(100, 0.5), None, 0);
        known.take_rate(10.0, None, 0);
        known.hurt = Some(Hurt {
            revision: 0,
            beside: job(2),
        });
        assert_eq!(known.clone().in_revision(0), known);
        let next = known.clone().in_revision(1);
        let expected = Measured {
            revision: 1,
            peak_bytes: Some(100),
            hurt: known.hurt,
            ..Measured::default()
        };
        assert_eq!(next, expected);
    }
}
