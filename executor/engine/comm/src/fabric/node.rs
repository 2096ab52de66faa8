//! Shared memory of the tasks of one node in one view: the gradients of each task, a plane of sums,
//! and a page of counters.
//!
//! No data is sent: the sum of a chunk is computed from the mapped gradients of all tasks and
//! written once, into the plane that all of them read. Tasks claim chunks from a counter, so a task
//! that the kernel does not schedule delays one chunk and not its whole share. The task that adds a
//! chunk does not affect the bits, because the order of the sum is the order of ranks.
//!
//! Layout of the page by byte: chunks claimed since the view began (u64) at 0, completed chunks at
//! 64, sums released by the leader at 128. From 256 on, 128 bytes per member: number of entered
//! collectives (u64), and 64 bytes later the wake-up flag (u32).

use super::arena::Arena;
use super::control::ControlMessage;
use super::mesh::Mesh;
use super::{FabricError, FabricOptions};
use crate::memory::SharedMapping;
use muster_compute::clock;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Length of the page in bytes; the planes follow it.
const PAGE: usize = 64 << 10;

/// Maximum number of tasks in one page. A node with more tasks has several groups.
pub(super) const MEMBERS: usize = 256;

/// Number of polls of a counter before the task sleeps, which take about as long as the sleep
/// itself.
const LOOKS: u32 = 200;

const CLAIMED: usize = 0;
const DONE: usize = 64;
const RELEASED: usize = 128;

/// Shared memory of this task's node in one view.
#[derive(Debug)]
pub struct NodeSharedMemory {
    /// Ranks on this node, ascending; the first is the leader.
    members: Vec<usize>,
    me: usize,
    /// Gradients, indexed by member; `None` for this task, which uses its own arena.
    inputs: Vec<Option<SharedMapping>>,
    plane: SharedMapping,
    len: usize,
    /// Number of collectives entered in this view; `chunks_before` is the number of chunks of all
    /// collectives before the present one.
    entered: u64,
    chunks_before: u64,
}

impl NodeSharedMemory {
    /// Shares memory with the other members; all of them must call this. The leader creates two
    /// planes: one for the node's sums, one for the totals of all nodes.
    pub(super) fn share(
        mesh: &mut Mesh,
        members: &[usize],
        arena: &mut Arena,
        options: &FabricOptions,
    ) -> Result<Self, FabricError> {
        let me = members
            .iter()
            .position(|&member| member == mesh.rank())
            .expect("a task is on its own node");
        assert!(members.len() <= MEMBERS, "the page has room for {MEMBERS}");
        let bytes = PAGE + 2 * plane_bytes(arena.len());
        let own = (me == 0)
            .then(|| SharedMapping::create(bytes))
            .transpose()
            .map_err(FabricError::io("make a node's plane"))?;
        let mut files = vec![arena.memory()?.file()];
        files.extend(own.as_ref().map(SharedMapping::file));
        for &rank in members.iter().filter(|&&rank| rank != members[me]) {
            let handed = mesh.link(rank).control().hand_over(&files);
            handed.map_err(|_| FabricError::Lost { rank })?;
        }
        let deadline = clock::now() + options.join_limit;
        let mut receive = |rank: usize, len: usize| {
            let file = mesh.link(rank).control().wait_file(deadline);
            let file = file.ok_or(FabricError::Lost { rank })?;
            SharedMapping::open(file, len).map_err(FabricError::io("map a peer's memory"))
        };
        let mut inputs = Vec::with_capacity(members.len());
        let mut plane = own;
        for (place, &rank) in members.iter().enumerate() {
            if place == me {
                inputs.push(None);
                continue;
            }
            inputs.push(Some(receive(rank, arena.len() * 4)?));
            if place == 0 {
                plane = Some(receive(rank, bytes)?);
            }
        }
        Ok(Self {
            members: members.to_vec(),
            me,
            inputs,
            plane: plane.expect("the leader's, or handed over by it"),
            len: arena.len(),
            entered: 0,
            chunks_before: 0,
        })
    }

