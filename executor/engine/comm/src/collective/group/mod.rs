//! Collectives of a task across views: a lost or new member changes the view, and no task restarts.
//!
//! When a member is lost, the collective of every survivor ends with its rank. Each survivor asks
//! the coordinator for the next view, connects again, and repeats the collective from its unchanged
//! gradients. A survivor that had already completed the collective keeps its sum and sends it to
//! the others, so that all continue with the same bits. Counts of two members differ by at most one
//! collective, because no member completes the next one before all have entered it. [`views`]
//! implements the transition between views.

mod views;

use super::{
    AlgorithmChoice, AllReduceAlgorithm, CollectiveCostModel, all_reduce_arena, barrier, broadcast,
    sums,
};
use crate::fabric::{
    Arena, CollectiveBuffer, Coordinator, Fabric, FabricError, FabricOptions, Flow, GroupView,
    Mesh, NodeSharedMemory, PeerPort, ReceiveOp, ReceiveRange, SendRange, ViewMember,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of views for one collective. Each further view means a lost or new member, or a
/// member that is lost during the transition.
const VIEWS_PER_COLLECTIVE: usize = 64;

/// Result of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduced {
    /// Number of ranks whose gradients are in the sum; the caller divides by the counts that it has
    /// summed.
    pub contributions: usize,
    /// View that completed the sum; [`CollectiveGroup::members_of`] returns its members.
    pub view: u64,
}

/// Location of the last sums. They outlive the view that computed them.
#[derive(Debug)]
enum SumLocation {
    /// In the present view.
    Present,
    /// In the private plane of the arena.
    Arena,
    /// In the planes of an earlier view's node; `groups` is the number of groups in that view.
    Node {
        node: NodeSharedMemory,
        groups: usize,
    },
}

/// A task as a member of a group.
pub struct CollectiveGroup {
    port: Arc<PeerPort>,
    coordinator: Arc<dyn Coordinator>,
    options: FabricOptions,
    between: AlgorithmChoice,
    /// Cost model of the present view, if the choice of the algorithm depends on it.
    model: Option<CollectiveCostModel>,
    arena: Arena,
    fabric: Option<Fabric>,
    completed: u64,
    /// Whether this task still lacks the parameters that other members have.
    fresh: bool,
    last: Reduced,
    /// Range of the present collective, or of the last one.
    range: Range<usize>,
    /// Range of the last collective whose sum this task has.
    summed: Range<usize>,
    sum_location: SumLocation,
    /// New ranks that still lack the parameters.
    joined: Vec<usize>,
    /// Ranges whose sums a slower member may still lack; see [`Self::fence`].
    unfenced: Vec<Range<usize>>,
    /// Members of the present view and of earlier views, until [`Self::forget_views`] is called.
    rosters: BTreeMap<u64, Vec<ViewMember>>,
    /// Error that [`Self::look`] has found, for the next collective: the fabric reports it only
    /// once.
    seen: Option<FabricError>,
}

