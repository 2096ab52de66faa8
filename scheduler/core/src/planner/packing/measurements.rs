//! Measurements of two jobs that share a GPU or may share one.

use crate::policy::Packing;
use crate::snapshot::SnapshotJob;
use muster_model::packing::{Measured, Rate, Together};
use std::fmt;

const BYTES_PER_GIB: f64 = (1_u64 << 30) as f64;

pub(super) struct PackingPair<'w> {
    pub host: &'w SnapshotJob,
    pub guest: &'w SnapshotJob,
    /// Memory of the GPU in bytes; 0 if unknown.
    pub of_bytes: u64,
    /// Other jobs suspended on the GPU, whose memory counts.
    pub others: Vec<&'w SnapshotJob>,
    pub now_ms: i64,
}

/// Peak GPU memory of each job, in bytes.
pub(super) struct PairMemory {
    host: u64,
    guest: u64,
    /// Memory of the suspended jobs.
    others: u64,
    of: u64,
    is_one_tenants: bool,
}

/// Steps per second of each job alone.
pub(super) struct SoloSpeeds {
    host: f64,
    guest: f64,
}

/// Rate of each job beside the other, relative to its rate alone.
pub(super) struct PackedRates {
    host: f64,
    guest: f64,
    is_one_tenants: bool,
}

/// Share of the GPU's time that each job used alone.
pub(super) struct SoloGpuUse {
    host: f64,
    guest: f64,
}

impl PackingPair<'_> {
    /// Whether both jobs belong to one tenant. Otherwise texts contain only sums, which do not show
    /// values of the other tenant's job.
    pub fn is_one_tenants(&self) -> bool {
        self.host.tenant == self.guest.tenant
    }

    /// Memory use; `None` if a value is missing or older than `stale_ms`. Nodes whose executor does
    /// not measure report nothing.
    pub fn memory(&self, packing: &Packing) -> Option<PairMemory> {
        let mut others = 0_u64;
        for job in &self.others {
            let known = self.current(job, packing)?;
            // A job that is not suspended yet may keep all that it uses now.
            let kept = if known.stands {
                known.memory_bytes
            } else {
                known.peak_bytes
            };
            others = others.saturating_add(kept?);
        }
        Some(PairMemory {
            host: self.current(self.host, packing)?.peak_bytes?,
            guest: self.current(self.guest, packing)?.peak_bytes?,
            others,
            of: self.of_bytes,
            is_one_tenants: self.is_one_tenants(),
        })
    }

    /// Measurements of a job, if its memory use is known and not older than `stale_ms`.
    fn current<'j>(&self, job: &'j SnapshotJob, packing: &Packing) -> Option<&'j Measured> {
        let known = of(job)?;
        let age_ms = self.now_ms.saturating_sub(known.told_ms?);
        (age_ms <= signed(packing.stale_ms) && known.memory_bytes.is_some()).then_some(known)
    }

    fn jobs(&self) -> [&SnapshotJob; 2] {
        [self.host, self.guest]
    }

    pub fn busy(&self) -> Option<SoloGpuUse> {
        Some(SoloGpuUse {
            host: of(self.host)?.busy_alone?,
            guest: of(self.guest)?.busy_alone?,
        })
    }

    pub fn alone(&self, samples: u32) -> Option<SoloSpeeds> {
        Some(SoloSpeeds {
            host: known(of(self.host)?.alone, samples)?,
            guest: known(of(self.guest)?.alone, samples)?,
        })
    }

    /// Whether both ran alone for at least this time since their start: a job's first seconds do
    /// not show its peak.
    pub fn were_alone_for(&self, least_ms: u64) -> bool {
        self.jobs()
            .into_iter()
            .all(|job| of(job).is_some_and(|known| known.alone_ms >= least_ms))
    }

    /// Whether both report steps often enough for a trial to give their rates.
    pub fn tell_in_time(&self, packing: &Packing) -> bool {
        self.jobs().into_iter().all(|job| {
            of(job).is_some_and(|known| {
                let each_ms = known.alone_ms / u64::from(known.alone.samples.max(1));
                // The first sample after a change is ignored.
                each_ms.saturating_mul(u64::from(packing.samples) + 1) <= packing.trial_ms
            })
        })
    }

    /// Whether one of them failed beside another job, by its own fault or the other job's.
    pub fn was_hurt(&self) -> bool {
        self.jobs()
            .into_iter()
            .any(|job| of(job).is_some_and(|known| known.hurt.is_some()))
    }

    /// Rate of the host beside the guest.
    fn host_beside(&self) -> Option<&Together> {
        of(self.host)?.beside(self.guest.id)
    }

    /// Rate of the guest beside the host.
    fn guest_beside(&self) -> Option<&Together> {
        of(self.guest)?.beside(self.host.id)
    }

    /// Relative rates, measured since a pairing that began at `since_ms` or later.
    pub fn together(&self, samples: u32, since_ms: i64) -> Option<PackedRates> {
        let alone = self.alone(1)?;
        let (of_host, of_guest) = (self.host_beside()?, self.guest_beside()?);
        let is_known = [of_host, of_guest]
            .iter()
            .all(|pair| pair.since_ms >= since_ms && pair.rate.samples >= samples);
        is_known.then(|| PackedRates {
            host: of_host.rate.steps_per_s / alone.host,
            guest: of_guest.rate.steps_per_s / alone.guest,
            is_one_tenants: self.is_one_tenants(),
        })
    }

    /// Whether a recent trial of the pair did not pay, or did not give rates in time.
    pub fn has_failed(&self, packing: &Packing) -> bool {
        let met = [self.host_beside(), self.guest_beside()];
        let met: Vec<&Together> = met.into_iter().flatten().collect();
        let Some(last_ms) = met.iter().map(|pair| pair.last_ms).max() else {
            return false;
        };
        if self.now_ms.saturating_sub(last_ms) >= signed(packing.again_ms) {
            return false;
        }
        match self.together(packing.samples, i64::MIN) {
            Some(parts) => !parts.pay(packing),
            // The trial may have ended early, for a time slice of another job.
            None => {
                let trial_ms = signed(packing.trial_ms);
                met.iter()
                    .any(|pair| pair.last_ms.saturating_sub(pair.since_ms) >= trial_ms)
            }
        }
    }
}

