//! CMA-ES: covariance matrix adaptation over the ordered parameters of a space, each scaled to 0 to
//! 1 (Hansen, The CMA Evolution Strategy: A Tutorial, 2016, with its active update). TPE chooses
//! the unordered (categorical) parameters of a mixed space. In a space of ordered parameters only,
//! a quadratic surrogate replaces the rest of a generation as long as it ranks results correctly.
//!
//! A place is a vector of scaled values, one per axis. A point is a trial's values of all
//! parameters.

use super::quadratic::{Quadratic, QuadraticSample, rows_wanted};
use super::{spread, tpe};
use crate::random::{Purpose, StudyRng};
use crate::study::StudyRecord;
use crate::trial::TrialNumber;
use muster_model::study::{Domain, Point, Space};
use nalgebra::{DMatrix, DVector, SymmetricEigen};
use serde::{Deserialize, Serialize};

/// State of the searcher. Names in parentheses are those of the tutorial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CmaEsState {
    /// Indices of the ordered dimensions of the space. A place has one element per axis.
    axes: Vec<usize>,
    /// Number of results of a generation (lambda).
    population: usize,
    /// Step size after each restart.
    first_sigma: f64,
    mean: Vec<f64>,
    /// Step size.
    sigma: f64,
    /// Rows of a symmetric matrix (C).
    covariance: Vec<f64>,
    /// Evolution path of the step size (p_sigma).
    sigma_path: Vec<f64>,
    /// Evolution path of the covariance (p_c).
    path: Vec<f64>,
    /// Completed generations since the last restart.
    generation: u32,
    restarts: u32,
    /// Places of trials without a result.
    asked: Vec<PendingCandidate>,
    /// Results of the present generation, by trials or by the surrogate.
    told: Vec<EvaluatedCandidate>,
    /// Remaining places of the generation, the most promising last.
    queue: Vec<Vec<f64>>,
}

/// Minimum rank correlation at which the quadratic replaces trials.
const BELIEVED: f64 = 0.85;

/// Place of a trial without a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PendingCandidate {
    trial: TrialNumber,
    place: Vec<f64>,
}

/// Place with its loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct EvaluatedCandidate {
    place: Vec<f64>,
    loss: f64,
}

/// Constants of the tutorial's table 1, under its names. `weights` are those of the results in
/// ascending order of loss; the worse half has negative ones. `chi` is the mean norm of a standard
/// normal vector.
struct Constants {
    weights: Vec<f64>,
    mu: usize,
    mu_eff: f64,
    c_sigma: f64,
    d_sigma: f64,
    c_c: f64,
    c_1: f64,
    c_mu: f64,
    chi: f64,
}

/// Variance-effective selection mass of weights.
fn effective_size(weights: &[f64]) -> f64 {
    let (s, q) = weights
        .iter()
        .fold((0.0, 0.0), |(s, q), w| (s + w, q + w * w));
    s * s / q
}

impl Constants {
    fn new(n: usize, population: usize) -> Self {
        let dims = n as f64;
        let half = (population as f64 + 1.0) / 2.0;
        let raw: Vec<f64> = (1..=population)
            .map(|i| half.ln() - (i as f64).ln())
            .collect();
        let mu = population / 2;
        let (mu_eff, mu_eff_minus) = (effective_size(&raw[..mu]), effective_size(&raw[mu..]));
        let c_sigma = (mu_eff + 2.0) / (dims + mu_eff + 5.0);
        let d_sigma = 1.0 + 2.0 * (((mu_eff - 1.0) / (dims + 1.0)).sqrt() - 1.0).max(0.0) + c_sigma;
        let c_c = (4.0 + mu_eff / dims) / (dims + 4.0 + 2.0 * mu_eff / dims);
        let c_1 = 2.0 / ((dims + 1.3).powi(2) + mu_eff);
        let c_mu = (1.0 - c_1)
            .min(2.0 * (0.25 + mu_eff + 1.0 / mu_eff - 2.0) / ((dims + 2.0).powi(2) + mu_eff));
        let limit = (1.0 + c_1 / c_mu)
            .min(1.0 + 2.0 * mu_eff_minus / (mu_eff + 2.0))
            .min((1.0 - c_1 - c_mu) / (dims * c_mu));
        let plus: f64 = raw.iter().filter(|w| **w > 0.0).sum();
        let minus: f64 = raw.iter().filter(|w| **w < 0.0).map(|w| -w).sum();
        Self {
            weights: raw
                .iter()
                .map(|w| {
                    if *w >= 0.0 {
                        w / plus
                    } else {
                        limit * w / minus
                    }
                })
                .collect(),
            mu,
            mu_eff,
            c_sigma,
            d_sigma,
            c_c,
            c_1,
            c_mu,
            chi: dims.sqrt() * (1.0 - 1.0 / (4.0 * dims) + 1.0 / (21.0 * dims * dims)),
        }
    }
}

