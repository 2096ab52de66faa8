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
pub use relay::Relay;
use server::{Promise, Server};

const NAME: &str = "test";

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
