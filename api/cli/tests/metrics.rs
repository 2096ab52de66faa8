//! `muster metrics` with a test server that has two metrics.

mod server;

use serde_json::{Value, json};
use server::{Server, id, job};

fn server() -> Server {
    let metric = |name: &str| json!({ "name": name, "last_step": 40, "last": 0.75, "min": 0.25, "max": 0.8125, "values": 41 });
    let point = json!({ "step": 31, "last": 0.5, "mean": 0.46875, "min": 0.125, "max": 0.625, "values": 32 });
    let series = json!({ "name": "train/f1", "bucket_steps": 32, "points": [point] });
    let page = |items: Value| json!({ "items": items, "continue": null });
    let place = format!("GET /api/v1/jobs/{}", id(7));
    let points = format!("{place}/metrics/points?name=train%2Ff1&max_points=");
    let export = format!("{place}/metrics/export?name=train%2Ff1");
    let list = format!("{place}/metrics");
    Server::new([
        (points.as_str(), page(json!([series]))),
        (export.as_str(), json!("name,step\ntrain/f1,31\n")),
        (
            list.as_str(),
            page(json!([metric("lr"), metric("train/f1")])),
        ),
        (
            "GET /api/v1/jobs?",
            page(json!([job(7, "fits", "running")])),
        ),
    ])
}

#[test]
fn metrics_are_listed_and_their_points_printed() {
    let server = server();
    let (code, said) = server.muster(&["metrics", "fits"]);
    assert_eq!(code, 0, "{said}");
    for word in ["lr", "train/f1", "0.8125", "41"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let (code, said) = server.muster(&["metrics", "fits", "train/f1"]);
    assert_eq!(code, 0, "{said}");
    for word in ["train/f1", "31", "0.46875", "0.625"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let arguments = ["metrics", "fits", "train/f1", "--points", "7", "-o", "json"];
    let (code, said) = server.muster(&arguments);
    assert_eq!(code, 0, "{said}");
    let series: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(series[0]["bucket_steps"], 32);
    let asked = server.asked("GET");
    let last = asked.last().expect("requests");
    assert!(last.ends_with("/metrics/points?name=train%2Ff1&max_points=7"));
}

#[test]
fn csv_is_passed_on_and_unknown_names_are_refused() {
    let server = server();
    let (code, said) = server.muster(&["metrics", "fits", "train/f1", "--csv"]);
    assert_eq!((code, said.as_str()), (0, "name,step\ntrain/f1,31\n"));
    let (code, said) = server.muster(&["metrics", "fits", "val/f1"]);
    assert_ne!(code, 0);
    assert!(said.contains("no metric \"val/f1\""), "{said}");
    assert!(said.contains("muster metrics fits"), "{said}");
}
