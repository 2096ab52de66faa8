//! Incidents: changes of nodes, tasks and jobs that the planner did not decide.

use super::ids::{job_id, job_number, node_id};
use super::{SimulatedJob, SimulationEngine, follow};
use crate::scenario::{GpuUse, IncidentKind};
use muster_core::snapshot::{SnapshotJob, SnapshotNode};
use muster_model::job::{Intent, JobState};
use muster_model::task::{Outcome as TaskOutcome, Role, TaskEvent};

impl SimulationEngine<'_> {
    pub(super) fn happen(&mut self, what: &IncidentKind) {
        match *what {
            IncidentKind::NodeLost { node } => self.lose(node),
            IncidentKind::NodeBack { node } => self.node(node, "back", |node| node.up = true),
            IncidentKind::Drain { node } => self.node(node, "drained", |node| node.drained = true),
            IncidentKind::Uncordon { node } => {
                self.node(node, "uncordoned", |node| node.drained = false)
            }
            IncidentKind::Pause { job } => self.intend(job, Intent::Pause),
            IncidentKind::Resume { job } => self.intend(job, Intent::Run),
            IncidentKind::Cancel { job } => self.intend(job, Intent::Cancel),
            IncidentKind::TaskFails { job } => self.fail(job),
            IncidentKind::Uses {
                job,
                busy_percent,
                memory_bytes,
            } => {
                if let Some(uses) = self.uses.get_mut(job) {
                    let busy = f64::from(busy_percent) / 100.0;
                    *uses = GpuUse { busy, memory_bytes };
                    let name = &self.scenario.jobs[job].name;
                    self.tell(name, || {
                        format!("keeps its GPU busy for {busy_percent} % of the time from now on")
                    });
                }
            }
        }
    }

    /// Sets the intent of a job, if it is in the snapshot.
    fn intend(&mut self, number: usize, intent: Intent) {
        let mut jobs = self.snapshot.jobs.iter_mut();
        if let Some(job) = jobs.find(|job| job.id == job_id(number)) {
            job.intent = intent;
        }
    }

    fn node(&mut self, number: usize, what: &str, change: impl Fn(&mut SnapshotNode)) {
        let name = &self.scenario.nodes[number].name;
        self.snapshot
            .nodes
            .iter_mut()
            .filter(|node| node.name == *name)
            .for_each(change);
        self.tell(name, || what.to_owned());
    }

    fn lose(&mut self, number: usize) {
        self.node(number, "lost", |node| node.up = false);
        let id = node_id(number as u128);
        for job in &mut self.snapshot.jobs {
            let checkpoint_steps = self.scenario.jobs[job_number(job.id)].checkpoint_steps;
            // A job that can continue loses no steps. The next round stops another job, which then
            // returns to its checkpoint.
            let goes_on = job.in_place
                && job.tasks.iter().all(|task| {
                    task.node != id
                        || task.state.is_released()
                        || matches!(task.role, Role::Worker { rank } if rank > 0)
                });
            let lost = job
                .tasks
                .iter_mut()
                .chain(&mut job.leaving)
                .filter(|task| task.node == id && !task.state.is_released());
            let mut any = false;
            for task in lost {
                follow(
                    &mut task.state,
                    TaskEvent::Gone {
                        outcome: TaskOutcome::NodeLost,
                    },
                );
                any = true;
            }
            if any && !goes_on {
                roll_back(job, &mut self.live[job_number(job.id)], checkpoint_steps);
            }
        }
    }

    fn fail(&mut self, number: usize) {
        let checkpoint_steps = self.scenario.jobs[number].checkpoint_steps;
        let Some(job) = self
            .snapshot
            .jobs
            .iter_mut()
            .find(|one| one.id == job_id(number))
        else {
            return;
        };
        if job.state != JobState::Running || job.finished.is_some() {
            return;
        }
        if let Some(task) = job
            .tasks
            .first_mut()
            .filter(|task| !task.state.is_released())
        {
            let held = (task.node, task.gpus.clone());
            follow(
                &mut task.state,
                TaskEvent::Gone {
                    outcome: TaskOutcome::exited(1),
                },
            );
            roll_back(job, &mut self.live[job_number(job.id)], checkpoint_steps);
            self.give_back(&[held]);
            self.hurt(job_id(number));
        }
    }
}

/// Drops the steps since the last checkpoint.
fn roll_back(job: &mut SnapshotJob, live: &mut SimulatedJob, checkpoint_steps: u64) {
    let kept = job.progress.step / checkpoint_steps.max(1) * checkpoint_steps.max(1);
    job.progress.step = kept;
    live.steps = kept as f64;
}
