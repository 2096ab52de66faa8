//! Thread that writes checkpoints while training continues.
//!
//! Training passes a copy of the state and receives the copy's memory with the outcome. So there
//! are two states in memory and never three, and the pages of the next copy are already populated.
//! One checkpoint is written at a time. A second one waits with its caller, so that a slow disk
//! leads to fewer checkpoints and not to a queue of old ones.

use super::{CheckpointError, CheckpointStore, Contents, Manifest};
use muster_compute::clock;
use muster_model::checkpoint::{Candidate, Written};
use muster_model::spec::CheckpointPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Kind of data to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// A checkpoint; afterwards those that the policy does not keep are removed.
    Checkpoint,
    /// The trained model.
    Final,
}

/// Result of an order.
#[derive(Debug)]
pub struct WriteAttempt {
    pub step: u64,
    pub took: Duration,
    pub outcome: Result<WriteOutcome, CheckpointError>,
}

/// Data that was written.
#[derive(Debug)]
pub enum WriteOutcome {
    Checkpoint {
        written: Box<Written>,
        /// Steps whose checkpoints were removed. An error of the removal does not affect the
        /// written checkpoint.
        pruned: Result<Vec<u64>, CheckpointError>,
    },
    Final {
        /// Path relative to the checkpoint root.
        model_path: String,
    },
}

/// Returns the steps that must be kept independent of the policy; `None` if they are not known, and
/// then nothing is removed.
pub type ProtectedSteps = Arc<dyn Fn() -> Option<BTreeSet<u64>> + Send + Sync>;

/// Supplies contents that are not complete yet, at the beginning of a write.
pub trait ContentsSource: Debug + Send {
    /// Fills the contents.
    ///
    /// # Errors
    /// If they cannot be obtained. An attempt with a copy of a later state may succeed.
    fn fill(&self, contents: &mut Contents) -> Result<(), ContentsSourceError>;
}

/// Why contents could not be obtained.
pub type ContentsSourceError = Box<dyn Error + Send + Sync>;

/// Handle of the writer thread.
#[derive(Debug)]
pub struct CheckpointWriter {
    orders: Sender<WriteOrder>,
    answers: Receiver<WriterAnswer>,
    /// Whether an order has begun whose outcome has not been taken.
    busy: bool,
    ended: Option<WriteAttempt>,
    spare: Option<Contents>,
    present: Vec<Candidate>,
}

#[derive(Debug)]
struct WriteOrder {
    kind: WriteKind,
    manifest: Box<Manifest>,
    contents: Contents,
    source: Option<Box<dyn ContentsSource>>,
}

/// Memory; after an order also its outcome and the present checkpoints.
#[derive(Debug)]
struct WriterAnswer {
    contents: Contents,
    ended: Option<(WriteAttempt, Vec<Candidate>)>,
}

