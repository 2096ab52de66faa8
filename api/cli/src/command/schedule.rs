//! `muster schedule`: jobs at the times of a cron expression.

use super::{CliSession, code};
use crate::clock;
use crate::document::read;
use crate::output::{age, fields, table};
use crate::refused::with_lines_of;
use clap::{Args, Subcommand};
use muster_model::schedule::{CatchUp, Overlap, SchedulePause, ScheduleResult, ScheduleRun};
use muster_model::view::ScheduleView;
use serde_json::json;
use std::path::PathBuf;
use time::OffsetDateTime;

#[derive(Debug, Args)]
pub struct ScheduleArgs {
    #[command(subcommand)]
    verb: Option<ScheduleVerb>,
}

#[derive(Debug, Subcommand)]
enum ScheduleVerb {
    /// List the schedules of the tenant with their next and last times (the default)
    #[command(visible_alias = "ls")]
    List,
    /// Create or replace a schedule
    Set(Box<SetArgs>),
    /// Show a schedule, its next times and its last result
    Show { name: String },
    /// Submit no more jobs until it is resumed
    Pause { name: String },
    /// Submit jobs again; times of the pause are not caught up
    Resume { name: String },
    /// Submit a job now, in addition to the planned ones
    RunNow { name: String },
    /// Delete a schedule; its jobs stay
    Delete { name: String },
}

/// Create or replace a schedule. Its jobs belong to you and have the label schedule=NAME.
#[derive(Debug, Args)]
struct SetArgs {
    /// Name of the schedule: letters a-z, digits and '-'.
    name: String,
    /// Document of the jobs, YAML or JSON; `-` reads standard input.
    file: PathBuf,
    /// Minute, hour, day of month, month and day of week, such as "0 3 * * mon-fri"; or @hourly,
    /// @daily, @weekly, @monthly or @yearly.
    #[arg(long)]
    cron: String,
    /// IANA name of the time zone of the expression.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
    /// What happens after a downtime of the cluster: none skips the missed times, latest submits
    /// one job for the newest.
    #[arg(long, value_name = "none|latest", default_value = "none", value_parser = catch_up)]
    catch_up: CatchUp,
    /// Whether a job is submitted while the last one has not ended: allow or skip.
    #[arg(long, value_name = "allow|skip", default_value = "allow", value_parser = overlap)]
    overlap: Overlap,
    /// Send this folder as the program's code (command.code).
    #[arg(long, value_name = "FOLDER")]
    code: Option<PathBuf>,
}

fn catch_up(text: &str) -> Result<CatchUp, String> {
    CatchUp::of_name(text).ok_or_else(|| "expected none or latest".to_owned())
}

fn overlap(text: &str) -> Result<Overlap, String> {
    Overlap::of_name(text).ok_or_else(|| "expected allow or skip".to_owned())
}

impl ScheduleArgs {
    /// # Errors
    /// If the file cannot be read, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let client = &session.client;
        let schedule = match self.verb.unwrap_or(ScheduleVerb::List) {
            ScheduleVerb::List => {
                let schedules = client.schedules().await?;
                return session.output.print(&schedules, |all| listed(all));
            }
            ScheduleVerb::RunNow { name } => {
                let job = client.run_schedule(&name).await?;
                return session.output.print(&job, |job| {
                    format!("job {} ({}) submitted", job.name, job.id)
                });
            }
            ScheduleVerb::Delete { name } => {
                client.delete_schedule(&name).await?;
                return session.print_deleted(name, |name| {
                    format!("schedule {name} deleted; its jobs stay")
                });
            }
            ScheduleVerb::Set(set) => set.run(session).await?,
            ScheduleVerb::Show { name } => client.schedule(&name).await?,
            ScheduleVerb::Pause { name } => client.pause_schedule(&name).await?,
            ScheduleVerb::Resume { name } => client.resume_schedule(&name).await?,
        };
        session.output.print(&schedule, shown)
    }
}

impl SetArgs {
    async fn run(self, session: &CliSession) -> anyhow::Result<ScheduleView> {
        let mut job = read(&self.file)?;
        if let Some(folder) = &self.code {
            let packed = code::pack(folder)?;
            code::name_in(&mut job, &packed.sha256)?;
            code::upload(session, packed).await?;
        }
        let document = json!({
            "cron": self.cron, "time_zone": self.time_zone, "catch_up": self.catch_up,
            "overlap": self.overlap, "job": job,
        });
        let stored = session.client.set_schedule(&self.name, &document).await;
        stored.map_err(|error| with_lines_of(error, Some(&self.file), "job."))
    }
}

fn listed(schedules: &[ScheduleView]) -> String {
    let now = clock::now();
    table(
        [
            "name",
            "cron",
            "time zone",
            "next",
            "last",
            "result",
            "owner",
        ],
        schedules.iter().map(|schedule| {
            let last = schedule.last.as_ref();
            [
                schedule.name.clone(),
                schedule.document.cron.clone(),
                schedule.document.time_zone.clone(),
                next(schedule, now),
                last.map_or_else(String::new, |last| {
                    format!("{} ago", age(last.planned_at, now))
                }),
                last.map_or_else(String::new, result),
                schedule.owner.clone(),
            ]
        }),
    )
}

fn shown(schedule: &ScheduleView) -> String {
    let now = clock::now();
    let document = &schedule.document;
    let times: Vec<&str> = schedule.next.iter().map(|at| at.local.as_str()).collect();
    let last = schedule.last.as_ref().map_or_else(
        || "none yet".to_owned(),
        |last| format!("{} ago: {}", age(last.planned_at, now), result(last)),
    );
    let jobs = format!("muster list --label schedule={}", schedule.name);
    fields(&[
        ("schedule", schedule.name.clone()),
        (
            "cron",
            format!("{} ({})", document.cron, document.time_zone),
        ),
        ("catch up", document.catch_up.as_str().to_owned()),
        ("overlap", document.overlap.as_str().to_owned()),
        ("owner", schedule.owner.clone()),
        ("next", next(schedule, now)),
        ("next times", times.join(", ")),
        ("last", last),
        ("job", document.job.name.clone()),
        ("jobs", jobs),
    ])
}

/// Returns the time until the next job, or why there is none.
fn next(schedule: &ScheduleView, now: OffsetDateTime) -> String {
    match (schedule.paused, schedule.next.first()) {
        (Some(SchedulePause::ByUser), _) => "paused".to_owned(),
        (Some(SchedulePause::OwnerWithoutToken), _) => {
            "paused: the owner has no valid token".to_owned()
        }
        (None, Some(next)) => format!("in {}", age(now, next.at)),
        (None, None) => "never".to_owned(),
    }
}

fn result(last: &ScheduleRun) -> String {
    match &last.result {
        ScheduleResult::Submitted { job } => format!("job {job}"),
        ScheduleResult::Skipped { reason } => format!("skipped: {reason}"),
        ScheduleResult::Refused { reason } => format!("refused: {reason}"),
    }
}
