//! Workers and PS shards of one node share memory. Results are the same bits as over TCP, and TCP
//! is used if shared memory fails.

#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

use crate::rig::reports::samples;
use crate::rig::{self, Revision, Rig, RigLaunch, spec};
use crate::single::{SHARD, WORKER, begin, bound, hello};
use muster_comm::wire::local::{LocalListener, socket_name};
use muster_comm::wire::metadata::{Hello, StepStats};
use muster_comm::wire::{FrameKind, Header, WireError};
use muster_model::id::JobId;
use muster_model::task::Role;
use muster_training::shard::ShardServer;
use muster_training::stop::StopFlag;
use muster_training::worker::{Reply, ShardAddress, Shards};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

const SIZE: usize = 1_000_000;
/// Serves until its worker has left.
fn serve(shard: ShardServer) -> (SocketAddr, thread::JoinHandle<()>) {
    let address = shard.address();
    let served = thread::spawn(move || {
        let stop = StopFlag::new(Duration::from_secs(1));
        shard.serve(&stop, &|_| {}).unwrap();
    });
    (address, served)
}

/// Joins, trains two steps and leaves. Returns the number of shards with shared memory.
fn trains(address: SocketAddr, sockets: &Path) -> usize {
    let addresses: [ShardAddress; 1] = [(SHARD, address.to_string())];
    let mut shards = Shards::join_near(&addresses, SIZE, &hello(), Some(sockets)).unwrap();
    let near = shards.near();
    begin(&mut shards, &addresses[0], SIZE, vec![WORKER]);
    let mut parameters = vec![0.0; SIZE];
    for step in 0..2 {
        let gradients: Vec<f32> = (0..SIZE).map(|i| (i % 8) as f32).collect();
        let stats = StepStats::default();
        let reply = shards.push_pull(step, stats, &gradients, &mut parameters, &|| true);
        assert!(matches!(reply, Ok(Reply::Parameters { clock, .. }) if clock == step + 1));
        for (i, parameter) in parameters.iter().enumerate() {
            assert_eq!(*parameter, 1.0 - (step + 1) as f32 * (i % 8) as f32);
        }
    }
    shards.goodbye();
    near
}

fn place(folder: &Path, address: SocketAddr) -> PathBuf {
    folder.join(socket_name(SHARD, address.port()))
}

#[test]
fn shard_in_the_folder_uses_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (address, served) = serve(bound(SIZE, |recipe| recipe).near(folder.path()));
    assert!(place(folder.path(), address).exists());
    assert_eq!(trains(address, folder.path()), 1);
    served.join().unwrap();
    assert!(!place(folder.path(), address).exists());
}

/// File in the place of a shard's socket.
#[derive(Debug, Clone, Copy)]
enum Obstacle {
    Nothing,
    File,
    Folder,
    SocketWithoutListener,
    ListenerThatHangsUp,
    ListenerThatHangsUpOnGreeting,
    ListenerWithOtherProtocol,
}

impl Obstacle {
    fn put(self, path: &Path) {
        match self {
            Self::Nothing => {}
            Self::File => fs::write(path, "no socket").unwrap(),
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::SocketWithoutListener => drop(UnixListener::bind(path).unwrap()),
            Self::ListenerThatHangsUp => answering(path, drop),
            Self::ListenerThatHangsUpOnGreeting => answering(path, |mut stream| {
                let _ = stream.read(&mut [0; 4_096]);
            }),
            Self::ListenerWithOtherProtocol => answering(path, |mut stream| {
                let _ = stream.read(&mut [0; 4_096]);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            }),
        }
    }
}

#[test]
fn worker_uses_tcp_if_the_local_socket_is_not_the_shards() {
    for obstacle in [
        Obstacle::Nothing,
        Obstacle::File,
        Obstacle::Folder,
        Obstacle::SocketWithoutListener,
        Obstacle::ListenerThatHangsUp,
        Obstacle::ListenerThatHangsUpOnGreeting,
        Obstacle::ListenerWithOtherProtocol,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (address, served) = serve(bound(SIZE, |recipe| recipe));
        obstacle.put(&place(folder.path(), address));
        assert_eq!(trains(address, folder.path()), 0, "{obstacle:?}");
        served.join().unwrap();
    }
}