    /// Ranks on this node, the leader first.
    #[must_use]
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Whether this task is the leader.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.me == 0
    }

    /// Sums of this node's tasks. They are valid until this task enters the next collective on the
    /// same range.
    #[must_use]
    pub fn sums(&self) -> &[f32] {
        // SAFETY: written only between the entry of all members into a collective and its end,
        // while this task holds `&mut self`.
        unsafe { self.plane.floats(PAGE, 0, self.len) }
    }

    /// Sums of the tasks of all nodes, written by the leader.
    #[must_use]
    pub fn totals(&self) -> &[f32] {
        // SAFETY: as in `sums`.
        unsafe { self.plane.floats(self.totals_at(), 0, self.len) }
    }

    /// The node's sums and the plane of the totals, for the leader's collective with other leaders.
    #[must_use]
    pub fn leader_sides(&mut self) -> (&[f32], &mut [f32]) {
        assert!(self.leads(), "only the leader writes the totals");
        let at = self.totals_at();
        // SAFETY: the sums are complete, and no member reads totals before the leader releases
        // them; the two planes do not overlap.
        unsafe {
            (
                self.plane.floats(PAGE, 0, self.len),
                self.plane.floats_mut(at, 0, self.len),
            )
        }
    }

    /// Enters the next collective and waits until all members have entered it. From then on every
    /// input is complete, and no member needs the sums of the previous collective.
    pub fn enter(&mut self, mesh: &mut Mesh, options: &FabricOptions) -> Result<(), FabricError> {
        self.entered += 1;
        let now = self.entered;
        self.counter(entered_at(self.me))
            .store(now, Ordering::SeqCst);
        self.wake_others(mesh);
        self.wait(mesh, options, |node| {
            (0..node.members.len())
                .all(|place| node.counter(entered_at(place)).load(Ordering::SeqCst) >= now)
        })
    }

    /// Claims chunks of `range`, computes the sum of each by `add(output, inputs by rank)` until
    /// none is left, and waits until all are complete. `own` contains this task's gradients.
    pub fn sum_chunks(
        &mut self,
        mesh: &mut Mesh,
        options: &FabricOptions,
        own: &[f32],
        (range, chunk): (Range<usize>, usize),
        add: impl Fn(&mut [f32], &[&[f32]]),
    ) -> Result<(), FabricError> {
        let chunks = range.len().div_ceil(chunk) as u64;
        let first = self.chunks_before;
        let target = first + chunks;
        self.chunks_before = target;
        let mut inputs: Vec<&[f32]> = Vec::with_capacity(self.members.len());
        while let Some(claimed) = self.claim(target) {
            let start = range.start + (claimed - first) as usize * chunk;
            let len = chunk.min(range.end - start);
            inputs.clear();
            inputs.extend(self.inputs.iter().map(|input| match input {
                // SAFETY: the peer has entered this collective and does not write its gradients
                // before it has left it.
                Some(peer) => unsafe { peer.floats(0, start, len) },
                None => &own[start..start + len],
            }));
            // SAFETY: only this task has claimed the chunk, and by entering all members have
            // released the previous sums.
            let out = unsafe { self.plane.floats_mut(PAGE, start, len) };
            add(out, &inputs);
            if self.counter(DONE).fetch_add(1, Ordering::SeqCst) + 1 == target {
                self.wake_others(mesh);
            }
        }
        self.wait(mesh, options, |node| {
            node.counter(DONE).load(Ordering::SeqCst) >= target
        })
    }

    /// Leader of the only node: computes the result that all members of the node
    /// [receive](Self::hear), in the length of the sums, and releases it.
    pub(crate) fn tell(&mut self, mesh: &mut Mesh, say: impl FnOnce(&mut [f32])) {
        let (_, word) = self.leader_sides();
        say(word);
        self.counter(RELEASED).store(self.entered, Ordering::SeqCst);
        self.wake_others(mesh);
    }

    /// Waits for the result that the leader [releases](Self::tell) after the present collective. It
    /// is valid in [`Self::totals`] until this task enters the next one. `false` if `patience`,
    /// which is called repeatedly, returns `false` first.
    pub(crate) fn hear(
        &mut self,
        mesh: &mut Mesh,
        options: &FabricOptions,
        patience: &dyn Fn() -> bool,
    ) -> Result<bool, FabricError> {
        let now = self.entered;
        self.wait_patiently(mesh, options, patience, |node| {
            node.counter(RELEASED).load(Ordering::SeqCst) >= now
        })
    }

    /// Leader: allows all members to read the totals. Other members: wait for it.
    pub fn release(&mut self, mesh: &mut Mesh, options: &FabricOptions) -> Result<(), FabricError> {
        let now = self.entered;
        if self.leads() {
            self.counter(RELEASED).store(now, Ordering::SeqCst);
            self.wake_others(mesh);
            return Ok(());
        }
        self.wait(mesh, options, |node| {
            node.counter(RELEASED).load(Ordering::SeqCst) >= now
        })
    }

    fn claim(&self, target: u64) -> Option<u64> {
        self.counter(CLAIMED)
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |claimed| {
                (claimed < target).then_some(claimed + 1)
            })
            .ok()
    }

    /// Polls for a while, then sleeps until woken. The flag is set before the last poll, so no
    /// wake-up is lost.
    fn wait(
        &self,
        mesh: &mut Mesh,
        options: &FabricOptions,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<(), FabricError> {
        self.wait_patiently(mesh, options, &|| true, ready)
            .map(drop)
    }

    /// Waits while `patience` returns `true`; `false` if it ends first.
    fn wait_patiently(
        &self,
        mesh: &mut Mesh,
        options: &FabricOptions,
        patience: &dyn Fn() -> bool,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<bool, FabricError> {
        for _ in 0..LOOKS {
            if ready(self) {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        let mut since: Option<Instant> = None;
        loop {
            self.asleep(self.me).store(1, Ordering::SeqCst);
            if ready(self) {
                return Ok(true);
            }
            let slept = mesh.sleep(None, None);
            // A member that was lost or left after it completed its part has no effect on the
            // result.
            if ready(self) {
                return Ok(true);
            }
            slept?;
            if !patience() {
                return Ok(false);
            }
            if since.get_or_insert_with(clock::now).elapsed() > options.stall {
                let late = (0..self.members.len()).find(|&place| {
                    self.counter(entered_at(place)).load(Ordering::SeqCst) < self.entered
                });
                let rank = self.members[late.unwrap_or(0)];
                return Err(FabricError::Lost { rank });
            }
            let own = mesh.rank();
            for &rank in self.members.iter().filter(|&&rank| rank != own) {
                if mesh.link(rank).control().has_left() {
                    return Err(FabricError::Lost { rank });
                }
            }
        }
    }

    fn wake_others(&self, mesh: &mut Mesh) {
        for (place, &rank) in self.members.iter().enumerate() {
            if place != self.me && self.asleep(place).swap(0, Ordering::SeqCst) == 1 {
                mesh.link(rank).control().say(ControlMessage::Bell);
            }
        }
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: mapped while `self` lives, aligned, and used as an atomic by every member.
        unsafe { AtomicU64::from_ptr(self.plane.at(at, 8).cast()) }
    }

    fn asleep(&self, place: usize) -> &AtomicU32 {
        // SAFETY: as in `counter`.
        unsafe { AtomicU32::from_ptr(self.plane.at(entered_at(place) + 64, 4).cast()) }
    }

    fn totals_at(&self) -> usize {
        PAGE + plane_bytes(self.len)
    }
}

fn entered_at(place: usize) -> usize {
    256 + 128 * place
}

/// Length of a plane in bytes: a multiple of the huge-page size, so that planes share no page.
fn plane_bytes(len: usize) -> usize {
    (len * 4).next_multiple_of(2 << 20)
}
