//! The trainings of a workload: what each job's program plays, and the job's document.

use anyhow::Context as _;
use muster_e2e::played::PlayedTraining;
use muster_lab::reference_simulators::{Application, Cluster, NodeGroup, Profiles};
use muster_lab::trace::{TraceJob, Workload};
use muster_sim::core::learn::{BatchLimits, BatchSplit, Batching};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Seconds without progress after a change of nodes, by the rules of Pollux' artefact.
const RESTART_S: f64 = 30.0;

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
            let application = profiles.applications.get(&kind.0);
            let application = application.with_context(|| format!("no profile of {}", kind.0))?;
            let training = training(application, kind.1, cluster, line_s)?;
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
        let most = training.step_s.last().map_or(1, Vec::len);
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
    application: &Application,
    batch: u32,
    cluster: &Cluster,
    line_s: f64,
) -> anyhow::Result<PlayedTraining> {
    let [NodeGroup { nodes, gpus, .. }] = cluster.groups.as_slice() else {
        anyhow::bail!("the trial needs equal nodes");
    };
    let scale = f64::from(batch) / f64::from(application.init_batch);
    let steps = (0..application.epochs).map(|epoch| {
        let work = application.progress_until(epoch + 1) - application.progress_until(epoch);
        work / application.noise(f64::from(batch), epoch).gain(scale)
    });
    let limits = BatchLimits {
        init: application.init_batch,
        max: application.max_batch,
        min_local: application.min_local,
        max_local: application.max_local,
    };
    // The artefact runs `ncf` on one GPU if the user's batch size is kept.
    let most = if application.name == "ncf" {
        1
    } else {
        limits
            .most_gpus(Batching::Fixed { batch })
            .min(nodes * gpus)
    };
    let mut rows = Vec::new();
    for on in 1..=most.min(*nodes) {
        let row = (1..=most).map(|workers| {
            let split = limits.split(batch, workers);
            step_s(application, &placement(workers, on, *gpus), split)
        });
        rows.push(row.collect::<anyhow::Result<_>>()?);
    }
    Ok(PlayedTraining {
        // Steps of a training are far inside a u64.
        steps: (steps.sum::<f64>().round() as u64).max(1),
        start_s: RESTART_S,
        line_s,
        step_s: rows,
    })
}

/// Seconds of one optimizer step with its accumulated passes.
fn step_s(application: &Application, placement: &[u32], batch: BatchSplit) -> anyhow::Result<f64> {
    let time = application.measured[0].step_time(placement, batch.local);
    let time = time.with_context(|| format!("{} is not measured", application.name))?;
    Ok(time.step_s + (time.step_s - time.sync_s) * f64::from(batch.accumulated))
}

/// GPUs on each of `on` nodes: whole nodes first if that takes as many nodes, else evenly.
fn placement(workers: u32, on: u32, node_gpus: u32) -> Vec<u32> {
    let (whole, rest) = (workers / node_gpus, workers % node_gpus);
    let fewest = whole + u32::from(rest > 0);
    if on.min(workers) <= fewest {
        let mut packed = vec![node_gpus; whole as usize];
        packed.extend((rest > 0).then_some(rest));
        return packed;
    }
    let on = on.min(workers);
    (0..on)
        .map(|node| workers / on + u32::from(node < workers % on))
        .collect()
}

/// Folder that the programs of all nodes can read.
pub fn folder(data: &Path) -> anyhow::Result<PathBuf> {
    let folder = data.join("trainings");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
