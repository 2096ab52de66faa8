//! Random mutations of external input: recorded byte streams against a live shard and the port of a
//! live peer, and files that a task reads. No panic occurs, memory allocations stay in proportion
//! to the input, and valid connections continue to work.
//!
//! A short run is part of every test run;
//! `cargo test -p muster-training --test files mutations -- --ignored` runs a hundred times as many
//! cases. A failure prints the minimised case.

use muster_comm::assign::ParameterPiece;
use muster_comm::fabric::{Credentials, ORDER, PeerChannel, PeerHello, PeerPort};
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, StepStats, SumHead};
use muster_comm::wire::{FrameKind, HEADER_BYTES, Header};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use muster_model::assignment::{Peers, TaskLaunch};
use muster_model::id::{JobId, TaskId, TenantId};
use muster_model::spec::{Consistency, JobSpec};
use muster_training::checkpoint::{
    Contents, ContentsSource as _, DataPosition, JobFolder, LossProgress, Manifest, NamedBlock,
    RANDOMNESS, TaskCounts,
};
use muster_training::shard::{Identity, Recipe, ShardExchange, ShardServer};
use muster_training::stop::StopFlag;
use muster_training::worker::{Reply, ShardAddress, Shards, first_view};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sha2::{Digest as _, Sha256};
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

const SIZE: usize = 1_000;
const CHIEF: TaskId = TaskId(Uuid::from_u128(1));
const SHARD: TaskId = TaskId(Uuid::from_u128(2));
const GUEST: TaskId = TaskId(Uuid::from_u128(3));

/// More than any test here sends, and more than the parsed form of the largest metadata takes.
const MOST: usize = 64 << 20;

const SHORT: u32 = 300;
const LONG: u32 = 30_000;

/// Allocator that records the largest allocation.
struct Watching;

static LARGEST: AtomicUsize = AtomicUsize::new(0);
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static MEMORY: Watching = Watching;

// SAFETY: all calls are forwarded to the system allocator; sizes are only recorded.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: forwarded unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Memory) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: forwarded unchanged.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Memory, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: forwarded unchanged.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Memory) {
        // SAFETY: forwarded unchanged.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Counts panics of all threads, also of detached ones.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            told(info);
        }));
    });
}

fn unharmed() {
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a thread has panicked");
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(
        largest <= MOST,
        "somebody was made to ask for {largest} bytes at once"
    );
}

/// One mutation of a recorded stream of frames. Numbers select positions for any length of the
/// stream.
#[derive(Debug, Clone)]
enum FrameMutation {
    /// At any position; the checksum is not corrected.
    FlipBit(usize),
    /// Kind of a frame; the checksum of its header is corrected.
    Kind(usize, u16),
    Clock(usize, u64),
    MetaBytes(usize, u32),
    PayloadBytes(usize, u64),
    /// Byte of the metadata.
    MetaByte(usize, usize, u8),
    PayloadByte(usize, usize, u8),
    Repeat(usize),
    Swap(usize, usize),
    Drop(usize),
    Cut(usize),
}

fn change() -> impl Strategy<Value = FrameMutation> {
    let any_at = any::<usize>;
    let number = prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 36),
        any::<u64>()
    ];
    let length = prop_oneof![Just(0), Just(u32::MAX), Just(4 << 20), 0u32..5_000];
    prop_oneof![
        any_at().prop_map(FrameMutation::FlipBit),
        (any_at(), 0u16..45).prop_map(|(at, kind)| FrameMutation::Kind(at, kind)),
        (any_at(), number.clone()).prop_map(|(at, clock)| FrameMutation::Clock(at, clock)),
        (any_at(), length).prop_map(|(at, bytes)| FrameMutation::MetaBytes(at, bytes)),
        (any_at(), number).prop_map(|(at, bytes)| FrameMutation::PayloadBytes(at, bytes)),
        (any_at(), any_at(), any::<u8>())
            .prop_map(|(at, to, byte)| FrameMutation::MetaByte(at, to, byte)),
        (any_at(), any_at(), any::<u8>())
            .prop_map(|(at, to, byte)| FrameMutation::PayloadByte(at, to, byte)),
        any_at().prop_map(FrameMutation::Repeat),
        (any_at(), any_at()).prop_map(|(one, other)| FrameMutation::Swap(one, other)),
        any_at().prop_map(FrameMutation::Drop),
        any_at().prop_map(FrameMutation::Cut),
    ]
}

/// Frame as it was sent: header, metadata, payload.
#[derive(Debug, Clone)]
struct SentFrame {
    header: [u8; HEADER_BYTES],
    meta: Vec<u8>,
    payload: Vec<u8>,
}

