//! One step of one study: everything that its search does not know yet is taken in, and what it answers is written, in one
//! transaction.
//!
//! A proposal may take seconds, and whoever has written in an open transaction holds up the readers of all events. So a step only reads
//! while the search is asked, and writes once everything is known, if the study stands as it was read; else it begins anew.

use super::StepError;
use super::facts;
use super::left::{Left, Note, Print, prints};
use muster_model::id::{JobId, StudyId};
use muster_model::spec::JobSpec;
use muster_model::study::{StudyOrder, Told, ToldState};
use muster_search::{Action, Event, EventError, Phase, Study};
use muster_store::StoreError;
use muster_store::job::NewJob;
use muster_store::pool::{Pool, Transaction, begin};
use muster_store::study::search::{self, Loaded};
use std::collections::{BTreeMap, VecDeque};
use time::OffsetDateTime;

/// A study during its step.
pub(super) struct Step {
    pub id: StudyId,
    pub loaded: Loaded,
    /// Away only while another thread works with it.
    search: Option<Study>,
    pub now: OffsetDateTime,
    /// What is still to be taken in.
    pub queue: VecDeque<Event>,
    /// JSON of what was taken in.
    events: Vec<String>,
    /// What the search itself does not know of its trials.
    pub notes: BTreeMap<u32, Note>,
    /// What is to become of jobs.
    pub writes: Vec<Write>,
}

/// What a step does to a job, once it has asked the search everything.
pub(super) enum Write {
    Submit { new: Box<NewJob>, number: u32 },
    Extend { id: JobId, spec: Box<JobSpec> },
    Cancel { id: JobId },
}

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
    let before = prints(step.study());
    if step.study().phase() == Phase::Created {
        step.take_in(&mut tx, Event::Started).await?;
    }
    for (_, order) in orders {
        step.obey(&mut tx, order).await?;
    }
    let facts = match step.has_jobs() {
        true => search::facts(&mut tx, id).await?,
        false => Vec::new(),
    };
    for fact in facts {
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
    let left = step.left(before).await?;
    if !search::lock(&mut tx, id, step.loaded.seq).await? {
        return Err(StepError::Overtaken);
    }
    search::forget(&mut tx, &taken).await?;
    step.write(&mut tx).await?;
    left.save(&mut tx, &step).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(step.search.map(|study| (left.saved.seq, study)))
}

/// The newest stored state, with the events after it taken in again.
async fn load(tx: &mut Transaction, id: StudyId, loaded: &Loaded) -> Result<Study, StepError> {
    let (state, events) = search::state(tx, id).await?;
    let (from, spec) = (loaded.state_seq, loaded.document.search.clone());
    let again = tokio::task::spawn_blocking(move || {
        let mut study = match state {
            Some(text) => serde_json::from_str(&text).map_err(StepError::State)?,
            None => Study::new(spec).map_err(StepError::Document)?,
        };
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

impl Step {
    pub fn study(&self) -> &Study {
        self.search
            .as_ref()
            .expect("only away while another thread works with it")
    }

    /// Whether jobs train its trials, or somebody outside.
    pub fn has_jobs(&self) -> bool {
        self.loaded.document.job.is_some()
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

    /// Proposing a trial may take long.
    async fn apply(&mut self, event: Event) -> Result<Result<Vec<Action>, EventError>, StepError> {
        self.beside(move |study| study.apply(event)).await
    }

    /// What the step leaves, in whole; judging a front and writing a state out take long too.
    async fn left(&mut self, before: Vec<Print>) -> Result<Left, StepError> {
        let notes = std::mem::take(&mut self.notes);
        let events = std::mem::take(&mut self.events);
        let loaded = self.loaded.clone();
        self.beside(move |study| Left::of(study, &loaded, &before, notes, events))
            .await
    }

    /// Works with the search on a thread where nobody else waits.
    async fn beside<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Study) -> T + Send + 'static,
    ) -> Result<T, StepError> {
        let mut study = self.search.take().expect("only away in here");
        let worked = tokio::task::spawn_blocking(move || {
            let done = work(&mut study);
            (study, done)
        });
        let (study, done) = worked.await.map_err(StepError::Search)?;
        self.search = Some(study);
        Ok(done)
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
