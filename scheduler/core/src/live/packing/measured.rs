//! What was measured of two jobs that share a GPU, or may.

use crate::policy::Packing;
use crate::snapshot::Job;
use muster_model::packing::{Measured, Rate};
use std::fmt;

const GIB: f64 = (1_u64 << 30) as f64;

pub(super) struct Pair<'w> {
    pub host: &'w Job,
    pub guest: &'w Job,
    /// Memory of the GPU; 0 where it is not known.
    pub of_bytes: u64,
    /// Others that stand still on it: what they keep counts.
    pub others: Vec<&'w Job>,
    pub now_ms: i64,
}

/// The most that each was seen to use of the GPU's memory.
pub(super) struct Memory {
    host: u64,
    guest: u64,
    /// Of those that stand still there.
    others: u64,
    of: u64,
    is_one_tenants: bool,
}

/// Steps per second of each while it was alone.
pub(super) struct Alone {
    host: f64,
    guest: f64,
}

/// The rate of each beside the other, as a part of its rate alone.
pub(super) struct Parts {
    host: f64,
    guest: f64,
    is_one_tenants: bool,
}

/// The share of the GPU's time that each used alone.
pub(super) struct Busy {
    host: f64,
    guest: f64,
}

impl Pair<'_> {
    /// What one of two tenants is told holds nothing of the other's but what both add up to.
    pub fn is_one_tenants(&self) -> bool {
        self.host.tenant == self.guest.tenant
    }

    /// `None` if it is not told of everybody there, or was not for a while: a node whose executor does not measure says nothing.
    pub fn memory(&self, packing: &Packing) -> Option<Memory> {
        let stale_ms = signed(packing.stale_ms);
        let told = |job: &'_ Job| {
            let known = of(job)?.clone();
            let is_new = self.now_ms.saturating_sub(known.told_ms?) <= stale_ms;
            (is_new && known.memory_bytes.is_some()).then_some(known)
        };
        let kept = |job: &Job| {
            let known = told(job)?;
            // Who has not stood still yet will keep what it uses, for all that is known.
            match known.stands {
                true => known.memory_bytes,
                false => known.peak_bytes,
            }
        };
        let mut others = self.others.iter().map(|job| kept(job));
        let others = others.try_fold(0_u64, |sum, kept| Some(sum.saturating_add(kept?)))?;
        Some(Memory {
            host: told(self.host)?.peak_bytes?,
            guest: told(self.guest)?.peak_bytes?,
            others,
            of: self.of_bytes,
            is_one_tenants: self.is_one_tenants(),
        })
    }

    pub fn busy(&self) -> Option<Busy> {
        Some(Busy {
            host: of(self.host)?.busy_alone?,
            guest: of(self.guest)?.busy_alone?,
        })
    }

    pub fn alone(&self, samples: u32) -> Option<Alone> {
        let alone = |job: &Job| known(of(job)?.alone, samples);
        Some(Alone {
            host: alone(self.host)?,
            guest: alone(self.guest)?,
        })
    }

    /// Whether both were at work alone, as they are now, for at least so long: the peak of a job's first seconds is not its peak.
    pub fn were_alone_for(&self, least_ms: u64) -> bool {
        let long = |job: &Job| of(job).is_some_and(|known| known.alone_ms >= least_ms);
        long(self.host) && long(self.guest)
    }

    /// Whether both tell their steps often enough to be known within a trial.
    pub fn tell_in_time(&self, packing: &Packing) -> bool {
        let in_time = |job: &Job| {
            of(job).is_some_and(|known| {
                let each_ms = known.alone_ms / u64::from(known.alone.samples.max(1));
                // One is left out after a change.
                each_ms.saturating_mul(u64::from(packing.samples) + 1) <= packing.trial_ms
            })
        };
        in_time(self.host) && in_time(self.guest)
    }

    /// Whether one of them came to harm beside another job, which may have been that other's doing, or its own.
    pub fn was_hurt(&self) -> bool {
        let hurt = |job: &Job| of(job).is_some_and(|known| known.hurt.is_some());
        hurt(self.host) || hurt(self.guest)
    }

    /// Of what was measured in a time together that began at `since_ms` or later.
    pub fn together(&self, samples: u32, since_ms: i64) -> Option<Parts> {
        let alone = self.alone(1)?;
        let beside = |job: &Job, other: &Job| {
            let pair = of(job)?.beside(other.id)?;
            (pair.since_ms >= since_ms && pair.rate.samples >= samples)
                .then_some(pair.rate.steps_per_s)
        };
        Some(Parts {
            host: beside(self.host, self.guest)? / alone.host,
            guest: beside(self.guest, self.host)? / alone.guest,
            is_one_tenants: self.is_one_tenants(),
        })
    }

    /// Whether they were together lately and did not pay, or did not tell in the time that they had.
    pub fn has_failed(&self, packing: &Packing) -> bool {
        let beside = |job: &Job, other: &Job| of(job)?.beside(other.id).copied();
        let met = [beside(self.host, self.guest), beside(self.guest, self.host)];
        let met = || met.iter().flatten();
        let Some(last_ms) = met().map(|pair| pair.last_ms).max() else {
            return false;
        };
        if self.now_ms.saturating_sub(last_ms) >= signed(packing.again_ms) {
            return false;
        }
        match self.together(packing.samples, i64::MIN) {
            Some(parts) => !parts.pay(packing),
            // It may have been cut short by somebody's turn.
            None => {
                let trial_ms = signed(packing.trial_ms);
                met().any(|pair| pair.last_ms.saturating_sub(pair.since_ms) >= trial_ms)
            }
        }
    }
}

