//! `muster families` with a test server that returns one family.

mod server;

use serde_json::{Value, json};
use server::Server;

#[test]
fn families_are_listed_and_forgotten() {
    let family = json!({
        "family": "f00d", "title": "resnet 18 on mnist, batch 64", "jobs": 2,
        "speeds": [{
            "gpu_kind": "H100", "workers": 4, "ps_shards": 1, "nodes": 2, "steps_per_s": 12.5,
            "jobs": 2, "samples": 40, "weight": 31.0, "observed_at": "2026-01-01T00:00:00Z",
        }],
    });
    let server = Server::new([
        (
            "GET /api/v1/families",
            json!({ "items": [family], "continue": null }),
        ),
        ("DELETE /api/v1/families/f00d", Value::Null),
    ]);
    let (code, said) = server.muster(&["families"]);
    assert_eq!(code, 0, "{said}");
    for word in ["f00d", "resnet 18 on mnist", "H100", "12.50", "40"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let (code, said) = server.muster(&["families", "list", "-o", "json"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        serde_json::from_str::<Value>(&said).expect("JSON"),
        json!([family])
    );
    let (code, said) = server.muster(&["families", "forget", "f00d", "-o", "json"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        serde_json::from_str::<Value>(&said).expect("JSON"),
        json!({ "forgotten": "f00d" })
    );
    assert_eq!(
        server.asked("DELETE"),
        ["DELETE /api/v1/families/f00d".to_owned()]
    );
}
