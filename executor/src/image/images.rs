//! The images of a node's tasks, as the daemon sees them: which a task needs, whether the cache has
//! it, and the helper processes that pull the others.

use super::ImageError;
use super::error::Fault;
use super::fetch::FetchMessage;
use super::folders::{CacheFolders, ImageInfo, ImageUse};
use super::slots::{MAX_PULLS, PullSlots};
use crate::config::ExecutorConfig;
use crate::disk;
use crate::error::ExecutorError;
use crate::events;
use crate::folder::NodeTaskFolder;
use crate::ledger::{Ledger, LedgerEntry};
use crate::log::{RotatingLog, Rotation};
use crate::loop_event::NodeLoopEvent;
use crate::task_file::TaskFile;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::id::{JobId, TaskId, TenantId};
use muster_model::task::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Maximum length of a line of the helper, in bytes.
const MAX_LINE: usize = 16 << 10;

/// Answer to a task that needs an image.
#[derive(Debug)]
pub(crate) enum ImageStatus {
    /// It is being pulled; the node loop is woken when that ends.
    Pulling,
    /// It is in this folder of the cache.
    Ready(PathBuf, ImageInfo),
    Failed(Outcome),
}

/// Tasks of one revision of a job run in the same image on this node, even if its tag changes.
type JobImage = (JobId, u64);

#[derive(Debug, Default)]
struct Pull {
    /// Logs of the tasks that wait.
    logs: Vec<(TaskId, RotatingLog)>,
    result: Option<Result<String, (String, Fault)>>,
    /// No task needs the image now. A pull that has not begun does not begin.
    is_unwanted: bool,
    /// The helper was not started, or was killed, because no task needed the image. A later task
    /// begins another pull.
    is_abandoned: bool,
    /// Helper that runs. It is not reaped, so its id is not reused.
    helper: Option<Pid>,
}

