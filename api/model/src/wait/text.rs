//! Wait reasons and remedies as text for users.

use super::{Change, ForbiddenGpus, Refused, Short, Wait};
use crate::id::JobId;
use crate::spec::UnmetConstraint;
use crate::text::plural;
use std::fmt;

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConsidered => write!(f, "submitted; the next round considers it"),
            Self::BehindEarlierJobs { considered } => write!(
                f,
                "behind earlier jobs of its tenant: a round considers the first {considered} of them"
            ),
            Self::WaitingForJobs { jobs } => {
                let jobs: Vec<String> = jobs.iter().map(JobId::to_string).collect();
                write!(f, "starts after {}", jobs.join(", "))
            }
            Self::WaitingForArray { limit: 1 } => {
                write!(f, "starts after the job of its array that has not ended")
            }
            Self::WaitingForArray { limit } => write!(
                f,
                "starts when fewer than {limit} earlier jobs of its array have not ended"
            ),
            Self::Suspended => write!(f, "paused by a user"),
            Self::WaitingForQuota {
                needed_gpus,
                used_gpus,
                quota_gpus,
            } => write!(
                f,
                "needs {}; the tenant's other jobs hold {used_gpus} of its quota of {quota_gpus}",
                gpus(*needed_gpus)
            ),
            Self::ExceedsMaxQuota {
                needed_gpus,
                quota_gpus,
            } => {
                write!(
                    f,
                    "needs {}; the tenant's whole quota is {quota_gpus}",
                    gpus(*needed_gpus)
                )
            }
            Self::NoMatchingNodes {
                needed_gpus_per_worker,
                largest_node_gpus: 0,
                forbidden,
                ..
            } if !forbidden.is_empty() => write!(
                f,
                "each worker needs {} on one node, and no open node meets the job's constraints{}",
                gpus(*needed_gpus_per_worker),
                Forbidden("", forbidden)
            ),
            Self::NoMatchingNodes {
                needed_gpus_per_worker,
                largest_node_gpus: 0,
                pods: true,
                ..
            } => write!(
                f,
                "each worker needs {} on one node whose tasks are pods, because of the job's pod, and no such node takes tasks",
                gpus(*needed_gpus_per_worker)
            ),
            Self::NoMatchingNodes {
                needed_gpus_per_worker,
                largest_node_gpus: 0,
                image: true,
                ..
            } => write!(
                f,
                "each worker needs {} on one node that can run images, because of the job's pod.image, and no such node takes tasks",
                gpus(*needed_gpus_per_worker)
            ),
            Self::NoMatchingNodes {
                needed_gpus_per_worker,
                largest_node_gpus: 0,
                ..
            } => write!(
                f,
                "each worker needs {} on one node, and no node takes tasks: they are drained, excluded or away",
                gpus(*needed_gpus_per_worker)
            ),
            Self::NoMatchingNodes {
                needed_gpus_per_worker,
                largest_node_gpus,
                parts,
                pods,
                image,
                forbidden,
            } => {
                let needed = gpus(*needed_gpus_per_worker);
                let kind = match (pods, image) {
                    (true, _) => " whose tasks are pods",
                    (false, true) => " that can run images",
                    (false, false) => "",
                };
                write!(
                    f,
                    "each worker needs {needed} on one node{kind}; the largest node has {largest_node_gpus}"
                )?;
                if *parts {
                    write!(
                        f,
                        " for one task: others have parts of GPUs (MIG), of which a process sees one"
                    )?;
                }
                write!(f, "{}", Forbidden("", forbidden))
            }
            Self::ExceedsCluster {
                needed_gpus,
                cluster_gpus,
                forbidden,
            } => {
                let allowed = if forbidden.is_empty() {
                    "the whole cluster has"
                } else {
                    "the nodes that it allows have"
                };
                write!(
                    f,
                    "needs {}; {allowed} {cluster_gpus}{}",
                    gpus(*needed_gpus),
                    Forbidden("", forbidden)
                )
            }
            Self::WaitingForGpus {
                needed_gpus,
                free_gpus,
                kept_gpus,
                occupied_gpus,
                held_by,
                forbidden,
            } => {
                let kept = match kept_gpus {
                    0 => String::new(),
                    kept => format!(", {kept} of them kept for jobs that precede it"),
                };
                let occupied = match occupied_gpus {
                    0 => String::new(),
                    more => format!("; suspended programs keep memory on {more} more"),
                };
                write!(
                    f,
                    "needs {}, {} free{kept}{occupied}; blocked by {}{}",
                    gpus(*needed_gpus),
                    plural(*free_gpus as usize, "is", "are"),
                    plural(held_by.len(), "job", "jobs"),
                    Forbidden(" free", forbidden)
                )
            }
            Self::TopologyPlacementFailed {
                short: Some(short), ..
            } => write!(f, "{short}"),
            Self::TopologyPlacementFailed {
                needed_gpus,
                free_gpus,
                short: None,
            } => write!(
                f,
                "needs {} and {} free, but not where its tasks fit",
                gpus(*needed_gpus),
                plural(*free_gpus as usize, "is", "are")
            ),
            Self::WaitingForCpuAndMemory { nodes: 0, .. } => write!(
                f,
                "no node on which its tasks may run takes tasks: the others are drained, excluded, away or ruled out by the job's constraints"
            ),
            Self::WaitingForCpuAndMemory {
                workers,
                needed_milli,
                needed_bytes,
                largest_free_milli,
                largest_free_bytes,
                nodes,
                exceeds_cluster,
            } => {
                write!(
                    f,
                    "needs {:.1} cores and {:.1} GiB of memory for {}; ",
                    cores(*needed_milli),
                    gib(*needed_bytes),
                    match workers {
                        1 => "its worker".to_owned(),
                        many => format!("each of {many} workers"),
                    }
                )?;
                if *exceeds_cluster {
                    let nodes = plural(*nodes as usize, "node", "nodes");
                    return write!(
                        f,
                        "even if they were empty, {nodes} could not hold them all"
                    );
                }
                write!(
                    f,
                    "one node has at most {:.1} cores and {:.1} GiB free, some of it perhaps kept for jobs that precede it",
                    cores(*largest_free_milli),
                    gib(*largest_free_bytes)
                )
            }
            Self::WaitingForPreemptedWorkloads { jobs } => {
                let jobs = plural(jobs.len(), "job is", "jobs are");
                write!(f, "room is being made: {jobs} stopping")
            }
            Self::BackingOff { refused: None, .. } => {
                write!(f, "failed, and is tried again after a pause")
            }
            Self::BackingOff {
                until_unix_ms,
                refused:
                    Some(Refused {
                        node,
                        message,
                        times,
                    }),
            } => {
                let often = match times {
                    0 | 1 => String::new(),
                    many => format!(", as nodes did {many} times in a row"),
                };
                write!(
                    f,
                    "a node refused it ({node}: {message}){often}; it is tried again at {}",
                    utc_to_the_second(*until_unix_ms)
                )
            }
        }
    }
}

