//! Optuna, on a database of its own of the cluster's Postgres.

use super::Cost;
use muster_e2e::cluster::Cluster;
use sqlx::Connection as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PEER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../scheduler/search/benches/against_optuna/optuna_peer.py"
);

pub struct Theirs {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Theirs {
    /// Begins to fill its database; `None` without Optuna.
    pub async fn start(cluster: &Cluster, trials: u32) -> Option<Self> {
        let python = std::env::var_os("MUSTER_OPTUNA_PYTHON")?;
        let server = server(cluster);
        let owner = sqlx::PgConnection::connect(&format!("postgres://{server}/muster")).await;
        let mut owner = owner.expect("the cluster's Postgres answers");
        sqlx::query("create database optuna")
            .execute(&mut owner)
            .await
            .expect("a database");
        let mut child = Command::new(python)
            .args([PEER, "rounds", "tpe", &trials.to_string()])
            .arg(format!("postgresql+psycopg2://{server}/optuna"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        Some(Self {
            child,
            input,
            lines: BufReader::new(output).lines(),
        })
    }

    /// Waits until its trials are there.
    pub fn ready(&mut self) {
        assert_eq!(self.line(), "ready");
    }

    /// One ask and tell.
    pub fn round(&mut self) -> Cost {
        writeln!(self.input).expect("it listens");
        let line = self.line();
        let times: Vec<f64> = line
            .split(' ')
            .map_while(|word| word.parse().ok())
            .collect();
        let [wall, cpu] = times[..] else {
            panic!("Optuna said {line:?}")
        };
        Cost { wall, cpu }
    }

    fn line(&mut self) -> String {
        let line = self.lines.next().expect("Optuna goes on");
        line.expect("text")
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The owner's name and password, and where Postgres listens.
fn server(cluster: &Cluster) -> String {
    let postgres = cluster.running("postgres");
    let mut arguments = postgres.iter().flat_map(|process| &process.arguments);
    let port = arguments.find_map(|word| word.strip_prefix("port="));
    let port = port.expect("Postgres was told its port");
    let secrets = std::fs::read_to_string(cluster.data().join("secrets.toml"));
    let secrets: toml::Table = secrets.expect("secrets").parse().expect("TOML");
    let password = secrets["postgres_password"].as_str().expect("a text");
    format!("muster_owner:{password}@127.0.0.1:{port}")
}
