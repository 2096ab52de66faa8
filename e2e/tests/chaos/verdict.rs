//! Conditions that hold when all faults are healed and all jobs have ended.

use crate::databases;
use crate::follower::EventFollower;
use crate::hostile::HostileTenant;
use crate::nemesis::{is_shim, task_of};
use crate::record::FaultRecord;
use crate::schedule::{ChaosFault, NODES};
use crate::stand::{ChaosCluster, KEEP_ENDED_TASKS};
use crate::tenants::{AcceptedJob, LoadKind, STEPS, TRIALS, TenantLoad};
use crate::watcher::connect;
use muster_client::EventQuery;
use muster_e2e::clock;
use muster_e2e::story::CHECKPOINT_EVERY;
use muster_model::event::Event;
use muster_model::job::JobPhase;
use muster_model::view::{EventView, JobView};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// From the end of the last fault.
pub const ENDS_WITHIN: time::Duration = time::Duration::minutes(8);
const HOSTILE_ENDS_WITHIN: time::Duration = time::Duration::minutes(4);
const CLEANED_WITHIN: time::Duration = time::Duration::minutes(2);
const LOOK: Duration = Duration::from_secs(2);

pub struct ChaosVerdict<'a> {
    pub stand: &'a ChaosCluster,
    pub record: &'a FaultRecord,
    pub tenants: &'a TenantLoad,
    pub hostile: &'a HostileTenant,
    pub follower: &'a EventFollower,
}

