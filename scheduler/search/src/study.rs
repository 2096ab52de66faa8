//! State machine of a study: trials, their events and the next actions.

use crate::action::SearchAction;
use crate::event::{EventError, SearchEvent};
use crate::random::{Purpose, StudyRng};
use crate::searcher;
use crate::stopper::{self, Birth, NextTrial};
use crate::trial::{SearchTrial, TrialMeasurement, TrialNumber, TrialState};
use muster_model::spec::FieldError;
use muster_model::study::{MAX_TRIALS, Point, SearchSpec, Searcher, Space};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    record: StudyRecord,
    phase: SearchPhase,
    failures: u32,
    searcher: searcher::SearcherState,
    stopper: stopper::StopperState,
    /// Outstanding work with its results, oldest first. Used with `reproducible` only.
    order: VecDeque<Handed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchPhase {
    Created,
    Running,
    Paused,
    /// No trial is created; running trials are awaited.
    Closing,
    Finished,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Handed {
    trial: TrialNumber,
    result: Option<SearchEvent>,
}

#[derive(Debug, Clone, PartialEq, Error)]
pub enum StudyError {
    #[error("the search has {} mistakes, the first: {}", .0.len(), .0[0])]
    Invalid(Vec<FieldError>),
}

/// State that searchers and stoppers read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StudyRecord {
    pub spec: SearchSpec,
    pub space: Space,
    pub trials: Vec<SearchTrial>,
    /// Maximum number of trials.
    pub limit: u32,
    /// The searcher has no further point, for example at the end of a grid.
    pub exhausted: bool,
    /// Points of an external searcher that are not trials yet.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub proposed: VecDeque<Point>,
}

impl StudyRecord {
    pub(crate) fn may_create(&self) -> bool {
        let chosen = !self.is_external() || !self.proposed.is_empty();
        !self.exhausted && chosen && (self.trials.len() as u32) < self.limit
    }

    fn is_external(&self) -> bool {
        matches!(self.spec.searcher, Searcher::External {})
    }

    /// Whether an external searcher may still propose a trial.
    fn awaits_proposals(&self) -> bool {
        self.is_external() && (self.trials.len() as u32) < self.limit
    }
}

impl Study {
    /// Creates a study that has not started. The seed is in the document.
    ///
    /// # Errors
    /// All errors of the document.
    pub fn new(spec: SearchSpec) -> Result<Self, StudyError> {
        let space = spec.space().map_err(StudyError::Invalid)?;
        Ok(Self {
            phase: SearchPhase::Created,
            failures: 0,
            searcher: searcher::SearcherState::new(&spec, &space),
            stopper: stopper::StopperState::new(&spec),
            order: VecDeque::new(),
            record: StudyRecord {
                limit: spec.trials,
                spec,
                space,
                trials: Vec::new(),
                exhausted: false,
                proposed: VecDeque::new(),
            },
        })
    }

    #[must_use]
    pub fn spec(&self) -> &SearchSpec {
        &self.record.spec
    }

    #[must_use]
    pub fn space(&self) -> &Space {
        &self.record.space
    }

    #[must_use]
    pub fn phase(&self) -> SearchPhase {
        self.phase
    }

    pub(crate) fn record(&self) -> &StudyRecord {
        &self.record
    }

    /// All trials by number.
    #[must_use]
    pub fn trials(&self) -> &[SearchTrial] {
        &self.record.trials
    }

