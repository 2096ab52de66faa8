//! Output folders of the tasks of this node. Each is uploaded while its task runs and after its
//! end, by a task of the async runtime. The node loop only says which tasks there are.

use super::checkpoint_upload::CheckpointUploads;
use super::store::ArtifactStore;
use super::upload::{OutputFolder, PassResult};
use crate::folder::NodeTaskFolder;
use crate::ledger::{Ledger, LedgerEntry, Life};
use crate::loop_event::NodeLoopEvent;
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Interval of passes over the folder of a running task. A file is uploaded once it is unchanged
/// for this time.
const EVERY: Duration = Duration::from_secs(3);
/// Pause between passes after the task's end.
const RETRY: Duration = Duration::from_secs(1);
/// Time after the end of a task after which its remaining files are given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(600);

/// The folders that are uploaded. The node loop shares them with the uploads.
#[derive(Debug, Clone)]
pub struct OutputUploads {
    followed: Arc<Mutex<BTreeMap<TaskId, Followed>>>,
    begin: mpsc::UnboundedSender<Begun>,
}

/// Receives the tasks whose folders are to be uploaded.
#[derive(Debug)]
pub struct OutputQueue(mpsc::UnboundedReceiver<Begun>);

#[derive(Debug)]
struct Followed {
    /// Dropping it ends the uploads.
    has_ended: watch::Sender<bool>,
    progress: UploadProgress,
}

/// State of the uploads of a task, for the node loop.
#[derive(Debug, Clone, Default)]
struct UploadProgress {
    is_done: Arc<AtomicBool>,
    has_waiting_checkpoint: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Begun {
    launch: TaskLaunch,
    folder: NodeTaskFolder,
    has_ended: watch::Receiver<bool>,
    progress: UploadProgress,
}

impl OutputUploads {
    #[must_use]
    pub fn new() -> (Self, OutputQueue) {
        let (begin, begun) = mpsc::unbounded_channel();
        let uploads = Self {
            followed: Arc::default(),
            begin,
        };
        (uploads, OutputQueue(begun))
    }

    /// Begins and ends uploads according to the ledger, and records in it whose files are kept.
    pub fn follow(&self, ledger: &mut Ledger) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|id, _| {
            let entry = ledger.entries.get(id);
            entry.is_some_and(|entry| !entry.is_forgotten())
        });
        for (id, entry) in &mut ledger.entries {
            let is_started = matches!(entry.life, Life::Running(_) | Life::Ended(_));
            if !is_started || entry.is_forgotten() || entry.is_output_kept {
                continue;
            }
            if entry.launch.spec.command.is_none() {
                entry.is_output_kept = true;
                continue;
            }
            let uploads = followed.entry(*id).or_insert_with(|| self.begin(entry));
            if entry.is_ended() {
                uploads.has_ended.send_if_modified(|has_ended| {
                    let is_news = !*has_ended;
                    *has_ended = true;
                    is_news
                });
                let progress = &uploads.progress;
                entry.is_output_kept = progress.is_done.load(Ordering::Acquire);
                entry.has_waiting_checkpoint =
                    progress.has_waiting_checkpoint.load(Ordering::Acquire);
            }
        }
    }

    fn begin(&self, entry: &LedgerEntry) -> Followed {
        let (has_ended, receiver) = watch::channel(false);
        let progress = UploadProgress::default();
        // The receiver is gone only while the daemon ends.
        let _ = self.begin.send(Begun {
            launch: entry.launch.clone(),
            folder: entry.folder.clone(),
            has_ended: receiver,
            progress: progress.clone(),
        });
        Followed {
            has_ended,
            progress,
        }
    }
}

impl OutputQueue {
    /// Uploads until the daemon ends.
    pub async fn serve(mut self, store: ArtifactStore, wake: Sender<NodeLoopEvent>) {
        while let Some(begun) = self.0.recv().await {
            let (store, wake) = (store.clone(), wake.clone());
            tokio::spawn(async move {
                if begun.upload(&store).await {
                    let _ = wake.send(NodeLoopEvent::Look);
                }
            });
        }
    }
}

impl Begun {
    /// Uploads until all files of the ended task are kept or given up. Returns `false` if the task
    /// is not followed any more.
    async fn upload(mut self, store: &ArtifactStore) -> bool {
        let mut output = OutputFolder::new(&self.launch, &self.folder);
        let mut checkpoints = CheckpointUploads::new(store, &self.launch, &self.folder);
        let waits = Arc::clone(&self.progress.has_waiting_checkpoint);
        let mut given_up = pin!(given_up(self.has_ended.clone()));
        loop {
            let has_ended = *self.has_ended.borrow_and_update();
            let result = tokio::select! {
                biased;
                () = &mut given_up => None,
                results = async {
                    tokio::join!(
                        output.pass(store, has_ended),
                        pass(&mut checkpoints, store, has_ended, &waits),
                    )
                } => Some(results),
            };
            if result.is_none() {
                tracing::error!(task.id = %self.launch.task_id, "files of an ended task are not kept");
            }
            let is_final = has_ended
                && result.is_some_and(|(output, checkpoints)| {
                    output != PassResult::Unsettled && checkpoints != PassResult::Unsettled
                });
            if result.is_none() || is_final {
                self.progress.is_done.store(true, Ordering::Release);
                return true;
            }
            if has_ended {
                tokio::time::sleep(RETRY).await;
            } else {
                tokio::select! {
                    changed = self.has_ended.changed() => if changed.is_err() { return false },
                    () = tokio::time::sleep(EVERY) => {}
                }
            }
            if self.has_ended.has_changed().is_err() {
                return false;
            }
        }
    }
}

/// Keeps declared checkpoints, and says whether some wait.
async fn pass(
    checkpoints: &mut Option<CheckpointUploads>,
    store: &ArtifactStore,
    has_ended: bool,
    waits: &AtomicBool,
) -> PassResult {
    let Some(checkpoints) = checkpoints else {
        return PassResult::Settled;
    };
    checkpoints.pass(store, has_ended, waits).await
}

/// Waits until the files of a task are given up. A task that is not followed any more has no end.
async fn given_up(mut has_ended: watch::Receiver<bool>) {
    match has_ended.wait_for(|has_ended| *has_ended).await.map(drop) {
        Ok(()) => tokio::time::sleep(GIVE_UP_AFTER).await,
        Err(_) => std::future::pending().await,
    }
}
