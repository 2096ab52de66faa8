//! The scheduler on a real Postgres with real gRPC sessions: jobs through rounds and reports, lost
//! nodes, replaced sessions, and two schedulers of which one leads.

use crate::support::{Node, Shell, Store, TOKEN, sample};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::job::JobPhase;
use muster_model::progress::Sample;
use muster_model::question::{Answer, Question};
use muster_model::spec::AllowedPreemption;
use muster_model::task::{Outcome, Role};
use muster_model::tenant::TenantPreemptionChange;
use muster_model::wait::Wait;
use muster_proto::session::to_node::Message as To;
use muster_scheduler::question::{self, ServedTenants};
use muster_scheduler::session::MAX_UNPROVEN_BYTES;
use muster_scheduler::{clock, forecast};
use muster_sim::replay::{StoredRound, replay};
use muster_store::plan::Loader;
use muster_store::pool;

const LEASE_MS: u64 = 30_000;

#[tokio::test]
async fn job_runs_from_submission_to_success() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let job = store.submit((2, 2)).await;
    store
        .until(job, "a reason to wait, since there is no node", |job| {
            let waiting = job.waiting.as_ref();
            waiting.is_some_and(|waiting| waiting.why != Wait::NotConsidered)
        })
        .await;

    let mut node = Node::dial(shell.address, "node-1", TOKEN, 2)
        .await
        .expect("welcome");
    let tasks = node.assignment(|tasks| tasks.len() == 3).await;
    assert_eq!(store.job(job).await.state.phase(), JobPhase::Starting);
    let gpus: Vec<u32> = tasks
        .iter()
        .flat_map(|task| task.launch.gpus.clone())
        .collect();
    assert!(
        gpus.len() == 2 && gpus[0] != gpus[1],
        "each worker has a GPU of its own: {gpus:?}"
    );
    assert!(
        tasks
            .iter()
            .all(|task| task.launch.secret == tasks[0].launch.secret && !task.stop)
    );

    let shard = tasks
        .iter()
        .find(|task| matches!(task.launch.role, Role::PsShard { .. }))
        .expect("a shard");
    let listens = TaskReport::Listening {
        address: "127.0.0.1:4242".into(),
    };
    node.report(shard, &Observed::Running, 0, &[listens]).await;
    let told = node
        .assignment(|tasks| {
            tasks
                .iter()
                .all(|task| task.peers.ps_shards[0].address.is_some())
        })
        .await;
    let peers = &told[0].peers;
    assert_eq!(
        peers.ps_shards[0].address.as_deref(),
        Some("127.0.0.1:4242")
    );
    assert_eq!((peers.revision, peers.workers.len()), (1, 2));

    for task in tasks
        .iter()
        .filter(|task| matches!(task.launch.role, Role::Worker { .. }))
    {
        node.report(task, &Observed::Running, 0, &[]).await;
    }
    store
        .until(job, "running", |job| job.state.phase() == JobPhase::Running)
        .await;

    let chief = tasks
        .iter()
        .find(|task| task.launch.role == Role::Worker { rank: 0 })
        .expect("a chief");
    let finished = TaskReport::Finished {
        step: 1000,
        reason: "steps".into(),
        model_path: "m".into(),
    };
    let gone = Observed::Gone {
        outcome: Outcome::exited(0),
    };
    node.report(chief, &gone, 0, &[finished]).await;
    store
        .until(job, "stopping", |job| {
            job.state.phase() == JobPhase::Stopping
        })
        .await;
    for task in tasks
        .iter()
        .filter(|task| task.launch.task_id != chief.launch.task_id)
    {
        node.report(task, &gone, 1, &[]).await;
    }
    store
        .until(job, "success", |job| {
            job.state.phase() == JobPhase::Succeeded
        })
        .await;
    every_round_replays_to_the_same_bytes(&store).await;
}

