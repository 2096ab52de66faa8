//! Changes of the members between two steps: joining workers get the state of the others, and
//! batches are cut again.

use super::AllReduce;
use super::membership_role::MembershipRole;
use crate::worker::error::WorkerError;
use crate::worker::head::{count_from_floats, count_to_floats};
use crate::worker::model::WorkerModel;
use muster_comm::fabric::FabricError;
use muster_comm::log;
use muster_compute::clock;
use muster_model::assignment::TaskReport;
use muster_model::id::TaskId;

impl AllReduce<'_> {
    /// Transfers the state of training to the joining workers, possibly to this one.
    pub(super) fn welcome(&mut self, model: &mut WorkerModel) -> Result<(), FabricError> {
        let mut counts = [0.0; 13];
        counts[..4].copy_from_slice(&count_to_floats(self.step));
        counts[4..8].copy_from_slice(&count_to_floats(self.replica.updates));
        counts[8..12].copy_from_slice(&count_to_floats(self.held));
        counts[12] = f32::from(u8::from(self.dealt.is_some()));
        let mut pace = self.pace.map(|pace| pace.floats(&self.noise));
        let mut values: Vec<&mut [f32]> = vec![&mut counts, &mut model.parameters];
        values.extend(pace.as_deref_mut());
        values.extend(self.replica.state.iter_mut().map(Vec::as_mut_slice));
        if let Some(averaging) = &mut self.averaging {
            values.extend([&mut averaging.centre[..], &mut averaging.velocity[..]]);
        }
        let all_there = self.group.welcome(&mut values)?;
        if let (Some(own), Some(theirs)) = (&mut self.pace, pace) {
            own.resume(&theirs, &mut self.noise);
        }
        if let Some(averaging) = self.averaging.as_ref().filter(|a| a.keeps_centre()) {
            model.parameters.copy_from_slice(&averaging.centre);
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, deals] = counts;
        self.step = count_from_floats([a, b, c, d]);
        self.replica.updates = count_from_floats([e, f, g, h]);
        self.held = count_from_floats([i, j, k, l]);
        if deals > 0.0 && all_there {
            self.deal()
        } else if deals > 0.0 {
            log::line("a worker died before a checkpoint's residuals were dealt: they are lost");
            self.dealt = None;
            Ok(())
        } else {
            Ok(())
        }
    }

    /// Between two steps: applies a new task set if all workers have agreed on it.
    pub(super) fn between(
        &mut self,
        model: &mut WorkerModel,
        regroup: bool,
    ) -> Result<(), FabricError> {
        self.note_the_dead();
        let began = clock::now();
        if regroup {
            if self.group.regroup()? {
                self.welcome(model)?;
            }
            if let MembershipRole::Chief(_) = self.role {
                self.report(&TaskReport::Resized {
                    step: self.step,
                    workers: self.group.view().members.len() as u32,
                    ps_shards: 0,
                    pause_ms: began.elapsed().as_millis() as u64,
                });
            }
        }
        Ok(())
    }

    /// Cuts batches among the present members; all have just entered the same view.
    pub(super) fn recut(&mut self, model: &mut WorkerModel) -> Result<(), WorkerError> {
        self.group.forget_views();
        let members = &self.group.view().members;
        let workers: Vec<TaskId> = members.iter().map(|member| member.id).collect();
        self.cut_among(model, workers)
    }

    /// Like [`Self::recut`] after a step. Cuts among the workers whose gradients are in its sum,
    /// unless all have entered another view since. One worker may know the present members before
    /// another. Two workers with different cuts of a step would compute different means of its sum.
    pub(super) fn recut_after(
        &mut self,
        model: &mut WorkerModel,
        regrouped: bool,
    ) -> Result<(), WorkerError> {
        let summed = self.group.of_last_sum().filter(|_| !regrouped);
        let Some(members) = summed else {
            return self.recut(model);
        };
        let workers: Vec<TaskId> = members.iter().map(|member| member.id).collect();
        self.group.forget_views();
        self.cut_among(model, workers)
    }

    /// Cuts batches of the present size among `workers`, in order of rank; this worker is one of
    /// them.
    pub(super) fn cut_among(
        &mut self,
        model: &mut WorkerModel,
        workers: Vec<TaskId>,
    ) -> Result<(), WorkerError> {
        let chosen = self.pace.and_then(|pace| pace.chosen());
        let is_same_size = chosen.is_none_or(|examples| examples == self.cut.batch);
        if workers == self.cut.workers && is_same_size {
            return Ok(());
        }
        let rank = workers.iter().position(|id| *id == self.me);
        let rank = rank.expect("a worker is in its own view");
        model.recut((rank, workers.len()), chosen)?;
        self.cut.batch = model.batches.update();
        log::line(format_args!(
            "worker {rank} of {} from step {}, batch {}, {} parameters {:016x}",
            workers.len(),
            self.step,
            self.cut.batch,
            model.parameters.len(),
            self.fingerprint(model)
        ));
        self.cut.workers = workers;
        Ok(())
    }

    /// Coordinator: reports workers that left without a goodbye.
    pub(super) fn note_the_dead(&self) {
        if let MembershipRole::Chief(chair) = &self.role {
            for task_id in chair.take_dead() {
                log::line(format_args!("lost task {task_id} at step {}", self.step));
                let step = self.step;
                self.report(&TaskReport::PeerGone { task_id, step });
            }
        }
    }

    /// Returns a hash of all that must have the same bits on every worker, for comparison in logs.
    pub(super) fn fingerprint(&self, model: &WorkerModel) -> u64 {
        let pace = self.pace.map(|pace| pace.floats(&self.noise));
        let planes = std::iter::once(&model.parameters).chain(&self.replica.state);
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for value in planes.chain(&pace).flatten() {
            hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash
    }
}
