//! Executes steps: builds arguments and environment of a task and passes them to the runtime.

use crate::clock;
use crate::config::ExecutorConfig;
use crate::device;
use crate::driver;
use crate::environment;
use crate::error::ExecutorError;
use crate::image::{ImageInfo, ImageStatus, Images};
use crate::isolation;
use crate::ledger::{Ledger, LedgerEntry, Life};
use crate::limits::TaskLimits;
use crate::runtime::{RunnerStatus, Runtime, ShimCommand};
use crate::shim::CheckpointRequest;
use crate::task_user::{TaskUser, TaskUsers};
use muster_model::assignment::Peers;
use muster_model::node::{Capacity, DriverSuspend, ImageSupport};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Starts and stops tasks through their shims.
#[derive(Debug)]
pub struct Launcher {
    config: ExecutorConfig,
    capacity: Capacity,
    /// Address of the tracking server, for users' programs.
    reports_to: SocketAddr,
    runtime: Box<dyn Runtime>,
    /// `None` where tasks are pods.
    images: Option<Images>,
}

/// Place in which a task starts.
#[derive(Debug)]
pub enum StartPlace {
    /// The task needs no image of this node's cache.
    Node,
    /// An image of this node's cache, with its folder there.
    Image(PathBuf, ImageInfo),
}

impl Launcher {
    #[must_use]
    pub(crate) fn new(
        config: ExecutorConfig,
        capacity: Capacity,
        reports_to: SocketAddr,
        (runtime, images): (Box<dyn Runtime>, Option<Images>),
    ) -> Self {
        Self {
            config,
            capacity,
            reports_to,
            runtime,
            images,
        }
    }

    /// Returns the place in which a prepared task starts. `None` if its image is being pulled, or
    /// if the task has ended because the pull has failed.
    pub fn place_of(&mut self, entry: &mut LedgerEntry) -> Option<StartPlace> {
        match self.image(entry) {
            None => Some(StartPlace::Node),
            Some(ImageStatus::Ready(folder, info)) => Some(StartPlace::Image(folder, info)),
            Some(ImageStatus::Pulling) => None,
            Some(ImageStatus::Failed(outcome)) => {
                tracing::error!(task.id = %entry.launch.task_id, %outcome, "cannot launch");
                entry.end(outcome);
                None
            }
        }
    }

    /// Returns the image of a task; `None` if it runs in none.
    fn image(&mut self, entry: &LedgerEntry) -> Option<ImageStatus> {
        let images = self.images.as_mut()?;
        let image = entry.launch.spec.pod.image.as_ref()?;
        entry.launch.spec.command.as_ref()?;
        if let Some(ImageSupport::Unable { why }) = &self.capacity.images {
            let outcome = ExecutorError::NoImages(why.clone()).outcome();
            return Some(ImageStatus::Failed(outcome));
        }
        Some(images.request(entry, image))
    }

    /// Starts the shim of a prepared task. If that fails, the task ends with the error as its
    /// outcome.
    pub fn launch(&mut self, entry: &mut LedgerEntry, place: StartPlace) {
        let id = entry.launch.task_id;
        let image = match place {
            StartPlace::Node => None,
            StartPlace::Image(folder, info) => Some((folder, info)),
        };
        let started = self
            .start_of(entry, image)
            .and_then(|start| self.runtime.start(entry, start));
        match started {
            Ok(()) => {
                tracing::info!(task.id = %id, job.id = %entry.launch.job_id, "launched");
                entry.life = Life::Starting;
            }
            Err(error) => {
                tracing::error!(task.id = %id, %error, "cannot launch");
                entry.end(error.outcome());
            }
        }
    }

    /// Asks the shim to stop its task. The shim enforces the grace and SIGKILL.
    pub fn stop(&mut self, entry: &mut LedgerEntry) {
        if !entry.is_stopping && self.runtime.stop(entry) {
            tracing::info!(task.id = %entry.launch.task_id, job.id = %entry.launch.job_id, "stop requested");
            entry.is_stopping = true;
        }
    }

    /// Asks the program of a task for a checkpoint, after which its shim stops it. A program that
    /// cannot be asked is stopped at once.
    pub fn ask(&mut self, entry: &mut LedgerEntry) {
        let Some(options) = entry.launch.spec.preemption.checkpoint_on_request else {
            self.stop(entry);
            return;
        };
        let request = CheckpointRequest::begin(&options, &entry.folder);
        match entry.folder.checkpoint_request().write_durably(&request) {
            Ok(()) => {
                tracing::info!(task.id = %entry.launch.task_id, job.id = %entry.launch.job_id, "checkpoint requested");
                entry.is_asked = true;
                self.runtime.wake(entry);
            }
            Err(error) => {
                tracing::error!(task.id = %entry.launch.task_id, %error, "cannot ask a program for a checkpoint");
                self.stop(entry);
            }
        }
    }

    /// Rewrites `peers.json`, which the task polls.
    pub fn write_peers(&mut self, entry: &mut LedgerEntry, peers: &Peers) {
        match entry.folder.peers().write_atomically(peers) {
            Ok(()) => {
                entry.peers = peers.clone();
                self.runtime.wake(entry);
            }
            Err(error) => {
                tracing::error!(task.id = %entry.launch.task_id, %error, "cannot write the peers")
            }
        }
    }

    /// Returns the state of the process or pod that runs the task.
    pub fn runner_status(&mut self, entry: &LedgerEntry) -> RunnerStatus {
        self.runtime.runner_status(entry)
    }

    /// See [`Runtime::notifies_of_ends`].
    #[must_use]
    pub fn notifies_of_ends(&self) -> bool {
        self.runtime.notifies_of_ends()
    }

