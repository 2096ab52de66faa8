//! Encodes a node's assignment as messages. The document and the peers of a job are sent once per
//! node. Parts are far below the largest message. An executor of the previous release receives one
//! message with both in each task.
//!
//! A job that is too large to be sent fails alone. Its tasks are sent as tasks to stop, without the
//! large parts. A node that runs them stops them; another node reports that they never started.

use super::encode;
use muster_model::assignment::Peers;
use muster_model::id::JobId;
use muster_model::spec::JobSpec;
use muster_proto::MAX_MESSAGE_BYTES;
use muster_proto::session as proto;
use muster_store::assignment::{NodeAssignment, TaskAssignment};
use std::collections::{BTreeMap, BTreeSet};

/// Size at which a part is closed; one job's document and peers may exceed it.
const PART_BYTES: usize = 4 << 20;
/// Maximum size of one message, with room for its frame.
const LIMIT_BYTES: usize = MAX_MESSAGE_BYTES - (1 << 20);
/// Maximum bytes of tags and lengths of one entry and its fields.
const FRAME_BYTES: usize = 64;
/// Placeholder of a document that is not sent.
const NO_DOCUMENT: &str = r#"{"version":"muster/v1","name":"not-sent"}"#;

/// Messages of one generation in order, and the jobs that they do not contain.
#[derive(Debug)]
pub struct EncodedAssignment {
    pub messages: Vec<proto::Assignment>,
    pub unsendable: Vec<Unsendable>,
}

/// Job whose part of a node's assignment is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "what its {tasks} tasks on node {node} need to start is {bytes} bytes; expected at most {limit_bytes} bytes to one node: ask for fewer tasks (scale), or for a smaller document"
)]
pub struct Unsendable {
    pub job: JobId,
    pub node: String,
    pub tasks: usize,
    pub bytes: usize,
    pub limit_bytes: usize,
}

/// Executor that receives the assignment.
#[derive(Debug, Clone)]
pub struct Addressee {
    /// Name of the node.
    pub node: String,
    /// Whether the executor accepts an assignment in parts.
    pub takes_parts: bool,
}

impl Addressee {
    /// Encodes the assignment for this executor.
    pub fn encode(&self, assignment: &NodeAssignment) -> EncodedAssignment {
        self.encode_within(assignment, LIMIT_BYTES)
    }

    fn encode_within(&self, assignment: &NodeAssignment, limit_bytes: usize) -> EncodedAssignment {
        let mut jobs: BTreeMap<JobId, EncodedJob> = BTreeMap::new();
        for task in &assignment.tasks {
            let job = jobs.entry(task.launch.job_id);
            job.or_insert_with(|| EncodedJob::of(task)).add(task);
        }
        let unsendable = self.unsendable(&jobs, limit_bytes);
        let left_out: BTreeSet<JobId> = unsendable.iter().map(|one| one.job).collect();
        let jobs = jobs.into_iter().map(|(id, job)| {
            let is_left_out = left_out.contains(&id);
            (id, if is_left_out { job.left_out() } else { job })
        });
        let messages = if self.takes_parts {
            in_parts(assignment.generation, jobs)
        } else {
            vec![in_one(assignment.generation, jobs)]
        };
        EncodedAssignment {
            messages,
            unsendable,
        }
    }

    /// Bytes of the job in a message to this executor.
    fn bytes_of(&self, job: &EncodedJob) -> usize {
        if self.takes_parts {
            job.shared_bytes()
        } else {
            job.bytes()
        }
    }

    /// Jobs to leave out so that the others fit, largest first.
    fn unsendable(
        &self,
        jobs: &BTreeMap<JobId, EncodedJob>,
        limit_bytes: usize,
    ) -> Vec<Unsendable> {
        let sizes = jobs.iter().map(|(id, job)| (self.bytes_of(job), *id));
        let mut sizes: Vec<(usize, JobId)> = sizes.collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut total: usize = sizes.iter().map(|(bytes, _)| bytes).sum();
        let mut unsendable = Vec::new();
        for (bytes, id) in sizes {
            // In parts each job has its own limit.
            let measured = if self.takes_parts { bytes } else { total };
            if measured <= limit_bytes {
                break;
            }
            total -= bytes;
            unsendable.push(Unsendable {
                job: id,
                node: self.node.clone(),
                tasks: jobs[&id].tasks.len(),
                bytes,
                limit_bytes,
            });
        }
        unsendable
    }
}

