//! Stoppers, which decide how far each trial trains.

use super::{Errors, SearchSpec, Searcher};
use serde::{Deserialize, Serialize};

/// Rule that decides how far each trial trains. Budgets are in the unit of the search's `budget`,
/// of which a trial gets at most `budget.max`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Stopper {
    /// Every trial trains to its end.
    None {},
    /// Stops a trial whose best result is worse than the median of the other trials' means up to
    /// the same step (Vizier).
    Median {
        /// Trials that must have ended before any is stopped; 1 to 10,000.
        #[serde(default = "five")]
        startup: u32,
        /// Step before which no trial is stopped; 0 or more.
        #[serde(default)]
        warmup: u64,
    },
    /// Waits for all trials of a rung. The best of each `eta` continue with `eta` times the budget
    /// (Jamieson and Talwalkar).
    SuccessiveHalving {
        /// Budget of the first rung; 1 to `budget.max`.
        #[serde(default = "one")]
        min: u64,
        #[serde(default = "three")]
        eta: u32,
    },
    /// Successive halving from several first rungs, from many short trials to few long ones (Li et
    /// al.).
    Hyperband {
        #[serde(default = "one")]
        min: u64,
        #[serde(default = "three")]
        eta: u32,
    },
    /// A trial continues as soon as it is among the best of each `eta` of its rung; no trial waits
    /// (Li et al.).
    Asha {
        #[serde(default = "one")]
        min: u64,
        #[serde(default = "three")]
        eta: u32,
    },
    /// Extends learning curves. Trials that likely reach the target get slots first, hopeless
    /// trials stop, and the others alternate (HyperDrive, Rasley et al.). Needs the objective's
    /// `target`.
    HyperDrive {
        /// Budget after which a trial is judged again; 1 to `budget.max`.
        #[serde(default = "one")]
        boundary: u64,
        /// Probability of reaching the target below which a trial is hopeless; 0 to 0.5.
        #[serde(default = "default_hopeless")]
        hopeless: f64,
        /// Smallest number of points of a curve that is judged; 3 to 1000.
        #[serde(default = "four")]
        min_points: u32,
    },
    /// Population-based training (Jaderberg et al.): the worst trials continue from a checkpoint of
    /// the best and change their parameters.
    Pbt {
        /// Number of trials in the population; 2 to 1000.
        population: u32,
        /// Budget between two comparisons; 1 to `budget.max`.
        interval: u64,
        /// Share of the worst trials that are replaced, and of the best that replace them; 0.05 to
        /// 0.5.
        #[serde(default = "quarter")]
        quantile: f64,
        /// Probability that a parameter is drawn anew instead of changed by a fifth; 0 to 1.
        #[serde(default = "quarter")]
        resample: f64,
    },
}

impl Default for Stopper {
    fn default() -> Self {
        Self::None {}
    }
}

impl Stopper {
    /// Checks the rule's numbers, and that the rest of the search permits the rule.
    pub(super) fn check(&self, spec: &SearchSpec, errors: &mut Errors) {
        let max = spec.budget.max;
        let compares_trials = !matches!(self, Self::None {});
        errors.check(
            "stopper",
            "a rule that compares trials, with several objectives",
            !compares_trials || spec.objectives.len() <= 1,
            "kind none: of several objectives none says which trial is behind",
        );
        let depends_on_timing = matches!(self, Self::Median { .. });
        errors.check(
            "reproducible",
            "true",
            !spec.reproducible || !depends_on_timing,
            "false: the median rule stops trials when others report, which depends on the machines' speed",
        );
        match self {
            Self::None {} => {}
            Self::Median { startup, .. } => {
                errors.within("stopper.startup", u64::from(*startup), 1, 10_000);
            }
            Self::SuccessiveHalving { min, eta }
            | Self::Hyperband { min, eta }
            | Self::Asha { min, eta } => {
                errors.within("stopper.min", *min, 1, max);
                errors.within("stopper.eta", u64::from(*eta), 2, 16);
            }
            Self::HyperDrive {
                boundary,
                hopeless,
                min_points,
            } => {
                errors.within("stopper.boundary", *boundary, 1, max);
                errors.part("stopper.hopeless", *hopeless, 0.0, 0.5);
                errors.within("stopper.min_points", u64::from(*min_points), 3, 1000);
                errors.check(
                    "objectives[0].target",
                    "missing",
                    spec.objectives.iter().all(|o| o.target.is_some()),
                    "the value to reach, because hyper_drive asks how likely it is reached",
                );
            }
            Self::Pbt {
                population,
                interval,
                quantile,
                resample,
            } => {
                errors.within("stopper.population", u64::from(*population), 2, 1000);
                errors.within("stopper.interval", *interval, 1, max);
                errors.part("stopper.quantile", *quantile, 0.05, 0.5);
                errors.part("stopper.resample", *resample, 0.0, 1.0);
                errors.check(
                    "searcher",
                    "one that learns",
                    matches!(spec.searcher, Searcher::Random {} | Searcher::Sobol {}),
                    "random or sobol: with pbt it only draws the first population",
                );
            }
        }
    }
}

fn one() -> u64 {
    1
}

fn three() -> u32 {
    3
}

fn four() -> u32 {
    4
}

fn five() -> u32 {
    5
}

fn quarter() -> f64 {
    0.25
}

fn default_hopeless() -> f64 {
    0.05
}
