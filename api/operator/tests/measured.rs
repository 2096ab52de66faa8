//! Tests the metrics of the real process, with stand-ins for Kubernetes and Muster.

#[allow(dead_code, reason = "every test binary uses another part of it")]
mod world;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use world::cluster::stranger;
use world::{UID, World, job};

const OURS: &str = "01890000-0000-7000-8000-000000000001";
const WAITS: &str = "01890000-0000-7000-8000-000000000002";
/// Generous, because the machine may be busy.
const STEPS: u32 = 600;
const STEP: Duration = Duration::from_millis(100);

const SHOWN: &str = "muster_operator_kubernetes_request_seconds_count{method=\"PATCH\",resource=\"trainingjobs/status\",status=\"200\"}";
const NOT_TAKEN: &str = "muster_operator_kubernetes_request_seconds_count{method=\"PATCH\",resource=\"trainingjobs/status\",status=\"503\"}";
const LISTED: &str =
    "muster_operator_muster_requests_total{method=\"GET\",resource=\"jobs\",status=\"200\"}";
const NOT_LISTED: &str =
    "muster_operator_muster_requests_total{method=\"GET\",resource=\"jobs\",status=\"503\"}";
const BEHIND: &str = "muster_operator_behind_seconds";
const LIST_AGE: &str = "muster_operator_list_age_seconds";
const OUTDATED: &str = "muster_operator_objects_outdated{kind=\"TrainingJob\"}";
const WANTED: &str = "muster_operator_placeholders_wanted{pool=\"gpu\"}";
const THERE: &str = "muster_operator_placeholders{pool=\"gpu\"}";

type Series = BTreeMap<String, f64>;

/// Operator process, which ends with the test.
struct Operator {
    process: Child,
    at: SocketAddr,
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Operator {
    fn started(world: &World) -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("measured-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        drop(listener);
        let process = Command::new(env!("CARGO_BIN_EXE_muster-operator"))
            .args(["run", "--token", "admin", "--name", "here"])
            .args(["--server", &format!("{}/muster", world.uri())])
            .args(["--listen", &at.to_string()])
            .args(["--nodes", "true", "--foreign-pods", "true"])
            .arg("--placeholders")
            .arg(placeholders(&folder))
            .env("KUBECONFIG", kubeconfig(&folder, &world.uri()))
            .env("MUSTER_LOG", "error")
            .spawn()
            .expect("it starts");
        Self { process, at }
    }

    /// Returns every series with its value; `None` while the process does not listen yet.
    async fn scraped(&self) -> Option<Series> {
        let mut connection = TcpStream::connect(self.at).await.ok()?;
        let request = "GET /metrics HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.ok()?;
        let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        // Names of objects must not be readable for every scraper.
        for name in ["vision", "mine", "web", "secret-project", UID] {
            assert!(!text.contains(name), "{name} in {text}");
        }
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            (name.to_owned(), value.parse().expect("a number"))
        });
        Some(series.collect())
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Series) -> bool) -> Series {
        let mut seen = None;
        for _ in 0..STEPS {
            seen = self.scraped().await;
            if let Some(series) = seen.take_if(|series| is_so(series)) {
                return series;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("waiting for {what} was in vain: {seen:#?}");
    }
}

fn kubeconfig(folder: &Path, server: &str) -> PathBuf {
    let path = folder.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": server } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "users": [{ "name": "a", "user": {} }],
    });
    std::fs::write(&path, config.to_string()).expect("written");
    path
}

fn placeholders(folder: &Path) -> PathBuf {
    let path = folder.join("placeholders.json");
    let pod = json!({ "metadata": {}, "spec": { "containers": [{ "name": "placeholder", "image": "pause:1" }] } });
    let pool = json!({ "gpus": 8, "parts": false, "pods": false, "part": "", "cpuMilli": 64_000, "memoryBytes": 512_u64 << 30, "pod": pod });
    let settings = json!({ "namespace": "muster", "group": "muster", "afterSeconds": 0, "most": 4, "pools": { "gpu": pool } });
    std::fs::write(&path, settings.to_string()).expect("written");
    path
}

fn at(series: &Series, name: &str) -> f64 {
    series.get(name).copied().unwrap_or_default()
}

fn is(name: &str, value: f64) -> impl Fn(&Series) -> bool {
    move |series| series.get(name) == Some(&value)
}

fn has_placeholders(count: f64) -> impl Fn(&Series) -> bool {
    move |series| is(WANTED, count)(series) && is(THERE, count)(series)
}

fn objects(phase: &str) -> String {
    format!("muster_operator_objects{{kind=\"TrainingJob\",phase=\"{phase}\"}}")
}

fn reconcile_count(kind: &str, outcome: &str) -> String {
    format!("muster_operator_look_seconds_count{{kind=\"{kind}\",outcome=\"{outcome}\"}}")
}

fn document(name: &str, labels: Value) -> Value {
    json!({ "version": "muster/v1", "name": name, "labels": labels, "command": { "argv": ["true"] } })
}

