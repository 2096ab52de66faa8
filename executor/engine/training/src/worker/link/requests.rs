//! Messages of a worker to a shard other than the gradients of a step; most come from the
//! coordinator.

use super::{ShardLink, ShardReply, WaitCondition};
use muster_comm::wire::metadata::decode_u64;
use muster_comm::wire::view::{ReshardingReport, TaskSetView, ViewChange};
use muster_comm::wire::{FrameKind, WireError};
use muster_model::id::TaskId;
use std::time::Duration;

impl ShardLink {
    /// Whether the shard stores the parameters as the workers know them.
    pub(in crate::worker) fn keeps_known(&self) -> bool {
        self.keeps_known
    }

    /// Coordinator: every worker that continues with step `clock` must send its residual first.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn keep(&mut self, clock: u64) -> Result<(), WireError> {
        self.connection.send(FrameKind::Keep, clock, &[], &[])
    }

    /// Sends the residual of worker `of` for the shard's part.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn hold(
        &mut self,
        of: TaskId,
        parts: &[&[f32]],
    ) -> Result<(), WireError> {
        self.connection
            .send(FrameKind::Held, 0, of.0.as_bytes(), parts)
    }

    /// Returns the residual of worker `of` for the shard's part; empty if the shard has none.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn fetch(
        &mut self,
        of: TaskId,
        most: usize,
    ) -> Result<Vec<f32>, WireError> {
        self.connection
            .send(FrameKind::Fetch, 0, of.0.as_bytes(), &[])?;
        let header = self.connection.receive()?;
        if header.kind != FrameKind::Held {
            return Err(self.connection.unexpected(header));
        }
        self.connection.receive_meta(header)?;
        let numbers = header.payload_bytes as usize / size_of::<f32>();
        if numbers > most {
            return Err(WireError::Malformed("what a worker holds back"));
        }
        let mut values = vec![0.0; numbers];
        self.connection
            .receive_payload(header, &mut [&mut values])?;
        Ok(values)
    }

    /// Coordinator: fills the shard with parameters, then plane by plane the optimizer's state.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn init(&mut self, step: u64, updates: u64, content: &[&[f32]]) -> Result<(), WireError> {
        self.connection
            .send(FrameKind::Init, step, &updates.to_le_bytes(), content)?;
        let header = self.connection.receive()?;
        match header.kind {
            FrameKind::Ready => Ok(()),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Coordinator: announces the next view and its first step. There is no answer; the shard reads
    /// later messages after this one.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn change(&mut self, from: u64, change: &ViewChange) -> Result<(), WireError> {
        let text = serde_json::to_vec(change).expect("a view is plain data");
        self.connection.send(FrameKind::Change, from, &text, &[])
    }

    /// Coordinator: promotes the replica at this address to the lost shard, in `view`. Returns its
    /// next step, which is `least` or later.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Refused`] when the replica lacks an acknowledged step.
    pub(in crate::worker) fn adopt(
        &mut self,
        view: &TaskSetView,
        least: u64,
    ) -> Result<u64, WireError> {
        let text = serde_json::to_vec(view).expect("a view is plain data");
        self.connection.send(FrameKind::Adopt, least, &text, &[])?;
        let header = self.connection.receive()?;
        match header.kind {
            FrameKind::Ready => Ok(header.clock),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Coordinator: makes the shard wait further before it sends the pending answer.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn resume(&mut self) -> Result<(), WireError> {
        self.connection.send(FrameKind::Resume, 0, &[], &[])
    }

    /// Coordinator: sends the clip factor of step `clock`. Returns the answer to the push.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn clip(
        &mut self,
        clock: u64,
        factor: f64,
        parts: &mut [&mut [f32]],
        patience: WaitCondition<'_>,
    ) -> Result<ShardReply, WireError> {
        let factor = factor.to_bits().to_le_bytes();
        self.connection.send(FrameKind::Clip, clock, &factor, &[])?;
        self.reply(None, parts, patience)
    }

    /// Coordinator: returns the workers that wait for admission.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn guests(&mut self) -> Result<Vec<TaskId>, WireError> {
        self.connection.send(FrameKind::Ask, 0, &[], &[])?;
        let header = self.connection.receive()?;
        match header.kind {
            FrameKind::Guests => self.json(header, "list of guests"),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Coordinator: asks for the checksums of a move; [`Self::tally`] reads the answer.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn ask_tally(&mut self) -> Result<(), WireError> {
        self.connection.send(FrameKind::Tally, 0, &[], &[])
    }

    /// Coordinator: waits until the shard has received all of its pieces.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn tally(&mut self) -> Result<ReshardingReport, WireError> {
        let header = self.connection.receive()?;
        match header.kind {
            FrameKind::Tally => self.json(header, "tally"),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Coordinator: reads the whole content of the shard into `content`. Returns version and
    /// updates. Where workers send residuals by themselves, the shard waits for them, at most
    /// `within`.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn snapshot(
        &mut self,
        within: Duration,
        content: &mut [&mut [f32]],
    ) -> Result<(u64, u64), WireError> {
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.connection
            .send(FrameKind::Snapshot, within, &[], &[])?;
        let header = self.receive_past_parts()?;
        if header.kind != FrameKind::SnapshotData {
            return Err(self.connection.unexpected(header));
        }
        let updates = decode_u64(&self.connection.receive_meta(header)?)?;
        self.connection.receive_payload(header, content)?;
        Ok((header.clock, updates))
    }

    /// Coordinator: ends training.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn done(&mut self) -> Result<(), WireError> {
        self.connection.send(FrameKind::Done, 0, &[], &[])
    }
}
