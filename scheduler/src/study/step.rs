//! One step of one study: everything that its search does not know yet is taken in, and what it answers is written, in one
//! transaction.
//!
//! A proposal may take seconds, and whoever has written in an open transaction holds up the readers of all events. So a step only reads
//! while the search is asked, and writes once everything is known, if the study stands as it was read; else it begins anew. Where no
//! job is concerned, reading is one round trip and writing another.

use super::StepError;
use super::facts;
use super::left::{Left, Note, Print, prints};
use crate::clock;
use muster_model::id::{JobId, StudyId};
use muster_model::spec::JobSpec;
use muster_model::study::{StudyOrder, Told, ToldState};
use muster_search::{Action, Event, EventError, Phase, Study};
use muster_store::job::NewJob;
use muster_store::limit::Room;
use muster_store::pool::{Pool, begin};
use muster_store::study::save::save;
use muster_store::study::search::{self, Loaded, Look};
use muster_store::{PgConnection, StoreError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// What the limits of the tenant leave, once it was looked up.
    pub room: Option<Room>,
}

/// What a step does to a job, once it has asked the search everything.
pub(super) enum Write {
    Submit { new: Box<NewJob>, number: u32 },
    Extend { id: JobId, spec: Box<JobSpec> },
    Cancel { id: JobId },
}

/// A search as it stands after so many events.
#[derive(Debug)]
pub struct Known {
    pub seq: u64,
    pub search: Study,
    /// Numbers of its best trials, which their rows say.
    pub best: BTreeSet<u32>,
    /// Numbers of the last order that was taken in, and of the last that waited; 0 of none.
    pub taken: i64,
    pub seen: i64,
}

/// After so long a step leaves further orders to the next one: who told first is not to wait until trials were proposed for all.
const LONG_MS: u64 = 10;

/// Carries the study on, from `known` if that is how it stands. What is known of it then; `None` when the study is gone.
///
/// # Errors
/// [`StepError`]; nothing was changed then.
pub async fn take(
    pool: &Pool,
    id: StudyId,
    known: Option<Known>,
    now: OffsetDateTime,
) -> Result<Option<Known>, StepError> {
    let mut conn = pool.acquire().await.map_err(StoreError::from)?;
    let Look { study, orders } = search::look(&mut conn, id).await?;
    let Some(loaded) = study else {
        // Nobody waits for what was said of a study that was deleted.
        let all: Vec<i64> = orders.iter().map(|(number, _)| *number).collect();
        search::forget(&mut conn, &all).await?;
        return Ok(None);
    };
    let known = match known {
        Some(known) if known.seq == loaded.seq => known,
        _ => load(&mut conn, id, &loaded).await?,
    };
    let mut step = Step {
        id,
        search: Some(known.search),
        loaded,
        now,
        queue: VecDeque::new(),
        events: Vec::new(),
        notes: BTreeMap::new(),
        writes: Vec::new(),
        room: None,
    };
    let before = step.beside(move |study| prints(study, &known.best)).await?;
    if step.study().phase() == Phase::Created {
        step.take_in(&mut conn, Event::Started).await?;
    }
    let last = |number: Option<&i64>| number.copied().unwrap_or(0);
    let seen = last(orders.last().map(|(number, _)| number));
    let (began, mut taken) = (clock::instant(), Vec::new());
    for (number, order) in orders {
        step.obey(&mut conn, order).await?;
        taken.push(number);
        if clock::elapsed_ms(began) >= LONG_MS {
            break;
        }
    }
    let last_taken = last(taken.last());
    if last_taken == seen && step.has_jobs() {
        step.follow_jobs(&mut conn).await?;
        step.create_waiting(&mut conn).await?;
        step.take_in_queue(&mut conn).await?;
    }
    drop(conn);
    let left = step.left(before, taken).await?;
    step.leave(pool, &left).await?;
    Ok(step.search.map(|search| Known {
        seq: left.saved.seq,
        search,
        best: left.best,
        taken: last_taken,
        seen,
    }))
}

/// The newest stored state, with the events after it taken in again.
async fn load(conn: &mut PgConnection, id: StudyId, loaded: &Loaded) -> Result<Known, StepError> {
    let (state, events) = search::state(conn, id).await?;
    let (from, seq, spec) = (loaded.state_seq, loaded.seq, loaded.document.search.clone());
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
        let best = study.best().iter().map(|trial| trial.number).collect();
        Ok(Known {
            seq,
            search: study,
            best,
            taken: 0,
            seen: 0,
        })
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

    /// Takes in what became of the jobs of trials.
    async fn follow_jobs(&mut self, conn: &mut PgConnection) -> Result<(), StepError> {
        for fact in search::facts(conn, self.id).await? {
            let trial = &self.study().trials()[fact.number as usize];
            let told = facts::told(self.study().spec(), trial, &fact);
            let note = self.notes.entry(fact.number).or_default();
            note.fed_step = told.fed_step;
            note.failure = told.failure;
            note.end_fed = fact.state.phase().is_terminal().then_some(true);
            for event in told.events {
                self.take_in(conn, event).await?;
            }
        }
        Ok(())
    }

    async fn obey(&mut self, conn: &mut PgConnection, order: StudyOrder) -> Result<(), StepError> {
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
        self.take_in(conn, event).await
    }

    /// Takes an event in, and whatever follows from carrying out what it leads to.
    async fn take_in(&mut self, conn: &mut PgConnection, event: Event) -> Result<(), StepError> {
        self.queue.push_back(event);
        self.take_in_queue(conn).await
    }

    async fn take_in_queue(&mut self, conn: &mut PgConnection) -> Result<(), StepError> {
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
                        self.carry_out(conn, action).await?;
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
    async fn left(&mut self, before: Vec<Print>, taken: Vec<i64>) -> Result<Left, StepError> {
        let notes = std::mem::take(&mut self.notes);
        let events = std::mem::take(&mut self.events);
        let loaded = self.loaded.clone();
        self.beside(move |study| Left::of(study, &loaded, &before, notes, (taken, events)))
            .await
    }

    /// Writes what is left of the step, in one transaction, if the study stands as it was read.
    async fn leave(&mut self, pool: &Pool, left: &Left) -> Result<(), StepError> {
        if self.writes.is_empty() && left.expectations.is_empty() {
            let mut conn = pool.acquire().await.map_err(StoreError::from)?;
            return if save(&mut conn, self.id, &left.saved, self.now).await? {
                Ok(())
            } else {
                Err(StepError::Overtaken)
            };
        }
        let mut tx = begin(pool).await?;
        // Before the jobs, which somebody else may have given to these trials.
        if !search::lock(&mut tx, self.id, left.saved.before).await? {
            return Err(StepError::Overtaken);
        }
        self.write(&mut tx).await?;
        let saved = save(&mut tx, self.id, &left.saved, self.now).await?;
        assert!(saved, "the row is locked");
        if !left.expectations.is_empty() {
            search::expect(&mut tx, self.id, &left.expectations).await?;
        }
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
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

    async fn carry_out(
        &mut self,
        conn: &mut PgConnection,
        action: Action,
    ) -> Result<(), StepError> {
        match action {
            Action::Create { trial, from, .. } => self.create(conn, trial, from).await,
            Action::Continue { trial, .. } => self.go_on(conn, trial).await,
            Action::Stop { trial } => self.stop(conn, trial).await,
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
