//! Live trial: a published workload on real daemons, many times faster than real time.
//!
//! The same workload is simulated, and the report shows both.
//!
//! API, Postgres, scheduler and 16 executors of 4 CPU slots run the jobs. Each job is a program
//! that plays the step times of Pollux' profiles (`muster-played-task`). All stored times run at
//! the rate of the trial's clock. The trial fails unless every job succeeds, no slot was held
//! twice, and every round replays to the same bytes.
//!
//! `make trial-live`; `ARGS="rate=30 jobs=20 hours=1 workload=FILE out=FILE nodes=2"` changes the
//! defaults.

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
use muster_lab::measure::Summary;
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
    let mut runs = simulated::runs(&inputs)?;
    let (mut cluster, clock) = live::start(&settings).await;
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
    let history = history::read(&cluster, &played, &inputs, &runs[0]).await;
    // Ages are times of the trial's clock, so the rounds are selected by number.
    rounds_replay(&cluster, &["1..1000000000"]);
    cluster.down();
    let history = history?;
    runs.insert(0, history.run);
    let summaries: Vec<Summary> = runs.iter().map(|run| Summary::of(run, "trial")).collect();
    table::print(&summaries, &history.starts, settings.rate.get());
    table::write(&settings.out, &runs, &summaries)?;
    Ok(())
}