impl CheckpointWriter {
    /// Starts the thread, which first allocates a state with this number of parameters and planes.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] if the folder cannot be listed or the thread cannot be started.
    pub fn start(
        store: CheckpointStore,
        policy: CheckpointPolicy,
        spared: ProtectedSteps,
        parameters: usize,
        planes: usize,
    ) -> Result<Self, CheckpointError> {
        let mut known = BTreeMap::new();
        let present = store.candidates(&mut known)?;
        let (orders, received) = mpsc::channel();
        let (to, answers) = mpsc::channel();
        let place = store.place();
        thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || {
                let mut spare = Contents::default();
                spare.fit(parameters, planes);
                let _ = to.send(WriterAnswer {
                    contents: spare,
                    ended: None,
                });
                serve(&store, (&policy, &spared), &mut known, &received, &to);
            })
            .map_err(CheckpointError::io("start a writer for", &place))?;
        Ok(Self {
            orders,
            answers,
            busy: false,
            ended: None,
            spare: None,
            present,
        })
    }

    /// Whether a write is in progress, or its outcome has not been taken.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Checkpoints that exist, as of the last outcome.
    #[must_use]
    pub fn present(&self) -> &[Candidate] {
        &self.present
    }

    /// Memory for the next copy of the state.
    pub fn spare(&mut self) -> Contents {
        self.hear();
        self.spare.take().unwrap_or_default()
    }

    /// Returns memory from [`Self::spare`] that is not written.
    pub fn take_back(&mut self, contents: Contents) {
        self.spare = Some(contents);
    }

    /// Begins to write.
    ///
    /// # Panics
    /// If the writer is busy: the outcome must be taken first.
    pub fn begin(&mut self, kind: WriteKind, manifest: Manifest, contents: Contents) {
        self.begin_from(kind, manifest, contents, None);
    }

    /// Like [`Self::begin`], for contents that `source` may complete first.
    ///
    /// # Panics
    /// As [`Self::begin`].
    pub fn begin_from(
        &mut self,
        kind: WriteKind,
        manifest: Manifest,
        contents: Contents,
        source: Option<Box<dyn ContentsSource>>,
    ) {
        assert!(!self.busy, "one at a time");
        self.busy = true;
        let order = WriteOrder {
            kind,
            manifest: Box::new(manifest),
            contents,
            source,
        };
        self.orders.send(order).expect("the writer lives as long");
    }

    /// Outcome of the order, if it has ended.
    pub fn poll(&mut self) -> Option<WriteAttempt> {
        self.hear();
        self.outcome()
    }

    /// Waits for the outcome of the order, at most for `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<WriteAttempt> {
        let until = clock::now() + limit;
        while self.busy && self.ended.is_none() {
            let left = until.saturating_duration_since(clock::now());
            match self.answers.recv_timeout(left) {
                Ok(answer) => self.take(answer),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("the writer has panicked"),
            }
        }
        self.outcome()
    }

    fn hear(&mut self) {
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer);
        }
    }

    fn take(&mut self, answer: WriterAnswer) {
        self.spare = Some(answer.contents);
        if let Some((attempt, present)) = answer.ended {
            self.ended = Some(attempt);
            self.present = present;
        }
    }

    fn outcome(&mut self) -> Option<WriteAttempt> {
        let ended = self.ended.take()?;
        self.busy = false;
        Some(ended)
    }
}

fn serve(
    store: &CheckpointStore,
    (policy, spared): (&CheckpointPolicy, &ProtectedSteps),
    known: &mut BTreeMap<String, Candidate>,
    orders: &Receiver<WriteOrder>,
    to: &Sender<WriterAnswer>,
) {
    for order in orders {
        let WriteOrder {
            kind,
            mut manifest,
            mut contents,
            source,
        } = order;
        let began = clock::now();
        let filled = match source {
            Some(source) => source.fill(&mut contents).map_err(CheckpointError::Source),
            None => Ok(()),
        };
        let outcome = filled.and_then(|()| match kind {
            WriteKind::Final => store
                .write_final(&mut manifest, &contents)
                .map(|model_path| WriteOutcome::Final { model_path }),
            WriteKind::Checkpoint => {
                store
                    .write(&mut manifest, &contents)
                    .map(|written| WriteOutcome::Checkpoint {
                        written: Box::new(written),
                        // Asked after the write, because a job that begins from an older checkpoint
                        // may have been submitted meanwhile.
                        pruned: match spared() {
                            Some(spared) => store.prune(policy, &spared, known),
                            None => store.candidates(known).map(|_| Vec::new()),
                        },
                    })
            }
        });
        let attempt = WriteAttempt {
            step: manifest.step,
            took: began.elapsed(),
            outcome,
        };
        let answer = WriterAnswer {
            contents,
            ended: Some((attempt, known.values().copied().collect())),
        };
        if to.send(answer).is_err() {
            return;
        }
    }
}

impl CheckpointError {
    /// Whether a retry may succeed: the disk, the store or the transfer of the state failed, not
    /// the checkpoint.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Io { .. }
            | Self::Objects(_)
            | Self::Contended { .. }
            | Self::Source(_)
            | Self::Late { .. } => true,
            Self::Damaged { .. }
            | Self::Mismatch { .. }
            | Self::Absent { .. }
            | Self::Fenced { .. }
            | Self::Diverged => false,
        }
    }
}