    /// Removes processes, pods and files that no task needs.
    pub fn tidy(&mut self, ledger: &Ledger) {
        self.runtime.tidy(ledger);
        if let Some(images) = &mut self.images {
            images.tidy(ledger);
        }
    }

    /// Removes images that no task uses, because the disk is nearly full.
    pub fn free_disk(&self) {
        if let Some(images) = &self.images {
            images.free_disk(self.config.disk_reserve_bytes);
        }
    }

    /// Returns the variables by which a user's program reports, under the names of MLflow's client.
    /// The token is valid for this task only.
    fn tracking(&self, entry: &LedgerEntry) -> Result<Vec<(&'static str, String)>, ExecutorError> {
        let launch = &entry.launch;
        if launch.spec.command.is_none() {
            return Ok(Vec::new());
        }
        let file = entry.folder.token();
        let secret = clock::secret().map_err(ExecutorError::read("the system's randomness"))?;
        let token = format!("{}.{secret}", launch.task_id);
        file.write_private(&token)
            .map_err(ExecutorError::write(file))?;
        let url = format!("http://{}", self.reports_to);
        Ok(vec![
            ("MLFLOW_TRACKING_URI", url.clone()),
            ("MLFLOW_TRACKING_TOKEN", token.clone()),
            // The address that MLflow would print serves no page.
            ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true".to_owned()),
            ("MLFLOW_RUN_ID", launch.job_id.0.simple().to_string()),
            ("MUSTER_TRACKING_URI", url),
            ("MUSTER_TRACKING_TOKEN", token),
        ])
    }

    fn start_of(
        &self,
        entry: &LedgerEntry,
        image: Option<(PathBuf, ImageInfo)>,
    ) -> Result<ShimCommand, ExecutorError> {
        let (launch, config) = (&entry.launch, &self.config);
        let passed = environment::passed(&config.pass_environment).into_iter();
        let passed = passed.filter(|(name, _)| self.runtime.passes(name));
        let passed: Vec<(String, String)> = match &image {
            None => passed.collect(),
            Some((_, info)) => environment::in_image(passed, &info.env),
        };
        // The built-in engine writes checkpoints itself and needs this node's credentials of the
        // bucket. A user's own program must not have them: the bucket contains the checkpoints of
        // all tenants.
        let bucket = match launch.spec.command {
            None => config.checkpoint_root.variables(),
            Some(_) => Default::default(),
        };
        let credentials = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| bucket.iter().any(|prefix| name.starts_with(prefix)));
        let mut environment = environment::of_task(
            launch,
            &self.capacity,
            device::cores(),
            passed.into_iter().chain(credentials),
        );
        if image.is_some() && device::has_cuda(&self.capacity) {
            environment::number_gpus_anew(launch, &mut environment);
        }
        let user = config.task_user.map(|users| users.of(launch)).transpose()?;
        if user.is_some() || image.is_some() {
            // The task cannot access the executor's home.
            let home = entry.folder.path().to_string_lossy().into_owned();
            environment.insert("HOME".to_owned(), home);
        }
        let tracking = self.tracking(entry)?;
        environment.extend(
            tracking
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
        Ok(ShimCommand {
            arguments: self.arguments(entry, user, image.map(|(folder, _)| folder)),
            environment,
            limits: TaskLimits::of(launch, &self.capacity),
        })
    }

    fn arguments(
        &self,
        entry: &LedgerEntry,
        user: Option<TaskUser>,
        image: Option<PathBuf>,
    ) -> Vec<OsString> {
        let config = &self.config;
        let pairs: [(&str, OsString); 8] = [
            ("--folder", entry.folder.path().into()),
            ("--data-dir", config.data_of_shims().into()),
            ("--task-binary", config.task_binary.clone().into()),
            (
                "--checkpoint-root",
                config.checkpoint_root.to_string().into(),
            ),
            ("--dataset-root", config.dataset_root.clone().into()),
            ("--listen-host", self.runtime.listen_host().into()),
            ("--log-part-bytes", config.log_part_bytes.to_string().into()),
            ("--log-parts", config.log_parts.to_string().into()),
        ];
        let is_able = matches!(
            self.capacity.driver_suspend,
            Some(DriverSuspend::Able { .. })
        );
        // A task without GPUs has no GPU memory to move.
        let has_gpus = !entry.launch.gpus.is_empty();
        let is_movable = is_able
            && has_gpus
            && !driver::has_lost(&driver::folder(&config.data_dir), entry.launch.job_id);
        let patience = is_movable.then(|| {
            let patience_ms = config.driver_patience_ms.to_string();
            ("--driver-patience-ms", patience_ms.into())
        });
        let user = user.map(|user| ("--task-user", user.to_string().into()));
        let has_image = image.is_some();
        let pairs = pairs
            .into_iter()
            .chain(patience)
            .chain(user)
            .chain(self.image_arguments(image))
            .flat_map(|(name, value)| [name.into(), value]);
        let is_private = matches!(config.task_user, Some(TaskUsers::PerTenant { .. }));
        let has_own_view = isolation::has_own_view(self.capacity.isolation.as_ref());
        let switches = [
            ("--private", is_private),
            ("--own-view", has_own_view),
            (
                "--image-gpus",
                has_image && device::has_cuda(&self.capacity),
            ),
        ];
        let switches = switches.into_iter().filter(|(_, is_on)| *is_on);
        std::iter::once("shim".into())
            .chain(pairs)
            .chain(switches.map(|(name, _)| name.into()))
            .collect()
    }

    fn image_arguments(&self, image: Option<PathBuf>) -> Vec<(&'static str, OsString)> {
        let Some((images, image)) = self.images.as_ref().zip(image) else {
            return Vec::new();
        };
        vec![
            ("--image", image.into()),
            ("--image-stage", images.stage().into()),
        ]
    }
}
