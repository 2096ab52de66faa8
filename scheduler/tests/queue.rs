//! Rounds that consider a part of the queue.

use crate::support::Store;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_model::wait::Wait;
use muster_scheduler::round::{self, RoundMemory};
use muster_sim::replay::{StoredRound, replay};

/// The smallest window.
const WINDOW: u32 = 16;

#[tokio::test]
async fn jobs_behind_window_get_wait_reason_and_start_in_order() {
    let store = Store::new().await;
    let mut jobs = Vec::new();
    for _ in 0..40 {
        jobs.push(store.submit((1, 1)).await);
    }
    let policy = Policy::named(PolicyName::Muster);
    let mut remembered = RoundMemory::new(WINDOW);
    let first = round::once(&store.pool, &policy, &mut remembered).await;
    let first = first.expect("a round");
    assert!(first.has_more, "24 jobs were not told yet");
    assert_eq!(first.report.jobs.len(), WINDOW as usize);
    assert_eq!(first.report.totals.waiting_jobs, 40);
    assert_eq!(first.queue["BehindEarlierJobs"], 24);
    let behind = Wait::BehindEarlierJobs { considered: WINDOW };
    for (number, is_behind) in [(15, false), (16, true), (39, true)] {
        let job = store.job(jobs[number]).await;
        let why = job.waiting.expect("it waits").why;
        assert_eq!(why == behind, is_behind, "{number}: {why:?}");
    }
    let second = round::once(&store.pool, &policy, &mut remembered).await;
    let second = second.expect("a round");
    assert!(second.is_idle() && !second.has_more, "nothing is new");
    // The stored round gives the same plan again.
    let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
    let kept = muster_store::round::get(&mut tx, 1).await.expect("read");
    let (_, kept) = kept.expect("it was kept");
    let bytes = zstd::decode_all(kept.snapshot_zstd.as_slice()).expect("zstd");
    let recorded = StoredRound {
        number: 1,
        policy: kept.policy.as_deref(),
        snapshot: std::str::from_utf8(&bytes).expect("text"),
        plan: &kept.plan,
        report: &kept.report,
    };
    assert!(replay(recorded, None).expect("readable").is_same());
}
