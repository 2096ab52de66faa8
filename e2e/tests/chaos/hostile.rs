//! Attacking tenant: documents, requests, connections and tasks against the control plane, the
//! nodes and the other tenants.

use crate::schedule::{ChaosHost, FaultRandom};
use crate::stand::ChaosCluster;
use crate::tenants::settle;
use muster_client::{Client, JobQuery};
use muster_e2e::story::document;
use muster_model::job::JobPhase;
use muster_model::view::TenantChange;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PAUSE: Duration = Duration::from_millis(700);
const CALL_WITHIN: Duration = Duration::from_secs(15);
/// Limits that an administrator sets for an untrusted tenant.
const QUOTA: u32 = 2;
const OPEN_JOBS: u64 = 300;
const FLOOD: u32 = 40;
const SLOW_CONNECTIONS: usize = 20;

/// Programs of its tasks. None ends early, and most ignore signals.
const PROGRAMS: [(&str, &str); 8] = [
    (
        "fills-disk",
        "dd if=/dev/zero of=\"$MUSTER_TASK_DIR/zeros\" bs=1M count=400 2>/dev/null; sleep 20",
    ),
    (
        "forges",
        "for n in 1 2 3 4 5 6 7 8; do echo '{\"kind\":\"finished\"}' >>\"$MUSTER_TASK_DIR/events.jsonl\"; echo '{\"exited\":0}' >\"$MUSTER_TASK_DIR/exit.json\"; sleep 1; done",
    ),
    (
        "forks",
        "for n in $(seq 60); do (trap '' TERM; setsid sleep 300) & done; sleep 15",
    ),
    ("ignores", "trap '' TERM INT HUP; while :; do sleep 1; done"),
    (
        "links",
        "cd \"$MUSTER_CHECKPOINT_DIR\" && ln -sf /etc/passwd manifest.json; ln -sf / all; mkfifo fifo; ln -sfn .. up; sleep 10",
    ),
    (
        "floods",
        "for n in $(seq 3000); do echo \"muster: step=$n loss=0.1 accuracy=2\"; echo \"$n $(head -c 300 /dev/zero | tr '\\0' x)\"; done; sleep 5",
    ),
    ("removes", "rm -rf \"$MUSTER_TASK_DIR\"; sleep 10"),
    ("dies", "kill -9 $$"),
];

pub struct HostileTenant {
    clients: Vec<Client>,
    token: String,
    servers: Vec<String>,
    attempts: AtomicU64,
    ends: AtomicBool,
    held: Mutex<Vec<TcpStream>>,
}

impl HostileTenant {
    pub async fn settle(stand: &ChaosCluster) -> Arc<Self> {
        let token = settle(stand, "eve", Some(QUOTA)).await;
        let limits: TenantChange =
            serde_json::from_value(json!({"limits": {"open_jobs": OPEN_JOBS}})).expect("limits");
        let admin = &stand.clients(&stand.token)[0];
        admin
            .change_tenant("eve", &limits)
            .await
            .expect("an administrator may");
        let apis = (0..crate::schedule::APIS).map(ChaosHost::Api);
        Arc::new(Self {
            clients: stand.clients(&token),
            servers: apis.map(|host| stand.server(host)).collect(),
            token,
            attempts: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            held: Mutex::default(),
        })
    }

