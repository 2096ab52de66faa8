//! One step of one study: applies all unread input to the search and writes the results in one
//! transaction.
//!
//! A proposal may take seconds, and an open transaction with writes delays all readers of events. A
//! step therefore only reads while it asks the search. It then writes everything if the study is
//! unchanged, and otherwise starts again. Without jobs it needs one round trip to read and one to
//! write.

use super::StepError;
use super::changes::{Note, StudyChanges, TrialFingerprint, fingerprints};
use super::facts;
use crate::clock;
use muster_model::id::{JobId, StudyId};
use muster_model::spec::JobSpec;
use muster_model::study::{StudyOrder, Told, ToldState};
use muster_search::{EventError, SearchAction, SearchEvent, SearchPhase, Study};
use muster_store::job::NewJob;
use muster_store::limit::OpenWorkAllowance;
use muster_store::pool::{StorePool, begin};
use muster_store::study::save::save;
use muster_store::study::search::{self, StoredStudy, StudyWithOrders};
use muster_store::{PgConnection, StoreError, objective};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use time::OffsetDateTime;

/// State of a study during its step.
pub(super) struct StudyStep {
    pub id: StudyId,
    pub loaded: StoredStudy,
    /// `None` only while another thread uses it.
    search: Option<Study>,
    pub now: OffsetDateTime,
    /// Events to apply.
    pub queue: VecDeque<SearchEvent>,
    /// Applied events as JSON.
    events: Vec<String>,
    /// Data of trials that the search does not have.
    pub notes: BTreeMap<u32, Note>,
    /// Planned changes of jobs.
    pub writes: Vec<JobWrite>,
    /// Remaining room within the tenant's limits, once it was read.
    pub room: Option<OpenWorkAllowance>,
}

/// Change of a job, written at the end of the step.
pub(super) enum JobWrite {
    Submit { new: Box<NewJob>, number: u32 },
    Extend { id: JobId, spec: Box<JobSpec> },
    Cancel { id: JobId },
}

/// Search with its position in the events.
#[derive(Debug)]
pub struct CachedSearch {
    pub seq: u64,
    pub search: Study,
    /// Numbers of the best trials according to their rows.
    pub best: BTreeSet<u32>,
    /// Numbers of the last applied and of the last waiting order; 0 for none.
    pub taken: i64,
    pub seen: i64,
}

/// Duration after which a step leaves further orders to the next one. Early results then do not
/// wait for all proposals.
const LONG_MS: u64 = 10;

