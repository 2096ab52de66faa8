//! Progress samples through `report::record`, compared with the same rows by COPY and by UNNEST.

use crate::bare::{BarePostgres, TaskSample};
use crate::cluster::BenchCluster;
use crate::table::RatioRow;
use muster_model::assignment::TaskReport;
use muster_store::report::NodeReport;
use muster_testdb::TestDb;
use std::time::Instant;

const JOBS: u32 = 8;
/// Lines per report of a task after an executor's absence: 512 KiB of them.
const BACKLOG: u64 = 2_000;
const ROUNDS: usize = 5;
/// Reports per round.
const BACKLOG_REPORTS: usize = 10;
const LIVE_REPORTS: usize = 100;
const UNNEST_ROWS: usize = 1_000;

pub async fn measure(db: &TestDb) -> anyhow::Result<Vec<RatioRow>> {
    let mut cluster = BenchCluster::start(db, JOBS).await?;
    let mut bare = BarePostgres::start(&db.owner_url).await?;
    let mut backlog = [const { Vec::new() }; 3];
    let mut live = [const { Vec::new() }; 2];
    // The first round plans statements and fills caches.
    for round in 0..=ROUNDS {
        let reports: Vec<_> = (0..BACKLOG_REPORTS)
            .map(|_| cluster.backlog(BACKLOG))
            .collect();
        let told: Vec<TaskSample> = reports.iter().flat_map(rows).collect();
        let values = [
            rate(told.len(), cluster.record(&reports)).await?,
            rate(told.len(), bare.copy(&told)).await?,
            rate(told.len(), bare.unnest(&told, UNNEST_ROWS)).await?,
        ];
        keep(&mut backlog, values, round);
        let reports: Vec<_> = (0..LIVE_REPORTS).map(|_| cluster.live()).collect();
        let count = LIVE_REPORTS * JOBS as usize;
        let told: Vec<Vec<TaskSample>> = reports
            .iter()
            .map(|report| rows(report).collect())
            .collect();
        let values = [
            rate(count, cluster.record(&reports)).await?,
            rate(count, async {
                for told in &told {
                    bare.copy(told).await?;
                }
                Ok(())
            })
            .await?,
        ];
        keep(&mut live, values, round);
    }
    cluster.verify(&mut bare.conn).await?;
    let [ours, copy, unnest] = backlog;
    let how = |limit: &str| {
        format!(
            "one connection; {BACKLOG_REPORTS} reports of {BACKLOG} samples of a task, each report a transaction, as an executor sends \
             that was away; limit: {limit}; {ROUNDS} rounds"
        )
    };
    Ok(vec![
        RatioRow {
            what: "samples of a backlog, against COPY",
            unit: "1/s",
            how: how(
                "the same rows in one binary COPY into the same table without foreign keys and policies",
            ),
            ours: ours.clone(),
            limit: copy,
        },
        RatioRow {
            what: "samples of a backlog, against UNNEST",
            unit: "1/s",
            how: how(
                "the same rows in statements of 1,000 by UNNEST into that table, each a transaction",
            ),
            ours,
            limit: unnest,
        },
        RatioRow {
            what: "samples as they come, against COPY",
            unit: "1/s",
            how: format!(
                "one connection; {LIVE_REPORTS} reports of one sample each of {JOBS} jobs, each report a transaction, as an executor sends \
                 every second; limit: the {JOBS} rows in one binary COPY, each a transaction; {ROUNDS} rounds"
            ),
            ours: live[0].clone(),
            limit: live[1].clone(),
        },
    ])
}

fn keep<const SIDES: usize>(all: &mut [Vec<f64>; SIDES], values: [f64; SIDES], round: usize) {
    for (all, value) in all.iter_mut().zip(values) {
        if round > 0 {
            all.push(value);
        }
    }
}

async fn rate(count: usize, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<f64> {
    let began = Instant::now();
    work.await?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn rows(report: &NodeReport) -> impl Iterator<Item = TaskSample> {
    report.events.iter().flat_map(|run| {
        run.events.iter().map(|(at, line)| match line {
            // The tables of the limits identify the samples of a task by the task.
            TaskReport::Progress { sample } => (run.task_id.0, *at, sample.clone()),
            other => unreachable!("only samples are told here, not {other:?}"),
        })
    })
}