/// Variables of the daemon that the helper receives: the others contain secrets.
const PASSED: [&str; 10] = [
    "PATH",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Images of this node's tasks.
#[derive(Debug)]
pub(crate) struct Images {
    cache: CacheFolders,
    limit_bytes: u64,
    patience_ms: u64,
    auth_file: Option<PathBuf>,
    insecure: Vec<String>,
    rotation: Rotation,
    loop_events: Sender<NodeLoopEvent>,
    pulls: BTreeMap<JobImage, Arc<Mutex<Pull>>>,
    slots: PullSlots,
    uses: BTreeMap<TaskId, ImageUse>,
    /// A thread is removing unused images.
    is_clearing: Arc<AtomicBool>,
    /// Held while this daemon lives.
    _lock: File,
}

impl Images {
    /// Opens the cache and removes what an earlier daemon has not finished.
    ///
    /// # Errors
    /// If the cache cannot be written.
    pub(crate) fn open(
        config: &ExecutorConfig,
        loop_events: Sender<NodeLoopEvent>,
    ) -> Result<Self, ExecutorError> {
        let cache = CacheFolders::at(&config.image_cache_dir);
        fs::create_dir_all(cache.root()).map_err(ExecutorError::write(cache.root()))?;
        let lock = disk::hold(&cache.root().join("lock"));
        let lock = lock.map_err(ExecutorError::write(cache.root()))?;
        if lock.try_lock().is_err() {
            return Err(ExecutorError::Setting {
                name: "image_cache_dir",
                problem: format!("is {}, which another executor uses", cache.root().display()),
            });
        }
        cache.open().map_err(ExecutorError::Image)?;
        let mut images = Self {
            cache,
            limit_bytes: config.image_cache_bytes,
            patience_ms: config.image_patience_ms,
            auth_file: config.image_auth_file.clone(),
            insecure: config.insecure_registries.clone(),
            rotation: Rotation {
                part_bytes: config.log_part_bytes,
                parts: config.log_parts,
            },
            loop_events,
            pulls: BTreeMap::new(),
            slots: PullSlots::default(),
            uses: BTreeMap::new(),
            is_clearing: Arc::new(AtomicBool::new(false)),
            _lock: lock,
        };
        let uses = images.cache.uses();
        for entry in fs::read_dir(&uses).map_err(ExecutorError::read(&uses))? {
            let name = entry.map_err(ExecutorError::read(&uses))?.file_name();
            let Some(task) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Ok(Some(used)) = images.use_file(task).read() {
                images.uses.insert(task, used);
            }
        }
        Ok(images)
    }

    /// Folder over which shims mount views.
    pub(crate) fn stage(&self) -> PathBuf {
        self.cache.stage()
    }

    fn use_file(&self, task: TaskId) -> TaskFile {
        TaskFile::new(self.cache.uses().join(task.to_string()))
    }

    /// Returns whether the image of a task is there, and begins to pull it otherwise.
    pub(crate) fn request(&mut self, entry: &LedgerEntry, image: &str) -> ImageStatus {
        let launch = &entry.launch;
        let key = (launch.job_id, launch.revision);
        // An image that is found here is not removed before its use is recorded.
        let _held = match self.cache.hold_for_use() {
            Ok(held) => held,
            Err(error) => return ImageStatus::Failed(ExecutorError::Image(error).outcome()),
        };
        if let Some(digest) = self.chosen(launch)
            && let Some(info) = self.cache.info(&digest)
        {
            return self.ready(launch, info);
        }
        let known = self.pulls.get(&key).cloned();
        let pull = match known.filter(|pull| !locked(pull).is_abandoned) {
            Some(pull) => pull,
            None => match self.begin(launch, image) {
                Ok(pull) => pull,
                Err(error) => return ImageStatus::Failed(error.outcome()),
            },
        };
        let mut state = locked(&pull);
        state.is_unwanted = false;
        match state.result.clone() {
            None => {
                self.follow(&mut state, entry, image);
                ImageStatus::Pulling
            }
            Some(Ok(digest)) => match self.cache.info(&digest) {
                Some(info) => {
                    drop(state);
                    self.ready(launch, info)
                }
                None => ImageStatus::Failed(Outcome::LaunchFailed {
                    message: format!("image {image} was removed from this node"),
                }),
            },
            Some(Err((message, fault))) => {
                let message = format!("image {image}: {message}");
                ImageStatus::Failed(failed(&entry.folder, message, fault))
            }
        }
    }

    /// Digest that another task of the job's revision uses on this node.
    fn chosen(&self, launch: &TaskLaunch) -> Option<String> {
        let mut uses = self.uses.values();
        let used =
            uses.find(|used| used.job == launch.job_id && used.revision == launch.revision)?;
        Some(used.digest.clone())
    }

    fn ready(&mut self, launch: &TaskLaunch, info: ImageInfo) -> ImageStatus {
        let used = ImageUse {
            job: launch.job_id,
            revision: launch.revision,
            digest: info.digest.clone(),
        };
        if let Err(source) = self.use_file(launch.task_id).write_atomically(&used) {
            let failed = ImageError::at(self.cache.uses())(source);
            return ImageStatus::Failed(ExecutorError::Image(failed).outcome());
        }
        self.uses.insert(launch.task_id, used);
        self.cache.touch_image(&info.digest);
        ImageStatus::Ready(self.cache.image(&info.digest), info)
    }

    /// Writes further messages of a pull to the log of this task too.
    fn follow(&self, state: &mut Pull, entry: &LedgerEntry, image: &str) {
        let task = entry.launch.task_id;
        if state.logs.iter().any(|(known, _)| *known == task) {
            return;
        }
        match RotatingLog::open(entry.folder.path(), self.rotation) {
            Ok(log) => state.logs.push((task, log)),
            Err(error) => tracing::warn!(task.id = %task, %error, "cannot write its log"),
        }
        state.tell(&format!("image {image}"), Some(task));
        let _ = self.loop_events.send(NodeLoopEvent::Grown);
    }

    fn begin(
        &mut self,
        launch: &TaskLaunch,
        image: &str,
    ) -> Result<Arc<Mutex<Pull>>, ExecutorError> {
        let own = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
        let mut command = Command::new(&own);
        command
            .args(["fetch-image", "--image", image, "--cache"])
            .arg(self.cache.root())
            .args(["--limit-bytes", &self.limit_bytes.to_string()])
            .args(["--patience-ms", &self.patience_ms.to_string()])
            .env_clear()
            .envs(
                PASSED
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(file) = &self.auth_file {
            command.arg("--auth-file").arg(file);
        }
        for registry in &self.insecure {
            command.arg("--insecure").arg(registry);
        }
        let pull = Arc::new(Mutex::new(Pull::default()));
        let (shared, loop_events) = (Arc::clone(&pull), self.loop_events.clone());
        let (slots, tenant) = (self.slots.clone(), launch.tenant_id);
        let cache = self.cache.clone();
        // On a thread of its own: the helper ends with the thread that started it.
        thread::Builder::new()
            .name("image".to_owned())
            .spawn(move || {
                let turn = (&slots, tenant);
                let result = in_turn(turn, (command, &cache), &shared, &loop_events);
                let mut state = locked(&shared);
                if let Err((message, _)) = &result {
                    state.tell(message, None);
                }
                state.result = Some(result);
                drop(state);
                let _ = loop_events.send(NodeLoopEvent::Look);
            })
            .map_err(ExecutorError::Thread)?;
        let key = (launch.job_id, launch.revision);
        self.pulls.insert(key, Arc::clone(&pull));
        Ok(pull)
    }

    /// Removes unused images until this number of bytes is free on their disk.
    pub(crate) fn free_disk(&self, bytes: u64) {
        if self.is_clearing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (cache, is_clearing) = (self.cache.clone(), Arc::clone(&self.is_clearing));
        let clearing = thread::Builder::new().name("image removal".to_owned());
        let clearing = clearing.spawn(move || {
            cache.make_room(bytes, u64::MAX, &BTreeSet::new());
            is_clearing.store(false, Ordering::Release);
        });
        if let Err(error) = clearing {
            tracing::warn!(%error, "unused images stay");
            self.is_clearing.store(false, Ordering::Release);
        }
    }

    /// Forgets the images of tasks that have ended.
    pub(crate) fn tidy(&mut self, ledger: &Ledger) {
        let ended: Vec<TaskId> = self
            .uses
            .keys()
            .copied()
            .filter(|task| !ledger.is_live(*task))
            .collect();
        for task in ended {
            // The next daemon tries again.
            if let Err(error) = self.use_file(task).remove() {
                tracing::warn!(task.id = %task, %error, "cannot remove the record of an image");
            }
            self.uses.remove(&task);
        }
        let live = ledger.entries.values().filter(|entry| !entry.is_ended());
        let jobs: BTreeSet<JobImage> = live
            .map(|entry| (entry.launch.job_id, entry.launch.revision))
            .collect();
        self.pulls.retain(|key, pull| {
            let mut state = locked(pull);
            if jobs.contains(key) {
                state.is_unwanted = false;
                return true;
            }
            state.abandon();
            state.result.is_none()
        });
    }
}

impl Pull {
    /// Ends the helper, so that pulls of other jobs get its place.
    fn abandon(&mut self) {
        self.is_unwanted = true;
        if let Some(helper) = self.helper.take() {
            self.is_abandoned = true;
            let _ = kill_process(helper, Signal::KILL);
        }
    }

    /// Writes a message to the log of a task, or of all tasks that wait.
    fn tell(&mut self, text: &str, only: Option<TaskId>) {
        let line = format!("muster-executor: {text}\n");
        let logs = self.logs.iter_mut();
        for (task, log) in logs.filter(|(task, _)| only.is_none_or(|only| only == *task)) {
            if let Err(error) = log.write(line.as_bytes()) {
                tracing::warn!(task.id = %task, %error, "cannot write its log");
            }
        }
    }
}

/// Runs a helper as soon as fewer than [`MAX_PULLS`] others run.
fn in_turn(
    (slots, tenant): (&PullSlots, TenantId),
    (command, cache): (Command, &CacheFolders),
    pull: &Mutex<Pull>,
    loop_events: &Sender<NodeLoopEvent>,
) -> Result<String, (String, Fault)> {
    let _slot = match slots.take_free(tenant) {
        Some(slot) => slot,
        None => {
            let text = format!("waiting: this node pulls {MAX_PULLS} images at a time");
            locked(pull).tell(&text, None);
            let _ = loop_events.send(NodeLoopEvent::Grown);
            slots.take(tenant)
        }
    };
    supervise((command, cache), pull, loop_events)
}

fn unwanted() -> (String, Fault) {
    let message = "no task needs the image any more".to_owned();
    (message, Fault::Passing)
}

/// Runs a helper and passes its messages on. Returns the digest of the image. The helper does not
/// start if no task needs the image.
fn supervise(
    (mut command, cache): (Command, &CacheFolders),
    pull: &Mutex<Pull>,
    loop_events: &Sender<NodeLoopEvent>,
) -> Result<String, (String, Fault)> {
    let mut state = locked(pull);
    if state.is_unwanted {
        state.is_abandoned = true;
        return Err(unwanted());
    }
    let mut child = command.spawn().map_err(passing)?;
    let helper = Pid::from_child(&child);
    state.helper = Some(helper);
    drop(state);
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::with_capacity(MAX_LINE, output);
    let mut result = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        match io::Read::take(&mut lines, MAX_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(FetchMessage::Said { text }) => {
                locked(pull).tell(&text, None);
                let _ = loop_events.send(NodeLoopEvent::Grown);
            }
            Ok(FetchMessage::Done { digest }) => result = Some(Ok(digest)),
            Ok(FetchMessage::Failed { message, fault }) => result = Some(Err((message, fault))),
            Err(error) => tracing::warn!(%error, "a line of the helper that pulls images"),
        }
    }
    let mut state = locked(pull);
    state.helper = None;
    let is_abandoned = state.is_abandoned;
    drop(state);
    if result.is_none() {
        cache.remove_unfinished_of(helper.as_raw_nonzero().get());
    }
    let status = child.wait().map_err(passing)?;
    result.unwrap_or_else(|| {
        if is_abandoned {
            return Err(unwanted());
        }
        let message = format!("the helper that pulls images ended with {status}");
        Err((message, Fault::Passing))
    })
}

fn passing(error: io::Error) -> (String, Fault) {
    let message = format!("the helper that pulls images: {error}");
    (message, Fault::Passing)
}

/// Returns the outcome of a task whose image is not available. A fault of the image ends the job.
fn failed(folder: &NodeTaskFolder, message: String, fault: Fault) -> Outcome {
    if fault == Fault::OfImage {
        let report = TaskReport::Failed {
            message: message.clone(),
            retryable: false,
            lacks: None,
        };
        if let Err(error) = events::append(&folder.events(), &[report]) {
            tracing::warn!(%error, "cannot report a failed pull");
        }
    }
    match fault {
        Fault::NoSpace => Outcome::refused(message),
        Fault::OfImage | Fault::Passing => Outcome::LaunchFailed { message },
    }
}

fn locked(pull: &Mutex<Pull>) -> MutexGuard<'_, Pull> {
    pull.lock().unwrap_or_else(PoisonError::into_inner)
}
