//! Connections to a shard that are not its workers': the shard closes them, and the job is not
//! affected.

#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

use crate::single::{SHARD, WORKER, begin, bound, hello};
use muster_comm::compress::{CodecConfig, Codecs};
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, PushHead, StepStats};
use muster_comm::wire::{FrameKind, Header};
use muster_compute::model::ParameterRole;
use muster_model::id::TaskId;
use muster_training::shard::Recipe;
use muster_training::stop::StopFlag;
use muster_training::worker::{Reply, ShardAddress, ShardFailure, Shards};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

const SIZE: usize = 1_000;

/// A shard that serves until the process ends.
fn shard() -> String {
    shard_of(|recipe| recipe)
}

fn shard_of(change: impl FnOnce(Recipe) -> Recipe) -> String {
    let shard = bound(SIZE, change);
    let address = shard.address().to_string();
    thread::spawn(move || shard.serve(&StopFlag::new(Duration::from_secs(1)), &|_| {}));
    address
}

/// Whether the shard closes the connection within `limit`.
fn is_closed(stream: &mut TcpStream, limit: Duration) -> bool {
    let began = Instant::now();
    let mut sink = [0; 256];
    while let Some(left) = limit
        .checked_sub(began.elapsed())
        .filter(|left| !left.is_zero())
    {
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
    false
}

fn joined(address: &str) -> Shards {
    joined_with(address, vec![WORKER])
}

fn joined_with(address: &str, workers: Vec<TaskId>) -> Shards {
    let addresses: [ShardAddress; 1] = [(SHARD, address.to_owned())];
    let mut shards = Shards::join(&addresses, SIZE, &hello()).unwrap();
    begin(&mut shards, &addresses[0], SIZE, workers);
    shards
}

fn trains(shards: &mut Shards, step: u64) {
    let mut parameters = vec![0.0; SIZE];
    let reply = shards
        .push_pull(
            step,
            StepStats::default(),
            &vec![0.5; SIZE],
            &mut parameters,
            &|| true,
        )
        .unwrap();
    assert!(matches!(reply, Reply::Parameters { clock, .. } if clock == step + 1));
    assert_eq!(parameters, vec![1.0 - 0.5 * (step + 1) as f32; SIZE]);
}

fn header(kind: FrameKind, meta_bytes: u32, payload_bytes: u64) -> Vec<u8> {
    Header {
        kind,
        clock: 0,
        meta_bytes,
        payload_bytes,
    }
    .encode()
    .to_vec()
}

/// Returns pseudo-random bytes (xorshift).
fn random(state: &mut u64, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count);
    for _ in 0..count {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        bytes.push(*state as u8);
    }
    bytes
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let address = shard();
    let mut shards = joined(&address);
    trains(&mut shards, 0);
    let mut noise = 88_172_645_463_325_252u64;
    let mut attempts: Vec<Vec<u8>> = (0..40).map(|i| random(&mut noise, 32 + i * 50)).collect();
    attempts.push(b"GET / HTTP/1.1\r\nHost: shard\r\nAccept: */*\r\n\r\n".to_vec());
    // Valid frames with invalid content.
    attempts.push(header(FrameKind::Push, 24, SIZE as u64 * 4));
    attempts.push(header(FrameKind::Init, 8, 1 << 36));
    attempts.push(header(FrameKind::Snapshot, 0, 0));
    attempts.push(header(FrameKind::Lend, 0, 0));
    attempts.push(header(FrameKind::Draw, 0, 0));
    attempts.push(header(FrameKind::Done, 0, 0));
    attempts.push(header(FrameKind::Hello, 4096, 0));
    attempts.push(header(FrameKind::Hello, 4, 1 << 36));
    attempts.push([header(FrameKind::Hello, 2, 0), b"{}".to_vec()].concat());
    attempts.push([header(FrameKind::Hello, 9, 0), random(&mut noise, 9)].concat());
    for attempt in attempts {
        let mut stream = TcpStream::connect(&address).unwrap();
        // The shard may close before all bytes are sent.
        let _ = stream.write_all(&attempt);
        assert!(
            is_closed(&mut stream, Duration::from_secs(4)),
            "{:?}",
            &attempt[..8]
        );
    }
    trains(&mut shards, 1);
}

