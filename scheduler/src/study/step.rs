//! One step of one study: everything that its search does not know yet is taken in, and what it answers is written, in one
//! transaction.
//!
//! A proposal may take seconds, and whoever has written in an open transaction holds up the readers of all events. So a step only reads
//! while the search is asked, and writes once everything is known, if the study stands as it was read; else it begins anew.

use super::StepError;
use super::facts;
use crate::clock;
use muster_model::id::{JobId, StudyId};
use muster_model::job::Intent;
use muster_model::spec::{JobSpec, Origin};
use muster_model::study::{BudgetUnit, Goal, StudyOrder, Told, ToldState, TrialPhase};
use muster_model::view::{TrialPoint, TrialSource};
use muster_search::{Action, Event, EventError, Outcome, Phase, Source, Study, Trial, TrialState};
use muster_store::StoreError;
use muster_store::job::{self, NewJob};
use muster_store::origin;
use muster_store::pool::{Pool, Transaction, begin};
use muster_store::study::search::{self, Loaded, Saved, TrialWrite};
use std::collections::{BTreeMap, VecDeque};
use time::OffsetDateTime;

/// A state is stored whole after so many events, and an eighth as many as there are trials: events are short, states are not.
const EVENTS_KEPT_APART: u64 = 32;

/// A study during its step.
struct Step {
    id: StudyId,
    loaded: Loaded,
    /// Away only while it takes an event in.
    search: Option<Study>,
    now: OffsetDateTime,
    /// What is still to be taken in.
    queue: VecDeque<Event>,
    /// JSON of what was taken in.
    events: Vec<String>,
    /// What the search itself does not know of its trials.
    notes: BTreeMap<u32, Note>,
    /// What is to become of jobs.
    writes: Vec<Write>,
}

/// What a step does to a job, once it has asked the search everything.
enum Write {
    Submit { new: Box<NewJob>, number: u32 },
    Extend { id: JobId, spec: Box<JobSpec> },
    Cancel { id: JobId },
}

#[derive(Default)]
struct Note {
    job_id: Option<JobId>,
    fed_step: Option<u64>,
    end_fed: Option<bool>,
    failure: Option<String>,
    open: bool,
}

/// What of a trial is written; when it changes, its row does.
type Print = (TrialState, u64, u32, usize, [Option<u64>; 2]);

/// Carries the study on, from `known` if that is how it stands. The number of its events and the search after them; `None` when
/// the study is gone.
///
/// # Errors
/// [`StepError`]; nothing was changed then.
pub async fn take(
    pool: &Pool,
    id: StudyId,
    known: Option<(u64, Study)>,
    now: OffsetDateTime,
) -> Result<Option<(u64, Study)>, StepError> {
    let mut tx = begin(pool).await?;
    // The study first: had somebody else taken the orders in between, it would not be locked as it was seen.
    let loaded = search::look(&mut tx, id).await?;
    let orders = search::orders(&mut tx, id).await?;
    let taken: Vec<i64> = orders.iter().map(|(number, _)| *number).collect();
    let Some(loaded) = loaded else {
        // Nobody waits for what was said of a study that was deleted.
        search::forget(&mut tx, &taken).await?;
        tx.commit().await.map_err(StoreError::from)?;
        return Ok(None);
    };
    let study = match known {
        Some((seq, study)) if seq == loaded.seq => study,
        _ => load(&mut tx, id, &loaded).await?,
    };
    let mut step = Step {
        id,
        search: Some(study),
        loaded,
        now,
        queue: VecDeque::new(),
        events: Vec::new(),
        notes: BTreeMap::new(),
        writes: Vec::new(),
    };
    let before: Vec<Print> = step.study().trials().iter().map(print).collect();
    if step.study().phase() == Phase::Created {
        step.take_in(&mut tx, Event::Started).await?;
    }
    for (_, order) in orders {
        step.obey(&mut tx, order).await?;
    }
    for fact in search::facts(&mut tx, id).await? {
        let trial = &step.study().trials()[fact.number as usize];
        let told = facts::told(step.study().spec(), trial, &fact);
        let note = step.notes.entry(fact.number).or_default();
        note.fed_step = told.fed_step;
        note.failure = told.failure;
        note.end_fed = fact.state.phase().is_terminal().then_some(true);
        for event in told.events {
            step.take_in(&mut tx, event).await?;
        }
    }
    if !search::lock(&mut tx, id, step.loaded.seq).await? {
        return Err(StepError::Overtaken);
    }
    search::forget(&mut tx, &taken).await?;
    step.write(&mut tx).await?;
    let seq = step.save(&mut tx, &before).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(step.search.map(|study| (seq, study)))
}