/// Replays each stored round and compares plan and report byte for byte.
async fn every_round_replays_to_the_same_bytes(store: &Store) {
    let mut tx = muster_store::pool::begin(&store.pool)
        .await
        .expect("a transaction");
    let rounds = muster_store::round::list(&mut tx, None, None, 100)
        .await
        .expect("rounds");
    assert!(
        rounds.len() >= 4,
        "start, up, stop and release took a round each: {}",
        rounds.len()
    );
    for summary in rounds {
        let (_, kept) = muster_store::round::get(&mut tx, summary.number)
            .await
            .expect("read")
            .expect("the round");
        let bytes = zstd::decode_all(kept.snapshot_zstd.as_slice()).expect("zstd");
        let policy = kept.policy.as_deref().expect("the policy is kept");
        let replayed = replay(
            StoredRound {
                number: summary.number,
                policy: Some(policy),
                snapshot: std::str::from_utf8(&bytes).expect("text"),
                plan: &kept.plan,
                report: &kept.report,
            },
            None,
        )
        .expect("readable");
        assert!(replayed.is_same(), "{replayed:?}");
        assert_eq!(replayed.differences, []);
    }
}

#[tokio::test]
async fn job_of_silent_node_is_queued_again() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, 1_000).await;
    shell.until_it_leads().await;
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let job = store.submit((1, 1)).await;
    let tasks = node.assignment(|tasks| tasks.len() == 2).await;
    for task in &tasks {
        node.report(task, &Observed::Running, 0, &[]).await;
    }
    store
        .until(job, "running", |job| job.state.phase() == JobPhase::Running)
        .await;
    drop(node);
    let waiting = store
        .until(job, "the queue", |job| {
            job.state.phase() == JobPhase::Queued
        })
        .await;
    assert_eq!(waiting.failures, 0, "a lost node is not the job's fault");

    // The node returns without the old tasks. The job starts there again with a new revision.
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let again = node
        .assignment(|tasks| tasks.len() == 2 && tasks.iter().all(|task| !task.stop))
        .await;
    assert!(again.iter().all(|task| task.launch.revision == 2));
    // A late report of the old revision has no effect.
    let late = Observed::Gone {
        outcome: Outcome::signalled(9),
    };
    node.report(
        &tasks[0],
        &late,
        0,
        &[TaskReport::Failed {
            message: "late".into(),
            retryable: false,
            lacks: None,
        }],
    )
    .await;
    for task in &again {
        node.report(task, &Observed::Running, 0, &[]).await;
    }
    store
        .until(job, "running again", |job| {
            job.state.phase() == JobPhase::Running && job.revision == 2
        })
        .await;
}

#[tokio::test]
async fn node_without_disk_space_gets_no_tasks_until_it_has_some() {
    const WHY: &str = "its disk has 12 MiB free of 1.0 GiB; it takes tasks again above 256 MiB";
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 4)
        .await
        .expect("welcome");
    node.heartbeat_saying(WHY).await;
    node.until_acknowledged().await.expect("it is heard");
    let excluded = async || {
        let mut tx = pool::begin(&store.pool).await.expect("a connection");
        let row = muster_store::node::get(&mut tx, "node-1").await;
        row.expect("read").expect("it is there").node.excluded
    };
    let told = excluded().await.expect("it is closed");
    assert_eq!((told.why.as_str(), told.by_itself), (WHY, true));
    let job = store.submit((1, 1)).await;
    store
        .until(job, "no node takes tasks", |job| {
            let why = job.waiting.as_ref().map(|waiting| &waiting.why);
            matches!(
                why,
                Some(Wait::NoMatchingNodes {
                    largest_node_gpus: 0,
                    ..
                })
            )
        })
        .await;
    node.heartbeat().await;
    node.assignment(|tasks| !tasks.is_empty()).await;
    assert_eq!(excluded().await, None);
}

/// As after a pause in which no heartbeat could be written.
#[tokio::test]
async fn session_of_lost_node_ends_at_its_next_heartbeat() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let mut tx = pool::begin(&store.pool).await.expect("a transaction");
    let heard = muster_store::node::heard(&mut tx).await.expect("read");
    let lost = muster_store::node::lost(&mut tx, &heard, clock::now()).await;
    assert_eq!(lost.expect("marked").len(), 1);
    tx.commit().await.expect("committed");

    node.heartbeat().await;
    let ended = loop {
        match node.next().await {
            Ok(To::HeartbeatAck(_)) => panic!("its lease is renewed, and nothing is given to it"),
            Ok(_) => {}
            Err(ended) => break ended,
        }
    };
    assert_eq!(ended.code(), tonic::Code::Aborted, "{ended}");
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let job = store.submit((1, 1)).await;
    node.assignment(|tasks| tasks.len() == 2).await;
    assert_eq!(store.job(job).await.state.phase(), JobPhase::Starting);
}

