//! Transition to the next view: the remaining members connect again, and a member that has
//! completed the last collective sends its sum to the members that have not.

use super::super::{AlgorithmChoice, CollectiveCostModel};
use super::{CollectiveGroup, Reduced, SumLocation, whole};
use crate::fabric::{
    CollectiveBuffer, Fabric, FabricError, Flow, GroupView, MemberReport, ReceiveOp, ReceiveRange,
    SendRange,
};
use muster_model::id::TaskId;
use std::ops::Range;

impl CollectiveGroup {
    /// Leaves the present view because of `why` and enters the next view whose members all connect.
    pub(super) fn next_view(
        &mut self,
        mut why: Option<FabricError>,
        between_steps: bool,
    ) -> Result<(), FabricError> {
        let mut lost = Vec::new();
        loop {
            let error = why.take().unwrap_or(FabricError::Regroup);
            let mut number = 0;
            if let Some(mut fabric) = self.fabric.take() {
                number = fabric.view().number;
                lost.extend(lost_member(&error, fabric.view()));
                self.hold(&mut fabric);
                fabric.abandon(&error);
            }
            own_fault(error)?;
            let mut me = self.port.member();
            me.completed = (!self.fresh).then_some(self.completed);
            let view = self.coordinator.next_view(MemberReport {
                member: me,
                view: number,
                lost: std::mem::take(&mut lost),
                between_steps,
            });
            let view = view.map_err(FabricError::NoView)?;
            match self.enter(&view) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    if self.fabric.is_none() {
                        lost.extend(lost_member(&error, &view));
                    }
                    why = Some(error);
                }
            }
        }
    }

    /// Keeps the last sums beyond the end of the view.
    fn hold(&mut self, fabric: &mut Fabric) {
        if matches!(self.sum_location, SumLocation::Present) {
            let groups = fabric.groups().len();
            self.sum_location = match fabric.take_node() {
                Some(node) => SumLocation::Node { node, groups },
                None => SumLocation::Arena,
            };
        }
    }

    fn enter(&mut self, view: &GroupView) -> Result<(), FabricError> {
        let completed = view.members.iter().map(|member| member.completed);
        let newcomers: Vec<usize> = (0..)
            .zip(completed.clone())
            .filter_map(|(rank, completed)| completed.is_none().then_some(rank))
            .collect();
        let fabric = Fabric::join(&self.port, view.clone(), &self.options)?;
        let fabric = self.fabric.insert(fabric);
        fabric.share(&mut self.arena)?;
        self.model = None;
        if self.between == AlgorithmChoice::Fastest && fabric.groups().len() > 1 {
            let (mesh, groups, ..) = fabric.parts();
            self.model = Some(CollectiveCostModel::probe(mesh, groups)?);
        }
        self.unfenced.clear();
        self.rosters.insert(view.number, view.members.clone());
        match completed.flatten().max() {
            Some(top) => {
                self.joined = newcomers;
                self.catch_up(view, top)
            }
            None if self.has_newcomers() => Err(FabricError::NoView(
                "all workers with the parameters are lost".to_owned(),
            )),
            None => {
                // No member has parameters yet: all initialise in the same way.
                self.fresh = false;
                Ok(())
            }
        }
    }

    /// The first member that has completed the last collective sends its sum to the members that
    /// have not.
    fn catch_up(&mut self, view: &GroupView, top: u64) -> Result<(), FabricError> {
        let completed = view.members.iter().map(|member| member.completed);
        let source = completed.clone().position(|step| step == Some(top));
        let source = source.expect("a member has completed the most");
        let behind = completed
            .enumerate()
            .filter(|(_, step)| step.is_some_and(|step| step < top));
        let rank = self.rank();
        for (laggard, _) in behind {
            if rank == source {
                let flow = Flow {
                    to: Some(laggard),
                    sends: vec![SendRange {
                        // The source may already be in the next collective with another range.
                        range: self.summed.clone(),
                        from: CollectiveBuffer::Input,
                        after: None,
                    }],
                    ..Flow::default()
                };
                let mut fabric = self.fabric.take().expect("just joined");
                let header = [self.last.contributions as f32, self.last.view as f32];
                let sent = fabric
                    .mesh()
                    .run(&header, &mut [], &whole(laggard, 2))
                    .and_then(|()| fabric.mesh().run(self.sums(), &mut [], &flow));
                self.fabric = Some(fabric);
                sent?;
            } else if rank == laggard {
                let fabric = self.fabric.as_mut().expect("just joined");
                let mut header = [0.0; 2];
                fabric
                    .mesh()
                    .run(&[], &mut header, &receipt(source, 0..2))?;
                let (_, sums) = self.arena.sides();
                let flow = receipt(source, self.range.clone());
                fabric.mesh().run(&[], sums, &flow)?;
                self.summed = self.range.clone();
                self.sum_location = SumLocation::Arena;
                self.last = Reduced {
                    contributions: header[0] as usize,
                    view: header[1] as u64,
                };
            }
        }
        self.completed = top;
        Ok(())
    }
}

fn receipt(source: usize, range: Range<usize>) -> Flow {
    Flow {
        from: Some(source),
        takes: vec![ReceiveRange {
            range,
            how: ReceiveOp::Store,
        }],
        ..Flow::default()
    }
}

/// Id of the member that was lost, if any.
fn lost_member(error: &FabricError, view: &GroupView) -> Option<TaskId> {
    match error {
        FabricError::Lost { rank } => view.members.get(*rank).map(|member| member.id),
        _ => None,
    }
}

/// Lost members and changes of the view are expected; any other error is this task's own and ends
/// it.
fn own_fault(error: FabricError) -> Result<(), FabricError> {
    match error {
        FabricError::Lost { .. } | FabricError::Regroup => Ok(()),
        error => Err(error),
    }
}
