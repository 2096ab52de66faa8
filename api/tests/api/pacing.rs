//! Request rates: per token, per tenant, and per address without a valid token.

use crate::world::{ADMIN, Answer, BLUE, RED, World, request};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Method;
use muster_api::config::ClientLimits;
use std::net::SocketAddr;

const PATH: &str = "/api/v1/me";

/// Three wrong tokens are refused with 401; further ones are limited.
fn strict() -> ClientLimits {
    ClientLimits {
        failures_per_s: 1,
        failures_burst: 3,
        ..ClientLimits::default()
    }
}

async fn ask(world: &World, token: &str, peer: &str, forwarded: Option<&str>) -> Answer {
    let mut request = request(Method::GET, token, PATH, Body::empty());
    let peer = SocketAddr::new(peer.parse().expect("an address"), 1234);
    request.extensions_mut().insert(ConnectInfo(peer));
    if let Some(forwarded) = forwarded {
        let value = forwarded.parse().expect("a header");
        request.headers_mut().insert("x-forwarded-for", value);
    }
    world.send(request).await
}

async fn exhaust(world: &World, peer: &str) {
    for number in 0..3 {
        let answer = ask(world, &format!("wrong-{number}"), peer, None).await;
        assert_eq!(answer.status, 401);
    }
}

#[tokio::test]
async fn wrong_tokens_of_one_address_are_limited() {
    let world = World::with(strict()).await;
    assert_eq!(ask(&world, RED, "192.0.2.1", None).await.status, 200);
    exhaust(&world, "192.0.2.1").await;
    let limited = ask(&world, "wrong", "192.0.2.1", None).await;
    assert_eq!(limited.status, 429);
    assert_eq!(limited.header("retry-after"), "1");
    assert!(limited.problem().kind.ends_with("too-many-requests"));
    // Other clients are not affected, nor is a token that was valid before.
    assert_eq!(ask(&world, "wrong", "192.0.2.2", None).await.status, 401);
    assert_eq!(ask(&world, BLUE, "192.0.2.2", None).await.status, 200);
    assert_eq!(ask(&world, RED, "192.0.2.1", None).await.status, 200);
    assert_eq!(ask(&world, "", "192.0.2.1", None).await.status, 429);
}

#[tokio::test]
async fn failed_authentications_are_counted_by_reason() {
    let world = World::with(strict()).await;
    exhaust(&world, "192.0.2.1").await;
    ask(&world, "", "192.0.2.1", None).await;
    ask(&world, "another", "192.0.2.1", None).await;
    let metrics = world.get("", "/metrics").await.text();
    for (reason, count) in [("unknown", 3), ("missing", 1), ("limited", 1)] {
        let line =
            format!("muster_api_authentication_failures_total{{reason=\"{reason}\"}} {count}");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn forwarded_address_counts_behind_a_trusted_proxy_only() {
    for (proxies, status) in [("", 429), ("192.0.2.0/24", 401)] {
        let world = World::with(ClientLimits {
            trusted_proxies: proxies.parse().expect("networks"),
            ..strict()
        })
        .await;
        for client in ["a", "b", "c", "d"].map(|last| format!("2001:db8:0:{last}::1")) {
            let answer = ask(&world, "wrong", "192.0.2.1", Some(&client)).await;
            assert!([401, status].contains(&answer.status.as_u16()));
        }
        let fifth = ask(&world, "wrong", "192.0.2.1", Some("2001:db8:0:e::1")).await;
        assert_eq!(fifth.status, status, "{}", fifth.text());
    }
}

#[tokio::test]
async fn refused_token_costs_one_query_per_cache_lifetime() {
    let world = World::new().await;
    assert_eq!(world.get("wrong", PATH).await.status, 401);
    world.app.pool.close().await;
    assert_eq!(world.get("wrong", PATH).await.status, 401);
    assert_eq!(world.get("wrong too", PATH).await.status, 503);
}

#[tokio::test]
async fn tokens_of_one_tenant_share_its_rate() {
    let world = World::with(ClientLimits {
        requests_per_s: 1,
        requests_burst: 2,
        tenant_requests_per_s: 1,
        tenant_requests_burst: 3,
        ..ClientLimits::default()
    })
    .await;
    for token in [RED, RED, ADMIN] {
        assert_eq!(world.get(token, PATH).await.status, 200);
    }
    let refused = world.get(ADMIN, PATH).await;
    assert_eq!(refused.status, 429);
    let detail = refused.problem().detail;
    assert!(detail.starts_with("all tokens of a tenant"), "{detail}");
    assert_eq!(world.get(BLUE, PATH).await.status, 200);
}
