//! Batch sizes: the bounds that a job's owner declares, and the split of a batch over GPUs and
//! accumulated steps.

/// Declared bounds of the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Initial batch size in examples. Work is counted in steps of this size.
    pub init: u32,
    pub max: u32,
    /// Smallest and largest number of examples that one GPU processes at once.
    pub min_local: u32,
    pub max_local: u32,
}

/// Split of a batch over a given number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSplit {
    /// Examples that one GPU processes at once.
    pub local: u32,
    /// Passes before the last one whose gradients are summed before the exchange.
    pub accumulated: u32,
}

/// Whether the system may choose the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Batching {
    /// Batch size of the owner.
    Fixed { batch: u32 },
    /// Any batch size within the declared bounds.
    Adaptive,
}

/// Number of geometrically spaced batch sizes that are tried.
const CANDIDATES: u32 = 24;

/// Added before rounding up, so that an exact quotient is not rounded to the next.
const ROUNDING: f64 = 1e-8;

impl BatchSplit {
    /// Returns the examples per step over all GPUs.
    #[must_use]
    pub fn total(self, gpus: u32) -> u32 {
        self.local
            .saturating_mul(self.accumulated + 1)
            .saturating_mul(gpus)
    }
}

impl BatchLimits {
    /// Splits `batch` examples over `gpus` GPUs with as few accumulated passes as memory allows.
    /// One GPU beyond the initial batch size accumulates at least once, because gradient noise is
    /// measured between passes (Pollux).
    #[must_use]
    pub fn split(self, batch: u32, gpus: u32) -> BatchSplit {
        self.split_with(batch, gpus, gpus == 1 && batch > self.init)
    }

    /// Splits a batch on one GPU that always accumulates, as the Pollux artefact predicts for
    /// Optimus.
    #[must_use]
    pub fn split_accumulating(self, batch: u32) -> BatchSplit {
        self.split_with(batch, 1, true)
    }

    fn split_with(self, batch: u32, gpus: u32, must_accumulate: bool) -> BatchSplit {
        let local = up(f64::from(batch) / f64::from(gpus.max(1)));
        let mut accumulated = up(local / f64::from(self.max_local)).max(1.0) - 1.0;
        if must_accumulate {
            accumulated = accumulated.max(1.0);
        }
        let atomic = up(local / (accumulated + 1.0));
        let most = (f64::from(self.max) / (f64::from(gpus) * (accumulated + 1.0))).floor();
        BatchSplit {
            // Quotients of u32s fit.
            local: atomic.min(most).max(1.0) as u32,
            accumulated: accumulated as u32,
        }
    }

    /// Returns the batch of a job of which nothing is known.
    #[must_use]
    pub fn first(self, gpus: u32) -> BatchSplit {
        self.split(self.init.max(self.min_local.saturating_mul(gpus)), gpus)
    }

    /// Returns the largest number of GPUs that each get their smallest local batch.
    #[must_use]
    pub fn most_gpus(self, batching: Batching) -> u32 {
        let batch = match batching {
            Batching::Fixed { batch } => batch,
            Batching::Adaptive => self.max,
        };
        (batch / self.min_local.max(1)).max(1)
    }

    /// Returns splits from the smallest to the largest batch that the bounds allow on `gpus` GPUs.
    pub fn candidates(self, gpus: u32) -> impl Iterator<Item = BatchSplit> {
        let low = f64::from(self.init.max(self.min_local.saturating_mul(gpus)));
        let high = f64::from(self.max).max(low);
        let ratio = (high / low).powf(1.0 / f64::from(CANDIDATES - 1));
        (0..CANDIDATES)
            .scan(low, move |size, _| {
                let now = *size;
                *size *= ratio;
                Some(now)
            })
            .map(move |size| self.split(size.round().min(high) as u32, gpus))
    }
}

fn up(value: f64) -> f64 {
    (value - ROUNDING).ceil()
}