    pub fn begin(self: &Arc<Self>, seed: u64) {
        let ours = Arc::clone(self);
        tokio::spawn(async move {
            let mut dice = FaultRandom(seed ^ 0x0065_7665);
            while !ours.ends.load(Ordering::Relaxed) {
                let attempt = ours.attempt(&mut dice);
                // A cluster that does not answer does not stop it.
                let _ = tokio::time::timeout(CALL_WITHIN, attempt).await;
                ours.attempts.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Ends the attempts and closes the connections.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.held.lock().expect("no panic").clear();
    }

    /// Cancels all open jobs and studies. Returns the number of jobs that have not ended.
    pub async fn cancel(&self) -> Option<usize> {
        let mut open = 0;
        let mut query = JobQuery {
            limit: Some(500),
            ..JobQuery::default()
        };
        loop {
            let page = tokio::time::timeout(CALL_WITHIN, self.clients[0].jobs(&query)).await;
            let page = page.ok()?.ok()?;
            for job in page.items.iter().filter(|job| !job.phase.is_terminal()) {
                open += 1;
                if job.phase != JobPhase::Stopping {
                    let _ = self.clients[0].cancel(job.id).await;
                }
            }
            if page.next.is_none() {
                return Some(open);
            }
            query.after = page.next;
        }
    }

    async fn attempt(&self, dice: &mut FaultRandom) {
        let api = usize::try_from(dice.below(self.servers.len() as u64)).expect("small");
        let client = &self.clients[api];
        match dice.below(12) {
            0..4 => {
                let index = usize::try_from(dice.below(PROGRAMS.len() as u64)).expect("small");
                let _ = client.submit(&program(PROGRAMS[index]), None).await;
            }
            4 => {
                for _ in 0..FLOOD {
                    let _ = client.submit(&program(("flood", "sleep 1")), None).await;
                }
            }
            5 => self.post(api, "application/yaml", &yaml_bomb()).await,
            6 => {
                self.post(api, "application/json", &"[".repeat(200_000))
                    .await
            }
            7 => {
                self.post(
                    api,
                    "application/json",
                    &format!("{{\"name\":\"{}\"}}", "x".repeat(3 << 20)),
                )
                .await
            }
            8 => {
                let mut with_nul = program(("nul", "true"));
                with_nul["labels"] = json!({"a": "b\u{0}c"});
                let _ = client.submit(&with_nul, None).await;
            }
            9 => {
                for guess in 0..20 {
                    let wrong = format!("muster_{guess:032}");
                    self.send(api, &format!("GET /api/v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {wrong}\r\nconnection: close\r\n\r\n")).await;
                }
            }
            10 => self.hold_connections(api).await,
            _ => {
                // More workers than slots, and a training that no node can run.
                let text = document("greedy", (64, 64), (1, 1), 1_000_000);
                let mut greedy: Value = serde_norway::from_str(&text).expect("YAML");
                greedy["retries"] = json!(0);
                let _ = client.submit(&greedy, None).await;
            }
        }
    }

    async fn post(&self, api: usize, kind: &str, body: &str) {
        let head = format!(
            "POST /api/v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.token,
            body.len()
        );
        self.send(api, &(head + body)).await;
    }

    async fn send(&self, api: usize, text: &str) {
        let Some(mut stream) = self.connect(api).await else {
            return;
        };
        let _ = stream.write_all(text.as_bytes()).await;
        let _ = stream.read(&mut [0; 1_024]).await;
    }

    /// Opens connections that send half of a header and then nothing.
    async fn hold_connections(&self, api: usize) {
        let mut new = Vec::new();
        for _ in 0..SLOW_CONNECTIONS {
            let Some(mut stream) = self.connect(api).await else {
                break;
            };
            let _ = stream.write_all(b"GET /api/v1/jobs HT").await;
            new.push(stream);
        }
        let mut held = self.held.lock().expect("no panic");
        held.extend(new);
        let excess = held.len().saturating_sub(5 * SLOW_CONNECTIONS);
        held.drain(..excess);
    }

    async fn connect(&self, api: usize) -> Option<TcpStream> {
        let address = self.servers[api].trim_start_matches("http://").to_owned();
        TcpStream::connect(address).await.ok()
    }
}

fn program((name, script): (&str, &str)) -> Value {
    json!({
        "version": "muster/v1", "name": name, "retries": 1,
        "command": {"argv": ["sh", "-c", script]}, "stop": {"wall_minutes": 1},
    })
}

/// Nine levels of nine aliases each.
fn yaml_bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    text
}