/// Encoded tasks of a job on the node.
struct EncodedJob {
    spec_json: String,
    peers_json: String,
    tasks: Vec<EncodedTask>,
}

struct EncodedTask {
    /// Without the document.
    launch: serde_json::Map<String, serde_json::Value>,
    launch_json: String,
    stop: bool,
    asks: bool,
}

impl EncodedJob {
    fn of(task: &TaskAssignment) -> Self {
        Self {
            spec_json: encode(&task.launch.spec),
            peers_json: encode(&*task.peers),
            tasks: Vec::new(),
        }
    }

    fn add(&mut self, task: &TaskAssignment) {
        let launch = serde_json::to_value(&task.launch).expect("a launch is JSON");
        let serde_json::Value::Object(mut launch) = launch else {
            unreachable!("a launch is an object")
        };
        launch.remove("spec");
        self.tasks.push(EncodedTask {
            launch_json: encode(&launch),
            launch,
            stop: task.stop,
            asks: task.asks,
        });
    }

    /// Bytes that its tasks share.
    fn shared_bytes(&self) -> usize {
        self.spec_json.len() + self.peers_json.len() + FRAME_BYTES
    }

    /// Bytes with the shared data in each task.
    fn bytes(&self) -> usize {
        let own: usize = self.tasks.iter().map(|task| task.launch_json.len()).sum();
        own + self.tasks.len() * self.shared_bytes()
    }

    /// Returns the tasks alone, as tasks to stop.
    fn left_out(mut self) -> Self {
        self.spec_json = NO_DOCUMENT.to_owned();
        self.peers_json = encode(&Peers::default());
        for task in &mut self.tasks {
            (task.stop, task.asks) = (true, false);
        }
        self
    }
}

fn in_one(generation: u64, jobs: impl Iterator<Item = (JobId, EncodedJob)>) -> proto::Assignment {
    let mut tasks = Vec::new();
    for (_, job) in jobs {
        let spec: JobSpec = serde_json::from_str(&job.spec_json).expect("encoded above");
        let spec = serde_json::to_value(spec).expect("a document is JSON");
        for mut task in job.tasks {
            task.launch.insert("spec".to_owned(), spec.clone());
            tasks.push(proto::AssignedTask {
                launch_json: encode(&task.launch),
                peers_json: job.peers_json.clone(),
                stop: task.stop,
                asks: task.asks,
            });
        }
    }
    proto::Assignment {
        generation,
        tasks,
        ..proto::Assignment::default()
    }
}

fn in_parts(
    generation: u64,
    jobs: impl Iterator<Item = (JobId, EncodedJob)>,
) -> Vec<proto::Assignment> {
    let mut parts = AssignmentParts::new(generation);
    for (id, job) in jobs {
        parts.make_room(job.shared_bytes());
        parts.last.jobs.push(proto::AssignedJob {
            job_id: id.to_string(),
            spec_json: job.spec_json,
            peers_json: job.peers_json,
        });
        for task in job.tasks {
            parts.make_room(task.launch_json.len() + FRAME_BYTES);
            parts.last.tasks.push(proto::AssignedTask {
                launch_json: task.launch_json,
                peers_json: String::new(),
                stop: task.stop,
                asks: task.asks,
            });
        }
    }
    parts.done.push(parts.last);
    parts.done
}

/// Messages of one generation; all but the last announce a further one.
struct AssignmentParts {
    done: Vec<proto::Assignment>,
    last: proto::Assignment,
    bytes: usize,
}

impl AssignmentParts {
    fn new(generation: u64) -> Self {
        let last = proto::Assignment {
            generation,
            ..proto::Assignment::default()
        };
        Self {
            done: Vec::new(),
            last,
            bytes: 0,
        }
    }