impl CmaEsState {
    /// Creates the state at the centre of the space. Without a `population` the tutorial's default
    /// is used. `sigma` is the first step size, relative to an axis.
    pub(super) fn new(space: &Space, population: Option<u32>, sigma: f64) -> Self {
        let axes: Vec<usize> = (0..space.len())
            .filter(|d| !matches!(space.dimensions[*d].domain, Domain::Categorical { .. }))
            .collect();
        let n = axes.len();
        let usual = 4 + (3.0 * (n.max(1) as f64).ln()) as usize;
        let mut state = Self {
            axes,
            population: population.map_or(usual, |p| p as usize),
            first_sigma: sigma,
            mean: Vec::new(),
            sigma,
            covariance: Vec::new(),
            sigma_path: Vec::new(),
            path: Vec::new(),
            generation: 0,
            restarts: 0,
            asked: Vec::new(),
            told: Vec::new(),
            queue: Vec::new(),
        };
        state.begin(vec![0.5; n]);
        state
    }

    /// Starts anew at `mean`: at the beginning and at each restart.
    fn begin(&mut self, mean: Vec<f64>) {
        let n = mean.len();
        self.mean = mean;
        self.sigma = self.first_sigma;
        self.covariance = DMatrix::<f64>::identity(n, n).as_slice().to_vec();
        self.sigma_path = vec![0.0; n];
        self.path = vec![0.0; n];
        self.generation = 0;
        self.told.clear();
        self.asked.clear();
        self.queue.clear();
    }

    /// Proposes the point of trial `number`. Returns `None` if no allowed point is found.
    pub(super) fn suggest(
        &mut self,
        record: &StudyRecord,
        number: TrialNumber,
        rng: &mut StudyRng,
    ) -> Option<Point> {
        let mixed = self.axes.len() < record.space.len();
        if self.axes.is_empty() {
            return tpe::suggest(record, 24, rng);
        }
        let eigen = self.eigen();
        if !mixed && self.queue.is_empty() {
            self.draw_generation(record, &eigen, rng);
        }
        for _ in 0..1000 {
            let mut point = if !mixed {
                vec![Some(0.0); record.space.len()]
            } else if (number as usize) < 10 {
                spread(record, number, rng)?
            } else {
                tpe::suggest(record, 24, rng)?
            };
            let place = self.queue.pop();
            let place = place.unwrap_or_else(|| self.sample(&eigen, rng));
            for (&d, unit) in self.axes.iter().zip(&place) {
                point[d] = Some(record.space.dimensions[d].domain.at(*unit));
            }
            record.space.prune(&mut point);
            if record.space.allows(&point) {
                self.asked.push(PendingCandidate {
                    trial: number,
                    place,
                });
                return Some(point);
            }
        }
        spread(record, number, rng)
    }

    /// Draws the places of a generation. If there is a surrogate, the best places by it are at the
    /// end of the queue.
    fn draw_generation(
        &mut self,
        record: &StudyRecord,
        eigen: &SymmetricEigen<f64, nalgebra::Dyn>,
        rng: &mut StudyRng,
    ) {
        let places = (0..self.population).map(|_| self.sample(eigen, rng));
        self.queue = places.collect();
        if let Some((model, _)) = self.model(record) {
            self.queue
                .sort_by(|a, b| model.at(b).total_cmp(&model.at(a)));
        }
    }

    /// Fits the surrogate to the newest trials. Returns it with the rows by which its ranking is
    /// judged, a part of these. `None` in a mixed space or with too few rows.
    fn model(&self, record: &StudyRecord) -> Option<(Quadratic, Vec<QuadraticSample>)> {
        let n = self.axes.len();
        if n < record.space.len() {
            return None;
        }
        let newest = record.trials.iter().rev().filter_map(|trial| {
            let pairs = record.space.dimensions.iter().zip(&trial.point);
            let place = pairs.map(|(d, v)| v.map(|v| d.domain.unit(v)));
            Some(QuadraticSample {
                place: place.collect::<Option<Vec<f64>>>()?,
                loss: trial.loss().filter(|l| *l < f64::MAX)?,
            })
        });
        let mut rows: Vec<QuadraticSample> = newest.take(rows_wanted(n)).collect();
        let model = Quadratic::fit(&rows, &self.mean, self.sigma)?;
        rows.truncate(self.population.max(15));
        Some((model, rows))
    }

