//! Frames of a shard's connections with larger content: how they are read, and how answers are
//! sent.

use super::super::exchange::{GradientPartition, ShardExchange};
use super::super::messages::{
    AggregatedWorkers, ConnectionId, EncodedPush, Push, ShardAnswer, ShardConnectionError,
};
use super::super::outbox::PartitionOutbox;
use muster_comm::partitions;
use muster_comm::wire::metadata::{
    AnswerHead, PartHead, PushHead, SumHead, decode_task, decode_u64,
};
use muster_comm::wire::view::Handover;
use muster_comm::wire::{Connection, FrameKind, Header, WireError};
use muster_compute::pages;
use muster_model::id::TaskId;
use std::sync::Arc;

/// Receives a push. `None` if it belongs to a view that has ended; its content is read and
/// discarded.
pub fn receive_push(
    connection: &mut Connection,
    exchange: &ShardExchange,
    (header, connection_id): (Header, ConnectionId),
    mut gradients: Vec<f32>,
    codes: &mut Vec<u8>,
) -> Result<Option<(u64, Push)>, ShardConnectionError> {
    let meta = connection.receive_meta(header)?;
    let (head, together) = match header.kind {
        FrameKind::Together => {
            let sum = SumHead::decode(&meta)?;
            (sum.push, Some(AggregatedWorkers::from(sum)))
        }
        _ => (PushHead::decode(&meta)?, None),
    };
    let Some((parameters, shard_codec)) =
        exchange.await_view(connection_id, head.view, header.clock)?
    else {
        // Its length is not known any more.
        let limit = 8 * exchange.rules.recipe.parameters();
        connection.receive_bytes(header, limit, codes)?;
        return Ok(None);
    };
    let mut kept = None;
    match (header.kind, shard_codec) {
        (FrameKind::Codes, Some(shard_codec)) => {
            if codes.capacity() == 0 {
                *codes = exchange.spare_codes();
            }
            connection.receive_bytes(header, shard_codec.max_push_bytes(), codes)?;
            if exchange.rules.keeps_codes(&shard_codec)
                && codes.len() == shard_codec.max_push_bytes()
            {
                let bytes = std::mem::take(codes);
                kept = Some(EncodedPush { shard_codec, bytes });
            } else {
                pages::resize(&mut gradients, parameters);
                shard_codec
                    .decode_push(codes, &mut gradients)
                    .map_err(|_| WireError::Malformed("encoded push"))?;
            }
        }
        (FrameKind::Push | FrameKind::Together, None) => {
            pages::resize(&mut gradients, parameters);
            connection.receive_payload(header, &mut [&mut gradients])?;
        }
        (got, _) => return Err(WireError::Unexpected { got }.into()),
    }
    let push = Push {
        gradients,
        codes: kept,
        targets: head.targets,
        stats: head.stats,
        together,
    };
    Ok(Some((head.view, push)))
}

/// Receives a partition of a push; does not wait for an answer.
pub fn receive_part(
    connection: &mut Connection,
    exchange: &ShardExchange,
    header: Header,
    connection_id: ConnectionId,
    outbox: &Arc<PartitionOutbox>,
) -> Result<(), ShardConnectionError> {
    let head = PartHead::decode(&connection.receive_meta(header)?)?;
    let expected = exchange.await_view(connection_id, head.view, header.clock)?;
    let (parameters, _) = expected.ok_or(WireError::Malformed("view of a part"))?;
    let part = usize::try_from(head.part)
        .ok()
        .filter(|&part| part < partitions::count(parameters))
        .ok_or(WireError::Malformed("number of a part"))?;
    let mut numbers = exchange
        .rules
        .spares
        .take(partitions::range(part, parameters).len());
    connection.receive_payload(header, &mut [&mut numbers])?;
    let pushed = GradientPartition {
        view: head.view,
        clock: header.clock,
        part,
        numbers,
    };
    Ok(exchange.push_part(connection_id, outbox, pushed)?)
}

/// Receives the end of a push in partitions. Returns the answer to the worker.
pub fn receive_rest(
    connection: &mut Connection,
    exchange: &ShardExchange,
    header: Header,
    connection_id: ConnectionId,
    outbox: &Arc<PartitionOutbox>,
) -> Result<ShardAnswer, ShardConnectionError> {
    let head = PushHead::decode(&connection.receive_meta(header)?)?;
    // An empty shard has no partitions to wait with.
    exchange.await_view(connection_id, head.view, header.clock)?;
    Ok(exchange.push_rest(connection_id, outbox, header.clock, head)?)
}

pub fn receive_init(
    connection: &mut Connection,
    exchange: &ShardExchange,
    header: Header,
    connection_id: ConnectionId,
) -> Result<(), ShardConnectionError> {
    let updates = decode_u64(&connection.receive_meta(header)?)?;
    exchange.init(connection_id, header.clock, updates, |parts| {
        connection
            .receive_payload(header, parts)
            .map_err(ShardConnectionError::from)
    })?;
    Ok(connection.send(FrameKind::Ready, header.clock, &[], &[])?)
}