fn frames(mut recorded: &[u8]) -> Vec<SentFrame> {
    let mut out = Vec::new();
    while !recorded.is_empty() {
        let (header, rest) = recorded.split_at(HEADER_BYTES);
        let header: [u8; HEADER_BYTES] = header.try_into().unwrap();
        let told = Header::decode(&header).unwrap();
        let (meta, rest) = rest.split_at(told.meta_bytes as usize);
        let (payload, rest) = rest.split_at(told.payload_bytes as usize);
        out.push(SentFrame {
            header,
            meta: meta.to_vec(),
            payload: payload.to_vec(),
        });
        recorded = rest;
    }
    out
}

impl SentFrame {
    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.header[at..at + bytes.len()].copy_from_slice(bytes);
        let checksum = crc32fast::hash(&self.header[..28]);
        self.header[28..].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn put(bytes: &mut [u8], at: usize, byte: u8) {
    if !bytes.is_empty() {
        bytes[at % bytes.len()] = byte;
    }
}

fn changed(recorded: &[SentFrame], changes: &[FrameMutation]) -> Vec<u8> {
    let mut frames = recorded.to_vec();
    for change in changes {
        let count = frames.len();
        if count == 0 {
            break;
        }
        match *change {
            FrameMutation::Kind(at, kind) => frames[at % count].set(6, &kind.to_le_bytes()),
            FrameMutation::Clock(at, clock) => frames[at % count].set(8, &clock.to_le_bytes()),
            FrameMutation::MetaBytes(at, bytes) => frames[at % count].set(16, &bytes.to_le_bytes()),
            FrameMutation::PayloadBytes(at, bytes) => {
                frames[at % count].set(20, &bytes.to_le_bytes())
            }
            FrameMutation::MetaByte(at, to, byte) => put(&mut frames[at % count].meta, to, byte),
            FrameMutation::PayloadByte(at, to, byte) => {
                put(&mut frames[at % count].payload, to, byte)
            }
            FrameMutation::Repeat(at) => frames.insert(at % count, frames[at % count].clone()),
            FrameMutation::Swap(one, other) => frames.swap(one % count, other % count),
            FrameMutation::Drop(at) => drop(frames.remove(at % count)),
            FrameMutation::FlipBit(_) | FrameMutation::Cut(_) => {}
        }
    }
    let mut bytes = Vec::new();
    for frame in &frames {
        for part in [&frame.header[..], &frame.meta, &frame.payload] {
            bytes.extend_from_slice(part);
        }
    }
    for change in changes {
        let bits = bytes.len() * 8;
        match *change {
            FrameMutation::FlipBit(at) if bits > 0 => bytes[at % bits / 8] ^= 1 << (at % 8),
            FrameMutation::Cut(at) if bits > 0 => bytes.truncate(at % bytes.len()),
            _ => {}
        }
    }
    bytes
}

fn hello(task_id: TaskId, guest: ConnectionPurpose) -> Hello {
    Hello {
        job_id: JobId(Uuid::nil()),
        secret: "a".repeat(64),
        task_id,
        guest,
        to: None,
        says_held: false,
        plain_statistics: false,
    }
}

/// A shard that serves until it is stopped.
fn shard() -> (String, StopFlag) {
    let sgd = OptimizerConfig::new(UpdateRule::Sgd {
        lr: 1.0,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    });
    let identity = Identity {
        job_id: JobId(Uuid::nil()),
        task_id: SHARD,
        secret: "a".repeat(64),
    };
    let recipe = Recipe::weights(sgd, SIZE, 1);
    let exchange = ShardExchange::new(SHARD, recipe, Consistency::default(), 1);
    let shard = ShardServer::bind("127.0.0.1", identity, exchange).unwrap();
    let address = shard.address().to_string();
    let stop = StopFlag::new(Duration::from_secs(1));
    let told = stop.clone();
    thread::spawn(move || shard.serve(&told, &|_| {}));
    (address, stop)
}

/// The only worker of a job, after its start.
fn begun(address: &str) -> Shards {
    let addresses: [ShardAddress; 1] = [(SHARD, address.to_owned())];
    let mut shards =
        Shards::join(&addresses, SIZE, &hello(CHIEF, ConnectionPurpose::Chief)).unwrap();
    let contents = Contents {
        parameters: vec![1.0; SIZE],
        ..Contents::default()
    };
    let all = ParameterPiece {
        offset: 0,
        len: SIZE,
    };
    let view = first_view(1, vec![CHIEF], &addresses, &[all]);
    shards.begin(view, 0, 0, &contents).unwrap();
    shards
}

fn trains(shards: &mut Shards, step: u64) {
    let (stats, gradients) = (StepStats::default(), vec![0.25; SIZE]);
    let mut parameters = vec![0.0; SIZE];
    let reply = shards.push_pull(step, stats, &gradients, &mut parameters, &|| true);
    assert!(matches!(reply, Ok(Reply::Parameters { clock, .. }) if clock == step + 1));
    let expected = 1.0 - 0.25 * (step + 1) as f32;
    assert_eq!(
        parameters,
        vec![expected; SIZE],
        "nobody else has changed them"
    );
}

/// Records what the next client sends to `to` until it disconnects.
fn listen(listener: &TcpListener, to: &str) -> thread::JoinHandle<Vec<u8>> {
    let (mut client, _) = listener.accept().unwrap();
    let mut server = TcpStream::connect(to).unwrap();
    thread::spawn(move || {
        let mut sent = Vec::new();
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Write);
        });
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            sent.extend_from_slice(&buffer[..count]);
            let _ = server.write_all(&buffer[..count]);
        }
        let _ = server.shutdown(Shutdown::Write);
        sent
    })
}

