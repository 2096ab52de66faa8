//! Statistical efficiency: the gain of a step with a larger batch, by the gradient noise scale
//! (Pollux, OSDI 2021, section 3.1; McCandlish et al., 2018), learned over the course of a family's
//! work.

/// Gradient noise scale: variance of the gradient at the initial batch size over its squared norm.
/// It is the number of initial batches up to which the gain of a batch is nearly its size.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct NoiseScale(pub f64);

/// Bins over the course of the work, 0 to 1.
const BINS: usize = 100;

/// Relative change below which an observation is not news.
const NEWS: f64 = 0.02;

/// Noise scales seen over the course of the work.
#[derive(Debug, Clone, PartialEq)]
pub struct Noises {
    bins: Vec<Option<NoiseScale>>,
}

impl Default for Noises {
    fn default() -> Self {
        Self {
            bins: vec![None; BINS],
        }
    }
}

impl NoiseScale {
    /// Returns the progress of a step with `scale` times the initial batch, in steps of the initial
    /// one: between 1 and `scale`.
    #[must_use]
    pub fn gain(self, scale: f64) -> f64 {
        (self.0 + 1.0) / (self.0 / scale + 1.0)
    }
}

impl Noises {
    /// Records a report. Returns whether it is news.
    pub(super) fn observe(&mut self, share_done: f64, noise: NoiseScale) -> bool {
        if !noise.0.is_finite() || noise.0 < 0.0 {
            return false;
        }
        let bin = &mut self.bins[bin(share_done)];
        let news = bin.is_none_or(|old| (noise.0 - old.0).abs() > NEWS * (old.0 + 1.0));
        // Jobs of a family differ, so each report moves the bin half way.
        *bin = Some(bin.map_or(noise, |old| NoiseScale((old.0 + noise.0) / 2.0)));
        news
    }

    /// Returns the noise expected at a share of the work: the one seen there, else the nearest
    /// before, else the nearest after.
    pub(super) fn at(&self, share_done: f64) -> Option<NoiseScale> {
        let at = bin(share_done);
        let before = self.bins[..=at].iter().rev().flatten().next();
        before
            .or_else(|| self.bins[at..].iter().flatten().next())
            .copied()
    }

    /// Divides the remaining work into `N` stretches and returns the share and the expected noise
    /// of each. Before the first report a larger batch has no gain.
    pub(super) fn stretches<const N: usize>(&self, share_done: f64) -> [(f64, NoiseScale); N] {
        let from = share_done.clamp(0.0, 0.999_9);
        let length = (1.0 - from) / N as f64;
        std::array::from_fn(|index| {
            let middle = from + (index as f64 + 0.5) * length;
            (length, self.at(middle).unwrap_or(NoiseScale(0.0)))
        })
    }
}

fn bin(share: f64) -> usize {
    // A cast saturates at 0.
    ((share * BINS as f64) as usize).min(BINS - 1)
}
