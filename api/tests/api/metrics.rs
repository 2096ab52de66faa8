//! Metrics of a job: the list, points of chosen names, and the CSV file.

use crate::world::{BLUE, RED, World};
use axum::http::StatusCode;
use muster_model::assignment::TaskReport;
use muster_model::id::JobId;
use muster_model::metric::MetricPoint;
use serde_json::{Value, json};

fn point(name: &str, step: u64, value: f64) -> MetricPoint {
    MetricPoint {
        name: name.to_owned(),
        step,
        value,
        merged: None,
    }
}

/// Runs a job that has logged `train/f1` at three steps and `lr: final` at one.
async fn logged(world: &World) -> JobId {
    let id = world.submit("logs").await;
    let (worker, _) = world.run(id, 0, 1).await;
    let steps = [(1, 0.25), (2, 0.5), (3, 0.75)];
    let mut points: Vec<_> = steps
        .map(|(step, value)| point("train/f1", step, value))
        .into();
    points.push(point("lr: final", 3, 0.5));
    let report = TaskReport::Metrics { points };
    world.tell(worker, 1, 0, vec![report]).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_listed_by_name() {
    let world = World::new().await;
    let id = logged(&world).await;
    let place = format!("/api/v1/jobs/{id}/metrics");
    let metrics: Value = world.get(RED, &place).await.json();
    let f1 = json!({ "name": "train/f1", "last_step": 3, "last": 0.75, "min": 0.25, "max": 0.75, "values": 3 });
    let lr = json!({ "name": "lr: final", "last_step": 3, "last": 0.5, "min": 0.5, "max": 0.5, "values": 1 });
    assert_eq!(metrics, json!({ "items": [lr, f1], "continue": null }));
    for path in ["", "/points?name=train%2Ff1", "/export"] {
        let answer = world.get(BLUE, &format!("{place}{path}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn points_of_chosen_metrics_are_returned() {
    let world = World::new().await;
    let id = logged(&world).await;
    let place = format!("/api/v1/jobs/{id}/metrics/points");
    let query = "name=train%2Ff1&name=none&name=lr:%20final&max_points=2";
    let series: Value = world.get(RED, &format!("{place}?{query}")).await.json();
    let items = series["items"].as_array().expect("a list");
    let names: Vec<_> = items.iter().map(|series| &series["name"]).collect();
    assert_eq!(names, ["train/f1", "lr: final"]);
    let first =
        json!({ "step": 1, "last": 0.25, "mean": 0.25, "min": 0.25, "max": 0.25, "values": 1 });
    let merged =
        json!({ "step": 3, "last": 0.75, "mean": 0.625, "min": 0.5, "max": 0.75, "values": 2 });
    assert_eq!(items[0]["bucket_steps"], 2);
    assert_eq!(items[0]["points"], json!([first, merged]));
    let many = format!("?{}", "name=a&".repeat(11));
    for wrong in [
        "",
        "?name=a&max_points=1",
        "?name=a&after=1",
        many.trim_end_matches('&'),
    ] {
        let refused = world.get(RED, &format!("{place}{wrong}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_exported_as_csv() {
    let world = World::new().await;
    let id = logged(&world).await;
    let place = format!("/api/v1/jobs/{id}/metrics/export");
    let all = world.get(RED, &place).await;
    assert_eq!(all.header("content-type"), "text/csv; charset=utf-8");
    let expected = "attachment; filename=\"logs-metrics.csv\"";
    assert_eq!(all.header("content-disposition"), expected);
    let header = "name,step,last,mean,min,max,values\n";
    let lr = "lr: final,3,0.5,0.5,0.5,0.5,1\n";
    let f1 = "train/f1,1,0.25,0.25,0.25,0.25,1\ntrain/f1,2,0.5,0.5,0.5,0.5,1\ntrain/f1,3,0.75,0.75,0.75,0.75,1\n";
    assert_eq!(all.text(), format!("{header}{lr}{f1}"));
    let one = world.get(RED, &format!("{place}?name=lr:%20final")).await;
    assert_eq!(one.text(), format!("{header}{lr}"));
}