/// Frames that a valid coordinator sends, from its handshake to its goodbye, recorded by a proxy;
/// and those of its second connection, which reads a checkpoint.
fn recorded() -> [Vec<SentFrame>; 2] {
    let (to, _) = shard();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let middle = thread::spawn(move || {
        let both = [listen(&listener, &to), listen(&listener, &to)];
        both.map(|sent| sent.join().unwrap())
    });
    let mut chief = begun(&address);
    trains(&mut chief, 0);
    trains(&mut chief, 1);
    let (mut parameters, own) = (vec![0.0; SIZE], vec![0.5; SIZE]);
    let stats = StepStats {
        examples: 1,
        ..StepStats::default()
    };
    let sum = SumHead::default();
    let replies = [
        chief.push_together(2, (sum, &own), (stats, &own), &mut parameters, &|| true),
        chief.await_or_push(3, stats, &own, &mut parameters, &|| true),
    ];
    for reply in replies {
        assert!(matches!(reply, Ok(Reply::Parameters { .. })), "{reply:?}");
    }
    chief.pull(&mut parameters, &|| true, &|| true).unwrap();
    let now = chief.snapshot(Contents::default()).unwrap();
    let (mut copied, draw) = chief.lend(Contents::default()).unwrap();
    draw.unwrap().fill(&mut copied.contents).unwrap();
    assert_eq!(copied, now);
    chief.done();
    middle.join().unwrap().map(|sent| frames(&sent))
}

/// The same frames with the handshake of a worker that is not in the view.
fn as_guest(recorded: &[SentFrame]) -> Vec<SentFrame> {
    let mut out = recorded.to_vec();
    out[0].meta = serde_json::to_vec(&hello(GUEST, ConnectionPurpose::Worker)).unwrap();
    let bytes = out[0].meta.len() as u32;
    out[0].set(16, &bytes.to_le_bytes());
    out
}

/// Sends all bytes and disconnects.
fn attack(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    // The other side may disconnect before all bytes are sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
    let _ = stream.read(&mut [0; 4096]);
}

