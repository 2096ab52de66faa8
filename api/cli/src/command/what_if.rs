//! `muster plan` and `muster what-if`: the effect of a job, of more nodes or of another quota,
//! without a change. The scheduler computes the answer from the present state of the cluster.

use super::forecast::{NEVER, gpu_hours, span, unknown};
use super::{CliSession, UsageError};
use crate::document::{note_start_over, read};
use crate::output::{duration_s, fields, table};
use crate::refused::with_lines;
use clap::Args;
use muster_model::forecast::Interval;
use muster_model::view::{
    AddedNodes, ImaginedJob, ImaginedQuota, PlanView, Shift, ShiftedJob, WhatIf as Asked,
    WhatIfView,
};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The document, YAML or JSON; `-` reads standard input.
    file: PathBuf,
}

#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// Add nodes with this number of GPUs each; may be repeated.
    #[arg(long, value_name = "NODESxGPUS")]
    add_nodes: Vec<NodeGroupArg>,
    /// Change the quota of a tenant to a number or `none`; may be repeated.
    #[arg(long, value_name = "TENANT=GPUS")]
    quota: Vec<QuotaChangeArg>,
    /// Add a job with this document; may be repeated.
    #[arg(long, value_name = "FILE")]
    job: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeGroupArg {
    nodes: u32,
    gpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct QuotaChangeArg {
    tenant: String,
    gpus: Option<u32>,
}

impl PlanArgs {
    /// # Errors
    /// If the document is wrong, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let document = read(&self.file)?;
        let planned = session.client.plan(&document).await;
        let plan = planned.map_err(|error| with_lines(error, Some(&self.file)))?;
        note_start_over(&document);
        session.output.print(&plan, describe_plan)
    }
}

impl WhatIfArgs {
    /// # Errors
    /// If there is no change or a document is wrong, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let nodes = self.add_nodes.iter().map(|add| AddedNodes {
            nodes: add.nodes,
            gpus: add.gpus,
        });
        let quotas = self.quota.iter().map(|quota| ImaginedQuota {
            tenant: quota.tenant.clone(),
            gpu_quota: quota.gpus,
        });
        let mut asked = Asked {
            add_nodes: nodes.collect(),
            quotas: quotas.collect(),
            jobs: Vec::new(),
        };
        for file in &self.job {
            // The server checks the document and fills in defaults.
            let job = session.client.dry_run(&read(file)?).await?;
            asked.jobs.push(ImaginedJob {
                tenant: Some(job.tenant),
                job: job.spec,
            });
        }
        if asked == Asked::default() {
            let all = "--add-nodes, --quota or --job";
            return Err(UsageError(format!("what if what? Give {all}")).into());
        }
        let answer = session.client.what_if(&asked).await?;
        session.output.print(&answer, describe)
    }
}

/// Text for an end that is not foreseen in one of the cases.
const UNKNOWN: &str = "unknown";

fn describe_plan(plan: &PlanView) -> String {
    let text = |interval: Option<Interval>, never: &str| {
        interval.map_or_else(|| never.to_owned(), |found| span(&found, plan.made_at))
    };
    let (start, finish, cost) = match plan.unforeseen {
        Some(why) => (UNKNOWN.to_owned(), unknown(why), UNKNOWN.to_owned()),
        None => (
            NEVER.to_owned(),
            text(plan.finish, NEVER),
            gpu_hours(plan.gpu_hours),
        ),
    };
    let mut text = fields(&[
        ("would start in", text(plan.start, &start)),
        ("would end in", finish),
        ("would cost", cost),
    ]);
    let others = plan.other_jobs;
    let counts = [
        (others.displaced, "displaced"),
        (others.later, "ending later"),
        (others.earlier, "ending earlier"),
    ];
    let counts = counts.into_iter().filter(|&(count, _)| count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if plan.own_jobs.is_empty() && counts.is_empty() {
        text.push_str("\n\nnobody else would be displaced or moved");
    }
    if !plan.own_jobs.is_empty() {
        let rows = plan.own_jobs.iter().map(own_row);
        let own = table(["job", "ends", "displaced"], rows);
        text.push_str(&format!("\n\n{own}"));
    }
    if !counts.is_empty() {
        text.push_str(&format!(
            "\n\nof other tenants' jobs: {}",
            counts.join(", ")
        ));
    }
    text
}

fn own_row(job: &ShiftedJob) -> [String; 3] {
    [
        job.name.clone(),
        shift(job.later_s),
        if job.displaced { "yes" } else { "" }.to_owned(),
    ]
}

/// Returns the change of an end.
fn shift(later_s: Option<f64>) -> String {
    match later_s {
        None => UNKNOWN.to_owned(),
        Some(0.0) => "no change".to_owned(),
        Some(later_s) => {
            let way = if later_s > 0.0 { "later" } else { "earlier" };
            format!("{} {way}", duration_s(later_s.abs()))
        }
    }
}

fn describe(answer: &WhatIfView) -> String {
    if answer.tenants.is_empty() {
        return "no job is there whose times could change".to_owned();
    }
    let tenants = table(
        ["tenant", "jobs", "mean wait", "mean jct"],
        answer.tenants.iter().map(|tenant| {
            [
                tenant.tenant.clone(),
                tenant.jobs.to_string(),
                pair(tenant.wait_s),
                pair(tenant.jct_s),
            ]
        }),
    );
    if answer.jobs.is_empty() {
        return format!("{tenants}\n\nno job would be displaced or moved");
    }
    let jobs = table(
        ["job", "tenant", "shift", "ends in", "displaced"],
        answer.jobs.iter().map(|job| {
            [
                job.name.clone(),
                job.tenant.clone(),
                match job.id {
                    None => "added".to_owned(),
                    Some(_) => shift(job.later_s),
                },
                match (job.finish, job.unforeseen) {
                    (Some(finish), _) => span(&finish, answer.made_at),
                    (None, Some(why)) => unknown(why),
                    (None, None) => NEVER.to_owned(),
                },
                if job.displaced { "yes" } else { "" }.to_owned(),
            ]
        }),
    );
    format!("{tenants}\n\n{jobs}")
}

fn pair(pair: Option<Shift>) -> String {
    pair.map_or_else(
        || "-".to_owned(),
        |pair| format!("{} -> {}", duration_s(pair.before), duration_s(pair.after)),
    )
}

impl FromStr for NodeGroupArg {
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

impl FromStr for QuotaChangeArg {
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
    use super::{NodeGroupArg, QuotaChangeArg};

    fn quota(gpus: Option<u32>) -> QuotaChangeArg {
        QuotaChangeArg {
            tenant: "team".to_owned(),
            gpus,
        }
    }

    #[test]
    fn what_if_changes_are_parsed_or_refused() {
        assert_eq!("2x8".parse(), Ok(NodeGroupArg { nodes: 2, gpus: 8 }));
        for wrong in ["2", "0x8", "2x0", "x", "ax8", "2x65"] {
            assert!(wrong.parse::<NodeGroupArg>().is_err(), "{wrong}");
        }
        assert_eq!("team=16".parse(), Ok(quota(Some(16))));
        assert_eq!("team=none".parse(), Ok(quota(None)));
        for wrong in ["team", "=4", "team=", "team=-1"] {
            assert!(wrong.parse::<QuotaChangeArg>().is_err(), "{wrong}");
        }
    }
}
