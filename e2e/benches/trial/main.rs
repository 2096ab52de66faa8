//! Live trial: a published workload on real daemons, many times faster than real time.
//!
//! The same workload is simulated, and the report shows both. Each real delay of the control plane
//! counts as many times as the rate of the clock. So one simulation has the measured median of the
//! stops, and one the usual second.
//!
//! API, Postgres, scheduler and 16 executors of 4 CPU slots run the jobs, unless `cluster` names
//! another shape. Each job is a program
//! that plays the step times of Pollux' profiles (`muster-played-task`). All stored times run at
//! the rate of the trial's clock. The trial fails unless every job succeeds, no slot was held
//! twice, and every round replays to the same bytes.
//!
//! `make trial-live`; `ARGS="rate=30 jobs=20 hours=1 workload=FILE out=FILE"` changes the defaults.
//! `profiles=SIA workload=SIA/workloads-philly/workload-1.csv cluster=aws:6x4,dgx-ext:2x8,rtx:3x8`
//! plays a workload of Sia on three GPU kinds; SIA is the folder with its traces.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod history;
mod live;
mod settings;
mod simulated;
mod table;
mod trainings;

use anyhow::ensure;
use muster_e2e::cluster::program;
use muster_e2e::story::rounds_replay;
use muster_lab::live::LiveRunSettings;
use muster_lab::measure::{Summary, percentile};
use settings::TrialSettings;
use trainings::Trainings;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let is_built = own
        .ancestors()
        .any(|folder| folder.join("muster-played-task").is_file());
    // A trial that did not run has shown nothing.
    ensure!(
        is_built,
        "the programs are not built; run `make trial-live`, which builds them"
    );
    let settings = TrialSettings::read(std::env::args().skip(1))?;
    let inputs = settings.inputs()?;
    let ideal = simulated::live(&inputs, LiveRunSettings::STOP_S)?;
    let (mut cluster, clock) = live::start(&settings, &inputs).await?;
    let trainings = Trainings::write(
        &inputs.profiles,
        &inputs.workload,
        &inputs.cluster,
        (
            program("muster-played-task"),
            trainings::folder(&cluster.data())?,
            settings.line_s,
        ),
    )?;
    let played = live::play(&cluster, clock, &inputs.workload, &trainings).await?;
    let history = history::read(&cluster, &played, &inputs, &ideal).await;
    // Ages are times of the trial's clock, so the rounds are selected by number.
    rounds_replay(&cluster, &["1..1000000000"]);
    cluster.down();
    let history = history?;
    let mut runs = vec![history.run];
    // Each real delay counts as many times as the rate of the clock.
    let mut stops = history.starts.stop_s.clone();
    stops.sort_by(f64::total_cmp);
    if !stops.is_empty() {
        runs.push(simulated::live(&inputs, percentile(&stops, 0.5))?);
    }
    runs.push(ideal);
    runs.push(simulated::published(&inputs)?);
    let summaries: Vec<Summary> = runs.iter().map(|run| Summary::of(run, "trial")).collect();
    table::print(&summaries, &history.starts, settings.rate.get());
    table::write(&settings.out, &runs, &summaries)?;
    Ok(())
}