fn run<S: Strategy>(cases: u32, strategy: S, mut test: impl FnMut(S::Value)) {
    watch();
    let config = Config {
        cases,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let test = std::cell::RefCell::new(&mut test);
    TestRunner::new(config)
        .run(&strategy, |value| {
            (test.borrow_mut())(value);
            Ok(())
        })
        .unwrap();
    unharmed();
}

fn a_shard_outlives(cases: u32) {
    let [recorded, drawing] = recorded();
    let kinds: Vec<FrameKind> = recorded
        .iter()
        .chain(&drawing)
        .map(|frame| Header::decode(&frame.header).unwrap().kind)
        .collect();
    for kind in [
        FrameKind::Hello,
        FrameKind::Change,
        FrameKind::Init,
        FrameKind::Push,
        FrameKind::Together,
        FrameKind::Await,
        FrameKind::Snapshot,
        FrameKind::Lend,
        FrameKind::Draw,
    ] {
        assert!(
            kinds.contains(&kind),
            "the stream has a {kind:?}: {kinds:?}"
        );
    }
    let (chief, guest) = (recorded.clone(), as_guest(&recorded));
    let (address, _) = shard();
    let mut honest = begun(&address);
    let mut step = 0;
    let strategy = (0usize..3, proptest::collection::vec(change(), 1..4));
    run(cases, strategy, |(who, changes)| {
        // A second connection as the coordinator has its secret and id, so only the shard's checks
        // protect it. It attacks a shard of its own; the shard of the valid coordinator is attacked
        // by a guest and by a checkpoint connection.
        let as_chief = who == 0;
        let bytes = changed([&chief, &guest, &drawing][who], &changes);
        if as_chief {
            let (other, stop) = shard();
            attack(&other, &bytes);
            stop.set();
        } else {
            attack(&address, &bytes);
        }
        if step % 16 == 0 {
            unharmed();
        }
        trains(&mut honest, step);
        step += 1;
    });
}

#[test]
fn shard_survives_mutated_frames() {
    a_shard_outlives(SHORT);
}

#[test]
#[ignore = "takes minutes: a hundred times as many cases"]
fn shard_survives_many_mutated_frames() {
    a_shard_outlives(LONG);
}

#[test]
fn port_survives_mutated_handshakes() {
    let credentials = Credentials {
        job_id: JobId(Uuid::nil()),
        secret: "ab".repeat(32),
        id: CHIEF,
        attempt: 1,
    };
    let port = PeerPort::bind("127.0.0.1", None, credentials.clone()).unwrap();
    let address = port.member().address.to_string();
    let greeting = serde_json::to_vec(&PeerHello {
        job_id: credentials.job_id,
        secret: credentials.secret.clone(),
        view: 1,
        from: GUEST,
        attempt: 1,
        to: CHIEF,
        channel: PeerChannel::Data,
        order: ORDER,
    })
    .unwrap();
    let header = Header {
        kind: FrameKind::Hello,
        clock: 1,
        meta_bytes: greeting.len() as u32,
        payload_bytes: 0,
    };
    let recorded = vec![SentFrame {
        header: header.encode(),
        meta: greeting,
        payload: Vec::new(),
    }];
    let changes = proptest::collection::vec(change(), 1..4);
    run(SHORT, changes, |changes| {
        attack(&address, &changed(&recorded, &changes));
    });
}

fn spec() -> JobSpec {
    serde_json::from_value(serde_json::json!({
        "version": "muster/v1",
        "name": "x",
        "engine": {
            "model": { "kind": "mlp", "hidden": [4] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1, "momentum": 0.9 },
            "batch": 32
        },
        "stop": { "epochs": 3 }
    }))
    .unwrap()
}

fn block(name: &str, offset: usize, len: usize) -> NamedBlock {
    NamedBlock {
        name: name.to_owned(),
        shape: vec![len],
        offset,
        len,
    }
}

fn manifest() -> Manifest {
    let spec = spec();
    Manifest {
        format: Manifest::FORMAT,
        job_id: JobId(Uuid::from_u128(9)),
        revision: 1,
        step: 7,
        position: DataPosition::at(7, 10, 320),
        consistency: spec.exchange.consistency,
        engine: spec.engine().clone(),
        randomness: RANDOMNESS.to_owned(),
        optimizer_updates: 7,
        layout: TaskCounts {
            workers: 1,
            ps_shards: 1,
        },
        curve: LossProgress::default(),
        blocks: vec![block("one", 0, 30), block("two", 30, 12)],
        state_planes: vec!["momentum".to_owned()],
        extras: vec![("rest".to_owned(), 5)],
        evaluation: None,
        part_bytes: 100,
        files: BTreeMap::new(),
    }
}

/// Mutates a text: a byte, or an integer in it.
fn edited(text: &[u8], edits: &[(usize, ByteMutation)]) -> Vec<u8> {
    let mut text = text.to_vec();
    for (at, edit) in edits {
        match edit {
            ByteMutation::Byte(byte) => put(&mut text, *at, *byte),
            ByteMutation::Number(number) => {
                let starts: Vec<usize> = (0..text.len())
                    .filter(|&i| {
                        text[i].is_ascii_digit() && (i == 0 || !text[i - 1].is_ascii_digit())
                    })
                    .collect();
                if let Some(&start) = starts.get(at % starts.len().max(1)) {
                    let digits = text[start..]
                        .iter()
                        .take_while(|byte| byte.is_ascii_digit());
                    let end = start + digits.count();
                    text.splice(start..end, number.bytes());
                }
            }
            ByteMutation::Cut => text.truncate(at % (text.len() + 1)),
        }
    }
    text
}

#[derive(Debug, Clone)]
enum ByteMutation {
    Byte(u8),
    Number(String),
    Cut,
}

fn edits() -> impl Strategy<Value = Vec<(usize, ByteMutation)>> {
    let number = prop_oneof![
        Just("0".to_owned()),
        Just("1".to_owned()),
        Just(u64::MAX.to_string()),
        Just((u64::MAX / 4).to_string()),
        Just((1u64 << 40).to_string()),
        Just("-1".to_owned()),
        Just("1e300".to_owned()),
        any::<u32>().prop_map(|number| number.to_string()),
    ];
    let edit = prop_oneof![
        2 => any::<u8>().prop_map(ByteMutation::Byte),
        6 => number.prop_map(ByteMutation::Number),
        1 => Just(ByteMutation::Cut),
    ];
    proptest::collection::vec((any::<usize>(), edit), 1..4)
}

/// Checksums are corrected, so that the code behind them is reached.
#[test]
fn mutated_manifest_causes_no_panic_or_large_allocation() {
    let root = tempfile::tempdir().unwrap();
    let (tenant, job) = (TenantId(Uuid::nil()), JobId(Uuid::from_u128(9)));
    let folder = JobFolder::new(root.path(), tenant, job, 1);
    folder.claim().unwrap();
    let contents = Contents {
        parameters: vec![1.0; 42],
        state: vec![vec![2.0; 42]],
        extras: vec![("rest".to_owned(), vec![3.0; 5])],
    };
    folder.write(&mut manifest(), &contents).unwrap();
    let place = folder.path().join("step-0000000007-r1");
    let text = std::fs::read(place.join("manifest.json")).unwrap();
    let sums = std::fs::read_to_string(place.join("SHA256SUMS")).unwrap();
    let aside = folder.path().join("damaged-step-0000000007-r1");
    run(SHORT * 4, edits(), |edits| {
        let text = edited(&text, &edits);
        let digest: String = Sha256::digest(&text)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let sums = format!("{digest}{}", &sums[64..]);
        std::fs::write(place.join("manifest.json"), &text).unwrap();
        std::fs::write(place.join("SHA256SUMS"), sums).unwrap();
        let _ = folder.newest_sound();
        if aside.exists() {
            std::fs::rename(&aside, &place).unwrap();
        }
    });
    std::fs::write(place.join("manifest.json"), &text).unwrap();
    std::fs::write(place.join("SHA256SUMS"), &sums).unwrap();
    let found = folder
        .newest_sound()
        .unwrap()
        .newest
        .expect("it is sound as it was");
    assert_eq!(found.contents, contents);
}

#[test]
fn mutated_task_files_cause_no_panic() {
    let id = "00000000-0000-7000-8000-000000000001";
    let peers = serde_json::json!({
        "revision": 3,
        "workers": [{ "task_id": id, "node_id": id, "address": null }],
        "ps_shards": [{ "task_id": id, "node_id": id, "address": "127.0.0.1:7000" }],
    });
    let peers = serde_json::to_vec(&peers).unwrap();
    assert!(serde_json::from_slice::<Peers>(&peers).is_ok());
    let launch = serde_json::json!({
        "task_id": id, "job_id": id, "tenant_id": id, "revision": 3, "role": { "kind": "worker", "rank": 0 },
        "workers": 1, "ps_shards": 1, "gpus": [], "cpu_milli": 100, "memory_bytes": 0, "secret": "00",
        "spec": spec(), "resume_step": null, "trained_s": 0.0, "grace_ms": 1,
    });
    let launch = serde_json::to_vec(&launch).unwrap();
    assert!(serde_json::from_slice::<TaskLaunch>(&launch).is_ok());
    let folder = tempfile::tempdir().unwrap();
    let task = muster_training::task::TaskFolder::new(folder.path());
    run(SHORT, edits(), |edits| {
        std::fs::write(folder.path().join("peers.json"), edited(&peers, &edits)).unwrap();
        std::fs::write(folder.path().join("task.json"), edited(&launch, &edits)).unwrap();
        let _ = task.peers();
        let _ = task.launch();
    });
}

#[test]
fn mutated_part_header_causes_no_panic_or_large_allocation() {
    let header = serde_json::json!({
        "__metadata__": { "format": "pt" },
        "one": { "dtype": "F32", "shape": [3, 10], "data_offsets": [0, 120] },
        "two": { "dtype": "F32", "shape": [12], "data_offsets": [120, 168] },
    });
    let header = serde_json::to_vec(&header).unwrap();
    assert!(muster_model::export::listed(&header).is_ok());
    run(SHORT * 4, edits(), |edits| {
        if let Ok(listed) = muster_model::export::listed(&edited(&header, &edits)) {
            for tensor in &listed {
                let _ = muster_model::export::onnx_head(tensor);
            }
            let _ = muster_model::export::safetensors_head(&listed);
        }
    });
}