fn fast(steps_per_s: f64, gain: f64) -> Sample {
    Sample {
        steps_per_s,
        gain: Some(gain),
        ..sample()
    }
}

fn many(workers: u32, ps_shards: u32) -> Sample {
    Sample {
        workers,
        ps_shards,
        ..sample()
    }
}

/// Covers the contents of `events.jsonl` and `exit.json`, which programs can write.
#[tokio::test]
async fn files_of_program_do_not_block_reports_of_node() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let job = store.submit((1, 1)).await;
    let tasks = node.assignment(|tasks| tasks.len() == 2).await;
    for task in &tasks {
        node.report(task, &Observed::Running, 0, &[]).await;
        node.acknowledged().await;
    }
    let mut workers = tasks.iter();
    let chief = workers.find(|task| task.launch.role == Role::Worker { rank: 0 });
    let chief = chief.expect("a chief");
    let samples = [
        sample(),
        many(3_000_000_000, 0),
        many(1, 1 << 31),
        fast(1.7, 1e-308),
        fast(1.7, 1e-308),
        fast(1e30, 1e-308),
        sample(),
    ];
    for (number, sample) in (0..).zip(samples) {
        let told = [TaskReport::Progress { sample }];
        node.report(chief, &Observed::Running, number, &told).await;
        node.acknowledged().await;
    }
    let mut tx = pool::begin(&store.pool).await.expect("a transaction");
    let speeds = muster_store::progress::speeds_of(&mut tx, job).await;
    assert_eq!(speeds.expect("read"), [((1, 1), sample().steps_per_s)]);
    drop(tx);

    let outcome = Outcome::Exited {
        code: 1,
        said: Some("torn\0off".to_owned()),
    };
    node.report(chief, &Observed::Gone { outcome }, 7, &[])
        .await;
    node.acknowledged().await;
    store.until(job, "a failure", |job| job.failures == 1).await;
    let why = store.last_failure(job).await.expect("it has failed");
    assert!(why.contains("torn\u{fffd}off"), "{why}");
}

#[tokio::test]
async fn unknown_executors_are_refused_newer_session_replaces_older() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let refused = Node::dial(shell.address, "node-1", "another-token-altogether", 1)
        .await
        .err()
        .expect("refused");
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let refused = Node::dial(shell.address, "Not A Name", TOKEN, 1)
        .await
        .err()
        .expect("refused");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(
        refused.message().contains("node_name is \"Not A Name\""),
        "{}",
        refused.message()
    );
    let refused = Node::dial(shell.address, "node-1", TOKEN, 65)
        .await
        .err()
        .expect("refused");
    assert!(
        refused.message().contains("capacity.gpus"),
        "{}",
        refused.message()
    );

    let mut older = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let mut newer = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    let ended = loop {
        if let Err(ended) = older.next().await {
            break ended;
        }
    };
    assert_eq!(ended.code(), tonic::Code::Aborted, "{ended:?}");
    newer.heartbeat().await;
    assert!(newer.next().await.is_ok());
}

#[tokio::test]
async fn hello_above_its_bound_is_refused_before_it_is_decoded() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let long = "x".repeat(2 * MAX_UNPROVEN_BYTES);
    for token in ["another-token-altogether", TOKEN] {
        let refused = Node::dial_as(shell.address, "node-1", token, 1, &long).await;
        let refused = refused.err().expect("refused");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
    }
    let mut node = Node::dial(shell.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    for _ in 0..3 {
        node.report_log(vec![b'a'; MAX_UNPROVEN_BYTES]).await;
        node.acknowledged().await;
    }
}

#[tokio::test]
async fn second_scheduler_leads_after_first_has_ended() {
    let store = Store::new().await;
    let mut first = Shell::start(&store, LEASE_MS).await;
    first.until_it_leads().await;
    let mut second = Shell::start(&store, LEASE_MS).await;
    let refused = Node::dial(second.address, "node-1", TOKEN, 1)
        .await
        .err()
        .expect("refused");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    drop(first);
    second.until_it_leads().await;
    let job = store.submit((1, 1)).await;
    let mut node = Node::dial(second.address, "node-1", TOKEN, 1)
        .await
        .expect("welcome");
    node.assignment(|tasks| tasks.len() == 2).await;
    assert_eq!(store.job(job).await.revision, 1);
}

