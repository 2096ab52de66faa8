//! A worker's connection: dispatches its frames to the exchange and sends the answers.

use super::super::exchange::ShardExchange;
use super::super::messages::{ConnectionId, ShardAnswer, ShardConnectionError};
use super::super::outbox::PartitionOutbox;
use super::acceptor::ShardAcceptor;
use super::frames::{
    receive_held, receive_init, receive_part, receive_push, receive_rest, reply, reply_after_parts,
    send_json,
};
use muster_comm::wire::metadata::{decode_task, decode_u64};
use muster_comm::wire::{Connection, FrameKind, Header, WireError};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// State of a worker's connection.
#[derive(Default)]
struct WorkerConnection {
    /// Receive buffer of a push that is not in partitions; reused for the next one.
    buffer: Vec<f32>,
    codes: Vec<u8>,
    /// The coordinator's push whose answer waits for its decision.
    owed: Option<u64>,
    /// Set after the first partition.
    outbox: Option<Arc<PartitionOutbox>>,
    /// Whether the newest push was in partitions, and its answer is too.
    in_parts: bool,
}

impl WorkerConnection {
    fn outbox(
        &mut self,
        connection: &Connection,
        exchange: &ShardExchange,
    ) -> Result<Arc<PartitionOutbox>, WireError> {
        if let Some(outbox) = &self.outbox {
            return Ok(Arc::clone(outbox));
        }
        let outbox = PartitionOutbox::of(connection, exchange.order, &exchange.rules.spares)?;
        Ok(Arc::clone(self.outbox.insert(outbox)))
    }

    /// Waits for the right to send; no other thread sends while the guard lives.
    fn floor(&self) -> Option<MutexGuard<'_, ()>> {
        self.outbox.as_deref().map(PartitionOutbox::floor)
    }

    /// Receives a push that is not in partitions, and answers it.
    fn serve_push(
        &mut self,
        connection: &mut Connection,
        exchange: &ShardExchange,
        header: Header,
        connection_id: ConnectionId,
    ) -> Result<(), ShardConnectionError> {
        self.in_parts = false;
        let (buffer, codes) = (std::mem::take(&mut self.buffer), &mut self.codes);
        let of = (header, connection_id);
        let answer = match receive_push(connection, exchange, of, buffer, codes)? {
            Some((view, push)) => exchange.push(connection_id, view, header.clock, push)?,
            None => exchange.missed(connection_id, header.clock),
        };
        let answer = heard(connection, exchange, answer, of)?;
        if matches!(answer, ShardAnswer::Moved { .. }) {
            exchange.forget_coming(connection_id);
        }
        self.answer(connection, exchange, answer, header.clock)
    }

    /// Sends the answer to the push of `clock`.
    fn answer(
        &mut self,
        connection: &mut Connection,
        exchange: &ShardExchange,
        answer: ShardAnswer,
        clock: u64,
    ) -> Result<(), ShardConnectionError> {
        self.owed = matches!(answer, ShardAnswer::Gone { .. }).then_some(clock);
        self.buffer = match &self.outbox {
            Some(outbox) if self.in_parts => {
                reply_after_parts(connection, exchange, answer, outbox)?
            }
            _ => reply(connection, exchange, answer)?,
        };
        Ok(())
    }
}

impl ShardAcceptor {
    /// Serves one worker until it leaves in order.
    pub fn attend(
        self: &Arc<Self>,
        connection: &mut Connection,
        exchange: &Arc<ShardExchange>,
        connection_id: ConnectionId,
    ) -> Result<(), ShardConnectionError> {
        let mut line = WorkerConnection::default();
        let attended = self.attend_on(&mut line, connection, exchange, connection_id);
        if let Some(outbox) = &line.outbox {
            outbox.close();
            if matches!(attended, Err(ShardConnectionError::Refused(_))) {
                // The reason must not be sent within a frame.
                drop(outbox.floor());
            }
        }
        attended
    }

