//! The `command` part of the job document: a user's program, where it runs and which files it gets.

use super::exchange::is_zero;
use super::lenient;
use super::{Code, GitSource, PythonEnvironment, SecretRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A user's program. It is started once for each worker and each parameter server of the job, all
/// at the same time.
///
/// The environment of each process names its rank and the addresses of the others
/// (`docs/commands.md`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Command {
    /// The program and its arguments, without a shell. 1 to 256 texts, at most 64 KiB together.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 256))]
    #[serde(deserialize_with = "lenient::words")]
    pub argv: Vec<String>,
    /// Code that is unpacked into the task's folder before the program starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Commit of a git repository that is checked out into the task's folder before the program
    /// starts. Excludes `code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Python environment in which the program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonEnvironment>,
    /// Environment variables. They replace those that Muster sets, except for reserved names such
    /// as `RANK` and `MASTER_ADDR`. At most 256, with at most 64 KiB together.
    #[serde(
        default,
        deserialize_with = "lenient::texts",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub env: BTreeMap<String, String>,
    /// Secrets of the tenant that the program receives as environment variables or files. Their
    /// values are not part of the document. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 64))]
    pub secrets: Vec<SecretRef>,
    /// Working folder of the program: an absolute path that exists on every node. Default: a new
    /// folder of the task, which contains `code` and `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Files in the task's folder when the program starts, by relative path. They replace files of
    /// `code`. At most 64, with at most 64 KiB together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Check that must end with code 0 within a minute on every node before `argv` is started, such
    /// as `[python3, -c, "import torch"]`. The program of `argv` is always searched for.
    #[serde(
        default,
        deserialize_with = "lenient::words",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub check: Vec<String>,
    /// Metrics that are read from lines that worker 0 prints: for each name a regular expression,
    /// whose first group is the number. An empty one finds `NAME: NUMBER` and `NAME=NUMBER` in any
    /// case. The name `step` finds the step of the values. At most 32, of at most 512 bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(example = json!({ "loss": "Loss: ([0-9.]+)" })))]
    pub metrics: BTreeMap<String, String>,
    /// Files and folders of the task's working folder that are kept as artifacts. They are links
    /// into `$MUSTER_OUTPUT_DIR`. A name with `/` at its end, or without an extension, is a folder.
    /// At most 32.
    #[serde(
        default,
        deserialize_with = "lenient::words",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 32))]
    pub keep: Vec<String>,
    /// Expected number of steps, for progress and estimates. It does not stop the program. 1 to
    /// 1,000,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000_000))]
    pub steps: Option<u64>,
    /// Which processes must end before the job has succeeded.
    #[serde(default, skip_serializing_if = "Ends::is_with_all")]
    pub ends: Ends,
    /// Launcher that restarts the worker processes when the number of workers changes. The launcher
    /// itself and its pod or container continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Elastic>,
    /// Number of processes that only hold parameters, as in TensorFlow's `ParameterServerStrategy`.
    /// They run the same program without a GPU and are stopped once all workers have ended. 0 to
    /// 64.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(maximum = 64))]
    pub parameter_servers: u32,
}

/// An entry of `command.keep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptPath<'a> {
    /// Relative path without `/` at its end.
    pub name: &'a str,
    pub is_folder: bool,
}

impl<'a> KeptPath<'a> {
    #[must_use]
    pub fn new(entry: &'a str) -> Self {
        let name = entry.strip_suffix('/').unwrap_or(entry);
        Self {
            name,
            is_folder: name != entry || Path::new(name).extension().is_none(),
        }
    }
}

/// Which processes must end before a job with a command has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Ends {
    /// Every worker has ended with code 0.
    #[default]
    AllWorkers,
    /// Worker 0 has ended with code 0, for example because it alone runs `mpirun`. The other
    /// workers are then stopped.
    FirstWorker,
}

/// Launcher of a program that changes the number of its workers by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Elastic {
    /// `argv` starts an agent of `torchrun`. Its rendezvous is the task set of the job.
    Torchrun,
}

impl Ends {
    fn is_with_all(&self) -> bool {
        *self == Self::AllWorkers
    }
}

/// Variables that identify a process. A document must not set them, because the program would get
/// wrong values.
pub const RESERVED: [&str; 8] = [
    "CUDA_VISIBLE_DEVICES",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "TF_CONFIG",
    "WORLD_SIZE",
];

/// Variables by which a `torchrun` agent finds its rendezvous. With `elastic` a document must not
/// set them.
pub const RESERVED_OF_TORCHRUN: [&str; 8] = [
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_RDZV_BACKEND",
    "PET_RDZV_CONF",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
];

impl Command {
    /// Whether a document must not set the variable: it is in [`RESERVED`] or begins with
    /// `MUSTER_`.
    #[must_use]
    pub fn is_reserved(name: &str) -> bool {
        RESERVED.contains(&name) || name.starts_with("MUSTER_")
    }

    /// Returns the first two arguments that are not options: `python3 train.py` for
    /// `python3 -u train.py --lr 0.1`.
    #[must_use]
    pub fn title(&self) -> String {
        let words = self.argv.iter().filter(|word| !word.starts_with('-'));
        words.take(2).cloned().collect::<Vec<_>>().join(" ")
    }
}