/// The object's job, and a job without an object that waits for a node.
async fn world() -> World {
    let world = World::with("TrainingJob", json!({ "command": { "argv": ["true"] } })).await;
    let labels = json!({ "muster.dev/operator": "here", "muster.dev/namespace": "vision", "muster.dev/uid": UID });
    let mut waits = job(WAITS, "vision", &document("waits", json!({})));
    waits["phase"] = "queued".into();
    waits["state"]["phase"] = "queued".into();
    let why =
        json!({ "reason": "waiting_for_gpus", "needed_gpus": 1, "free_gpus": 0, "held_by": [] });
    waits["waiting"] = json!({
        "reason": "x", "message": "x", "smallest_change": null, "position": 1,
        "detail": { "why": why, "smallest_change": null, "position": 1 },
    });
    let running = job(OURS, "vision", &document("mine", labels));
    let mut state = world.state();
    state.jobs.extend([running, waits]);
    state.pods.push(stranger(2));
    drop(state);
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_report_objects_reconciliations_requests_and_lag() {
    let world = world().await;
    let operator = Operator::started(&world);
    let first = operator
        .until("the job", is(&objects("Running"), 1.0))
        .await;
    assert!(at(&first, "muster_operator_started_timestamp_seconds") > 1.7e9);
    let listed = at(&first, LISTED);
    let series = operator
        .until("two lists", |series| at(series, LISTED) > listed + 1.0)
        .await;
    assert!(at(&series, &reconcile_count("TrainingJob", "done")) >= 1.0);
    assert!(at(&series, SHOWN) >= 1.0, "{series:#?}");
    let series = operator
        .until("all is shown", |series| {
            is(BEHIND, 0.0)(series) && is(OUTDATED, 0.0)(series)
        })
        .await;
    assert!(
        series.keys().all(|name| !name.contains("failed_by")),
        "{series:#?}"
    );

    tells_of_nodes(&world, &operator).await;
    falls_behind(&world, &operator).await;
    hears_nothing(&world, &operator).await;
}

/// External GPU use and placeholders.
async fn tells_of_nodes(world: &World, operator: &Operator) {
    let held = "muster_operator_foreign_held{resource=\"nvidia.com/gpu\"}";
    operator.until("others' GPUs", is(held, 2.0)).await;
    operator.until("a placeholder", has_placeholders(1.0)).await;
    world.state().pods.clear();
    world.state().jobs.retain(|job| job["id"] != WAITS);
    let series = operator
        .until("neither any more", |series| {
            !series.contains_key(held) && has_placeholders(0.0)(series)
        })
        .await;
    for kind in ["Node", "Placeholder"] {
        assert!(
            at(&series, &reconcile_count(kind, "done")) >= 1.0,
            "{series:#?}"
        );
    }
}

/// Kubernetes rejects statuses, so the job's new state and the spec's new generation are not shown.
async fn falls_behind(world: &World, operator: &Operator) {
    world.state().takes_no_status = true;
    for job in &mut world.state().jobs {
        job["phase"] = "paused".into();
        job["state"]["phase"] = "paused".into();
    }
    world.change(|object| object["metadata"]["generation"] = 2.into());
    let failed = reconcile_count("TrainingJob", "failed_by_kubernetes");
    let late = operator
        .until("it falls behind", |series| {
            at(series, BEHIND) > 2.5 && at(series, NOT_TAKEN) >= 2.0 && at(series, &failed) >= 2.0
        })
        .await;
    assert!(is(OUTDATED, 1.0)(&late), "{late:#?}");
    assert!(is(&objects("Running"), 1.0)(&late), "{late:#?}");
    world.state().takes_no_status = false;
    let series = operator
        .until("it has caught up", |series| {
            is(BEHIND, 0.0)(series)
                && is(OUTDATED, 0.0)(series)
                && is(&objects("Paused"), 1.0)(series)
        })
        .await;
    assert!(!series.contains_key(&objects("Running")), "{series:#?}");
}

/// Muster does not answer, so changes of jobs are unknown and reconciliations fail.
async fn hears_nothing(world: &World, operator: &Operator) {
    world.state().is_away = true;
    let failed = reconcile_count("TrainingJob", "failed_by_muster");
    let away = operator
        .until("lists and reconciliations fail", |series| {
            at(series, LIST_AGE) > 4.0 && at(series, NOT_LISTED) > 0.0 && at(series, &failed) >= 1.0
        })
        .await;
    world.state().is_away = false;
    operator
        .until("a list", |series| {
            at(series, LIST_AGE) < 2.0 && at(series, LISTED) > at(&away, LISTED)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_probe_is_accepted() {
    let world = world().await;
    let operator = Operator::started(&world);
    operator.until("it listens", |_| true).await;
    for _ in 0..100 {
        TcpStream::connect(operator.at).await.expect("a probe");
    }
    assert!(operator.scraped().await.is_some());
}
