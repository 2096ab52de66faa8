//! `muster list`: lists jobs, newest first.

use super::job_table::{self, COLUMNS, short_id};
use super::replay::age;
use super::{CliSession, UsageError};
use crate::clock;
use crate::output::{OutputFormat, counted, table_of};
use crate::terminal::{self, Column, fitted};
use clap::{Args, ValueEnum};
use muster_client::{Client, ClientError, JobQuery};
use muster_model::job::JobPhase;
use muster_model::study::StudyPhase;
use muster_model::view::{JobView, Page, StudyView};
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

const PAGE: u32 = 200;
/// Newest studies of which the open ones are shown under the jobs.
const STUDIES: u32 = 50;

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
    /// Only jobs that you have submitted.
    #[arg(short, long)]
    mine: bool,
    /// Only jobs that this user has submitted.
    #[arg(long, value_name = "NAME", conflicts_with = "mine")]
    user: Option<String>,
    /// Only jobs submitted in the last time, such as 90s, 30m, 12h or 7d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    since: Option<Duration>,
    /// Include trials of studies in the table. Other formats always include them.
    #[arg(long)]
    trials: bool,
    /// Jobs of all tenants; for administrators.
    #[arg(short = 'A', long)]
    all_tenants: bool,
    /// Order of the listed jobs, which are the newest ones up to --limit.
    #[arg(long, value_enum, default_value_t)]
    sort: Order,
    /// Print all columns and whole ids, and the reason why a job failed or waits.
    #[arg(short, long)]
    wide: bool,
    /// Draw the list every two seconds, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// Maximum number of jobs.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Order {
    #[default]
    Newest,
    Oldest,
    Name,
    Phase,
    /// Most workers first.
    Workers,
    /// Jobs that are expected to end soonest first.
    End,
}

/// Jobs of a list, and what is known of the trials that it leaves out.
struct Listed {
    jobs: Page<JobView>,
    open_studies: Vec<StudyView>,
}

impl ListArgs {
    /// # Errors
    /// If a label has no `=`, or the server refuses.
    pub async fn run(mut self, session: &CliSession) -> anyhow::Result<()> {
        if let Some(wrong) = self.label.iter().find(|label| !label.contains('=')) {
            return Err(UsageError(format!("--label is {wrong:?}; expected KEY=VALUE")).into());
        }
        if self.mine {
            self.user = Some(session.client.me().await?.user);
        }
        if self.watch {
            if session.output.is_whole() {
                let problem = "--watch draws a table; leave out --output";
                return Err(UsageError(problem.to_owned()).into());
            }
            return terminal::redraw(|_| self.text(session)).await;
        }
        if session.output == OutputFormat::Table {
            let text = self.text(session).await?;
            return crate::output::line(&text);
        }
        let listed = self.fetch(session).await?;
        session.output.print(&listed.jobs, |_| String::new())
    }

    async fn text(&self, session: &CliSession) -> anyhow::Result<String> {
        let listed = self.fetch(session).await?;
        Ok(self.table(listed))
    }

    /// Whether trials are left out. A name selects them, because trials have names of their own.
    fn is_without_trials(&self, session: &CliSession) -> bool {
        session.output == OutputFormat::Table && !self.trials && self.name.is_none()
    }

    /// Whether the list shows a part of the tenant's jobs, to which studies do not belong.
    fn is_filtered(&self) -> bool {
        let parts = [self.phase.is_empty(), self.label.is_empty()];
        let is_whole = parts == [true; 2] && self.user.is_none() && self.since.is_none();
        self.all_tenants || !is_whole
    }

