//! Compares Muster's searchers with Optuna's on the same functions and budgets: the median over
//! seeds of the best value, and the time of one ask and tell with many trials.
//!
//! `MUSTER_OPTUNA_PYTHON` is a python3 with optuna, cmaes, scipy and torch
//! (`scripts/ensure-optuna`). Without it only Muster's values are printed. Optuna's lines are
//! stored in the file of `MUSTER_OPTUNA_RESULTS` and reused. `MUSTER_SEARCH_BENCH` selects by
//! words: searchers, functions, `throughput`. `MUSTER_SEARCH_SEEDS` is 20 by default, 5 without
//! Optuna.

mod functions;

use functions::{Function, functions};
use muster_search::{SearchAction, SearchEvent, Study};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Searchers, each with its number of trials.
const CONTEST: [(&str, u32); 3] = [("tpe", 200), ("gp", 80), ("cma_es", 1000)];

/// Whether `wanted` names the word, or no word of its group.
fn is_chosen(wanted: &str, group: &[&str], word: &str) -> bool {
    let named = wanted.split_whitespace().any(|w| group.contains(&w));
    !named || wanted.split_whitespace().any(|w| w == word)
}

fn main() {
    let wanted = std::env::var("MUSTER_SEARCH_BENCH").unwrap_or_default();
    let seeds = std::env::var("MUSTER_SEARCH_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(if std::env::var_os("MUSTER_OPTUNA_PYTHON").is_some() {
            20u64
        } else {
            5
        });
    println!("searcher  function      trials      ours    Optuna   ours better in   ms a trial");
    for (searcher, budget) in CONTEST {
        if wanted.trim() == "throughput" || !is_chosen(&wanted, &["tpe", "gp", "cma_es"], searcher)
        {
            continue;
        }
        for function in functions() {
            let names = ["branin", "hartmann6", "rosenbrock10", "mixed"];
            if !is_chosen(&wanted, &names, function.name) {
                continue;
            }
            let before = cpu_ms();
            let ours: Vec<f64> = (0..seeds)
                .map(|seed| best(searcher, budget, &function, seed))
                .collect();
            let each = (cpu_ms() - before) / (seeds * u64::from(budget)) as f64;
            let theirs = optuna(searcher, budget, function.name, seeds);
            let wins = ours.iter().zip(&theirs).filter(|(a, b)| a < b).count();
            let shown = if theirs.is_empty() {
                "-".to_owned()
            } else {
                format!("{:.6}", median(&theirs))
            };
            println!(
                "{searcher:9} {:12} {budget:7} {:9.6} {shown:>9} {wins:>9} of {seeds} {each:12.3}",
                function.name,
                median(&ours)
            );
        }
    }
    if is_chosen(
        &wanted,
        &[
            "tpe",
            "gp",
            "cma_es",
            "branin",
            "hartmann6",
            "rosenbrock10",
            "mixed",
        ],
        "throughput",
    ) {
        throughput();
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        (sorted[half - 1] + sorted[half]) / 2.0
    }
}

fn study(searcher: serde_json::Value, trials: u32, function: &Function, seed: u64) -> Study {
    let spec = serde_json::from_value(json!({
        "objectives": [{"metric": "value", "goal": "minimize"}],
        "parameters": function.parameters, "searcher": searcher,
        "trials": trials, "seed": seed,
    }));
    Study::new(spec.expect("a document")).expect("valid")
}

/// Smallest value found with one trial at a time.
fn best(searcher: &str, budget: u32, function: &Function, seed: u64) -> f64 {
    let mut study = study(json!({"kind": searcher}), budget, function, seed);
    let mut actions = study.apply(SearchEvent::Started).expect("may begin");
    let mut best = f64::INFINITY;
    while let Some(SearchAction::Create {
        trial, parameters, ..
    }) = actions.pop()
    {
        let value = (function.value)(&parameters);
        best = best.min(value);
        actions = tell(&mut study, trial, value);
    }
    best
}

