//! Remote sessions through the real command line: a command, a shell, a port and copies of files.
//! Kills of the scheduler and of the API server end a session and not its task.

use muster_e2e::cluster::{TestCluster, TestClusterOptions, free_port};
use muster_e2e::processes::OsProcess;

use muster_model::job::JobPhase;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

const ONE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };
const STEP: Duration = Duration::from_millis(50);

/// Opens a terminal for `muster`, types a command into its shell, and passes the exit code on.
const TYPIST: &str = r#"
import os, pty, signal, sys
signal.alarm(60)
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
while b"$ " not in said:
    said += os.read(terminal, 4096)
os.write(terminal, b"echo at $((40 + 2)) $TERM; exit 7\n")
try:
    while piece := os.read(terminal, 4096):
        said += piece
except OSError:
    pass
_, status = os.waitpid(pid, 0)
print(said.decode())
sys.exit(os.waitstatus_to_exitcode(status))
"#;

fn muster(cluster: &TestCluster, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = spawn(cluster, arguments);
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writes = std::thread::spawn(move || {
        // The command may end before it has read everything.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writes.join().expect("written");
    output
}

fn spawn(cluster: &TestCluster, arguments: &[&str]) -> Child {
    cluster
        .muster()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("muster runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the line that `muster port-forward` prints, and what a request at its port receives.
fn get(cluster: &TestCluster, port: u16, path: &str) -> (Child, String) {
    let mut forward = spawn(cluster, &["port-forward", "serve", &format!("0:{port}")]);
    let mut line = String::new();
    let mut stdout = BufReader::new(forward.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    let address = line.split(' ').next().expect("an address");
    let mut connection = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    // A refused connection is closed or reset.
    let _ = connection.read_to_string(&mut answer);
    (forward, answer)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        tokio::time::sleep(STEP).await;
    }
    panic!("{what}: not within 30 s");
}

fn sleeping(cluster: &TestCluster, mark: &str) -> Vec<OsProcess> {
    let processes = cluster.processes().into_iter();
    processes
        .filter(|process| process.program == "sleep" && process.mentions(mark))
        .collect()
}

/// Kills a program while a long command runs: the command line reports it, and the task continues.
async fn survives_kill(cluster: &TestCluster, program: &str, mark: &str) {
    let task = cluster.running("python3").into_iter().next();
    let task = task.expect("the task's program");
    let child = spawn(cluster, &["exec", "serve", "--", "sleep", mark]);
    until("the command runs", || !sleeping(cluster, mark).is_empty()).await;
    cluster.kill(&cluster.running(program)[0]);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(255), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("muster: the session"), "{said}");
    until("no process is left", || sleeping(cluster, mark).is_empty()).await;
    assert!(task.is_alive(), "the task continues");
    // The daemon is restarted, and sessions work again.
    for _ in 0..200 {
        let output = muster(cluster, &["exec", "serve", "--", "true"], b"");
        if output.status.success() {
            return;
        }
        tokio::time::sleep(STEP * 4).await;
    }
    panic!("no session after the kill of {program}");
}

#[tokio::test]
async fn users_reach_their_running_task() {
    let cluster = TestCluster::start(ONE).await;
    let port = free_port();
    let document = format!(
        "
version: muster/v1
name: serve
retries: 0
command:
  argv: [sh, -c, 'mkdir runs; echo loss 0.5 > runs/log; exec python3 -m http.server {port} --bind 127.0.0.1 -d runs']"
    );
    let job = cluster.submit(&document).await.id;
    cluster
        .until(job, "a start", |job| job.phase == JobPhase::Running)
        .await;
    until("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;

    let script = "cat runs/log; echo \"rank $MUSTER_RANK\"; echo problem >&2; exit 3";
    let output = muster(&cluster, &["exec", "serve", "--", "sh", "-c", script], b"");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "loss 0.5\nrank 0\n");
    assert_eq!(text(&output.stderr), "problem\n");

    let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 253) as u8).collect();
    let output = muster(&cluster, &["exec", "-i", "serve", "--", "cat"], &data);
    assert!(output.stdout == data, "{} bytes", output.stdout.len());

    let muster_path = muster_e2e::cluster::program("muster");
    let mut typist = std::process::Command::new("python3");
    typist.args(["-c", TYPIST]).arg(&muster_path);
    // The prompt of root is another one.
    typist.args(["exec", "-it", "serve", "--", "env", "PS1=$ ", "sh"]);
    typist.envs(
        cluster
            .muster()
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = typist.env("TERM", "xterm-test").output();
    let output = output.expect("python runs");
    let said = text(&output.stdout);
    assert!(said.contains("at 42 xterm-test"), "{said}");
    assert_eq!(output.status.code(), Some(7), "{said}");

    let (mut forward, answer) = get(&cluster, port, "/log");
    assert!(
        answer.starts_with("HTTP/1.0 200") && answer.ends_with("loss 0.5\n"),
        "{answer}"
    );
    forward.kill().expect("killed");
    forward.wait().expect("reaped");
    let state = fs::read_to_string(cluster.data().join("up.toml")).expect("a file");
    let state: toml::Table = state.parse().expect("TOML");
    let postgres = state["postgres_port"].as_integer().expect("a port");
    let postgres = u16::try_from(postgres).expect("a port");
    let (mut forward, answer) = get(&cluster, postgres, "/");
    assert_eq!(answer, "");
    // The connection is closed before the reason is printed.
    let mut said = String::new();
    let mut stderr = BufReader::new(forward.stderr.take().expect("a pipe"));
    stderr.read_line(&mut said).expect("a line");
    assert!(said.contains("outside of the task"), "{said}");
    forward.kill().expect("killed");
    forward.wait().expect("reaped");

    let local = tempfile::tempdir().expect("a folder");
    let place = local.path().display().to_string();
    let said = cluster.run(&["cp", "serve:runs", &place]);
    assert!(said.contains("1 files copied"), "{said}");
    let log = local.path().join("runs/log");
    assert_eq!(fs::read_to_string(&log).expect("copied"), "loss 0.5\n");
    fs::write(&log, "from the laptop").expect("written");
    let said = cluster.run(&["cp", &log.display().to_string(), "serve:runs/new"]);
    assert!(said.contains("1 files copied"), "{said}");
    let output = muster(&cluster, &["exec", "serve", "--", "cat", "runs/new"], b"");
    assert_eq!(text(&output.stdout), "from the laptop");

    survives_kill(&cluster, "muster-scheduler", "98761").await;
    survives_kill(&cluster, "muster-api", "98762").await;

    let events = cluster.run(&["events", "serve"]);
    for line in [
        "opened a session in worker-0: command: sh -c cat runs/log",
        "in worker-0 ended: exit code 3",
        "opened a session in worker-0: command with a terminal: env",
        "opened a session in worker-0: copy to runs/new",
    ] {
        assert!(events.contains(line), "{line}: {events}");
    }
    assert!(!events.contains(&format!("port {port}")), "{events}");
    let all = cluster.run(&["events", "--all", "serve"]);
    assert!(
        all.contains(&format!("to port {port} of worker-0 ended")),
        "{all}"
    );

    let said = cluster.run(&["tenants", "interactive", "default", "refused"]);
    assert!(said.contains("default: refused"), "{said}");
    let output = muster(&cluster, &["exec", "serve", "--", "true"], b"");
    assert_eq!(output.status.code(), Some(6));
    let said = text(&output.stderr);
    assert!(
        said.contains("muster tenants interactive default allowed"),
        "{said}"
    );
}