/// Receives a worker's residual; with a clock, the one after its push of the previous step.
pub fn receive_held(
    connection: &mut Connection,
    exchange: &ShardExchange,
    header: Header,
    connection_id: ConnectionId,
) -> Result<(), ShardConnectionError> {
    let of = decode_task(&connection.receive_meta(header)?)?;
    let numbers = header.payload_bytes as usize / size_of::<f32>();
    // A residual with a push may belong to previous pieces. It is then read and discarded, like the
    // push.
    let fits = exchange.may_hold(numbers);
    if !fits && (header.clock == 0 || numbers > exchange.most_held()) {
        return Err(WireError::Malformed("what a worker holds back").into());
    }
    let mut values = vec![0.0; numbers];
    connection.receive_payload(header, &mut [&mut values])?;
    if header.clock > 0 {
        if fits {
            exchange.hear_held(connection_id, header.clock, values);
        }
        return Ok(());
    }
    Ok(exchange.hold(connection_id, of, values)?)
}

/// Receives pieces of another shard.
pub fn receive_pieces(
    connection: &mut Connection,
    exchange: &ShardExchange,
    sender: TaskId,
) -> Result<(), ShardConnectionError> {
    let header = connection.receive()?;
    if header.kind != FrameKind::Handover {
        return Err(WireError::Unexpected { got: header.kind }.into());
    }
    let handover: Handover = serde_json::from_slice(&connection.receive_meta(header)?)
        .map_err(|_| WireError::Malformed("word of a handover"))?;
    exchange.receive(sender, handover, |parts| {
        connection
            .receive_payload(header, parts)
            .map_err(ShardConnectionError::from)
    })?;
    Ok(connection.send(FrameKind::Ready, 0, &[], &[])?)
}

pub fn send_json(
    connection: &mut Connection,
    kind: FrameKind,
    clock: u64,
    value: &impl serde::Serialize,
) -> Result<(), WireError> {
    let text = serde_json::to_vec(value).expect("plain data");
    connection.send(kind, clock, &text, &[])
}

/// Like [`reply`], to a worker that was sent the parameters in partitions, after all of them were
/// sent.
pub fn reply_after_parts(
    connection: &mut Connection,
    exchange: &ShardExchange,
    answer: ShardAnswer,
    outbox: &PartitionOutbox,
) -> Result<Vec<f32>, ShardConnectionError> {
    let _floor = outbox.floor();
    let ShardAnswer::Parameters {
        view,
        clock,
        stats,
        slowest,
        noise,
        buffer,
        ..
    } = answer
    else {
        return reply(connection, exchange, answer);
    };
    if let Some(view) = view {
        send_json(connection, FrameKind::View, clock, &*view)?;
    }
    let head = AnswerHead {
        stats,
        slowest,
        noise,
    };
    connection.send(FrameKind::Rest, clock, &head.encode(), &[])?;
    Ok(buffer)
}

/// Sends the answer, unless this shard has been replaced. Returns the buffer for the next push.
pub fn reply(
    connection: &mut Connection,
    exchange: &ShardExchange,
    answer: ShardAnswer,
) -> Result<Vec<f32>, ShardConnectionError> {
    if exchange.is_superseded() {
        return Err(ShardConnectionError::Superseded);
    }
    match answer {
        ShardAnswer::Parameters {
            view,
            clock,
            stats,
            slowest,
            noise,
            tensors,
            deltas,
            keeps,
            buffer,
            copied,
        } => {
            if let Some(view) = view {
                send_json(connection, FrameKind::View, clock, &*view)?;
            }
            if keeps && deltas.is_some() {
                connection.send(FrameKind::Keep, clock, &[], &[])?
            } else if keeps {
                connection.send(FrameKind::Fetch, 0, &[], &[])?
            }
            let meta = AnswerHead {
                stats,
                slowest,
                noise,
            }
            .encode();
            if let Some(deltas) = deltas {
                connection.send_bytes(FrameKind::Deltas, clock, &meta, &deltas)?;
            } else if copied {
                connection.send(FrameKind::Parameters, clock, &meta, &[&buffer])?;
            } else {
                let tensors = tensors.read().expect("no update has panicked");
                connection.send(FrameKind::Parameters, clock, &meta, &[tensors.known()])?;
            }
            Ok(buffer)
        }
        ShardAnswer::HandOver { clock, buffer, .. } => {
            connection.send(FrameKind::Fetch, clock, &[], &[])?;
            Ok(buffer)
        }
        ShardAnswer::Moved { view, buffer } => {
            send_json(connection, FrameKind::Moved, 0, &*view)?;
            Ok(buffer)
        }
        ShardAnswer::Absent { buffer } => {
            connection.send(FrameKind::Absent, 0, &[], &[])?;
            Ok(buffer)
        }
        ShardAnswer::Gone { departed, buffer } => {
            send_json(connection, FrameKind::Gone, 0, &departed)?;
            Ok(buffer)
        }
        ShardAnswer::Norm { clock, square } => {
            connection.send(FrameKind::Norm, clock, &square.to_bits().to_le_bytes(), &[])?;
            Ok(Vec::new())
        }
        ShardAnswer::Interrupted {
            version,
            lost,
            buffer,
        } => {
            connection.send(FrameKind::Interrupted, version, &[u8::from(lost)], &[])?;
            Ok(buffer)
        }
        ShardAnswer::Finished => {
            connection.send(FrameKind::Finished, 0, &[], &[])?;
            Ok(Vec::new())
        }
    }
}
