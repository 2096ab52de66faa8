//! Whole cluster under random faults while tenants train and one attacks. No acknowledged work is
//! lost, nothing runs twice, and nothing is left behind. `make story-chaos` runs it for half an
//! hour, as root.

mod clocks;
mod databases;
mod disks;
mod follower;
mod hostile;
mod nemesis;
mod network;
mod record;
mod relay;
mod schedule;
mod stand;
mod supervisor;
mod tenants;
mod verdict;
mod watcher;

use follower::EventFollower;
use hostile::HostileTenant;
use nemesis::Nemesis;
use record::FaultRecord;
use stand::ChaosCluster;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenants::TenantLoad;
use verdict::ChaosVerdict;
use watcher::InvariantWatcher;

const MINUTES: u64 = 30;
const SEED: u64 = 20_261_126;
const TOLD_EVERY: Duration = Duration::from_secs(30);

#[test]
#[ignore = "takes half an hour, and needs root: make story-chaos"]
fn faults_at_random_lose_double_and_leave_nothing() {
    let (minutes, seed) = (number("MINUTES", MINUTES), number("SEED", SEED));
    let panics = Arc::new(AtomicU64::new(0));
    let (counted, told) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        counted.fetch_add(1, Ordering::Relaxed);
        told(panic);
    }));
    let folder = tempfile::Builder::new().prefix("muster-chaos-").tempdir();
    let folder = folder.expect("a temporary folder").keep();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(run(&folder, minutes, seed));
    // Tasks of the runtime hold the cluster.
    drop(runtime);
    let record = match outcome {
        Ok(record) => record,
        Err(why) => panic!("the story cannot run on this machine: {why}"),
    };
    for left in disks::left(&folder)
        .into_iter()
        .chain(network::left(std::process::id()))
    {
        record.broke(&format!("left: {left}"));
    }
    // Panics of tasks and threads, which do not fail the test by themselves.
    if panics.load(Ordering::Relaxed) > 0 {
        record.broke("a part of the story panicked");
    }
    eprintln!("chaos: faults:\n{}", record.history());
    let broken = record.broken();
    if broken.is_empty() {
        std::fs::remove_dir_all(&folder).expect("our own folder");
        return;
    }
    std::fs::write(folder.join("faults.txt"), record.history()).expect("our own folder");
    panic!(
        "SEED={seed} MINUTES={minutes}: {} promises were broken:\n{}\nlogs, schedule.txt and faults.txt: {}",
        broken.len(),
        broken.join("\n"),
        folder.display()
    );
}

async fn run(folder: &Path, minutes: u64, seed: u64) -> Result<Arc<FaultRecord>, String> {
    let stand = ChaosCluster::set(PathBuf::from(folder)).await?;
    eprintln!(
        "chaos: SEED={seed} MINUTES={minutes}; logs: {}",
        folder.display()
    );
    let tenants = TenantLoad::settle(&stand).await;
    let hostile = HostileTenant::settle(&stand).await;
    let record = Arc::new(FaultRecord::begin());
    let follower = EventFollower::begin(&tenants.clients[1], &record);
    tenants.begin(&record);
    hostile.begin(seed);
    let schedule = schedule::schedule(seed, minutes);
    let text: Vec<String> = schedule.iter().map(ToString::to_string).collect();
    std::fs::write(folder.join("schedule.txt"), text.join("\n")).expect("our own folder");
    let nemesis = Nemesis::begin(stand.clone(), record.clone(), schedule);
    let watcher = InvariantWatcher::begin(&stand, &record);
    let tell = || {
        eprintln!(
            "chaos: minute {:.1}; faults: {}; jobs: {}; attacks: {}; looks: {}; followed: {}; broken: {}",
            record.elapsed().as_seconds_f64() / 60.0,
            record.counts(),
            tenants.counts(),
            hostile.attempts(),
            watcher.looks.load(Ordering::Relaxed),
            follower.counts(),
            record.broken().len()
        );
    };
    let end = time::Duration::minutes(minutes.cast_signed());
    while record.elapsed() < end || !nemesis.is_over() || record.calm_since().is_none() {
        tokio::time::sleep(TOLD_EVERY).await;
        tell();
    }
    tenants.end();
    hostile.end();
    let verdict = ChaosVerdict {
        stand: &stand,
        record: &record,
        tenants: &tenants,
        hostile: &hostile,
        follower: &follower,
    };
    verdict.reach().await;
    tell();
    watcher.end();
    stand.stop();
    let left = stand.processes();
    if !left.is_empty() {
        record.broke(&format!("processes left: {left:?}"));
    }
    Ok(record)
}

/// Value of a variable, or the default.
///
/// # Panics
/// If the value is not a number.
fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is {text:?}; expected a number")),
        _ => default,
    }
}
