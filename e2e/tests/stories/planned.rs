//! Jobs of schedules, of templates, and of an array with a limit, on real processes.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::log;
use muster_model::job::JobPhase;
use muster_model::view::{JobView, ScheduleView};
use sqlx::{Connection as _, PgConnection};
use std::path::PathBuf;
use std::time::Duration;

const NODE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 4 };

fn settings(cluster: &TestCluster, file: &str) -> toml::Table {
    let text = std::fs::read_to_string(cluster.data().join(file));
    text.expect("a file").parse().expect("TOML")
}

/// Makes the schedule due, as if its time had come an hour ago.
async fn make_due(cluster: &TestCluster) {
    let secrets = settings(cluster, "secrets.toml");
    let state = settings(cluster, "up.toml");
    let password = secrets["postgres_password"].as_str().expect("a password");
    let port = state["postgres_port"].as_integer().expect("a port");
    let url = format!("postgres://muster_owner:{password}@127.0.0.1:{port}/muster");
    let mut connection = PgConnection::connect(&url).await.expect("connected");
    let statement = "update schedule set next_at = now() - interval '1 hour'";
    let ran = sqlx::raw_sql(statement).execute(&mut connection).await;
    ran.expect("the statement is right");
}

fn file(cluster: &TestCluster, name: &str, text: &str) -> PathBuf {
    let path = cluster.data().join(name);
    std::fs::write(&path, text).expect("written");
    path
}

fn shown(cluster: &TestCluster) -> ScheduleView {
    let said = cluster.run(&["-o", "json", "schedule", "show", "yearly"]);
    serde_json::from_str(&said).expect("a schedule")
}

#[tokio::test]
async fn schedule_submits_its_job_once() {
    let mut cluster = TestCluster::start(NODE).await;
    let document = "version: muster/v1\nname: report\ncommand: { argv: [sh, -c, echo reported] }\n";
    let path = file(&cluster, "report.yaml", document);
    let path = path.to_str().expect("UTF-8");
    let set = ["schedule", "set", "yearly", path, "--cron", "@yearly"];
    let _stored = cluster.run(&[&set[..], &["--catch-up", "latest"]].concat());
    assert_eq!(shown(&cluster).last_job, None);
    make_due(&cluster).await;
    let job = loop {
        if let Some(job) = shown(&cluster).last_job {
            break job;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let job = cluster.succeeded(job).await;
    assert_eq!(job.labels["schedule"], "yearly");
    assert!(log(&cluster, job.id, "worker-0").await.contains("reported"));
    let history = cluster.run(&["events", "report"]);
    assert!(
        history.contains("Submitted by schedule yearly"),
        "{history}"
    );
    let again = cluster.run(&["schedule", "run-now", "yearly"]);
    assert!(again.contains("submitted"), "{again}");
    // The API server has searched for due schedules several times since.
    let jobs = cluster.run(&["-o", "json", "list", "--label", "schedule=yearly"]);
    let jobs: serde_json::Value = serde_json::from_str(&jobs).expect("jobs");
    assert_eq!(jobs["items"].as_array().map(Vec::len), Some(2), "{jobs}");
    cluster.down();
}

#[tokio::test]
async fn array_of_a_template_runs_within_its_limit() {
    let mut cluster = TestCluster::start(NODE).await;
    let template = "parameters: [{ name: word, type: string }]\njob:\n  version: muster/v1\n  name: say\n  \
                    command: { argv: [sh, -c, 'echo \"$0\"', \"${word}\"] }\n";
    let path = file(&cluster, "template.yaml", template);
    let _stored = cluster.run(&["template", "set", "say", path.to_str().expect("UTF-8")]);
    let hostile = "word=a: [b]\nc; $(d)";
    let submit = [
        "-o",
        "json",
        "submit",
        "--template",
        "say",
        "--set",
        hostile,
    ];
    let said: JobView = serde_json::from_str(&cluster.run(&submit)).expect("a job");
    let said = cluster.succeeded(said.id).await;
    assert_eq!(said.labels["template"], "say");
    let output = log(&cluster, said.id, "worker-0").await;
    for line in ["a: [b]", "c; $(d)"] {
        assert!(output.contains(line), "{output}");
    }

    let run = ["-o", "json", "run", "--no-code", "--name", "fold"];
    let array = ["--array", "1-5%2", "--", "sleep", "0.5"];
    let jobs: Vec<JobView> =
        serde_json::from_str(&cluster.run(&[&run[..], &array].concat())).expect("jobs");
    let mut runs = Vec::new();
    for job in &jobs {
        let ended = cluster.succeeded(job.id).await;
        assert_eq!(ended.phase, JobPhase::Succeeded);
        let (start, end) = (ended.started_at, ended.finished_at);
        runs.push((start.expect("started"), end.expect("ended")));
    }
    for (start, _) in &runs {
        let alive = runs.iter().filter(|(from, to)| from <= start && start < to);
        assert!(alive.count() <= 2, "{runs:?}");
    }
    cluster.down();
}
