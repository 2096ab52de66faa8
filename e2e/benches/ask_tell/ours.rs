//! Muster's side: a study without jobs, used by REST.

use super::Cost;
use muster_client::Client;
use muster_e2e::cluster::TestCluster;
use muster_e2e::processes::OsProcess;
use muster_e2e::study::created;
use muster_model::id::StudyId;
use muster_model::study::ToldState;
use muster_model::view::{Ask, Tell, TrialResult, TrialView};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Ticks per second in `/proc` on Linux.
const TICKS: f64 = 100.0;

/// Maximum number of open trials. All but one stay open while rounds are measured.
const CONCURRENCY: u32 = 100;

/// Requests of one tell and ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestMode {
    /// One request.
    One,
    /// One request each.
    Two,
}

pub struct MusterStudy<'a> {
    client: &'a Client,
    study: StudyId,
    /// Trials without a result.
    open: Vec<TrialView>,
    daemons: Vec<OsProcess>,
    noise: u64,
}

impl<'a> MusterStudy<'a> {
    /// Creates a study with `trials` finished trials in the whole space.
    pub async fn fill(cluster: &'a TestCluster, trials: u32) -> Self {
        let axes: Vec<_> = (0..6)
            .map(|i| json!({"name": format!("x{i}"), "type": "float", "low": 0.0, "high": 1.0}))
            .collect();
        let document = json!({
            "version": "muster/v1", "kind": "study", "name": "hartmann6",
            "search": {
                "objectives": [{"metric": "value", "goal": "minimize"}], "parameters": axes,
                "searcher": {"kind": "tpe", "startup": trials},
                "trials": trials + 1000, "concurrency": CONCURRENCY, "seed": 1,
            },
        });
        let study = created(cluster, &document).await;
        let client = cluster.client();
        let mut daemons = cluster.running("muster-api");
        daemons.extend(cluster.running("muster-scheduler"));
        let mut ours = Self {
            client,
            study,
            open: Vec::new(),
            daemons,
            noise: 1,
        };
        let mut told = 0;
        while told < trials {
            ours.ask(CONCURRENCY).await;
            let count = ours.open.len().min((trials - told) as usize);
            told += count as u32;
            ours.tell(count).await;
        }
        while ours.open.len() < CONCURRENCY as usize {
            ours.ask(CONCURRENCY).await;
        }
        ours
    }

    /// Runs `askers` clients at the same time. Each reports a trial and asks for its successor,
    /// `each` times; no successor can be proposed before. Returns the cost of one tell and ask.
    pub async fn round(&mut self, askers: usize, each: usize, by: RequestMode) -> Cost {
        let (began, cpu) = (Instant::now(), self.cpu_ms());
        let trials: Vec<TrialView> = self.open.drain(..askers).collect();
        let values: Vec<f64> = (0..askers * each).map(|_| self.noise()).collect();
        let (client, study) = (self.client, self.study);
        let askers = trials.into_iter().zip(values.chunks(each));
        let askers = askers.map(|(mut trial, values)| async move {
            for value in values {
                let result = vec![(trial, *value)];
                let mut next = match by {
                    RequestMode::One => told(client, study, result, Some(ASK)).await,
                    RequestMode::Two => {
                        told(client, study, result, None).await;
                        asked(client, study, 1).await
                    }
                };
                trial = next.pop().expect("there is one");
            }
            trial
        });
        self.open.extend(futures::future::join_all(askers).await);
        let count = values.len() as f64;
        Cost {
            wall: began.elapsed().as_secs_f64() * 1e3 / count,
            cpu: (self.cpu_ms() - cpu) / count,
        }
    }

    /// Runs one client with `count` trials at a time. It reports them together and asks until it
    /// has as many again. Returns the cost of one tell and ask.
    pub async fn round_together(&mut self, count: usize) -> Cost {
        let (began, cpu) = (Instant::now(), self.cpu_ms());
        let trials: Vec<TrialView> = self.open.drain(..count).collect();
        let results = trials.into_iter().map(|trial| (trial, self.noise()));
        let (results, all) = (results.collect(), count as u32);
        let ask = Ask { count: all, ..ASK };
        let mut next = told(self.client, self.study, results, Some(ask)).await;
        while next.len() < count {
            next.extend(asked(self.client, self.study, all - next.len() as u32).await);
        }
        self.open.extend(next);
        Cost {
            wall: began.elapsed().as_secs_f64() * 1e3 / count as f64,
            cpu: (self.cpu_ms() - cpu) / count as f64,
        }
    }

    /// Reports results of the trials that have been open longest.
    async fn tell(&mut self, count: usize) {
        let trials: Vec<TrialView> = self.open.drain(..count).collect();
        let results = trials.into_iter().map(|trial| (trial, self.noise()));
        let results = results.collect();
        told(self.client, self.study, results, None).await;
    }

    async fn ask(&mut self, count: u32) {
        self.open
            .extend(asked(self.client, self.study, count).await);
    }

    /// 0 to 1.
    fn noise(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005);
        self.noise = self.noise.wrapping_add(1);
        (self.noise >> 11) as f64 / (1u64 << 53) as f64
    }

    /// CPU time of the daemons so far.
    fn cpu_ms(&self) -> f64 {
        self.daemons.iter().map(process_cpu_ms).sum()
    }
}

fn process_cpu_ms(process: &OsProcess) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid));
    let stat = stat.expect("the daemon runs");
    let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
    // utime and stime, the 14th and 15th field in total.
    let fields = rest.split(' ').skip(11).take(2);
    let ticks: f64 = fields
        .map(|field| field.parse::<f64>().expect("ticks"))
        .sum();
    ticks * 1e3 / TICKS
}

const ASK: Ask = Ask {
    count: 1,
    wait_s: 20,
};

/// Reports results and returns the requested trials, if any.
async fn told(
    client: &Client,
    study: StudyId,
    results: Vec<(TrialView, f64)>,
    ask: Option<Ask>,
) -> Vec<TrialView> {
    let results = results.into_iter().map(|(trial, value)| TrialResult {
        trial: trial.number,
        step: Some(trial.budget),
        values: BTreeMap::from([("value".to_owned(), value)]),
        state: ToldState::Finished,
        exhausted: false,
    });
    let tell = Tell {
        results: results.collect(),
        ask,
    };
    let told = client.tell(study, &tell).await;
    let asked = told.expect("they are ours to tell").asked;
    asked.map_or_else(Vec::new, |asked| asked.trials)
}

async fn asked(client: &Client, study: StudyId, count: u32) -> Vec<TrialView> {
    let ask = Ask { count, ..ASK };
    let asked = client.ask(study, ask).await.expect("asked");
    assert!(!asked.trials.is_empty(), "there are some within a while");
    asked.trials
}
