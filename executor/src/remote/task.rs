//! The process of a running task, found by the executor's own record of its shim. A task can write
//! its own folder, so nothing in it is believed.

use super::RemoteRefusal;
use crate::config::ExecutorConfig;
use crate::folder::NodeTaskFolder;
use crate::process::{self, ProcessId, Stat};
use crate::runtime::started_shim;
use crate::task_user::TaskUser;
use muster_model::assignment::Peers;
use muster_model::id::TaskId;
use std::fs;
use std::time::Duration;

/// Interval at which the suspension of the task is noticed.
const SUSPENSION_CHECK: Duration = Duration::from_millis(500);

/// A running task.
#[derive(Debug, Clone)]
pub struct RunningTask {
    pub id: TaskId,
    /// Parent of all of the task's processes.
    pub shim: ProcessId,
    /// The task's program, which leads a session of its own.
    pub program: ProcessId,
    /// `None`: that of the executor.
    pub user: Option<TaskUser>,
    folder: NodeTaskFolder,
}

impl RunningTask {
    /// # Errors
    /// [`RemoteRefusal::NotRunning`] if the task has no process, or [`RemoteRefusal::Read`].
    pub fn find(config: &ExecutorConfig, id: TaskId) -> Result<Self, RemoteRefusal> {
        let record = started_shim(&config.data_dir, id);
        let record = record.map_err(|source| RemoteRefusal::Read {
            what: "record",
            source,
        })?;
        let record = record.filter(|record| record.is_alive());
        let record = record.ok_or(RemoteRefusal::NotRunning)?;
        let user = config.task_user.map(|users| users.of(&record.launch));
        let user = user.transpose();
        let user = user.map_err(|error| RemoteRefusal::Order(error.to_string()))?;
        let children = process::all().into_iter();
        let programs = children.filter(|stat| is_program(stat, record.shim, user));
        // Later children of the shim are orphans of the program.
        let program = programs.min_by_key(|stat| (stat.id.start_ticks, stat.id.pid));
        Ok(Self {
            id,
            shim: record.shim,
            program: program.ok_or(RemoteRefusal::NotRunning)?.id,
            user,
            folder: NodeTaskFolder::of(&config.data_dir.join("tasks"), id),
        })
    }

    /// Returns once the task is to be suspended, or the kernel has stopped its program. The latter
    /// does not depend on the task's folder.
    pub async fn suspended(&self) {
        let peers = self.folder.peers();
        loop {
            let requested = peers.read::<Peers>().ok().flatten();
            let is_requested = requested.is_some_and(|peers| peers.held_turn().is_some());
            let program = process::stat(self.program.pid);
            if is_requested || program.is_some_and(|program| program.state == 'T') {
                return;
            }
            tokio::time::sleep(SUSPENSION_CHECK).await;
        }
    }
}

fn is_program(stat: &Stat, shim: ProcessId, user: Option<TaskUser>) -> bool {
    stat.parent == shim.pid
        && stat.session == stat.id.pid
        && user.is_none_or(|user| uid(stat.id.pid) == Some(user.uid))
}

/// Returns the real user of a process.
fn uid(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}
