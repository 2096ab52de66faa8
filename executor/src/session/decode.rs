//! Conversion of the scheduler's assignment to the types of the model.

use crate::loop_event::{DecodedAssignment, DecodedTask};
use muster_model::assignment::{Peers, TaskLaunch};
use muster_proto::session::{AssignedJob, AssignedTask as Sent, Assignment};
use serde_json::Value;
use std::collections::BTreeMap;

/// An assignment that this version cannot read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("cannot read the {part} of task {place} in the assignment of generation {generation}")]
    Task {
        generation: u64,
        place: usize,
        part: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("cannot read the {part} of job {job:?} in the assignment of generation {generation}")]
    Job {
        generation: u64,
        job: String,
        part: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error(
        "task {place} in the assignment of generation {generation} is of job {job:?}, which is not in it"
    )]
    NoSuchJob {
        generation: u64,
        place: usize,
        job: String,
    },
}

impl Unreadable {
    fn of_job(
        generation: u64,
        job: &AssignedJob,
        part: &'static str,
    ) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Job {
            generation,
            job: job.job_id.clone(),
            part,
            source,
        }
    }

    fn of_task(
        (generation, place): (u64, usize),
        part: &'static str,
    ) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Task {
            generation,
            place,
            part,
            source,
        }
    }
}

/// Received parts of an assignment that is still incomplete.
#[derive(Debug, Default)]
pub struct PartialAssignment(Assignment);

impl PartialAssignment {
    /// Adds a part; returns the whole assignment if it is the last. Parts of another generation are
    /// dropped, because the scheduler has started again.
    pub fn add(&mut self, part: Assignment) -> Option<Assignment> {
        if part.generation != self.0.generation {
            self.0 = Assignment::default();
        }
        let is_partial = part.is_partial;
        self.0.generation = part.generation;
        self.0.tasks.extend(part.tasks);
        self.0.jobs.extend(part.jobs);
        (!is_partial).then(|| std::mem::take(&mut self.0))
    }
}

/// Data that the tasks of a job share.
struct SharedJobData {
    spec: Value,
    peers: Peers,
}

/// Converts the whole assignment. A task that were left out would be stopped, so any error rejects
/// it.
///
/// # Errors
/// The first part that this version cannot read.
pub fn assignment(message: &Assignment) -> Result<DecodedAssignment, Unreadable> {
    let generation = message.generation;
    let jobs = message.jobs.iter();
    let jobs = jobs.map(|job| Ok((job.job_id.as_str(), shared(generation, job)?)));
    let jobs: BTreeMap<&str, SharedJobData> = jobs.collect::<Result<_, _>>()?;
    let tasks = message.tasks.iter().enumerate();
    let tasks = tasks.map(|(place, sent)| task((generation, place), sent, &jobs));
    Ok(DecodedAssignment {
        generation,
        tasks: tasks.collect::<Result<_, _>>()?,
    })
}

fn shared(generation: u64, job: &AssignedJob) -> Result<SharedJobData, Unreadable> {
    let spec = serde_json::from_str(&job.spec_json);
    let peers = serde_json::from_str(&job.peers_json);
    Ok(SharedJobData {
        spec: spec.map_err(Unreadable::of_job(generation, job, "document"))?,
        peers: peers.map_err(Unreadable::of_job(generation, job, "peers"))?,
    })
}

fn task(
    (generation, place): (u64, usize),
    sent: &Sent,
    jobs: &BTreeMap<&str, SharedJobData>,
) -> Result<DecodedTask, Unreadable> {
    let at = (generation, place);
    let (stop, asks) = (sent.stop, sent.stop && sent.asks);
    // A scheduler of the previous release sends complete tasks.
    if !sent.peers_json.is_empty() {
        return Ok(DecodedTask {
            launch: serde_json::from_str(&sent.launch_json)
                .map_err(Unreadable::of_task(at, "launch"))?,
            peers: serde_json::from_str(&sent.peers_json)
                .map_err(Unreadable::of_task(at, "peers"))?,
            stop,
            asks,
        });
    }
    let mut launch: Value =
        serde_json::from_str(&sent.launch_json).map_err(Unreadable::of_task(at, "launch"))?;
    let job = launch["job_id"].as_str().unwrap_or_default().to_owned();
    let Some(shared) = jobs.get(job.as_str()) else {
        return Err(Unreadable::NoSuchJob {
            generation,
            place,
            job,
        });
    };
    if let Value::Object(fields) = &mut launch {
        fields.insert("spec".to_owned(), shared.spec.clone());
    }
    let launch: TaskLaunch =
        serde_json::from_value(launch).map_err(Unreadable::of_task(at, "launch"))?;
    Ok(DecodedTask {
        launch,
        peers: shared.peers.clone(),
        stop,
        asks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const JOB: &str = "00000000-0000-0000-0000-000000000001";

    fn launch(task: u32) -> Value {
        json!({
            "task_id": format!("00000000-0000-0000-0000-00000000010{task}"), "job_id": JOB,
            "tenant_id": "00000000-0000-0000-0000-000000000002", "revision": 1, "role": { "kind": "worker", "rank": task },
            "workers": 2, "ps_shards": 0, "gpus": [task], "cpu_milli": 0, "memory_bytes": 1, "secret": "s",
            "resume_step": null, "trained_s": 0.0, "grace_ms": 100,
        })
    }

    fn spec() -> Value {
        json!({ "version": "muster/v1", "name": "job", "command": { "argv": ["true"] } })
    }

    fn sent(launch: &Value, peers: &str) -> Sent {
        Sent {
            launch_json: launch.to_string(),
            peers_json: peers.to_owned(),
            stop: false,
            asks: false,
        }
    }

    fn peers() -> String {
        serde_json::to_string(&Peers {
            revision: 1,
            ..Peers::default()
        })
        .expect("JSON")
    }

    #[test]
    fn parts_decode_to_the_same_assignment_as_the_whole() {
        let tasks = [0, 1].map(|task| {
            let mut launch = launch(task);
            launch["spec"] = spec();
            sent(&launch, &peers())
        });
        let whole = Assignment {
            generation: 3,
            tasks: tasks.into(),
            ..Assignment::default()
        };
        let first = Assignment {
            generation: 3,
            tasks: vec![sent(&launch(0), "")],
            jobs: vec![AssignedJob {
                job_id: JOB.to_owned(),
                spec_json: spec().to_string(),
                peers_json: peers(),
            }],
            is_partial: true,
        };
        let last = Assignment {
            generation: 3,
            tasks: vec![sent(&launch(1), "")],
            ..Assignment::default()
        };
        let mut parts = PartialAssignment::default();
        let cut_off = Assignment {
            generation: 2,
            ..first.clone()
        };
        assert_eq!(parts.add(cut_off), None);
        assert_eq!(parts.add(first), None);
        let together = parts.add(last).expect("that was the last part");
        let (together, whole) = (assignment(&together), assignment(&whole));
        let (together, whole) = (together.expect("readable"), whole.expect("readable"));
        assert_eq!(together, whole);
        assert_eq!(whole.tasks.len(), 2);
    }

    #[test]
    fn a_task_without_its_job_refuses_the_assignment() {
        let message = Assignment {
            generation: 3,
            tasks: vec![sent(&launch(0), "")],
            ..Assignment::default()
        };
        let refused = assignment(&message).expect_err("its document is missing");
        assert!(refused.to_string().contains(JOB), "{refused}");
    }
}
