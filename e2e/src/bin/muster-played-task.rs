//! A user's program for trials: plays a recorded training in the time of the trial's clock, and
//! needs nearly no CPU.
//!
//! `muster-played-task FILE` reads a [`PlayedTraining`] from the file. Rank 0 waits for the start,
//! logs steps as the time passes, and writes its step into the checkpoint folder with each line, at
//! a request (`SIGUSR1`), at a stop and at the end. The other ranks wait until they are stopped:
//! the job needs `ends: first_worker`.

use anyhow::Context as _;
use muster_clock::TrialClock;
use muster_e2e::clock;
use muster_e2e::played::{CHECKPOINT, KIND, PlayedTraining};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Rank 0 while it trains.
struct Player {
    training: PlayedTraining,
    clock: TrialClock,
    checkpoint: PathBuf,
    stop: Signal,
    /// Asks for a checkpoint.
    request: Signal,
    step_s: f64,
}

/// Why a wait ended.
enum Wake {
    Time,
    Request,
    Stop,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let stop = signal(SignalKind::terminate())?;
    let request = signal(SignalKind::user_defined1())?;
    let file = std::env::args().nth(1).context("usage: FILE")?;
    let training = std::fs::read_to_string(&file).with_context(|| format!("read {file}"))?;
    let training: PlayedTraining = serde_json::from_str(&training)?;
    let clock = muster_clock::of_process().context("the trial's clock is not set")?;
    if variable("RANK")? != "0" {
        let mut stop = stop;
        stop.recv().await;
        return Ok(());
    }
    let workers: usize = variable("WORLD_SIZE")?.parse()?;
    let nodes = nodes(Path::new(&variable("MUSTER_TASK_DIR")?))?;
    let kind = variable(KIND)?;
    let step_s = training.step_s(&kind, nodes, workers);
    let step_s = step_s.with_context(|| format!("{workers} workers on {nodes} nodes of {kind}"))?;
    let placed_s = now_s(clock, placed_ms(&variable("MUSTER_TASK_ID")?)?);
    let checkpoint = Path::new(&variable("MUSTER_CHECKPOINT_DIR")?).join(CHECKPOINT);
    let player = Player {
        training,
        clock,
        checkpoint,
        stop,
        request,
        step_s,
    };
    player.play(placed_s).await
}

impl Player {
    /// Trains from the checkpoint until all steps are done or the job is stopped.
    async fn play(mut self, placed_s: f64) -> anyhow::Result<()> {
        let from = match std::fs::read_to_string(&self.checkpoint) {
            Ok(text) => text.trim().parse()?,
            Err(_) => 0,
        };
        let start_s = placed_s + self.training.start_s;
        loop {
            match self.wait_until(start_s).await {
                Wake::Time => break,
                Wake::Request => self.keep(from)?,
                Wake::Stop => return Ok(()),
            }
        }
        let begin_s = start_s.max(self.now_s());
        let mut step = from;
        while step < self.training.steps {
            // The first line is that of the first step, because it tells where the start continues.
            let next = if step == from {
                from + 1
            } else {
                self.training.next_line(step, self.step_s)
            };
            let next_s = begin_s + (next - from) as f64 * self.step_s;
            match self.wait_until(next_s).await {
                Wake::Time => step = next,
                Wake::Request => {
                    self.keep(self.done(from, begin_s))?;
                    continue;
                }
                Wake::Stop => return self.keep(self.done(from, begin_s)),
            }
            let loss = 1.0 - 0.9 * step as f64 / self.training.steps as f64;
            println!("muster: step={step} loss={loss}");
            self.keep(step)?;
        }
        Ok(())
    }

    /// Number of steps done now, in a training that continued from step `from` at `begin_s`.
    fn done(&self, from: u64, begin_s: f64) -> u64 {
        // Steps since the start are far inside a u64.
        let done = ((self.now_s() - begin_s) / self.step_s).floor() as u64;
        (from + done).min(self.training.steps)
    }

    /// Waits until the trial's clock shows `at_s`, the scheduler asks for a checkpoint, or the job
    /// is stopped.
    async fn wait_until(&mut self, at_s: f64) -> Wake {
        let left_s = (at_s - self.now_s()).max(0.0) / f64::from(self.clock.rate.get());
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs_f64(left_s)) => Wake::Time,
            _ = self.request.recv() => Wake::Request,
            _ = self.stop.recv() => Wake::Stop,
        }
    }

    fn now_s(&self) -> f64 {
        now_s(self.clock, clock::now().unix_timestamp_nanos() / 1_000_000)
    }

    fn keep(&self, step: u64) -> anyhow::Result<()> {
        let new = self.checkpoint.with_extension("new");
        std::fs::write(&new, step.to_string())?;
        std::fs::rename(&new, &self.checkpoint)?;
        println!("muster: checkpoint step={step}");
        Ok(())
    }
}

/// Converts real milliseconds since 1970 to seconds of the trial's clock.
fn now_s(clock: TrialClock, real_ms: i128) -> f64 {
    // Nanoseconds of this era lose less than a microsecond as seconds in an f64.
    clock.unix_ns(real_ms * 1_000_000) as f64 / 1e9
}

/// Real time in milliseconds since 1970 at which the scheduler placed the task: its id begins with
/// it (RFC 9562, version 7).
fn placed_ms(task: &str) -> anyhow::Result<i128> {
    let hex: String = task
        .chars()
        .filter(|&digit| digit != '-')
        .take(12)
        .collect();
    Ok(i128::from_str_radix(&hex, 16)?)
}

/// Number of nodes of the workers. Nodes of one machine have the same address, so the hosts in the
/// environment do not tell it.
fn nodes(task: &Path) -> anyhow::Result<usize> {
    let peers: Value = serde_json::from_slice(&std::fs::read(task.join("peers.json"))?)?;
    let workers = peers["workers"].as_array().context("peers.json")?;
    let nodes: BTreeSet<&str> = workers
        .iter()
        .filter_map(|worker| worker["node_id"].as_str())
        .collect();
    Ok(nodes.len())
}

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}
