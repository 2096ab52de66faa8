//! The thread that writes checkpoints while training goes on.
//!
//! Training gives it a copy of the state and gets the copy's memory back with the outcome, so that there are two states in memory
//! and never three, and the next copy meets pages that are in place. One checkpoint is written at a time; a second one waits with
//! whoever wants it, so that a slow disk leads to fewer checkpoints and not to a queue of old ones.

use super::{CheckpointError, Contents, Depot, Manifest};
use crate::clock;
use muster_model::checkpoint::{Candidate, Written};
use muster_model::spec::CheckpointPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// What is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A checkpoint, after which those that the policy does not keep are removed.
    Checkpoint,
    /// The trained model.
    Final,
}

/// What came of an order.
#[derive(Debug)]
pub struct Attempt {
    pub step: u64,
    pub took: Duration,
    pub outcome: Result<Outcome, CheckpointError>,
}

/// What has been written.
#[derive(Debug)]
pub enum Outcome {
    Checkpoint {
        written: Box<Written>,
        /// Steps of which the checkpoints are gone now. That removing fails does no harm to what was written.
        pruned: Result<Vec<u64>, CheckpointError>,
    },
    Final {
        /// Relative to the checkpoint root.
        model_path: String,
    },
}

/// Says which steps stay whatever the policy; `None` while nobody knows, and nothing is removed then.
pub type Spared = Arc<dyn Fn() -> Option<BTreeSet<u64>> + Send + Sync>;

/// Brings what contents are still without, as the first thing of writing them.
pub trait Source: Debug + Send {
    /// Fills them.
    ///
    /// # Errors
    /// When they cannot be brought. Another copy of a later state may well be.
    fn fill(&self, contents: &mut Contents) -> Result<(), SourceError>;
}

/// Why contents could not be brought.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// The thread's other end.
#[derive(Debug)]
pub struct Writer {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
    /// Until whoever has begun it is told what came of it.
    busy: bool,
    ended: Option<Attempt>,
    spare: Option<Contents>,
    present: Vec<Candidate>,
}

#[derive(Debug)]
struct Order {
    kind: Kind,
    manifest: Box<Manifest>,
    contents: Contents,
    source: Option<Box<dyn Source>>,
}

/// Memory, and besides the first time what came of an order and what there is by now.
#[derive(Debug)]
struct Answer {
    contents: Contents,
    ended: Option<(Attempt, Vec<Candidate>)>,
}

impl Writer {
    /// Starts the thread, which first makes room for a state of so many parameters and planes.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] when the folder cannot be listed or the thread not be started.
    pub fn start(
        depot: Depot,
        policy: CheckpointPolicy,
        spared: Spared,
        parameters: usize,
        planes: usize,
    ) -> Result<Self, CheckpointError> {
        let mut known = BTreeMap::new();
        let present = depot.candidates(&mut known)?;
        let (orders, received) = mpsc::channel();
        let (to, answers) = mpsc::channel();
        let place = depot.place();
        let work = move || {
            let mut spare = Contents::default();
            spare.fit(parameters, planes);
            let _ = to.send(Answer {
                contents: spare,
                ended: None,
            });
            serve(&depot, (&policy, &spared), &mut known, &received, &to);
        };
        thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(work)
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

    /// Whether something is being written, or was and nobody has asked what came of it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// What there is to continue from, as of the last outcome.
    #[must_use]
    pub fn present(&self) -> &[Candidate] {
        &self.present
    }

    /// Memory for the next copy of the state.
    pub fn spare(&mut self) -> Contents {
        self.hear();
        self.spare.take().unwrap_or_default()
    }

    /// Memory that [`Self::spare`] gave and that is not written.
    pub fn take_back(&mut self, contents: Contents) {
        self.spare = Some(contents);
    }

    /// Begins to write.
    ///
    /// # Panics
    /// When it is busy: outcomes are to be taken first.
    pub fn begin(&mut self, kind: Kind, manifest: Manifest, contents: Contents) {
        self.begin_from(kind, manifest, contents, None);
    }

    /// The same where the contents may be still to be filled from a source.
    ///
    /// # Panics
    /// As [`Self::begin`].
    pub fn begin_from(
        &mut self,
        kind: Kind,
        manifest: Manifest,
        contents: Contents,
        source: Option<Box<dyn Source>>,
    ) {
        assert!(!self.busy, "one at a time");
        self.busy = true;
        let order = Order {
            kind,
            manifest: Box::new(manifest),
            contents,
            source,
        };
        self.orders.send(order).expect("the writer lives as long");
    }

    /// The outcome of what was begun, if there is one by now.
    pub fn poll(&mut self) -> Option<Attempt> {
        self.hear();
        self.outcome()
    }

    /// Waits for the outcome of what was begun, at most so long.
    pub fn wait(&mut self, limit: Duration) -> Option<Attempt> {
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

    fn take(&mut self, answer: Answer) {
        self.spare = Some(answer.contents);
        if let Some((attempt, present)) = answer.ended {
            self.ended = Some(attempt);
            self.present = present;
        }
    }

    fn outcome(&mut self) -> Option<Attempt> {
        let ended = self.ended.take()?;
        self.busy = false;
        Some(ended)
    }
}

fn serve(
    depot: &Depot,
    (policy, spared): (&CheckpointPolicy, &Spared),
    known: &mut BTreeMap<String, Candidate>,
    orders: &Receiver<Order>,
    to: &Sender<Answer>,
) {
    for order in orders {
        let Order {
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
            Kind::Final => depot
                .write_final(&mut manifest, &contents)
                .map(|model_path| Outcome::Final { model_path }),
            Kind::Checkpoint => {
                depot
                    .write(&mut manifest, &contents)
                    .map(|written| Outcome::Checkpoint {
                        written: Box::new(written),
                        // Asked now: who is to begin from an older one may have come while this one was written.
                        pruned: match spared() {
                            Some(spared) => depot.prune(policy, &spared, known),
                            None => depot.candidates(known).map(|_| Vec::new()),
                        },
                    })
            }
        });
        let attempt = Attempt {
            step: manifest.step,
            took: began.elapsed(),
            outcome,
        };
        let answer = Answer {
            contents,
            ended: Some((attempt, known.values().copied().collect())),
        };
        if to.send(answer).is_err() {
            return;
        }
    }
}

impl CheckpointError {
    /// Whether the same may succeed later: the disk, the store or the way to the state failed, not the checkpoint.
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
