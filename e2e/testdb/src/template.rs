//! Template data folder with one migrated database, kept beside the build. Servers start on copies
//! of it.

use crate::files;
use crate::server::{self, PostgresDurability, PostgresServer};
use muster_store::migrate::{self, DaemonRole};
use std::fs::File;
use std::path::PathBuf;

/// Name of the migrated database.
pub const DATABASE: &str = "muster_template";

/// Path of the template, which depends on the migrations and on the Postgres installation.
pub fn folder() -> PathBuf {
    let postgres = crate::programs::folder();
    let key = format!(
        "{:016x}-{:08x}",
        migrate::fingerprint(),
        fnv1a(postgres.as_os_str().as_encoded_bytes())
    );
    build_folder().join(format!("testdb-{key}"))
}

/// Creates the template if it is missing; concurrent processes wait for the first one.
pub async fn ensure() {
    let wanted = folder();
    if wanted.exists() {
        return;
    }
    let lock =
        File::create(build_folder().join("testdb.lock")).expect("create the lock of the template");
    lock.lock().expect("lock the template");
    if wanted.exists() {
        return;
    }
    let folder = files::folder();
    server::init(folder.path(), PostgresDurability::OutlivesProcess);
    let server = PostgresServer::start(folder, PostgresDurability::OutlivesProcess);
    migrated(&server, DATABASE).await;
    server.stop();
    // Renamed when complete, so that a killed process leaves no partial template.
    let copied = wanted.with_extension("tmp");
    if copied.exists() {
        std::fs::remove_dir_all(&copied).expect("remove what a killed process left");
    }
    files::copy(&server.folder().join("data"), &copied);
    std::fs::rename(&copied, &wanted).expect("put the template into place");
}

/// Creates a migrated database to which both roles can connect.
pub async fn migrated(server: &PostgresServer, database: &str) {
    migrate::create_database(&server.url("owner", "postgres"), database, None)
        .await
        .expect("create a database");
    let url = server.url("owner", database);
    migrate::run(&url).await.expect("migrate a database");
    for login in [DaemonRole::Api, DaemonRole::Scheduler] {
        migrate::allow_login(&url, login, None)
            .await
            .expect("let the roles log in");
    }
}

/// `target/<profile>`: tests run from its `deps`.
fn build_folder() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it lies");
    let deps = program.parent().expect("a program lies in a folder");
    if deps.ends_with("deps") {
        deps.parent().expect("deps lies in a folder").to_owned()
    } else {
        deps.to_owned()
    }
}

/// FNV-1a.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}