/// Runs a step of the study, from `known` if it is current. Returns the new state; `None` if the
/// study is deleted.
///
/// # Errors
/// [`StepError`]; nothing was changed then.
pub async fn take(
    pool: &StorePool,
    id: StudyId,
    known: Option<CachedSearch>,
    now: OffsetDateTime,
) -> Result<Option<CachedSearch>, StepError> {
    let mut conn = pool.acquire().await.map_err(StoreError::from)?;
    let StudyWithOrders { study, orders } = search::look(&mut conn, id).await?;
    let Some(loaded) = study else {
        // No client waits for orders of a deleted study.
        let all: Vec<i64> = orders.iter().map(|(number, _)| *number).collect();
        search::forget(&mut conn, &all).await?;
        return Ok(None);
    };
    let known = match known {
        Some(known) if known.seq == loaded.seq => known,
        _ => load(&mut conn, id, &loaded).await?,
    };
    let mut step = StudyStep {
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
    let before = step
        .beside(move |study| fingerprints(study, &known.best))
        .await?;
    if step.study().phase() == SearchPhase::Created {
        step.take_in(&mut conn, SearchEvent::Started).await?;
    }
    let seen = orders.last().map_or(0, |(number, _)| *number);
    let (began, mut taken) = (clock::instant(), Vec::new());
    for (number, order) in orders {
        step.obey(&mut conn, order).await?;
        taken.push(number);
        if clock::elapsed_ms(began) >= LONG_MS {
            break;
        }
    }
    let last_taken = taken.last().copied().unwrap_or(0);
    if last_taken == seen && step.has_jobs() {
        step.follow_jobs(&mut conn).await?;
        step.create_waiting(&mut conn).await?;
        step.take_in_queue(&mut conn).await?;
    }
    drop(conn);
    step.notes.retain(|_, note| *note != Note::default());
    if step.has_changed_nothing(&taken) {
        return Ok(step.search.map(|search| CachedSearch {
            seq: step.loaded.seq,
            best: search.best().iter().map(|trial| trial.number).collect(),
            search,
            taken: last_taken,
            seen,
        }));
    }
    let changes = step.changes(before, taken).await?;
    step.commit(pool, &changes).await?;
    step.forget_taken(pool, &changes).await?;
    Ok(step.search.map(|search| CachedSearch {
        seq: changes.saved.seq,
        search,
        best: changes.best,
        taken: last_taken,
        seen,
    }))
}

/// Newest stored state with the later events applied.
async fn load(
    conn: &mut PgConnection,
    id: StudyId,
    loaded: &StoredStudy,
) -> Result<CachedSearch, StepError> {
    let (state, events) = search::state(conn, id).await?;
    let (from, seq, spec) = (loaded.state_seq, loaded.seq, loaded.document.search.clone());
    let again = tokio::task::spawn_blocking(move || {
        let mut study = match state {
            Some(text) => serde_json::from_str(&text).map_err(StepError::State)?,
            None => Study::new(spec).map_err(StepError::Document)?,
        };
        for (seq, text) in (from + 1..).zip(events) {
            let event = serde_json::from_str(&text).map_err(StepError::State)?;
            // Its actions were carried out when the event was first applied.
            study
                .apply(event)
                .map_err(|source| StepError::Event { seq, source })?;
        }
        let best = study.best().iter().map(|trial| trial.number).collect();
        Ok(CachedSearch {
            seq,
            search: study,
            best,
            taken: 0,
            seen: 0,
        })
    });
    again.await.map_err(StepError::Search)?
}

impl StudyStep {
    pub fn study(&self) -> &Study {
        self.search
            .as_ref()
            .expect("only away while another thread works with it")
    }

    /// Whether jobs train the trials, and not an external program.
    pub fn has_jobs(&self) -> bool {
        self.loaded.document.job.is_some()
    }

    /// Applies facts of the trials' jobs.
    async fn follow_jobs(&mut self, conn: &mut PgConnection) -> Result<(), StepError> {
        for fact in search::facts(conn, self.id).await? {
            let trial = &self.study().trials()[fact.number as usize];
            let told = facts::facts(self.study().spec(), trial, &fact);
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

    /// Whether there is nothing to write. A measurement that waits for another objective is read in
    /// each pass, and a commit would wake the next pass.
    fn has_changed_nothing(&self, taken: &[i64]) -> bool {
        taken.is_empty()
            && self.events.is_empty()
            && self.notes.is_empty()
            && self.writes.is_empty()
    }

    /// Removes the values of own objectives that the committed step has taken.
    async fn forget_taken(
        &self,
        pool: &StorePool,
        changes: &StudyChanges,
    ) -> Result<(), StepError> {
        let changed = changes.saved.changed.iter();
        let fed = changed.filter(|trial| trial.fed_step.is_some());
        let fed: Vec<u32> = fed.map(|trial| trial.number).collect();
        if !fed.is_empty() && self.study().spec().logged_objectives().next().is_some() {
            let mut conn = pool.acquire().await.map_err(StoreError::from)?;
            objective::forget_taken(&mut conn, self.id, &fed).await?;
        }
        Ok(())
    }

    async fn obey(&mut self, conn: &mut PgConnection, order: StudyOrder) -> Result<(), StepError> {
        // A user has cancelled the study; later orders have no effect.
        if self.loaded.cancelled {
            return Ok(());
        }
        let event = match order {
            StudyOrder::Pause => SearchEvent::Paused,
            StudyOrder::Resume => SearchEvent::Resumed,
            StudyOrder::Extend { trials } => SearchEvent::Extended { trials },
            StudyOrder::Cancel => {
                self.loaded.cancelled = true;
                SearchEvent::Closed
            }
            StudyOrder::Propose { points } => SearchEvent::Proposed { points },
            StudyOrder::Tell { told } => outside(told),
        };
        self.take_in(conn, event).await
    }

    /// Applies an event, and all events that follow from its actions.
    async fn take_in(
        &mut self,
        conn: &mut PgConnection,
        event: SearchEvent,
    ) -> Result<(), StepError> {
        self.queue.push_back(event);
        self.take_in_queue(conn).await
    }

    async fn take_in_queue(&mut self, conn: &mut PgConnection) -> Result<(), StepError> {
        while let Some(event) = self.queue.pop_front() {
            let text = serde_json::to_string(&event).expect("an event is JSON");
            let ended = match event {
                SearchEvent::Finished { trial, .. } => Some(trial),
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
                    // A job ends once. A lost end would hold the trial's slot for ever.
                    if let Some(trial) = ended {
                        self.fail(trial, refused.to_string());
                    }
                }
            }
        }
        Ok(())
    }

    /// A proposal may take long.
    async fn apply(
        &mut self,
        event: SearchEvent,
    ) -> Result<Result<Vec<SearchAction>, EventError>, StepError> {
        self.beside(move |study| study.apply(event)).await
    }

    /// Results of the step. The Pareto front and the encoded state may take long too.
    async fn changes(
        &mut self,
        before: Vec<TrialFingerprint>,
        taken: Vec<i64>,
    ) -> Result<StudyChanges, StepError> {
        let notes = std::mem::take(&mut self.notes);
        let events = std::mem::take(&mut self.events);
        let loaded = self.loaded.clone();
        self.beside(move |study| StudyChanges::of(study, &loaded, &before, notes, (taken, events)))
            .await
    }

    /// Writes the results of the step in one transaction if the study is unchanged.
    async fn commit(&mut self, pool: &StorePool, changes: &StudyChanges) -> Result<(), StepError> {
        if self.writes.is_empty() && changes.expectations.is_empty() {
            let mut conn = pool.acquire().await.map_err(StoreError::from)?;
            return if save(&mut conn, self.id, &changes.saved, self.now).await? {
                Ok(())
            } else {
                Err(StepError::Overtaken)
            };
        }
        let mut tx = begin(pool).await?;
        // Locked before the jobs, because another process may have created jobs for these trials.
        if !search::lock(&mut tx, self.id, changes.saved.before).await? {
            return Err(StepError::Overtaken);
        }
        self.write(&mut tx).await?;
        let saved = save(&mut tx, self.id, &changes.saved, self.now).await?;
        assert!(saved, "the row is locked");
        if !changes.expectations.is_empty() {
            search::expect(&mut tx, self.id, &changes.expectations).await?;
        }
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Runs `work` with the search on a blocking thread.
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
        action: SearchAction,
    ) -> Result<(), StepError> {
        match action {
            SearchAction::Create { trial, from, .. } => self.create(conn, trial, from).await,
            SearchAction::Continue { trial, .. } => self.go_on(conn, trial).await,
            SearchAction::Stop { trial } => self.stop(conn, trial).await,
            SearchAction::Finish => {
                tracing::info!(study.id = %self.id, "the study has finished");
                Ok(())
            }
        }
    }
}

/// Event of an external report on a trial.
fn outside(told: Told) -> SearchEvent {
    let (trial, step, values) = (told.trial, told.step, told.values);
    match told.state {
        ToldState::Running => SearchEvent::Reported {
            trial,
            step,
            values,
        },
        ToldState::Finished => SearchEvent::Finished {
            trial,
            step,
            values,
            exhausted: told.exhausted,
        },
        ToldState::Failed => SearchEvent::Failed { trial },
    }
}
