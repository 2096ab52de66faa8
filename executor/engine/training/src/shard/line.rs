//! A worker's connection: dispatches its frames to the exchange and sends the answers.

use super::exchange::Exchange;
use super::frames::{
    receive_held, receive_init, receive_part, receive_push, receive_rest, reply, reply_after_parts,
    send_json,
};
use super::outbox::Outbox;
use super::room::{Broken, Room};
use super::words::{Answer, Seat};
use muster_comm::wire::hello::{decode_task, decode_u64};
use muster_comm::wire::{Connection, Header, Kind, WireError};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// State of a worker's connection.
#[derive(Default)]
struct Line {
    /// Receive buffer of a push that is not in partitions; reused for the next one.
    buffer: Vec<f32>,
    codes: Vec<u8>,
    /// The coordinator's push whose answer waits for its decision.
    owed: Option<u64>,
    /// Set after the first partition.
    outbox: Option<Arc<Outbox>>,
    /// Whether the newest push was in partitions, and its answer is too.
    in_parts: bool,
}

impl Line {
    fn outbox(
        &mut self,
        connection: &Connection,
        exchange: &Exchange,
    ) -> Result<Arc<Outbox>, WireError> {
        if let Some(outbox) = &self.outbox {
            return Ok(Arc::clone(outbox));
        }
        let outbox = Outbox::of(connection, exchange.order, &exchange.spares)?;
        Ok(Arc::clone(self.outbox.insert(outbox)))
    }

    /// Waits for the right to send; no other thread sends while the guard lives.
    fn floor(&self) -> Option<MutexGuard<'_, ()>> {
        self.outbox.as_deref().map(Outbox::floor)
    }

    /// Sends the answer to the push of `clock`.
    fn answer(
        &mut self,
        connection: &mut Connection,
        exchange: &Exchange,
        answer: Answer,
        clock: u64,
    ) -> Result<(), Broken> {
        self.owed = matches!(answer, Answer::Gone { .. }).then_some(clock);
        self.buffer = match &self.outbox {
            Some(outbox) if self.in_parts => {
                reply_after_parts(connection, exchange, answer, outbox)?
            }
            _ => reply(connection, exchange, answer)?,
        };
        Ok(())
    }
}

impl Room {
    /// Serves one worker until it leaves in order.
    pub(super) fn attend(
        self: &Arc<Self>,
        connection: &mut Connection,
        exchange: &Arc<Exchange>,
        seat: Seat,
    ) -> Result<(), Broken> {
        let mut line = Line::default();
        let attended = self.attend_on(&mut line, connection, exchange, seat);
        if let Some(outbox) = &line.outbox {
            outbox.close();
            if matches!(attended, Err(Broken::Refused(_))) {
                // The reason must not be sent within a frame.
                drop(outbox.floor());
            }
        }
        attended
    }

