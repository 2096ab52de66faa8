//! `muster plan` and `muster what-if`: what would come of a job, of more nodes or of another quota, before anything is changed.
//!
//! The newest round that the store keeps is carried forward to the present, here and by the same code as the scheduler's, and
//! forecast with the change and without it. For administrators, because a round holds the jobs of every tenant.

use super::forecast::span;
use super::submit::read;
use super::{NotFound, Session, UsageError};
use crate::clock;
use crate::output::{duration_s, fields, table};
use anyhow::Context as _;
use clap::Args;
use muster_model::forecast::Interval as Shown;
use muster_sim::core::policy::Policy;
use muster_sim::core::snapshot::Snapshot;
use muster_sim::forecast::{Interval, Pace, Settings};
use muster_sim::what_if::{Change, Comparison, JobOutlook, Pair, present, what_if};
use std::path::PathBuf;
use std::str::FromStr;
use time::OffsetDateTime;

/// An end that moves by less is not told.
const MOVED_MS: i64 = 30_000;
const RUNS: u32 = 41;

#[derive(Debug, Args)]
pub struct Plan {
    /// The document, YAML or JSON; `-` reads standard input.
    file: PathBuf,
}

#[derive(Debug, Args)]
pub struct WhatIf {
    /// So many nodes more with so many GPUs each; may be repeated.
    #[arg(long, value_name = "NODESxGPUS")]
    add_nodes: Vec<Nodes>,
    /// Another quota of a tenant, or `none`; may be repeated.
    #[arg(long, value_name = "TENANT=GPUS")]
    quota: Vec<Quota>,
    /// A job of this document; may be repeated.
    #[arg(long, value_name = "FILE")]
    job: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Nodes {
    nodes: u32,
    gpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Quota {
    tenant: String,
    gpus: Option<u32>,
}

impl Plan {
    /// # Errors
    /// What is wrong with the document, or what the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let job = add_job(session, &self.file).await?;
        let comparison = compare(session, &[job]).await?;
        session.output.print(&comparison, describe_plan)
    }
}

impl WhatIf {
    /// # Errors
    /// Nothing to change, what is wrong with a document, or what the server says.
    pub async fn run(self, session: &Session) -> anyhow::Result<()> {
        let nodes = self.add_nodes.iter().map(|add| Change::AddNodes {
            nodes: add.nodes,
            gpus: add.gpus,
        });
        let quotas = self.quota.iter().map(|quota| Change::Quota {
            tenant: quota.tenant.clone(),
            gpu_quota: quota.gpus,
        });
        let mut changes: Vec<Change> = nodes.chain(quotas).collect();
        for file in &self.job {
            changes.push(add_job(session, file).await?);
        }
        if changes.is_empty() {
            let all = "--add-nodes, --quota or --job";
            return Err(UsageError(format!("what if what? Give {all}")).into());
        }
        let comparison = compare(session, &changes).await?;
        session.output.print(&comparison, describe)
    }
}

/// The server checks the document and fills in what it leaves out.
async fn add_job(session: &Session, file: &PathBuf) -> anyhow::Result<Change> {
    let job = session.client.dry_run(&read(file)?).await?;
    Ok(Change::AddJob {
        tenant: job.tenant,
        spec: Box::new(job.spec),
    })
}

async fn compare(session: &Session, changes: &[Change]) -> anyhow::Result<Comparison> {
    let newest = session.client.rounds(None, None).await?;
    let newest = newest.items.first().map(|round| round.number);
    let newest = newest.ok_or_else(|| NotFound("no round was kept yet".to_owned()))?;
    let round = session.client.round(newest).await?;
    let another = "another release than this one wrote the newest round";
    let kept: Snapshot = serde_json::from_str(round.snapshot.get()).context(another)?;
    let policy = round
        .policy
        .with_context(|| format!("round {newest} does not say its policy"))?;
    let policy: Policy = serde_json::from_str(policy.get()).context(another)?;
    let now_ms =
        i64::try_from(clock::now().unix_timestamp_nanos() / 1_000_000).context("read the clock")?;
    let snapshot = present(&kept, &policy, Pace::LIVE, now_ms)?;
    let settings = Settings {
        runs: RUNS,
        seed: 1,
        widen: 1.0,
        pace: Pace::LIVE,
    };
    Ok(what_if(&snapshot, changes, &policy, &settings)?)
}

fn describe_plan(comparison: &Comparison) -> String {
    let now = when(comparison.now_ms);
    let Some(added) = comparison.jobs.iter().find(|job| job.before.is_none()) else {
        return "the job is not there".to_owned();
    };
    let text = |interval: Option<Interval>, never: &str| {
        interval.map_or_else(|| never.to_owned(), |found| span(&shown(found), now))
    };
    let mut text = fields(&[
        (
            "would start in",
            text(added.after.start, "never, as things are"),
        ),
        (
            "would end in",
            text(added.after.finish, "never, as far as can be told"),
        ),
        (
            "would cost",
            format!("{:.2} GPU-hours", added.after.gpu_s / 3_600.0),
        ),
    ]);
    text.push_str(&moved(comparison));
    text
}

fn describe(comparison: &Comparison) -> String {
    let pair = |pair: Option<Pair>| {
        pair.map_or_else(
            || "-".to_owned(),
            |pair| format!("{} -> {}", duration_s(pair.before), duration_s(pair.after)),
        )
    };
    let tenants = table(
        ["tenant", "jobs", "mean wait", "mean jct"],
        comparison.tenants.iter().map(|tenant| {
            [
                tenant.tenant.clone(),
                tenant.jobs.to_string(),
                pair(tenant.wait_s),
                pair(tenant.jct_s),
            ]
        }),
    );
    if comparison.tenants.is_empty() {
        return "no job is there whose times could change".to_owned();
    }
    format!("{tenants}{}", moved(comparison))
}

/// The jobs that would end at another time or be stopped for others, and those that are added.
fn moved(comparison: &Comparison) -> String {
    let now = when(comparison.now_ms);
    let ends = |job: &JobOutlook| {
        let finish = job.after.finish;
        finish.map_or_else(|| "-".to_owned(), |finish| span(&shown(finish), now))
    };
    let rows: Vec<[String; 4]> = comparison
        .jobs
        .iter()
        .filter_map(|job| {
            let shift = match (&job.before, job.moved_ms()) {
                (None, _) => "added".to_owned(),
                (Some(_), Some(ms)) if ms.abs() >= MOVED_MS => {
                    let by = duration_s(ms.abs() as f64 / 1_000.0);
                    format!("{by} {}", if ms > 0 { "later" } else { "earlier" })
                }
                _ if job.is_displaced() => "no change".to_owned(),
                _ => return None,
            };
            let displaced = if job.is_displaced() { "yes" } else { "" };
            Some([job.name.clone(), shift, ends(job), displaced.to_owned()])
        })
        .collect();
    let others = comparison.jobs.iter().any(|job| job.before.is_some());
    if rows.iter().all(|row| row[1] == "added") && others {
        return "\n\nnobody else would be displaced or moved".to_owned();
    }
    if !others {
        return String::new();
    }
    format!(
        "\n\n{}",
        table(["job", "shift", "ends in", "displaced"], rows)
    )
}

fn shown(interval: Interval) -> Shown {
    Shown {
        p10: when(interval.p10_ms),
        p50: when(interval.p50_ms),
        p90: when(interval.p90_ms),
    }
}

fn when(unix_ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('x').and_then(|(nodes, gpus)| {
            let nodes = nodes.parse().ok().filter(|n| (1..=10_000).contains(n))?;
            let gpus = gpus.parse().ok().filter(|n| (1..=64).contains(n))?;
            Some(Self { nodes, gpus })
        });
        parts.ok_or_else(|| format!("{text:?} is not such as 2x8: two nodes of eight GPUs"))
    }
}

impl FromStr for Quota {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(tenant, gpus)| {
            let gpus = match gpus {
                "none" => None,
                number => Some(number.parse().ok()?),
            };
            let tenant = tenant.to_owned();
            (!tenant.is_empty()).then_some(Self { tenant, gpus })
        });
        parts.ok_or_else(|| format!("{text:?} is not such as vision=16 or vision=none"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Nodes, Quota};

    #[test]
    fn changes_are_read_or_refused() {
        assert_eq!("2x8".parse(), Ok(Nodes { nodes: 2, gpus: 8 }));
        for wrong in ["2", "0x8", "2x0", "x", "ax8", "2x65"] {
            assert!(wrong.parse::<Nodes>().is_err(), "{wrong}");
        }
        let quota = |gpus| Quota {
            tenant: "team".to_owned(),
            gpus,
        };
        assert_eq!("team=16".parse(), Ok(quota(Some(16))));
        assert_eq!("team=none".parse(), Ok(quota(None)));
        for wrong in ["team", "=4", "team=", "team=-1"] {
            assert!(wrong.parse::<Quota>().is_err(), "{wrong}");
        }
    }
}