impl PairMemory {
    pub fn fits(&self, spare: f64) -> bool {
        let sum = self.host.saturating_add(self.guest);
        let sum = sum.saturating_add(self.others);
        self.of > 0 && sum as f64 <= self.of as f64 * (1.0 - spare)
    }
}

impl PackedRates {
    /// Whether the pair is faster than time slicing, which gives a sum of 1 and one half each.
    pub fn pay(&self, packing: &Packing) -> bool {
        self.sum() > 1.0 + packing.margin && self.least() >= packing.least_part
    }

    /// Text: reason why a pair does not pay.
    pub fn wrong(&self, packing: &Packing) -> &'static str {
        if self.sum() > 1.0 + packing.margin {
            "and time slicing gives each 0.5"
        } else {
            "and time slicing gives 1"
        }
    }

    fn sum(&self) -> f64 {
        self.host + self.guest
    }

    fn least(&self) -> f64 {
        self.host.min(self.guest)
    }
}

fn of(job: &SnapshotJob) -> Option<&Measured> {
    job.measured.as_deref()
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / BYTES_PER_GIB
}

/// The rate, if it has enough samples and is above 0.
fn known(rate: Rate, samples: u32) -> Option<f64> {
    (rate.samples >= samples.max(1) && rate.steps_per_s > 0.0).then_some(rate.steps_per_s)
}

impl fmt::Display for PairMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
                "memory {host:.2} + {guest:.2}, and {others:.2} of suspended jobs,"
            )?,
        }
        write!(f, " of {of:.2} GiB")
    }
}

impl fmt::Display for SoloSpeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, guest } = self;
        write!(f, "alone {host:.2} and {guest:.2} steps/s")
    }
}

impl fmt::Display for PackedRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sum, host, guest) = (self.sum(), self.host, self.guest);
        if !self.is_one_tenants {
            return write!(f, "together {sum:.2} of alone");
        }
        write!(f, "together {sum:.2} of alone ({host:.2} + {guest:.2})")
    }
}

impl fmt::Display for SoloGpuUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, guest) = (100.0 * self.host, 100.0 * self.guest);
        write!(f, "busy {host:.0} and {guest:.0} % of the time")
    }
}
