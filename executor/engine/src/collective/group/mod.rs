//! A task among its peers from view to view: a death or a newcomer changes the view, nobody restarts.
//!
//! When a member dies, every survivor's collective ends with its rank; each asks the coordinator for the next view, connects
//! anew, and repeats the collective from its gradients, which nothing has touched. A survivor that had completed it before it
//! heard of the death keeps its sum, and hands it to those that had not: all continue with the same bits. Between two members'
//! counts there is at most one collective, as nobody completes the next before everyone has entered it. [`views`] is how one view follows another.

mod views;

use super::{Algorithm, Choice, Model, all_reduce_arena, barrier, broadcast, sums};
use crate::fabric::{
    Arena, Coordinator, Fabric, FabricError, Flow, How, Member, Mesh, Node, Options, Piece, Port,
    Side, Take, View,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Views tried for one collective: each means a death or a newcomer, or a member that dies on the way into the next one.
const VIEWS_PER_COLLECTIVE: usize = 64;

/// What became of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduced {
    /// Ranks whose gradients are in the sum; the caller divides by what they have counted.
    pub contributions: usize,
    /// The view that completed it; [`Group::members_of`] tells whose they are.
    pub view: u64,
}

/// Where the last sums lie. They outlive the view that made them.
#[derive(Debug)]
enum Held {
    /// With the present view.
    Present,
    /// In the private plane of the arena.
    Arena,
    /// In the planes of an earlier view's node, which had so many groups.
    Node { node: Node, groups: usize },
}

/// A member.
pub struct Group {
    port: Arc<Port>,
    coordinator: Arc<dyn Coordinator>,
    options: Options,
    between: Choice,
    /// Of the present view, where the choice depends on it.
    model: Option<Model>,
    arena: Arena,
    fabric: Option<Fabric>,
    completed: u64,
    /// Not welcomed yet: others have parameters, this task has none.
    fresh: bool,
    last: Reduced,
    /// Of the collective under way, or of the last one.
    range: Range<usize>,
    /// Of the last one that this task has the sum of.
    summed: Range<usize>,
    held: Held,
    /// Ranks that are not welcomed yet.
    joined: Vec<usize>,
    /// Ranges whose sums a slower member may still lack; see [`Self::fence`].
    unfenced: Vec<Range<usize>>,
    /// Of the present view and those before it, back to what the caller has forgotten.
    rosters: BTreeMap<u64, Vec<Member>>,
    /// What [`Self::look`] has seen, for the next collective to act on: it is told once only.
    seen: Option<FabricError>,
}

