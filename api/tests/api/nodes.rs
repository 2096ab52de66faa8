//! Requests of administrators that change a node's membership, and what a node's answer has.

use crate::world::{ADMIN, RED, World, at, json_request};
use axum::http::Method;
use muster_model::node::NodeSpeed;
use muster_model::view::CreatedJoinToken;
use muster_store::{family, membership, node, pool};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const TOKENS: &str = "/api/v1/nodes/node-b/join-tokens";

#[tokio::test(flavor = "multi_thread")]
async fn one_time_join_token_is_stored_as_its_hash() {
    let world = World::new().await;
    assert_eq!(world.post(RED, TOKENS, &json!({})).await.status, 403);
    for lifetime_s in [0, 604_801] {
        let wrong = json!({ "lifetime_s": lifetime_s });
        let refused = world.post(ADMIN, TOKENS, &wrong).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert_eq!(refused.problem().errors[0].field, "lifetime_s");
    }
    let refused = world
        .post(ADMIN, "/api/v1/nodes/Not_A_Name/join-tokens", &json!({}))
        .await;
    assert_eq!(refused.problem().errors[0].field, "name");

    let made = world
        .post(ADMIN, TOKENS, &json!({ "lifetime_s": 60 }))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made: CreatedJoinToken = made.json();
    assert!(made.token.starts_with("muster_join_"), "{made:?}");
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let hash = muster_api::auth::hash(&made.token);
    let now = made.expires_at - Duration::from_secs(1);
    let counts = membership::is_join_token(&mut tx, "node-b", &hash, now).await;
    assert!(counts.expect("read"));
    let counts = membership::is_join_token(&mut tx, "node-b", &hash, made.expires_at).await;
    assert!(!counts.expect("read"), "it has expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_lost_node_is_removed_and_its_history_stays() {
    let world = World::new().await;
    let node = "/api/v1/nodes/node-a";
    let remove = async |token| {
        world
            .send(json_request(Method::DELETE, token, node, &json!({})))
            .await
    };
    assert_eq!(remove(RED).await.status, 403);
    let up = remove(ADMIN).await;
    assert_eq!(up.status, 409);
    assert!(up.text().contains("node node-a is up"), "{}", up.text());
    assert_eq!(
        world
            .post(RED, &format!("{node}/reset"), &json!({}))
            .await
            .status,
        403
    );
    let reset = world
        .post(ADMIN, &format!("{node}/reset"), &json!({}))
        .await;
    assert_eq!(reset.status, 200, "{}", reset.text());

    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let heard = node::heard(&mut tx).await.expect("read");
    let lost = node::lost(&mut tx, &heard, at(1_000)).await;
    assert_eq!(lost.expect("marked").len(), 1);
    tx.commit().await.expect("committed");
    assert_eq!(remove(ADMIN).await.status, 204);
    assert_eq!(remove(ADMIN).await.status, 404);
    assert_eq!(world.get(ADMIN, node).await.status, 404);
    let listed: Value = world.get(ADMIN, "/api/v1/nodes").await.json();
    assert_eq!(listed["items"], json!([]));
    let events: Value = world.get(ADMIN, "/api/v1/events").await.json();
    let changes: Vec<&Value> = events["items"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|one| one["event"]["kind"] == "node_membership")
        .map(|one| &one["event"]["change"])
        .collect();
    assert_eq!(changes, [&json!("removed"), &json!("credential_reset")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tenant_sees_the_speed_of_a_deviating_node() {
    let world = World::new().await;
    let path = "/api/v1/nodes/node-a";
    let typical: Value = world.get(RED, path).await.json();
    assert_eq!(typical.get("speed"), None);
    let slow = NodeSpeed {
        percent: 91,
        jobs: 14,
    };
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let known = BTreeMap::from([(world.node, slow)]);
    let changed = family::set_deviations(&mut tx, &known).await;
    assert_eq!(changed.expect("written"), 1);
    tx.commit().await.expect("committed");
    for token in [RED, ADMIN] {
        let shown: Value = world.get(token, path).await.json();
        assert_eq!(shown["speed"], json!({ "percent": 91, "jobs": 14 }));
    }
    let listed: Value = world.get(RED, "/api/v1/nodes").await.json();
    assert_eq!(listed["items"][0]["speed"]["percent"], 91);
}
