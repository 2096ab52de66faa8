//! Checkpoints of PS shards' state by snapshot streams during training: their content, and the
//! results if a shard is lost, has a newer snapshot or does not know the reader.

use crate::loopback::{LoopbackJob, forever, gradients, hello, shard, size, stats, train, worker};
use crate::relay::TcpRelay;
use crate::rig::{Rig, RigLaunch, spec};
use muster_comm::compress::CodecConfig;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello};
use muster_comm::wire::snapshot::SnapshotRangeHead;
use muster_comm::wire::{Connection, FrameKind, WireError, handshake};
use muster_model::id::{JobId, TenantId};
use muster_model::spec::{CheckpointPolicy, Consistency, JobSpec, Rate};
use muster_training::checkpoint::{
    CheckpointError, CheckpointWriter, Contents, ContentsSource, DataPosition, JobFolder,
    LossProgress, Manifest, NamedBlock, RANDOMNESS, TaskCounts, WriteAttempt, WriteKind,
    WriteOutcome,
};
use muster_training::shard::ShardEnd;
use muster_training::worker::{
    Reply, ShardAddress, ShardSnapshot, Shards, SnapshotStream, SnapshotStreamError,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use uuid::Uuid;

fn folder(root: &Path) -> JobFolder {
    let (tenant, job) = (TenantId(Uuid::from_u128(1)), JobId(Uuid::nil()));
    let folder = JobFolder::new(root, tenant, job, 1);
    folder.claim().unwrap();
    folder
}

fn manifest(step: u64, snapshot: &ShardSnapshot) -> Manifest {
    let spec: JobSpec = spec(json!({}));
    let extras = snapshot.contents.extras.iter();
    Manifest {
        format: Manifest::FORMAT,
        job_id: JobId(Uuid::nil()),
        revision: 1,
        step,
        position: DataPosition::at(step, 10, 100),
        engine: spec.engine().clone(),
        consistency: Consistency::default(),
        randomness: RANDOMNESS.to_owned(),
        optimizer_updates: snapshot.updates,
        layout: TaskCounts {
            workers: 2,
            ps_shards: 2,
        },
        curve: LossProgress::default(),
        blocks: vec![NamedBlock {
            name: "all".to_owned(),
            shape: vec![size()],
            offset: 0,
            len: size(),
        }],
        state_planes: vec!["first".to_owned(), "second".to_owned()],
        extras: extras.map(|(name, of)| (name.clone(), of.len())).collect(),
        evaluation: None,
        part_bytes: 1 << 20,
        files: BTreeMap::new(),
    }
}

fn writer(folder: &JobFolder) -> CheckpointWriter {
    let spared = Arc::new(|| Some(BTreeSet::new()));
    let policy = CheckpointPolicy::default();
    CheckpointWriter::start(folder.clone().into(), policy, spared, size(), 2).unwrap()
}

fn write(
    writer: &mut CheckpointWriter,
    step: u64,
    (snapshot, draw): (ShardSnapshot, SnapshotStream),
) -> WriteAttempt {
    let manifest = manifest(step, &snapshot);
    let source: Box<dyn ContentsSource> = Box::new(draw);
    writer.begin_from(
        WriteKind::Checkpoint,
        manifest,
        snapshot.contents,
        Some(source),
    );
    writer.wait(Duration::from_secs(60)).expect("in time")
}

fn lend(chief: &mut Shards) -> (ShardSnapshot, SnapshotStream) {
    let (snapshot, draw) = chief.lend(Contents::default()).unwrap();
    (snapshot, draw.expect("both are of this release"))
}

fn filled((mut snapshot, draw): (ShardSnapshot, SnapshotStream)) -> ShardSnapshot {
    draw.fill(&mut snapshot.contents).unwrap();
    snapshot
}

/// Wire error that is the reason of a failed source.
fn why<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a WireError {
    let error = error
        .downcast_ref::<SnapshotStreamError>()
        .expect("of a draw");
    &error.source
}

fn step(shards: &mut Shards, rank: u32, at: u64) {
    let mut parameters = vec![0.0; size()];
    let gradients = gradients(rank, at);
    let reply = shards.push_pull(at, stats(rank), &gradients, &mut parameters, &forever);
    let reply = reply.unwrap();
    assert!(matches!(reply, Reply::Parameters { .. }), "{reply:?}");
}

#[test]
fn snapshot_stays_at_its_step_until_it_is_read() {
    let one_bit = Some(CodecConfig::OneBit {});
    for codec in [None, one_bit] {
        let [stopped, other] = [0; 2].map(|_| match codec {
            Some(codec) => LoopbackJob::start_encoded(2, 2, codec),
            None => LoopbackJob::start(2, 2, Consistency::default()),
        });
        let (mut joined, ..) = train(stopped.joined(0), 0, 3);
        let expected = joined[0].snapshot(Contents::default()).unwrap();
        assert_eq!(expected.contents.extras.len(), usize::from(codec.is_some()));

        let (mut joined, ..) = train(other.joined(0), 0, 3);
        let lent = lend(&mut joined[0]);
        let (mut joined, ..) = train(joined, 3, 4);
        assert_eq!((lent.0.version(), lent.0.updates), (Some(3), 3));
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let attempt = write(&mut writer(&folder), 3, lent);
        assert!(matches!(
            attempt.outcome,
            Ok(WriteOutcome::Checkpoint { .. })
        ));
        let loaded = folder.newest_sound().unwrap().newest.unwrap().contents;
        assert!(loaded == expected.contents, "other bits, with {codec:?}");

        // The next snapshot is of the next step, in the same buffer.
        let lent = lend(&mut joined[0]);
        let now = joined[0].snapshot(Contents::default()).unwrap();
        assert_ne!(now.contents, expected.contents);
        assert_eq!(filled(lent), now);
    }
}

/// Pushes of other workers after a shard's snapshot are not in it.
#[test]
fn asp_snapshot_excludes_later_pushes() {
    let rate = Rate::Constant;
    let job = LoopbackJob::start(2, 2, Consistency::Asp { rate });
    let mut joined = job.joined(0);
    step(&mut joined[1], 1, 0);
    let expected = joined[0].snapshot(Contents::default()).unwrap();
    let lent = lend(&mut joined[0]);
    step(&mut joined[1], 1, 1);
    step(&mut joined[0], 0, 0);
    assert_eq!(filled(lent), expected);
}

#[test]
fn snapshot_contains_the_pieces_at_its_time() {
    let mut job = LoopbackJob::start(1, 2, Consistency::default());
    let (mut joined, ..) = train(job.joined(0), 0, 2);
    let mut chief = joined.pop().unwrap();
    let expected = chief.snapshot(Contents::default()).unwrap();
    let lent = lend(&mut chief);
    let addresses = [job.addresses.clone(), vec![job.start_shard(7)]].concat();
    resize(&mut chief, &addresses, 2);
    assert_eq!(filled(lent), expected, "drawn after pieces have moved");

    let expected = chief.snapshot(Contents::default()).unwrap();
    let all = lend(&mut chief);
    assert_eq!(filled(all), expected, "of the new pieces");

    // A shard without pieces ends.
    resize(&mut chief, &addresses[1..], 3);
    let gone = job.shards.remove(0);
    assert_eq!(gone.join().unwrap(), ShardEnd::Stopped);
    let expected = chief.snapshot(Contents::default()).unwrap();
    assert_eq!(filled(lend(&mut chief)), expected);
}

/// The coordinator, which is the only worker, continues with these shards from the step after `at`.
fn resize(chief: &mut Shards, addresses: &[ShardAddress], at: u64) {
    chief.approach(addresses).unwrap();
    let workers = vec![worker(0)];
    chief
        .change(2, workers, addresses, at + 1, Vec::new())
        .unwrap();
    step(chief, 0, at);
    chief.follow().unwrap();
    let moved = chief.audit().unwrap().expect("pieces moved");
    assert_eq!(moved.before, moved.after);
}

#[test]
fn read_of_a_replaced_snapshot_is_refused() {
    let job = LoopbackJob::start(2, 2, Consistency::default());
    let (mut joined, ..) = train(job.joined(0), 0, 1);
    let root = tempfile::tempdir().unwrap();
    let folder = folder(root.path());
    let mut writer = writer(&folder);
    let attempt = write(&mut writer, 1, lend(&mut joined[0]));
    assert!(attempt.outcome.is_ok());

    let stale = lend(&mut joined[0]);
    let newer = lend(&mut joined[0]);
    let attempt = write(&mut writer, 1, stale);
    let Err(error @ CheckpointError::Source(_)) = attempt.outcome else {
        panic!("a mixed checkpoint: {:?}", attempt.outcome);
    };
    assert!(error.is_passing());
    let CheckpointError::Source(source) = error else {
        unreachable!()
    };
    let reason = why(&*source).to_string();
    assert!(reason.contains("is not here any more"), "{reason}");
    // Its connections are closed, so the newer snapshot fails too; the next one is unaffected.
    let attempt = write(&mut writer, 1, newer);
    assert!(attempt.outcome.is_err_and(|error| error.is_passing()));
    let found = folder.newest_sound().unwrap();
    assert!(found.damaged.is_empty());
    assert_eq!(found.newest.unwrap().manifest.step, 1);

    let (mut joined, ..) = train(joined, 1, 2);
    let attempt = write(&mut writer, 3, lend(&mut joined[0]));
    assert!(attempt.outcome.is_ok(), "{:?}", attempt.outcome);
    assert_eq!(
        folder.newest_sound().unwrap().newest.unwrap().manifest.step,
        3
    );
}

#[test]
fn shard_lost_before_its_snapshot_is_read_fails_the_attempt() {
    let mut job = LoopbackJob::start(1, 2, Consistency::default());
    let relay = TcpRelay::to(&job.addresses[1].1);
    job.addresses[1].1 = relay.address();
    let (mut joined, ..) = train(job.joined(0), 0, 1);
    assert_eq!(relay.visits(), 1);
    let root = tempfile::tempdir().unwrap();
    let folder = folder(root.path());
    let mut writer = writer(&folder);
    assert!(write(&mut writer, 1, lend(&mut joined[0])).outcome.is_ok());
    assert_eq!(relay.visits(), 2, "one connection to draw by, which stays");
    let (mut joined, ..) = train(joined, 1, 1);
    let lent = lend(&mut joined[0]);
    assert_eq!(relay.visits(), 2);
    relay.cut();
    let attempt = write(&mut writer, 2, lent);
    assert!(attempt.outcome.is_err_and(|error| error.is_passing()));
    let found = folder.newest_sound().unwrap();
    assert_eq!(found.newest.unwrap().manifest.step, 1);
    let names = fs::read_dir(folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.contains("step")).count(), 1);
    let lost = joined[0].lend(Contents::default());
    assert!(
        matches!(lost, Err((1, _))),
        "as of any lost shard: {lost:?}"
    );
}