#[tokio::test]
async fn rounds_continue_after_crash_of_postgres() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    store.database.crash_and_restart();
    // The leader lost the lock with its connection, and acquires it again.
    let job = loop {
        if muster_store::pool::ping(&store.pool).await.is_ok() {
            break store.submit((1, 1)).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    let mut node = loop {
        match Node::dial(shell.address, "node-1", TOKEN, 1).await {
            Ok(node) => break node,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    };
    node.assignment(|tasks| tasks.len() == 2).await;
    assert_eq!(store.job(job).await.state.phase(), JobPhase::Starting);
}

#[tokio::test]
async fn old_rounds_are_deleted_and_newest_is_kept() {
    let store = Store::new().await;
    let day = std::time::Duration::from_secs(86_400);
    let now = muster_scheduler::clock::now();
    let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
    for (number, age_days) in [(1, 9), (2, 8), (3, 6)] {
        let record = muster_store::round::RoundRecord {
            number,
            snapshot_zstd: vec![1],
            policy: None,
            plan: "{}".to_owned(),
            report: "{}".to_owned(),
        };
        muster_store::round::insert(&mut tx, &record, now - day * age_days)
            .await
            .expect("inserted");
    }
    tx.commit().await.expect("committed");
    let config = crate::support::config(([127, 0, 0, 1], 0).into(), &store, LEASE_MS);
    let keep = muster_scheduler::retention::keep(&config);
    let forgotten = muster_store::retention::once(&store.pool, &keep, now)
        .await
        .expect("the scheduler's role may forget");
    assert_eq!(
        (forgotten.rounds, forgotten.answers, forgotten.jobs),
        (2, 0, 0)
    );
    let mut tx = muster_store::pool::begin(&store.pool).await.expect("begun");
    let left = muster_store::round::list(&mut tx, None, None, 10)
        .await
        .expect("listed");
    assert_eq!(
        left.iter().map(|round| round.number).collect::<Vec<_>>(),
        [3]
    );
}

#[tokio::test]
async fn forecast_of_live_job_is_stored_when_changed() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let _node = Node::dial(shell.address, "node-1", TOKEN, 2)
        .await
        .expect("welcome");
    let job = store.submit((1, 2)).await;
    store
        .until(job, "starting", |job| {
            job.state.phase() == JobPhase::Starting
        })
        .await;
    let policy = Policy::named(PolicyName::Muster);
    let mut told = forecast::LastForecasts::default();
    let kept = forecast::once(&store.pool, &policy, &mut told).await;
    assert_eq!(kept.expect("a forecast"), 1);
    let again = forecast::once(&store.pool, &policy, &mut told).await;
    assert_eq!(again.expect("a forecast"), 0, "nothing has changed");
    let made = store.forecast(job).await.expect("it was kept");
    assert_eq!(made.start, None, "it was placed already");
    let finish = made.finish.expect("an end");
    assert!(
        finish.p10 < finish.p50 && finish.p50 < finish.p90,
        "{finish:?}"
    );
    assert!(made.gpu_s > 0.0);
}

#[tokio::test]
async fn planning_question_is_answered_from_live_cluster() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, LEASE_MS).await;
    shell.until_it_leads().await;
    let _node = Node::dial(shell.address, "node-1", TOKEN, 2)
        .await
        .expect("welcome");
    let job = store.submit((2, 2)).await;
    store
        .until(job, "starting", |job| {
            job.state.phase() == JobPhase::Starting
        })
        .await;
    let mut imagined = store.job(job).await.spec;
    imagined.name = "imagined".to_owned();
    let asked = store
        .ask(Question::Plan {
            job: Box::new(imagined),
            begins: 0,
        })
        .await;
    let policy = Policy::named(PolicyName::Muster);
    let mut served = ServedTenants::default();
    let answered = question::once(&store.pool, &policy, &mut served).await;
    assert!(answered.expect("answers"));
    let Some(Answer::Plan { plan }) = store.answer(asked).await else {
        panic!("no plan");
    };
    let (start, finish) = (plan.start.expect("a start"), plan.finish.expect("an end"));
    assert!(plan.made_at < start.p50, "the cluster is full");
    assert!(
        start.p50 < finish.p50 && finish.p10 < finish.p90,
        "{finish:?}"
    );
    assert!(plan.gpu_hours > 0.0);
    let again = question::once(&store.pool, &policy, &mut served).await;
    assert!(!again.expect("looks"));
}

