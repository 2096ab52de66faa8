//! Records the results: the timeline, the GPUs held and the outcome of every job.

use super::SimulationEngine;
use super::ids::job_number;
use crate::outcome::{SimulationOutcome, TimelineEntry};
use muster_core::{Action, RoundPlan};

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl SimulationEngine<'_> {
    /// Records the plan and sets the times at which the tasks follow it.
    pub(super) fn record(&mut self, plan: &RoundPlan) {
        let now_ms = self.snapshot.now_ms;
        for decision in &plan.decisions {
            let index = job_number(decision.job);
            let spec = &self.scenario.jobs[index];
            let (name, launch_ms) = (&spec.name, spec.launch_ms);
            let launch_ms = launch_ms.unwrap_or(self.scenario.launch_ms);
            let live = &mut self.live[index];
            if matches!(decision.action, Action::Start { .. } | Action::Stop { .. }) {
                live.ordered_ms = now_ms;
            }
            match &decision.action {
                Action::Start { tasks, .. } => {
                    live.due_ms = Some(now_ms + launch_ms);
                    let shards = tasks
                        .iter()
                        .filter(|task| task.role.kind() == "ps_shard")
                        .count();
                    let outcome = &mut self.jobs[index];
                    outcome.restarts += u64::from(!outcome.sizes.is_empty());
                    let (workers, ps_shards) = (count(tasks.len() - shards), count(shards));
                    outcome.sizes.push((now_ms, workers, ps_shards));
                    let places = tasks.iter().map(|task| (task.node, task.gpus.len()));
                    self.holds.open(index, now_ms, places);
                    self.tell(name, || {
                        format!("start {workers} workers, {ps_shards} shards")
                    });
                }
                Action::Resize { join, why, .. } => {
                    let stop_ms = self.scenario.stop_ms;
                    let due_ms = if join.is_empty() { stop_ms } else { launch_ms };
                    live.due_ms = Some(now_ms + due_ms);
                    let jobs = &self.snapshot.jobs;
                    let job = jobs.iter().find(|job| job.id == decision.job);
                    let job = job.expect("it runs");
                    let (workers, ps_shards) = job.size();
                    self.jobs[index].sizes.push((now_ms, workers, ps_shards));
                    let places = job.tasks.iter().map(|task| (task.node, task.gpus.len()));
                    self.holds.open(index, now_ms, places);
                    self.tell(name, || {
                        format!("continues with {workers} workers, {ps_shards} shards: {why}")
                    });
                }
                Action::Stop { why, .. } => {
                    live.due_ms = Some(now_ms + self.scenario.stop_ms);
                    self.tell(name, || format!("stop: {why}"));
                }
                Action::Release => {
                    self.holds.close(index, now_ms);
                    self.tell(name, || "released".to_owned());
                }
                Action::Up => self.tell(name, || "up".to_owned()),
                Action::Suspend { why } => {
                    live.due_ms = Some(now_ms + self.scenario.suspend_ms);
                    self.tell(name, || format!("suspended: {why}"));
                }
                Action::Continue { why, beside, .. } => {
                    self.unsettle(index);
                    self.hold_again(index, beside.is_some());
                    self.tell(name, || match beside {
                        Some(_) => why.clone(),
                        None => format!("resumed: {why}"),
                    });
                }
                Action::Judge { verdict } => self.tell(name, || verdict.to_string()),
                Action::GiveUp { tasks, why } => {
                    self.tell(name, || format!("gives up {} tasks: {why}", tasks.len()));
                }
                Action::Idle { idle: Some(found) } => self.tell(name, || found.to_string()),
                Action::Idle { idle: None } => self.tell(name, || "active again".to_owned()),
                // The reason of the stop states the cost.
                Action::Displace { .. } | Action::Suspect { .. } => {}
                Action::Hold => self.tell(name, || "held".to_owned()),
                Action::Resume => self.tell(name, || "resumed".to_owned()),
                Action::Cancel => self.tell(name, || "cancelled".to_owned()),
                Action::Wait { waiting } => self.tell(name, || match &waiting.smallest_change {
                    Some(change) => format!("waits: {} (to start: {change})", waiting.why),
                    None => format!("waits: {}", waiting.why),
                }),
            }
        }
    }

    pub(super) fn tell(&mut self, subject: &str, what: impl FnOnce() -> String) {
        if self.keeps_timeline {
            self.timeline.push(TimelineEntry {
                at_ms: self.snapshot.now_ms,
                subject: subject.to_owned(),
                what: what(),
            });
        }
    }

    pub(super) fn outcome(self) -> SimulationOutcome {
        SimulationOutcome {
            jobs: self.jobs,
            timeline: self.timeline,
            makespan_ms: self.snapshot.now_ms,
            rounds: self.snapshot.round,
        }
    }
}