#[test]
fn silent_connections_time_out_and_do_not_delay_the_job() {
    let address = shard();
    let mut silent: Vec<TcpStream> = (0..60)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    // Half a header, then one byte per second: the limit applies to the whole handshake.
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(&header(FrameKind::Hello, 100, 0)[..16])
        .unwrap();
    let mut shards = joined(&address);
    trains(&mut shards, 0);
    for _ in 0..4 {
        thread::sleep(Duration::from_secs(1));
        let _ = slow.write_all(&[0]);
    }
    assert!(is_closed(&mut slow, Duration::from_secs(4)));
    assert!(
        silent
            .iter_mut()
            .all(|stream| is_closed(stream, Duration::from_secs(4)))
    );
    trains(&mut shards, 1);
}

#[test]
fn connections_above_the_limit_are_closed_at_once() {
    let address = shard();
    let _silent: Vec<TcpStream> = (0..64)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    thread::sleep(Duration::from_millis(200));
    let mut one_more = TcpStream::connect(&address).unwrap();
    assert!(is_closed(&mut one_more, Duration::from_secs(2)));
}

/// An accepted worker that violates the protocol is disconnected: its frames have exactly one valid
/// length.
#[test]
fn push_with_another_length_is_not_read() {
    let address = shard();
    let other = TaskId(Uuid::from_u128(3));
    let _chief = joined_with(&address, vec![WORKER, other]);
    let mut stream = TcpStream::connect(&address).unwrap();
    let greeting = serde_json::to_vec(&Hello {
        task_id: other,
        guest: ConnectionPurpose::Worker,
        ..hello()
    })
    .unwrap();
    stream
        .write_all(&[header(FrameKind::Hello, greeting.len() as u32, 0), greeting].concat())
        .unwrap();
    let mut welcome = [0; 32];
    stream.read_exact(&mut welcome).unwrap();
    let welcome = Header::decode(&welcome).unwrap();
    assert_eq!(welcome.kind, FrameKind::Welcome);
    stream
        .read_exact(&mut vec![0; welcome.meta_bytes as usize])
        .unwrap();
    let head = PushHead {
        targets: 1,
        view: 1,
        stats: StepStats::default(),
    };
    let mut push = header(FrameKind::Push, PushHead::BYTES as u32, SIZE as u64 * 4 + 4);
    push.extend(head.encode());
    stream.write_all(&push).unwrap();
    assert!(is_closed(&mut stream, Duration::from_secs(2)));
}

/// Starts a shard with encoding, whose first block has this role. Returns its address.
fn encoding_shard(role: ParameterRole) -> String {
    shard_of(|mut recipe| {
        recipe.blocks[0].role = role;
        recipe.with_codecs(Some(Codecs::uniform(CodecConfig::OneBit {})))
    })
}

fn join(address: &str, plain_statistics: bool) -> Result<(), ShardFailure> {
    let hello = Hello {
        plain_statistics,
        ..hello()
    };
    Shards::join(&[(SHARD, address.to_owned())], SIZE, &hello).map(drop)
}

/// A worker that encodes statistics expects other bytes than this shard; it is accepted if there
/// are none.
#[test]
fn worker_that_encodes_statistics_is_refused_if_there_are_any() {
    let said = serde_json::to_string(&hello()).unwrap();
    assert!(
        !said.contains("statistics"),
        "an older shard refuses {said}"
    );
    assert!(join(&encoding_shard(ParameterRole::Weight), false).is_ok());
    assert!(join(&encoding_shard(ParameterRole::Statistic), true).is_ok());
    let refused = join(&encoding_shard(ParameterRole::Statistic), false)
        .unwrap_err()
        .1;
    assert!(refused.to_string().contains("older release"), "{refused}");
}
