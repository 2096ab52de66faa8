//! Who proposes trials: one file a searcher. A searcher sees all trials and keeps in [`Memory`] only what they do not say.

mod cma_es;
mod evolution;
mod gp;
mod grid;
mod quadratic;
mod sobol;
mod sobol_directions;
mod tpe;

use crate::random::{Draw, Purpose};
use crate::study::Record;
use crate::trial::{Trial, TrialNumber, TrialState};
use muster_model::study::{Point, SearchSpec, Searcher, Space};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Memory {
    /// The next point of a grid or of a sequence.
    Next(u64),
    Nothing,
    Gp(gp::Memory),
    CmaEs(Box<cma_es::Memory>),
}

/// Points that are drawn before a space is said to have none that its constraints allow.
const MAX_DRAWS: u32 = 20_000;

impl Memory {
    pub(crate) fn new(spec: &SearchSpec, space: &Space) -> Self {
        match spec.searcher {
            Searcher::Grid {} | Searcher::Sobol {} => Self::Next(0),
            Searcher::Random {}
            | Searcher::External {}
            | Searcher::Tpe { .. }
            | Searcher::Evolution { .. } => Self::Nothing,
            Searcher::Gp { .. } => Self::Gp(gp::Memory::default()),
            Searcher::CmaEs { population, sigma } => {
                Self::CmaEs(Box::new(cma_es::Memory::new(space, population, sigma)))
            }
        }
    }

    /// A point of the space for the trial that will have this number; `None` when there is no other.
    pub(crate) fn suggest(&mut self, record: &Record, number: TrialNumber) -> Option<Point> {
        let mut draw = Draw::new(record.spec.seed, Purpose::Suggest, number.into());
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
                    return spread(record, number, &mut draw);
                }
                tpe::suggest(record, candidates as usize, &mut draw)
            }
            (
                Self::Nothing,
                Searcher::Evolution {
                    population,
                    tournament,
                },
            ) => evolution::suggest(record, population as usize, tournament as usize, &mut draw),
            // Who is outside has chosen already, or there is no place for a trial.
            (Self::Nothing, Searcher::External {}) => None,
            (Self::Nothing, _) => anywhere(record, &mut draw),
            (Self::Gp(memory), Searcher::Gp { startup }) if number >= startup => {
                memory.suggest(record, &mut draw)
            }
            (Self::Gp(_), _) => spread(record, number, &mut draw),
            (Self::CmaEs(memory), _) => memory.suggest(record, number, &mut draw),
        }
    }

    /// A trial has completed a rung.
    pub(crate) fn tell(&mut self, record: &Record, number: TrialNumber) {
        if let Self::CmaEs(memory) = self {
            memory.tell(record, number);
        }
    }
}

/// A uniform point that the constraints allow.
fn anywhere(record: &Record, draw: &mut Draw) -> Option<Point> {
    (0..MAX_DRAWS)
        .map(|_| draw.point(&record.space))
        .find(|point| record.space.allows(point))
}

/// The point of a scrambled Sobol sequence, or any if the constraints forbid that.
fn spread(record: &Record, number: TrialNumber, draw: &mut Draw) -> Option<Point> {
    let point = sobol::point(&record.space, record.spec.seed, number.into());
    if record.space.allows(&point) {
        return Some(point);
    }
    anywhere(record, draw)
}

/// The trials whose losses may be compared, best first: those that trained to the end before those that were stopped or wait, the
/// further trained first.
fn best_first(record: &Record) -> Vec<&Trial> {
    let judged = record.trials.iter().filter(|t| t.outcome.is_some());
    let (done, rest): (Vec<&Trial>, Vec<&Trial>) =
        judged.partition(|t| t.state == TrialState::Completed);
    let mut sorted = in_order(done);
    let step = |t: &Trial| t.outcome.as_ref().map_or(0, |o| o.step);
    let mut steps: Vec<u64> = rest.iter().map(|t| step(t)).collect();
    steps.sort_unstable();
    steps.dedup();
    for at in steps.into_iter().rev() {
        sorted.extend(in_order(
            rest.iter().copied().filter(|t| step(t) == at).collect(),
        ));
    }
    sorted
}

fn in_order(trials: Vec<&Trial>) -> Vec<&Trial> {
    let losses: Vec<&[f64]> = trials
        .iter()
        .filter_map(|t| t.outcome.as_ref().map(|o| o.losses.as_slice()))
        .collect();
    let order = crate::pareto::order(&losses);
    order.into_iter().map(|i| trials[i]).collect()
}
