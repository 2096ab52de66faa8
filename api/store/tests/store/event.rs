//! Cursor of the history: events of late commits are shown late and never skipped.

use crate::world::{World, at};
use muster_model::event::Event;
use muster_store::event::{EventCursor, EventFilter, NewEvent, append, newest, page};
use muster_store::pool;

fn note(world: &World, message: &str) -> NewEvent {
    let event = Event::Note {
        message: message.to_owned(),
    };
    NewEvent {
        at: at(0),
        tenant_id: Some(world.red),
        job_id: None,
        node_id: None,
        event,
    }
}

async fn read(world: &World, cursor: &mut EventCursor, limit: u32) -> anyhow::Result<Vec<String>> {
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let events = page(&mut tx, EventFilter::default(), Some(*cursor), limit).await?;
    if let Some(last) = events.last() {
        *cursor = last.cursor;
    }
    let messages = events.into_iter().filter_map(|event| match event.event {
        Event::Note { message } => Some(message),
        _ => None,
    });
    Ok(messages.collect())
}

#[tokio::test]
async fn reader_sees_events_of_a_late_commit() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut cursor = EventCursor { xid: 0, seq: 0 };
    read(&world, &mut cursor, 100).await?;

    let mut slow = pool::begin(&world.scheduler).await?;
    append(&mut slow, &[note(&world, "slow 1")]).await?;
    let mut fast = pool::begin(&world.scheduler).await?;
    append(&mut fast, &[note(&world, "fast")]).await?;
    fast.commit().await?;
    // The fast transaction has the higher sequence number. If it were shown now, readers would skip
    // the slow one.
    assert_eq!(read(&world, &mut cursor, 100).await?, [""; 0]);
    append(&mut slow, &[note(&world, "slow 2")]).await?;
    slow.commit().await?;
    assert_eq!(
        read(&world, &mut cursor, 100).await?,
        ["slow 1", "slow 2", "fast"]
    );
    assert_eq!(read(&world, &mut cursor, 100).await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn pages_have_no_gap_or_overlap_during_concurrent_writes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut cursor = {
        let mut tx = pool::begin_for(&world.api, world.red).await?;
        newest(&mut tx).await?
    };
    let write = async |writer: u32| -> anyhow::Result<()> {
        for number in 0..25 {
            let mut tx = pool::begin(&world.scheduler).await?;
            append(
                &mut tx,
                &[
                    note(&world, &format!("{writer}-{number} a")),
                    note(&world, &format!("{writer}-{number} b")),
                ],
            )
            .await?;
            tx.commit().await?;
        }
        Ok(())
    };
    let mut collect = async || -> anyhow::Result<Vec<String>> {
        let mut seen = Vec::new();
        while seen.len() < 200 {
            seen.extend(read(&world, &mut cursor, 7).await?);
        }
        Ok(seen)
    };
    let (a, b, c, d, seen) = tokio::join!(write(0), write(1), write(2), write(3), collect());
    for written in [a, b, c, d] {
        written?;
    }
    let mut seen = seen?;
    for pair in seen.chunks(2) {
        assert_eq!(
            pair[0].replace('a', "b"),
            pair[1],
            "events of one transaction stay together, in order"
        );
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 200);
    Ok(())
}

#[test]
fn cursor_survives_a_round_trip_and_refuses_other_text() {
    let cursor = EventCursor {
        xid: u64::MAX,
        seq: 7,
    };
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    for text in [
        "",
        "1",
        "1-",
        "-1",
        "1--1",
        "a-1",
        "1-b",
        "1-1-1",
        "18446744073709551616-1",
    ] {
        assert!(text.parse::<EventCursor>().is_err(), "{text:?}");
    }
}