/// The newest stored state, with the events after it taken in again.
async fn load(tx: &mut Transaction, id: StudyId, loaded: &Loaded) -> Result<Study, StepError> {
    let (state, events) = search::state(tx, id).await?;
    let mut study = match state {
        Some(text) => serde_json::from_str(&text).map_err(StepError::State)?,
        None => Study::new(loaded.document.search.clone()).map_err(StepError::Document)?,
    };
    let from = loaded.state_seq;
    let again = tokio::task::spawn_blocking(move || {
        for (seq, text) in (from + 1..).zip(events) {
            let event = serde_json::from_str(&text).map_err(StepError::State)?;
            // What it asked for was carried out when the event was taken in first.
            study
                .apply(event)
                .map_err(|source| StepError::Event { seq, source })?;
        }
        Ok(study)
    });
    again.await.map_err(StepError::Search)?
}

fn print(trial: &Trial) -> Print {
    let step = |one: &Outcome| one.step;
    // A long curve is thinned: as many points may be others.
    let ends = [
        trial.outcome.as_ref().map(step),
        trial.reports.last().map(step),
    ];
    (
        trial.state,
        trial.budget,
        trial.rung,
        trial.reports.len(),
        ends,
    )
}

impl Step {
    fn study(&self) -> &Study {
        self.search
            .as_ref()
            .expect("only away while it takes an event in")
    }

    async fn obey(&mut self, tx: &mut Transaction, order: StudyOrder) -> Result<(), StepError> {
        // A user has ended it; what was on its way comes too late.
        if self.loaded.cancelled {
            return Ok(());
        }
        let event = match order {
            StudyOrder::Pause => Event::Paused,
            StudyOrder::Resume => Event::Resumed,
            StudyOrder::Extend { trials } => Event::Extended { trials },
            StudyOrder::Cancel => {
                self.loaded.cancelled = true;
                Event::Closed
            }
            StudyOrder::Propose { points } => Event::Proposed { points },
            StudyOrder::Tell { told } => outside(told),
        };
        self.take_in(tx, event).await
    }

    /// Takes an event in, and whatever follows from carrying out what it leads to.
    async fn take_in(&mut self, tx: &mut Transaction, event: Event) -> Result<(), StepError> {
        self.queue.push_back(event);
        while let Some(event) = self.queue.pop_front() {
            let text = serde_json::to_string(&event).expect("an event is JSON");
            let ended = match event {
                Event::Finished { trial, .. } => Some(trial),
                _ => None,
            };
            match self.apply(event).await? {
                Ok(actions) => {
                    self.events.push(text);
                    for action in actions {
                        self.carry_out(tx, action).await?;
                    }
                }
                Err(refused) => {
                    tracing::warn!(error = %refused, event = text, "an event was refused");
                    // A job ends once: an end that nobody took in would hold the trial's slot for ever.
                    if let Some(trial) = ended {
                        self.fail(trial, refused.to_string());
                    }
                }
            }
        }
        Ok(())
    }

    /// Proposing a trial may take long, and rounds must not wait for it.
    async fn apply(&mut self, event: Event) -> Result<Result<Vec<Action>, EventError>, StepError> {
        let mut study = self.search.take().expect("only away in here");
        let (study, actions) = tokio::task::spawn_blocking(move || {
            let actions = study.apply(event);
            (study, actions)
        })
        .await
        .map_err(StepError::Search)?;
        self.search = Some(study);
        Ok(actions)
    }

    async fn carry_out(&mut self, tx: &mut Transaction, action: Action) -> Result<(), StepError> {
        match action {
            Action::Create { trial, from, .. } => self.create(tx, trial, from).await,
            Action::Continue { trial, .. } => self.go_on(tx, trial).await,
            Action::Stop { trial } => self.stop(tx, trial).await,
            Action::Finish => {
                tracing::info!(study.id = %self.id, "the study has finished");
                Ok(())
            }
        }
    }

