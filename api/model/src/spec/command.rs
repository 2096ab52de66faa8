//! The part of the job document for a program of the user's own: what is run, where, and what is brought along.

use super::exchange::is_zero;
use super::lenient;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A program of the user's own, started once for every worker (and PS shard) of the job, all at one time.
///
/// Each of its processes finds in its environment who it is and where the others are; `docs/commands.md` has the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Command {
    /// The program and its arguments, as they are: no shell looks at them. 1 to 256, with 64 KiB together.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 256))]
    #[serde(deserialize_with = "lenient::words")]
    pub argv: Vec<String>,
    /// Variables set over those that Muster sets, but for the names in `RESERVED`. At most 256, with 64 KiB together.
    #[serde(
        default,
        deserialize_with = "lenient::texts",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub env: BTreeMap<String, String>,
    /// Absolute path of a folder that every node has, where the program is started. A new folder of the task, with `files` in it, when
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Files that lie in the task's folder when the program starts: by relative path. At most 64, with 64 KiB together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// A program that must end with code 0 on every node within a minute before `argv` is started, such as
    /// `[python3, -c, "import torch"]`. Whether `argv`'s own program is there is looked at in any case.
    #[serde(
        default,
        deserialize_with = "lenient::words",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub check: Vec<String>,
    /// Steps after which the program is expected to be done, by which progress is shown and the time left is estimated. Nothing stops it
    /// there. 1 to 1,000,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000_000))]
    pub steps: Option<u64>,
    /// With whom the job is done.
    #[serde(default, skip_serializing_if = "Ends::is_with_all")]
    pub ends: Ends,
    /// Processes that only hold parameters, as TensorFlow's `ParameterServerStrategy` has them: they run the same program, get no GPU,
    /// and are stopped once all workers are done. 0 to 64.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(maximum = 64))]
    pub parameter_servers: u32,
}

/// With whom a job that runs a command is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Ends {
    /// Once every worker has ended with code 0.
    #[default]
    AllWorkers,
    /// Once worker 0 has, as where it alone runs `mpirun`; the others are then stopped.
    FirstWorker,
}

impl Ends {
    fn is_with_all(&self) -> bool {
        *self == Self::AllWorkers
    }
}

/// Variables that say who a process is. A document that set one would lie to its own program.
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

impl Command {
    /// Whether a document may not set the variable: one of [`RESERVED`], or one of Muster's own.
    #[must_use]
    pub fn is_reserved(name: &str) -> bool {
        RESERVED.contains(&name) || name.starts_with("MUSTER_")
    }

    /// The arguments up to the first that is no name of a program or file: `python3 train.py` of `python3 -u train.py --lr 0.1`.
    #[must_use]
    pub fn title(&self) -> String {
        let words = self.argv.iter().filter(|word| !word.starts_with('-'));
        words.take(2).cloned().collect::<Vec<_>>().join(" ")
    }
}
