//! The trial itself: starts the cluster, submits the jobs at their times and waits for their ends.

use crate::settings::{TrialInputs, TrialSettings};
use crate::trainings::Trainings;
use anyhow::Context as _;
use muster_client::{Client, JobQuery};
use muster_clock::TrialClock;
use muster_e2e::clock;
use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::played::KIND;
use muster_lab::trace::Workload;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::JobView;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Real time between two looks at the jobs.
const LOOK: Duration = Duration::from_secs(1);
/// Real time between two lines of progress.
const LINE: Duration = Duration::from_secs(60);
/// Real time after the start of the cluster until the first submission.
const LEAD: Duration = Duration::from_secs(2);
/// Longer than any trial, in seconds of its clock.
const KEEP_S: u64 = 300_000_000;

/// A finished trial.
pub struct PlayedWorkload {
    /// Time of the trial's clock at the start of the workload, in seconds since 1970.
    pub start_s: f64,
    /// Jobs after their ends, in the order of the workload.
    pub jobs: Vec<JobView>,
}

/// Starts the cluster. Durations that the daemons compare with stored times are longer by the
/// rate; those of monotonic clocks are real.
pub async fn start(
    settings: &TrialSettings,
    inputs: &TrialInputs,
) -> anyhow::Result<(TestCluster, TrialClock)> {
    let real_ms = clock::now().unix_timestamp_nanos() / 1_000_000;
    let clock = TrialClock {
        rate: settings.rate,
        epoch_ms: i64::try_from(real_ms).expect("a date of this era"),
    };
    let start_limit_ms = 300_000 * u64::from(settings.rate.get());
    let groups = inputs.cluster.groups.iter();
    let mut groups = groups.filter_map(|group| Some((group.kind.clone()?, group)));
    let (kind, first) = groups.next().context("the profiles have no GPU kind")?;
    let environment = vec![
        (KIND, kind.clone()),
        ("MUSTER_EXECUTOR_CPU_SLOT_MODEL", kind),
        (muster_clock::VARIABLE, clock.value()),
        (
            "MUSTER_EXECUTOR_PASS_ENVIRONMENT",
            format!("PATH,HOME,LANG,TZ,{},{KIND}", muster_clock::VARIABLE),
        ),
        ("MUSTER_SCHEDULER_LEASE_MS", "60000".to_owned()),
        ("MUSTER_SCHEDULER_HEARTBEAT_MS", "2000".to_owned()),
        ("MUSTER_SCHEDULER_GRACE_MS", "10000".to_owned()),
        (
            "MUSTER_SCHEDULER_START_LIMIT_MS",
            start_limit_ms.to_string(),
        ),
        ("MUSTER_SCHEDULER_KEEP_ROUNDS_S", KEEP_S.to_string()),
        ("MUSTER_SCHEDULER_KEEP_EVENTS_S", KEEP_S.to_string()),
    ];
    let options = TestClusterOptions {
        nodes: first.nodes,
        slots: first.gpus,
    };
    let mut cluster = TestCluster::start_set(options, environment).await;
    for (kind, group) in groups {
        let slots = group.gpus.to_string();
        let settings = [
            (KIND, &*kind),
            ("MUSTER_EXECUTOR_CPU_SLOT_MODEL", &kind),
            ("MUSTER_EXECUTOR_CPU_SLOTS", &slots),
        ];
        for number in 0..group.nodes {
            cluster.join(&format!("{kind}-{number}"), &settings).await;
        }
    }
    Ok((cluster, clock))
}

/// Submits the jobs at their times and waits until all have ended.
pub async fn play(
    cluster: &TestCluster,
    clock: TrialClock,
    workload: &Workload,
    trainings: &Trainings,
) -> anyhow::Result<PlayedWorkload> {
    let client = cluster.client();
    let rate = f64::from(clock.rate.get());
    let start_s = now_s(clock) + LEAD.as_secs_f64() * rate;
    let mut submitted: Vec<JobId> = Vec::new();
    let (mut next_look, mut next_line) = (Instant::now(), Instant::now());
    loop {
        let at_s = now_s(clock) - start_s;
        let due = workload.jobs[submitted.len()..].iter();
        for job in due.take_while(|job| job.submitted_s <= at_s) {
            let document = trainings.document(job)?;
            submitted.push(client.submit(&document, None).await?.id);
        }
        if Instant::now() >= next_look {
            next_look = Instant::now() + LOOK;
            let open = open(client).await?;
            if Instant::now() >= next_line {
                next_line = Instant::now() + LINE;
                println!(
                    "{}",
                    line(at_s, &open, submitted.len(), workload.jobs.len())
                );
            }
            if open.is_empty() && submitted.len() == workload.jobs.len() {
                break;
            }
        }
        let next = workload.jobs.get(submitted.len());
        let left_s = next.map_or(f64::INFINITY, |job| (job.submitted_s - at_s) / rate);
        let left = Duration::from_secs_f64(left_s.clamp(0.001, 1.0));
        let look = next_look.saturating_duration_since(Instant::now());
        tokio::time::sleep(left.min(look)).await;
    }
    let all = client.all_jobs(&JobQuery::default()).await?;
    let by_id: BTreeMap<JobId, JobView> = all.into_iter().map(|job| (job.id, job)).collect();
    let jobs = submitted.iter().map(|id| by_id[id].clone()).collect();
    Ok(PlayedWorkload { start_s, jobs })
}

async fn open(client: &Client) -> anyhow::Result<Vec<JobView>> {
    let phases = JobPhase::ALL.into_iter();
    let query = JobQuery {
        phases: phases.filter(|phase| !phase.is_terminal()).collect(),
        ..JobQuery::default()
    };
    Ok(client.all_jobs(&query).await?)
}

fn line(at_s: f64, open: &[JobView], submitted: usize, jobs: usize) -> String {
    let waiting = open.iter().filter(|job| job.phase == JobPhase::Queued);
    let waiting = waiting.count();
    let slots: u32 = open.iter().map(|job| job.workers.running).sum();
    let restarts: u64 = open.iter().map(|job| job.revision.saturating_sub(1)).sum();
    format!(
        "{:>6.2} h: {submitted} of {jobs} submitted, {waiting} wait, {} run or start on {slots} slots, {} ended; {restarts} restarts of open jobs",
        at_s / 3_600.0,
        open.len() - waiting,
        submitted - open.len(),
    )
}

fn now_s(clock: TrialClock) -> f64 {
    clock.unix_ns(clock::now().unix_timestamp_nanos()) as f64 / 1e9
}
