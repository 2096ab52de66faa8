//! Secrets on real processes: a program gets the values, and no file, table, log or argument has
//! them.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::processes;
use muster_e2e::story::log;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use sqlx::{Connection as _, PgConnection};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Long enough that it is in no file by chance.
const VALUE: &str = "hunter2-82fd4c1e9ab7";
const ROTATED: &str = "hunter3-5d0a7b3c66e1";
const ONE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 1 };

/// Runs `muster` with this standard input and returns its output.
fn muster(cluster: &TestCluster, arguments: &[&str], input: &str) -> String {
    let mut child = cluster
        .muster()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("muster runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

async fn submit(cluster: &TestCluster, name: &str, script: &str) -> JobId {
    let document = format!(
        "
version: muster/v1
name: {name}
retries: 0
command:
  argv: [sh, -c, '{script}']
  secrets: [{{ name: HF_TOKEN }}, {{ name: HF_TOKEN, env: WANDB_API_KEY }}, {{ name: ssh-key, file: id }}]"
    );
    cluster.submit(&document).await.id
}

/// Files below a folder that contain the text. Postgres' tables and its log of changes are among
/// them; it compresses only values of kilobytes.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let found = Command::new("grep")
        .args(["-rlaF", "--devices=skip", text])
        .arg(folder)
        .output()
        .expect("grep runs");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    found.lines().map(str::to_owned).collect()
}

/// Runs a statement as the owner of the cluster's database.
async fn sql(cluster: &TestCluster, statement: &'static str) {
    let secrets = settings(cluster, "secrets.toml");
    let state = settings(cluster, "up.toml");
    let password = secrets["postgres_password"].as_str().expect("a password");
    let port = state["postgres_port"].as_integer().expect("a port");
    let url = format!("postgres://muster_owner:{password}@127.0.0.1:{port}/muster");
    let mut connection = PgConnection::connect(&url).await.expect("connected");
    let ran = sqlx::raw_sql(statement).execute(&mut connection).await;
    ran.expect("the statement is right");
}

fn settings(cluster: &TestCluster, file: &str) -> toml::Table {
    let text = std::fs::read_to_string(cluster.data().join(file));
    text.expect("a file").parse().expect("TOML")
}

#[tokio::test]
async fn program_gets_secrets_that_nothing_else_keeps() {
    let mut cluster = TestCluster::start(ONE).await;
    let said = muster(
        &cluster,
        &["secrets", "set", "HF_TOKEN"],
        &format!("{VALUE}\n"),
    );
    assert!(said.contains("version 1"), "{said}");
    muster(&cluster, &["secrets", "set", "ssh-key"], VALUE);
    let listed = muster(&cluster, &["secrets", "list"], "");
    assert!(
        listed.contains("HF_TOKEN") && listed.contains("ssh-key") && !listed.contains(VALUE),
        "{listed}"
    );
    // The digest shows what the program got, and not the value.
    let digest = r#"printf %s "$HF_TOKEN" | sha256sum; printf %s "$WANDB_API_KEY" | sha256sum; sha256sum < "$MUSTER_SECRETS_DIR/id""#;
    let waits =
        format!(r#"{digest}; echo up; while [ ! -e "$MUSTER_TASK_DIR/go" ]; do sleep 0.1; done"#);
    let job = submit(&cluster, "reads", &waits).await;
    cluster
        .until(job, "a start", |job| job.phase == JobPhase::Running)
        .await;
    while !log(&cluster, job, "worker-0").await.contains("up") {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let text = log(&cluster, job, "worker-0").await;
    let same = text
        .lines()
        .filter(|line| *line == text.lines().next().expect("a line"));
    assert_eq!(same.count(), 3, "{text}");
    // While it runs, the file for the program is the only one with the value.
    let files = files_with(&cluster.data(), VALUE);
    assert!(
        files.len() == 1 && files[0].ends_with("/secrets/id"),
        "{files:?}"
    );
    let in_arguments =
        |process: &processes::OsProcess| process.arguments.iter().any(|word| word.contains(VALUE));
    assert!(!cluster.processes().iter().any(in_arguments));
    let refused = cluster
        .muster()
        .args(["secrets", "delete", "HF_TOKEN"])
        .output();
    let refused = String::from_utf8_lossy(&refused.expect("it runs").stderr).into_owned();
    assert!(refused.contains("open jobs reads"), "{refused}");
    let secret = Path::new(&files[0]);
    let folder = secret.ancestors().nth(2).expect("the task's folder");
    std::fs::write(folder.join("go"), "").expect("written");
    cluster.succeeded(job).await;
    assert_eq!(files_with(&cluster.data(), VALUE), Vec::<String>::new());

    // A rotated value reaches the next start.
    muster(&cluster, &["secrets", "set", "HF_TOKEN"], ROTATED);
    muster(&cluster, &["secrets", "set", "ssh-key"], ROTATED);
    let rotated = submit(&cluster, "rotated", digest).await;
    cluster.succeeded(rotated).await;
    let now = log(&cluster, rotated, "worker-0").await;
    assert_ne!(now.lines().next(), text.lines().next());
    assert_eq!(files_with(&cluster.data(), ROTATED), Vec::<String>::new());
    let events = cluster.run(&["events"]);
    assert!(
        events.contains("Version 2 of secret HF_TOKEN stored by"),
        "{events}"
    );

    // A row that was moved or changed does not decrypt.
    sql(
        &cluster,
        "update secret set ciphertext = (select ciphertext from secret where name = 'ssh-key'), nonce = (select nonce from secret where name = 'ssh-key') where name = 'HF_TOKEN'",
    )
    .await;
    let tampered = submit(&cluster, "tampered", "echo started").await;
    let failed = cluster
        .until(tampered, "a failure", |job| job.phase == JobPhase::Failed)
        .await;
    let why = failed.failure.expect("a reason");
    assert!(
        why.contains("secret HF_TOKEN") && why.contains("was changed"),
        "{why}"
    );
    assert!(
        !log(&cluster, tampered, "worker-0")
            .await
            .contains("started")
    );
    cluster.down();
    for value in [VALUE, ROTATED] {
        assert_eq!(files_with(&cluster.data(), value), Vec::<String>::new());
    }
}
