//! `muster families`: what is known of the speeds of the tenant's families of jobs.

use super::CliSession;
use crate::clock;
use crate::output::{age, table};
use clap::{Args, Subcommand};
use muster_model::view::{FamilySpeedView, FamilyView};
use serde::Serialize;

#[derive(Debug, Args)]
pub struct FamiliesArgs {
    #[command(subcommand)]
    verb: Option<FamilyVerb>,
}

#[derive(Debug, Subcommand)]
enum FamilyVerb {
    /// List families with their measured speeds by GPU kind and placement (the default)
    List,
    /// Delete the measured speeds of a family; running jobs keep their own speeds by size
    Forget {
        /// Key of the family, as the list shows it.
        family: String,
    },
}

/// Answer to `forget` for programs.
#[derive(Debug, Serialize)]
struct Forgotten {
    forgotten: String,
}

impl FamiliesArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        match self.verb.unwrap_or(FamilyVerb::List) {
            FamilyVerb::List => {
                let families = session.client.families().await?;
                session.output.print(&families, |families| shown(families))
            }
            FamilyVerb::Forget { family } => {
                session.client.forget_family(&family).await?;
                let forgotten = Forgotten { forgotten: family };
                session.output.print(&forgotten, |answer| {
                    format!("family {} is forgotten", answer.forgotten)
                })
            }
        }
    }
}

fn shown(families: &[FamilyView]) -> String {
    let rows = families
        .iter()
        .flat_map(|family| family.speeds.iter().map(move |speed| row(family, speed)));
    table(
        [
            "family",
            "title",
            "gpu kind",
            "workers",
            "ps shards",
            "nodes",
            "steps/s",
            "samples",
            "jobs",
            "age",
        ],
        rows,
    )
}

fn row(family: &FamilyView, speed: &FamilySpeedView) -> [String; 10] {
    [
        family.family.clone(),
        family.title.clone(),
        speed.gpu_kind.clone(),
        speed.workers.to_string(),
        speed.ps_shards.to_string(),
        speed.nodes.to_string(),
        format!("{:.2}", speed.steps_per_s),
        speed.samples.to_string(),
        speed.jobs.to_string(),
        age(speed.observed_at, clock::now()),
    ]
}
