//! Cost and benefit of consistency and compression: time, examples and bytes to 88 % accuracy on
//! Fashion-MNIST, with four workers and two PS shards as processes of this machine. Run by
//! `make bench-exchange` or
//! `cargo bench --bench convergence -- [bsp|ssp|asp] [codec ..] [seeds=3]`.
//!
//! Every pair trains the same network from the same parameters for the same number of epochs, once
//! per seed. The seed determines the parameters and the order of the examples. Time is wall time
//! from the first step on, including evaluations, whose number is the same for all. Bytes are those
//! of the loopback device, so nothing else may use it meanwhile. Writes a table of means, and
//! `convergence.svg` with the curves of the first seed.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod grid;
mod picture;
#[path = "../../tests/rig/mod.rs"]
mod rig;

use grid::{CONSISTENCIES, GridCodec, GridConsistency, codecs, document};
use muster_model::assignment::TaskReport;
use muster_model::spec::JobSpec;
use rig::{Rig, RigLaunch};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const TARGET: f64 = 0.88;
const WORKERS: u32 = 4;
const PS_SHARDS: u32 = 2;
/// Longer than any pair takes on two shared cores.
const PATIENCE: Duration = Duration::from_secs(3600);

/// One evaluation with the cost of training so far.
#[derive(Debug, Clone, Copy)]
struct EvaluationPoint {
    seconds: f64,
    examples: f64,
    bytes: f64,
    accuracy: f64,
}

/// Result of one pair with one seed.
struct ConvergenceRun {
    consistency: &'static str,
    codec: &'static str,
    points: Vec<EvaluationPoint>,
}

impl ConvergenceRun {
    /// Point at which it first reached the target, interpolated linearly between two evaluations.
    fn reached(&self) -> Option<EvaluationPoint> {
        let after = self
            .points
            .iter()
            .position(|point| point.accuracy >= TARGET)?;
        let b = self.points[after];
        let a = after.checked_sub(1).map_or(b, |before| self.points[before]);
        let rise = b.accuracy - a.accuracy;
        let share = if rise > 0.0 {
            (TARGET - a.accuracy) / rise
        } else {
            1.0
        };
        Some(EvaluationPoint {
            seconds: a.seconds + share * (b.seconds - a.seconds),
            examples: a.examples + share * (b.examples - a.examples),
            bytes: a.bytes + share * (b.bytes - a.bytes),
            accuracy: TARGET,
        })
    }

    /// Progress line while the other runs continue.
    fn told(&self) -> String {
        let end = self.last().accuracy * 100.0;
        let reached = match self.reached() {
            Some(at) => format!(
                "after {:.1} s, {:.0} examples, {:.1} MB",
                at.seconds,
                at.examples,
                at.bytes / 1e6
            ),
            None => "never".to_owned(),
        };
        let (consistency, codec) = (self.consistency, self.codec);
        format!(
            "{consistency} with {codec}: {:.0} % {reached}; {end:.2} % in the end",
            TARGET * 100.0
        )
    }

    fn last(&self) -> EvaluationPoint {
        *self.points.last().expect("the end is evaluated")
    }
}

fn main() {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let Some(datasets) = std::env::var_os("MUSTER_DATASETS").map(PathBuf::from) else {
        eprintln!(
            "convergence: not run; MUSTER_DATASETS must name the folder that has fashion-mnist (make bench-exchange sets it)"
        );
        return;
    };
    let consistencies = CONSISTENCIES.map(|consistency| consistency.name);
    let codecs = codecs();
    let names: Vec<&str> = codecs.iter().map(|codec| codec.name).collect();
    let seeds = seeds(&asked);
    let mut pairs: Vec<Vec<ConvergenceRun>> = Vec::new();
    for consistency in CONSISTENCIES {
        for codec in &codecs {
            if wanted(&asked, consistency.name, &consistencies)
                && wanted(&asked, codec.name, &names)
            {
                let runs = (1..=seeds).map(|seed| {
                    let run = train(&datasets, &consistency, codec, seed);
                    eprintln!("seed {seed}, {}", run.told());
                    run
                });
                pairs.push(runs.collect());
            }
        }
    }
    println!("{}", table(&pairs));
    let runs: Vec<ConvergenceRun> = pairs.into_iter().map(|mut pair| pair.remove(0)).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/bench");
    fs::create_dir_all(&folder).expect("a folder for the picture");
    let path = folder.join("convergence.svg");
    fs::write(&path, picture::draw(&runs)).expect("the picture can be written");
    let path = path.canonicalize().unwrap_or(path);
    println!("the curves: {}", path.display());
}

/// Whether `name` is measured: it is among the words `asked` for, or none of its kind is.
fn wanted(asked: &[String], name: &str, kind: &[&str]) -> bool {
    let mut named = asked.iter().filter(|word| kind.contains(&word.as_str()));
    let is_named = named.clone().any(|word| word == name);
    is_named || named.next().is_none()
}