impl ChaosVerdict<'_> {
    /// Records each broken promise.
    pub async fn reach(&self) {
        self.all_end().await;
        for job in self.tenants.all() {
            self.job_is_right(&job).await;
        }
        self.studies_are_right().await;
        self.each_key_is_one_job().await;
        self.hostile_jobs_end().await;
        self.nothing_leaks().await;
        self.follower_has_all().await;
        if !self.record.broken().is_empty() {
            databases::dump(self.stand);
        }
    }

    async fn all_end(&self) {
        let from = clock::now();
        loop {
            for (tenant, kind) in [
                (0, LoadKind::Training),
                (1, LoadKind::Program),
                (1, LoadKind::Short),
            ] {
                self.tenants.look(tenant, kind, self.record).await;
            }
            let jobs = self.tenants.all();
            let open: Vec<_> = jobs.iter().filter(|job| !job.phase.is_terminal()).collect();
            let mut studies = self.tenants.studies.lock().expect("no panic").clone();
            for index in (0..studies.len()).rev() {
                if self.tenants.has_finished(studies[index]).await {
                    studies.remove(index);
                }
            }
            if open.is_empty() && studies.is_empty() {
                let took = (clock::now() - from).as_seconds_f64();
                eprintln!("chaos: all jobs have ended {took:.0} s after the last fault");
                return;
            }
            if clock::now() - from > ENDS_WITHIN {
                for job in open {
                    let view = self.tenants.job(job).await;
                    let told =
                        view.map(|view| (view.phase, view.revision, view.failures, view.waiting));
                    self.record.broke(&format!(
                        "{:?} {} has not ended: {told:?}",
                        job.kind, job.id
                    ));
                }
                for study in studies {
                    self.record
                        .broke(&format!("study {study} has not finished"));
                }
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn job_is_right(&self, job: &AcceptedJob) {
        let Some(view) = self.tenants.job(job).await else {
            self.record.broke(&format!(
                "{:?} {} was acknowledged and is not there",
                job.kind, job.id
            ));
            return;
        };
        if view.phase != JobPhase::Succeeded {
            self.record
                .broke(&format!("{:?} {} is {:?}", job.kind, job.id, view.phase));
            return;
        }
        self.retries_are_fair(job, &view);
        match job.kind {
            LoadKind::Training => self.training_is_continuous(job).await,
            LoadKind::Program => self.program_ran_once_at_a_time(job),
            LoadKind::Short => {}
        }
    }

    /// Checks that a job is not charged with more failures than faults that can have hit its tasks.
    fn retries_are_fair(&self, job: &AcceptedJob, view: &JobView) {
        let until = view.finished_at.unwrap_or_else(clock::now);
        let margin = time::Duration::seconds(90);
        let faults = self.record.faults().into_iter().filter(|done| {
            let ended = done.until.unwrap_or(until);
            done.planned.fault.reaches_tasks() && done.from <= until && ended + margin >= job.at
        });
        let faults = faults.count();
        if view.failures as usize > faults {
            self.record.broke(&format!(
                "{:?} {} was charged {} failures by {faults} faults: {:?}",
                job.kind, job.id, view.failures, view.last_failure
            ));
        }
    }

    async fn training_is_continuous(&self, job: &AcceptedJob) {
        let client = &self.tenants.clients[job.tenant][0];
        let series = client
            .progress(job.id, None, None)
            .await
            .expect("the series");
        let seen: Vec<u64> = series
            .samples
            .iter()
            .map(|point| point.sample.step)
            .collect();
        let history = self.history(job).await;
        // Reports of a lost node can be missing. Its training continues from a checkpoint beyond
        // the last report.
        let is_restart = |low: u64, high: u64| {
            let resumed = history.iter().filter_map(|entry| match entry.event {
                Event::Resumed { from_step } => Some(from_step),
                _ => None,
            });
            resumed.into_iter().any(|step| low < step && step <= high)
        };
        let is_wide = |pair: &[u64]| pair[1].saturating_sub(pair[0]) > 2 * CHECKPOINT_EVERY;
        let mut gaps = seen.windows(2).filter(|pair| is_wide(pair));
        let samples = &series.samples;
        let newest = seen.last().copied().unwrap_or(0);
        // A restart from the checkpoint of the last step has nothing left to train or to report.
        let is_whole = newest == STEPS || is_restart(STEPS - 1, STEPS);
        let is_right = seen.is_sorted()
            && is_whole
            && gaps.all(|pair| is_restart(pair[0], pair[1]))
            && samples.iter().all(|point| point.sample.loss.is_finite());
        if !is_right {
            self.record.broke(&format!(
                "the series of training {} has a gap: {seen:?}",
                job.id
            ));
        }
        let (mut checkpoint, mut at_placement) = (0, 0);
        for entry in history {
            match entry.event {
                Event::CheckpointWritten {
                    checkpoint: written,
                    ..
                } => checkpoint = checkpoint.max(written.step),
                Event::JobPlaced { .. } => at_placement = checkpoint,
                Event::Resumed { from_step } if from_step < at_placement => {
                    self.record.broke(&format!(
                        "training {} went back to {from_step}, and {at_placement} was acknowledged",
                        job.id
                    ));
                }
                _ => {}
            }
        }
    }

    async fn history(&self, job: &AcceptedJob) -> Vec<EventView> {
        let client = &self.tenants.clients[job.tenant][0];
        let mut history: Vec<EventView> = Vec::new();
        loop {
            let after = history.last().map(|event| event.cursor.clone());
            let page = client
                .events(job.id, &EventQuery { after, limit: None })
                .await;
            let page = page.expect("events");
            history.extend(page.items);
            if page.next.is_none() {
                return history;
            }
        }
    }

    /// Checks the program's own log: revisions are in order, and so are the steps of each. A
    /// machine that was frozen beyond its lease may execute for milliseconds until its shims run
    /// and kill. So one step of each earlier revision may come late; a step takes half a second.
    fn program_ran_once_at_a_time(&self, job: &AcceptedJob) {
        let Some(folder) = found(self.stand.checkpoints(), &job.id.to_string()) else {
            self.record
                .broke(&format!("program {} has no checkpoint folder", job.id));
            return;
        };
        let text = std::fs::read_to_string(folder.join("steps")).unwrap_or_default();
        let mut faults = self.record.faults().into_iter();
        let was_frozen = faults.any(|done| matches!(done.planned.fault, ChaosFault::StopNode(_)));
        let mut before = (0, 0);
        let mut late = BTreeSet::new();
        for line in text.lines() {
            let mut words = line.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
            let (step, revision) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
            let follows = if revision == before.1 {
                step == before.0 + 1
            } else {
                // A step that was logged and not stored is repeated.
                revision > before.1 && (before.0..=before.0 + 1).contains(&step)
            };
            // A task of a frozen machine may execute one step before its shim kills it.
            if revision < before.1 && was_frozen && late.insert(revision) {
                continue;
            }
            if !follows {
                self.record.broke(&format!(
                    "program {} ran twice at a time: step {step} of revision {revision} after {before:?}",
                    job.id
                ));
                return;
            }
            before = (step, revision);
        }
    }

    async fn studies_are_right(&self) {
        let studies = self.tenants.studies.lock().expect("no panic").clone();
        for study in studies {
            let trials = self.tenants.clients[2][0].trials(study, true).await;
            let trials = trials.expect("trials");
            let complete = trials.iter().filter(|trial| trial.curve.len() == 3);
            if trials.len() != TRIALS as usize || complete.count() != trials.len() {
                self.record
                    .broke(&format!("study {study} has not all its trials: {trials:?}"));
            }
        }
    }

    /// Checks that repeated submissions with one key are one job.
    async fn each_key_is_one_job(&self) {
        let mut conn = connect(self.stand).await.expect("all is healed");
        let twice: Vec<(String, i64)> = sqlx::query_as(
            "select j.name, count(*) from job j join tenant t on t.id = j.tenant_id
             where t.name in ('ada', 'bob') group by j.name having count(*) > 1",
        )
        .fetch_all(&mut conn)
        .await
        .expect("an answer");
        if !twice.is_empty() {
            self.record.broke(&format!("submitted twice: {twice:?}"));
        }
    }

    async fn hostile_jobs_end(&self) {
        let from = clock::now();
        loop {
            let open = self.hostile.cancel().await;
            if open == Some(0) {
                return;
            }
            if clock::now() - from > HOSTILE_ENDS_WITHIN {
                self.record
                    .broke(&format!("hostile jobs that do not end: {open:?}"));
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn nothing_leaks(&self) {
        let from = clock::now();
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return;
            }
            if clock::now() - from > CLEANED_WITHIN {
                left.iter()
                    .for_each(|what| self.record.broke(&format!("left: {what}")));
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for process in self.stand.processes() {
            if is_shim(&process) || task_of(&process).is_some() {
                left.push(format!("process {} {:?}", process.pid, process.arguments));
            }
        }
        for node in 0..NODES {
            let folder = self.stand.data(node).join("tasks");
            let count = std::fs::read_dir(&folder).map_or(0, |entries| entries.flatten().count());
            if count > KEEP_ENDED_TASKS {
                left.push(format!("{count} folders of tasks in {}", folder.display()));
            }
        }
        let Some(mut conn) = connect(self.stand).await else {
            left.push("Postgres does not answer".to_owned());
            return left;
        };
        for (what, query) in [
            (
                "tasks",
                "select count(*) from task where released_at is null",
            ),
            (
                "allocations",
                "select count(*) from allocation where released_at is null",
            ),
            (
                "jobs on their way",
                "select count(*) from job where phase in ('starting', 'running', 'suspended', 'stopping')",
            ),
            (
                "nodes that are not up",
                "select count(*) from node where state <> 'up'",
            ),
            (
                "transactions of the daemons older than a minute",
                "select count(*) from pg_stat_activity where usename like 'muster%' and xact_start < now() - interval '1 minute'",
            ),
        ] {
            let count: i64 = sqlx::query_scalar(query)
                .fetch_one(&mut conn)
                .await
                .unwrap_or(-1);
            if count != 0 {
                left.push(format!("{count} {what}"));
            }
        }
        left
    }

    async fn follower_has_all(&self) {
        let from = clock::now();
        loop {
            let mut conn = connect(self.stand).await.expect("all is healed");
            let missing = self.follower.missing(&mut conn).await.expect("an answer");
            if missing.is_empty() {
                return;
            }
            if clock::now() - from > CLEANED_WITHIN {
                self.record
                    .broke(&format!("a follower has not seen {missing:?}"));
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Folder of that name below another, at most two levels deep.
fn found(root: PathBuf, name: &str) -> Option<PathBuf> {
    let mut folders = vec![(root, 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && entry.file_name().to_string_lossy() == name {
                return Some(entry.path());
            }
            if is_folder && depth < 2 {
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    None
}
