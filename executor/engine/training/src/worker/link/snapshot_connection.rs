//! The coordinator's second connection to a shard. The writer of a checkpoint reads the shard's
//! snapshot buffer over it while steps use the first connection.

use super::{JOIN_LIMIT, LOOK_EVERY, ShardLink, ShardRoute};
use muster_comm::log;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello};
use muster_comm::wire::snapshot::{MOST_DRAWN, SnapshotHead, SnapshotRangeHead};
use muster_comm::wire::{Connection, FrameKind, WireError, handshake};
use muster_compute::clock;
use muster_model::error_chain::chain;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time without data after which the transfer of a snapshot fails.
const SILENCE: Duration = Duration::from_secs(60);

/// The connection, from its start to its first error. The link and the reader of the snapshot share
/// it.
#[derive(Debug, Clone, Default)]
pub(in crate::worker) struct SnapshotConnection(Arc<Mutex<Option<Connection>>>);

/// Snapshot buffer of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) struct SnapshotId {
    pub version: u64,
    pub updates: u64,
    /// Number of this snapshot at the shard.
    pub count: u64,
}

impl ShardLink {
    /// Opens the second connection if there is none. Returns whether there is one that is not in
    /// use.
    pub(in crate::worker) fn open_side(&mut self, hello: &Hello) -> bool {
        let Ok(mut side) = self.side.0.try_lock() else {
            return false;
        };
        if side.is_none() {
            let hello = Hello {
                guest: ConnectionPurpose::Checkpoint,
                to: Some(self.shard),
                ..hello.clone()
            };
            let route = ShardRoute {
                address: &self.address,
                hosts: vec![self.host],
                sockets: self.sockets.as_deref(),
            };
            let greeted = match route.handshake_local(&hello) {
                Ok(None) => handshake(&self.address, &hello, JOIN_LIMIT).map(Some),
                near => near,
            };
            match greeted {
                Ok(greeted) => *side = greeted.map(|(connection, _)| connection),
                Err(error) => log::line(format_args!(
                    "training waits until this checkpoint is read from PS shard {}, which refuses a second connection: {}",
                    self.shard,
                    chain(&error)
                )),
            }
        }
        side.is_some()
    }

    /// Returns the handle for the reader of the snapshot.
    pub(in crate::worker) fn side(&self) -> SnapshotConnection {
        self.side.clone()
    }

    /// Coordinator: makes the shard copy all that it holds into its snapshot buffer. `within` as in
    /// [`Self::snapshot`].
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn lend(&mut self, within: Duration) -> Result<SnapshotId, WireError> {
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.connection.send(FrameKind::Lend, within, &[], &[])?;
        let header = self.receive_past_parts()?;
        if header.kind != FrameKind::Lent {
            return Err(self.connection.unexpected(header));
        }
        let head = SnapshotHead::decode(&self.connection.receive_meta(header)?)?;
        Ok(SnapshotId {
            version: header.clock,
            updates: head.updates,
            count: head.count,
        })
    }
}

impl SnapshotConnection {
    /// Reads the snapshot into `share`, which it must fill. Closes the connection after an error.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Refused`] when the shard has a newer snapshot.
    pub(in crate::worker) fn draw(
        &self,
        lent: SnapshotId,
        share: Vec<&mut [f32]>,
    ) -> Result<(), WireError> {
        let mut side = self.0.lock().expect("not poisoned");
        let connection = side.as_mut().ok_or(WireError::Closed)?;
        let drawn = draw(connection, lent, share);
        if drawn.is_err() {
            *side = None;
        }
        drawn
    }
}

fn draw(
    connection: &mut Connection,
    lent: SnapshotId,
    mut share: Vec<&mut [f32]>,
) -> Result<(), WireError> {
    share.reverse();
    let mut head = SnapshotRangeHead {
        count: lent.count,
        from: 0,
        numbers: 0,
    };
    loop {
        let mut parts = first(&mut share, MOST_DRAWN as usize);
        head.from += head.numbers;
        head.numbers = parts.iter().map(|part| part.len() as u64).sum();
        if head.numbers == 0 {
            return Ok(());
        }
        connection.send(FrameKind::Draw, lent.version, &head.encode(), &[])?;
        let until = clock::now() + SILENCE;
        while !connection.wait_readable(LOOK_EVERY)? {
            if clock::now() >= until {
                return Err(WireError::Silent(SILENCE));
            }
        }
        let header = connection.receive()?;
        if header.kind != FrameKind::Drawn {
            return Err(connection.unexpected(header));
        }
        connection.receive_meta(header)?;
        connection.receive_payload(header, &mut parts)?;
    }
}

/// Takes the first values, at most `most`, from slices in reverse order.
fn first<'a>(slices: &mut Vec<&'a mut [f32]>, most: usize) -> Vec<&'a mut [f32]> {
    let mut out = Vec::new();
    let mut left = most;
    while left > 0
        && let Some(slice) = slices.pop()
    {
        let (here, rest) = slice.split_at_mut(slice.len().min(left));
        left -= here.len();
        if !here.is_empty() {
            out.push(here);
        }
        if !rest.is_empty() {
            slices.push(rest);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_values_span_several_slices() {
        let (mut a, mut b, mut c) = ([1.0, 2.0, 3.0], [], [4.0, 5.0]);
        let mut slices: Vec<&mut [f32]> = vec![&mut c, &mut b, &mut a];
        assert_eq!(first(&mut slices, 2), [&[1.0, 2.0][..]]);
        assert_eq!(first(&mut slices, 2), [[3.0], [4.0]]);
        assert_eq!(first(&mut slices, 2), [[5.0]]);
        assert!(first(&mut slices, 2).is_empty());
    }
}
