//! Effect of a lower quota on running jobs, shown before the change. The round decides; this module
//! follows its rule. Jobs of the lowest priority shrink first, then the newest, each down to its
//! minimum. Whole jobs stop only if that is not sufficient.

use super::UsageError;
use crate::output::{counted, prompt};
use anyhow::bail;
use muster_model::view::{JobView, TenantView};
use std::cmp::Reverse;
use std::io::IsTerminal as _;

/// Names of the jobs that a lower quota affects.
#[derive(Debug, Default, PartialEq, Eq)]
struct QuotaEffect<'j> {
    stopped: Vec<&'j str>,
    smaller: Vec<&'j str>,
}

/// Asks the user for confirmation.
///
/// # Errors
/// [`UsageError`] if there is no terminal, or the answer is no.
pub fn confirm(tenant: &TenantView, quota: u32, jobs: &[JobView]) -> anyhow::Result<()> {
    let text = describe(tenant, quota, &effect(quota, jobs));
    if !std::io::stdin().is_terminal() {
        bail!(UsageError(format!(
            "{text}; nothing was changed, say --yes to do it"
        )));
    }
    prompt(&format!("{text}. Lower it? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => bail!(UsageError("nothing was changed".to_owned())),
    }
}

fn describe(tenant: &TenantView, quota: u32, effect: &QuotaEffect<'_>) -> String {
    let does: Vec<String> = said(&effect.stopped, "stops")
        .into_iter()
        .chain(said(&effect.smaller, "makes smaller"))
        .collect();
    let does = if does.is_empty() {
        "stops some of them".to_owned()
    } else {
        does.join(" and ")
    };
    format!(
        "{} holds {} in {}: a quota of {quota} {does} at once. A stopped job continues from its newest checkpoint, or from the beginning, once there is room",
        tenant.name,
        counted(tenant.gpus_in_use, "GPU"),
        counted(tenant.jobs_in_use, "job"),
    )
}

/// Returns what happens to these jobs; `None` without jobs.
fn said(names: &[&str], what: &str) -> Option<String> {
    let count = counted(u32::try_from(names.len()).unwrap_or(u32::MAX), "job");
    (!names.is_empty()).then(|| format!("{what} {count} ({})", names.join(", ")))
}

fn effect(quota: u32, jobs: &[JobView]) -> QuotaEffect<'_> {
    let mut givers: Vec<&JobView> = jobs.iter().collect();
    givers.sort_by_key(|job| (job.priority, Reverse(job.submitted_at)));
    let held: u32 = jobs.iter().map(holds).sum();
    let excess = held.saturating_sub(quota);
    let mut given = 0;
    // Number of GPUs that each job releases, in the order of release.
    let mut gives: Vec<u32> = Vec::with_capacity(givers.len());
    for job in &givers {
        let part = if given < excess { spare(job) } else { 0 };
        given += part;
        gives.push(part);
    }
    for (job, part) in givers.iter().zip(&mut gives) {
        if given >= excess {
            break;
        }
        given += holds(job) - *part;
        *part = holds(job);
    }
    let mut too_much = given - excess.min(given);
    for part in gives.iter_mut().rev().filter(|part| **part > 0) {
        if *part <= too_much {
            too_much -= *part;
            *part = 0;
        }
    }
    let mut effect = QuotaEffect::default();
    for (job, part) in givers.into_iter().zip(gives) {
        match part {
            0 => {}
            _ if part < holds(job) => effect.smaller.push(&job.name),
            _ => effect.stopped.push(&job.name),
        }
    }
    effect
}

/// Number of GPUs that the job holds. A starting job has at least its minimum.
fn holds(job: &JobView) -> u32 {
    gpus(job, job.workers.running.max(job.workers.min))
}

/// Number of GPUs that the job releases when it shrinks to its minimum.
fn spare(job: &JobView) -> u32 {
    holds(job).saturating_sub(gpus(job, job.workers.min))
}

fn gpus(job: &JobView, workers: u32) -> u32 {
    workers * job.spec.resources.worker.gpus
}