    async fn create(
        &mut self,
        tx: &mut Transaction,
        number: u32,
        from: Option<Source>,
    ) -> Result<(), StepError> {
        if self.loaded.document.job.is_none() {
            return Ok(());
        }
        let copied = match from {
            Some(from) => self.origin(tx, from).await?.map(Some),
            None => Ok(None),
        };
        let made = copied.and_then(|origin| {
            Ok(JobSpec {
                from: origin,
                ..self.job(number)?
            })
        });
        let spec = match made {
            Ok(spec) => spec,
            Err(why) => {
                self.fail(number, why);
                return Ok(());
            }
        };
        let new = NewJob {
            id: clock::id().into(),
            tenant_id: self.loaded.tenant_id,
            submitted_by: self.loaded.created_by,
            spec,
        };
        self.notes.entry(number).or_default().job_id = Some(new.id);
        let new = Box::new(new);
        self.writes.push(Write::Submit { new, number });
        Ok(())
    }

    /// The checkpoint that a trial is to begin from; or why there is none.
    async fn origin(
        &mut self,
        tx: &mut Transaction,
        from: Source,
    ) -> Result<Result<Origin, String>, StepError> {
        let parent = match self.job(from.trial) {
            Ok(parent) => parent,
            Err(why) => return Ok(Err(why)),
        };
        let unit = match self.study().spec().budget.unit {
            BudgetUnit::Epochs => parent.steps_per_epoch(),
            BudgetUnit::Steps => 1,
        };
        let (first, end) = (from.step * unit, (from.step + 1) * unit);
        let job = self.job_of(tx, from.trial).await?;
        let step = match job {
            Some(job) => origin::newest_between(tx, job, (first, end)).await?,
            None => None,
        };
        Ok(job.zip(step).map_or_else(
            || {
                let (trial, step) = (from.trial, from.step);
                Err(format!(
                    "trial {trial} has no checkpoint of {step} to begin from any more"
                ))
            },
            |(job, step)| {
                Ok(Origin {
                    job,
                    step: Some(step),
                })
            },
        ))
    }

    /// Tells the search, and whoever looks at the trial, that it has failed.
    fn fail(&mut self, number: u32, why: String) {
        self.notes.entry(number).or_default().failure = Some(why);
        self.queue.push_back(Event::Failed { trial: number });
    }

    /// The job of a trial as far as it is told to train now; or what is wrong with it, which only this very point can have.
    fn job(&self, number: u32) -> Result<JobSpec, String> {
        let trial = &self.study().trials()[number as usize];
        let (document, space) = (&self.loaded.document, self.study().space());
        let spec = document
            .trial(space, number, &trial.point, trial.seed, trial.budget)
            .map_err(|error| error.to_string())?;
        spec.validate().map_err(|errors| errors[0].to_string())?;
        Ok(spec)
    }

    async fn go_on(&mut self, tx: &mut Transaction, number: u32) -> Result<(), StepError> {
        let note = self.notes.entry(number).or_default();
        note.end_fed = Some(false);
        if self.loaded.document.job.is_none() {
            note.open = true;
            return Ok(());
        }
        let job_id = self.job_of(tx, number).await?;
        let extended = match (job_id, self.job(number)) {
            (Some(id), Ok(spec)) => {
                let may = search::may_extend(tx, id).await?;
                let spec = Box::new(spec);
                self.writes
                    .extend(may.then_some(Write::Extend { id, spec }));
                may
            }
            (None, Ok(_)) => false,
            (_, Err(why)) => {
                let budget = self.study().trials()[number as usize].budget;
                self.fail(number, format!("it cannot train on to {budget}: {why}"));
                return Ok(());
            }
        };
        if !extended {
            let why = "its job could not train on: it was deleted".to_owned();
            self.fail(number, why);
        }
        Ok(())
    }

    async fn stop(&mut self, tx: &mut Transaction, number: u32) -> Result<(), StepError> {
        if self.study().trials()[number as usize].state != TrialState::Stopping {
            return Ok(());
        }
        match self.job_of(tx, number).await? {
            // One that has ended in the meantime answers for itself.
            Some(id) => self.writes.push(Write::Cancel { id }),
            None => self.queue.push_back(Event::Stopped { trial: number }),
        }
        Ok(())
    }