/// Opens the second connection with the handshake of `number`.
fn visit(
    address: &str,
    number: u32,
    change: impl FnOnce(&mut Hello),
) -> Result<Connection, WireError> {
    let mut hello = Hello {
        guest: ConnectionPurpose::Checkpoint,
        to: Some(shard(number)),
        ..hello(0)
    };
    change(&mut hello);
    handshake(address, &hello, Duration::from_secs(5)).map(|(connection, _)| connection)
}

/// Requests a range of a snapshot. Returns its values.
fn ask(
    connection: &mut Connection,
    version: u64,
    head: SnapshotRangeHead,
) -> Result<Vec<f32>, WireError> {
    connection.send(FrameKind::Draw, version, &head.encode(), &[])?;
    let header = connection.receive()?;
    if header.kind != FrameKind::Drawn {
        return Err(connection.unexpected(header));
    }
    let mut numbers = vec![0.0; header.payload_bytes as usize / 4];
    connection.receive_payload(header, &mut [&mut numbers])?;
    Ok(numbers)
}

fn head(count: u64, from: u64, numbers: u64) -> SnapshotRangeHead {
    SnapshotRangeHead {
        count,
        from,
        numbers,
    }
}

/// Checks that the shard refuses this range of a snapshot.
fn assert_refused(address: &str, version: u64, head: SnapshotRangeHead) {
    let mut connection = visit(address, 0, |_| {}).unwrap();
    let error = ask(&mut connection, version, head).unwrap_err();
    assert!(matches!(error, WireError::Refused(_)), "{error}");
}

