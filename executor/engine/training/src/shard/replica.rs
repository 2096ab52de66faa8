//! Replicas of other shards in this process, from which lost shards are promoted.
//!
//! The owner sends the whole replica once per layout, and then every sum of gradients that it
//! applies. The same arithmetic on the same values gives the same bits. An update is acknowledged
//! as soon as it is read, because it cannot be lost then. A promotion waits until it is applied.

use super::messages::{RequestRefusal, ShardConnectionError};
use super::recipe::Recipe;
use super::tensors::{Factors, Tensors};
use muster_comm::assign::{ParameterPiece, load};
use muster_comm::wire::view::ReplicaPosition;
use muster_comm::wire::{Connection, FrameKind, Header, WireError};
use muster_compute::pages;
use muster_model::id::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// Replica of one shard.
#[derive(Debug)]
pub(super) struct ShardReplica {
    /// Number of the view of the last update.
    pub view: u64,
    pub layout: u64,
    pub pieces: Vec<ParameterPiece>,
    pub tensors: Tensors,
    pub version: u64,
    pub updates: u64,
    /// Next step of every worker.
    pub clocks: BTreeMap<TaskId, u64>,
    /// Slice number in which all workers suspend after the last step; 0 for none.
    pub hold: u64,
}

/// Replicas of all shards whose replica holder this process is.
#[derive(Debug, Default)]
pub(super) struct ReplicaStore(Mutex<ReplicaStoreState>);

#[derive(Debug, Default)]
struct ReplicaStoreState {
    /// Replicas by owner.
    copies: BTreeMap<TaskId, ShardReplica>,
    /// Owners that were replaced. They may still run, without the coordinator, and must learn it
    /// before they answer a worker.
    adopted: BTreeSet<TaskId>,
}

impl ReplicaStore {
    pub fn has(&self, owner: TaskId) -> bool {
        self.lock().copies.contains_key(&owner)
    }

    /// Removes the replica for its promotion; the owner's later updates are refused.
    pub fn take(&self, owner: TaskId) -> Option<ShardReplica> {
        let mut shelf = self.lock();
        let copy = shelf.copies.remove(&owner)?;
        shelf.adopted.insert(owner);
        Some(copy)
    }

    /// Keeps the replica up to date until its owner leaves in order. After another end of the
    /// connection the replica stays.
    pub fn keep(
        &self,
        owner: TaskId,
        connection: &mut Connection,
        recipe: &Recipe,
    ) -> Result<(), ShardConnectionError> {
        let mut sum = Vec::new();
        loop {
            let header = connection.receive()?;
            if header.kind == FrameKind::Goodbye {
                self.lock().copies.remove(&owner);
                return Ok(());
            }
            let shipped = serde_json::from_slice(&connection.receive_meta(header)?)
                .map_err(|_| WireError::Malformed("word of a copy"))?;
            match header.kind {
                FrameKind::Copy => self.begin(owner, connection, header, shipped, recipe)?,
                FrameKind::Applied => {
                    // Read before any refusal. Otherwise an owner in the middle of a long sum would
                    // find a broken connection. It would then continue without a replica, although
                    // it has been replaced.
                    let most = recipe.parameters();
                    let numbers = header.payload_bytes as usize / size_of::<f32>();
                    pages::resize(&mut sum, most.min(numbers));
                    connection.receive_payload(header, &mut [&mut sum])?;
                    self.go_on(owner, connection, shipped, &mut sum)?;
                }
                got => return Err(WireError::Unexpected { got }.into()),
            }
        }
    }

    fn begin(
        &self,
        owner: TaskId,
        connection: &mut Connection,
        header: Header,
        shipped: ReplicaPosition,
        recipe: &Recipe,
    ) -> Result<(), ShardConnectionError> {
        if !recipe.allows(&shipped.pieces) {
            return Err(RequestRefusal::Change("its pieces are not those of the network").into());
        }
        let mut tensors = recipe.tensors(&shipped.pieces, false);
        tensors.fill_with(|parts| connection.receive_payload(header, parts))?;
        let copy = ShardReplica {
            view: shipped.view,
            layout: shipped.layout,
            pieces: shipped.pieces,
            tensors,
            version: shipped.version,
            updates: shipped.updates,
            clocks: shipped.clocks.into_iter().collect(),
            hold: shipped.hold,
        };
        let mut shelf = self.lock();
        shelf.admit(owner)?;
        // Replicas of an older layout have another holder now, or their owner has left.
        shelf.copies.retain(|_, other| other.layout >= copy.layout);
        shelf.copies.insert(owner, copy);
        Ok(connection.send(FrameKind::Ready, 0, &[], &[])?)
    }

    fn go_on(
        &self,
        owner: TaskId,
        connection: &mut Connection,
        shipped: ReplicaPosition,
        sum: &mut [f32],
    ) -> Result<(), ShardConnectionError> {
        const NO_COPY: RequestRefusal =
            RequestRefusal::Change("there is no copy that this follows on");
        let mut shelf = self.lock();
        shelf.admit(owner)?;
        let copy = shelf
            .copies
            .get_mut(&owner)
            .filter(|copy| {
                copy.layout == shipped.layout
                    && copy.updates + 1 == shipped.updates
                    && load(&copy.pieces) == sum.len()
            })
            .ok_or(NO_COPY)?;
        // A promotion cannot take the replica before the update is applied. An owner that is gone
        // does not matter.
        let told = connection.send(FrameKind::Ready, 0, &[], &[]);
        let [scale, clip, rate] = shipped.factors.map(f32::from_bits);
        let factors = Factors { scale, clip, rate };
        copy.tensors.update_by(copy.updates, &mut [sum], factors);
        copy.view = shipped.view;
        copy.updates = shipped.updates;
        copy.version = shipped.version;
        copy.hold = shipped.hold;
        copy.clocks = shipped.clocks.into_iter().collect();
        Ok(told?)
    }

    fn lock(&self) -> MutexGuard<'_, ReplicaStoreState> {
        self.0.lock().expect("no connection has panicked with it")
    }
}

impl ReplicaStoreState {
    fn admit(&self, owner: TaskId) -> Result<(), RequestRefusal> {
        if self.adopted.contains(&owner) {
            Err(RequestRefusal::Adopted(owner))
        } else {
            Ok(())
        }
    }
}
