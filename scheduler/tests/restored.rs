//! A database that lost its newest commits, after a restore from a backup or a failover to a
//! lagging standby. Nodes accept assignments, unknown tasks stop, running jobs continue, and no
//! revision is used twice.

use crate::support::{Assigned, Greeting, Node, Shell, Store};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::job::JobPhase;
use muster_model::task::Role;
use std::time::Duration;

const LEASE_MS: u64 = 30_000;
const LISTENS: &str = "127.0.0.1:4242";

fn is_new(task: &Assigned, held: &[&str]) -> bool {
    !held.contains(&task.launch.secret.as_str())
}

/// Job of one worker and one shard with all tasks running.
async fn up(
    store: &Store,
    node: &mut Node,
    held: &[&str],
) -> (muster_model::id::JobId, Vec<Assigned>) {
    let job = store.submit((1, 1)).await;
    let tasks = node
        .assignment(|tasks| tasks.iter().filter(|task| is_new(task, held)).count() == 2)
        .await;
    let tasks = tasks.into_iter().filter(|task| is_new(task, held));
    let tasks: Vec<Assigned> = tasks.collect();
    for task in &tasks {
        run(node, task).await;
    }
    store
        .until(job, "running", |job| job.state.phase() == JobPhase::Running)
        .await;
    (job, tasks)
}

async fn run(node: &mut Node, task: &Assigned) {
    let told = match task.launch.role {
        Role::PsShard { .. } => vec![TaskReport::Listening {
            address: LISTENS.into(),
        }],
        Role::Worker { .. } => vec![],
    };
    node.report(task, &Observed::Running, 0, &told).await;
    node.acknowledged().await;
}

/// Dials until the scheduler has reconnected to its database.
async fn again(shell: &Shell, held: u64) -> Node {
    let greeting = Greeting {
        gpus: 4,
        generation: held,
        ..Greeting::default()
    };
    let dialed = async {
        loop {
            match Node::greet(shell.address, &greeting).await {
                Ok(node) => return node,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, dialed)
        .await
        .expect("it is welcome in time")
}

/// Backup of either kind.
enum Saved {
    Files(muster_testdb::Backup),
    Dump(muster_testdb::Dump),
}

#[tokio::test]
async fn everything_proceeds_after_a_restore_of_files() {
    let store = Store::new().await;
    everything_proceeds(&store, async || Saved::Files(store.database.back_up())).await;
}

#[tokio::test]
async fn everything_proceeds_after_a_restore_of_a_dump() {
    let store = Store::new().await;
    everything_proceeds(&store, async || Saved::Dump(store.database.dump().await)).await;
}

async fn everything_proceeds(store: &Store, save: impl AsyncFnOnce() -> Saved) {
    let shell = Shell::leading(store, LEASE_MS).await;
    let mut node = again(&shell, 0).await;
    let (kept, kept_tasks) = up(store, &mut node, &[]).await;
    let secret = kept_tasks[0].launch.secret.clone();
    // In the backup the job is starting, and its shard has not reported its address.
    let begun = store.submit((1, 1)).await;
    let tasks = node.assignment(|tasks| tasks.len() == 4).await;
    let begun_tasks = tasks.into_iter();
    let begun_tasks: Vec<Assigned> = begun_tasks
        .filter(|task| task.launch.secret != secret)
        .collect();
    drop(node);
    drop(shell);
    let saved = save().await;

    // The restore loses the state of a running job, revisions of another job, and a whole job.
    let shell = Shell::leading(store, LEASE_MS).await;
    let mut node = again(&shell, 0).await;
    for task in &begun_tasks {
        run(&mut node, task).await;
    }
    store
        .until(begun, "running", |job| {
            job.state.phase() == JobPhase::Running
        })
        .await;
    let held = [secret.as_str(), begun_tasks[0].launch.secret.as_str()];
    let (lost, lost_tasks) = up(store, &mut node, &held).await;
    let lost_generation = node.generation;
    drop(node);
    drop(shell);
    match &saved {
        Saved::Files(backup) => store.database.restore(backup),
        Saved::Dump(dump) => store.database.restore_dump(dump).await,
    }

    let shell = Shell::leading(store, LEASE_MS).await;
    let mut node = again(&shell, lost_generation).await;
    assert!(node.welcome.report_all, "the node has to tell it all again");
    let tasks = node.assignment(|tasks| !tasks.is_empty()).await;
    assert!(node.generation > lost_generation);
    let ids =
        |tasks: &[Assigned]| -> Vec<_> { tasks.iter().map(|task| task.launch.task_id).collect() };
    let (told, unknown) = (ids(&tasks), ids(&lost_tasks));
    let known = [ids(&kept_tasks), ids(&begun_tasks)].concat();
    assert!(
        known.iter().all(|id| told.contains(id)) && tasks.iter().all(|task| !task.stop),
        "tasks that the backup knows go on"
    );
    assert!(
        unknown.iter().all(|id| !told.contains(id)),
        "a node stops what is not in its assignment"
    );
    // A task that the database does not know is acknowledged, so that its node can drop it.
    run(&mut node, &lost_tasks[0]).await;
    for task in kept_tasks.iter().chain(&begun_tasks) {
        run(&mut node, task).await;
    }
    store
        .until(begun, "running again", |job| {
            job.state.phase() == JobPhase::Running && job.revision == 1
        })
        .await;
    assert_eq!(store.job(kept).await.revision, 1, "it was not disturbed");
    let mut tx = store.as_member().await;
    let found = muster_store::job::get(&mut tx, lost).await.expect("read");
    assert!(found.is_none(), "its submission is lost");
    drop(tx);

    // New jobs start. The next revision of an old job is above any that may have run.
    let held = [secret.as_str(), begun_tasks[0].launch.secret.as_str()];
    let (new, _) = up(store, &mut node, &held).await;
    assert_eq!(store.job(new).await.revision, 1);
    let gone = Observed::Gone {
        outcome: muster_model::task::Outcome::stopped(),
    };
    for task in &kept_tasks {
        node.report(task, &gone, 1, &[]).await;
        node.acknowledged().await;
    }
    let restarted = store
        .until(kept, "another start", |job| job.revision > 1)
        .await;
    assert!(restarted.revision > 2, "revision {}", restarted.revision);
}

/// The scheduler and its sessions survive the restore.
#[tokio::test]
async fn session_ends_when_database_loses_commits() {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = again(&shell, 0).await;
    let (job, tasks) = up(&store, &mut node, &[]).await;
    let back = "update node set generation = 0; select pg_notify('muster_assignments', '')";
    store.database.execute(back).await;
    let ended = loop {
        if let Err(ended) = node.next().await {
            break ended;
        }
    };
    assert!(ended.message().contains("went back"), "{ended}");
    let held = node.generation;
    let mut node = again(&shell, held).await;
    let told = node.assignment(|told| told.len() == tasks.len()).await;
    assert!(node.generation > held && told.iter().all(|task| !task.stop));
    assert_eq!(store.job(job).await.revision, 1);
}
