//! Logs of tasks: in order, without repetition, up to their cap.

use crate::world::World;
use muster_model::id::TaskId;
use muster_store::log::{CAP_BYTES, LogAppendOutcome, append, offset_at, read, tail};
use muster_store::report::NodeReport;
use muster_store::{event, pool};
use time::{Duration, OffsetDateTime};

async fn task(world: &World) -> anyhow::Result<TaskId> {
    let job = world.submit("logs").await?;
    Ok(world.start(job, 0, &[0], 1).await?.0)
}

#[tokio::test]
async fn overlapping_pieces_are_joined_and_read_from_any_offset() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = task(&world).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(
        append(&mut tx, id, 0, b"abcd", OffsetDateTime::UNIX_EPOCH).await?,
        LogAppendOutcome::Stored
    );
    assert_eq!(
        append(&mut tx, id, 2, b"cdef", OffsetDateTime::UNIX_EPOCH).await?,
        LogAppendOutcome::Stored
    );
    assert_eq!(
        append(&mut tx, id, 0, b"abc", OffsetDateTime::UNIX_EPOCH).await?,
        LogAppendOutcome::Repeated
    );
    assert_eq!(
        append(&mut tx, id, 6, b"", OffsetDateTime::UNIX_EPOCH).await?,
        LogAppendOutcome::Repeated
    );
    assert_eq!(
        append(
            &mut tx,
            crate::world::id(),
            0,
            b"x",
            OffsetDateTime::UNIX_EPOCH
        )
        .await?,
        LogAppendOutcome::UnknownTask
    );
    for (offset, max, expected) in [
        (0, 100, "abcdef"),
        (1, 3, "bcd"),
        (3, 1, "d"),
        (5, 9, "f"),
        (6, 9, ""),
        (60, 9, ""),
    ] {
        let slice = read(&mut tx, id, offset, max)
            .await?
            .expect("the task is there");
        assert_eq!(
            (slice.bytes.as_slice(), slice.offset, slice.end),
            (expected.as_bytes(), offset.min(6), 6),
            "{offset} {max}"
        );
    }
    assert_eq!(
        tail(&mut tx, id, 2)
            .await?
            .map(|slice| (slice.offset, slice.bytes)),
        Some((4, b"ef".to_vec()))
    );
    Ok(())
}

#[tokio::test]
async fn readers_cross_a_gap_of_missing_pieces() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = task(&world).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    append(&mut tx, id, 0, b"ab", OffsetDateTime::UNIX_EPOCH).await?;
    append(&mut tx, id, 10, b"kl", OffsetDateTime::UNIX_EPOCH).await?;
    let first = read(&mut tx, id, 0, 100).await?.expect("the task is there");
    assert_eq!(
        (first.offset, first.bytes.as_slice(), first.end),
        (0, &b"ab"[..], 12)
    );
    let second = read(&mut tx, id, 2, 100).await?.expect("the task is there");
    assert_eq!((second.offset, second.bytes.as_slice()), (10, &b"kl"[..]));
    Ok(())
}

#[tokio::test]
async fn log_above_its_cap_keeps_the_newest_part_and_adds_a_note() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = task(&world).await?;
    let piece = vec![b'x'; 1 << 20];
    let pieces = CAP_BYTES / (1 << 20) + 4;
    for number in 0..pieces {
        let logs = vec![(id, number << 20, piece.clone())];
        world
            .report(
                &NodeReport {
                    logs,
                    ..NodeReport::default()
                },
                2,
            )
            .await?;
    }
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let slice = read(&mut tx, id, 0, u64::from(u32::MAX))
        .await?
        .expect("the task is there");
    assert_eq!(
        (slice.offset, slice.bytes.len() as u64, slice.end),
        (4 << 20, CAP_BYTES, pieces << 20)
    );
    let events = event::page(&mut tx, event::EventFilter::default(), None, 100).await?;
    assert_eq!(
        events
            .iter()
            .filter(|event| event.event.kind() == "note")
            .count(),
        1
    );
    Ok(())
}

#[tokio::test]
async fn output_is_found_by_the_time_of_its_arrival() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = task(&world).await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let at = |seconds| OffsetDateTime::UNIX_EPOCH + Duration::seconds(seconds);
    append(&mut tx, id, 0, b"ab", at(1)).await?;
    append(&mut tx, id, 2, b"cd", at(5)).await?;
    for (seconds, offset) in [(0, 0), (1, 0), (2, 2), (5, 2), (6, 4)] {
        assert_eq!(
            offset_at(&mut tx, id, at(seconds)).await?,
            offset,
            "{seconds}"
        );
    }
    let slice = read(&mut tx, id, 1, 100).await?.expect("the task is there");
    let pieces: Vec<_> = slice
        .pieces
        .iter()
        .map(|piece| (piece.offset, piece.received_at))
        .collect();
    assert_eq!(pieces, [(1, Some(at(1))), (2, Some(at(5)))]);
    Ok(())
}
