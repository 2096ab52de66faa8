//! Live trial: a published workload on real daemons, many times faster than life, beside the same
//! workload in simulation.
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

use muster_e2e::cluster::program;
use muster_lab::measure::Summary;
use settings::TrialSettings;
use trainings::Trainings;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let is_built = own
        .ancestors()
        .any(|folder| folder.join("muster-played-task").is_file());
    if !is_built {
        eprintln!("trial: not run; the programs are not built (make trial-live builds them)");
        return Ok(());
    }
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
    let is_replayed = history::replays(&cluster);
    cluster.down();
    let history = history?;
    runs.insert(0, history.run);
    let summaries: Vec<Summary> = runs.iter().map(|run| Summary::of(run, "trial")).collect();
    table::print(&summaries, &history.starts, settings.rate.get());
    table::write(&settings.out, &runs, &summaries)?;
    is_replayed?;
    Ok(())
}