impl Memory {
    pub fn fits(&self, spare: f64) -> bool {
        let sum = self.host.saturating_add(self.guest);
        let sum = sum.saturating_add(self.others);
        self.of > 0 && sum as f64 <= self.of as f64 * (1.0 - spare)
    }
}

impl Parts {
    /// 1 is what turns give, and each a half of it.
    pub fn pay(&self, packing: &Packing) -> bool {
        self.sum() > 1.0 + packing.margin && self.least() >= packing.least_part
    }

    /// What is wrong with them, if they do not pay.
    pub fn wrong(&self, packing: &Packing) -> &'static str {
        match self.sum() > 1.0 + packing.margin {
            true => "and turns give each a half",
            false => "and turns give 1",
        }
    }

    fn sum(&self) -> f64 {
        self.host + self.guest
    }

    fn least(&self) -> f64 {
        self.host.min(self.guest)
    }
}

fn of(job: &Job) -> Option<&Measured> {
    job.measured.as_deref()
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// Whether a rate is one by which others can be divided.
fn known(rate: Rate, samples: u32) -> Option<f64> {
    (rate.samples >= samples.max(1) && rate.steps_per_s > 0.0).then_some(rate.steps_per_s)
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / GIB;
        let (host, guest, others, of) = (
            gib(self.host),
            gib(self.guest),
            gib(self.others),
            gib(self.of),
        );
        match (self.is_one_tenants, self.others) {
            (false, _) => write!(f, "memory {:.2}", host + guest + others)?,
            (true, 0) => write!(f, "memory {host:.2} + {guest:.2}")?,
            (true, _) => write!(
                f,
                "memory {host:.2} + {guest:.2}, and {others:.2} of who stands still,"
            )?,
        }
        write!(f, " of {of:.2} GiB")
    }
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, guest } = self;
        write!(f, "alone {host:.2} and {guest:.2} steps/s")
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sum, host, guest) = (self.sum(), self.host, self.guest);
        if !self.is_one_tenants {
            return write!(f, "together {sum:.2} of alone");
        }
        write!(f, "together {sum:.2} of alone ({host:.2} + {guest:.2})")
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, guest) = (100.0 * self.host, 100.0 * self.guest);
        write!(f, "busy {host:.0} and {guest:.0} % of the time")
    }
}
