//! Effect of time slicing on short jobs behind a long one, on real processes. One job fills four
//! slots and eight short ones are submitted at once. Their mean completion time under FIFO is
//! compared with that under time slicing. The simulator runs the same jobs with the measured start
//! times and lengths. Both factors are printed. `make bench-slicing`.
//!
//! The jobs are commands that count and sleep, so they run as fast beside each other as alone. The
//! bench thus measures waiting, and not the sharing of this machine's cores.

mod simulated;

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::JobView;
use std::path::PathBuf;
use std::time::Duration;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 2 };
pub const QUANTUM_MS: u32 = 4_000;
pub const SHORT_JOBS: usize = 8;
/// Tenths of a second that a program works.
const LONG: u32 = 900;
const SHORT: u32 = 60;
/// Head start of the long job.
const AHEAD: Duration = Duration::from_secs(8);

/// Program that counts tenths of a second and records its start and its end.
fn document(name: &str, workers: u32, tenths: u32) -> String {
    format!(
        r#"version: muster/v1
name: {name}
command:
  argv: ["sh", "-c", "date +%s%3N >> $OUT; i=0; while [ $i -lt {tenths} ]; do i=$((i+1)); sleep 0.1; done; date +%s%3N >> $OUT"]
  env: {{ OUT: "@OUT@" }}
scale:
  workers: {{ min: {workers}, max: {workers} }}
"#
    )
}

/// Times of the jobs in seconds.
#[derive(Debug, Clone)]
pub struct JobTimes {
    /// From submission to end of each short job.
    pub shorts_s: Vec<f64>,
    pub long_s: f64,
    /// From submission to the first work of each short job.
    pub first_s: Vec<f64>,
    /// Submission of each short job after the first one.
    pub offsets_ms: Vec<i64>,
}

/// A short job alone.
#[derive(Debug, Clone, Copy)]
pub struct ShortJobAlone {
    /// From submission to its first work, plus from its last work to its end.
    pub around_ms: i64,
    pub works_ms: i64,
    /// Factor by which sleeping takes longer than requested.
    pub stretch: f64,
}

#[tokio::main]
async fn main() {
    let own = std::env::current_exe().expect("this bench's program");
    if !own
        .ancestors()
        .any(|folder| folder.join("muster-task").is_file())
    {
        eprintln!("turns: not run; the programs are not built (make bench-slicing builds them)");
        return;
    }
    let (alone, waiting) = measure(0).await;
    let (_, turning) = measure(QUANTUM_MS).await;
    let long_ms = (f64::from(LONG) * 100.0 * alone.stretch) as i64;
    let ahead_ms = i64::try_from(AHEAD.as_millis()).expect("seconds");
    let foreseen = |told: &JobTimes, quantum_ms| {
        let submitted_ms: Vec<i64> = told.offsets_ms.iter().map(|ms| ahead_ms + ms).collect();
        simulated::run(alone, long_ms, &submitted_ms, quantum_ms)
    };
    let quantum_ms = u64::from(QUANTUM_MS);
    let (sim_waiting, sim_turning) = (
        foreseen(&waiting, None),
        foreseen(&turning, Some(quantum_ms)),
    );
    println!(
        "{SHORT_JOBS} jobs of {:.1} s behind one of {:.0} s on 4 slots, quantum {:.0} s; launch and end take {:.2} s (one job alone)",
        alone.works_ms as f64 / 1e3,
        long_ms as f64 / 1e3,
        f64::from(QUANTUM_MS) / 1e3,
        alone.around_ms as f64 / 1e3,
    );
    println!(
        "                  mean of short jobs s: real, simulated      long job s: real, simulated"
    );
    line("FIFO", &waiting, &sim_waiting);
    line("in turns", &turning, &sim_turning);
    let (real, foreseen) = (
        mean(&waiting.shorts_s) / mean(&turning.shorts_s),
        mean(&sim_waiting.shorts_s) / mean(&sim_turning.shorts_s),
    );
    println!(
        "FIFO over turns: {real:.2} real, {foreseen:.2} simulated; real over simulated {:.2}",
        real / foreseen
    );
    println!("quanta until each short job worked, in turns");
    for (name, told) in [("real", &turning), ("simulated", &sim_turning)] {
        let quanta = told
            .first_s
            .iter()
            .map(|first_s| first_s * 1e3 / f64::from(QUANTUM_MS));
        let each: Vec<String> = quanta.map(|quanta| format!("{quanta:.2}")).collect();
        println!("{name:16} {}", each.join(" "));
    }
}

