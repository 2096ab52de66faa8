//! What the peers' simulators charge for.

use super::application::Application;
use super::training::Training;
use muster_core::learn::{BatchLimits, Batching};

/// One of the peers' sets of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Of the Pollux artefact: every change of nodes costs 30 s.
    Pollux,
    /// Of the Sia artefact: GPU kinds, restarts and a slowdown by application, moves to equal shapes for free.
    Sia,
}

/// Seconds between decisions.
pub(super) const TICK_S: f64 = 60.0;

impl Rules {
    /// Seconds without progress after a new allocation.
    pub(super) fn restart_s(self, application: &str) -> f64 {
        match (self, application) {
            (Self::Pollux, _) => 30.0,
            (Self::Sia, "cifar10") => 50.0,
            (Self::Sia, "deepspeech2") => 25.0,
            (Self::Sia, "bert") => 120.0,
            (Self::Sia, "yolov3") => 80.0,
            (Self::Sia, "imagenet") => 250.0,
            (Self::Sia, "ncf") => 15.0,
            (Self::Sia, _) => 60.0,
        }
    }

    /// By what the measured speed is divided.
    pub(super) fn slowdown(self, application: &str) -> f64 {
        match (self, application) {
            (Self::Pollux, _) => 1.0,
            (Self::Sia, "cifar10") => 1.8,
            (Self::Sia, "ncf") => 1.5,
            (Self::Sia, _) => 1.2,
        }
    }

    /// The limits that the owner declares; what a GPU takes at once is by its kind where there are several.
    pub(super) fn limits(self, application: &Application, kind: u16) -> BatchLimits {
        let by_kind = match self {
            Self::Pollux => None,
            Self::Sia => application.measured[usize::from(kind)].largest_local(),
        };
        BatchLimits {
            init: application.init_batch,
            max: application.max_batch,
            min_local: application.min_local,
            max_local: by_kind.unwrap_or(application.max_local),
        }
    }

    /// More GPUs would not get their least batch each; the artefacts run ncf on one GPU where the user's batch is kept.
    pub(super) fn most_gpus(self, training: &Training<'_>, batching: Batching) -> u32 {
        match batching {
            Batching::Fixed { .. } if training.application.name == "ncf" => 1,
            _ => training.limits().most_gpus(batching),
        }
    }

    /// Whether other nodes in the same shape cost a restart.
    pub(super) fn charges_moves(self) -> bool {
        self == Self::Pollux
    }

    /// Whether a job keeps its allocation until it has restarted.
    pub(super) fn holds_restarting(self) -> bool {
        self == Self::Sia
    }
}