impl Group {
    /// Reports and waits for the first view with this task in it. `len` floats of gradients; `between` is the algorithm between
    /// nodes, or between tasks that share no memory; all members give the same. `has_values`: this task can welcome the others;
    /// newcomers cannot, and when nobody can, all begin alike.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn start(
        port: impl Into<Arc<Port>>,
        coordinator: Arc<dyn Coordinator>,
        len: usize,
        between: Choice,
        has_values: bool,
        options: Options,
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
            held: Held::Present,
            joined: Vec::new(),
            unfenced: Vec::new(),
            rosters: BTreeMap::new(),
            seen: None,
        };
        group.next_view(None, true)?;
        Ok(group)
    }

    /// This task's gradients, to be written between collectives.
    pub fn gradients_mut(&mut self) -> &mut [f32] {
        self.arena.gradients_mut()
    }

    /// The same, to be read.
    #[must_use]
    pub fn gradients(&self) -> &[f32] {
        self.arena.gradients()
    }

    /// The sums, where the last collective has left them; they stay until this task enters the next one on the same range.
    #[must_use]
    pub fn sums(&self) -> &[f32] {
        match &self.held {
            Held::Present => sums(self.fabric(), &self.arena),
            Held::Arena => self.arena.sums(),
            Held::Node { node, groups: 1 } => node.sums(),
            Held::Node { node, .. } => node.totals(),
        }
    }

    /// The present view.
    #[must_use]
    pub fn view(&self) -> &View {
        self.fabric().view()
    }

    /// This task's place in it.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.fabric().rank()
    }

    /// Members of the view of that number, in order of rank, if this task was in it since it last called [`Self::forget_views`].
    #[must_use]
    pub fn members_of(&self, view: u64) -> Option<&[Member]> {
        self.rosters.get(&view).map(Vec::as_slice)
    }

    /// Whose gradients are in the last sum, in order of rank: the same on all who have it. Of a death after it one of them may know already, and
    /// be in another view, and another one not yet. `None` before the first, and when that was before [`Self::forget_views`].
    #[must_use]
    pub fn of_last_sum(&self) -> Option<&[Member]> {
        self.members_of(self.last.view)
    }

    /// Forgets the members of every view but the present one: called between steps.
    pub fn forget_views(&mut self) {
        let present = self.view().number;
        self.rosters.retain(|number, _| *number == present);
    }

    /// Collectives on the arena that this task has completed or, as a newcomer, was told of.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Sums `range` of all members' gradients; in however many views it takes. All members call this with the same range.
    ///
    /// # Errors
    /// [`FabricError::NoView`] when the coordinator gives up; errors of this task's own.
    pub fn all_reduce(&mut self, range: Range<usize>) -> Result<Reduced, FabricError> {
        self.repeat(range.clone(), |group| {
            group.attempt(range.clone())?;
            group.held = Held::Present;
            Ok(())
        })
    }

    /// As [`Self::all_reduce`], by `attempt`: it is given the links, the view's number and a plane of sums as long as the arena, of which it
    /// makes `range` the sum. It must not write there before everyone has begun, nor end before its sum is complete; it is called
    /// again in another view after a death.
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
            group.held = Held::Arena;
            Ok(())
        })
    }

    /// Attempts a collective until it is complete, in however many views it takes.
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

    /// Whether the members of the present view are all there, for a task that waits for them elsewhere. When it is `false` a collective is next.
    pub fn look(&mut self) -> bool {
        if self.seen.is_none() {
            let fabric = self.fabric.as_mut().expect("in a view since `start`");
            self.seen = fabric.mesh().look().err();
        }
        self.seen.is_none()
    }

    /// Lets the next collective take place in another view of whoever is there, so that members who wait for this task elsewhere, and see that it
    /// lives, hear by [`Self::look`] that it does not come.
    pub fn withdraw(&mut self) {
        self.seen.get_or_insert(FabricError::Regroup);
    }

    /// Whether all members share one memory, so that one may [tell](Self::tell) the others.
    #[must_use]
    pub fn is_of_one_node(&self) -> bool {
        let fabric = self.fabric();
        let shares = fabric.node().map_or(0, |node| node.members().len());
        shares == fabric.size()
    }

    /// Rank 0 of members that share one memory: makes, once after each collective, what the others [hear](Self::hear); as long as the sums, and
    /// elsewhere.
    ///
    /// # Panics
    /// Of another rank, or where they share none.
    pub fn tell(&mut self, say: impl FnOnce(&mut [f32])) {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        let (mesh, _, node, _) = fabric.parts();
        node.expect("they share memory").tell(mesh, say);
    }

    /// Waits for what rank 0 [tells](Self::tell) after the last collective, as long as there is patience; `None` when that ends first.
    ///
    /// # Errors
    /// [`FabricError`]: a member is lost. It is no collective, so there is none in another view.
    ///
    /// # Panics
    /// Where they share no memory.
    pub fn hear(&mut self, patience: &dyn Fn() -> bool) -> Result<Option<&[f32]>, FabricError> {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        let (mesh, _, node, options) = fabric.parts();
        let node = node.expect("they share memory");
        let heard = node.hear(mesh, options, patience)?;
        Ok(heard.then(|| node.totals()))
    }

    /// Gives `range` of this task's gradients to a member that calls this likewise, and takes its own; between two collectives.
    /// `None` when a death has come between: then neither has the other's, and the present view is another one.
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
            sends: vec![Piece {
                range: range.clone(),
                from: Side::Input,
                after: None,
            }],
            from: Some(rank),
            takes: vec![Take {
                range: range.clone(),
                how: How::Store,
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

    /// Brings `values` from one member to another; between two collectives, called likewise by these two. `false` when a death has come
    /// between: then the present view is another one.
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
                takes: vec![Take {
                    range: 0..values.len(),
                    how: How::Store,
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

    /// Called by every member between two steps. Lets in who waits. `true` when there are newcomers: then every member, the
    /// newcomers first thing, calls [`Self::welcome`].
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn between_steps(&mut self) -> Result<bool, FabricError> {
        if self.joined.is_empty() && self.coordinator.someone_waits() {
            self.next_view(Some(FabricError::Regroup), true)?;
        }
        Ok(self.has_newcomers())
    }

    /// As [`Self::between_steps`], when all members have agreed by other means on the step after which the next view is due.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn regroup(&mut self) -> Result<bool, FabricError> {
        self.next_view(Some(FabricError::Regroup), true)?;
        Ok(self.has_newcomers())
    }

    /// Whether somebody, perhaps this task, waits to be welcomed.
    #[must_use]
    pub fn has_newcomers(&self) -> bool {
        !self.joined.is_empty()
    }

    /// Whether the last collective was completed in the present view. Where it was not, or the sum came from another member after a death,
    /// members disagree on what they know, and nobody may [`Self::carry`] or [`Self::swap`] before the next one: another would take it for
    /// a part of that.
    #[must_use]
    pub fn is_unbroken(&self) -> bool {
        self.last.view == self.view().number
    }

    /// Gives the newcomers everyone else's `values`, all parts of them: parameters, optimizer state, whatever a step needs. Whether the
    /// view in which all had them is the present one; where a death came right then, members disagree as in [`Self::is_unbroken`].
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
            // Nobody goes on to the next step while another may still need the root for this.
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
            (Choice::Named(algorithm), _) => algorithm,
            (Choice::Fastest, None) => Algorithm::Ring,
            (Choice::Fastest, Some(model)) => {
                model.choose_between(fabric.groups().len(), range.len())
            }
        };
        all_reduce_arena(fabric, &mut self.arena, range, between)
    }

    /// Waits for everyone before sums are overwritten that a slower member may still have to be given. On one node the chunks
    /// themselves wait for everyone to have entered; links do not. Once a step, as a step's ranges are apart.
    fn fence(&mut self, range: &Range<usize>) -> Result<(), FabricError> {
        let fabric = self.fabric.as_mut().expect("in a view since `start`");
        if fabric.groups().len() == 1 {
            return Ok(());
        }
        let meets = |old: &Range<usize>| old.start < range.end && range.start < old.end;
        if self.unfenced.iter().any(meets) {
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
        sends: vec![Piece {
            range: 0..len,
            from: Side::Input,
            after: None,
        }],
        ..Flow::default()
    }
}
