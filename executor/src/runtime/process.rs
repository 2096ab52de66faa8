//! Process runtime: shims as child processes that outlive the daemon. A later daemon finds them by
//! the ids in their records.

use super::shims::{Shims, StartedShim};
use super::sockets::{self, Sockets};
use super::{RunnerStatus, Runtime, ShimCommand};
use crate::command::KEPT_FOLDERS;
use crate::config::ExecutorConfig;
use crate::error::ExecutorError;
use crate::gc;
use crate::ledger::Ledger;
use crate::ledger::{LedgerEntry, Life};
use crate::limits::CgroupLimits;
use crate::process::{self, ProcessId};
use crate::shim::{self, ShimRecord};
use crate::task_user::{TaskUser, TaskUsers};
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use rustix::process::{Signal, getegid, geteuid};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Starts and stops shims, and reaps those that this daemon has started.
#[derive(Debug)]
pub struct ProcessRuntime {
    shim_binary: PathBuf,
    listen_host: String,
    limits: CgroupLimits,
    task_users: Option<TaskUsers>,
    kept_folders: PathBuf,
    sockets: Sockets,
    /// Shims that this daemon has started and not reaped.
    children: BTreeMap<TaskId, Child>,
    /// Exit statuses of reaped shims whose tasks have not ended yet.
    reaped: BTreeMap<TaskId, ExitStatus>,
    records: Shims,
}

/// State of a task's shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shim {
    Alive,
    /// It has exited by itself, after all processes of its task.
    Ended,
    /// It was killed, or exited without a daemon waiting for it. Processes of its task may be left.
    Lost {
        /// It certainly did not write the end of its task.
        is_killed: bool,
    },
}

impl ProcessRuntime {
    /// # Errors
    /// If the path of this program cannot be determined, or if `data` cannot be written.
    pub fn new(config: &ExecutorConfig, limits: CgroupLimits) -> Result<Self, ExecutorError> {
        let data = &config.data_dir;
        let kept_folders = data.join(KEPT_FOLDERS);
        std::fs::create_dir_all(&kept_folders).map_err(ExecutorError::write(&kept_folders))?;
        if config.task_user.is_some() {
            // An earlier release gave the folder to the tasks' user.
            let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
            let owned = chown(&kept_folders, Some(uid), Some(gid));
            owned.map_err(ExecutorError::write(&kept_folders))?;
        }
        let shim_binary = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
        Ok(Self {
            shim_binary,
            listen_host: config.listen_host.clone(),
            limits,
            task_users: config.task_user,
            kept_folders,
            sockets: Sockets::open(data).map_err(ExecutorError::write(data))?,
            children: BTreeMap::new(),
            reaped: BTreeMap::new(),
            records: Shims::open(data).map_err(ExecutorError::write(data))?,
        })
    }

    /// Corrects the ledger, which was read from the task folders, by the records of the shims.
    pub fn correct(&self, ledger: &mut Ledger) {
        for record in self.records.all() {
            let shim = record.is_of_this_boot().then_some(record.shim);
            ledger.adopt_from(shim, &record.launch);
        }
    }

    fn shim(&mut self, entry: &LedgerEntry) -> Shim {
        let id = entry.launch.task_id;
        if let Some(child) = self.children.get_mut(&id) {
            match child.try_wait() {
                Ok(None) => return Shim::Alive,
                Ok(Some(status)) => drop(self.reaped.insert(id, status)),
                Err(error) => {
                    tracing::error!(task.id = %id, %error, "cannot wait for a shim");
                }
            }
            self.children.remove(&id);
            self.limits.remove(&id.to_string());
        }
        match self.reaped.get(&id) {
            Some(status) if status.success() => return Shim::Ended,
            Some(status) => {
                return Shim::Lost {
                    is_killed: status.signal().is_some(),
                };
            }
            None => {}
        }
        let is_alive = match (self.records.get(entry), &entry.life) {
            (Some(record), _) => record.is_alive(),
            // Started by a daemon of the previous release, which kept no records.
            (None, Life::Running(record)) => is_running(record),
            (None, _) => shim::is_locked(&entry.folder).unwrap_or(true),
        };
        if is_alive {
            Shim::Alive
        } else {
            Shim::Lost { is_killed: false }
        }
    }

    /// Kills the remaining processes of a task whose shim was killed, and returns whether none is
    /// left.
    ///
    /// The kernel has killed the task's process with the shim, but not its descendants. Each poll
    /// sends one round of SIGKILL. The job is not charged: a task that ends by itself has a shim
    /// that records how.
    fn is_cleaned_up(&self, entry: &LedgerEntry) -> bool {
        let record = self.records.get(entry);
        let is_this_boot = record.is_none_or(StartedShim::is_of_this_boot);
        let session = match &entry.life {
            Life::Running(record)
                if is_this_boot && record.boot_id == crate::process::boot_id() =>
            {
                Some(record.task.pid)
            }
            _ => None,
        };
        let left: Vec<ProcessId> = process::of_task(entry.launch.task_id, session)
            .into_iter()
            .map(|stat| stat.id)
            .collect();
        for process in &left {
            let _ = process.signal(Signal::KILL);
        }
        left.is_empty()
    }
}

