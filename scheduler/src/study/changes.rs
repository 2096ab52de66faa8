//! Changes that a step writes to the study and its trials, computed from the search without the
//! store.

use muster_model::id::JobId;
use muster_model::study::TrialPhase;
use muster_model::view::{TrialPoint, TrialSource};
use muster_search::{SearchPhase, SearchTrial, Study, TrialMeasurement, TrialState};
use muster_store::study::save::StudyStepChanges;
use muster_store::study::search::StoredStudy;
use muster_store::study::trial_rows::TrialWrite;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of events between two snapshots of the state, plus an eighth of the number of
/// trials. Events are small; states are not.
const EVENTS_KEPT_APART: u64 = 32;

/// All changes.
pub(super) struct StudyChanges {
    pub saved: StudyStepChanges,
    /// Numbers of the best trials.
    pub best: BTreeSet<u32>,
    /// Expectations of trials whose jobs train.
    pub expectations: Vec<(u32, f64)>,
}

/// Data of a trial that the search does not have.
#[derive(Default, PartialEq)]
pub(super) struct Note {
    pub job_id: Option<JobId>,
    pub fed_step: Option<u64>,
    pub end_fed: Option<bool>,
    pub failure: Option<String>,
    pub open: bool,
}

/// Stored fields of a trial; its row is written when they change.
pub(super) type TrialFingerprint = (TrialState, bool, u64, u32, usize, [Option<u64>; 2]);

pub(super) fn fingerprints(study: &Study, best: &BTreeSet<u32>) -> Vec<TrialFingerprint> {
    let trials = study.trials().iter();
    trials.map(|trial| fingerprint(trial, best)).collect()
}

fn fingerprint(trial: &SearchTrial, best: &BTreeSet<u32>) -> TrialFingerprint {
    // A long curve is thinned, so an equal number of points can be other points.
    let ends = [
        trial.outcome.as_ref().map(|one| one.step),
        trial.reports.last().map(|one| one.step),
    ];
    (
        trial.state,
        best.contains(&trial.number),
        trial.budget,
        trial.rung,
        trial.reports.len(),
        ends,
    )
}

impl StudyChanges {
    /// Computes the changes of a step. `before` describes the trials at its start. `taken` are the
    /// numbers of the applied orders, `events` the applied events as JSON.
    pub fn of(
        study: &Study,
        loaded: &StoredStudy,
        before: &[TrialFingerprint],
        mut notes: BTreeMap<u32, Note>,
        (taken, events): (Vec<i64>, Vec<String>),
    ) -> Self {
        let best: BTreeSet<u32> = study.best().iter().map(|trial| trial.number).collect();
        let (mut created, mut changed) = (Vec::new(), Vec::new());
        for trial in study.trials() {
            let (stood, note) = (
                before.get(trial.number as usize),
                notes.remove(&trial.number),
            );
            if note.is_none() && stood == Some(&fingerprint(trial, &best)) {
                continue;
            }
            let row = row(
                study,
                trial,
                best.contains(&trial.number),
                note.unwrap_or_default(),
            );
            match stood {
                Some(_) => changed.push(row),
                None => created.push(row),
            }
        }
        let has_jobs = loaded.document.job.is_some();
        let expectations = if has_jobs {
            study.expectations()
        } else {
            Vec::new()
        };
        let seq = loaded.seq + events.len() as u64;
        let apart = EVENTS_KEPT_APART + study.trials().len() as u64 / 8;
        let is_over = study.phase() == SearchPhase::Finished;
        let whole = is_over || seq - loaded.state_seq >= apart;
        let saved = StudyStepChanges {
            phase: phase(study.phase()),
            cancelled: loaded.cancelled,
            limit: study.limit(),
            proposed: study.proposed(),
            seq,
            before: loaded.seq,
            taken,
            events,
            state: whole.then(|| serde_json::to_string(study).expect("a state is JSON")),
            created,
            changed,
            has_jobs,
            // Open trials that no client has received can be proposed again after a lost commit.
            // `ask` and `tell` wait for the disk themselves. The end of a study is durable, because
            // a client may wait for it only.
            durable: has_jobs || phase(study.phase()) != loaded.phase,
        };
        Self {
            saved,
            best,
            expectations,
        }
    }
}

fn row(study: &Study, trial: &SearchTrial, best: bool, note: Note) -> TrialWrite {
    let points =
        |outcomes: &[TrialMeasurement]| outcomes.iter().map(|one| point(study, one)).collect();
    TrialWrite {
        number: trial.number,
        job_id: note.job_id,
        state: state(trial.state),
        parameters: study.space().parameters(&trial.point),
        seed: trial.seed,
        budget: trial.budget,
        rung: trial.rung,
        from: trial.from.map(|from| TrialSource {
            trial: from.trial,
            step: from.step,
        }),
        reports: points(&trial.reports),
        rungs: points(&trial.rungs),
        outcome: trial.outcome.as_ref().map(|one| point(study, one)),
        best,
        fed_step: note.fed_step,
        end_fed: note.end_fed,
        failure: note.failure,
        open: note.open,
    }
}

/// Measurement in the metrics' own signs.
fn point(study: &Study, outcome: &TrialMeasurement) -> TrialPoint {
    let goals = study.spec().objectives.iter().map(|one| one.goal);
    TrialPoint {
        step: outcome.step,
        values: goals
            .zip(&outcome.losses)
            .map(|(goal, loss)| (loss.abs() < f64::MAX).then(|| goal.as_loss(*loss)))
            .collect(),
    }
}

fn phase(phase: SearchPhase) -> &'static str {
    match phase {
        SearchPhase::Created => "created",
        SearchPhase::Running => "running",
        SearchPhase::Paused => "paused",
        SearchPhase::Closing => "closing",
        SearchPhase::Finished => "finished",
    }
}

fn state(state: TrialState) -> TrialPhase {
    match state {
        TrialState::Running => TrialPhase::Running,
        TrialState::Waiting => TrialPhase::Waiting,
        TrialState::Stopping => TrialPhase::Stopping,
        TrialState::Completed => TrialPhase::Completed,
        TrialState::Stopped => TrialPhase::Stopped,
        TrialState::Failed => TrialPhase::Failed,
    }
}
