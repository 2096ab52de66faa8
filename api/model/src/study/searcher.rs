//! Searchers, which choose the next trial.

use super::{Errors, SearchSpec, Stopper};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Searcher {
    /// Every point of the grid once, in the order of the document; the last parameter varies
    /// fastest.
    Grid {},
    Random {},
    /// A program outside proposes trials by REST; the study trains them as usual.
    External {},
    /// Scrambled Sobol points (Joe and Kuo's directions, Owen's scrambling): more even than random
    /// points.
    Sobol {},
    /// Tree-structured Parzen estimators (Bergstra et al.), over all parameters together.
    Tpe {
        /// Sobol points before the first estimate; 1 to 10,000.
        #[serde(default = "ten")]
        startup: u32,
        /// Draws of which the best is taken; 1 to 10,000.
        #[serde(default = "default_candidates")]
        candidates: u32,
    },
    /// A Gaussian process with expected improvement.
    Gp {
        /// Sobol points before the first fit; 1 to 10,000.
        #[serde(default = "ten")]
        startup: u32,
    },
    /// Covariance matrix adaptation (Hansen) for numbers; TPE chooses parameters without an order.
    CmaEs {
        /// 4 to 1000. Default: 4 + 3 ln(parameters).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        population: Option<u32>,
        /// First step size as a share of the range; 0.001 to 1.
        #[serde(default = "default_sigma")]
        sigma: f64,
    },
    /// Regularised evolution (Real et al.): mutates the best of a random few of the population; the
    /// oldest leaves it.
    Evolution {
        /// 2 to 10,000.
        #[serde(default = "default_population")]
        population: u32,
        /// 1 to `population`.
        #[serde(default = "default_tournament")]
        tournament: u32,
    },
}

impl Default for Searcher {
    fn default() -> Self {
        Self::Tpe {
            startup: ten(),
            candidates: default_candidates(),
        }
    }
}

impl Searcher {
    pub(super) fn check(&self, spec: &SearchSpec, errors: &mut Errors) {
        let single = spec.objectives.len() <= 1;
        match self {
            Self::Grid {} | Self::Random {} | Self::Sobol {} => {}
            Self::External {} => {
                errors.check(
                    "reproducible",
                    "true",
                    !spec.reproducible,
                    "false: an external searcher proposes trials at times that Muster does not know",
                );
                let cohorts = matches!(
                    spec.stopper,
                    Stopper::SuccessiveHalving { .. } | Stopper::Hyperband { .. }
                );
                errors.check(
                    "stopper",
                    "one that waits for a whole cohort, with searcher external",
                    !cohorts,
                    "none, median, asha or hyper_drive: the number of proposed trials is not known in advance",
                );
            }
            Self::Tpe {
                startup,
                candidates,
            } => {
                errors.within("searcher.startup", u64::from(*startup), 1, 10_000);
                errors.within("searcher.candidates", u64::from(*candidates), 1, 10_000);
            }
            Self::Gp { startup } => {
                errors.within("searcher.startup", u64::from(*startup), 1, 10_000);
                let expected = "one objective with gp; tpe and evolution seek a Pareto front";
                errors.check("objectives", "several", single, expected);
            }
            Self::CmaEs { population, sigma } => {
                let population = population.unwrap_or(4);
                errors.within("searcher.population", u64::from(population), 4, 1000);
                errors.part("searcher.sigma", *sigma, 0.001, 1.0);
                let expected = "one objective with cma_es; tpe and evolution seek a Pareto front";
                errors.check("objectives", "several", single, expected);
            }
            Self::Evolution {
                population,
                tournament,
            } => {
                errors.within("searcher.population", u64::from(*population), 2, 10_000);
                let (most, count) = (u64::from(*population), u64::from(*tournament));
                errors.within("searcher.tournament", count, 1, most.max(1));
            }
        }
    }
}

fn ten() -> u32 {
    10
}

fn default_candidates() -> u32 {
    24
}

fn default_sigma() -> f64 {
    0.25
}

fn default_population() -> u32 {
    20
}

fn default_tournament() -> u32 {
    5
}