#[test]
fn only_the_coordinator_reads_the_present_snapshot() {
    let job = LoopbackJob::start(2, 1, Consistency::default());
    let address = job.addresses[0].1.clone();
    let before = visit(&address, 0, |_| {}).unwrap_err();
    assert!(before.to_string().contains("only the chief"), "{before}");
    let (mut joined, parameters, _) = train(job.joined(0), 0, 2);

    type Change = fn(&mut Hello);
    let strangers: [(Change, &str); 4] = [
        (
            |hello| hello.secret = "x".repeat(64),
            "the peer refused: the secret is wrong",
        ),
        (
            |hello| hello.job_id = JobId(Uuid::from_u128(9)),
            "the peer refused: this shard serves another job",
        ),
        (
            |hello| hello.task_id = worker(1),
            "the peer refused: only the chief may do this",
        ),
        (|hello| hello.to = Some(shard(5)), "does not live here"),
    ];
    for (change, said) in strangers {
        let refused = visit(&address, 0, change).unwrap_err().to_string();
        assert!(refused.ends_with(said), "{refused}");
    }

    assert_refused(&address, 0, head(0, 0, 1));
    drop(lend(&mut joined[0]));
    let mut open = visit(&address, 0, |_| {}).unwrap();
    assert_eq!(ask(&mut open, 2, head(1, 5, 7)).unwrap(), parameters[5..12]);
    assert_refused(&address, 2, head(2, 0, 1));
    assert_refused(&address, 3, head(1, 0, 1));
    let all = 3 * size() as u64;
    assert_eq!(ask(&mut open, 2, head(1, all - 1, 1)).unwrap().len(), 1);
    assert_refused(&address, 2, head(1, all, 1));
    assert_refused(&address, 2, head(1, u64::MAX, 1));
    // All other frames of this connection are ignored.
    let mut talker = visit(&address, 0, |_| {}).unwrap();
    talker.send(FrameKind::Done, 0, &[], &[]).unwrap();
    assert!(talker.receive().is_err());
    drop(lend(&mut joined[0]));
    assert!(matches!(
        ask(&mut open, 2, head(1, 0, 1)),
        Err(WireError::Refused(_))
    ));

    // The shard does not wait for any of these connections as for a worker.
    let _still = visit(&address, 0, |_| {}).unwrap();
    let (mut joined, ..) = train(joined, 2, 1);
    joined.remove(0).done();
    joined.into_iter().for_each(Shards::goodbye);
    assert_eq!(job.ends(), [ShardEnd::Finished]);
}

