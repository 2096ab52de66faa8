//! Carries out the steps on real processes and files.

use crate::clock;
use crate::config::Config;
use crate::device;
use crate::disk;
use crate::environment;
use crate::error::ExecutorError;
use crate::ledger::{Entry, Life};
use crate::limits::Limits;
use muster_model::assignment::Peers;
use muster_model::id::TaskId;
use muster_model::node::Capacity;
use muster_model::task::Outcome;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Starts and stops shims, and waits for those it has started so that none stays a zombie.
#[derive(Debug)]
pub struct Launcher {
    shim_binary: PathBuf,
    config: Config,
    capacity: Capacity,
    limits: Limits,
    /// Where users' programs report.
    reports_to: SocketAddr,
    shims: BTreeMap<TaskId, Child>,
}

impl Launcher {
    /// # Errors
    /// If the path of this program cannot be told.
    pub fn new(
        config: Config,
        capacity: Capacity,
        limits: Limits,
        reports_to: SocketAddr,
    ) -> Result<Self, ExecutorError> {
        let shim_binary = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
        Ok(Self {
            shim_binary,
            config,
            capacity,
            limits,
            reports_to,
            shims: BTreeMap::new(),
        })
    }

    /// Starts the shim of a prepared task. If that fails, the task has ended with the reason.
    pub fn launch(&mut self, entry: &mut Entry) {
        let id = entry.launch.task_id;
        match self.spawn(entry) {
            Ok(child) => {
                tracing::info!(task.id = %id, job.id = %entry.launch.job_id, "launched");
                self.shims.insert(id, child);
                entry.life = Life::Starting;
            }
            Err(error) => {
                tracing::error!(task.id = %id, %error, "cannot launch");
                entry.end(Outcome::LaunchFailed {
                    message: error.to_string(),
                });
            }
        }
    }

    /// Tells the shim to stop its task; the grace and SIGKILL are the shim's affair.
    pub fn stop(&self, entry: &mut Entry) {
        if let Life::Running(record) = &entry.life {
            tracing::info!(task.id = %entry.launch.task_id, job.id = %entry.launch.job_id, "told to stop");
            let _ = record.shim.signal(Signal::TERM);
            entry.is_stopping = true;
        }
    }

    /// Rewrites `peers.json`, which the task looks at from time to time.
    pub fn write_peers(&self, entry: &mut Entry, peers: &Peers) {
        match disk::write_atomically(&entry.folder.peers(), peers) {
            Ok(()) => {
                entry.peers = peers.clone();
                // The built-in engine looks by itself; for others their shim does.
                if let (Life::Running(record), Some(_)) = (&entry.life, &entry.launch.spec.command)
                {
                    // By a signal that every shim looks up at, an older executor's too, and that would kill none.
                    let _ = record.shim.signal(Signal::CHILD);
                }
            }
            Err(error) => {
                tracing::error!(task.id = %entry.launch.task_id, %error, "cannot write the peers")
            }
        }
    }

    /// Whether the task's shim, if this daemon has started it, has ended; it is then reaped. For one that an earlier daemon has started,
    /// whether its folder is free.
    pub fn is_shim_gone(&mut self, entry: &Entry) -> bool {
        let id = entry.launch.task_id;
        let Some(child) = self.shims.get_mut(&id) else {
            let is_starting = entry.life == Life::Starting;
            return is_starting && !crate::shim::is_locked(&entry.folder).unwrap_or(true);
        };
        let is_gone = !matches!(child.try_wait(), Ok(None));
        if is_gone {
            self.shims.remove(&id);
            self.limits.remove(&id.to_string());
        }
        is_gone
    }

    /// What a user's program shows when it reports, in the words of MLflow's client. The token is this task's alone.
    fn tracking(&self, entry: &Entry) -> Result<Vec<(&'static str, String)>, ExecutorError> {
        let launch = &entry.launch;
        if launch.spec.command.is_none() {
            return Ok(Vec::new());
        }
        let path = entry.folder.token();
        let secret = clock::secret().map_err(ExecutorError::write(&path))?;
        let token = format!("{}.{secret}", launch.task_id);
        disk::write_private(&path, &token).map_err(ExecutorError::write(&path))?;
        let url = format!("http://{}", self.reports_to);
        Ok(vec![
            ("MLFLOW_TRACKING_URI", url.clone()),
            ("MLFLOW_TRACKING_TOKEN", token.clone()),
            ("MLFLOW_RUN_ID", launch.job_id.0.simple().to_string()),
            ("MUSTER_TRACKING_URI", url),
            ("MUSTER_TRACKING_TOKEN", token),
        ])
    }

    fn spawn(&self, entry: &Entry) -> Result<Child, ExecutorError> {
        let failed = |source| ExecutorError::Shim {
            path: self.shim_binary.clone(),
            source,
        };
        let (launch, config) = (&entry.launch, &self.config);
        let passed = config
            .pass_environment
            .iter()
            .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
        // The built-in engine writes checkpoints itself, so it needs what this node may reach their bucket with. A user's own program
        // must not have it: all tenants' checkpoints lie there.
        let bucket = match launch.spec.command {
            None => config.checkpoint_root.variables(),
            Some(_) => Default::default(),
        };
        let credentials = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| bucket.iter().any(|prefix| name.starts_with(prefix)));
        let errors = File::create(entry.folder.shim_errors()).map_err(failed)?;
        let mut command = Command::new(&self.shim_binary);
        command
            .arg("shim")
            .arg("--folder")
            .arg(entry.folder.path())
            .arg("--data-dir")
            .arg(&config.data_dir)
            .arg("--task-binary")
            .arg(&config.task_binary)
            .arg("--checkpoint-root")
            .arg(config.checkpoint_root.to_string())
            .arg("--dataset-root")
            .arg(&config.dataset_root)
            .arg("--listen-host")
            .arg(&config.listen_host)
            .arg("--log-part-bytes")
            .arg(config.log_part_bytes.to_string())
            .arg("--log-parts")
            .arg(config.log_parts.to_string());
        if let Some(cgroup) = self.limits.make(
            &launch.task_id.to_string(),
            launch.memory_bytes,
            launch.cpu_milli,
        ) {
            command.arg("--cgroup").arg(cgroup);
        }
        command
            .env_clear()
            .envs(environment::of_task(
                launch,
                &self.capacity,
                device::cores(),
                passed.chain(credentials),
            ))
            .envs(self.tracking(entry)?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(failed)
    }
}