fn answering(path: &Path, answer: fn(UnixStream)) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            answer(stream);
        }
    });
}

#[test]
fn shard_without_a_local_socket_is_reached_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let (address, served) =
        serve(bound(SIZE, |recipe| recipe).near(&folder.path().join("missing")));
    assert_eq!(trains(address, folder.path()), 0);
    served.join().unwrap();
}

#[test]
fn refusal_over_the_local_socket_is_final() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _served) = serve(bound(SIZE, |recipe| recipe).near(folder.path()));
    let wrong = Hello {
        secret: "b".repeat(64),
        ..hello()
    };
    let other = Hello {
        job_id: JobId(Uuid::max()),
        ..hello()
    };
    for (hello, why) in [(wrong, "the secret is wrong"), (other, "another job")] {
        // No process listens at this TCP address: over TCP the connection would fail, and not be
        // refused.
        let addresses = [(SHARD, format!("127.0.0.2:{}", address.port()))];
        let joined = Shards::join_near(&addresses, SIZE, &hello, Some(folder.path()));
        let Err((0, WireError::Refused(reason))) = joined else {
            panic!("{joined:?}");
        };
        assert!(reason.contains(why), "{reason}");
    }
}

fn header(kind: FrameKind, meta_bytes: u32, payload_bytes: u64) -> Vec<u8> {
    let header = Header {
        kind,
        clock: 0,
        meta_bytes,
        payload_bytes,
    };
    header.encode().to_vec()
}