    fn attend_on(
        self: &Arc<Self>,
        line: &mut WorkerConnection,
        connection: &mut Connection,
        exchange: &Arc<ShardExchange>,
        connection_id: ConnectionId,
    ) -> Result<(), ShardConnectionError> {
        loop {
            let header = connection.receive()?;
            match header.kind {
                FrameKind::Await if exchange.rules.takes_sums() => {
                    line.in_parts = false;
                    let answer = exchange.await_answer(connection_id, header.clock)?;
                    line.answer(connection, exchange, answer, header.clock)?;
                }
                FrameKind::Together if !exchange.rules.takes_sums() => {
                    return Err(WireError::Unexpected { got: header.kind }.into());
                }
                FrameKind::Push | FrameKind::Codes | FrameKind::Together => {
                    line.serve_push(connection, exchange, header, connection_id)?;
                }
                FrameKind::Part if exchange.rules.takes_parts() => {
                    let outbox = line.outbox(connection, exchange)?;
                    receive_part(connection, exchange, header, connection_id, &outbox)?;
                }
                FrameKind::Rest if exchange.rules.takes_parts() => {
                    let outbox = line.outbox(connection, exchange)?;
                    line.in_parts = true;
                    let answer =
                        receive_rest(connection, exchange, header, connection_id, &outbox)?;
                    line.answer(connection, exchange, answer, header.clock)?;
                }
                FrameKind::Pull => {
                    let answer = exchange.pull(connection_id, header.clock)?;
                    line.in_parts = false;
                    let buffer = {
                        let _floor = line.floor();
                        reply(connection, exchange, answer)?
                    };
                    line.buffer = buffer;
                }
                FrameKind::Clip => {
                    let factor = decode_u64(&connection.receive_meta(header)?)?;
                    exchange.clip(connection_id, header.clock, f64::from_bits(factor) as f32)?;
                    let answer = exchange.resume(connection_id, header.clock);
                    line.answer(connection, exchange, answer, header.clock)?;
                }
                FrameKind::Change => {
                    self.receive_change(connection, exchange, header, connection_id)?;
                    // Otherwise the coordinator pulls under the new view.
                    if let Some(clock) = line
                        .owed
                        .take()
                        .filter(|_| exchange.rules.model.is_synchronous())
                    {
                        let answer = exchange.resume(connection_id, clock);
                        line.answer(connection, exchange, answer, clock)?;
                    }
                }
                FrameKind::Resume => {
                    let clock = line.owed.take();
                    let clock = clock.ok_or(WireError::Unexpected { got: header.kind })?;
                    let answer = exchange.resume(connection_id, clock);
                    line.answer(connection, exchange, answer, clock)?;
                }
                FrameKind::Goodbye => return Ok(()),
                _ => {
                    let _floor = line.floor();
                    self.hear_word(connection, exchange, header, connection_id)?;
                }
            }
        }
    }

    /// Handles the other requests of a worker; most come from the coordinator.
    fn hear_word(
        self: &Arc<Self>,
        connection: &mut Connection,
        exchange: &Arc<ShardExchange>,
        header: Header,
        connection_id: ConnectionId,
    ) -> Result<(), ShardConnectionError> {
        match header.kind {
            FrameKind::Keep => exchange.keep(connection_id, header.clock)?,
            FrameKind::Held => receive_held(connection, exchange, header, connection_id)?,
            FrameKind::Fetch => {
                let of = decode_task(&connection.receive_meta(header)?)?;
                let values = exchange.fetch(connection_id, of)?;
                connection.send(FrameKind::Held, 0, &[], &[&values])?;
            }
            FrameKind::Init => receive_init(connection, exchange, header, connection_id)?,
            FrameKind::Adopt => {
                self.receive_adoption(connection, exchange, header, connection_id)?
            }
            FrameKind::Ask => {
                let guests = exchange.guests(connection_id)?;
                send_json(connection, FrameKind::Guests, 0, &guests)?;
            }
            FrameKind::Tally => {
                let tally = exchange.tally(connection_id)?;
                send_json(connection, FrameKind::Tally, 0, &tally)?;
            }
            FrameKind::Snapshot => {
                let within = Duration::from_millis(header.clock);
                exchange.snapshot(connection_id, within, |version, updates, tensors| {
                    let (updates, parts) = (updates.to_le_bytes(), tensors.parts());
                    connection
                        .send(FrameKind::SnapshotData, version, &updates, &parts)
                        .map_err(ShardConnectionError::from)
                })?;
            }
            FrameKind::Lend => {
                let within = Duration::from_millis(header.clock);
                let (version, head) = exchange.lend(connection_id, within)?;
                connection.send(FrameKind::Lent, version, &head.encode(), &[])?;
            }
            FrameKind::Done => exchange.finish(connection_id)?,
            got => return Err(WireError::Unexpected { got }.into()),
        }
        Ok(())
    }
}

/// Returns the answer to a push; first asks the worker for its residual if necessary.
fn heard(
    connection: &mut Connection,
    exchange: &ShardExchange,
    mut answer: ShardAnswer,
    (push, connection_id): (Header, ConnectionId),
) -> Result<ShardAnswer, ShardConnectionError> {
    while let ShardAnswer::HandOver { .. } = answer {
        let buffer = reply(connection, exchange, answer)?;
        let header = connection.receive()?;
        if header.kind != FrameKind::Held {
            return Err(WireError::Unexpected { got: header.kind }.into());
        }
        receive_held(connection, exchange, header, connection_id)?;
        answer = exchange.go_on(connection_id, push.clock, buffer);
    }
    Ok(answer)
}
