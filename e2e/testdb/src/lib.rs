//! Real Postgres for tests: each test gets a private server with a migrated database of its own.
//!
//! cargo-nextest runs every test in a process of its own, so a server must be cheap: a migrated data folder is made once per build
//! folder and version of the migrations, and each server starts on a copy of it, in a fraction of a second. A server shared by
//! all would be a little cheaper, but somebody would have to end it after the last test, one test's open transaction would hold
//! back another's events, and none could crash it.
//!
//! A server ends with its `TestDb`; if the process is killed, the kernel ends it by the death signal of its parent. This crate
//! must never be a dependency of anything but tests and benches.

mod files;
mod locks;
mod programs;
mod relay;
mod server;
mod template;

pub use locks::Held;
use muster_store::migrate;
pub use programs::{beside_postgres, folder as programs_folder};
pub use relay::Relay;
use server::{Promise, Server};
use sqlx::Connection as _;

const NAME: &str = "test";
const SAVED: &str = "saved";

/// A migrated, empty database on a running server, for as long as this lives.
#[derive(Debug)]
pub struct TestDb {
    /// The owner, a superuser: migrates, and sees everything.
    pub owner_url: String,
    /// `muster_api`, bound by row level security.
    pub api_url: String,
    /// `muster_scheduler`.
    pub scheduler_url: String,
    server: Server,
}

/// A database at one instant, as `pg_dump` writes it, or as a copy in its server.
#[derive(Debug)]
pub struct Dump(Option<tempfile::TempDir>);

/// The files of a database at one instant.
#[derive(Debug)]
pub struct Backup(tempfile::TempDir);

impl TestDb {
    /// A new server with a new database.
    ///
    /// # Panics
    /// When there is no Postgres, or it does not start; the message says what to do.
    pub async fn new() -> Self {
        Self::create(Some(template::DATABASE)).await
    }

    /// A new server with a database without any table, for tests of the migrations.
    ///
    /// # Panics
    /// As `new`.
    pub async fn unmigrated() -> Self {
        Self::create(None).await
    }

    /// A new server with Postgres' own settings on a real disk, for measurements: a commit is acknowledged once it is on the disk.
    ///
    /// # Panics
    /// As `new`, and when there is no disk for temporary files.
    pub async fn durable() -> Self {
        let folder = files::folder_on_disk();
        server::init(folder.path(), Promise::OutlivesMachine);
        let server = Server::start(folder, Promise::OutlivesMachine);
        template::migrated(&server, NAME).await;
        Self::on(server)
    }

    /// Kills the server as a crash would, without a checkpoint, and starts it again on what it had written. Databases keep their
    /// addresses; connections break.
    ///
    /// # Panics
    /// When it does not start again.
    pub fn crash_and_restart(&self) {
        self.server.crash_and_restart();
    }

    fn socket(&self) -> std::path::PathBuf {
        self.server.socket()
    }

    /// A copy of the database's files as they are now. The server stops for it, so connections break.
    ///
    /// # Panics
    /// When the server does not start again.
    pub fn back_up(&self) -> Backup {
        let folder = files::folder();
        self.server.while_stopped(|data| {
            files::copy(data, &folder.path().join("data"));
        });
        Backup(folder)
    }

    /// Puts the files of a backup in the place of those of now. What was committed since is lost, and connections break.
    ///
    /// # Panics
    /// When the server does not start again.
    pub fn restore(&self, backup: &Backup) {
        self.server.while_stopped(|data| {
            std::fs::remove_dir_all(data).expect("remove the data folder");
            files::copy(&backup.0.path().join("data"), data);
        });
    }

    /// Dumps the database with `pg_dump`. Where that is not installed, copies it within its server, for which connections break.
    ///
    /// # Panics
    /// When it fails.
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

    /// Puts the dump in the place of the database, as docs/operations.md says. Connections break.
    ///
    /// # Panics
    /// When it fails.
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

    /// Runs a statement beside the database, outside of a transaction.
    async fn on_server(&self, statement: &str) {
        let server = self.server.url("owner", "postgres");
        let mut conn = sqlx::PgConnection::connect(&server).await.expect("connect");
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        let done = sqlx::raw_sql(statement).execute(&mut conn).await;
        done.expect("run the statement");
    }

    async fn create(template: Option<&str>) -> Self {
        template::ensure().await;
        let server = Server::start_copy(&template::folder());
        migrate::create_database(&server.url("owner", "postgres"), NAME, template)
            .await
            .expect("create a test's database");
        Self::on(server)
    }

    fn on(server: Server) -> Self {
        Self {
            owner_url: server.url("owner", NAME),
            api_url: server.url("muster_api", NAME),
            scheduler_url: server.url("muster_scheduler", NAME),
            server,
        }
    }
}