/// Unauthenticated peers on the local socket are closed as on TCP. A peer with the secret but
/// without memory occupies no place.
#[test]
fn foreign_peers_on_the_local_socket_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (address, served) = serve(bound(SIZE, |recipe| recipe).near(folder.path()));
    let path = place(folder.path(), address);
    let silent: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    let greeting = serde_json::to_vec(&hello()).unwrap();
    let whole = [header(FrameKind::Hello, greeting.len() as u32, 0), greeting].concat();
    let attempts = [
        b"GET / HTTP/1.1\r\nHost: shard\r\nAccept: */*\r\n\r\n".to_vec(),
        header(FrameKind::Push, 24, 400),
        header(FrameKind::Hello, 1 << 20, 0),
        header(FrameKind::Hello, 4, 1 << 36),
        [header(FrameKind::Hello, 2, 0), b"{}".to_vec()].concat(),
        whole,
    ];
    for attempt in attempts {
        let mut stream = UnixStream::connect(&path).unwrap();
        let _ = stream.write_all(&attempt);
        stream
            .set_read_timeout(Some(Duration::from_secs(4)))
            .unwrap();
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Ok(_) => assert!(said.is_empty(), "{said:?}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert_eq!(trains(address, folder.path()), 1);
    for mut stream in silent {
        stream
            .set_read_timeout(Some(Duration::from_secs(6)))
            .unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    served.join().unwrap();
}

#[test]
fn name_of_a_local_socket_contains_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let (door, _listener) = LocalListener::open(folder.path(), SHARD, 7).unwrap();
    assert_eq!(door.path(), folder.path().join("000000000002-7"));
}

/// A rig whose tasks share a socket folder, as the executor creates it.
fn meeting() -> Rig {
    let mut rig = Rig::new();
    let sockets = rig.root.path().join("meet");
    fs::create_dir(&sockets).unwrap();
    let sockets = sockets.to_str().unwrap().to_owned();
    rig.environment.push(("MUSTER_SOCKETS", sockets));
    rig
}

fn sockets(rig: &Rig) -> usize {
    fs::read_dir(rig.root.path().join("meet")).unwrap().count()
}

fn trained(rig: &Rig, more: Value, shares: &str) -> String {
    let mut running = rig.start(&RigLaunch::new(1, 2, 2, spec(more)));
    running.succeed();
    let said = running.chief().log();
    assert!(said.contains(shares), "{said}");
    rig.final_sha256(1)
}

/// Whole steps, steps in parts, and encoded steps.
#[test]
fn shared_memory_and_tcp_train_the_same_bits() {
    let large = json!({ "kind": "mlp", "hidden": [1024, 512] });
    let codec = json!({ "codec": { "kind": "one_bit" } });
    for more in [
        json!({}),
        json!({ "engine": { "model": large }, "stop": { "steps": 14 } }),
        json!({ "exchange": { "compression": codec } }),
    ] {
        let rig = meeting();
        let near = trained(&rig, more.clone(), "shares memory with 2 of 2 PS shards");
        assert_eq!(sockets(&rig), 0, "they went with the shards");
        let far = trained(&Rig::new(), more, "shares memory with 0 of 2 PS shards");
        assert_eq!(near, far);
    }
}

/// Number of mappings of shared memory in a task's process.
fn mapped(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:muster"));
    shared.count()
}

fn under_way(revision: &mut Revision) {
    revision.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
}

fn until_mapped(pid: u32, pieces: usize) {
    let began = Instant::now();
    while mapped(pid) != pieces {
        assert!(began.elapsed() < rig::PATIENCE, "{} pieces", mapped(pid));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Existing workers reach a new shard through memory, and a new worker reaches all shards; a shard
/// that leaves releases its memory.
#[test]
fn tasks_that_join_later_share_memory() {
    let rig = meeting();
    let document = spec(json!({ "stop": { "steps": 6_000 } }));
    let first = RigLaunch::new(1, 2, 1, document);
    let mut revision = rig.start(&first);
    under_way(&mut revision);
    let grown = RigLaunch {
        revision: 2,
        workers: 3,
        ps_shards: 3,
        ..first.clone()
    };
    rig.resize(&mut revision, &grown, &[0, 1], &[0]);
    revision
        .chief()
        .wait_for_log("3 workers, 3 PS shards; its first step");
    for rank in 0..3 {
        until_mapped(revision.task(Role::Worker { rank }).child.id(), 3);
    }
    let shrunk = RigLaunch {
        revision: 3,
        workers: 3,
        ps_shards: 2,
        ..first
    };
    rig.resize(&mut revision, &shrunk, &[0, 1, 2], &[2, 1]);
    for rank in 0..3 {
        until_mapped(revision.task(Role::Worker { rank }).child.id(), 2);
    }
    revision.terminate();
    revision.succeed();
    assert_eq!(sockets(&rig), 0);
}

#[test]
fn others_continue_without_a_killed_worker() {
    let rig = meeting();
    let document = spec(json!({ "stop": { "steps": 1_500 } }));
    let mut revision = rig.start(&RigLaunch::new(1, 3, 2, document));
    under_way(&mut revision);
    let worker = revision.task(Role::Worker { rank: 2 });
    assert_eq!(mapped(worker.child.id()), 2);
    worker.child.kill().unwrap();
    let codes = revision.wait();
    assert_eq!(codes, [0, 0, 0, 0, -1], "{}", revision.logs());
    let last = samples(&revision.chief().events()).pop().unwrap();
    assert_eq!((last.step, last.workers), (1_500, 2));
}

fn three_shards(replicas: u32) -> RigLaunch {
    let document = spec(json!({
        "exchange": { "shard_replicas": replicas },
        "stop": { "steps": 700 },
        "scale": { "workers": { "min": 1, "max": 2 }, "ps_shards": { "min": 2, "max": 3 } }
    }));
    RigLaunch::new(1, 2, 3, document)
}

/// The model equals that of an undisturbed run; the promoted replica is reached through memory like
/// its host.
#[test]
fn promoted_replica_over_shared_memory_has_the_same_bits() {
    let rig = meeting();
    let mut revision = rig.start(&three_shards(1));
    under_way(&mut revision);
    let shard = revision.task(Role::PsShard { index: 1 });
    shard.child.kill().unwrap();
    shard.child.wait().unwrap();
    revision.chief().wait_for_log("continues from step");
    // Two remaining shards and the promoted replica in one of them; the memory of the dead one is
    // released.
    until_mapped(revision.chief().child.id(), 3);
    let codes = revision.wait();
    assert_eq!(codes, [0, -1, 0, 0, 0], "{}", revision.logs());
    assert_eq!(sockets(&rig), 1, "that of the killed one");
    let undisturbed = Rig::new();
    undisturbed.start(&three_shards(0)).succeed();
    assert_eq!(rig.final_sha256(1), undisturbed.final_sha256(1));
}
