//! What a worker says to a shard, and asks of it, beside the gradients of a step; most of it only the chief.

use super::{Link, Patience, Told};
use crate::wire::hello::decode_u64;
use crate::wire::view::{Change, Tally, View};
use crate::wire::{Kind, WireError};
use muster_model::id::TaskId;
use std::time::Duration;

impl Link {
    /// Whether the shard keeps what workers know of its parameters.
    pub(in crate::worker) fn keeps_known(&self) -> bool {
        self.keeps_known
    }

    /// Chief: whoever goes on with step `clock` hands over first what it holds back.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn keep(&mut self, clock: u64) -> Result<(), WireError> {
        self.connection.send(Kind::Keep, clock, &[], &[])
    }

    /// Of the shard's part, what `of` holds back.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn hold(
        &mut self,
        of: TaskId,
        parts: &[&[f32]],
    ) -> Result<(), WireError> {
        self.connection.send(Kind::Held, 0, of.0.as_bytes(), parts)
    }

    /// What `of` holds back of the shard's part; nothing where nothing is known.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn fetch(
        &mut self,
        of: TaskId,
        most: usize,
    ) -> Result<Vec<f32>, WireError> {
        self.connection.send(Kind::Fetch, 0, of.0.as_bytes(), &[])?;
        let header = self.connection.receive()?;
        if header.kind != Kind::Held {
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

    /// Chief: gives the shard its content, parameters first, then plane by plane the optimizer's state.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn init(&mut self, step: u64, updates: u64, content: &[&[f32]]) -> Result<(), WireError> {
        self.connection
            .send(Kind::Init, step, &updates.to_le_bytes(), content)?;
        let header = self.connection.receive()?;
        match header.kind {
            Kind::Ready => Ok(()),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Chief: the next view, and the step that it begins with. It is not answered: whatever is sent afterwards is read afterwards.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn change(&mut self, from: u64, change: &Change) -> Result<(), WireError> {
        let text = serde_json::to_vec(change).expect("a view is plain data");
        self.connection.send(Kind::Change, from, &text, &[])
    }

    /// Chief: what listens here is the lost shard from now on, in `view`; the step that comes next, which is `least` or later.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Refused`] when its copy is not so far.
    pub(in crate::worker) fn adopt(&mut self, view: &View, least: u64) -> Result<u64, WireError> {
        let text = serde_json::to_vec(view).expect("a view is plain data");
        self.connection.send(Kind::Adopt, least, &text, &[])?;
        let header = self.connection.receive()?;
        match header.kind {
            Kind::Ready => Ok(header.clock),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Chief: wait on with the answer that is owed.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn resume(&mut self) -> Result<(), WireError> {
        self.connection.send(Kind::Resume, 0, &[], &[])
    }

    /// Chief: what clipping leaves of step `clock`; the answer to its push.
    ///
    /// # Errors
    /// [`WireError`].
    pub(in crate::worker) fn clip(
        &mut self,
        clock: u64,
        factor: f64,
        parts: &mut [&mut [f32]],
        patience: Patience<'_>,
    ) -> Result<Told, WireError> {
        let factor = factor.to_bits().to_le_bytes();
        self.connection.send(Kind::Clip, clock, &factor, &[])?;
        self.reply(None, parts, patience)
    }

    /// Chief: who waits to be taken in.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn guests(&mut self) -> Result<Vec<TaskId>, WireError> {
        self.connection.send(Kind::Ask, 0, &[], &[])?;
        let header = self.connection.receive()?;
        match header.kind {
            Kind::Guests => self.json(header, "list of guests"),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Chief: asks how a move went; [`Self::tally`] reads the answer.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn ask_tally(&mut self) -> Result<(), WireError> {
        self.connection.send(Kind::Tally, 0, &[], &[])
    }

    /// Chief: waits until the shard has everything in its place.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn tally(&mut self) -> Result<Tally, WireError> {
        let header = self.connection.receive()?;
        match header.kind {
            Kind::Tally => self.json(header, "tally"),
            _ => Err(self.connection.unexpected(header)),
        }
    }

    /// Chief: reads everything the shard holds into `content`; its version and updates. Where workers say on their own what they hold
    /// back, the shard waits `within` that time to hear them all.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn snapshot(
        &mut self,
        within: Duration,
        content: &mut [&mut [f32]],
    ) -> Result<(u64, u64), WireError> {
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.connection.send(Kind::Snapshot, within, &[], &[])?;
        let header = self.receive_past_parts()?;
        if header.kind != Kind::SnapshotData {
            return Err(self.connection.unexpected(header));
        }
        let updates = decode_u64(&self.connection.receive_meta(header)?)?;
        self.connection.receive_payload(header, content)?;
        Ok((header.clock, updates))
    }

    /// Chief: training is over.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn done(&mut self) -> Result<(), WireError> {
        self.connection.send(Kind::Done, 0, &[], &[])
    }
}
