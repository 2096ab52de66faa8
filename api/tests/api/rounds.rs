//! Rounds: complete and byte for byte, for administrators only.

use crate::world::{ADMIN, BLUE, RED, World, at};
use muster_store::pool;
use muster_store::round::{RoundRecord, insert};
use serde_json::{Value, json};

const SNAPSHOT: &str = r#"{"round":1,  "now_ms":5,"z":[1.50],"a":18446744073709551615}"#;
const PLAN: &str = r#"{"decisions":[{"job":"x"}]}"#;
const REPORT: &str =
    r#"{"totals":{"gpus":8,"held_gpus":6,"free_gpus":2,"waiting_jobs":1},"b":0.10}"#;

async fn keep(world: &World, number: u64, policy: Option<&str>) {
    let record = RoundRecord {
        number,
        snapshot_zstd: zstd::encode_all(SNAPSHOT.as_bytes(), 3).expect("compressed"),
        policy: policy.map(str::to_owned),
        plan: PLAN.to_owned(),
        report: REPORT.to_owned(),
    };
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    insert(&mut tx, &record, at(number)).await.expect("kept");
    tx.commit().await.expect("committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_lists_rounds_and_reads_one_byte_for_byte() {
    let world = World::new().await;
    keep(&world, 1, None).await;
    keep(&world, 2, Some(r#"{"share":"muster","x":1}"#)).await;
    keep(&world, 3, Some(r#"{"x":1}"#)).await;

    let page: Value = world.get(ADMIN, "/api/v1/rounds?limit=2").await.json();
    assert_eq!(
        page["items"][1],
        json!({
            "number": 2, "at": "2027-01-15T08:00:02Z", "policy": "muster", "decisions": 1,
            "totals": {"gpus": 8, "held_gpus": 6, "free_gpus": 2, "waiting_jobs": 1},
        })
    );
    assert_eq!(
        (&page["items"][0]["number"], &page["continue"]),
        (&json!(3), &json!("2"))
    );
    let rest: Value = world.get(ADMIN, "/api/v1/rounds?continue=2").await.json();
    assert_eq!(
        (&rest["items"][0]["number"], &rest["continue"]),
        (&json!(1), &Value::Null)
    );
    let since: Value = world
        .get(ADMIN, "/api/v1/rounds?since=2027-01-15T08:00:03Z")
        .await
        .json();
    assert_eq!(since["items"].as_array().map(Vec::len), Some(1));

    let round = world.get(ADMIN, "/api/v1/rounds/1").await;
    let text = round.text();
    for kept in [SNAPSHOT, PLAN, REPORT, r#""policy":null"#] {
        assert!(text.contains(kept), "{kept} is not in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn round_is_refused_to_members_and_wrong_numbers_are_named() {
    let world = World::new().await;
    keep(&world, 1, None).await;
    for token in [RED, BLUE] {
        for path in ["/api/v1/rounds", "/api/v1/rounds/1"] {
            let answer = world.get(token, path).await;
            assert_eq!(answer.status, 403, "{path}");
            assert!(!answer.text().contains("now_ms"));
        }
    }
    for path in ["/api/v1/rounds/2", "/api/v1/rounds/x", "/api/v1/rounds/-1"] {
        assert_eq!(world.get(ADMIN, path).await.status, 404, "{path}");
    }
    let wrong = world.get(ADMIN, "/api/v1/rounds?since=yesterday").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("2026-01-31T12:00:00Z"));
}