impl CollectiveGroup {
    /// Reports to the coordinator and waits for the first view with this task. `len` is the number
    /// of floats of gradients. `between` is the algorithm between nodes, or between tasks without
    /// shared memory; it must be the same for all members. `has_values` states that this task has
    /// the parameters for new members. If no member has them, all members initialise in the same
    /// way.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn start(
        port: impl Into<Arc<PeerPort>>,
        coordinator: Arc<dyn Coordinator>,
        len: usize,
        between: AlgorithmChoice,
        has_values: bool,
        options: FabricOptions,
    ) -> Result<Self, FabricError> {
        let mut group = Self {
            port: port.into(),
            coordinator,
            options,
            between,
            model: None,
            arena: Arena::new(len)?,
            fabric: None,
            completed: 0,
            fresh: !has_values,
            last: Reduced {
                contributions: 0,
                view: 0,
            },
            range: 0..0,
            summed: 0..0,
            sum_location: SumLocation::Present,
            joined: Vec::new(),
            unfenced: Vec::new(),
            rosters: BTreeMap::new(),
            seen: None,
        };
        group.next_view(None, true)?;
        Ok(group)
    }

    /// Gradients of this task, to be written between collectives.
    pub fn gradients_mut(&mut self) -> &mut [f32] {
        self.arena.gradients_mut()
    }

    /// Gradients of this task.
    #[must_use]
    pub fn gradients(&self) -> &[f32] {
        self.arena.gradients()
    }

    /// Sums of the last collective. They are valid until this task enters the next collective on
    /// the same range.
    #[must_use]
    pub fn sums(&self) -> &[f32] {
        match &self.sum_location {
            SumLocation::Present => sums(self.fabric(), &self.arena),
            SumLocation::Arena => self.arena.sums(),
            SumLocation::Node { node, groups: 1 } => node.sums(),
            SumLocation::Node { node, .. } => node.totals(),
        }
    }

    /// The present view.
    #[must_use]
    pub fn view(&self) -> &GroupView {
        self.fabric().view()
    }

    /// Rank of this task in the present view.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.fabric().rank()
    }

    /// Members of the view with that number, in order of rank. Available if this task has been in
    /// it since the last call of [`Self::forget_views`].
    #[must_use]
    pub fn members_of(&self, view: u64) -> Option<&[ViewMember]> {
        self.rosters.get(&view).map(Vec::as_slice)
    }

    /// Members whose gradients are in the last sum, in order of rank: the same on all members that
    /// have the sum. The present view can differ between them, because one member may already know
    /// of a later loss and another may not. `None` before the first sum, and if that was before
    /// [`Self::forget_views`].
    #[must_use]
    pub fn of_last_sum(&self) -> Option<&[ViewMember]> {
        self.members_of(self.last.view)
    }

    /// Forgets the members of all views except the present one. Called between steps.
    pub fn forget_views(&mut self) {
        let present = self.view().number;
        self.rosters.retain(|number, _| *number == present);
    }

    /// Number of collectives on the arena that this task has completed; for a new member, the
    /// number of the others.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Sums `range` of the gradients of all members, across as many views as necessary. All members
    /// must call this with the same range.
    ///
    /// # Errors
    /// [`FabricError::NoView`] if there is no further view; errors of this task.
    pub fn all_reduce(&mut self, range: Range<usize>) -> Result<Reduced, FabricError> {
        self.repeat(range.clone(), |group| {
            group.attempt(range.clone())?;
            group.sum_location = SumLocation::Present;
            Ok(())
        })
    }

    /// Like [`Self::all_reduce`], with a sum computed by `attempt`. Its arguments are the links,
    /// the number of the view, and a plane of sums with the length of the arena. It writes the sum
    /// to `range` of this plane. It must not write before all members have begun, nor return before
    /// its sum is complete. It is called again in another view after a loss.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_reduce_by(
        &mut self,
        range: Range<usize>,
        mut attempt: impl FnMut(&mut Mesh, u64, &mut [f32]) -> Result<(), FabricError>,
    ) -> Result<Reduced, FabricError> {
        self.repeat(range, |group| {
            let fabric = group.fabric.as_mut().expect("in a view since `start`");
            let view = fabric.view().number;
            let (_, output) = group.arena.sides();
            attempt(fabric.mesh(), view, output)?;
            group.sum_location = SumLocation::Arena;
            Ok(())
        })
    }

    /// Repeats a collective until it is complete, across as many views as necessary.
    fn repeat(
        &mut self,
        range: Range<usize>,
        mut attempt: impl FnMut(&mut Self) -> Result<(), FabricError>,
    ) -> Result<Reduced, FabricError> {
        let wanted = self.completed + 1;
        self.range = range;
        for _ in 0..VIEWS_PER_COLLECTIVE {
            let attempted = match self.seen.take() {
                Some(error) => Err(error),
                None => attempt(self),
            };
            match attempted {
                Ok(()) => {
                    self.completed = wanted;
                    self.summed = self.range.clone();
                    self.last = Reduced {
                        contributions: self.fabric().size(),
                        view: self.view().number,
                    };
                }
                Err(error) => self.next_view(Some(error), false)?,
            }
            if self.completed == wanted {
                return Ok(self.last);
            }
        }
        Err(FabricError::NoView("its members keep dying".to_owned()))
    }

    /// Whether all members of the present view are still there, for a task that waits for them
    /// elsewhere. After `false` the caller must enter a collective.
    pub fn look(&mut self) -> bool {
        if self.seen.is_none() {
            let fabric = self.fabric.as_mut().expect("in a view since `start`");
            self.seen = fabric.mesh().look().err();
        }
        self.seen.is_none()
    }

    /// Makes the next collective begin with a new view. Members that wait for this task elsewhere
    /// and see its heartbeat then detect by [`Self::look`] that it does not come.
    pub fn withdraw(&mut self) {
        self.seen.get_or_insert(FabricError::Regroup);
    }

    /// Whether all members share one memory, so that rank 0 can [`tell`](Self::tell) the others a
    /// result.
    #[must_use]
    pub fn is_of_one_node(&self) -> bool {
        let fabric = self.fabric();
        let shares = fabric.node().map_or(0, |node| node.members().len());
        shares == fabric.size()
    }

    /// Rank 0 of members that share one memory: computes a result once after each collective, which
    /// the others receive by [`hear`](Self::hear). It has the length of the sums and a plane of its
    /// own.
    ///
    /// # Panics
    /// On another rank, or if the members share no memory.
    pub fn tell(&mut self, say: impl FnOnce(&mut [f32])) {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        let (mesh, _, node, _) = fabric.parts();
        node.expect("they share memory").tell(mesh, say);
    }

    /// Waits for the result of rank 0's [`tell`](Self::tell) after the last collective while
    /// `patience` returns `true`; `None` if it ends first.
    ///
    /// # Errors
    /// [`FabricError`]: a member is lost. This is not a collective, so it is not repeated in
    /// another view.
    ///
    /// # Panics
    /// If the members share no memory.
    pub fn hear(&mut self, patience: &dyn Fn() -> bool) -> Result<Option<&[f32]>, FabricError> {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        let (mesh, _, node, options) = fabric.parts();
        let node = node.expect("they share memory");
        let heard = node.hear(mesh, options, patience)?;
        Ok(heard.then(|| node.totals()))
    }

    /// Exchanges `range` of the gradients with a member that calls this with this task's rank;
    /// between two collectives. `None` if a member was lost meanwhile: then neither has the other's
    /// values, and the present view is another one.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn swap(
        &mut self,
        rank: usize,
        range: Range<usize>,
    ) -> Result<Option<&[f32]>, FabricError> {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        let flow = Flow {
            to: Some(rank),
            sends: vec![SendRange {
                range: range.clone(),
                from: CollectiveBuffer::Input,
                after: None,
            }],
            from: Some(rank),
            takes: vec![ReceiveRange {
                range: range.clone(),
                how: ReceiveOp::Store,
            }],
            in_step: false,
            lends: false,
        };
        let (input, output) = self.arena.sides();
        match fabric.mesh().run(input, output, &flow) {
            Ok(()) => Ok(Some(&self.arena.sums()[range])),
            Err(error) => {
                self.next_view(Some(error), false)?;
                Ok(None)
            }
        }
    }

    /// Sends `values` from one member to another; both call this between two collectives. `false`
    /// if a member was lost meanwhile: then the present view is another one.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn carry(
        &mut self,
        (from, to): (usize, usize),
        values: &mut [f32],
    ) -> Result<bool, FabricError> {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        let carried = if fabric.rank() == from {
            fabric.mesh().run(values, &mut [], &whole(to, values.len()))
        } else {
            let flow = Flow {
                from: Some(from),
                takes: vec![ReceiveRange {
                    range: 0..values.len(),
                    how: ReceiveOp::Store,
                }],
                ..Flow::default()
            };
            fabric.mesh().run(&[], values, &flow)
        };
        match carried {
            Ok(()) => Ok(true),
            Err(error) => {
                self.next_view(Some(error), false)?;
                Ok(false)
            }
        }
    }

    /// Admits waiting tasks. Every member must call this between two steps. Returns `true` if there
    /// are new members: then every member calls [`Self::welcome`], the new members first of all.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn between_steps(&mut self) -> Result<bool, FabricError> {
        if self.joined.is_empty() && self.coordinator.someone_waits() {
            self.next_view(Some(FabricError::Regroup), true)?;
        }
        Ok(self.has_newcomers())
    }

    /// Like [`Self::between_steps`], for members that have agreed by other means on the step after
    /// which the next view begins.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn regroup(&mut self) -> Result<bool, FabricError> {
        self.next_view(Some(FabricError::Regroup), true)?;
        Ok(self.has_newcomers())
    }

    /// Whether a member, possibly this task, still lacks the parameters.
    #[must_use]
    pub fn has_newcomers(&self) -> bool {
        !self.joined.is_empty()
    }

    /// Whether the last collective was completed in the present view. If it was not, or the sum
    /// came from another member after a loss, the members do not have the same knowledge. Then no
    /// member may [`carry`](Self::carry) or [`swap`](Self::swap) before the next collective,
    /// because another member would take the data for a part of it.
    #[must_use]
    pub fn is_unbroken(&self) -> bool {
        self.last.view == self.view().number
    }

    /// Sends the `values` of the other members to the new members: parameters, optimizer state and
    /// other data that a step needs. Returns whether the view in which all members received them is
    /// the present one. After a loss at that moment, members disagree as in [`Self::is_unbroken`].
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn welcome(&mut self, values: &mut [&mut [f32]]) -> Result<bool, FabricError> {
        let mut all_there = true;
        while self.has_newcomers() {
            let size = self.fabric().size();
            let root = (0..size).find(|rank| !self.joined.contains(rank));
            let root = root.expect("newcomers are new only to others");
            let mesh = self
                .fabric
                .as_mut()
                .expect("in a view since `start`")
                .mesh();
            let given = values
                .iter_mut()
                .try_for_each(|part| broadcast(mesh, root, part));
            // No member may begin the next step while another may still need the root for this.
            let all_have = match given {
                Ok(()) => {
                    self.fresh = false;
                    barrier(mesh)
                }
                Err(error) => Err(error),
            };
            all_there = all_have.is_ok();
            match all_have {
                Ok(()) => self.joined.clear(),
                Err(error) => self.next_view(Some(error), true)?,
            }
        }
        Ok(all_there)
    }

    fn attempt(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.fence(&range)?;
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        let between = match (self.between, &self.model) {
            (AlgorithmChoice::Named(algorithm), _) => algorithm,
            (AlgorithmChoice::Fastest, None) => AllReduceAlgorithm::Ring,
            (AlgorithmChoice::Fastest, Some(model)) => {
                model.choose_between(fabric.groups().len(), range.len())
            }
        };
        all_reduce_arena(fabric, &mut self.arena, range, between)
    }

    /// Barrier before sums are overwritten that a slower member may still need. On one node the
    /// chunks already wait until all members have entered; links do not. At most once per step,
    /// because the ranges of a step do not overlap.
    fn fence(&mut self, range: &Range<usize>) -> Result<(), FabricError> {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        if fabric.groups().len() == 1 {
            return Ok(());
        }
        if self
            .unfenced
            .iter()
            .any(|old| old.start < range.end && range.start < old.end)
        {
            barrier(fabric.mesh())?;
            self.unfenced.clear();
        }
        self.unfenced.push(range.clone());
        Ok(())
    }

    fn fabric(&self) -> &Fabric {
        self.fabric.as_ref().expect("in a view since `start`")
    }
}

fn whole(to: usize, len: usize) -> Flow {
    Flow {
        to: Some(to),
        sends: vec![SendRange {
            range: 0..len,
            from: CollectiveBuffer::Input,
            after: None,
        }],
        ..Flow::default()
    }
}
