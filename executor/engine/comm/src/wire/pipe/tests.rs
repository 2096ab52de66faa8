use super::*;
use crate::memory::ring::CAPACITY;
use crate::wire::{Connection, FrameKind, Header, WireError};
use proptest::prelude::*;
use std::thread;

/// Two connected ends after a handshake with shared memory.
fn pair() -> (Connection, Connection) {
    let (here, there) = UnixStream::pair().unwrap();
    let (mut here, pipe) = Connection::offering(here).unwrap();
    let mut there = Connection::local(there);
    here.send(FrameKind::Hello, 0, b"{}", &[]).unwrap();
    let soon = clock::now() + Duration::from_secs(5);
    assert_eq!(there.receive_greeting(soon, 2).unwrap().1, b"{}");
    let theirs = there.take_memory().unwrap().expect("it came");
    here.carry(pipe);
    there.carry(theirs);
    (here, there)
}

/// Two connected ends of a pipe without frames.
fn pipes() -> (Pipe, Pipe) {
    let memory = SharedMapping::create(PIPE_BYTES).unwrap();
    let again =
        SharedMapping::open(memory.file().try_clone_to_owned().unwrap(), PIPE_BYTES).unwrap();
    let (arrivals, room) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    (
        Pipe::new(memory, arrivals.0, room.0, true),
        Pipe::new(again, arrivals.1, room.1, false),
    )
}

fn numbers(count: usize, salt: u64) -> Vec<f32> {
    (0..count)
        .map(|i| ((i as u64 * 2_654_435_761 + salt * 40_503) % 65_521) as f32)
        .collect()
}

fn send_all(connection: &mut Connection, sizes: &[(usize, usize)], salt: u64) {
    for (at, &(meta, floats)) in sizes.iter().enumerate() {
        let meta = vec![at as u8; meta];
        let floats = numbers(floats, salt + at as u64);
        let (first, rest) = floats.split_at(floats.len() / 3);
        let sent = connection.send(FrameKind::Push, at as u64, &meta, &[first, &[], rest]);
        sent.unwrap();
    }
}

fn receive_all(connection: &mut Connection, sizes: &[(usize, usize)], salt: u64) {
    for (at, &(meta, floats)) in sizes.iter().enumerate() {
        let header = connection.receive().unwrap();
        assert_eq!((header.kind, header.clock), (FrameKind::Push, at as u64));
        assert_eq!(
            connection.receive_meta(header).unwrap(),
            vec![at as u8; meta]
        );
        let mut got = vec![0.0; floats];
        let (first, rest) = got.split_at_mut(floats / 2);
        connection
            .receive_payload(header, &mut [first, &mut [], rest])
            .unwrap();
        assert!(got == numbers(floats, salt + at as u64), "frame {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn frames_arrive_intact_and_in_order_in_both_directions(
        there in prop::collection::vec((0usize..300, prop_oneof![0usize..40, 0usize..700_000]), 1..12),
        back in prop::collection::vec((0usize..300, prop_oneof![0usize..40, 0usize..700_000]), 1..12),
    ) {
        let (mut a, mut b) = pair();
        let (mut a_speaks, mut b_speaks) = (a.twin().unwrap(), b.twin().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| send_all(&mut a_speaks, &there, 1));
            scope.spawn(|| send_all(&mut b_speaks, &back, 1_000));
            scope.spawn(|| receive_all(&mut a, &back, 1_000));
            receive_all(&mut b, &there, 1);
        });
    }
}

/// Hangs if a wake-up is lost: each side sleeps before nearly every frame.
#[test]
fn sleeping_reader_is_woken_by_each_frame() {
    let (mut a, mut b) = pair();
    const ROUNDS: u64 = 20_000;
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                let header = b.receive().unwrap();
                b.send(FrameKind::Ready, header.clock, &[], &[]).unwrap();
            }
        });
        for round in 0..ROUNDS {
            a.send(FrameKind::Pull, round, &[], &[]).unwrap();
            let header = a.receive().unwrap();
            assert_eq!((header.kind, header.clock), (FrameKind::Ready, round));
        }
    });
}

/// The ring is full most of the time, and the reader takes pieces of varying lengths.
#[test]
fn a_writer_that_waits_for_room_is_woken_each_time() {
    let (a, b) = pipes();
    let total = 40 * CAPACITY + 13;
    let sent: Vec<u8> = (0..total).map(|i| (i * 31 / 7) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| a.send(&[IoSlice::new(&sent)]).unwrap());
        let (mut at, mut piece) = (0, 1);
        while at < total {
            piece = (piece * 7 + 3) % 300_001;
            let mut got = vec![0; piece.clamp(1, total - at)];
            b.receive(&mut [IoSliceMut::new(&mut got)]).unwrap();
            assert!(got == sent[at..at + got.len()]);
            at += got.len();
        }
    });
}

#[test]
fn frames_sent_before_the_peer_ends_are_still_read() {
    let (mut a, mut b) = pair();
    let mut twin = b.twin().unwrap();
    a.send(FrameKind::Pull, 7, &[], &[]).unwrap();
    drop(a);
    assert!(b.wait_readable(Duration::from_secs(5)).unwrap());
    assert_eq!(b.receive().unwrap().clock, 7);
    assert!(matches!(b.receive(), Err(WireError::Closed)));
    let waited = b.wait_readable(Duration::from_secs(5));
    assert!(matches!(waited, Err(WireError::Closed)));
    let full = numbers(CAPACITY, 1);
    let sent = twin.send(FrameKind::Push, 0, &[], &[&full]);
    assert!(matches!(sent, Err(WireError::Closed)), "{sent:?}");
}

