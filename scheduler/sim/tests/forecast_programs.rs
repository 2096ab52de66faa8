//! Forecasts of programs of random length on four GPUs. Five documents are submitted repeatedly,
//! and each forecast uses the durations of earlier jobs of its document. The test polls every ten
//! seconds; 75 to 85 % of the 80 % intervals of ends and starts hold.

use crate::kept::{Dice, Kept};
use crate::live::{cluster, job};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::{ClusterSnapshot, SpeedPoint};
use muster_model::id::JobId;
use muster_model::spec::{Ends, Range};
use muster_sim::Cancel;
use muster_sim::forecast::{
    ClusterDelays, ForecastArrival, ForecastRun, ForecastSettings, SpeedCurve, Truth, forecast,
    like,
};
use std::collections::BTreeMap;

const PROGRAMS: usize = 400;
const LOOK_MS: i64 = 10_000;
/// Forecasts before this time are scored and not counted: there is nothing to calibrate with yet.
const WARM_UP_MS: i64 = 1_000_000;
/// Number of newest jobs of a document that a forecast uses.
const EARLIER: usize = 20;
/// Median of the durations in seconds, and their spread (standard deviation of the logarithm).
const DOCUMENTS: [(f64, f64); 5] = [
    (5.0, 0.1),
    (15.0, 0.3),
    (40.0, 0.1),
    (40.0, 0.7),
    (120.0, 0.2),
];

/// True delays of starts and stops; forecasts assume [`ClusterDelays::LIVE`].
const PACE: ClusterDelays = ClusterDelays {
    launch_ms: 700,
    stop_ms: 400,
    round_ms: 300_000,
    horizon_ms: 90 * 86_400_000,
};

/// One program: its document and its duration.
#[derive(Clone, Copy)]
struct Program {
    document: usize,
    lasts_s: f64,
}

#[test]
fn intervals_of_programs_hold_in_four_of_five_cases() {
    let (ends, starts) = run(1);
    for (what, kept) in [("ends", ends), ("starts", starts)] {
        assert!(kept.jobs() > 150, "{what}: {}", kept.jobs());
        let share = kept.share(what);
        assert!((0.75..=0.85).contains(&share), "{what}: {share}");
    }
}

fn run(seed: u64) -> (Kept, Kept) {
    let policy = Policy::named(PolicyName::Muster);
    let (programs, arrivals) = arrivals(seed);
    let mut world = ForecastRun::new(cluster(1), BTreeMap::new(), arrivals, PACE);
    let (mut ends, mut starts) = (
        Kept::counting_from(WARM_UP_MS),
        Kept::counting_from(WARM_UP_MS),
    );
    let mut took_s: [Vec<f64>; DOCUMENTS.len()] = Default::default();
    let mut ended: BTreeMap<JobId, i64> = BTreeMap::new();
    let mut now_ms = 0;
    while ended.len() < PROGRAMS {
        now_ms += LOOK_MS;
        world
            .run_until(now_ms, &policy)
            .expect("the core keeps its own rules");
        for result in world.results() {
            if let Some(started_ms) = result.start_ms {
                starts.came(result.job, started_ms);
            }
            let Some(ended_ms) = result.finish_ms else {
                continue;
            };
            if ended.insert(result.job, ended_ms).is_none() {
                ends.came(result.job, ended_ms);
                let program = programs[&result.job];
                took_s[program.document].insert(0, program.lasts_s);
                took_s[program.document].truncate(EARLIER);
            }
        }
        let settings = ForecastSettings {
            runs: 15,
            seed,
            ends: ends.calibration(),
            starts: starts.calibration(),
            pace: ClusterDelays::LIVE,
        };
        let known = known(world.snapshot(), &programs, &took_s);
        let made = forecast(&known, &[], &policy, &settings, &Cancel::default());
        for one in made.expect("the core keeps its own rules") {
            ends.give_end(&one, now_ms);
            starts.give_start(&one, now_ms);
        }
    }
    (ends, starts)
}

/// The state that the scheduler sees.
fn known(
    world: &ClusterSnapshot,
    programs: &BTreeMap<JobId, Program>,
    took_s: &[Vec<f64>; DOCUMENTS.len()],
) -> ClusterSnapshot {
    let mut known = world.clone();
    for job in &mut known.jobs {
        // A program without steps has no speed.
        job.speeds.clear();
        job.progress.step = 0;
        job.lasts = like(&took_s[programs[&job.id].document], job.trained_s);
    }
    known
}

/// Programs of one GPU with a load of nine tenths of four GPUs.
fn arrivals(seed: u64) -> (BTreeMap<JobId, Program>, Vec<ForecastArrival>) {
    let mut dice = Dice::new(seed);
    let mean_s = DOCUMENTS
        .iter()
        .map(|(middle_s, spread)| middle_s * (spread * spread / 2.0).exp() + 1.0);
    let between_s = mean_s.sum::<f64>() / DOCUMENTS.len() as f64 / 4.0 / 0.9;
    let mut at_ms = 0;
    let (mut programs, mut arrivals) = (BTreeMap::new(), Vec::new());
    for number in 0..PROGRAMS {
        at_ms += (-dice.uniform().max(1e-9).ln() * between_s * 1_000.0) as i64;
        let document =
            ((dice.uniform() * DOCUMENTS.len() as f64) as usize).min(DOCUMENTS.len() - 1);
        let (middle_s, spread) = DOCUMENTS[document];
        let lasts_s = middle_s * (spread * dice.normal()).exp();
        let mut job = job(number, at_ms, 1);
        job.command = Some(Ends::AllWorkers);
        job.workers = Range { min: 1, max: 1 };
        job.ps_shards = Range { min: 0, max: 0 };
        job.progress.max_steps = None;
        job.suspends = false;
        let truth = Truth {
            kinds: Default::default(),
            curve: SpeedCurve::through(vec![SpeedPoint {
                workers: 1,
                ps_shards: 0,
                steps_per_s: 10.0,
                samples: 1,
            }]),
            steps_left: 10.0 * lasts_s,
            done: 0.0,
            is_open: false,
            speed_spread: 0.0,
            steps_spread: 0.0,
            length: None,
        };
        programs.insert(job.id, Program { document, lasts_s });
        arrivals.push(ForecastArrival { job, truth });
    }
    (programs, arrivals)
}
