//! Optuna on a separate database of the cluster's Postgres.

use super::Cost;
use muster_e2e::cluster::TestCluster;
use sqlx::Connection as _;
use std::ffi::OsString;
use std::time::Instant;

#[path = "../../../scheduler/search/benches/against_optuna/optuna.rs"]
mod optuna;

use optuna::Optuna;

const PEER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../scheduler/search/benches/against_optuna/optuna_peer.py"
);

/// Processes on one study, each with its own sampler.
pub struct OptunaStudy {
    askers: Vec<Optuna>,
    python: OsString,
    address: String,
}

impl OptunaStudy {
    /// Starts to fill its database; `None` without Optuna.
    pub async fn start(cluster: &TestCluster, trials: u32) -> Option<Self> {
        let python = std::env::var_os("MUSTER_OPTUNA_PYTHON")?;
        let server = server(cluster);
        let owner = sqlx::PgConnection::connect(&format!("postgres://{server}/muster")).await;
        let mut owner = owner.expect("the cluster's Postgres answers");
        sqlx::query("create database optuna")
            .execute(&mut owner)
            .await
            .expect("a database");
        let address = format!("postgresql+psycopg2://{server}/optuna");
        let arguments = ["rounds", "tpe", &trials.to_string(), &address];
        Some(Self {
            askers: vec![Optuna::start(&python, PEER, &arguments)],
            python,
            address,
        })
    }

    /// Waits until its trials are complete.
    pub fn ready(&mut self) {
        for asker in &mut self.askers {
            assert_eq!(asker.line(), "ready");
        }
    }

    /// Sets the number of asking processes.
    pub fn are(&mut self, askers: usize) {
        while self.askers.len() < askers {
            let seed = self.askers.len().to_string();
            let mut asker =
                Optuna::start(&self.python, PEER, &["beside", "tpe", &self.address, &seed]);
            assert_eq!(asker.line(), "ready");
            self.askers.push(asker);
        }
    }

    /// Lets each process ask and tell `each` times, all at the same time. Returns the cost of one
    /// ask and tell.
    pub fn round(&mut self, each: usize) -> Cost {
        let began = Instant::now();
        for asker in &mut self.askers {
            asker.tell(each);
        }
        let cpu: f64 = self.askers.iter_mut().map(cpu).sum();
        let count = (each * self.askers.len()) as f64;
        Cost {
            wall: began.elapsed().as_secs_f64() * 1e3 / count,
            cpu: cpu / count,
        }
    }
}

/// CPU milliseconds of the last request.
fn cpu(asker: &mut Optuna) -> f64 {
    let line = asker.line();
    let cpu = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    cpu.unwrap_or_else(|| panic!("Optuna said {line:?}"))
}

/// User, password and address of the cluster's Postgres.
fn server(cluster: &TestCluster) -> String {
    let postgres = cluster.running("postgres");
    let mut arguments = postgres.iter().flat_map(|process| &process.arguments);
    let port = arguments.find_map(|word| word.strip_prefix("port="));
    let port = port.expect("Postgres was told its port");
    let secrets = std::fs::read_to_string(cluster.data().join("secrets.toml"));
    let secrets: toml::Table = secrets.expect("secrets").parse().expect("TOML");
    let password = secrets["postgres_password"].as_str().expect("a text");
    format!("muster_owner:{password}@127.0.0.1:{port}")
}