    /// Takes the losses of the generation's remaining places from the quadratic, if it ranks the
    /// newest trials correctly.
    fn complete_by_model(&mut self, record: &StudyRecord) {
        if self.told.len() < 1 + self.population / 5 || self.queue.is_empty() {
            return;
        }
        let Some((model, rows)) = self.model(record) else {
            return;
        };
        if model.agreement(&rows) < BELIEVED {
            return;
        }
        for place in std::mem::take(&mut self.queue) {
            let loss = model.at(&place);
            self.told.push(EvaluatedCandidate { place, loss });
        }
    }

    /// Eigendecomposition of the covariance.
    fn eigen(&self) -> SymmetricEigen<f64, nalgebra::Dyn> {
        let n = self.axes.len();
        SymmetricEigen::new(DMatrix::from_column_slice(n, n, &self.covariance))
    }

    /// Draws a place with all values from 0 to 1. A place outside is drawn again, so that trials do
    /// not accumulate at the edges. After 100 draws the values are clamped.
    fn sample(&self, eigen: &SymmetricEigen<f64, nalgebra::Dyn>, rng: &mut StudyRng) -> Vec<f64> {
        let n = self.axes.len();
        let mut place = vec![0.0; n];
        for _ in 0..100 {
            let z = DVector::from_fn(n, |i, _| {
                eigen.eigenvalues[i].max(0.0).sqrt() * rng.normal()
            });
            let step = &eigen.eigenvectors * z;
            for i in 0..n {
                place[i] = self.mean[i] + self.sigma * step[i];
            }
            if place.iter().all(|x| (0.0..=1.0).contains(x)) {
                break;
            }
        }
        place.iter().map(|x| x.clamp(0.0, 1.0)).collect()
    }

    /// Records the loss of a trial that has completed its first rung, at which all trials are
    /// comparable. Completes the generation if it has enough results.
    pub(super) fn tell(&mut self, record: &StudyRecord, number: TrialNumber) {
        let Some(at) = self.asked.iter().position(|a| a.trial == number) else {
            return;
        };
        let asked = self.asked.swap_remove(at);
        // Failed and stopped trials get no result.
        self.asked
            .retain(|a| record.trials[a.trial as usize].holds_slot());
        let Some(loss) = record.trials[number as usize].loss() else {
            return;
        };
        let place = asked.place;
        self.told.push(EvaluatedCandidate { place, loss });
        self.complete_by_model(record);
        if self.told.len() >= self.population && !self.axes.is_empty() {
            self.told.sort_by(|a, b| a.loss.total_cmp(&b.loss));
            self.update();
            self.told.clear();
            self.queue.clear();
            self.restart_if_stuck(record.spec.seed);
        }
    }

    /// Updates mean, step size and covariance by the sorted results of one generation: figure 6 of
    /// the tutorial.
    fn update(&mut self) {
        let n = self.axes.len();
        let dims = n as f64;
        let c = Constants::new(n, self.told.len());
        let eigen = self.eigen();
        let mean = DVector::from_column_slice(&self.mean);
        let steps: Vec<DVector<f64>> = self
            .told
            .iter()
            .map(|t| (DVector::from_column_slice(&t.place) - &mean) / self.sigma)
            .collect();
        let mut step = DVector::zeros(n);
        for (weight, y) in c.weights.iter().zip(&steps).take(c.mu) {
            step += y * *weight;
        }
        let root = eigen.eigenvalues.map(|v| 1.0 / v.max(1e-300).sqrt());
        let new_mean = &mean + &step * self.sigma;
        let ps = DVector::from_column_slice(&self.sigma_path) * (1.0 - c.c_sigma)
            + whiten(&eigen.eigenvectors, &root, &step)
                * (c.c_sigma * (2.0 - c.c_sigma) * c.mu_eff).sqrt();
        self.generation += 1;
        let faded = 1.0 - (1.0 - c.c_sigma).powi(2 * self.generation as i32);
        let short = ps.norm() / faded.sqrt() < (1.4 + 2.0 / (dims + 1.0)) * c.chi;
        let h = if short { 1.0 } else { 0.0 };
        let pc = DVector::from_column_slice(&self.path) * (1.0 - c.c_c)
            + &step * (h * (c.c_c * (2.0 - c.c_c) * c.mu_eff).sqrt());
        let sum: f64 = c.weights.iter().sum();
        let lost = (1.0 - h) * c.c_c * (2.0 - c.c_c);
        let keep = 1.0 + c.c_1 * lost - c.c_1 - c.c_mu * sum;
        let mut covariance = DMatrix::from_column_slice(n, n, &self.covariance) * keep
            + &pc * pc.transpose() * c.c_1;
        for (weight, y) in c.weights.iter().zip(&steps) {
            let weight = if *weight >= 0.0 {
                *weight
            } else {
                weight * dims
                    / whiten(&eigen.eigenvectors, &root, y)
                        .norm_squared()
                        .max(1e-12)
            };
            covariance += y * y.transpose() * (c.c_mu * weight);
        }
        covariance = (&covariance + covariance.transpose()) * 0.5;
        self.sigma *= ((c.c_sigma / c.d_sigma) * (ps.norm() / c.chi - 1.0))
            .min(1.0)
            .exp();
        self.mean = new_mean.as_slice().to_vec();
        self.covariance = covariance.as_slice().to_vec();
        self.sigma_path = ps.as_slice().to_vec();
        self.path = pc.as_slice().to_vec();
    }

