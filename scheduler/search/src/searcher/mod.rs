//! Searchers, one file each, which propose trials. A searcher reads all trials and stores in
//! [`SearcherState`] only additional state.

mod cma_es;
mod evolution;
mod gp;
mod grid;
mod quadratic;
mod sobol;
mod sobol_directions;
mod tpe;

use crate::random::{Purpose, StudyRng};
use crate::study::StudyRecord;
use crate::trial::TrialNumber;
use muster_model::study::{Point, SearchSpec, Searcher, Space};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum SearcherState {
    /// Next point of a grid or of a sequence.
    Next(u64),
    Nothing,
    Gp(gp::GpState),
    CmaEs(Box<cma_es::CmaEsState>),
}

/// Maximum number of draws before the search assumes that the constraints allow no point.
const MAX_DRAWS: u32 = 20_000;

impl SearcherState {
    pub(crate) fn new(spec: &SearchSpec, space: &Space) -> Self {
        match spec.searcher {
            Searcher::Grid {} | Searcher::Sobol {} => Self::Next(0),
            Searcher::Random {}
            | Searcher::External {}
            | Searcher::Tpe { .. }
            | Searcher::Evolution { .. } => Self::Nothing,
            Searcher::Gp { .. } => Self::Gp(gp::GpState::default()),
            Searcher::CmaEs { population, sigma } => {
                Self::CmaEs(Box::new(cma_es::CmaEsState::new(space, population, sigma)))
            }
        }
    }

    /// Point for the trial with this number; `None` if there is none.
    pub(crate) fn suggest(&mut self, record: &StudyRecord, number: TrialNumber) -> Option<Point> {
        let mut rng = StudyRng::new(record.spec.seed, Purpose::Suggest, number.into());
        match (self, record.spec.searcher) {
            (Self::Next(next), Searcher::Grid {}) => grid::next(&record.space, next),
            (Self::Next(next), _) => {
                for _ in 0..MAX_DRAWS {
                    let point = sobol::point(&record.space, record.spec.seed, *next);
                    *next += 1;
                    if record.space.allows(&point) {
                        return Some(point);
                    }
                }
                None
            }
            (
                Self::Nothing,
                Searcher::Tpe {
                    startup,
                    candidates,
                },
            ) => {
                if number < startup {
                    return spread(record, number, &mut rng);
                }
                tpe::suggest(record, candidates as usize, &mut rng)
            }
            (
                Self::Nothing,
                Searcher::Evolution {
                    population,
                    tournament,
                },
            ) => evolution::suggest(record, population as usize, tournament as usize, &mut rng),
            // An external searcher has already chosen its points. Without one there is no trial to
            // create.
            (Self::Nothing, Searcher::External {}) => None,
            (Self::Nothing, _) => anywhere(record, &mut rng),
            (Self::Gp(state), Searcher::Gp { startup }) if number >= startup => {
                state.suggest(record, &mut rng)
            }
            (Self::Gp(_), _) => spread(record, number, &mut rng),
            (Self::CmaEs(state), _) => state.suggest(record, number, &mut rng),
        }
    }

    /// Records that a trial has completed a rung.
    pub(crate) fn tell(&mut self, record: &StudyRecord, number: TrialNumber) {
        if let Self::CmaEs(state) = self {
            state.tell(record, number);
        }
    }
}

/// Uniformly drawn point that the constraints allow.
fn anywhere(record: &StudyRecord, rng: &mut StudyRng) -> Option<Point> {
    (0..MAX_DRAWS)
        .map(|_| rng.point(&record.space))
        .find(|point| record.space.allows(point))
}

/// Point of a scrambled Sobol sequence, or a random one if the constraints forbid it.
fn spread(record: &StudyRecord, number: TrialNumber, rng: &mut StudyRng) -> Option<Point> {
    let point = sobol::point(&record.space, record.spec.seed, number.into());
    if record.space.allows(&point) {
        return Some(point);
    }
    anywhere(record, rng)
}