    /// Maximum number of trials.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.record.limit
    }

    /// Number of points of an external searcher that are not trials yet.
    #[must_use]
    pub fn proposed(&self) -> u32 {
        self.record.proposed.len() as u32
    }

    /// Best trials. With one objective, the first trial with the smallest last outcome. Otherwise
    /// the Pareto front of all last outcomes.
    #[must_use]
    pub fn best(&self) -> Vec<&SearchTrial> {
        let judged: Vec<(&SearchTrial, &TrialMeasurement)> = self
            .record
            .trials
            .iter()
            .filter_map(|t| Some((t, t.outcome.as_ref()?)))
            .collect();
        if self.record.spec.objectives.len() == 1 {
            let best = judged.iter().min_by(|(a, of_a), (b, of_b)| {
                let by_loss = of_a.losses[0].total_cmp(&of_b.losses[0]);
                by_loss.then(a.number.cmp(&b.number))
            });
            return best.map(|(t, _)| *t).into_iter().collect();
        }
        let losses: Vec<&[f64]> = judged.iter().map(|(_, o)| o.losses.as_slice()).collect();
        let ranks = crate::pareto::ranks(&losses);
        let front = judged.iter().zip(ranks).filter(|(_, rank)| *rank == 0);
        front.map(|((t, _), _)| *t).collect()
    }

    /// Applies an event and returns the next actions.
    ///
    /// # Errors
    /// [`EventError`] if the event does not fit this study. The state is then unchanged.
    pub fn apply(&mut self, event: SearchEvent) -> Result<Vec<SearchAction>, EventError> {
        self.check(&event)?;
        let mut actions = Vec::new();
        if self.is_of_an_ended_rung(&event) {
            return Ok(actions);
        }
        if let Some(event) = self.in_turn(event) {
            self.take(event, &mut actions);
            self.fill(&mut actions);
        }
        while let Some(event) = self.next_in_turn() {
            self.take(event, &mut actions);
            self.fill(&mut actions);
        }
        Ok(actions)
    }

    /// Whether the event repeats the end of a rung after which the trial was continued.
    fn is_of_an_ended_rung(&self, event: &SearchEvent) -> bool {
        let SearchEvent::Finished {
            trial,
            step,
            exhausted: false,
            ..
        } = event
        else {
            return false;
        };
        let trial = &self.record.trials[*trial as usize];
        trial.state == TrialState::Running && *step < trial.budget
    }

    /// Returns the event, unless earlier work must end first.
    fn in_turn(&mut self, event: SearchEvent) -> Option<SearchEvent> {
        if matches!(event, SearchEvent::Reported { .. }) {
            return Some(event);
        }
        let mut handed = self.order.iter_mut();
        let Some(entry) = handed.find(|h| Some(h.trial) == event.trial()) else {
            return Some(event);
        };
        // The first result counts; later ones are repetitions.
        entry.result.get_or_insert(event);
        None
    }

    fn next_in_turn(&mut self) -> Option<SearchEvent> {
        self.order.front()?.result.as_ref()?;
        self.order.pop_front()?.result
    }

    fn check(&self, event: &SearchEvent) -> Result<(), EventError> {
        if let SearchEvent::Extended { trials } = event
            && self.record.limit.saturating_add(*trials) > MAX_TRIALS
        {
            return Err(EventError::TooMany {
                trials: *trials,
                most: MAX_TRIALS,
            });
        }
        if let SearchEvent::Proposed { points } = event {
            return self.check_points(points);
        }
        let Some(number) = event.trial() else {
            return Ok(());
        };
        let created = self.record.trials.len() as u32;
        let Some(trial) = self.record.trials.get(number as usize) else {
            let trial = number;
            return Err(EventError::UnknownTrial { trial, created });
        };
        let (values, may_be_empty) = match event {
            SearchEvent::Reported { values, .. } => (values, false),
            SearchEvent::Finished { step, values, .. } => {
                // The last value of a stopping trial may have been too late for storage.
                let counts = trial.state == TrialState::Running;
                if values.is_empty() && trial.reports.is_empty() && counts {
                    let (trial, step) = (number, *step);
                    return Err(EventError::NoValue { trial, step });
                }
                (values, true)
            }
            _ => return Ok(()),
        };
        let expected = self.record.spec.objectives.len();
        if values.len() != expected && !(may_be_empty && values.is_empty()) {
            let (trial, found) = (number, values.len());
            return Err(EventError::WrongValues {
                trial,
                found,
                expected,
            });
        }
        Ok(())
    }

    fn check_points(&self, points: &[Point]) -> Result<(), EventError> {
        if !self.record.is_external() {
            return Err(EventError::NotExternal);
        }
        let mut points = points.iter();
        match points.position(|point| !self.record.space.contains(point)) {
            Some(place) => Err(EventError::OutsideSpace { place }),
            None => Ok(()),
        }
    }

    fn take(&mut self, event: SearchEvent, actions: &mut Vec<SearchAction>) {
        match event {
            SearchEvent::Started if self.phase == SearchPhase::Created => {
                self.phase = SearchPhase::Running
            }
            SearchEvent::Started => {}
            SearchEvent::Paused
                if matches!(self.phase, SearchPhase::Created | SearchPhase::Running) =>
            {
                self.phase = SearchPhase::Paused;
            }
            SearchEvent::Resumed if self.phase == SearchPhase::Paused => {
                self.phase = SearchPhase::Running
            }
            SearchEvent::Paused | SearchEvent::Resumed => {}
            SearchEvent::Extended { trials } => self.extend(trials),
            SearchEvent::Proposed { points } => self.record.proposed.extend(points),
            SearchEvent::Closed if self.phase == SearchPhase::Finished => {}
            SearchEvent::Closed => self.close(actions),
            SearchEvent::Reported {
                trial,
                step,
                values,
            } => self.report(trial, step, &values, actions),
            SearchEvent::Finished {
                trial,
                step,
                values,
                exhausted,
            } => self.finish(trial, step, &values, exhausted, actions),
            SearchEvent::Failed { trial } => {
                if self.record.trials[trial as usize].holds_slot() {
                    self.record.trials[trial as usize].state = TrialState::Failed;
                    self.failures += 1;
                    if self.failures > self.record.spec.max_failures {
                        self.close(actions);
                    }
                }
            }
            SearchEvent::Stopped { trial } => {
                let trial = &mut self.record.trials[trial as usize];
                if trial.holds_slot() || trial.state == TrialState::Waiting {
                    trial.state = TrialState::Stopped;
                    trial.outcome = trial.reports.last().cloned().or(trial.outcome.take());
                }
            }
        }
    }

    fn extend(&mut self, trials: u32) {
        self.record.limit += trials;
        if matches!(self.phase, SearchPhase::Finished | SearchPhase::Closing) {
            self.phase = SearchPhase::Running;
        }
    }

    fn losses(&self, values: &[f64]) -> Vec<f64> {
        let pairs = self.record.spec.objectives.iter().zip(values);
        pairs
            .map(|(objective, value)| {
                let loss = objective.goal.as_loss(*value);
                if loss.is_finite() { loss } else { f64::MAX }
            })
            .collect()
    }

    fn report(&mut self, number: u32, step: u64, values: &[f64], actions: &mut Vec<SearchAction>) {
        let losses = self.losses(values);
        let trial = &mut self.record.trials[number as usize];
        if trial.state != TrialState::Running || !trial.record(step, losses) {
            return;
        }
        // The order of reports depends on the machines. The same value counts at the end of the
        // rung, in order.
        if !self.record.spec.reproducible && self.reaches_target(number) {
            return self.close(actions);
        }
        if stopper::is_behind(&self.record, number) {
            self.stop(number, actions);
        }
    }

    fn finish(
        &mut self,
        number: u32,
        step: u64,
        values: &[f64],
        exhausted: bool,
        actions: &mut Vec<SearchAction>,
    ) {
        let losses = self.losses(values);
        let max = self.record.spec.budget.max;
        let trial = &mut self.record.trials[number as usize];
        if !trial.holds_slot() {
            return;
        }
        if !losses.is_empty() {
            trial.conclude(step, losses);
        }
        if trial.state == TrialState::Stopping {
            trial.state = TrialState::Stopped;
            // The last step of a stopped trial depends on the machines.
            if !self.record.spec.reproducible {
                trial.outcome = trial.reports.last().cloned();
            }
            return;
        }
        trial.outcome = trial.reports.last().cloned();
        trial.rungs.extend(trial.outcome.clone());
        trial.state = if exhausted || trial.budget >= max {
            TrialState::Completed
        } else {
            TrialState::Waiting
        };
        self.searcher.tell(&self.record, number);
        if self.reaches_target(number) {
            return self.close(actions);
        }
        for number in self.stopper.judge(&self.record, number) {
            self.stop(number, actions);
        }
    }

    /// Whether the newest report reaches the target of every objective.
    fn reaches_target(&self, number: TrialNumber) -> bool {
        let Some(newest) = self.record.trials[number as usize].reports.last() else {
            return false;
        };
        let mut pairs = self.record.spec.objectives.iter().zip(&newest.losses);
        pairs.all(|(objective, loss)| {
            let target = objective.target.map(|t| objective.goal.as_loss(t));
            target.is_some_and(|target| *loss <= target)
        })
    }

    fn stop(&mut self, number: TrialNumber, actions: &mut Vec<SearchAction>) {
        let trial = &mut self.record.trials[number as usize];
        match trial.state {
            TrialState::Running => trial.state = TrialState::Stopping,
            TrialState::Waiting => trial.state = TrialState::Stopped,
            _ => return,
        }
        actions.push(SearchAction::Stop { trial: number });
    }

    /// Stops all trials and creates no more.
    fn close(&mut self, actions: &mut Vec<SearchAction>) {
        self.phase = SearchPhase::Closing;
        for number in 0..self.record.trials.len() as u32 {
            self.stop(number, actions);
        }
    }

    /// Assigns work to free slots.
    fn fill(&mut self, actions: &mut Vec<SearchAction>) {
        if !matches!(self.phase, SearchPhase::Running | SearchPhase::Closing) {
            return;
        }
        let mut held = self.record.trials.iter().filter(|t| t.holds_slot()).count();
        while self.phase == SearchPhase::Running && held < self.record.spec.concurrency as usize {
            let (next, stopped) = self.stopper.next(&self.record);
            for number in stopped {
                self.stop(number, actions);
            }
            match next {
                NextTrial::Wait => break,
                NextTrial::Continue { trial, budget } => {
                    self.hand_out(trial);
                    let entry = &mut self.record.trials[trial as usize];
                    entry.state = TrialState::Running;
                    entry.rung += 1;
                    entry.budget = budget;
                    actions.push(SearchAction::Continue { trial, budget });
                    held += 1;
                }
                NextTrial::Create(birth) => held += usize::from(self.create(birth, actions)),
            }
        }
        let awaits = self.phase == SearchPhase::Running && self.record.awaits_proposals();
        if held == 0 && !awaits {
            self.close(actions);
            self.phase = SearchPhase::Finished;
            actions.push(SearchAction::Finish);
        }
    }

    fn create(&mut self, birth: Birth, actions: &mut Vec<SearchAction>) -> bool {
        let number = self.record.trials.len() as u32;
        let chosen = birth.point.or_else(|| self.record.proposed.pop_front());
        let point = chosen.or_else(|| self.searcher.suggest(&self.record, number));
        let Some(point) = point else {
            self.record.exhausted = true;
            return false;
        };
        assert!(
            self.record.space.contains(&point),
            "a searcher left the space: {point:?}"
        );
        // 53 bits, so that no JSON reader loses precision.
        let seed =
            StudyRng::new(self.record.spec.seed, Purpose::TrialSeed, number.into()).bits() >> 11;
        actions.push(SearchAction::Create {
            trial: number,
            parameters: self.record.space.parameters(&point),
            seed,
            budget: birth.budget,
            from: birth.from,
        });
        self.record.trials.push(SearchTrial {
            number,
            point,
            seed,
            state: TrialState::Running,
            budget: birth.budget,
            rung: 0,
            bracket: birth.bracket,
            from: birth.from,
            reports: Vec::new(),
            stride: 0,
            outcome: None,
            rungs: Vec::new(),
        });
        self.hand_out(number);
        true
    }

    fn hand_out(&mut self, trial: TrialNumber) {
        if self.record.spec.reproducible {
            self.order.push_back(Handed {
                trial,
                result: None,
            });
        }
    }
}