    fn attend_on(
        self: &Arc<Self>,
        line: &mut Line,
        connection: &mut Connection,
        exchange: &Arc<Exchange>,
        seat: Seat,
    ) -> Result<(), Broken> {
        loop {
            let header = connection.receive()?;
            match header.kind {
                Kind::Await if exchange.takes_sums() => {
                    line.in_parts = false;
                    let answer = exchange.await_answer(seat, header.clock)?;
                    line.answer(connection, exchange, answer, header.clock)?;
                }
                Kind::Together if !exchange.takes_sums() => {
                    return Err(WireError::Unexpected { got: header.kind }.into());
                }
                Kind::Push | Kind::Codes | Kind::Together => {
                    line.in_parts = false;
                    let (buffer, codes) = (std::mem::take(&mut line.buffer), &mut line.codes);
                    let of = (header, seat);
                    let answer = match receive_push(connection, exchange, of, buffer, codes)? {
                        Some((view, push)) => exchange.push(seat, view, header.clock, push)?,
                        None => exchange.missed(seat, header.clock),
                    };
                    let answer = heard(connection, exchange, answer, seat)?;
                    if matches!(answer, Answer::Moved { .. }) {
                        exchange.forget_coming(seat);
                    }
                    line.answer(connection, exchange, answer, header.clock)?;
                }
                Kind::Part if exchange.takes_parts() => {
                    let outbox = line.outbox(connection, exchange)?;
                    receive_part(connection, exchange, header, seat, &outbox)?;
                }
                Kind::Rest if exchange.takes_parts() => {
                    let outbox = line.outbox(connection, exchange)?;
                    line.in_parts = true;
                    let answer = receive_rest(connection, exchange, header, seat, &outbox)?;
                    line.answer(connection, exchange, answer, header.clock)?;
                }
                Kind::Pull => {
                    let answer = exchange.pull(seat, header.clock)?;
                    line.in_parts = false;
                    let buffer = {
                        let _floor = line.floor();
                        reply(connection, exchange, answer)?
                    };
                    line.buffer = buffer;
                }
                Kind::Clip => {
                    let factor = decode_u64(&connection.receive_meta(header)?)?;
                    exchange.clip(seat, header.clock, f64::from_bits(factor) as f32)?;
                    let answer = exchange.resume(seat, header.clock);
                    line.answer(connection, exchange, answer, header.clock)?;
                }
                Kind::Change => {
                    self.receive_change(connection, exchange, header, seat)?;
                    // Otherwise the coordinator pulls under the new view.
                    if let Some(clock) = line.owed.take().filter(|_| exchange.is_bsp()) {
                        let answer = exchange.resume(seat, clock);
                        line.answer(connection, exchange, answer, clock)?;
                    }
                }
                Kind::Resume => {
                    let clock = line.owed.take();
                    let clock = clock.ok_or(WireError::Unexpected { got: header.kind })?;
                    let answer = exchange.resume(seat, clock);
                    line.answer(connection, exchange, answer, clock)?;
                }
                Kind::Goodbye => return Ok(()),
                _ => {
                    let _floor = line.floor();
                    self.hear_word(connection, exchange, header, seat)?;
                }
            }
        }
    }

    /// Handles the other requests of a worker; most come from the coordinator.
    fn hear_word(
        self: &Arc<Self>,
        connection: &mut Connection,
        exchange: &Arc<Exchange>,
        header: Header,
        seat: Seat,
    ) -> Result<(), Broken> {
        match header.kind {
            Kind::Keep => exchange.keep(seat, header.clock)?,
            Kind::Held => receive_held(connection, exchange, header, seat)?,
            Kind::Fetch => {
                let of = decode_task(&connection.receive_meta(header)?)?;
                let values = exchange.fetch(seat, of)?;
                connection.send(Kind::Held, 0, &[], &[&values])?;
            }
            Kind::Init => receive_init(connection, exchange, header, seat)?,
            Kind::Adopt => self.receive_adoption(connection, exchange, header, seat)?,
            Kind::Ask => {
                let guests = exchange.guests(seat)?;
                send_json(connection, Kind::Guests, 0, &guests)?;
            }
            Kind::Tally => {
                let tally = exchange.tally(seat)?;
                send_json(connection, Kind::Tally, 0, &tally)?;
            }
            Kind::Snapshot => {
                let within = Duration::from_millis(header.clock);
                exchange.snapshot(seat, within, |version, updates, tensors| {
                    let (updates, parts) = (updates.to_le_bytes(), tensors.parts());
                    connection
                        .send(Kind::SnapshotData, version, &updates, &parts)
                        .map_err(Broken::from)
                })?;
            }
            Kind::Lend => {
                let within = Duration::from_millis(header.clock);
                let (version, head) = exchange.lend(seat, within)?;
                connection.send(Kind::Lent, version, &head.encode(), &[])?;
            }
            Kind::Done => exchange.finish(seat)?,
            got => return Err(WireError::Unexpected { got }.into()),
        }
        Ok(())
    }
}

/// Returns the answer to a push; first asks the worker for its residual if necessary.
fn heard(
    connection: &mut Connection,
    exchange: &Exchange,
    mut answer: Answer,
    seat: Seat,
) -> Result<Answer, Broken> {
    while let Answer::HandOver { .. } = answer {
        let buffer = reply(connection, exchange, answer)?;
        let header = connection.receive()?;
        if header.kind != Kind::Held {
            return Err(WireError::Unexpected { got: header.kind }.into());
        }
        receive_held(connection, exchange, header, seat)?;
        answer = exchange.go_on(seat, buffer);
    }
    Ok(answer)
}
