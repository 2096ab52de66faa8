//! The trainings of a workload: what each job's program plays, and the job's document.

use anyhow::Context as _;
use muster_e2e::played::PlayedTraining;
use muster_lab::live::{self, LiveRunSettings};
use muster_lab::reference_simulators::{Cluster, ProfiledTraining, Profiles};
use muster_lab::trace::{TraceJob, Workload};
use muster_sim::scenario::TrueSpeed;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Jobs of one application and batch size.
pub type Kind = (String, u32);

/// Trainings of a workload's jobs on the nodes of the cluster.
pub struct Trainings {
    by_kind: BTreeMap<Kind, PlayedTraining>,
    /// Program that plays them.
    program: PathBuf,
    /// Folder with a file for each of them.
    folder: PathBuf,
}

impl Trainings {
    /// Reads the trainings of the workload's jobs from the profiles and writes their files.
    pub fn write(
        profiles: &Profiles,
        workload: &Workload,
        cluster: &Cluster,
        (program, folder, line_s): (PathBuf, PathBuf, f64),
    ) -> anyhow::Result<Self> {
        let mut by_kind = BTreeMap::new();
        for job in &workload.jobs {
            let kind = kind(job)?;
            if by_kind.contains_key(&kind) {
                continue;
            }
            let training = training(profiles, cluster, job, line_s)?;
            let path = folder.join(file(&kind));
            std::fs::write(&path, serde_json::to_vec(&training)?)?;
            by_kind.insert(kind, training);
        }
        Ok(Self {
            by_kind,
            program,
            folder,
        })
    }

    /// Returns the document of a job. Jobs of one application and batch size differ only in their
    /// labels, so they are one family.
    pub fn document(&self, job: &TraceJob) -> anyhow::Result<Value> {
        let kind = kind(job)?;
        let training = &self.by_kind[&kind];
        let rows = training.step_s.values().flatten();
        let most = rows.map(Vec::len).max().unwrap_or(1);
        Ok(json!({
            "version": "muster/v1",
            "name": name(&kind),
            "labels": { "trace": job.name },
            "command": {
                "argv": [self.program, self.folder.join(file(&kind))],
                "steps": training.steps,
                "ends": "first_worker",
            },
            "scale": { "workers": { "min": 1, "max": most } },
            "resources": { "worker": { "gpus": 1, "cpu_milli": 0, "memory_bytes": 64 << 20 } },
            // Simulated stops lose no work. These lose none either, if the program is asked.
            "preemption": { "checkpoint_on_request": { "signal": "USR1", "timeout_s": 600 } },
        }))
    }
}

fn kind(job: &TraceJob) -> anyhow::Result<Kind> {
    let batch = job
        .batch()
        .with_context(|| format!("{} has no batch", job.name))?;
    Ok((job.kind.clone(), batch))
}

fn name((application, batch): &Kind) -> String {
    format!("{application}-{batch}")
}

fn file(kind: &Kind) -> String {
    format!("{}.json", name(kind))
}

fn training(
    profiles: &Profiles,
    cluster: &Cluster,
    job: &TraceJob,
    line_s: f64,
) -> anyhow::Result<PlayedTraining> {
    let rules = live::rules(profiles);
    let training = ProfiledTraining::fixed(profiles, rules, cluster, job)?;
    let TrueSpeed::Table(speeds) = training.speed else {
        anyhow::bail!("a training with its user's batch has a table of speeds");
    };
    let mut step_s = speeds.by_kind;
    for steps_per_s in step_s.values_mut().flatten().flatten() {
        *steps_per_s = 1.0 / *steps_per_s;
    }
    Ok(PlayedTraining {
        steps: training.steps,
        // The rest of a restart is the stop.
        start_s: training.restart_s - LiveRunSettings::STOP_S,
        line_s,
        step_s,
    })
}

/// Folder that the programs of all nodes can read.
pub fn folder(data: &Path) -> anyhow::Result<PathBuf> {
    let folder = data.join("trainings");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
