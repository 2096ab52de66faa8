//! Compares the statuses that kubectl's watch showed with the jobs' histories: their order and
//! their delay.

use super::ObjectEvent;
use muster_model::event::Event;
use muster_model::job::JobPhase;
use muster_model::view::EventView;
use std::fmt;
use time::{Duration, OffsetDateTime};

/// Number of latest changes that are printed one by one.
const LATEST: usize = 10;

/// Delays with which phases were shown.
#[derive(Debug, Default)]
pub struct StatusDelays(Vec<PhaseDelay>);

#[derive(Debug)]
struct PhaseDelay {
    late: Duration,
    phase: JobPhase,
    job: String,
    at: OffsetDateTime,
}

impl StatusDelays {
    /// Adds one job's changes. `seen` are its events of the watch, in order.
    ///
    /// # Panics
    /// If an older phase was shown after a newer one, or the last one never.
    pub fn add(&mut self, name: &str, history: &[EventView], seen: &[ObjectEvent]) {
        let seen: Vec<&ObjectEvent> = seen
            .iter()
            .filter(|seen: &&ObjectEvent| seen.status["phase"].is_string())
            .collect();
        let changes = phases(history);
        let places = places(&changes, &seen);
        assert!(places.is_sorted(), "{name}: {changes:?} shown as {seen:?}");
        for (at, (when, phase)) in changes.iter().enumerate() {
            let first = places.iter().position(|place| *place >= at);
            let first = first.expect("the last one is shown");
            self.0.push(PhaseDelay {
                late: seen[first].at - *when,
                phase: *phase,
                job: name.to_owned(),
                at: *when,
            });
        }
        self.0.sort_by_key(|change| change.late);
    }

    fn share(&self, percent: usize) -> i128 {
        let last = self.0.len().saturating_sub(1);
        let change = self.0.get(last * percent / 100);
        change.map_or(0, |change| change.late.whole_milliseconds())
    }
}

impl fmt::Display for StatusDelays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} changes: shown after {} ms in the middle, {} ms at the 99th percentile, {} ms at most; {} within two seconds. The latest:",
            self.0.len(),
            self.share(50),
            self.share(99),
            self.share(100),
            self.0
                .partition_point(|change: &PhaseDelay| change.late <= Duration::seconds(2))
        )?;
        let first = self.0.iter().map(|change| change.at).min();
        for change in self.0.iter().rev().take(LATEST) {
            write!(
                f,
                "\n  {} {} of second {:.1}: {} ms",
                change.job,
                change.phase.as_str(),
                first.map_or(0., |first| (change.at - first).as_seconds_f64()),
                change.late.whole_milliseconds()
            )?;
        }
        Ok(())
    }
}

/// Times at which the job entered its phases.
fn phases(history: &[EventView]) -> Vec<(OffsetDateTime, JobPhase)> {
    let changes = history.iter().filter_map(|entry| match &entry.event {
        Event::JobSubmitted { .. } => Some((entry.at, JobPhase::Queued)),
        Event::JobStateChanged { state, .. } => Some((entry.at, state.phase())),
        _ => None,
    });
    changes.collect()
}

/// Change that each status shows: the first of its phase that is not older than the previous one.
fn places(changes: &[(OffsetDateTime, JobPhase)], seen: &[&ObjectEvent]) -> Vec<usize> {
    let mut places: Vec<usize> = Vec::new();
    for one in seen {
        let from = places.last().copied().unwrap_or(0);
        let shown = one.status["phase"].as_str().unwrap_or_default();
        let of_phase =
            |(_, phase): &(OffsetDateTime, JobPhase)| shown.eq_ignore_ascii_case(phase.as_str());
        let later = changes[from..]
            .iter()
            .position(of_phase)
            .map(|at| from + at);
        // An earlier change makes the places unsorted.
        let place = later.or_else(|| changes.iter().position(of_phase));
        places.push(place.unwrap_or_else(|| panic!("{one:?} is in no history: {changes:?}")));
    }
    places
}
