//! Stall of training by a checkpoint of PS shards: the state read before the next step, compared
//! with a snapshot that is read while training continues.

use super::{WorkerPair, median};
use muster_model::spec;
use muster_training::checkpoint::{Contents, ContentsSource as _};
use std::thread;
use std::time::Instant;

/// Megabytes of parameters; with momentum the state is twice as large.
const MB: usize = 50;
const ROUNDS: usize = 6;
/// Bytes per second in each direction per worker: 1 Gbit/s, and plain loopback.
const RATES: [f64; 2] = [125e6, f64::INFINITY];

/// One row per rate in milliseconds: the longest stalls, a copy of the state in memory, reading,
/// steps without and with it.
pub fn rows() -> Vec<String> {
    RATES.into_iter().map(row).collect()
}

pub fn say(rows: &[String]) {
    println!(
        "\nthe longest stall of the chief at a checkpoint, 2 workers and 2 shards, {MB} MB of parameters and as much momentum"
    );
    println!(
        "{:>10} {:>10} {:>10} {:>8} {:>10} {:>8} {:>8} {:>10} {:>10} {:>12}",
        "wire MB/s",
        "read ms",
        "copied ms",
        "ratio",
        "a copy ms",
        "copies",
        "read",
        "drawn ms",
        "a step ms",
        "meanwhile ms"
    );
    println!("{}", rows.join("\n"));
}

fn row(rate: f64) -> String {
    let optimizer = spec::Optimizer::Sgd {
        learning_rate: 0.1,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.0,
    };
    let mut pair = WorkerPair::of(MB, &optimizer, None, rate, None);
    let mut spare = pair.workers[0]
        .snapshot(Contents::default())
        .expect("a state")
        .contents;
    let mut target = spare.clone();
    let [mut read, mut copied, mut copies, mut drawn] = [const { Vec::new() }; 4];
    let [mut alone, mut meanwhile] = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        alone.push(timed(|| pair.step()));
        copies.push(timed(|| {
            for (from, to) in spare.arenas().iter().zip(target.arenas_mut()) {
                to.copy_from_slice(from);
            }
        }));
        let mut snapshot = None;
        let taken = std::mem::take(&mut spare);
        read.push(timed(|| {
            snapshot = Some(pair.workers[0].snapshot(taken).expect("a state"));
        }));
        spare = snapshot.expect("it was read").contents;
        alone.push(timed(|| pair.step()));

        let mut lent = None;
        let taken = std::mem::take(&mut spare);
        copied.push(timed(|| {
            lent = Some(pair.workers[0].lend(taken).expect("a copy"));
        }));
        let (mut snapshot, draw) = lent.expect("it was copied");
        let draw = draw.expect("shards that lend");
        let drawing = thread::spawn(move || {
            let took = timed(|| draw.fill(&mut snapshot.contents).expect("drawn"));
            (snapshot.contents, took)
        });
        while !drawing.is_finished() {
            meanwhile.push(timed(|| pair.step()));
        }
        let (contents, took) = drawing.join().expect("it was drawn");
        spare = contents;
        drawn.push(took);
        if round == 0 {
            // The first round touches new memory.
            let stalls = [&mut read, &mut copied, &mut copies, &mut drawn];
            stalls.into_iter().for_each(Vec::clear);
            [&mut alone, &mut meanwhile]
                .into_iter()
                .for_each(Vec::clear);
        }
    }
    let [read, copied] = [read, copied].map(|times| times.into_iter().fold(0.0, f64::max));
    let copy = median(copies);
    format!(
        "{:>10.0} {read:>10.1} {copied:>10.1} {:>8.1} {copy:>10.1} {:>8.2} {:>8.2} {:>10.1} {:>10.1} {:>12.1}",
        rate / 1e6,
        read / copied,
        copied / copy,
        read / copy,
        median(drawn),
        median(alone),
        median(meanwhile)
    )
}

/// Duration in milliseconds.
fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e3
}