    /// Restarts at a random place with twice the population (IPOP, Auger and Hansen, CEC 2005) if
    /// the distribution has collapsed or is numerically broken.
    fn restart_if_stuck(&mut self, seed: u64) {
        let eigen = self.eigen();
        let (least, most) = (eigen.eigenvalues.min(), eigen.eigenvalues.max());
        let broken = !least.is_finite() || !self.sigma.is_finite() || least <= 0.0;
        if broken || self.sigma * most.sqrt() < 1e-11 || most / least > 1e14 {
            self.restarts += 1;
            self.population *= 2;
            let n = self.axes.len();
            let mut rng = StudyRng::new(seed, Purpose::Restart, u64::from(self.restarts));
            let mean = (0..n).map(|_| rng.unit()).collect();
            self.begin(mean);
        }
    }
}

/// Product of the covariance's inverse root and a step. `root` has the inverse roots of the
/// eigenvalues.
fn whiten(eigenvectors: &DMatrix<f64>, root: &DVector<f64>, y: &DVector<f64>) -> DVector<f64> {
    let turned = eigenvectors.transpose() * y;
    eigenvectors * turned.component_mul(root)
}

#[cfg(test)]
mod tests {
    use super::CmaEsState;
    use crate::study::Study;
    use crate::{SearchAction, SearchEvent};
    use muster_model::study::{SearchSpec, Space};
    use serde_json::json;

    fn spec(seed: u64) -> SearchSpec {
        let parameters =
            ["a", "b"].map(|name| json!({"name": name, "type": "float", "low": 0, "high": 1}));
        serde_json::from_value(json!({
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "parameters": parameters,
            "searcher": {"kind": "cma_es"}, "trials": 100, "concurrency": 4, "seed": seed,
        }))
        .expect("a document")
    }

    fn space() -> Space {
        spec(0).space().expect("valid")
    }

    /// Mean after some restarts.
    fn restarted(seed: u64, times: u32) -> Vec<f64> {
        let mut state = CmaEsState::new(&space(), None, 0.25);
        for _ in 0..times {
            state.sigma = 0.0;
            state.restart_if_stuck(seed);
        }
        assert_eq!(state.restarts, times);
        state.mean
    }

    #[test]
    fn restarts_begin_at_different_places_given_by_seed() {
        assert_eq!(restarted(1, 1), restarted(1, 1));
        assert_ne!(restarted(1, 1), restarted(2, 1));
        assert_ne!(restarted(1, 1), restarted(1, 2));
    }

    #[test]
    fn failed_trials_do_not_block_generation() {
        let mut study = Study::new(spec(1)).expect("valid");
        let mut queue = study.apply(SearchEvent::Started).expect("may begin");
        while let Some(action) = queue.pop() {
            let SearchAction::Create { trial, .. } = action else {
                continue;
            };
            let event = match trial % 3 {
                0 => SearchEvent::Failed { trial },
                _ => SearchEvent::Finished {
                    trial,
                    step: 1,
                    values: vec![f64::from(trial)],
                    exhausted: false,
                },
            };
            queue.extend(study.apply(event).expect("a fact"));
        }
        assert_eq!(study.trials().len(), 100);
        let saved = serde_json::to_value(&study).expect("serialisable");
        let asked = &saved["searcher"]["CmaEs"]["asked"];
        // The last result may be of a trial that was asked for before others that have failed
        // since.
        assert!(asked.as_array().is_some_and(|a| a.len() <= 4), "{asked}");
    }
}
