//! Polls the store and the processes every few seconds and records each broken promise.

use crate::nemesis::{is_shim, start_ticks, task_of};
use crate::record::FaultRecord;
use crate::stand::{ChaosCluster, GRACE_MS, LEASE_MS};
use muster_e2e::clock;
use muster_e2e::processes::OsProcess;
use sqlx::{Connection as _, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use time::OffsetDateTime;

const LOOK: Duration = Duration::from_secs(2);
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time in a transient state. A start takes at most three minutes and a stop at most the
/// grace. A lost node adds its lease, and a fault up to 40 s; several faults may follow one
/// another.
const TRANSIENT: time::Duration = time::Duration::seconds(360);
/// Time for which the process of a released task may remain.
const OUTLIVES: time::Duration = time::Duration::seconds(3);

pub struct InvariantWatcher {
    pub looks: AtomicU64,
    ends: AtomicBool,
}

/// Observations so far.
#[derive(Default)]
struct WatcherObservations {
    generations: BTreeMap<String, i64>,
    revisions: BTreeMap<String, i64>,
    round: i64,
    /// Jobs in a transient state: phase, revision, since when, and whether it was reported.
    transient: BTreeMap<String, (String, i64, OffsetDateTime, bool)>,
    outliving: BTreeMap<(i32, u64), OffsetDateTime>,
    old_leaders: BTreeSet<(String, String)>,
    told: BTreeSet<String>,
}

/// Task of a live process, according to the store.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "all fields are printed")]
struct ProcessTask {
    task: String,
    phase: String,
    is_released: bool,
    node: String,
    job: String,
    role: String,
    index: i32,
}

impl InvariantWatcher {
    pub fn begin(stand: &Arc<ChaosCluster>, record: &Arc<FaultRecord>) -> Arc<Self> {
        let watcher = Arc::new(Self {
            looks: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let ours = Arc::clone(&watcher);
        let (stand, record) = (stand.clone(), record.clone());
        tokio::spawn(async move {
            let mut seen = WatcherObservations::default();
            let mut connection: Option<PgConnection> = None;
            while !ours.ends.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK).await;
                let mut conn = match connection.take() {
                    Some(conn) => conn,
                    None => match connect(&stand).await {
                        Some(conn) => conn,
                        None => continue,
                    },
                };
                let look = seen.look(&stand, &record, &mut conn);
                // A failed or late connection is dropped; the next poll opens another.
                match tokio::time::timeout(ANSWERS_WITHIN, look).await {
                    Ok(Ok(())) => {
                        ours.looks.fetch_add(1, Ordering::Relaxed);
                        connection = Some(conn);
                    }
                    Ok(Err(sqlx::Error::Database(error)))
                        if error.code().is_some_and(|code| code.starts_with("42")) =>
                    {
                        record.broke(&format!("the watcher's own statement is wrong: {error}"));
                    }
                    Ok(Err(_)) | Err(_) => {}
                }
            }
        });
        watcher
    }

    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Connects as the owner role, which reads all rows.
pub async fn connect(stand: &ChaosCluster) -> Option<PgConnection> {
    let url = stand.database_url();
    let connecting = PgConnection::connect(&url);
    tokio::time::timeout(ANSWERS_WITHIN, connecting)
        .await
        .ok()?
        .ok()
}

impl WatcherObservations {
    async fn look(
        &mut self,
        stand: &ChaosCluster,
        record: &FaultRecord,
        conn: &mut PgConnection,
    ) -> sqlx::Result<()> {
        self.numbers_never_go_back(record, conn).await?;
        self.no_old_leader_acts(record, conn).await?;
        self.nothing_is_stuck(record, conn).await?;
        self.processes(stand, record, conn).await
    }

    async fn numbers_never_go_back(
        &mut self,
        record: &FaultRecord,
        conn: &mut PgConnection,
    ) -> sqlx::Result<()> {
        let nodes: Vec<(String, i64)> = sqlx::query_as("select name, generation from node")
            .fetch_all(&mut *conn)
            .await?;
        let jobs: Vec<(String, i64)> = sqlx::query_as("select id::text, revision from job")
            .fetch_all(&mut *conn)
            .await?;
        for (what, now, seen) in [
            ("generation of node", nodes, &mut self.generations),
            ("revision of job", jobs, &mut self.revisions),
        ] {
            for (name, number) in now {
                let before = seen.insert(name.clone(), number).unwrap_or(0);
                if number < before {
                    record.broke(&format!("{what} {name} went from {before} to {number}"));
                }
            }
        }
        let round: Option<i64> = sqlx::query_scalar("select max(number) from round")
            .fetch_one(conn)
            .await?;
        let round = round.unwrap_or(0);
        if round < self.round {
            record.broke(&format!(
                "the newest round went from {} to {round}",
                self.round
            ));
        }
        self.round = round;
        Ok(())
    }

    /// Checks that a scheduler without the lock stops writing some time after another one has
    /// acquired it.
    async fn no_old_leader_acts(
        &mut self,
        record: &FaultRecord,
        conn: &mut PgConnection,
    ) -> sqlx::Result<()> {
        // A stopped leader notices within a ping and its time limit after it continues.
        let acting: Vec<(String, String)> = sqlx::query_as(
            "with holder as (select a.client_addr, a.backend_start from pg_locks l join pg_stat_activity a on a.pid = l.pid
                where l.locktype = 'advisory' and l.granted and a.application_name = 'muster-leader')
             select host(a.client_addr), a.xact_start::text from pg_stat_activity a, holder h
             where a.usename = 'muster_scheduler' and a.backend_xid is not null and a.client_addr <> h.client_addr
               and a.xact_start > h.backend_start + interval '12 seconds'",
        )
        .fetch_all(conn)
        .await?;
        for (address, began) in acting {
            if self.old_leaders.insert((address.clone(), began.clone())) {
                record.broke(&format!(
                    "the scheduler at {address} writes in a transaction of {began} and does not lead"
                ));
            }
        }
        Ok(())
    }

    async fn nothing_is_stuck(
        &mut self,
        record: &FaultRecord,
        conn: &mut PgConnection,
    ) -> sqlx::Result<()> {
        let jobs: Vec<(String, String, i64)> = sqlx::query_as(
            "select id::text, phase, revision from job where phase in ('starting', 'stopping')
             union all select job_id::text || ' ' || role || ' ' || role_index, phase, revision from task
                where phase in ('assigned', 'suspending', 'stopping')",
        )
        .fetch_all(conn)
        .await?;
        let now = clock::now();
        let before = std::mem::take(&mut self.transient);
        for (name, phase, revision) in jobs {
            let same = before.get(&name);
            let same = same.filter(|(other, number, ..)| *other == phase && *number == revision);
            let (since, mut is_told) =
                same.map_or((now, false), |(.., since, told)| (*since, *told));
            if now - since > TRANSIENT && !is_told {
                record.broke(&format!(
                    "{name} (revision {revision}) is {phase} since {since}"
                ));
                is_told = true;
            }
            self.transient
                .insert(name, (phase, revision, since, is_told));
        }
        Ok(())
    }

    async fn processes(
        &mut self,
        stand: &ChaosCluster,
        record: &FaultRecord,
        conn: &mut PgConnection,
    ) -> sqlx::Result<()> {
        let before = stand.processes();
        let live: Vec<(&OsProcess, u64)> = before
            .iter()
            .filter(|process| task_of(process).is_some())
            .filter_map(|process| Some((process, start_ticks(process.pid)?)))
            .collect();
        let ids: BTreeSet<String> = live
            .iter()
            .filter_map(|(process, _)| task_of(process))
            .map(str::to_owned)
            .collect();
        let ids: Vec<String> = ids.into_iter().collect();
        let known = known(&ids, conn).await?;
        let slots = slots(&ids, conn).await?;
        // Keeps processes that exist before and after the store was read, and so existed during the
        // read.
        let live: Vec<(&OsProcess, u64, &ProcessTask)> = live
            .into_iter()
            .filter(|(process, ticks)| {
                start_ticks(process.pid) == Some(*ticks) && process.is_alive()
            })
            .filter_map(|(process, ticks)| Some((process, ticks, known.get(task_of(process)?)?)))
            .collect();
        self.no_slot_is_held_twice(record, &live, &slots);
        self.none_outlives_its_release(record, &before, &live);
        Ok(())
    }

    fn no_slot_is_held_twice(
        &mut self,
        record: &FaultRecord,
        live: &[(&OsProcess, u64, &ProcessTask)],
        slots: &[(String, String, i32)],
    ) {
        let mut holders: BTreeMap<(&str, i32), BTreeSet<&str>> = BTreeMap::new();
        for (task, node, slot) in slots {
            let is_live = live.iter().any(|(.., known)| known.task == *task);
            if is_live {
                holders.entry((node, *slot)).or_default().insert(task);
            }
        }
        // Released tasks are checked by `none_outlives_its_release`.
        holders.retain(|_, tasks| {
            let of_them = live
                .iter()
                .filter(|(.., known)| tasks.contains(known.task.as_str()));
            tasks.len() > 1 && of_them.into_iter().any(|(.., known)| !known.is_released)
        });
        for ((node, slot), tasks) in holders {
            let all: Vec<_> = live
                .iter()
                .filter(|(_, _, known)| tasks.contains(known.task.as_str()))
                .map(|(process, _, known)| (process.pid, &process.arguments, known))
                .collect();
            if self.told.insert(format!("{tasks:?}")) {
                record.broke(&format!("slot {slot} of {node} is held twice: {all:?}"));
            }
        }
    }

    /// Checks that a released task has no process. Exceptions are a fault that stops its shim, or
    /// one that did shortly before.
    fn none_outlives_its_release(
        &mut self,
        record: &FaultRecord,
        all: &[OsProcess],
        live: &[(&OsProcess, u64, &ProcessTask)],
    ) {
        let now = clock::now();
        let lately = time::Duration::milliseconds((LEASE_MS + GRACE_MS).cast_signed());
        let mut faults = record.faults();
        faults.retain(|done| done.until.is_none_or(|until| now - until < lately));
        let mut outliving = BTreeMap::new();
        for (process, ticks, known) in live.iter().filter(|(_, _, known)| known.is_released) {
            let id = (process.pid, *ticks);
            let since = self.outliving.get(&id).copied().unwrap_or(now);
            outliving.insert(id, since);
            let shim = all
                .iter()
                .find(|one| is_shim(one) && one.mentions(&known.task));
            let pids = [Some(process.pid), shim.map(|shim| shim.pid)];
            let is_hindered = faults.iter().any(|done| done.hinders(&pids, &known.node));
            let is_late = now - since > OUTLIVES && !is_hindered;
            if is_late && self.told.insert(format!("{id:?}")) {
                record.broke(&format!(
                    "process {} ({:?}) lives, and the store has released its task since {since}; shim: {:?}; {known:?}",
                    process.pid,
                    process.arguments,
                    shim.map(|shim| shim.pid)
                ));
            }
        }
        self.outliving = outliving;
    }
}

async fn known(
    ids: &[String],
    conn: &mut PgConnection,
) -> sqlx::Result<BTreeMap<String, ProcessTask>> {
    let rows: Vec<(String, String, bool, String, String, String, i32)> = sqlx::query_as(
        "select t.id::text, t.phase, t.released_at is not null, n.name, t.job_id::text, t.role, t.role_index
         from task t join node n on n.id = t.node_id where t.id::text = any($1)",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    let known = rows
        .into_iter()
        .map(|(task, phase, is_released, node, job, role, index)| {
            let known = ProcessTask {
                task: task.clone(),
                phase,
                is_released,
                node,
                job,
                role,
                index,
            };
            (task, known)
        });
    Ok(known.collect())
}

/// Task, node and slot of each held slot. A suspended task, or one that ends while suspended, holds
/// none.
async fn slots(
    ids: &[String],
    conn: &mut PgConnection,
) -> sqlx::Result<Vec<(String, String, i32)>> {
    sqlx::query_as(
        "select distinct a.task_id::text, n.name, a.gpu_index from allocation a join node n on n.id = a.node_id
         join task t on t.id = a.task_id where a.task_id::text = any($1)
           and (a.released_at is null or a.released_at = t.released_at)",
    )
    .bind(ids)
    .fetch_all(conn)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_e2e::processes;
    use std::process::{Child, Command};

    fn sleeper(folder: &std::path::Path, task: &str) -> Child {
        let mut sleeper = Command::new("sleep");
        sleeper
            .arg("60")
            .env("MUSTER_TASK_ID", task)
            .env("MUSTER_TASK_DIR", folder);
        sleeper.spawn().expect("sleep runs")
    }

    fn known_as(task: &str, phase: &str) -> ProcessTask {
        ProcessTask {
            task: task.to_owned(),
            phase: phase.to_owned(),
            is_released: phase == "released",
            node: "node-1".to_owned(),
            job: "job".to_owned(),
            role: "worker".to_owned(),
            index: 0,
        }
    }

    #[test]
    fn slot_of_two_live_tasks_is_reported_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut children = ["one", "two"].map(|task| sleeper(folder.path(), task));
        // A child runs the other program only after its exec.
        let found = loop {
            let found = processes::of(folder.path());
            if found.len() == children.len() {
                break found;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let slots = ["one", "two"].map(|task| (task.to_owned(), "node-1".to_owned(), 0));
        for (first, second, expected) in [
            ("released", "released", 0),
            ("released", "running", 1),
            ("running", "running", 1),
        ] {
            let (record, mut seen) = (FaultRecord::begin(), WatcherObservations::default());
            let known: Vec<ProcessTask> = found
                .iter()
                .map(|process| match task_of(process) {
                    Some("one") => known_as("one", first),
                    _ => known_as("two", second),
                })
                .collect();
            let live: Vec<_> = found
                .iter()
                .zip(&known)
                .map(|(one, known)| (one, 1, known))
                .collect();
            for _ in 0..2 {
                seen.no_slot_is_held_twice(&record, &live, &slots);
            }
            assert_eq!(record.broken().len(), expected, "{:?}", record.broken());
        }
        for child in &mut children {
            child.kill().expect("ours");
            child.wait().expect("ours");
        }
    }
}