    fn make_room(&mut self, bytes: usize) {
        if self.bytes > 0 && self.bytes + bytes > PART_BYTES {
            let next = Self::new(self.last.generation).last;
            let mut full = std::mem::replace(&mut self.last, next);
            full.is_partial = true;
            self.done.push(full);
            self.bytes = 0;
        }
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::assignment::{Peer, TaskLaunch};
    use muster_model::id::TaskId;
    use muster_model::task::Role;
    use std::sync::Arc;
    use uuid::Uuid;

    fn task_id(job: u128, index: u32) -> TaskId {
        Uuid::from_u128((job << 32) + u128::from(index)).into()
    }

    /// Job of `tasks` tasks on the node, with a document of about `document_bytes`.
    fn job(number: u128, tasks: u32, document_bytes: usize) -> Vec<TaskAssignment> {
        let spec = serde_json::json!({
            "version": "muster/v1", "name": format!("job-{number}"), "labels": { "fill": "x".repeat(document_bytes) },
        });
        let spec: JobSpec = serde_json::from_value(spec).expect("a document");
        let peers = Arc::new(Peers {
            ps_shards: (0..tasks)
                .map(|index| Peer {
                    task_id: task_id(number, index),
                    node_id: Uuid::from_u128(9).into(),
                    address: None,
                })
                .collect(),
            ..Peers::default()
        });
        let launches = (0..tasks).map(|index| TaskLaunch {
            task_id: task_id(number, index),
            job_id: Uuid::from_u128(number).into(),
            tenant_id: Uuid::from_u128(8).into(),
            tenant_number: None,
            revision: 1,
            role: Role::PsShard { index },
            workers: 0,
            ps_shards: tasks,
            gpus: vec![],
            cpu_milli: 0,
            memory_bytes: 64 << 20,
            secret: String::new(),
            spec: spec.clone(),
            resume_step: None,
            trained_s: 0.0,
            grace_ms: 100,
            service_account: None,
            objectives: BTreeSet::new(),
            finished_rung: None,
        });
        launches
            .map(|launch| TaskAssignment {
                launch,
                peers: Arc::clone(&peers),
                stop: false,
                asks: false,
            })
            .collect()
    }

    fn addressee(takes_parts: bool) -> Addressee {
        Addressee {
            node: "node-1".to_owned(),
            takes_parts,
        }
    }

    fn assignment(jobs: impl IntoIterator<Item = Vec<TaskAssignment>>) -> NodeAssignment {
        NodeAssignment {
            generation: 7,
            tasks: jobs.into_iter().flatten().collect(),
        }
    }

    fn stopped(encoded: &EncodedAssignment) -> Vec<bool> {
        let messages = encoded.messages.iter();
        let tasks = messages.flat_map(|message| message.tasks.iter().map(|task| task.stop));
        tasks.collect()
    }

    #[test]
    fn largest_jobs_are_left_out_until_sum_fits() {
        let jobs = assignment([job(1, 2, 10_000), job(2, 2, 30_000), job(3, 2, 12_000)]);
        let all = addressee(false).encode_within(&jobs, 200_000);
        assert_eq!((all.unsendable, all.messages[0].tasks.len()), (vec![], 6));

        let some = addressee(false).encode_within(&jobs, 60_000);
        let left_out: Vec<JobId> = some.unsendable.iter().map(|one| one.job).collect();
        assert_eq!(left_out, [Uuid::from_u128(2).into()]);
        assert_eq!(stopped(&some), [false, false, true, true, false, false]);
        let bytes: usize = some.messages[0]
            .tasks
            .iter()
            .map(|task| task.launch_json.len() + task.peers_json.len())
            .sum();
        assert!(bytes < 60_000, "{bytes}");
        let why = some.unsendable[0].to_string();
        assert!(
            why.contains("2 tasks on node node-1") && why.contains("60000"),
            "{why}"
        );
    }

    #[test]
    fn limit_in_parts_applies_to_each_job() {
        let jobs = assignment([job(1, 2, 10_000), job(2, 2, 30_000), job(3, 2, 12_000)]);
        let all = addressee(true).encode_within(&jobs, 32_000);
        assert_eq!(all.unsendable, []);
        assert_eq!(stopped(&all), [false; 6]);
        let some = addressee(true).encode_within(&jobs, 20_000);
        let left_out: Vec<JobId> = some.unsendable.iter().map(|one| one.job).collect();
        assert_eq!(left_out, [Uuid::from_u128(2).into()]);
        assert_eq!(stopped(&some), [false, false, true, true, false, false]);
    }

    #[test]
    fn parts_are_small_and_last_one_is_marked() {
        let jobs = (1..=8).map(|number| job(number, 3, 1 << 20));
        let encoded = addressee(true).encode(&assignment(jobs));
        let partial: Vec<bool> = encoded.messages.iter().map(|one| one.is_partial).collect();
        assert_eq!(partial, [true, true, false]);
        for message in &encoded.messages {
            let jobs = message.jobs.iter();
            let jobs: usize = jobs
                .map(|job| job.spec_json.len() + job.peers_json.len())
                .sum();
            let tasks: usize = message
                .tasks
                .iter()
                .map(|task| task.launch_json.len())
                .sum();
            assert!(jobs + tasks <= PART_BYTES && message.generation == 7);
        }
        assert_eq!(stopped(&encoded).len(), 24);
    }
}