#[test]
fn end_of_the_peer_wakes_reader_and_writer() {
    let (a, mut b) = pair();
    let mut twin = b.twin().unwrap();
    thread::scope(|scope| {
        let reads = scope.spawn(move || b.receive());
        let writes =
            scope.spawn(move || twin.send(FrameKind::Push, 0, &[], &[&numbers(CAPACITY, 1)]));
        thread::sleep(Duration::from_millis(50));
        assert!(!reads.is_finished() && !writes.is_finished());
        drop(a);
        assert!(matches!(reads.join().unwrap(), Err(WireError::Closed)));
        assert!(matches!(writes.join().unwrap(), Err(WireError::Closed)));
    });
}

#[test]
fn partial_frame_before_the_end_is_an_error() {
    let (a, b) = pipes();
    let header = Header {
        kind: FrameKind::Push,
        clock: 0,
        meta_bytes: 0,
        payload_bytes: 400,
    };
    a.send(&[IoSlice::new(&header.encode()), IoSlice::new(&[1; 100])])
        .unwrap();
    drop(a);
    let mut got = [0; 432];
    let read = b.receive(&mut [IoSliceMut::new(&mut got)]);
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

fn broken(done: io::Result<()>) -> bool {
    done.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

#[test]
fn invalid_ring_positions_are_errors() {
    for base in [0, RING_BYTES] {
        for side in [0, 128] {
            let (a, b) = pipes();
            let place = a.memory.at(base + side, 8).cast::<u64>();
            // SAFETY: the address is mapped and aligned, and no other thread accesses it.
            unsafe { place.write(1 << 62) };
            let mut got = [0; 4];
            let (reads, writes) = match (base, side) {
                (0, 0) => (Some(&b), None),
                (0, _) => (None, Some(&a)),
                (_, 0) => (Some(&a), None),
                _ => (None, Some(&b)),
            };
            if let Some(pipe) = reads {
                assert!(broken(pipe.receive(&mut [IoSliceMut::new(&mut got)])));
                let waited = pipe.wait(Duration::from_secs(1)).map(drop);
                assert!(broken(waited));
            }
            if let Some(pipe) = writes {
                assert!(broken(pipe.send(&[IoSlice::new(&got)])));
            }
        }
    }
}

#[test]
fn wait_ends_at_its_limit_or_when_data_arrives() {
    let (mut a, mut b) = pair();
    let began = clock::now();
    assert!(!b.wait_readable(Duration::from_millis(30)).unwrap());
    assert!(began.elapsed() >= Duration::from_millis(30));
    a.send(FrameKind::Pull, 0, &[], &[]).unwrap();
    assert!(b.wait_readable(Duration::ZERO).unwrap());
    assert!(
        b.wait_readable(Duration::ZERO).unwrap(),
        "it is still there"
    );
}

#[test]
fn send_times_out_for_a_stopped_peer_but_not_for_a_slow_one() {
    let (mut a, b) = pair();
    a.give_up_sending(Duration::from_millis(300)).unwrap();
    let much = numbers(CAPACITY, 1);
    let Err(WireError::Io { source, .. }) = a.send(FrameKind::Push, 0, &[], &[&much]) else {
        panic!("nobody takes it");
    };
    assert_eq!(source.kind(), io::ErrorKind::TimedOut);
    drop(b);

    let (a, b) = pipes();
    a.give_up_sending(Duration::from_millis(300));
    let much = vec![0; 2 * CAPACITY];
    thread::scope(|scope| {
        scope.spawn(|| {
            // Together longer than the limit.
            for _ in 0..8 {
                thread::sleep(Duration::from_millis(100));
                b.receive(&mut [IoSliceMut::new(&mut [0; 4_096])]).unwrap();
            }
            let mut rest = vec![0; 2 * CAPACITY - 8 * 4_096];
            b.receive(&mut [IoSliceMut::new(&mut rest)]).unwrap();
        });
        a.send(&[IoSlice::new(&much)]).unwrap();
    });
}

/// The reason must not be lost with the data that the peer was sending; the TCP path has the same
/// property.
#[test]
fn refusal_reaches_a_peer_that_is_still_sending() {
    let (mut a, b) = pair();
    let refusing = thread::spawn(move || b.refuse("not you"));
    a.send(FrameKind::Push, 0, &[], &[&numbers(CAPACITY, 1)])
        .unwrap();
    let header = a.receive().unwrap();
    let error = a.unexpected(header);
    assert!(matches!(error, WireError::Refused(reason) if reason == "not you"));
    assert!(matches!(a.receive(), Err(WireError::Closed)));
    drop(a);
    refusing.join().unwrap();
}

#[test]
fn handshake_without_valid_memory_maps_nothing() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut here = Connection::local(here);
    let mut there = Connection::local(there);
    here.send(FrameKind::Hello, 0, &[], &[]).unwrap();
    let soon = clock::now() + Duration::from_secs(5);
    there.receive_greeting(soon, 2).unwrap();
    assert!(there.take_memory().is_err());

    let (here, there) = UnixStream::pair().unwrap();
    let mut there = Connection::local(there);
    let header = Header {
        kind: FrameKind::Hello,
        clock: 0,
        meta_bytes: 0,
        payload_bytes: 0,
    };
    let files = [here.as_fd(), here.as_fd()];
    let sent = crate::memory::descriptor_passing::send(
        &here,
        &header.encode(),
        &files,
        SendFlags::empty(),
    );
    sent.unwrap();
    there.receive_greeting(soon, 2).unwrap();
    assert!(there.take_memory().is_err(), "a socket is no memory");
}
