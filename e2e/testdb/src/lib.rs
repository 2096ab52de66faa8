//! Real Postgres for tests: each test gets a private server with a migrated database.
//!
//! cargo-nextest runs every test in its own process, so a server must be cheap. A migrated data
//! folder is created once per build folder and version of the migrations. Each server starts on a
//! copy of it, in a fraction of a second.
//!
//! A shared server would be slightly cheaper, but has three drawbacks. A separate process would
//! have to end it after the last test. An open transaction of one test would delay events of
//! another. No test could crash it.
//!
//! A server ends with its `TestDb`. If the process is killed, the kernel ends the server by the
//! parent death signal. Only tests and benches may depend on this crate.

mod files;
mod locks;
mod programs;
mod relay;
mod server;
mod template;

pub use locks::DatabaseLock;
use muster_store::migrate;
pub use programs::{beside_postgres, folder as programs_folder};
pub use relay::Relay;
use server::{PostgresDurability, PostgresServer};
use sqlx::Connection as _;

const NAME: &str = "test";
const SAVED: &str = "saved";

/// Migrated, empty database on a running server, until this is dropped.
#[derive(Debug)]
pub struct TestDb {
    /// The owner, a superuser: migrates, and reads all rows.
    pub owner_url: String,
    /// `muster_api`, bound by row level security.
    pub api_url: String,
    /// `muster_scheduler`.
    pub scheduler_url: String,
    server: PostgresServer,
}

/// Database at one instant, as a file of `pg_dump` or as a copy in its server.
#[derive(Debug)]
pub struct Dump(Option<tempfile::TempDir>);

/// Files of a database at one instant.
#[derive(Debug)]
pub struct Backup(tempfile::TempDir);

impl TestDb {
    /// Starts a new server with a new database.
    ///
    /// # Panics
    /// If there is no Postgres or it does not start; the message says what to do.
    pub async fn new() -> Self {
        Self::create(Some(template::DATABASE)).await
    }

    /// Starts a new server with an empty database, for tests of the migrations.
    ///
    /// # Panics
    /// As `new`.
    pub async fn unmigrated() -> Self {
        Self::create(None).await
    }

    /// Starts a new server with Postgres' default settings on a real disk, for measurements: a
    /// commit is acknowledged when it is on the disk.
    ///
    /// # Panics
    /// As `new`, and if there is no disk for temporary files.
    pub async fn durable() -> Self {
        let folder = files::folder_on_disk();
        server::init(folder.path(), PostgresDurability::OutlivesMachine);
        let server = PostgresServer::start(folder, PostgresDurability::OutlivesMachine);
        template::migrated(&server, NAME).await;
        Self::on(server)
    }

    /// Kills the server without a checkpoint, as a crash would, and starts it again on its files.
    /// Databases keep their addresses; connections break.
    ///
    /// # Panics
    /// If it does not start again.
    pub fn crash_and_restart(&self) {
        self.server.crash_and_restart();
    }

    fn socket(&self) -> std::path::PathBuf {
        self.server.socket()
    }

    /// Copies the database's present files. The server stops for it, so connections break.
    ///
    /// # Panics
    /// If the server does not start again.
    pub fn back_up(&self) -> Backup {
        let folder = files::folder();
        self.server.while_stopped(|data| {
            files::copy(data, &folder.path().join("data"));
        });
        Backup(folder)
    }

    /// Replaces the present files by those of a backup. Later commits are lost, and connections
    /// break.
    ///
    /// # Panics
    /// If the server does not start again.
    pub fn restore(&self, backup: &Backup) {
        self.server.while_stopped(|data| {
            std::fs::remove_dir_all(data).expect("remove the data folder");
            files::copy(&backup.0.path().join("data"), data);
        });
    }

    /// Dumps the database with `pg_dump`. If that is not installed, copies it within its server,
    /// which breaks connections.
    ///
    /// # Panics
    /// If it fails.
    pub async fn dump(&self) -> Dump {
        let Some(program) = programs::beside_postgres("pg_dump") else {
            self.copy(NAME, SAVED).await;
            return Dump(None);
        };
        let folder = files::folder();
        let file = folder.path().join("muster.dump");
        let mut command = programs::command(&program);
        command.arg("--format=custom").arg("--file").arg(&file);
        programs::run(command.arg(&self.owner_url));
        Dump(Some(folder))
    }

    /// Restores the dump as docs/operations.md describes. Connections break.
    ///
    /// # Panics
    /// If it fails.
    pub async fn restore_dump(&self, dump: &Dump) {
        self.on_server("drop database test with (force)").await;
        match &dump.0 {
            None => self.copy(SAVED, NAME).await,
            Some(folder) => {
                let program = programs::beside_postgres("pg_restore");
                self.on_server("create database test").await;
                let mut command = programs::command(&program.expect("it comes with pg_dump"));
                command.args(["--exit-on-error", "--single-transaction", "--no-owner"]);
                command.arg("--dbname").arg(&self.owner_url);
                programs::run(command.arg(folder.path().join("muster.dump")));
            }
        }
        self.execute("update event set xid = '3'").await;
        migrate::run(&self.owner_url).await.expect("migrate it");
    }

    async fn copy(&self, from: &str, to: &str) {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname is not null and pid <> pg_backend_pid()";
        self.on_server(end).await;
        self.on_server(&format!("create database {to} template {from}"))
            .await;
    }

    /// Runs a statement in another database of the server, outside of a transaction.
    async fn on_server(&self, statement: &str) {
        let server = self.server.url("owner", "postgres");
        let mut conn = sqlx::PgConnection::connect(&server).await.expect("connect");
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        let done = sqlx::raw_sql(statement).execute(&mut conn).await;
        done.expect("run the statement");
    }

    async fn create(template: Option<&str>) -> Self {
        template::ensure().await;
        let server = PostgresServer::start_copy(&template::folder());
        migrate::create_database(&server.url("owner", "postgres"), NAME, template)
            .await
            .expect("create a test's database");
        Self::on(server)
    }

    fn on(server: PostgresServer) -> Self {
        Self {
            owner_url: server.url("owner", NAME),
            api_url: server.url("muster_api", NAME),
            scheduler_url: server.url("muster_scheduler", NAME),
            server,
        }
    }
}
