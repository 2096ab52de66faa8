//! Figures from the daemons' logs and `/proc`, and their output.

use muster_e2e::cluster::TestCluster;

/// Figures of one run.
pub struct Figures {
    /// Length of the long queue.
    pub long: usize,
    pub idle_ms: Vec<f64>,
    pub beside_ms: Vec<f64>,
    pub short_per_s: f64,
    pub long_per_s: f64,
    pub round_ms: Vec<f64>,
    pub scheduler_mib: u64,
    pub lost_nodes: usize,
    /// Jobs in the queue at the start of `muster down`.
    pub queued: usize,
    pub down_s: f64,
}

pub fn print(figures: &Figures) {
    let (idle_ms, beside_ms) = (
        quantile(&figures.idle_ms, 0.5),
        quantile(&figures.beside_ms, 0.5),
    );
    println!("\nqueue of {} jobs of one tenant, six slots", figures.long);
    println!("{:<52} {:>9} {:>9} {:>7}", "what", "short", "long", "ratio");
    row(
        "submission to success of one job (ms, median)",
        idle_ms,
        beside_ms,
    );
    row(
        "submission to success of one job (ms, 90 %)",
        quantile(&figures.idle_ms, 0.9),
        quantile(&figures.beside_ms, 0.9),
    );
    row(
        "jobs finished a second",
        figures.short_per_s,
        figures.long_per_s,
    );
    println!(
        "rounds beside the long queue: {} kept, median {:.0} ms, longest {:.0} ms",
        figures.round_ms.len(),
        quantile(&figures.round_ms, 0.5),
        quantile(&figures.round_ms, 1.0),
    );
    println!(
        "most memory of the scheduler: {} MiB",
        figures.scheduler_mib
    );
    println!("nodes that were declared lost: {}", figures.lost_nodes);
    println!(
        "muster down with {} jobs in the queue: {:.1} s",
        figures.queued, figures.down_s
    );
}

fn row(what: &str, short: f64, long: f64) {
    println!("{what:<52} {short:>9.1} {long:>9.1} {:>7.2}", long / short);
}

fn quantile(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    values
        .get((part * last).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

fn log(cluster: &TestCluster) -> anyhow::Result<String> {
    let path = cluster.data().join("logs/scheduler.log");
    Ok(std::fs::read_to_string(path)?)
}

/// Milliseconds of the rounds that decided something, from the scheduler's log with
/// `MUSTER_LOG=muster_scheduler=debug`.
pub fn round_ms(cluster: &TestCluster) -> anyhow::Result<Vec<f64>> {
    let log = log(cluster)?;
    let rounds = log.lines().filter(|line| line.contains("round committed"));
    // Colour codes of the terminal are between the name and the number.
    let took = rounds.filter_map(|line| {
        let (_, took) = line.rsplit_once("elapsed_ms")?;
        let (_, took) = took.rsplit_once(['=', 'm'])?;
        took.trim().parse().ok()
    });
    Ok(took.collect())
}

pub fn lost_nodes(cluster: &TestCluster) -> anyhow::Result<usize> {
    Ok(log(cluster)?.matches("node lost").count())
}

/// Peak resident set of the scheduler so far, in MiB.
pub fn peak_mib(cluster: &TestCluster) -> anyhow::Result<u64> {
    let schedulers = cluster.running("muster-scheduler");
    let scheduler = schedulers
        .first()
        .ok_or_else(|| anyhow::anyhow!("the scheduler runs"))?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", scheduler.pid))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|kib| kib.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    Ok(kib.unwrap_or(0) / 1_024)
}
