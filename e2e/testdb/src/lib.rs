//! Real Postgres for tests: each process of tests gets a private server, each test a migrated database of its own.
//!
//! cargo-nextest runs every test in a process of its own, so a server must be cheap: a migrated data folder is made once per build
//! folder and version of the migrations, and each process copies it and starts on the copy (a fraction of a second). A server
//! shared by all processes would be a little cheaper, but somebody would have to end it after the last of them.
//!
//! A server ends with the last database of its process; if the process is killed, the kernel ends it by the death signal of its
//! parent. This crate must never be a dependency of anything but tests.

mod files;
mod programs;
mod server;
mod template;

use muster_store::migrate;
use server::Server;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

static RUNNING: Mutex<Weak<Server>> = Mutex::new(Weak::new());
static DATABASES: AtomicU32 = AtomicU32::new(1);

/// A migrated, empty database on a running server, for as long as this lives.
#[derive(Debug)]
pub struct TestDb {
    /// The owner, a superuser: migrates, and sees everything.
    pub owner_url: String,
    /// `muster_api`, bound by row level security.
    pub api_url: String,
    /// `muster_scheduler`.
    pub scheduler_url: String,
    server: Arc<Server>,
}

impl TestDb {
    /// A new database, with the server if this process has none yet.
    ///
    /// # Panics
    /// When there is no Postgres, or it does not start; the message says what to do.
    pub async fn new() -> Self {
        Self::create(Some(template::DATABASE)).await
    }

    /// A new database without any table, for tests of the migrations.
    ///
    /// # Panics
    /// As `new`.
    pub async fn unmigrated() -> Self {
        Self::create(None).await
    }

    /// Kills the server as a crash would, without a checkpoint, and starts it again on what it had written. Databases keep their
    /// addresses; connections break.
    ///
    /// # Panics
    /// When it does not start again.
    pub fn crash_and_restart(&self) {
        self.server.crash_and_restart();
    }

    async fn create(template: Option<&str>) -> Self {
        let server = server().await;
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        migrate::create_database(&server.url("owner", "postgres"), &name, template)
            .await
            .expect("create a test's database");
        Self {
            owner_url: server.url("owner", &name),
            api_url: server.url("muster_api", &name),
            scheduler_url: server.url("muster_scheduler", &name),
            server,
        }
    }
}

async fn server() -> Arc<Server> {
    template::ensure().await;
    // Held while it starts, so that tests of one process start one.
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = running.upgrade() {
        return server;
    }
    let server = Arc::new(Server::start_copy(&template::folder()));
    *running = Arc::downgrade(&server);
    server
}