/// An older shard closes a connection whose handshake it cannot parse, as this listener does after
/// the first one.
#[test]
fn shard_without_snapshot_streams_is_read_directly() {
    let mut job = LoopbackJob::start(1, 2, Consistency::default());
    let relay = TcpRelay::to(&job.addresses[1].1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reached = listener.local_addr().unwrap().to_string();
    job.addresses[1].1 = reached;
    thread::spawn(move || {
        let (first, _) = listener.accept().unwrap();
        let to = std::net::TcpStream::connect(relay.address()).unwrap();
        let mut there = (first.try_clone().unwrap(), to.try_clone().unwrap());
        let mut back = (to, first);
        thread::spawn(move || std::io::copy(&mut there.0, &mut there.1));
        thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        listener.incoming().for_each(drop);
    });
    let (mut joined, ..) = train(job.joined(0), 0, 2);
    let expected = joined[0].snapshot(Contents::default()).unwrap();
    let (read, draw) = joined[0].lend(Contents::default()).unwrap();
    assert!(draw.is_none());
    assert_eq!(read, expected);
    train(joined, 2, 1);
}

/// Files and updates of the checkpoint of step 8, from the manifest of a job of this many steps.
fn eighth_checkpoint(steps: u64) -> (serde_json::Value, serde_json::Value) {
    let rig = Rig::new();
    let document = json!({
        "engine": { "optimizer": { "kind": "sgd", "learning_rate": 0.1, "momentum": 0.9 } },
        "checkpoint": { "every_steps": 8, "every_minutes": null, "keep": 5 },
        "stop": { "steps": steps },
    });
    let mut revision = rig.start(&RigLaunch::new(1, 2, 2, spec(document)));
    revision.succeed();
    let manifest = rig.job_folder().join("step-0000000008-r1/manifest.json");
    let manifest = fs::read(manifest).unwrap_or_else(|_| panic!("{}", revision.logs()));
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let logs = revision.logs();
    assert!(!logs.contains("lost"), "{logs}");
    (
        manifest["files"].clone(),
        manifest["optimizer_updates"].clone(),
    )
}

/// Step 8 of a job: a snapshot that was read during training equals the checkpoint at the end of a
/// job that stops there.
#[test]
fn checkpoint_during_training_equals_the_one_of_a_stop() {
    let (drawn, stopped) = (eighth_checkpoint(20), eighth_checkpoint(8));
    for file in ["model.safetensors", "optimizer.safetensors"] {
        assert_eq!(drawn.0[file], stopped.0[file], "{file}");
    }
    assert_eq!(drawn.1, stopped.1);
}
