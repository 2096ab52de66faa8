//! Secrets: values go in and never come out.

use crate::world::{ADMIN, Answer, BLUE, RED, World, document, json_request, study_of};
use axum::http::Method;
use muster_api::config::ClientLimits;
use muster_model::id::TenantId;
use muster_model::view::Problem;
use muster_secret::{KeySource, Keyring, Owner, Sealed, new_key};
use muster_store::pool;
use muster_store::secret::{self, SecretRow};
use serde_json::{Value, json};
use std::process::Command;

const PATH: &str = "/api/v1/secrets";
const VALUE: &str = "hunter2-and-more";

async fn put(world: &World, token: &str, name: &str, body: &Value) -> Answer {
    let path = format!("{PATH}/{name}");
    let answer = world
        .send(json_request(Method::PUT, token, &path, body))
        .await;
    assert!(!answer.text().contains(VALUE), "{}", answer.text());
    answer
}

async fn set(world: &World, name: &str) -> Answer {
    put(world, RED, name, &json!({ "value": VALUE })).await
}

fn program(secrets: &Value) -> Value {
    let mut document = document("program");
    let fields = document.as_object_mut().expect("an object");
    for engine in ["engine", "scale", "stop"] {
        fields.remove(engine);
    }
    document["command"] = json!({ "argv": ["true"], "secrets": secrets });
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn value_is_stored_encrypted_and_never_returned() {
    let world = World::new().await;
    let first = set(&world, "HF_TOKEN").await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(first.headers["cache-control"], "no-store");
    assert_eq!(first.json::<Value>()["version"], 1);
    assert_eq!(set(&world, "HF_TOKEN").await.json::<Value>()["version"], 2);
    let listed = world.get(RED, PATH).await;
    assert_eq!(listed.headers["cache-control"], "no-store");
    assert!(!listed.text().contains(VALUE));
    let listed: Value = listed.json();
    let item = &listed["items"][0];
    assert_eq!(
        (&item["name"], &item["version"]),
        (&json!("HF_TOKEN"), &json!(2))
    );
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    let others: Value = world.get(BLUE, PATH).await.json();
    assert_eq!(others["items"], json!([]));
    let one = world.get(RED, &format!("{PATH}/HF_TOKEN")).await;
    assert_eq!(one.status, 405, "there is no route that could return it");
    let mut tx = pool::begin_for(&world.app.pool, world.red)
        .await
        .expect("begun");
    let row = secret::of_other_keys(&mut tx, "another", "").await;
    let row = row.expect("read").remove(0);
    assert!(!row.ciphertext.windows(7).any(|part| part == b"hunter2"));
    let keys = std::fs::read_to_string(world.files.path().join("keys")).expect("keys");
    let keys = Keyring::parse(&keys).expect("keys");
    assert_eq!(row.version, 2);
    assert_eq!(opened(row, world.red, &keys), VALUE);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_never_quote_the_value() {
    let world = World::new().await;
    for body in [
        json!({ "value": VALUE, "other": VALUE }),
        json!({ "valeu": VALUE }),
        json!({ "value": [VALUE] }),
        json!(VALUE),
        json!({ "value": "" }),
        json!({ "value": format!("{VALUE}\0") }),
        json!({ "value": VALUE.repeat(5000) }),
    ] {
        let refused = put(&world, RED, "A", &body).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
    }
    for name in ["9a", "a%2Fb", "a%20b", &"a".repeat(64)] {
        let refused = put(&world, RED, name, &json!({ "value": VALUE })).await;
        assert_eq!(refused.status, 400, "{name}: {}", refused.text());
    }
    let largest = json!({ "value": "ä".repeat(32 << 10) });
    assert_eq!(put(&world, RED, "A", &largest).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_secrets_are_refused_with_the_remedy() {
    let world = World::keyed(ClientLimits::default(), |_| KeySource::None).await;
    let refused = set(&world, "A").await;
    assert_eq!(refused.status, 501);
    let problem: Problem = refused.json();
    assert_eq!(problem.kind, "urn:muster:problem:no-secret-key");
    assert!(problem.detail.contains("muster-api secrets new-key"));
    let document = program(&json!([{ "name": "A" }]));
    let refused = world.post(RED, "/api/v1/jobs", &document).await;
    assert_eq!(refused.json::<Problem>().kind, problem.kind);
    let accepted = world.post(RED, "/api/v1/jobs", &program(&json!([]))).await;
    assert_eq!(accepted.status, 201, "{}", accepted.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn document_needs_existing_secrets() {
    let world = World::new().await;
    set(&world, "WANDB_API_KEY").await;
    let missing =
        program(&json!([{ "name": "WANDB_API_KEY" }, { "name": "wandb-api-key", "file": "k" }]));
    let field = "command.secrets[1].name";
    for (path, document, field) in [
        ("/api/v1/jobs", missing.clone(), field.to_owned()),
        (
            "/api/v1/jobs?dry_run=true",
            missing.clone(),
            field.to_owned(),
        ),
        (
            "/api/v1/studies",
            searching(missing),
            format!("job.{field}"),
        ),
    ] {
        let refused = world.post(RED, path, &document).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        let problem: Problem = refused.json();
        assert_eq!(problem.errors.len(), 1, "{problem:?}");
        let error = &problem.errors[0];
        assert_eq!(
            (error.field.as_str(), error.value.as_str()),
            (field.as_str(), "\"wandb-api-key\"")
        );
        for word in [
            "did you mean WANDB_API_KEY?",
            "`muster secrets set wandb-api-key`",
        ] {
            assert!(
                error.expected.contains(word),
                "{word} in {}",
                error.expected
            );
        }
    }
    let right = program(&json!([{ "name": "WANDB_API_KEY" }]));
    let of_another = world.post(BLUE, "/api/v1/jobs", &right).await;
    assert_eq!(of_another.status, 422, "{}", of_another.text());
    let accepted = world.post(RED, "/api/v1/jobs", &right).await;
    assert_eq!(accepted.status, 201, "{}", accepted.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn used_secret_is_deleted_only_with_force() {
    let world = World::new().await;
    set(&world, "HF_TOKEN").await;
    let document = program(&json!([{ "name": "HF_TOKEN" }]));
    let made = world.post(RED, "/api/v1/jobs", &document).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let listed: Value = world.get(RED, PATH).await.json();
    assert_eq!(listed["items"][0]["open_jobs"], 1);
    let path = format!("{PATH}/HF_TOKEN");
    let refused = world.delete(RED, &path).await;
    assert_eq!(refused.status, 409);
    let problem: Problem = refused.json();
    assert!(
        problem.detail.contains("open jobs program"),
        "{}",
        problem.detail
    );
    assert_eq!(world.delete(BLUE, &path).await.status, 404);
    let forced = world.delete(RED, &format!("{path}?force=true")).await;
    assert_eq!(forced.status, 204, "{}", forced.text());
    let again = world.delete(RED, &path).await;
    assert_eq!(again.status, 409, "the job still names it");
    let unknown = world.delete(RED, &format!("{PATH}/OTHER")).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_secrets_is_a_limit_of_the_tenant() {
    let world = World::new().await;
    let change = json!({ "limits": { "secrets": 2 } });
    let path = "/api/v1/tenants/red";
    let changed = world
        .send(json_request(Method::PATCH, ADMIN, path, &change))
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    for name in ["A", "B", "A"] {
        assert_eq!(set(&world, name).await.status, 200);
    }
    let refused = set(&world, "C").await;
    assert_eq!(refused.status, 403);
    let detail = refused.json::<Problem>().detail;
    assert!(
        detail.contains("secrets") && detail.contains("muster secrets delete"),
        "{detail}"
    );
}

/// Returns a study of a program.
fn searching(mut job: Value) -> Value {
    job["command"]["env"] = json!({ "RATE": "0.1", "EPOCHS": "1" });
    let mut study = study_of("search", job);
    study["search"]["parameters"] = json!([
        { "name": "rate", "field": "command.env.RATE", "type": "float", "low": 0.1, "high": 0.5 },
    ]);
    study["search"]["budget"]["field"] = json!("command.env.EPOCHS");
    study
}

/// Runs `muster-api secrets reencrypt` with this key file; returns whether it succeeded, and its
/// messages.
fn reencrypt(world: &World, keys: &str) -> (bool, String) {
    let path = world.files.path().join("new-keys");
    std::fs::write(&path, keys).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_muster-api"))
        .args(["secrets", "reencrypt", "--secrets-key-file"])
        .arg(&path)
        .args(["--database-url", &world.db.api_url])
        .env_clear()
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn reencryption_lets_the_old_key_be_removed() {
    let world = World::new().await;
    for (token, name) in [(RED, "A"), (RED, "B"), (BLUE, "A")] {
        let body = json!({ "value": VALUE });
        assert_eq!(put(&world, token, name, &body).await.status, 200);
    }
    let old = std::fs::read_to_string(world.files.path().join("keys")).expect("keys");
    let new = new_key("new").expect("made");
    let (is_done, said) = reencrypt(&world, &new);
    assert!(
        !is_done && said.contains("A of blue, A of red, B of red"),
        "{said}"
    );
    let both = format!("{}\n{old}\n", new.as_str());
    for changed in ["3 secrets", "0 secrets"] {
        let (is_done, said) = reencrypt(&world, &both);
        assert!(is_done && said.contains(changed), "{said}");
    }
    let mut tx = pool::begin_for(&world.app.pool, world.red)
        .await
        .expect("begun");
    let rows = secret::of_other_keys(&mut tx, "another", "")
        .await
        .expect("read");
    assert_eq!(rows.len(), 2);
    let keys = Keyring::parse(&new).expect("keys");
    for row in rows {
        assert_eq!(opened(row, world.red, &keys), VALUE);
    }
}

fn opened(row: SecretRow, tenant: TenantId, keys: &Keyring) -> String {
    let owner = Owner {
        tenant,
        name: &row.name,
        version: row.version,
    };
    let sealed = Sealed {
        key_id: row.key_id,
        nonce: row.nonce,
        ciphertext: row.ciphertext,
    };
    let value = sealed.open(keys, owner).expect("ours");
    value.expose().to_owned()
}
