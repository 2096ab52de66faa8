//! Agreement of all workers on where gradients are summed from the next step on; forms a
//! communicator for sums on GPUs.

use super::super::AllReduce;
use super::super::membership_role::MembershipRole;
use super::offer::{NcclOffer, OFFER};
use super::{SumDevice, agree, patience};
use crate::worker::error::WorkerError;
use crate::worker::head::{HEAD, StepMetadata};
use crate::worker::model::WorkerModel;
use muster_comm::collective::Reduced;
use muster_comm::fabric::{FabricError, ViewMember};
use muster_comm::log;
use muster_compute::cuda::NcclId;
use muster_model::error_chain::chain;

impl AllReduce<'_> {
    /// Agrees on the place of the sums; all workers call it before the same step. Cuts batches
    /// among the members that agreed.
    ///
    /// # Errors
    /// [`WorkerError::Drifted`] on all workers if they hold different parameters;
    /// [`WorkerError::Peers`].
    pub(super) fn meet(&mut self, model: &mut WorkerModel) -> Result<(), WorkerError> {
        while self.meeting() == SumDevice::Open {
            model.come_down(&mut self.replica.state)?;
            self.group.forget_views();
            let offer = NcclOffer {
                id: self.new_id(),
                fingerprint: self.fingerprint(model),
            };
            offer.write(self.group.gradients_mut());
            let reduced = self.group.all_reduce(0..OFFER)?;
            let Some(offer) = NcclOffer::read(self.group.sums(), reduced.contributions) else {
                return Err(WorkerError::Drifted { step: self.step });
            };
            let members = self.group.members_of(reduced.view);
            let members = members.expect("an offer is of a view that this worker was in");
            let members = members.to_vec();
            self.cut_among(model, members.iter().map(|member| member.id).collect())?;
            let id = match agree::why_not(&members, self.cut.batch) {
                Some(why) => Err(why),
                None => offer
                    .id
                    .ok_or_else(|| "worker 0 could not make an id for NCCL".to_owned()),
            };
            match id {
                Ok(id) => self.form(model, id, &members, reduced.view)?,
                Err(why) => self.stay_on_host(model, &why)?,
            }
        }
        Ok(())
    }

    /// Returns a new NCCL id on the coordinator.
    fn new_id(&self) -> Option<NcclId> {
        let (MembershipRole::Chief(_), Some(gpus)) = (&self.role, &self.gpus) else {
            return None;
        };
        let id = gpus.means.as_ref().ok()?.id();
        id.inspect_err(|error| log::line(error)).ok()
    }

    fn form(
        &mut self,
        model: &mut WorkerModel,
        id: NcclId,
        members: &[ViewMember],
        view: u64,
    ) -> Result<(), WorkerError> {
        let place = members.iter().position(|member| member.id == self.me);
        let place = (
            place.expect("a worker is among those whose offer it was in"),
            members.len(),
        );
        let formed = self.join_ranks(model, id, place);
        if let Err(why) = &formed {
            log::line(format_args!("no sums on the GPUs: {why}"));
            self.group.withdraw();
        }
        let head = StepMetadata {
            summed: f32::from(u8::from(formed.is_ok())),
            ..StepMetadata::default()
        };
        let (head, reduced) = self.vote(head)?;
        if head.is_unanimous(reduced.contributions) && reduced.view == view {
            log::line(format_args!(
                "gradients of {} workers meet on their GPUs",
                members.len()
            ));
            self.set_meeting(SumDevice::Gpus { view });
            return Ok(());
        }
        model.part()?;
        // After a death the remaining workers exchange offers again.
        if self.are_as_before(reduced) {
            self.stay_on_host(model, "not all workers could form a communicator")
        } else {
            Ok(())
        }
    }

    fn join_ranks(
        &mut self,
        model: &mut WorkerModel,
        id: NcclId,
        place: (usize, usize),
    ) -> Result<(), String> {
        let gpus = self.gpus.as_ref().expect("a job that asks for it");
        let means = gpus.means.clone()?;
        let (updates, state) = (self.replica.updates, &self.replica.state);
        let rule = (self.replica.optimizer(), self.replica.clip_norm());
        model
            .go_up(rule, updates, state)
            .map_err(|error| chain(&error).to_string())?;
        let resident = model.resident().expect("just gone up");
        resident
            .join(&means, id, place, &mut patience(&mut self.group))
            .map_err(|error| error.to_string())
    }

    /// Sums gradients on the host until the next agreed change of members.
    pub(super) fn stay_on_host(
        &mut self,
        model: &mut WorkerModel,
        why: &str,
    ) -> Result<(), WorkerError> {
        log::line(format_args!("gradients meet on the host, because {why}"));
        model.go_down()?;
        self.set_meeting(SumDevice::Host);
        Ok(())
    }

    /// Whether the members of a vote are those that batches are cut among, so that none has died.
    pub(super) fn are_as_before(&self, reduced: Reduced) -> bool {
        let members = self.group.members_of(reduced.view);
        let members = members.expect("a vote is of a view that this worker was in");
        members
            .iter()
            .map(|member| member.id)
            .eq(self.cut.workers.iter().copied())
    }

    /// Sums the heads of all workers. Returns the sum with its view.
    pub(super) fn vote(
        &mut self,
        head: StepMetadata,
    ) -> Result<(StepMetadata, Reduced), FabricError> {
        head.write(self.group.gradients_mut());
        let reduced = self.group.all_reduce(0..HEAD)?;
        Ok((StepMetadata::read(self.group.sums()), reduced))
    }
}
