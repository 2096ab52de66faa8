//! Retention: deletes old rows, so that every table is bounded. `docs/limits.md` lists the rule of
//! each table.

use crate::clock;
use crate::config::SchedulerConfig;
use crate::passes;
use muster_store::pool::StorePool;
use muster_store::retention::{self, RetentionRules};
use std::time::Duration;

/// Delay of the first pass, because a new leader has more urgent work.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(3_600);
/// Maximum duration of a pass. The next pass continues.
const LIMIT: Duration = Duration::from_secs(1_800);

/// Runs a pass every hour.
pub async fn run(pool: &StorePool, config: &SchedulerConfig) {
    let keep = keep(config);
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = PAUSE;
        let pass = retention::once(pool, &keep, clock::now());
        if let Some(forgotten) = passes::one("retention", LIMIT, pass).await {
            tracing::info!(?forgotten, "removed what is old");
        }
    }
}

/// Retention times of the settings.
#[must_use]
pub fn keep(config: &SchedulerConfig) -> RetentionRules {
    let ended_s = config.keep_ended_jobs_s;
    RetentionRules {
        rounds: Duration::from_secs(config.keep_rounds_s),
        ended_jobs: (ended_s > 0).then_some(Duration::from_secs(ended_s)),
        deleted_jobs: Duration::from_secs(config.keep_deleted_jobs_s),
        events: Duration::from_secs(config.keep_events_s),
        gone_nodes: Duration::from_secs(config.keep_gone_nodes_s),
    }
}
