//! The same workload in simulation: the published simulator with `muster-fixed`, and the live
//! planner event by event.

use crate::settings::TrialInputs;
use anyhow::Context as _;
use muster_lab::contestants::contestant;
use muster_lab::live::{self, LiveRunSettings};
use muster_lab::reference_simulators::{self, ReferenceSettings};
use muster_lab::run::SimulationRun;
use muster_sim::core::policies::name::PolicyName;
use std::time::Instant;

/// Returns the run of the live planner. A stop takes `stop_s` seconds.
pub fn live(inputs: &TrialInputs, stop_s: f64) -> anyhow::Result<SimulationRun> {
    let began = Instant::now();
    let mut watch = || began.elapsed().as_secs_f64();
    let settings = LiveRunSettings {
        policy: PolicyName::Muster,
        is_elastic: true,
        chooses_batch: false,
        slicing: None,
        packs: false,
        stop_s,
        until_s: LiveRunSettings::UNTIL_S,
    };
    let mut live = live::run(
        Some(&inputs.profiles),
        &inputs.workload,
        &inputs.cluster,
        &settings,
        &mut watch,
        &mut |_| {},
    )
    .context("simulate the live planner")?;
    live.policy = format!("simulate, stops {stop_s:.0} s");
    Ok(live)
}

/// Returns the run of `muster` with users' batches in the published simulator.
pub fn published(inputs: &TrialInputs) -> anyhow::Result<SimulationRun> {
    let began = Instant::now();
    let mut watch = || began.elapsed().as_secs_f64();
    let rules = live::rules(&inputs.profiles);
    let settings = ReferenceSettings {
        rules,
        interference: 0.0,
        until_s: ReferenceSettings::UNTIL_S,
    };
    let mut published = reference_simulators::run(
        &inputs.profiles,
        &inputs.workload,
        &inputs.cluster,
        &settings,
        &contestant("muster-fixed")?,
        &mut watch,
        &mut |_| {},
    )
    .context("simulate by the published rules")?;
    "simulate, published rules".clone_into(&mut published.policy);
    Ok(published)
}
