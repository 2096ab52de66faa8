//! Two Postgres servers: one leads, the other follows by streaming replication and takes over its
//! role and address.

use crate::schedule::ChaosHost;
use crate::stand::{ChaosCluster, SUPERUSER};
use sqlx::{Connection as _, PgConnection};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// `nobody`: Postgres refuses root.
pub const UNPRIVILEGED: &str = "65534";
const STEP: Duration = Duration::from_millis(250);
/// Polls until the standby has all commits.
const LOOKS: u32 = 60;
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Creates the first server's folder and database.
///
/// # Panics
/// If they cannot be created.
pub fn initialise(stand: &ChaosCluster, number: usize) {
    let data = data(stand, number);
    let mut initdb = unprivileged(&program("initdb"));
    initdb.args([
        "-U",
        SUPERUSER,
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "-D",
    ]);
    run(initdb.arg(&data)).expect("initdb");
    let mut rules = std::fs::File::options()
        .append(true)
        .open(data.join("pg_hba.conf"))
        .expect("the rules of Postgres");
    for database in ["all", "replication"] {
        let subnet = stand.network.subnet();
        writeln!(rules, "host {database} all {subnet} trust").expect("the rules of Postgres");
    }
    let mut single = unprivileged(&program("postgres"));
    single
        .args(["--single", "-j", "-D"])
        .arg(&data)
        .arg("postgres");
    let child = single
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.expect("postgres runs");
    let mut input = child.stdin.take().expect("a pipe");
    input
        .write_all(b"CREATE DATABASE muster;\n")
        .expect("it reads");
    drop(input);
    assert!(
        child.wait().expect("it ends").success(),
        "the database is made"
    );
}

/// Creates a server's folder again as a copy of the other server, which it follows.
///
/// # Errors
/// The output of `pg_basebackup`.
pub fn follow(stand: &ChaosCluster, number: usize) -> Result<(), String> {
    let backup =
        muster_testdb::beside_postgres("pg_basebackup").ok_or("pg_basebackup is missing")?;
    let data = data(stand, number);
    let _ = std::fs::remove_dir_all(&data);
    let leading = stand.network.address(ChaosHost::Postgres(1 - number));
    let mut backup = unprivileged(&backup);
    backup.args([
        "-h", &leading, "-U", SUPERUSER, "-X", "stream", "-c", "fast", "-R", "-D",
    ]);
    run(backup.arg(&data))
}

/// Arguments of a server in either role.
pub fn arguments(stand: &ChaosCluster, number: usize) -> Vec<String> {
    let mut arguments = vec![program("postgres").display().to_string(), "-D".to_owned()];
    arguments.push(data(stand, number).display().to_string());
    for setting in [
        "listen_addresses=*",
        "unix_socket_directories=",
        "max_connections=120",
        "max_wal_size=256MB",
        "wal_keep_size=256MB",
        "timezone=UTC",
        "log_min_messages=warning",
    ] {
        arguments.extend(["-c".to_owned(), setting.to_owned()]);
    }
    arguments
}

/// Saves a dump of the database beside the logs.
pub fn dump(stand: &ChaosCluster) {
    let Some(program) = muster_testdb::beside_postgres("pg_dump") else {
        return;
    };
    let mut dump = Command::new(program);
    dump.arg(stand.database_url())
        .arg("-f")
        .arg(stand.folder.join("store.sql"));
    if let Err(error) = run(&mut dump) {
        eprintln!("chaos: {error}");
    }
}

/// Fails over. Makes commits synchronous, kills the leading server, promotes the other one and
/// moves the address. The killed server then follows. If the standby does not have all commits in
/// time, only the standby is created again.
///
/// # Errors
/// The step that failed.
pub async fn fail_over(stand: &ChaosCluster) -> Result<String, String> {
    let old = stand.network.database();
    let new = 1 - old;
    if !is_in_step(stand, old).await? {
        set_synchronous(stand, old, "").await?;
        remake(stand, new)?;
        return Ok(format!(
            "postgres-{} was not in step, and was made anew",
            new + 1
        ));
    }
    stand.supervisor.hold(&ChaosHost::Postgres(old).to_string());
    stand.network.withdraw_database();
    let mut conn = connect(stand, new).await?;
    let promoted: Result<bool, _> = sqlx::query_scalar("select pg_promote(true, 30)")
        .fetch_one(&mut conn)
        .await;
    let is_promoted = promoted.map_err(|error| error.to_string())?;
    stand.network.move_database(new);
    if !is_promoted {
        return Err(format!("postgres-{} was not promoted", new + 1));
    }
    remake(stand, old)?;
    Ok(format!("from postgres-{} to postgres-{}", old + 1, new + 1))
}

fn remake(stand: &ChaosCluster, number: usize) -> Result<(), String> {
    let name = ChaosHost::Postgres(number).to_string();
    stand.supervisor.hold(&name);
    let followed = follow(stand, number);
    stand.supervisor.release(&name);
    followed
}

/// Whether the standby has every commit that is acknowledged from now on.
async fn is_in_step(stand: &ChaosCluster, leading: usize) -> Result<bool, String> {
    set_synchronous(stand, leading, "*").await?;
    let mut conn = connect(stand, leading).await?;
    for _ in 0..LOOKS {
        let count: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_replication where sync_state = 'sync'",
        )
        .fetch_one(&mut conn)
        .await
        .map_err(|error| error.to_string())?;
        if count > 0 {
            return Ok(true);
        }
        tokio::time::sleep(STEP).await;
    }
    Ok(false)
}

async fn set_synchronous(
    stand: &ChaosCluster,
    leading: usize,
    standbys: &str,
) -> Result<(), String> {
    let mut conn = connect(stand, leading).await?;
    let set = format!("alter system set synchronous_standby_names = '{standbys}'");
    for statement in [set.as_str(), "select pg_reload_conf()"] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(&mut conn)
            .await
            .map_err(|error| format!("{statement}: {error}"))?;
    }
    Ok(())
}

/// Connects at the server's own address; retries during its recovery.
async fn connect(stand: &ChaosCluster, number: usize) -> Result<PgConnection, String> {
    let address = stand.network.address(ChaosHost::Postgres(number));
    let url = format!("postgres://{SUPERUSER}@{address}:5432/muster");
    let connected = async {
        loop {
            if let Ok(conn) = PgConnection::connect(&url).await {
                return conn;
            }
            tokio::time::sleep(STEP).await;
        }
    };
    let connected = tokio::time::timeout(ANSWERS_WITHIN, connected).await;
    connected.map_err(|_| format!("postgres-{} does not answer", number + 1))
}

fn data(stand: &ChaosCluster, number: usize) -> PathBuf {
    stand.disks.path(ChaosHost::Postgres(number)).join("data")
}

fn program(name: &str) -> PathBuf {
    muster_testdb::programs_folder().join(name)
}

fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args([
            format!("--reuid={UNPRIVILEGED}"),
            format!("--regid={UNPRIVILEGED}"),
        ])
        .args(["--clear-groups", "--"])
        .arg(program)
        .current_dir("/");
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}