    async fn job_of(
        &mut self,
        tx: &mut Transaction,
        number: u32,
    ) -> Result<Option<JobId>, StepError> {
        if let Some(id) = self.notes.get(&number).and_then(|note| note.job_id) {
            return Ok(Some(id));
        }
        Ok(search::jobs(tx, self.id, &[number]).await?.remove(&number))
    }

    /// Does to the jobs what the search has led to.
    async fn write(&mut self, tx: &mut Transaction) -> Result<(), StepError> {
        for write in std::mem::take(&mut self.writes) {
            match write {
                Write::Submit { new, number } => {
                    search::submit(tx, &new, self.id, number, self.now).await?;
                }
                // Somebody has deleted it since it was looked at.
                Write::Extend { id, spec } => {
                    if !search::extend(tx, id, &spec, self.now).await? {
                        return Err(StepError::Overtaken);
                    }
                }
                Write::Cancel { id } => {
                    job::set_intent(tx, id, Intent::Cancel, self.now).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes all that has changed; the number of events by now.
    async fn save(&mut self, tx: &mut Transaction, before: &[Print]) -> Result<u64, StepError> {
        let tenant = self.loaded.tenant_id;
        let mut notes = std::mem::take(&mut self.notes);
        for trial in self.study().trials() {
            let is_same = before.get(trial.number as usize) == Some(&print(trial));
            let note = notes.remove(&trial.number);
            if is_same && note.is_none() {
                continue;
            }
            let row = self.row(trial, note.unwrap_or_default());
            search::write_trial(tx, self.id, tenant, &row, self.now).await?;
        }
        let best: Vec<u32> = self
            .study()
            .best()
            .iter()
            .map(|trial| trial.number)
            .collect();
        search::mark_best(tx, self.id, &best).await?;
        if self.loaded.document.job.is_some() {
            search::expect(tx, self.id, &self.study().expectations()).await?;
        }
        let seq = self.loaded.seq + self.events.len() as u64;
        let apart = EVENTS_KEPT_APART + self.study().trials().len() as u64 / 8;
        let is_over = self.study().phase() == Phase::Finished;
        let whole = is_over || seq - self.loaded.state_seq >= apart;
        let saved = Saved {
            phase: phase(self.study().phase()),
            cancelled: self.loaded.cancelled,
            limit: self.study().limit(),
            seq,
            before: self.loaded.seq,
            events: std::mem::take(&mut self.events),
            state: whole.then(|| serde_json::to_string(self.study()).expect("a state is JSON")),
        };
        search::save(tx, self.id, tenant, &saved, self.now).await?;
        Ok(seq)
    }

    fn row(&self, trial: &Trial, note: Note) -> TrialWrite {
        let points = |outcomes: &[Outcome]| outcomes.iter().map(|one| self.point(one)).collect();
        TrialWrite {
            number: trial.number,
            job_id: note.job_id,
            state: state(trial.state),
            parameters: self.study().space().parameters(&trial.point),
            seed: trial.seed,
            budget: trial.budget,
            rung: trial.rung,
            from: trial.from.map(|from| TrialSource {
                trial: from.trial,
                step: from.step,
            }),
            reports: points(&trial.reports),
            rungs: points(&trial.rungs),
            outcome: trial.outcome.as_ref().map(|one| self.point(one)),
            fed_step: note.fed_step,
            end_fed: note.end_fed,
            failure: note.failure,
            open: note.open,
        }
    }

    /// A measure in the metrics' own signs.
    fn point(&self, outcome: &Outcome) -> TrialPoint {
        let goals = self.study().spec().objectives.iter().map(|one| one.goal);
        let value =
            |(goal, loss): (Goal, &f64)| (loss.abs() < f64::MAX).then(|| goal.as_loss(*loss));
        TrialPoint {
            step: outcome.step,
            values: goals.zip(&outcome.losses).map(value).collect(),
        }
    }
}

/// What somebody outside tells of a trial.
fn outside(told: Told) -> Event {
    let (trial, step, values) = (told.trial, told.step, told.values);
    match told.state {
        ToldState::Running => Event::Reported {
            trial,
            step,
            values,
        },
        ToldState::Finished => Event::Finished {
            trial,
            step,
            values,
            exhausted: told.exhausted,
        },
        ToldState::Failed => Event::Failed { trial },
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Created => "created",
        Phase::Running => "running",
        Phase::Paused => "paused",
        Phase::Closing => "closing",
        Phase::Finished => "finished",
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
