//! Converts actions of the search to changes of jobs. They are computed while the step reads, and
//! written at its end.

use super::StepError;
use super::step::{JobWrite, StudyStep};
use crate::clock;
use muster_model::id::JobId;
use muster_model::job::Intent;
use muster_model::spec::{JobSpec, Origin};
use muster_model::study::BudgetUnit;
use muster_search::{SearchEvent, TrialCheckpoint, TrialState};
use muster_store::PgConnection;
use muster_store::job::{self, NewJob};
use muster_store::limit;
use muster_store::origin;
use muster_store::study::search;

impl StudyStep {
    pub(super) async fn create(
        &mut self,
        conn: &mut PgConnection,
        number: u32,
        from: Option<TrialCheckpoint>,
    ) -> Result<(), StepError> {
        if !self.has_jobs() {
            return Ok(());
        }
        let copied = match from {
            Some(from) => self.origin(conn, from).await?.map(Some),
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
        // The trial waits without a job; a later step submits it.
        if !self.has_room(conn, &spec).await? {
            return Ok(());
        }
        let new = NewJob {
            id: clock::id().into(),
            tenant_id: self.loaded.tenant_id,
            submitted_by: self.loaded.created_by,
            spec,
        };
        self.notes.entry(number).or_default().job_id = Some(new.id);
        let new = Box::new(new);
        self.writes.push(JobWrite::Submit { new, number });
        Ok(())
    }

    /// Submits trials for which an earlier step had no room.
    pub(super) async fn create_waiting(
        &mut self,
        conn: &mut PgConnection,
    ) -> Result<(), StepError> {
        for number in search::unsubmitted(conn, self.id).await? {
            let trial = &self.study().trials()[number as usize];
            if trial.state == TrialState::Running {
                let from = trial.from;
                self.create(conn, number, from).await?;
            }
        }
        Ok(())
    }

    /// Whether the limits of the tenant leave room for this job besides the others of this step.
    /// The store checks again at submission.
    async fn has_room(
        &mut self,
        conn: &mut PgConnection,
        spec: &JobSpec,
    ) -> Result<bool, StepError> {
        let mut room = match self.room {
            Some(room) => room,
            None => limit::room(conn, self.loaded.tenant_id).await?,
        };
        let fits = room.take(limit::document_bytes(spec));
        self.room = Some(room);
        if !fits {
            tracing::debug!("a trial waits for the tenant's limits");
        }
        Ok(fits)
    }

    /// Checkpoint from which a trial starts, or the reason why there is none.
    async fn origin(
        &mut self,
        conn: &mut PgConnection,
        from: TrialCheckpoint,
    ) -> Result<Result<Origin, String>, StepError> {
        let parent = match self.job(from.trial) {
            Ok(parent) => parent,
            Err(why) => return Ok(Err(why)),
        };
        if parent.command.is_some() {
            // The checkpoint is a copy of the program's folder at the end of that rung.
            let job = self.job_of(conn, from.trial).await?;
            let origin = job.map(|job| Origin {
                job,
                step: Some(from.step),
            });
            return Ok(origin.ok_or_else(|| format!("the job of trial {} is gone", from.trial)));
        }
        let unit = match self.study().spec().budget.unit {
            BudgetUnit::Epochs => parent.steps_per_epoch(),
            BudgetUnit::Steps => 1,
        };
        let (first, end) = (from.step * unit, (from.step + 1) * unit);
        let job = self.job_of(conn, from.trial).await?;
        let step = match job {
            Some(job) => origin::newest_between(conn, job, (first, end)).await?,
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

    /// Reports the failure of a trial to the search and stores its reason.
    pub(super) fn fail(&mut self, number: u32, why: String) {
        self.notes.entry(number).or_default().failure = Some(why);
        self.queue.push_back(SearchEvent::Failed { trial: number });
    }

    /// Job of a trial with its present budget, or the error in it, which depends on the trial's
    /// point.
    fn job(&self, number: u32) -> Result<JobSpec, String> {
        let trial = &self.study().trials()[number as usize];
        let (document, space) = (&self.loaded.document, self.study().space());
        let spec = document
            .trial(space, number, &trial.point, trial.seed, trial.budget)
            .map_err(|error| error.to_string())?;
        spec.validate().map_err(|errors| errors[0].to_string())?;
        Ok(spec)
    }

    pub(super) async fn go_on(
        &mut self,
        conn: &mut PgConnection,
        number: u32,
    ) -> Result<(), StepError> {
        let has_jobs = self.has_jobs();
        let note = self.notes.entry(number).or_default();
        note.end_fed = Some(false);
        if !has_jobs {
            note.open = true;
            return Ok(());
        }
        let job_id = self.job_of(conn, number).await?;
        let extended = match (job_id, self.job(number)) {
            (Some(id), Ok(spec)) => {
                let may = search::may_extend(conn, id).await?;
                let spec = Box::new(spec);
                self.writes
                    .extend(may.then_some(JobWrite::Extend { id, spec }));
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

    pub(super) async fn stop(
        &mut self,
        conn: &mut PgConnection,
        number: u32,
    ) -> Result<(), StepError> {
        if self.study().trials()[number as usize].state != TrialState::Stopping {
            return Ok(());
        }
        match self.job_of(conn, number).await? {
            // A job that has ended meanwhile is reported as a fact.
            Some(id) => self.writes.push(JobWrite::Cancel { id }),
            None => self.queue.push_back(SearchEvent::Stopped { trial: number }),
        }
        Ok(())
    }

    async fn job_of(
        &mut self,
        conn: &mut PgConnection,
        number: u32,
    ) -> Result<Option<JobId>, StepError> {
        if let Some(id) = self.notes.get(&number).and_then(|note| note.job_id) {
            return Ok(Some(id));
        }
        Ok(search::jobs(conn, self.id, &[number])
            .await?
            .remove(&number))
    }

    /// Writes the changes of jobs.
    pub(super) async fn write(&mut self, conn: &mut PgConnection) -> Result<(), StepError> {
        for write in std::mem::take(&mut self.writes) {
            match write {
                JobWrite::Submit { new, number } => {
                    search::submit(conn, &new, self.id, number, self.now).await?;
                }
                // The job was deleted after the step had read it.
                JobWrite::Extend { id, spec } => {
                    if !search::extend(conn, id, &spec, self.now).await? {
                        return Err(StepError::Overtaken);
                    }
                }
                JobWrite::Cancel { id } => {
                    job::set_intent(conn, id, Intent::Cancel, None, self.now).await?;
                }
            }
        }
        Ok(())
    }
}
