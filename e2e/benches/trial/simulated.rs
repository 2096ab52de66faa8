//! The same workload in simulation: the published simulator with `muster-fixed`, and the live
//! planner event by event.

use crate::settings::TrialInputs;
use anyhow::Context as _;
use muster_lab::contestants::contestant;
use muster_lab::live::{self, LiveRunSettings};
use muster_lab::reference_simulators::{self, ReferenceSettings, SimulatorRules};
use muster_lab::run::SimulationRun;
use muster_sim::core::policies::name::PolicyName;
use std::time::Instant;

/// Returns the run of the live planner, then that of the published simulator.
pub fn runs(inputs: &TrialInputs) -> anyhow::Result<Vec<SimulationRun>> {
    let began = Instant::now();
    let mut watch = || began.elapsed().as_secs_f64();
    let settings = LiveRunSettings {
        policy: PolicyName::Muster,
        is_elastic: true,
        chooses_batch: false,
        slicing: None,
        packs: false,
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
    "simulate, rules live".clone_into(&mut live.policy);
    let settings = ReferenceSettings {
        rules: SimulatorRules::Pollux,
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
    .context("simulate by the rules of Pollux")?;
    "simulate, rules pollux".clone_into(&mut published.policy);
    Ok(vec![live, published])
}