fn tell(study: &mut Study, trial: u32, value: f64) -> Vec<SearchAction> {
    let event = SearchEvent::Finished {
        trial,
        step: 1,
        values: vec![value],
        exhausted: false,
    };
    study.apply(event).expect("a fact")
}

/// Optuna's best values by seed; empty without Optuna.
fn optuna(searcher: &str, budget: u32, function: &str, seeds: u64) -> Vec<f64> {
    let kept = std::env::var("MUSTER_OPTUNA_RESULTS").ok();
    let mut known: BTreeMap<u64, f64> = BTreeMap::new();
    let key = format!("{searcher}/{budget} {function} ");
    let text = kept
        .as_ref()
        .and_then(|path| std::fs::read_to_string(path).ok());
    for line in text.unwrap_or_default().lines() {
        let fields = line
            .strip_prefix(&key)
            .and_then(|rest| rest.split_once(' '));
        if let Some((seed, value)) = fields
            && let (Ok(seed), Ok(value)) = (seed.parse(), value.parse())
        {
            known.insert(seed, value);
        }
    }
    let missing = (0..seeds).find(|seed| !known.contains_key(seed));
    if let (Some(first), Ok(python)) = (missing, std::env::var("MUSTER_OPTUNA_PYTHON")) {
        let peer = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/benches/against_optuna/optuna_peer.py"
        );
        let numbers = [
            budget.to_string(),
            first.to_string(),
            (seeds - 1).to_string(),
        ];
        let mut command = Command::new(python);
        command
            .args([peer, "best", searcher])
            .args(numbers)
            .arg(function);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            let line = line.expect("text");
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, _, seed, value] = fields[..] else {
                panic!("Optuna said {line:?}")
            };
            known.insert(
                seed.parse().expect("a seed"),
                value.parse().expect("a value"),
            );
            if let Some(path) = &kept {
                let mut file = OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path)
                    .expect("a file");
                writeln!(file, "{key}{seed} {value}").expect("room on the disk");
            }
        }
        assert!(child.wait().expect("it ends").success(), "Optuna failed");
    }
    known.range(..seeds).map(|(_, value)| *value).collect()
}

/// CPU milliseconds of one ask and tell of Hartmann-6, with 1,000 and 10,000 trials in the study.
fn throughput() {
    println!("ask and tell, Hartmann-6, milliseconds    ours    Optuna in memory");
    let function = functions().swap_remove(1);
    for (searcher, _) in CONTEST {
        for trials in [1000u32, 10_000] {
            // With this many trials Optuna's Gaussian process takes minutes per trial.
            if searcher == "gp" {
                continue;
            }
            // The history is spread over the space, as in `optuna_peer.py`.
            let kind = match searcher {
                "cma_es" => json!({"kind": searcher}),
                _ => json!({"kind": searcher, "startup": trials}),
            };
            let mut study = study(kind, trials + 11, &function, 1);
            let mut actions = study.apply(SearchEvent::Started).expect("may begin");
            let mut times = Vec::new();
            let mut bits = 1u64;
            for n in 0..trials + 10 {
                let Some(SearchAction::Create { trial, .. }) = actions.pop() else {
                    break;
                };
                bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let before = cpu_ms();
                actions = tell(&mut study, trial, (bits >> 11) as f64);
                if n >= trials {
                    times.push(cpu_ms() - before);
                }
            }
            let shown = peer_throughput(searcher, trials);
            println!(
                "{searcher:9} with {trials:6} trials {:20.3} {shown:>19}",
                median(&times)
            );
        }
    }
}

fn peer_throughput(searcher: &str, trials: u32) -> String {
    let Ok(python) = std::env::var("MUSTER_OPTUNA_PYTHON") else {
        return "-".to_owned();
    };
    let peer = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/benches/against_optuna/optuna_peer.py"
    );
    let output = Command::new(python)
        .args([peer, "throughput", searcher, &trials.to_string()])
        .output();
    let output = output.expect("python3 starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().last().unwrap_or("-").to_owned()
}

/// CPU time of this thread, so that other load on the machine does not count.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
