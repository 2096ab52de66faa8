//! One round: the stages in their order.

use crate::plan::{Decision, Plan};
use crate::policy::Policy;
use crate::report::RoundReport;
use crate::settle;
use crate::snapshot::Snapshot;

pub(crate) fn run(snapshot: &Snapshot, policy: &Policy) -> (Plan, RoundReport) {
    let settled = settle::settle(snapshot, policy);
    let decisions = settled
        .into_iter()
        .flat_map(|settled| {
            let job = settled.job;
            settled.actions.into_iter().map(move |action| Decision {
                job: job.id,
                expected_revision: job.revision,
                action,
            })
        })
        .collect();
    (
        Plan { decisions },
        RoundReport {
            round: snapshot.round,
            ..RoundReport::default()
        },
    )
}