/// Excluded GPUs as the end of a sentence: `; 2 free GPUs of model H100 are excluded by ...`. The
/// first field is the adjective.
struct Forbidden<'f>(&'static str, &'f [ForbiddenGpus]);

impl fmt::Display for Forbidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(adjective, all) = *self;
        for (index, one) in all.iter().enumerate() {
            let separator = if index == 0 { ";" } else { "," };
            let (noun, verb) = if one.gpus == 1 {
                ("GPU", "is")
            } else {
                ("GPUs", "are")
            };
            write!(
                f,
                "{separator} {}{adjective} {noun} of model {} {verb} excluded by {}",
                one.gpus,
                one.gpu_model,
                one.by.field()
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory {
                needed_bytes,
                largest_node_bytes,
            } => {
                write!(
                    f,
                    "each worker asks for {:.1} GiB of memory (resources.worker.memory_bytes); the largest node has {:.1}",
                    gib(*needed_bytes),
                    gib(*largest_node_bytes)
                )
            }
            Self::Cpu {
                needed_milli,
                largest_node_milli,
            } => {
                write!(
                    f,
                    "each worker asks for {:.1} cores (resources.worker.cpu_milli); the largest node has {:.1}",
                    cores(*needed_milli),
                    cores(*largest_node_milli)
                )
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LowerMinWorkers { to } => write!(f, "lower scale.workers.min to {to}"),
            Self::LowerGpusPerWorker { to } => write!(f, "lower resources.worker.gpus to {to}"),
            Self::AllowNodes {
                constraint,
                gpu_model,
            } => {
                let field = constraint.field();
                match constraint {
                    UnmetConstraint::GpuKinds => write!(f, "allow {gpu_model} in {field}"),
                    UnmetConstraint::GpuMemory => {
                        write!(f, "lower {field} so that {gpu_model} suffices")
                    }
                    // CPU slots have none.
                    UnmetConstraint::ComputeCapability => {
                        write!(
                            f,
                            "lower {field} or leave it out, so that {gpu_model} suffices"
                        )
                    }
                    UnmetConstraint::NodeSelector => {
                        write!(f, "let {field} admit nodes with {gpu_model}")
                    }
                    UnmetConstraint::ExcludeNodes => {
                        write!(f, "take nodes with {gpu_model} out of {field}")
                    }
                }
            }
            Self::RaiseQuota { by_gpus } => {
                write!(f, "raise the tenant's quota by {}", gpus(*by_gpus))
            }
            Self::AddGpus { gpus: more } => write!(f, "free or add {}", gpus(*more)),
            Self::UncordonNode { name } => write!(f, "uncordon node {name}"),
            Self::Resume => write!(f, "resume the job"),
            Self::RaisePriority { to, class: None } => write!(f, "raise its priority to {to}"),
            Self::RaisePriority {
                to,
                class: Some(class),
            } => write!(f, "raise its priority to {to} (priority class {class})"),
            Self::EndJob { name, .. } => write!(f, "pause or end the tenant's job {name}"),
            Self::Wait {
                until_unix_ms,
                ended,
            } => {
                let then = match ended.len() {
                    0 => "its turn comes then".to_owned(),
                    many => format!("{} by then", plural(many, "job ends", "jobs end")),
                };
                write!(f, "wait until about {}: {then}", utc(*until_unix_ms))
            }
        }
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn cores(milli: u64) -> f64 {
    milli as f64 / 1e3
}

pub(super) fn gpus(count: u32) -> String {
    plural(count as usize, "GPU", "GPUs")
}

fn date(unix_ms: i64) -> Option<time::OffsetDateTime> {
    let nanos = i128::from(unix_ms).saturating_mul(1_000_000);
    time::OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()
}

/// Formats a time for users, to the minute.
fn utc(unix_ms: i64) -> String {
    date(unix_ms).map_or_else(
        || "never".to_owned(),
        |at| format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute()),
    )
}

/// Formats a time that is at most a few minutes away.
fn utc_to_the_second(unix_ms: i64) -> String {
    date(unix_ms).map_or_else(
        || "never".to_owned(),
        |at| {
            let (hour, minute, second) = at.to_hms();
            format!("{hour:02}:{minute:02}:{second:02} UTC")
        },
    )
}
