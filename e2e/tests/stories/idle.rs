//! Idle programs with real processes: a program of one worker that hangs is flagged, and restarts
//! only if its document says so. An interactive job ends after a time without use, and stays while
//! a forwarded port carries data.

use muster_e2e::cluster::{TestCluster, TestClusterOptions, free_port};
use muster_model::event::Event;
use muster_model::idle::IdleFinding;
use muster_model::job::JobPhase;
use muster_model::verdict::{Finding, Remedy};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

const ONE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };

/// Hangs at its first start and succeeds at the second.
const HANGS: &str = r#"version: muster/v1
name: hangs
command:
  argv: [sh, -c, 'echo begins; [ "$MUSTER_RESTART_COUNT" -gt 0 ] || exec sleep 600']
verdicts: { hang_s: 5 }
"#;

/// A server that prints nothing, so that only the sessions are use.
fn interactive(port: u16, idle_minutes: f64) -> String {
    format!(
        "
version: muster/v1
name: serve
command:
  argv:
    - python3
    - -c
    - |
      import http.server as server
      class Quiet(server.SimpleHTTPRequestHandler):
          def log_message(self, *_): pass
      server.HTTPServer(('127.0.0.1', {port}), Quiet).serve_forever()
interactive: {{ idle_minutes: {idle_minutes} }}
"
    )
}

#[tokio::test]
async fn hung_program_of_one_worker_restarts_if_it_says_so() {
    let mut cluster = TestCluster::start(ONE).await;
    let job = cluster.submit(HANGS).await.id;
    let done = cluster
        .until(job, "its end", |job| job.phase == JobPhase::Succeeded)
        .await;
    assert_eq!((done.failures, done.revision), (1, 2));
    let history = cluster.history(job).await;
    let verdict = history.iter().find_map(|entry| match &entry.event {
        Event::RankJudged { verdict } => Some(verdict),
        _ => None,
    });
    let verdict = verdict.expect("a verdict");
    assert_eq!(verdict.remedy, Remedy::Restarted);
    match verdict.finding {
        Finding::Idle { idle, idle_ms } => {
            assert!(idle_ms >= 5_000 && idle.output_ms.is_some(), "{verdict:?}");
        }
        other => panic!("{other:?}"),
    }
    cluster.down();
}

/// Starts `muster port-forward` to the job. Returns it with its local address.
fn forward(cluster: &TestCluster, port: u16) -> (Child, String) {
    let mut child = cluster
        .muster()
        .args(["port-forward", "serve", &format!("0:{port}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("muster runs");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    let address = line.split(' ').next().expect("an address").to_owned();
    (child, address)
}

fn get(address: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("it listens");
    connection
        .write_all(b"HEAD / HTTP/1.0\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    let _ = connection.read_to_string(&mut answer);
    answer
}

fn findings(history: &[muster_model::view::EventView]) -> Vec<IdleFinding> {
    let found = history.iter().filter_map(|entry| match entry.event {
        Event::JobIdle { finding } => Some(finding),
        _ => None,
    });
    found.collect()
}

#[tokio::test]
async fn interactive_job_ends_without_use_and_not_before() {
    let mut cluster = TestCluster::start(ONE).await;
    let port = free_port();
    let job = cluster.submit(&interactive(port, 0.2)).await.id;
    cluster
        .until(job, "a start", |job| job.phase == JobPhase::Running)
        .await;
    let (mut child, address) = forward(&cluster, port);
    // Twice the time without use.
    for _ in 0..24 {
        let answer = get(&address);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.0 200"),
            "{answer}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let view = cluster.client().job(job).await.expect("it is there");
    assert_eq!(view.phase, JobPhase::Running, "it is in use");
    assert_eq!(findings(&cluster.history(job).await), []);
    let done = cluster
        .until(job, "its end", |job| job.phase == JobPhase::Succeeded)
        .await;
    assert_eq!(done.failures, 0);
    let history = cluster.history(job).await;
    let warned = findings(&history);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!(warned[0].ends_after_ms, Some(12_000));
    assert!(warned[0].idle.session_ms.is_some(), "{warned:?}");
    let stops = history.iter().find_map(|entry| match &entry.event {
        Event::JobStopRequested { why, .. } => Some(why.clone()),
        _ => None,
    });
    let why = stops.expect("a stop");
    assert!(
        why.contains("without use") && why.contains("no CPU use"),
        "{why}"
    );
    child.kill().expect("killed");
    child.wait().expect("reaped");
    cluster.down();
}

/// `muster notebook` with another server: it forwards the port, and the job ends without use.
#[tokio::test]
async fn notebook_command_serves_the_port_until_the_job_ends() {
    let mut cluster = TestCluster::start(ONE).await;
    let port = free_port();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("page.txt"), "mine").expect("written");
    let mut child = cluster
        .muster()
        .args(["notebook", "--name", "serve", "--idle-minutes", "0.15"])
        .arg("--dir")
        .arg(folder.path())
        .args(["--", "python3", "-u", "-m", "http.server"])
        .args([&port.to_string(), "--bind", "127.0.0.1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("muster runs");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("an address");
    let address = line.trim().trim_start_matches("http://");
    let address = address.trim_end_matches('/').to_owned();
    let answer = get(&address);
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}: {line}");
    let status = child.wait().expect("it ends with the job");
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    assert!(status.success() && said.contains("without use"), "{said}");
    cluster.down();
}

/// A flagged program continues. The shortest limit of a document without a restart is that of
/// rules, so this reads the idleness that is shown before.
#[tokio::test]
async fn quiet_program_is_shown_as_idle_and_continues() {
    let mut cluster = TestCluster::start(ONE).await;
    let document = "
version: muster/v1
name: quiet
command: { argv: [sh, -c, 'echo begins; exec sleep 600'] }
";
    let job = cluster.submit(document).await.id;
    cluster
        .until(job, "a start", |job| job.phase == JobPhase::Running)
        .await;
    let mut evidence = None;
    for _ in 0..100 {
        let tasks = cluster.client().tasks(job).await.expect("tasks");
        evidence = tasks.into_iter().find_map(|task| task.idle);
        if evidence.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let idle = evidence.expect("idle after a minute");
    assert!(idle.evidence.contains("no CPU use for"), "{idle:?}");
    let shown = cluster.run(&["show", "quiet"]);
    assert!(shown.contains("idle: no output for"), "{shown}");
    let view = cluster.client().job(job).await.expect("it is there");
    assert_eq!((view.phase, view.failures), (JobPhase::Running, 0));
    cluster.down();
}
