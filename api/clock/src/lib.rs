//! Rate of the wall clock, for trials that run a recorded workload faster than real time.
//!
//! Each daemon passes its reading of the system's clock through [`unix_ns`]. In production the
//! variable [`VARIABLE`] is absent, and the reading is returned unchanged. In a trial every stored
//! time then advances `rate` times as fast as real time, so learned speeds, measured costs and the
//! constants of the policy are in the workload's own seconds.
//!
//! Monotonic clocks stay real. They measure only what is real in a trial: leases, heartbeats,
//! grace periods, intervals of reports and of rounds.

#![deny(missing_docs)]

use std::num::NonZeroU32;
use std::sync::OnceLock;

/// Environment variable `RATE@EPOCH_MS`, such as `60@1764378000000`. Only trials set it, with the
/// same value for all daemons and for the shims of tasks.
pub const VARIABLE: &str = "MUSTER_TRIAL_CLOCK";

/// Largest rate. At higher ones the start of a process takes many minutes of the workload.
pub const MAX_RATE: u32 = 1_000;

/// Clock of a trial: it shows the real time at `epoch_ms` and runs `rate` times as fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialClock {
    /// Seconds of the workload per real second; 1 to [`MAX_RATE`].
    pub rate: NonZeroU32,
    /// Real time in milliseconds since 1970 at which both clocks show the same.
    pub epoch_ms: i64,
}

/// Value of [`VARIABLE`] that is not a clock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE} is {value:?}; expected RATE@EPOCH_MS with a rate of 1 to {MAX_RATE}, such as \"60@1764378000000\". Only trials set it: unset it otherwise"
)]
pub struct TrialClockError {
    value: String,
}

impl TrialClock {
    /// Reads a value of [`VARIABLE`].
    ///
    /// # Errors
    /// [`TrialClockError`] if it is no clock.
    pub fn parse(value: &str) -> Result<Self, TrialClockError> {
        let parts = value.split_once('@').and_then(|(rate, epoch_ms)| {
            let rate: NonZeroU32 = rate.parse().ok()?;
            let epoch_ms = epoch_ms.parse().ok()?;
            (rate.get() <= MAX_RATE).then_some(Self { rate, epoch_ms })
        });
        parts.ok_or_else(|| TrialClockError {
            value: value.to_owned(),
        })
    }

    /// Converts real nanoseconds since 1970 to those of the trial.
    #[must_use]
    pub fn unix_ns(self, real_ns: i128) -> i128 {
        let epoch_ns = i128::from(self.epoch_ms) * 1_000_000;
        epoch_ns + (real_ns - epoch_ns) * i128::from(self.rate.get())
    }

    /// Returns the value of [`VARIABLE`] for this clock.
    #[must_use]
    pub fn value(self) -> String {
        format!("{}@{}", self.rate, self.epoch_ms)
    }
}

/// Returns the clock of this process's environment; `None` outside trials. The environment is read
/// once.
///
/// # Panics
/// If the variable is set and is no clock: times of different rates in one database are worthless.
pub fn of_process() -> Option<TrialClock> {
    static CLOCK: OnceLock<Option<TrialClock>> = OnceLock::new();
    *CLOCK.get_or_init(|| {
        let value = std::env::var(VARIABLE).ok()?;
        match TrialClock::parse(&value) {
            Ok(clock) => Some(clock),
            Err(error) => panic!("{error}"),
        }
    })
}

/// Converts real nanoseconds since 1970 to those of this process's clock: unchanged outside trials.
///
/// # Panics
/// As [`of_process`].
#[must_use]
pub fn unix_ns(real_ns: i128) -> i128 {
    of_process().map_or(real_ns, |clock| clock.unix_ns(real_ns))
}

/// Returns the warning that a daemon logs at its start in a trial.
///
/// # Panics
/// As [`of_process`].
#[must_use]
pub fn warning() -> Option<String> {
    let rate = of_process()?.rate;
    Some(format!(
        "{VARIABLE} is set: stored times run {rate} times as fast as real time. Unset it outside trials"
    ))
}

#[cfg(test)]
mod tests {
    use super::{TrialClock, unix_ns};

    #[test]
    fn trial_clock_runs_faster_from_its_epoch_on() {
        let clock = TrialClock::parse("60@1000").expect("a clock");
        let epoch_ns = 1_000_000_000;
        assert_eq!(clock.unix_ns(epoch_ns), epoch_ns);
        assert_eq!(clock.unix_ns(epoch_ns + 7), epoch_ns + 420);
        assert_eq!(clock.unix_ns(epoch_ns - 1), epoch_ns - 60);
        assert_eq!(TrialClock::parse(&clock.value()), Ok(clock));
    }

    #[test]
    fn process_without_the_variable_has_the_real_time() {
        assert_eq!(
            unix_ns(1_764_378_000_000_000_001),
            1_764_378_000_000_000_001
        );
    }

    #[test]
    fn wrong_value_is_refused_with_an_example() {
        for wrong in ["", "60", "@5", "0@5", "1001@5", "-1@5", "60@", "60@5@6"] {
            let error = TrialClock::parse(wrong).expect_err(wrong).to_string();
            assert!(error.contains("60@1764378000000"), "{error}");
        }
    }
}