    async fn fetch(&self, session: &CliSession) -> anyhow::Result<Listed> {
        let client = &session.client;
        let is_without_trials = self.is_without_trials(session);
        let mut jobs = if self.all_tenants {
            self.of_all_tenants(session, is_without_trials).await?
        } else {
            self.of_tenant(client, is_without_trials).await?
        };
        self.sort(&mut jobs.items);
        let open_studies = if is_without_trials && !self.is_filtered() {
            let studies = client.studies(None, STUDIES, None).await?.items;
            let open = studies.into_iter().filter(|study| {
                !matches!(study.phase, StudyPhase::Finished | StudyPhase::Cancelled)
            });
            open.collect()
        } else {
            Vec::new()
        };
        Ok(Listed { jobs, open_studies })
    }

    fn sort(&self, jobs: &mut [JobView]) {
        match self.sort {
            Order::Newest => {}
            Order::Oldest => jobs.reverse(),
            Order::Name => jobs.sort_by(|a, b| a.name.cmp(&b.name)),
            Order::Phase => jobs.sort_by_key(|job| job.phase),
            Order::Workers => jobs.sort_by_key(|job| Reverse(job.workers.running)),
            Order::End => jobs.sort_by_key(|job| {
                let forecast = job.forecast.as_ref();
                let at = forecast.and_then(|one| Some(one.finish.as_ref()?.p50));
                (at.is_none(), at)
            }),
        }
    }

    async fn of_tenant(
        &self,
        client: &Client,
        is_without_trials: bool,
    ) -> Result<Page<JobView>, ClientError> {
        let mut jobs = Page {
            items: Vec::new(),
            next: None,
        };
        loop {
            let left = self.limit as usize - jobs.items.len();
            let page = client
                .jobs(&JobQuery {
                    phases: self.phase.clone(),
                    labels: self.label.clone(),
                    name: self.name.clone(),
                    user: self.user.clone(),
                    submitted_since: self.since.map(|age| clock::now() - age),
                    is_without_trials,
                    limit: Some(PAGE.min(u32::try_from(left).unwrap_or(PAGE))),
                    after: jobs.next.take(),
                    ..JobQuery::default()
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
    async fn of_all_tenants(
        &self,
        session: &CliSession,
        is_without_trials: bool,
    ) -> Result<Page<JobView>, ClientError> {
        let mut all = Page {
            items: Vec::new(),
            next: None,
        };
        for tenant in session.client.tenants().await? {
            let client = session.client.for_tenant(&tenant.name)?;
            let page = self.of_tenant(&client, is_without_trials).await?;
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

    fn table(&self, listed: Listed) -> String {
        let Listed { jobs, open_studies } = listed;
        let mut text = if jobs.items.is_empty() {
            "no jobs".to_owned()
        } else {
            let width = terminal::size().map(|size| size.columns);
            self.rows(&jobs.items, width.filter(|_| !self.wide))
        };
        if jobs.next.is_some() {
            text.push_str("\n(more; raise --limit)");
        }
        for study in open_studies {
            let counts = study.trials;
            let done = counts.completed + counts.stopped + counts.failed;
            let _ = write!(
                text,
                "\nstudy {}: {done} of {} done, {} running; muster study trials {}",
                study.name,
                counted(counts.limit, "trial"),
                counts.running,
                study.name
            );
        }
        text
    }

    /// Returns the table, fitted to the width of the terminal if there is one.
    fn rows(&self, jobs: &[JobView], width: Option<usize>) -> String {
        let mut columns: Vec<Column> = COLUMNS.to_vec();
        if self.all_tenants {
            columns[0].name = "tenant/name";
        }
        let rows = jobs.iter().map(|job| {
            let mut row = job_table::row(job).to_vec();
            if self.all_tenants {
                row[0] = format!("{}/{}", job.tenant, job.name);
            }
            if width.is_some() {
                row[COLUMNS.len() - 1] = short_id(job);
            }
            row.extend(self.wide.then(|| job_table::why(job)));
            row
        });
        match width {
            Some(width) => fitted(&columns, rows.collect(), width),
            None => {
                let names = columns.iter().map(|column| column.name);
                let header: Vec<&str> = names.chain(self.wide.then_some("why")).collect();
                table_of(&header, rows)
            }
        }
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
