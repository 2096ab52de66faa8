//! The program itself: it migrates, creates the first token, serves, and stops on a signal.

use crate::world::document;
use futures::StreamExt as _;
use muster_client::{Client, StreamItem};
use muster_store::{pool, tenant};
use muster_testdb::TestDb;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn program(db: &TestDb) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster-api"));
    command
        .env("MUSTER_API_OWNER_DATABASE_URL", &db.owner_url)
        .env("MUSTER_API_DATABASE_URL", &db.api_url);
    command
}

fn bootstrap(db: &TestDb) -> String {
    let output = program(db)
        .args(["bootstrap", "--tenant", "first", "--user", "ada"])
        .output()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

/// Returns the exit code of `check-token`.
fn check_token(db: &TestDb, secret: &str) -> Option<i32> {
    let mut check = program(db);
    check.arg("check-token").env("MUSTER_API_TOKEN", secret);
    check.status().expect("it runs").code()
}

/// An administrator that has deleted the last administrators' tenant has no other access.
#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_restores_a_deleted_tenant_without_its_tokens() {
    let db = TestDb::new().await;
    let old = bootstrap(&db);
    let owner = pool::owner(&db.owner_url, 1).expect("an address");
    let mut conn = owner.acquire().await.expect("a connection");
    let found = tenant::by_name(&mut conn, "first")
        .await
        .expect("an answer");
    let id = found.expect("it is there").id;
    tenant::delete(&mut conn, id, crate::world::at(0))
        .await
        .expect("an answer");
    // By the owner, and by the daemon's own role, which has the needed rights.
    let as_api = {
        let output = program(&db)
            .env_remove("MUSTER_API_OWNER_DATABASE_URL")
            .args(["bootstrap", "--tenant", "first", "--user", "ada"])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.contains("is there again"),
            "{said}"
        );
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    };
    assert_eq!(
        (check_token(&db, &old), check_token(&db, &as_api)),
        (Some(3), Some(0))
    );
    let back = tenant::by_name(&mut conn, "first")
        .await
        .expect("an answer");
    assert_eq!(back.map(|back| back.id), Some(id));
    tenant::delete(&mut conn, id, crate::world::at(0))
        .await
        .expect("an answer");
    let new = bootstrap(&db);
    assert_eq!(
        (check_token(&db, &as_api), check_token(&db, &new)),
        (Some(3), Some(0))
    );
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_migrates_bootstraps_and_serves_until_a_signal() {
    let db = TestDb::unmigrated().await;
    for _ in 0..2 {
        let migrated = program(&db).arg("migrate").output().expect("it runs");
        assert!(
            migrated.status.success(),
            "{}",
            String::from_utf8_lossy(&migrated.stderr)
        );
    }
    let (token, second) = (bootstrap(&db), bootstrap(&db));
    assert_ne!(token, second, "tenant and user are kept, tokens are new");
    for (secret, code) in [(token.as_str(), 0), ("guessed", 3)] {
        let status = program(&db)
            .arg("check-token")
            .env("MUSTER_API_TOKEN", secret)
            .status()
            .expect("it runs");
        assert_eq!(status.code(), Some(code));
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|held| held.local_addr())
        .expect("a port")
        .port();
    let served = program(&db)
        .env("MUSTER_API_LISTEN", format!("127.0.0.1:{port}"))
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut served = Running(served);
    let client = Client::new(&format!("http://127.0.0.1:{port}"), &token).expect("an address");
    let mut tries = 0;
    while client.me().await.is_err() {
        tries += 1;
        assert!(tries < 100, "it does not serve");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client
        .submit(&document("first"), None)
        .await
        .expect("a job");
    // Over a real socket the client reads the refusal while it still sends.
    let huge = serde_json::json!({ "name": "x".repeat(10 << 20) });
    assert_eq!(
        client
            .submit(&huge, None)
            .await
            .expect_err("too large")
            .status(),
        Some(413)
    );
    let mut stream = client.watch(None);
    assert!(matches!(
        stream.next().await,
        Some(Ok(StreamItem::Opened(_)))
    ));
    let told = Command::new("kill")
        .arg(served.0.id().to_string())
        .status()
        .expect("kill runs");
    assert!(told.success());
    // Although a stream is open.
    for _ in 0..100 {
        if let Some(status) = served.0.try_wait().expect("a child") {
            assert!(status.success());
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not stop");
}
