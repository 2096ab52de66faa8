//! `muster list`: lists jobs, newest first.

use super::forecast::column;
use super::{CliSession, UsageError};
use crate::clock;
use crate::output::{age, duration_s, table_of};
use clap::Args;
use muster_client::{Client, ClientError, JobQuery};
use muster_model::job::JobPhase;
use muster_model::study::TrialPhase;
use muster_model::view::{Count, JobView, Page, ProgressView};
use std::cmp::Reverse;

const PAGE: u32 = 200;

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only jobs in this phase; may be repeated.
    #[arg(long, value_name = "PHASE", value_parser = phase)]
    phase: Vec<JobPhase>,
    /// Only jobs with this label; may be repeated.
    #[arg(short, long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Only jobs of this name.
    #[arg(long)]
    name: Option<String>,
    /// Jobs of all tenants; for administrators.
    #[arg(short = 'A', long)]
    all_tenants: bool,
    /// Add a column with the reason why a job failed or waits.
    #[arg(short, long)]
    wide: bool,
    /// Maximum number of jobs.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl ListArgs {
    /// # Errors
    /// If a label has no `=`, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        if let Some(wrong) = self.label.iter().find(|label| !label.contains('=')) {
            return Err(UsageError(format!("--label is {wrong:?}; expected KEY=VALUE")).into());
        }
        let jobs = if self.all_tenants {
            self.of_all_tenants(session).await?
        } else {
            self.of_tenant(&session.client).await?
        };
        session.output.print(&jobs, |jobs| self.table(jobs))
    }

    async fn of_tenant(&self, client: &Client) -> Result<Page<JobView>, ClientError> {
        let mut jobs = Page {
            items: Vec::new(),
            next: None,
        };
        loop {
            let left = self.limit as usize - jobs.items.len();
            let page = client
                .jobs(&JobQuery {
                    ids: Vec::new(),
                    phases: self.phase.clone(),
                    labels: self.label.clone(),
                    name: self.name.clone(),
                    limit: Some(PAGE.min(u32::try_from(left).unwrap_or(PAGE))),
                    after: jobs.next.take(),
                })
                .await?;
            jobs.items.extend(page.items);
            jobs.next = page.next;
            if jobs.next.is_none() || jobs.items.len() >= self.limit as usize {
                return Ok(jobs);
            }
        }
    }

    /// Returns the newest jobs of all tenants. Ids increase with the submission over all tenants.
    async fn of_all_tenants(&self, session: &CliSession) -> Result<Page<JobView>, ClientError> {
        let mut all = Page {
            items: Vec::new(),
            next: None,
        };
        for tenant in session.client.tenants().await? {
            let page = self
                .of_tenant(&session.client.for_tenant(&tenant.name)?)
                .await?;
            all.items.extend(page.items);
            all.next = all.next.or(page.next);
        }
        all.items.sort_by_key(|job| Reverse(job.id));
        if all.items.len() > self.limit as usize {
            all.items.truncate(self.limit as usize);
            all.next = all.items.last().map(|job| job.id.to_string());
        }
        Ok(all)
    }

    fn table(&self, jobs: &Page<JobView>) -> String {
        if jobs.items.is_empty() {
            return "no jobs".to_owned();
        }
        let name = if self.all_tenants {
            "tenant/name"
        } else {
            "name"
        };
        let mut header = vec![
            name,
            "phase",
            "workers",
            "ps",
            "progress",
            "train loss",
            "evaluation",
            "starts in",
            "ends in",
            "age",
            "id",
        ];
        header.extend(self.wide.then_some("why"));
        let rows = jobs.items.iter().map(|job| {
            let mut row = row(job).to_vec();
            if self.all_tenants {
                row[0] = format!("{}/{}", job.tenant, job.name);
            }
            row.extend(self.wide.then(|| why(job)));
            row
        });
        let mut text = table_of(&header, rows);
        if jobs.next.is_some() {
            text.push_str("\n(more; raise --limit)");
        }
        text
    }
}

/// Returns `val 98.18%`, or `val loss 0.4321` if no accuracy was logged.
fn evaluation(progress: &ProgressView) -> Option<String> {
    let split = progress.evaluated_on?.label();
    let accuracy = progress.test_accuracy;
    accuracy
        .map(|share| format!("{split} {:.2}%", share * 100.0))
        .or_else(|| {
            progress
                .test_loss
                .map(|loss| format!("{split} loss {loss:.4}"))
        })
}

fn row(job: &JobView) -> [String; 11] {
    let now = clock::now();
    let expected = job.forecast.as_ref();
    let progress = job.progress.as_ref();
    [
        job.name.clone(),
        phase_and_reason(job),
        count(job.workers),
        count(job.ps_shards),
        progress.map_or_else(missing, |p| {
            p.total_steps
                .map_or_else(|| p.step.to_string(), |total| format!("{}/{total}", p.step))
        }),
        progress
            .and_then(|p| p.loss)
            .map_or_else(missing, |loss| format!("{loss:.4}")),
        progress.and_then(evaluation).unwrap_or_else(missing),
        column(expected.and_then(|one| one.start.as_ref()), now),
        match expected.and_then(|one| one.finish.as_ref()) {
            Some(finish) => column(Some(finish), now),
            None => progress
                .and_then(|p| p.eta_s)
                .map_or_else(missing, duration_s),
        },
        age(job.submitted_at, now),
        job.id.to_string(),
    ]
}

fn missing() -> String {
    "-".to_owned()
}

/// Returns the text of the column that `--wide` adds.
fn why(job: &JobView) -> String {
    let failed = job.failure.clone().or_else(|| {
        let last = job.last_failure.as_ref();
        last.filter(|_| !job.phase.is_terminal())
            .map(|last| format!("last failure: {last}"))
    });
    failed
        .or_else(|| job.waiting.as_ref().map(|waiting| waiting.message.clone()))
        .unwrap_or_default()
}

/// Returns the phase, and for a waiting job the reason.
#[must_use]
pub fn phase_and_reason(job: &JobView) -> String {
    let between = job
        .trial
        .is_some_and(|trial| trial.state == TrialPhase::Waiting);
    if between && job.phase == JobPhase::Succeeded {
        return "succeeded (between rungs)".to_owned();
    }
    match &job.waiting {
        // The phase of a paused job already says that it waits for its owner.
        Some(waiting) if job.phase != JobPhase::Paused => {
            format!("{} ({})", job.phase.as_str(), waiting.reason)
        }
        _ => job.phase.as_str().to_owned(),
    }
}

/// Returns `3/2..8` for three running of two to eight.
#[must_use]
pub fn count(count: Count) -> String {
    if count.min == count.max {
        format!("{}/{}", count.running, count.max)
    } else {
        format!("{}/{}..{}", count.running, count.min, count.max)
    }
}

fn phase(text: &str) -> Result<JobPhase, String> {
    JobPhase::ALL
        .into_iter()
        .find(|phase| phase.as_str() == text)
        .ok_or_else(|| {
            let all: Vec<_> = JobPhase::ALL.iter().map(|phase| phase.as_str()).collect();
            format!("expected one of {}", all.join(", "))
        })
}
