//! The data folder that servers start on copies of: freshly made, with one migrated database, kept beside the build.

use crate::files;
use crate::server::{self, Promise, Server};
use muster_store::migrate::{self, Login};
use std::fs::File;
use std::path::PathBuf;

/// The migrated database in it.
pub const DATABASE: &str = "muster_template";

/// Another version of the migrations or of Postgres has another folder.
pub fn folder() -> PathBuf {
    let postgres = crate::programs::folder();
    let key = format!(
        "{:016x}-{:08x}",
        migrate::fingerprint(),
        fnv1a(postgres.as_os_str().as_encoded_bytes())
    );
    build_folder().join(format!("testdb-{key}"))
}

/// Makes it if there is none; processes that want it at the same time wait for the first.
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
    server::init(folder.path(), Promise::OutlivesProcess);
    let server = Server::start(folder, Promise::OutlivesProcess);
    migrated(&server, DATABASE).await;
    server.stop();
    // Renamed when whole, so that a process killed now leaves no half of it.
    let copied = wanted.with_extension("tmp");
    if copied.exists() {
        std::fs::remove_dir_all(&copied).expect("remove what a killed process left");
    }
    files::copy(&server.folder().join("data"), &copied);
    std::fs::rename(&copied, &wanted).expect("put the template into place");
}

/// Makes a migrated database that both roles may log in to.
pub async fn migrated(server: &Server, database: &str) {
    migrate::create_database(&server.url("owner", "postgres"), database, None)
        .await
        .expect("create a database");
    let url = server.url("owner", database);
    migrate::run(&url).await.expect("migrate a database");
    for login in [Login::Api, Login::Scheduler] {
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
