//! Stored forecasts and the share of them that held. Each job counts once, with the mean over its
//! forecasts.

#![allow(dead_code, reason = "no test uses all items")]

use muster_model::id::JobId;
use muster_sim::forecast::{
    Calibration, ForecastContext, ForecastInterval, JobForecast, STARTS, Score,
};
use std::collections::BTreeMap;

/// Number of newest jobs whose scores calibrate.
const JOBS: usize = 200;

/// SplitMix64.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `least` to `most`, even in the logarithm.
    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.uniform())
    }

    /// Normal with mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform().max(1e-12), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

/// A forecast for the later comparison.
#[derive(Clone, Copy)]
struct Given {
    made_ms: i64,
    raw: ForecastInterval,
    shown: ForecastInterval,
    context: ForecastContext,
}

/// Stored forecasts of ends or of starts.
pub struct Kept {
    /// Start of the counted forecasts.
    from_ms: i64,
    given: BTreeMap<JobId, Vec<Given>>,
    /// Scores of each job, in the order of the events.
    scores: Vec<Vec<Score>>,
    /// Per counted job: share of its forecasts that held, and share that would have held
    /// uncalibrated.
    shares: Vec<(f64, f64)>,
    forecasts: usize,
}

impl Kept {
    pub fn counting_from(from_ms: i64) -> Self {
        Self {
            from_ms,
            given: BTreeMap::new(),
            scores: Vec::new(),
            shares: Vec::new(),
            forecasts: 0,
        }
    }

    /// Number of counted jobs.
    pub fn jobs(&self) -> usize {
        self.shares.len()
    }

    /// Calibration by the newest jobs, as live.
    pub fn calibration(&self) -> Calibration {
        let newest = self.scores.iter().rev().take(JOBS);
        Calibration::of(newest.flatten().copied().collect())
    }

    pub fn give_end(&mut self, one: &JobForecast, now_ms: i64) {
        let end = one.raw.finish.zip(one.finish);
        let given = end.map(|(raw, shown)| (raw, shown, one.raw.context));
        self.give(one.job, now_ms, given);
    }

    pub fn give_start(&mut self, one: &JobForecast, now_ms: i64) {
        let start = one.raw.start.zip(one.start);
        let given = start.map(|(raw, shown)| (raw, shown, STARTS));
        self.give(one.job, now_ms, given);
    }

    fn give(
        &mut self,
        job: JobId,
        made_ms: i64,
        given: Option<(ForecastInterval, ForecastInterval, ForecastContext)>,
    ) {
        if let Some((raw, shown, context)) = given {
            self.given.entry(job).or_default().push(Given {
                made_ms,
                raw,
                shown,
                context,
            });
        }
    }

    /// Scores the forecasts of a job whose event has happened.
    pub fn came(&mut self, job: JobId, actual_ms: i64) {
        let Some(given) = self.given.remove(&job) else {
            return;
        };
        // A forecast made at or after its event does not count.
        let given: Vec<Given> = given
            .into_iter()
            .filter(|one| one.made_ms < actual_ms)
            .collect();
        let weight = 1.0 / given.len().max(1) as f64;
        let scores = given
            .iter()
            .map(|one| Score::of(one.raw, one.made_ms, one.context, actual_ms, weight));
        self.scores.push(scores.collect());
        let counted: Vec<&Given> = given
            .iter()
            .filter(|one| one.made_ms >= self.from_ms)
            .collect();
        if counted.is_empty() {
            return;
        }
        self.forecasts += counted.len();
        let shown = counted.iter().filter(|one| one.shown.holds(actual_ms));
        let raw = counted.iter().filter(|one| one.raw.holds(actual_ms));
        let all = counted.len() as f64;
        self.shares
            .push((shown.count() as f64 / all, raw.count() as f64 / all));
    }

    /// Mean over the jobs of the share of forecasts that held.
    pub fn share(&self, title: &str) -> f64 {
        let jobs = self.shares.len() as f64;
        let held: f64 = self.shares.iter().map(|share| share.0).sum();
        let plain: f64 = self.shares.iter().map(|share| share.1).sum();
        println!(
            "{title}: {} forecasts of {jobs} jobs, {:.1} % held; {:.1} % without calibration",
            self.forecasts,
            held / jobs * 100.0,
            plain / jobs * 100.0
        );
        held / jobs
    }
}
