//! Attained service: GPU time that a job has held.

use time::{Duration, OffsetDateTime};

/// GPU-seconds after which Tiresias moves a job to its lower queue: 16 GPU-hours.
pub const DEMOTED_GPU_S: f64 = 57_600.0;

/// GPUs that a job has held without interruption since `since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldGpus {
    pub since: OffsetDateTime,
    pub gpus: u32,
}

/// GPU time of a job over all its revisions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttainedService {
    /// GPU-seconds of the GPUs that were released.
    pub released_gpu_s: f64,
    /// GPUs that the job holds.
    pub held: Vec<HeldGpus>,
}

impl AttainedService {
    /// Returns the GPU-seconds until `now`.
    #[must_use]
    pub fn gpu_s(&self, now: OffsetDateTime) -> f64 {
        let held = self.held.iter().map(|held| held.gpu_s(now));
        self.released_gpu_s + held.sum::<f64>()
    }

    /// Returns the time at which the service reached `gpu_s`; `None` if it is below that at `now`.
    /// The time is exact if it is after the last release.
    #[must_use]
    pub fn reached(&self, gpu_s: f64, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let mut excess_gpu_s = self.gpu_s(now) - gpu_s;
        if excess_gpu_s < 0.0 {
            return None;
        }
        let mut held = self.held.clone();
        held.sort_by_key(|held| std::cmp::Reverse(held.since));
        let mut gpus: u32 = held.iter().map(|held| held.gpus).sum();
        let mut until = now;
        // Backwards: between two allocations the service grows at a constant rate.
        for newest in held {
            let rate = f64::from(gpus);
            let since = newest.since.min(until);
            let gained_gpu_s = (until - since).as_seconds_f64() * rate;
            if gained_gpu_s >= excess_gpu_s && rate > 0.0 {
                return Some(until - Duration::seconds_f64(excess_gpu_s / rate));
            }
            excess_gpu_s -= gained_gpu_s;
            gpus -= newest.gpus;
            until = since;
        }
        Some(until)
    }
}

impl HeldGpus {
    /// Returns the GPU-seconds until `now`.
    #[must_use]
    pub fn gpu_s(&self, now: OffsetDateTime) -> f64 {
        (now - self.since).as_seconds_f64().max(0.0) * f64::from(self.gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).expect("a date")
    }

    fn service() -> AttainedService {
        let held = |since, gpus| HeldGpus {
            since: at(since),
            gpus,
        };
        AttainedService {
            released_gpu_s: 100.0,
            held: vec![held(50, 2), held(80, 3)],
        }
    }

    #[test]
    fn service_sums_released_and_held_gpus() {
        assert!((service().gpu_s(at(90)) - 210.0).abs() < 1e-9);
    }

    #[test]
    fn threshold_is_reached_at_rate_of_held_gpus() {
        let reached = |gpu_s| service().reached(gpu_s, at(90));
        assert_eq!(reached(211.0), None);
        assert_eq!(reached(210.0), Some(at(90)));
        assert_eq!(reached(185.0), Some(at(85)), "5 GPUs");
        assert_eq!(reached(140.0), Some(at(70)), "2 GPUs");
        assert_eq!(reached(90.0), Some(at(50)), "not after the release");
    }
}
