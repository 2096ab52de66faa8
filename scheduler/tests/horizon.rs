//! Events that an open transaction delays: the scheduler reports their age and the transaction.

use crate::support::Store;
use muster_model::event::Event;
use muster_scheduler::clock;
use muster_scheduler::horizon::{self, HorizonWatch};
use muster_scheduler::metrics::{Metrics, Present};
use muster_store::event::{self, NewEvent};
use muster_store::horizon::HolderKind;
use muster_store::pool;
use std::time::Duration;

fn note() -> NewEvent {
    NewEvent {
        at: clock::now(),
        tenant_id: None,
        job_id: None,
        node_id: None,
        event: Event::Note {
            message: "told".to_owned(),
        },
    }
}

#[tokio::test]
async fn delayed_events_are_reported_with_blocking_transaction() {
    let store = Store::new().await;
    let (mut watched, now) = (HorizonWatch::default(), clock::instant());
    let second = Duration::from_secs(1);
    let mut open = pool::begin(&store.pool).await.expect("begun");
    event::append(&mut open, &[note()]).await.expect("written");
    let mut tx = pool::begin(&store.pool).await.expect("begun");
    event::append(&mut tx, &[note()]).await.expect("written");
    tx.commit().await.expect("committed");

    let first = horizon::once(&store.pool, &mut watched, now).await;
    let first = first.expect("a look");
    assert_eq!((first.waited, first.warning), (Duration::ZERO, None));
    let early = horizon::once(&store.pool, &mut watched, now + 10 * second).await;
    assert_eq!(early.expect("a look").warning, None);
    let late = horizon::once(&store.pool, &mut watched, now + 11 * second).await;
    let late = late.expect("a look");
    assert_eq!(late.waited, Duration::from_secs(11));
    let holder = late.warning.expect("a warning").expect("it is seen");
    assert!(
        matches!(&holder.kind, HolderKind::Session { application, .. } if application == "muster-scheduler"),
        "{holder}"
    );
    let again = horizon::once(&store.pool, &mut watched, now + 12 * second).await;
    assert_eq!(again.expect("a look").warning, None, "not at every look");

    open.rollback().await.expect("ended");
    let seen = horizon::once(&store.pool, &mut watched, now + 13 * second).await;
    assert_eq!(seen.expect("a look").waited, Duration::ZERO);
    let metrics = Metrics::default();
    metrics.event_horizon(late.waited);
    let present = Present {
        leads: true,
        connections: 0,
        idle: 0,
    };
    let text = metrics.text(present);
    assert!(
        text.contains("\nmuster_scheduler_event_horizon_age_seconds 11\n"),
        "{text}"
    );
}
