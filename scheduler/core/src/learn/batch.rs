//! Batch sizes: the bounds that a job's owner declares, and how a batch is split over GPUs and accumulated steps.

/// What the owner allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Examples a step in whose steps work is counted.
    pub init: u32,
    pub max: u32,
    /// Examples that one GPU takes at once, least and most.
    pub min_local: u32,
    pub max_local: u32,
}

/// A batch on a given number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Examples that one GPU takes at once.
    pub local: u32,
    /// Passes whose gradients are summed before the exchange, beside the last.
    pub accumulated: u32,
}

/// Whether the system may choose the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Batching {
    /// The owner's.
    Fixed { batch: u32 },
    /// Any within the declared limits.
    Adaptive,
}

/// Batch sizes that are tried, geometrically spaced.
const CANDIDATES: u32 = 24;

/// Added before rounding up, so that an exact quotient is not rounded to the next.
const ROUNDING: f64 = 1e-8;

impl Batch {
    /// Examples a step over all GPUs.
    #[must_use]
    pub fn total(self, gpus: u32) -> u32 {
        self.local
            .saturating_mul(self.accumulated + 1)
            .saturating_mul(gpus)
    }
}

impl BatchLimits {
    /// How `batch` examples are split over `gpus` GPUs: as few accumulated passes as memory allows. One GPU that goes beyond the
    /// initial batch size accumulates at least once, because gradient noise is measured between passes (Pollux).
    #[must_use]
    pub fn split(self, batch: u32, gpus: u32) -> Batch {
        self.split_with(batch, gpus, gpus == 1 && batch > self.init)
    }

    /// The same on one GPU that accumulates whatever the batch, as the Pollux artefact has Optimus predict.
    #[must_use]
    pub fn split_accumulating(self, batch: u32) -> Batch {
        self.split_with(batch, 1, true)
    }

    fn split_with(self, batch: u32, gpus: u32, must_accumulate: bool) -> Batch {
        let local = up(f64::from(batch) / f64::from(gpus.max(1)));
        let mut accumulated = up(local / f64::from(self.max_local)).max(1.0) - 1.0;
        if must_accumulate {
            accumulated = accumulated.max(1.0);
        }
        let atomic = up(local / (accumulated + 1.0));
        let most = (f64::from(self.max) / (f64::from(gpus) * (accumulated + 1.0))).floor();
        Batch {
            // Quotients of u32s fit.
            local: atomic.min(most).max(1.0) as u32,
            accumulated: accumulated as u32,
        }
    }

    /// What a job takes before anything is known of it.
    #[must_use]
    pub fn first(self, gpus: u32) -> Batch {
        self.split(self.init.max(self.min_local.saturating_mul(gpus)), gpus)
    }

    /// More GPUs would not get their least batch each.
    #[must_use]
    pub fn most_gpus(self, batching: Batching) -> u32 {
        let batch = match batching {
            Batching::Fixed { batch } => batch,
            Batching::Adaptive => self.max,
        };
        (batch / self.min_local.max(1)).max(1)
    }

    /// Splits from the smallest to the largest batch that the limits allow on so many GPUs.
    pub fn candidates(self, gpus: u32) -> impl Iterator<Item = Batch> {
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