impl Runtime for ProcessRuntime {
    fn start(
        &mut self,
        entry: &mut LedgerEntry,
        mut start: ShimCommand,
    ) -> Result<(), ExecutorError> {
        let launch = entry.launch.clone();
        let launch = &launch;
        let user = self.task_users.map(|users| users.of(launch)).transpose()?;
        if let Some(user) = user {
            let place = self.kept_folders.join(launch.tenant_id.to_string());
            let made = make_kept_folders(&place, user);
            made.map_err(ExecutorError::write(&place))?;
        }
        if sockets::meets_others(launch) {
            let place = self.sockets.make(launch.job_id);
            let place = place.map_err(ExecutorError::write(entry.folder.path()))?;
            if let Some(user) = user {
                let owned = own_private_folder(&place, user);
                owned.map_err(ExecutorError::write(&place))?;
            }
            let place = place.to_string_lossy().into_owned();
            start
                .environment
                .insert(sockets::VARIABLE.to_owned(), place);
        }
        let errors = entry.folder.shim_errors().create();
        let errors = errors.map_err(ExecutorError::shim(&self.shim_binary))?;
        let mut command = Command::new(&self.shim_binary);
        command.args(start.arguments);
        let name = launch.task_id.to_string();
        if let Some(cgroup) = self.limits.make(&name, start.limits) {
            command.arg("--cgroup").arg(cgroup);
        }
        let mut child = command
            .env_clear()
            .envs(start.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(ExecutorError::shim(&self.shim_binary))?;
        // The child is a zombie at worst until it is reaped here, so the id is not reused.
        let known = i32::try_from(child.id()).ok().and_then(ProcessId::of);
        let shim = known.ok_or_else(|| ExecutorError::Shim {
            path: self.shim_binary.clone(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        if let Err(source) = self.records.begin(launch, shim) {
            // The next daemon could not find the shim. The task ends with it.
            let _ = child.kill();
            let _ = child.wait();
            return Err(ExecutorError::Write {
                path: entry.folder.path().to_owned(),
                source,
            });
        }
        entry.known_shim = Some(shim);
        self.children.insert(launch.task_id, child);
        Ok(())
    }

    fn stop(&mut self, entry: &LedgerEntry) -> bool {
        let id = entry.launch.task_id;
        let shim = match (&entry.life, self.records.get(entry)) {
            (Life::Running(record), _) => record.shim,
            // A shim of an earlier daemon has started its task, even if the task has falsified
            // `shim.json`.
            (Life::Starting, Some(record)) if !self.children.contains_key(&id) => record.shim,
            _ => return false,
        };
        let _ = shim.signal(Signal::TERM);
        true
    }

    fn wake(&mut self, entry: &LedgerEntry) {
        if let (Life::Running(record), Some(_)) = (&entry.life, &entry.launch.spec.command) {
            // SIGCHLD wakes every shim, also one of an older release, and kills none.
            let _ = record.shim.signal(Signal::CHILD);
        }
    }

    /// While the shim lives, an end in the task's folder has no effect: the task may have written
    /// it.
    fn runner_status(&mut self, entry: &LedgerEntry) -> RunnerStatus {
        let is_running = match &entry.life {
            Life::Prepared | Life::Ended(_) => return RunnerStatus::Alive,
            Life::Starting => false,
            Life::Running(_) => true,
        };
        let outcome = is_running.then_some(Outcome::NodeLost);
        match self.shim(entry) {
            Shim::Alive => RunnerStatus::Holding,
            Shim::Ended => RunnerStatus::Gone(outcome),
            Shim::Lost { .. } if !self.is_cleaned_up(entry) => RunnerStatus::Holding,
            Shim::Lost { is_killed: true } if is_running => RunnerStatus::Killed(Outcome::NodeLost),
            Shim::Lost { .. } => RunnerStatus::Gone(outcome),
        }
    }

    fn notifies_of_ends(&self) -> bool {
        false
    }

    /// Records and socket folders are the only data of this runtime outside the task folders.
    fn tidy(&mut self, ledger: &Ledger) {
        self.sockets.tidy(ledger);
        self.records.keep(|task| ledger.is_live(task));
        self.reaped.retain(|task, _| ledger.is_live(*task));
    }

    fn listen_host(&self) -> &str {
        &self.listen_host
    }

    fn passes(&self, _: &str) -> bool {
        true
    }
}

/// Creates the folder of a tenant's kept folders, which its tasks make: Python environments and
/// fetched commits. Those of another user are removed, because that user could have changed them.
fn make_kept_folders(place: &Path, user: TaskUser) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if found.uid() == user.uid => return Ok(()),
        Ok(_) => gc::remove_folder(place)?,
        Err(_) => {}
    }
    fs::create_dir_all(place)?;
    own_private_folder(place, user)
}

fn own_private_folder(place: &Path, user: TaskUser) -> io::Result<()> {
    fs::set_permissions(place, Permissions::from_mode(0o700))?;
    user.own(place)
}

fn is_running(record: &ShimRecord) -> bool {
    record.shim.is_alive() && record.boot_id == crate::process::boot_id()
}