/// Number of seeds per pair: from `seeds=3`, or one.
fn seeds(asked: &[String]) -> u64 {
    let said = asked.iter().find_map(|word| word.strip_prefix("seeds="));
    said.map_or(1, |seeds| match seeds.parse() {
        Ok(seeds @ 1..) => seeds,
        _ => panic!("seeds={seeds}: a number from 1 on"),
    })
}

fn train(
    datasets: &Path,
    consistency: &GridConsistency,
    codec: &GridCodec,
    seed: u64,
) -> ConvergenceRun {
    let rig = Rig::on(datasets);
    let spec = document(consistency, codec, seed);
    let batch = f64::from(spec.batch());
    let mut revision = rig.start(&RigLaunch::new(1, WORKERS, PS_SHARDS, spec.clone()));
    let chief = revision.chief();
    chief.wait_for("ready", |event| {
        matches!(event, TaskReport::Ready { .. }).then_some(())
    });
    let (began, bytes) = (Instant::now(), loopback_bytes());
    let mut points = Vec::new();
    loop {
        let over = chief.child.try_wait().expect("a child of ours").is_some();
        let now = (began.elapsed().as_secs_f64(), loopback_bytes() - bytes);
        let evaluations = chief.events().into_iter().filter_map(|event| match event {
            TaskReport::Evaluated { evaluation } => Some(evaluation),
            _ => None,
        });
        for evaluation in evaluations.skip(points.len()) {
            points.push(EvaluationPoint {
                seconds: now.0,
                bytes: now.1,
                examples: evaluation.step as f64 * batch,
                accuracy: evaluation.accuracy.expect("the engine measures it"),
            });
        }
        if over {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", revision.logs());
        thread::sleep(Duration::from_millis(10));
    }
    revision.succeed();
    check(&spec, &points);
    ConvergenceRun {
        consistency: consistency.name,
        codec: codec.name,
        points,
    }
}

/// Checks that the run is complete; a shortened run would look fast.
fn check(spec: &JobSpec, points: &[EvaluationPoint]) {
    let epochs = spec.stop.epochs.expect("the document says so") as f64;
    let examples = points.last().map_or(0.0, |point| point.examples);
    assert!(
        examples > 0.99 * epochs * 60_000.0,
        "trained on {examples} examples of {epochs} epochs"
    );
}

/// Bytes of the loopback device since the start of the machine; each is counted once.
fn loopback_bytes() -> f64 {
    let devices = fs::read_to_string("/proc/net/dev").expect("Linux counts what devices carry");
    let line = devices
        .lines()
        .find_map(|line| line.trim().strip_prefix("lo:"))
        .expect("there is a loopback device");
    let received = line.split_whitespace().next().expect("bytes come first");
    received.parse().expect("a number")
}

/// Table of means over the seeds.
fn table(pairs: &[Vec<ConvergenceRun>]) -> String {
    let mut out = format!(
        "\nto {:.0} % test accuracy on Fashion-MNIST, {WORKERS} workers and {PS_SHARDS} PS shards, {}; {} of each pair\n",
        TARGET * 100.0,
        grid::SETTING,
        match pairs.first().map_or(1, Vec::len) {
            1 => "one run".to_owned(),
            seeds => format!("means of {seeds} seeds"),
        }
    );
    let heads = [
        "seconds",
        "examples",
        "MB",
        "final %",
        "deviation",
        "lost, points",
    ];
    let heads: String = heads.iter().map(|head| format!("{head:>14}")).collect();
    out += &format!("{:>6} {:>10}{heads}\n", "", "codec");
    for pair in pairs {
        let (consistency, codec) = (pair[0].consistency, pair[0].codec);
        let plain = pairs
            .iter()
            .find(|other| other[0].consistency == consistency && other[0].codec == "none");
        let last =
            |pair: &[ConvergenceRun]| mean(pair.iter().map(|run| run.last().accuracy * 100.0));
        let end = last(pair);
        let lost = plain.map_or("-".to_owned(), |plain| format!("{:+.2}", last(plain) - end));
        let reached: Option<Vec<EvaluationPoint>> =
            pair.iter().map(ConvergenceRun::reached).collect();
        let reached = match reached {
            Some(at) => format!(
                "{:>14.1}{:>14.0}{:>14.1}",
                mean(at.iter().map(|at| at.seconds)),
                mean(at.iter().map(|at| at.examples)),
                mean(at.iter().map(|at| at.bytes / 1e6))
            ),
            None => format!("{:>14}{:>14}{:>14}", "not always", "-", "-"),
        };
        let squares = pair
            .iter()
            .map(|run| (run.last().accuracy * 100.0 - end).powi(2));
        // A single run has no deviation.
        let deviation = match pair.len() {
            1 => "-".to_owned(),
            seeds => format!("{:.2}", (squares.sum::<f64>() / (seeds - 1) as f64).sqrt()),
        };
        out +=
            &format!("{consistency:>6} {codec:>10}{reached}{end:>14.2}{deviation:>14}{lost:>14}\n");
    }
    out
}

fn mean(of: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = of.len() as f64;
    of.sum::<f64>() / count
}