fn line(name: &str, real: &JobTimes, foreseen: &JobTimes) {
    println!(
        "{name:16} {:20.1} {:14.1} {:28.1} {:10.1}",
        mean(&real.shorts_s),
        mean(&foreseen.shorts_s),
        real.long_s,
        foreseen.long_s
    );
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Measures one short job alone, then the long one and the short ones behind it.
async fn measure(quantum_ms: u32) -> (ShortJobAlone, JobTimes) {
    let cluster = TestCluster::start_under(NODES, "fifo", quantum_ms).await;
    let runs = SlicingRuns { cluster };
    let calibration = runs.submit("alone", 1, SHORT).await;
    let alone = runs.alone(calibration).await;
    let long = runs.submit("long", 4, LONG).await;
    runs.cluster
        .until(long, "it to run", |job| job.phase == JobPhase::Running)
        .await;
    tokio::time::sleep(AHEAD).await;
    let mut shorts = Vec::new();
    for number in 0..SHORT_JOBS {
        shorts.push(runs.submit(&format!("short-{number}"), 1, SHORT).await);
    }
    let (mut shorts_s, mut first_s) = (Vec::new(), Vec::new());
    let mut submitted_ms = Vec::new();
    for (number, short) in shorts.iter().enumerate() {
        let view = runs.done(*short).await;
        shorts_s.push(runs.lived_ms(&view) as f64 / 1e3);
        let began_ms = runs.times(&format!("short-{number}"))[0];
        first_s.push((began_ms - unix_ms(view.submitted_at)) as f64 / 1e3);
        submitted_ms.push(unix_ms(view.submitted_at));
    }
    let offsets_ms = submitted_ms.iter().map(|ms| ms - submitted_ms[0]).collect();
    let view = runs.done(long).await;
    let long_s = runs.lived_ms(&view) as f64 / 1e3;
    let told = JobTimes {
        shorts_s,
        long_s,
        first_s,
        offsets_ms,
    };
    (alone, told)
}

struct SlicingRuns {
    cluster: TestCluster,
}

impl SlicingRuns {
    fn out(&self, name: &str) -> PathBuf {
        self.cluster.data().join(format!("{name}.times"))
    }

    async fn submit(&self, name: &str, workers: u32, tenths: u32) -> JobId {
        let out = self.out(name);
        let text = document(name, workers, tenths).replace("@OUT@", &out.to_string_lossy());
        self.cluster.submit(&text).await.id
    }

    /// Milliseconds that the programs of a job recorded.
    fn times(&self, name: &str) -> Vec<i64> {
        let text = std::fs::read_to_string(self.out(name)).expect("its program has written");
        let lines = text.lines().map(|line| line.parse().expect("milliseconds"));
        lines.collect()
    }

    /// Waits until a job has succeeded.
    async fn done(&self, job: JobId) -> JobView {
        self.cluster.succeeded(job).await
    }

    fn lived_ms(&self, job: &JobView) -> i64 {
        let ended = job.finished_at.expect("it has ended");
        unix_ms(ended) - unix_ms(job.submitted_at)
    }

    async fn alone(&self, job: JobId) -> ShortJobAlone {
        let view = self.done(job).await;
        let times = self.times("alone");
        let works_ms = times[1] - times[0];
        ShortJobAlone {
            around_ms: self.lived_ms(&view) - works_ms,
            works_ms,
            stretch: works_ms as f64 / (f64::from(SHORT) * 100.0),
        }
    }
}

fn unix_ms(at: time::OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).expect("a date of our time")
}
