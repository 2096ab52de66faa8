//! Costs in the published simulators.

use super::application::Application;
use super::training::ReferenceTraining;
use muster_core::learn::{BatchLimits, Batching};

/// Rules of one published simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatorRules {
    /// Pollux' artefact: every change of nodes costs 30 s.
    Pollux,
    /// Sia's artefact: several GPU kinds, restart costs and slowdown by application. Moves to equal
    /// shapes are free.
    Sia,
}

/// Seconds between decisions.
pub(super) const TICK_S: f64 = 60.0;

impl SimulatorRules {
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

    /// Divisor of the measured speed.
    pub(super) fn slowdown(self, application: &str) -> f64 {
        match (self, application) {
            (Self::Pollux, _) => 1.0,
            (Self::Sia, "cifar10") => 1.8,
            (Self::Sia, "ncf") => 1.5,
            (Self::Sia, _) => 1.2,
        }
    }

    /// Batch limits that the user declares. With several GPU kinds the largest batch per GPU
    /// depends on the kind.
    pub(super) fn limits(self, application: &Application, kind: u16) -> BatchLimits {
        self.limits_on(application, kind, &[1])
    }

    /// Batch limits on a placement. Sia's artefact never runs a batch per GPU that was not measured
    /// on the placement.
    pub(super) fn limits_on(
        self,
        application: &Application,
        kind: u16,
        placement: &[u32],
    ) -> BatchLimits {
        let measured = match self {
            Self::Pollux => None,
            Self::Sia => application.measured[usize::from(kind)].largest_local(placement),
        };
        BatchLimits {
            init: application.init_batch,
            max: application.max_batch,
            min_local: application.min_local,
            max_local: measured.unwrap_or(application.max_local),
        }
    }

    /// Maximum number of GPUs: beyond it a GPU would get less than its smallest batch. The
    /// artefacts run `ncf` on one GPU if the user's batch size is kept.
    pub(super) fn most_gpus(self, training: &ReferenceTraining<'_>, batching: Batching) -> u32 {
        self.most_gpus_of(training.application, training.kind, batching)
    }

    /// Same as [`Self::most_gpus`], for an application on a GPU kind.
    pub(super) fn most_gpus_of(
        self,
        application: &Application,
        kind: u16,
        batching: Batching,
    ) -> u32 {
        match batching {
            Batching::Fixed { .. } if application.name == "ncf" => 1,
            _ => self.limits(application, kind).most_gpus(batching),
        }
    }

    /// Whether a move to other nodes in the same shape costs a restart.
    pub(super) fn charges_moves(self) -> bool {
        self == Self::Pollux
    }

    /// Whether a job keeps its allocation until it has restarted.
    pub(super) fn holds_restarting(self) -> bool {
        self == Self::Sia
    }
}
