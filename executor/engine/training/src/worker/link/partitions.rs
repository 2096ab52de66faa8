//! A step's gradients to one shard in partitions, and the parameters back in partitions, at the
//! same time.

use super::{Reply, ShardLink, ShardReply, WaitCondition};
use muster_comm::partitions::{self, PartitionQueue};
use muster_comm::wire::metadata::{AnswerHead, PartHead, PushHead};
use muster_comm::wire::{Connection, FrameKind, Header, WireError};
use std::sync::{Mutex, OnceLock};

/// Maximum number of unsent bytes in the system. A more urgent partition waits for no more than
/// these.
const UNSENT: u32 = 128 << 10;

/// Free buffers for partitions.
#[derive(Debug, Default)]
pub(in crate::worker) struct WorkerBufferPool(Mutex<Vec<Vec<f32>>>);

impl WorkerBufferPool {
    pub fn take(&self) -> Vec<f32> {
        let spare = self.0.lock().expect("not poisoned").pop();
        spare.unwrap_or_default()
    }

    pub fn give(&self, spare: Vec<f32>) {
        self.0.lock().expect("not poisoned").push(spare);
    }
}

/// Outgoing partitions for one shard.
pub(in crate::worker) struct OutgoingPartitions<'a> {
    pub clock: u64,
    pub view: u64,
    pub queue: &'a PartitionQueue<Vec<f32>>,
    /// Set before the queue is closed.
    pub rest: &'a OnceLock<PushHead>,
    pub spares: &'a WorkerBufferPool,
}

impl OutgoingPartitions<'_> {
    /// Sends the partitions of the queue until it is closed, then the rest.
    ///
    /// # Errors
    /// [`WireError`]; the thread that reads the connection determines the cause.
    pub fn send(&self, shard: usize, connection: &mut Connection) -> Result<(), WireError> {
        while let Some((part, numbers)) = self.queue.take() {
            let head = PartHead {
                view: self.view,
                part: part as u64,
            };
            connection.send(FrameKind::Part, self.clock, &head.encode(), &[&numbers])?;
            self.spares.give(numbers);
        }
        match self.rest.get() {
            Some(head) => {
                let head = head.to_shard(shard).encode();
                connection.send(FrameKind::Rest, self.clock, &head, &[])
            }
            None => Ok(()),
        }
    }
}

impl ShardLink {
    /// Returns a second handle of the connection, for a thread that pushes while this one receives.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn speaker(&mut self) -> Result<Connection, WireError> {
        self.is_pushed_to = true;
        if let Some(speaker) = self.speaker.take() {
            return Ok(speaker);
        }
        self.connection.limit_unsent(UNSENT)?;
        self.connection.twin()
    }

    /// Keeps the handle of a thread that has stopped sending.
    pub(in crate::worker) fn keep_speaker(&mut self, speaker: Connection) {
        self.speaker = Some(speaker);
    }

    /// Waits for the answer to a push in partitions; the shard holds `numbers` values. Calls
    /// `arrives` with each partition of the parameters.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn hear_parts(
        &mut self,
        numbers: usize,
        spares: &WorkerBufferPool,
        patience: WaitCondition<'_>,
        arrives: &mut dyn FnMut(usize, Vec<f32>),
    ) -> Result<ShardReply, WireError> {
        let mut view = None;
        loop {
            if !self.wait(patience)? {
                return Ok(Reply::GaveUp.into());
            }
            let header = self.connection.receive()?;
            match header.kind {
                FrameKind::Part => {
                    let (part, got) = self.part(header, numbers, spares)?;
                    arrives(part, got);
                }
                FrameKind::View => view = Some(self.json(header, "view")?),
                FrameKind::Rest => {
                    let head = AnswerHead::decode(&self.connection.receive_meta(header)?)?;
                    let reply = Reply::Parameters {
                        clock: header.clock,
                        stats: head.stats,
                    };
                    return Ok(ShardReply {
                        view,
                        slowest: head.slowest,
                        noise: head.noise,
                        ..ShardReply::from(reply)
                    });
                }
                _ => {
                    let answer = self.understand(header, &mut [])?;
                    let view = view.or(answer.view);
                    return Ok(ShardReply { view, ..answer });
                }
            }
        }
    }

    fn part(
        &mut self,
        header: Header,
        numbers: usize,
        spares: &WorkerBufferPool,
    ) -> Result<(usize, Vec<f32>), WireError> {
        let head = PartHead::decode(&self.connection.receive_meta(header)?)?;
        let part = usize::try_from(head.part)
            .ok()
            .filter(|&part| part < partitions::count(numbers))
            .ok_or(WireError::Malformed("number of a part"))?;
        let mut got = spares.take();
        got.resize(partitions::range(part, numbers).len(), 0.0);
        self.connection.receive_payload(header, &mut [&mut got])?;
        Ok((part, got))
    }

    /// Returns the next header, and skips partitions of a step that was abandoned.
    ///
    /// # Errors
    /// [`WireError`].
    pub(super) fn receive_past_parts(&mut self) -> Result<Header, WireError> {
        loop {
            let header = self.connection.receive()?;
            if header.kind != FrameKind::Part {
                return Ok(header);
            }
            self.connection.receive_meta(header)?;
            let limit = size_of::<f32>() * partitions::PART;
            self.connection
                .receive_bytes(header, limit, &mut self.codes)?;
        }
    }
}
