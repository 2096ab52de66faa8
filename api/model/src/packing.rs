//! What a job of one worker uses of its GPU and how fast it is there, alone and beside another: what sharing a GPU is decided by.

use crate::id::JobId;
use serde::{Deserialize, Serialize};

/// Samples over which a rate is a mean; older ones count less and less.
const WINDOW: u32 = 8;
/// After a change of the company something may still be on its way that was measured before it; the first sample later spans it.
const UNSETTLED_MS: i64 = 2_000;
/// Pairs that are remembered, the newest.
const MOST_PAIRS: usize = 8;

/// What a task has used since it was told last, as its node measures it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Of its GPU's memory or, on a CPU slot, resident memory of all of its processes, now; `None` where the node cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The most of it that this executor has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Share of its GPU's time, or of its slot's cores, 0 to 1 and above where slots are not held to their cores.
    pub busy: f64,
    /// Milliseconds over which that is a mean, all of which it was at work.
    pub over_ms: u64,
    /// It stands still: this is what it keeps meanwhile.
    #[serde(default)]
    pub stands: bool,
}

/// What is known of a job's use of its GPU, for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Usage {
    /// As last measured; absent where its node cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The most so far, earlier starts of the job included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Share of its GPU's time while it was alone there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_alone: Option<f64>,
}

/// All that was measured of a job of one worker. Other executors and schedulers may have written it: what this version does not know is left aside.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// In which all but the peak and `hurt` was measured: elsewhere, or with another batch, it is another job.
    pub revision: u64,
    /// The most memory that it ever used, in any revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// As last told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// When its node told of its memory last, Unix time of whoever keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_ms: Option<i64>,
    /// `memory_bytes` is what it keeps while it stands still.
    #[serde(default)]
    pub stands: bool,
    /// So long it was measured at work alone on its GPU.
    #[serde(default)]
    pub alone_ms: u64,
    /// Share of its GPU's time meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_alone: Option<f64>,
    /// Steps meanwhile.
    #[serde(default)]
    pub alone: Rate,
    /// Beside others, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Together>,
    /// In whose company it was last measured, and since when that was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub company: Option<Company>,
    /// Something has changed: samples before this time say nothing, nor does the first one after it. Unix time of whoever keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled_until_ms: Option<i64>,
    /// How it once ended beside another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hurt: Option<Hurt>,
}

/// Who shares a GPU with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Company {
    pub job: JobId,
    /// Unix time of whoever keeps it.
    pub since_ms: i64,
}

/// A job was killed or failed while it shared its GPU: neither it nor the other is packed again, and it was not its own fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hurt {
    /// The revision that ended so.
    pub revision: u64,
    pub beside: JobId,
}

/// A mean of the newest samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub steps_per_s: f64,
    pub samples: u32,
}

/// A job's rate beside another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Together {
    pub job: JobId,
    pub rate: Rate,
    /// Since when they were together, Unix time of whoever keeps it.
    pub since_ms: i64,
    /// When anything was told of it last; `since_ms` before it was.
    pub last_ms: i64,
}

impl Measured {
    /// What is still known in this revision of the job.
    #[must_use]
    pub fn in_revision(self, revision: u64) -> Self {
        match self.revision == revision {
            true => self,
            false => Self {
                revision,
                peak_bytes: self.peak_bytes,
                hurt: self.hurt,
                ..Self::default()
            },
        }
    }

    /// Takes what its node has measured while `company` was on the same GPU. A share of time that cannot be one is not believed.
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

    /// Takes a sample that was told while `company` was on the same GPU.
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

    /// It stood still, or something else has changed: what is measured next says nothing.
    pub fn unsettle(&mut self, now_ms: i64) {
        self.unsettled_until_ms = Some(now_ms.saturating_add(UNSETTLED_MS));
    }

    /// Who is there at the moment. Whoever came anew, be it the same as before, is measured anew.
    fn accompany(&mut self, company: Option<Company>, now_ms: i64) {
        if self.company != company {
            self.company = company;
            self.unsettle(now_ms);
            if let Some(Company { job, since_ms }) = company {
                self.meet(job, since_ms);
            }
        }
        let there = |pair: &&mut Together| company.is_some_and(|one| one.job == pair.job);
        if let Some(pair) = self.together.iter_mut().find(there) {
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

    /// Its rate beside this job as a part of its rate alone; `None` while one of the two is not known.
    #[must_use]
    pub fn part_beside(&self, job: JobId) -> Option<f64> {
        let known = |rate: Rate| (rate.samples > 0).then_some(rate.steps_per_s);
        let alone = known(self.alone).filter(|rate| *rate > 0.0)?;
        Some(known(self.beside(job)?.rate)? / alone)
    }

    /// What was measured beside this job.
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
    fn rates_alone_and_together_are_kept_apart_and_changes_are_left_out() {
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
    fn who_comes_back_is_measured_anew_although_nothing_was_told_in_between() {
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
    fn the_newest_samples_weigh_most_and_nonsense_nothing() {
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
    fn a_pair_is_remembered_once_and_the_oldest_is_forgotten() {
        let mut known = Measured::default();
        for number in 0..20 {
            known.take_rate(1.0, beside(number % 10, number as i64), number as i64);
        }
        assert_eq!(known.together.len(), MOST_PAIRS);
        assert_eq!(known.beside(job(9)).expect("newest").since_ms, 19);
        assert!(known.beside(job(0)).is_none());
    }

    #[test]
    fn time_alone_counts_while_it_is_alone_and_at_work() {
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
    fn the_peak_and_an_accident_outlive_a_revision_and_nothing_else_does() {
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