#[tokio::test]
async fn executor_without_data_folder_waits_until_tasks_are_lost() {
    let store = Store::new().await;
    let mut shell = Shell::start(&store, 2_000).await;
    shell.until_it_leads().await;
    let dial =
        async |identity: &str| Node::dial_as(shell.address, "node-1", TOKEN, 1, identity).await;
    let mut first = dial("first").await.expect("welcome");
    let job = store.submit((1, 1)).await;
    let tasks = first.assignment(|tasks| tasks.len() == 2).await;
    for task in &tasks {
        first.report(task, &Observed::Running, 0, &[]).await;
    }
    store
        .until(job, "running", |job| job.state.phase() == JobPhase::Running)
        .await;
    drop(first);

    let refused = dial("second")
        .await
        .err()
        .expect("it knows nothing of the tasks");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    assert_eq!(
        store.job(job).await.state.phase(),
        JobPhase::Running,
        "they may run still"
    );
    drop(
        dial("first")
            .await
            .expect("its own folder is as good as before"),
    );
    let mut second = loop {
        match dial("second").await {
            Ok(node) => break node,
            Err(status) => assert_eq!(status.code(), tonic::Code::Unavailable, "{status}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let again = second
        .assignment(|tasks| tasks.len() == 2 && tasks.iter().all(|task| !task.stop))
        .await;
    for task in &again {
        assert_eq!(task.launch.revision, 2, "none is launched a second time");
    }
}

/// A command at its time limit has failed; the built-in engine has finished.
#[tokio::test]
async fn time_limit_is_length_of_engine_jobs_and_not_of_commands() {
    let store = Store::new().await;
    let stop = serde_json::json!({ "wall_minutes": 10 });
    let program = serde_json::json!({
        "version": "muster/v1", "name": "program", "stop": stop, "command": { "argv": ["train"] },
    });
    let engine = serde_json::json!({
        "version": "muster/v1", "name": "engine", "stop": stop,
        "engine": {
            "model": { "kind": "mlp", "hidden": [8] }, "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 64,
        },
    });
    store.submit_document(program).await;
    store.submit_document(engine).await;
    let (snapshot, _) = forecast::live(&store.pool, &mut Loader::new(100))
        .await
        .expect("a snapshot");
    let [program, engine] = ["program", "engine"].map(|name| {
        let job = snapshot.jobs.iter().find(|job| job.name == name);
        let job = job.expect("it is there");
        (job.limit_s, job.lasts.map(|lasts| lasts.middle_s))
    });
    assert_eq!(program, (Some(600.0), None));
    assert_eq!(engine, (None, Some(600.0)));
}

/// As a lowered quota, a cap holds for jobs that were submitted before.
#[tokio::test]
async fn snapshot_has_preemption_within_the_tenants_caps() {
    let store = Store::new().await;
    let strict = serde_json::json!({
        "version": "muster/v1", "name": "strict", "command": { "argv": ["train"] },
        "preemption": { "allowed": "never", "min_runtime": 900 },
    });
    store.submit_document(strict).await;
    let demanded = async || {
        let read = forecast::live(&store.pool, &mut Loader::new(100)).await;
        let (snapshot, _) = read.expect("a snapshot");
        let preemption = snapshot.jobs[0].preemption;
        (preemption.allowed, preemption.min_runtime)
    };
    assert_eq!(demanded().await, (AllowedPreemption::Never, 900));
    let change = TenantPreemptionChange {
        allowed: Some(Some(AllowedPreemption::Restart)),
        min_runtime: Some(Some(60)),
        ..TenantPreemptionChange::default()
    };
    store.cap(change).await;
    assert_eq!(demanded().await, (AllowedPreemption::Restart, 60));
}
