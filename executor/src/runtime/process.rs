//! Shims as child processes of the daemon, which outlive it: a later daemon knows them by the ids in their records.

use super::sockets::{self, Sockets};
use super::{Carrier, Runtime, Start};
use crate::error::ExecutorError;
use crate::ledger::Ledger;
use crate::ledger::{Entry, Life};
use crate::limits::Limits;
use crate::process::{self, ProcessId};
use crate::shim::{self, ShimRecord};
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Starts and stops shims, and waits for those it has started so that none stays a zombie.
#[derive(Debug)]
pub struct Processes {
    shim_binary: PathBuf,
    listen_host: String,
    limits: Limits,
    sockets: Sockets,
    shims: BTreeMap<TaskId, Child>,
}

impl Processes {
    /// # Errors
    /// If the path of this program cannot be told, or `data` cannot be written.
    pub fn new(listen_host: String, limits: Limits, data: &Path) -> Result<Self, ExecutorError> {
        let shim_binary = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
        Ok(Self {
            shim_binary,
            listen_host,
            limits,
            sockets: Sockets::open(data).map_err(ExecutorError::write(data))?,
            shims: BTreeMap::new(),
        })
    }

    /// Whether the task's shim, if this daemon has started it, has ended; it is then reaped. For one that an earlier daemon has started,
    /// whether its folder is free.
    fn is_shim_gone(&mut self, entry: &Entry) -> bool {
        let id = entry.launch.task_id;
        let Some(child) = self.shims.get_mut(&id) else {
            let is_starting = entry.life == Life::Starting;
            return is_starting && !shim::is_locked(&entry.folder).unwrap_or(true);
        };
        let is_gone = !matches!(child.try_wait(), Ok(None));
        if is_gone {
            self.shims.remove(&id);
            self.limits.remove(&id.to_string());
        }
        is_gone
    }
}

impl Runtime for Processes {
    fn start(&mut self, entry: &Entry, mut start: Start) -> Result<(), ExecutorError> {
        let launch = &entry.launch;
        if sockets::meets_others(launch) {
            let place = self.sockets.make(launch.job_id);
            let place = place.map_err(ExecutorError::write(entry.folder.path()))?;
            let place = place.to_string_lossy().into_owned();
            start
                .environment
                .insert(sockets::VARIABLE.to_owned(), place);
        }
        let failed = |source| ExecutorError::Shim {
            path: self.shim_binary.clone(),
            source,
        };
        let errors = entry.folder.shim_errors().create().map_err(failed)?;
        let mut command = Command::new(&self.shim_binary);
        command.args(start.arguments);
        if let Some(cgroup) = self.limits.make(
            &launch.task_id.to_string(),
            launch.memory_bytes,
            launch.cpu_milli,
        ) {
            command.arg("--cgroup").arg(cgroup);
        }
        let child = command
            .env_clear()
            .envs(start.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        self.shims.insert(launch.task_id, child);
        Ok(())
    }

    fn stop(&mut self, entry: &Entry) -> bool {
        let Life::Running(record) = &entry.life else {
            return false;
        };
        let _ = record.shim.signal(Signal::TERM);
        true
    }

    fn wake(&mut self, entry: &Entry) {
        if let (Life::Running(record), Some(_)) = (&entry.life, &entry.launch.spec.command) {
            // By a signal that every shim looks up at, an older executor's too, and that would kill none.
            let _ = record.shim.signal(Signal::CHILD);
        }
    }

    fn carrier(&mut self, entry: &Entry) -> Carrier {
        let is_shim_gone = self.is_shim_gone(entry);
        match &entry.life {
            Life::Starting if is_shim_gone => Carrier::Gone(None),
            Life::Running(record) if !is_running(record) && is_cleaned_up(entry, record) => {
                Carrier::Gone(Some(Outcome::NodeLost))
            }
            Life::Prepared | Life::Starting | Life::Running(_) | Life::Ended(_) => Carrier::Alive,
        }
    }

    fn tells_of_ends(&self) -> bool {
        false
    }

    /// A process is its own: nothing is carried that the folders do not tell of, but for where tasks met.
    fn tidy(&mut self, ledger: &Ledger) {
        self.sockets.tidy(ledger);
    }

    fn listen_host(&self) -> &str {
        &self.listen_host
    }

    fn passes(&self, _: &str) -> bool {
        true
    }
}

fn is_running(record: &ShimRecord) -> bool {
    record.shim.is_alive() && record.boot_id == shim::boot_id()
}

/// The shim was killed, alone or with its whole node. The kernel has killed the task with it, but not what the task had started: that is
/// done here, one round a look, and only when nothing is left is the task gone. The machine is to blame, not the job: a task that dies by
/// itself has a shim that says how.
fn is_cleaned_up(entry: &Entry, record: &ShimRecord) -> bool {
    let is_this_boot = record.boot_id == shim::boot_id();
    let left: Vec<ProcessId> = process::of_task(
        entry.launch.task_id,
        is_this_boot.then_some(record.task.pid),
    )
    .into_iter()
    .map(|stat| stat.id)
    .collect();
    for process in &left {
        let _ = process.signal(Signal::KILL);
    }
    left.is_empty()
}
