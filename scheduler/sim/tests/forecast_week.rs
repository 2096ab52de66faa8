//! A simulated week: jobs come that nobody announced, run at speeds that nobody told and end when they will; every half hour all
//! open jobs are forecast from what the core can know. The 80 % intervals, calibrated by what came of earlier ones, hold 75 to 85 % of the time.

mod live;

use live::{cluster, job};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::SpeedPoint;
use muster_model::id::JobId;
use muster_sim::Cancel;
use muster_sim::forecast::{
    Ahead, Arrival, Curve, Interval, Pace, Score, Settings, Truth, forecast, hits, widening,
};
use std::collections::BTreeMap;

const HOUR_MS: i64 = 3_600_000;
const WEEK_H: i64 = 168;
/// Until here forecasts are made and scored, but not counted: there is nothing to calibrate by yet.
const WARM_UP_H: i64 = 24;
/// Newest scores that calibrate.
const SCORES: usize = 400;

const PACE: Pace = Pace {
    launch_ms: 4_000,
    stop_ms: 3_000,
    round_ms: 1_800_000,
    horizon_ms: 60 * 24 * HOUR_MS,
};

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `least` to `most`, even in the logarithm.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.uniform())
    }
}

/// A forecast that was given, and what it is compared with later.
struct Given {
    job: JobId,
    made_ms: i64,
    widen: f64,
    finish: Interval,
}

#[test]
fn over_a_week_four_intervals_in_five_hold() {
    for seed in [1, 2, 3] {
        let (counted, plain) = week(seed);
        let share = hits(&counted).expect("forecasts were counted");
        let uncalibrated = hits(&plain).expect("forecasts were counted");
        println!(
            "seed {seed}: {} forecasts, {:.1} % held; {:.1} % without calibration",
            counted.len(),
            share * 100.0,
            uncalibrated * 100.0
        );
        assert!(counted.len() > 300, "seed {seed}: {}", counted.len());
        assert!((0.75..=0.85).contains(&share), "seed {seed}: {share}");
    }
}

/// Whether each forecast after the warm-up held, as given and as it would have been without calibration.
fn week(seed: u64) -> (Vec<bool>, Vec<bool>) {
    let policy = Policy::named(PolicyName::Muster);
    let mut world = Ahead::new(cluster(4), BTreeMap::new(), arrivals(seed), PACE);
    let mut given: Vec<Given> = Vec::new();
    let mut scores: Vec<Score> = Vec::new();
    let (mut counted, mut plain) = (Vec::new(), Vec::new());
    for tick in 1..=2 * WEEK_H {
        let now_ms = tick * HOUR_MS / 2;
        world
            .run_until(now_ms, &policy)
            .expect("the core keeps its own rules");
        let ended: BTreeMap<JobId, i64> = world
            .fates()
            .filter_map(|fate| Some((fate.job, fate.finish_ms?)))
            .collect();
        given.retain(|one| {
            let Some(&actual_ms) = ended.get(&one.job) else {
                return true;
            };
            let score = Score::of(one.finish, one.made_ms, one.widen, actual_ms);
            scores.push(score);
            if one.made_ms > WARM_UP_H * HOUR_MS {
                counted.push(one.finish.holds(actual_ms));
                plain.push(score.0 <= 1.0);
            }
            false
        });
        let widen = widening(&scores[scores.len().saturating_sub(SCORES)..]);
        let settings = Settings {
            runs: 15,
            seed: seed ^ (tick as u64) << 20,
            widen,
            widen_starts: 1.0,
            pace: PACE,
        };
        let forecasts = forecast(
            world.snapshot(),
            &[],
            &policy,
            &settings,
            &Cancel::default(),
        )
        .expect("the core keeps its own rules");
        given.extend(forecasts.into_iter().filter_map(|one| {
            Some(Given {
                job: one.job,
                made_ms: now_ms,
                widen,
                finish: one.finish?,
            })
        }));
    }
    (counted, plain)
}

/// About two jobs an hour. Their speeds, how they scale and when they converge is theirs to know.
fn arrivals(seed: u64) -> Vec<Arrival> {
    let mut dice = Dice(seed);
    let mut at_ms = 0;
    let mut arrivals = Vec::new();
    while at_ms < WEEK_H * HOUR_MS {
        at_ms += (-dice.uniform().max(1e-9).ln() * 1_800_000.0) as i64;
        let base = dice.between(2.0, 40.0);
        let alone_s = dice.between(1_200.0, 60_000.0);
        let serial = dice.between(0.01, 0.2);
        let bound = (base * alone_s) as u64;
        // Two in five converge before the bound that their owner gave.
        let share = if dice.uniform() < 0.4 {
            dice.between(0.5, 1.0)
        } else {
            1.0
        };
        let points = (1..=8).map(|workers| SpeedPoint {
            workers,
            ps_shards: 1,
            steps_per_s: base / ((1.0 - serial) / f64::from(workers) + serial),
            samples: 1,
        });
        let truth = Truth {
            curve: Curve::through(points.collect()),
            steps_left: bound as f64 * share,
            done: 0.0,
            is_open: false,
            speed_spread: 0.0,
            steps_spread: 0.0,
        };
        let job = job(arrivals.len(), at_ms, bound);
        arrivals.push(Arrival { job, truth });
    }
    arrivals
}
