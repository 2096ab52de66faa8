//! Comparisons with runs of Sia's artefact: the files `sia/ground-truth` of the traces. They have
//! no licence and are not part of the repository.

use super::contestant::{Cluster, Contestant, NodeGroup};
use super::observation::ObservationSource;
use super::profiles::Profiles;
use super::reference_job::fresh;
use super::rules::SimulatorRules;
use super::ticks::{ReferenceSettings, run};
use super::training::ReferenceTraining;
use crate::contestants::contestant;
use crate::run::SimulationRun;
use crate::trace::{self, TraceJob, Workload, file};
use crate::traces;
use muster_core::learn::BatchSplit;
use muster_core::policies::SchedulingPolicy;
use muster_core::problem::{NodeAllocation, PolicyDecision, SchedulingProblem};
use std::collections::BTreeMap;

/// Kind, nodes and GPUs per node of the artefact's cluster.
const GROUPS: [(&str, u32, u32); 3] = [("aws", 6, 4), ("dgx-ext", 2, 8), ("rtx", 3, 8)];

/// Relative error of the logged progress, which has six digits in some files.
const ROUNDING: f64 = 1e-6;

fn group(kind: &str) -> NodeGroup {
    let of_kind = GROUPS.iter().find(|(name, ..)| *name == kind);
    let &(name, nodes, gpus) = of_kind.expect("a kind of the artefact");
    NodeGroup {
        kind: Some(name.to_owned()),
        nodes,
        gpus,
    }
}

fn profiles() -> Profiles {
    Profiles::read(&traces::outside("sia")).expect("profiles of Sia")
}

fn philly_1() -> Workload {
    let path = traces::outside("sia/workloads-philly/workload-1.csv");
    let text = file::read_text(&path).expect("a workload");
    trace::read("philly-1", "philly-1", &text).expect("a workload")
}

/// Rows of a file as values by column.
fn rows(name: &str) -> Vec<BTreeMap<String, String>> {
    let path = traces::outside("sia/ground-truth").join(name);
    let text = file::read_text(&path).expect("a file of the ground truth");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader
        .deserialize()
        .collect::<Result<_, _>>()
        .expect("rows with a header")
}

fn number<T: std::str::FromStr>(row: &BTreeMap<String, String>, column: &str) -> T {
    let parsed = row[column].parse();
    parsed.unwrap_or_else(|_| panic!("{column} is no number: {row:?}"))
}

fn simulate(workload: &Workload, groups: Vec<NodeGroup>, policy: &Contestant) -> SimulationRun {
    let settings = ReferenceSettings {
        rules: SimulatorRules::Sia,
        interference: 0.0,
        until_s: ReferenceSettings::UNTIL_S,
    };
    let cluster = Cluster { groups };
    let (mut clock, mut tell) = (|| 0.0, |_| {});
    run(
        &profiles(),
        workload,
        &cluster,
        &settings,
        policy,
        &mut clock,
        &mut tell,
    )
    .expect("the profiles know the workload")
}

#[test]
#[ignore = "needs MUSTER_TRACES: the ground truth of Sia's artefact"]
fn job_alone_ends_at_the_second_of_artefact() {
    let rows = rows("alone-fixed.csv");
    assert_eq!(rows.len(), 54);
    for row in rows {
        let (application, gpus, batch) = (&row["application"], &row["gpus"], &row["batch"]);
        let text = format!(
            "name,time,application,num_replicas,batch_size\nalone,30,{application},{gpus},{batch}\n"
        );
        let workload = trace::read("alone", "alone", &text).expect("a workload");
        let fifo = contestant("fifo").expect("a policy");
        let run = simulate(&workload, vec![group(&row["gpu_type"])], &fifo);
        let end_s = run.jobs[0].finished_s.expect("the job ends");
        assert_eq!(end_s - 30.0, number::<f64>(&row, "jct_s"), "{row:?}");
    }
}

/// Allocations of the log: by second, then by the job's second of submission.
struct LoggedPolicy(BTreeMap<u64, BTreeMap<u64, Vec<NodeAllocation>>>);

impl LoggedPolicy {
    fn of(rows: &[BTreeMap<String, String>], workload: &Workload) -> Self {
        let mut log: BTreeMap<u64, BTreeMap<u64, Vec<NodeAllocation>>> = BTreeMap::new();
        for row in rows {
            let job = workload.jobs.iter().find(|job| job.name == row["job"]);
            let submitted_s = job.expect("a job of the workload").submitted_s as u64;
            let at = log.entry(number(row, "time_s")).or_default();
            at.insert(submitted_s, parts(row));
        }
        Self(log)
    }
}

/// Nodes of a row, whose numbers begin at 0 in each kind.
fn parts(row: &BTreeMap<String, String>) -> Vec<NodeAllocation> {
    let before = GROUPS
        .iter()
        .take_while(|(kind, ..)| *kind != row["gpu_type"]);
    let first: u32 = before.map(|(_, nodes, _)| nodes).sum();
    let nodes = row["node_ids"].split_whitespace();
    let nodes: Vec<u32> = nodes
        .map(|node| first + node.parse::<u32>().expect("a node"))
        .collect();
    nodes
        .chunk_by(|a, b| a == b)
        .map(|same| NodeAllocation {
            node: same[0],
            gpus: u32::try_from(same.len()).expect("few GPUs"),
        })
        .collect()
}

impl SchedulingPolicy for LoggedPolicy {
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision {
        let mut decision = PolicyDecision {
            parts: vec![None; problem.jobs.len()],
            worth: Vec::new(),
        };
        if let Some(logged) = self.0.get(&(problem.now_s as u64)) {
            for (job, parts) in problem.jobs.iter().zip(&mut decision.parts) {
                *parts = logged.get(&(job.submitted_s as u64)).cloned();
            }
        }
        decision
    }
}

#[test]
#[ignore = "needs MUSTER_TRACES: the ground truth of Sia's artefact"]
fn decisions_of_gavel_give_end_and_restarts_of_artefact() {
    let (rows_of_log, workload) = (rows("alloc-gavel-philly-1.csv"), philly_1());
    let logged = Contestant {
        name: "logged".to_owned(),
        share: Box::new(LoggedPolicy::of(&rows_of_log, &workload)),
        observation_source: ObservationSource::Oracle,
        adapts_batch: false,
        is_elastic: false,
    };
    let groups = GROUPS.map(|(kind, ..)| group(kind)).to_vec();
    let run = simulate(&workload, groups, &logged);
    let mut compared = 0;
    for row in rows("jobs-gavel.csv") {
        if row["workload"] != "philly-1" {
            continue;
        }
        let job = run.jobs.iter().find(|job| job.name == row["job"]);
        let job = job.expect("a job of the workload");
        assert_eq!(job.finished_s, Some(number(&row, "finish_s")), "{row:?}");
        assert_eq!(job.restarts, number::<u32>(&row, "restarts"), "{row:?}");
        let kinds = ["aws", "dgx-ext", "rtx"].map(|kind| format!("gpu_seconds_{kind}"));
        let gpu_s: f64 = kinds.iter().map(|kind| number::<f64>(&row, kind)).sum();
        assert_eq!(job.gpu_s, gpu_s, "{row:?}");
        compared += 1;
    }
    assert_eq!(compared, 160);
}

#[test]
#[ignore = "needs MUSTER_TRACES: the ground truth of Sia's artefact"]
fn batch_of_user_is_split_as_in_artefact() {
    let (profiles, workload) = (profiles(), philly_1());
    let mut compared = 0;
    for row in rows("alloc-gavel-philly-1.csv") {
        let Some(kind) = profiles.kind(&row["gpu_type"]) else {
            continue;
        };
        let job = job_of(&workload, &row);
        let placement = placement(&row);
        let application = &profiles.applications[&job.kind];
        let limits = SimulatorRules::Sia.limits_on(application, kind, &placement);
        let batch = job.batch().expect("a batch");
        let split = limits.split(batch, placement.iter().sum());
        assert_eq!(split, logged_split(&row), "{row:?}");
        compared += 1;
    }
    assert!(compared > 1_500, "{compared}");
}

fn job_of<'a>(workload: &'a Workload, row: &BTreeMap<String, String>) -> &'a TraceJob {
    let job = workload.jobs.iter().find(|job| job.name == row["job"]);
    job.expect("a job of the workload")
}

fn placement(row: &BTreeMap<String, String>) -> Vec<u32> {
    let digits = row["placement"].chars();
    digits
        .map(|digit| digit.to_digit(10).expect("a digit"))
        .collect()
}

fn logged_split(row: &BTreeMap<String, String>) -> BatchSplit {
    BatchSplit {
        local: number(row, "atomic"),
        accumulated: number(row, "accum"),
    }
}

/// The artefact interpolates placements on five nodes in another way.
#[test]
#[ignore = "needs MUSTER_TRACES: the ground truth of Sia's artefact"]
fn progress_of_every_stretch_is_that_of_artefact() {
    let (profiles, workload) = (profiles(), philly_1());
    let rows = rows("stretches-sia-philly-1.csv");
    let mut differing = Vec::new();
    for row in &rows {
        let job = job_of(&workload, row);
        let application = &profiles.applications[&job.kind];
        let kinds = profiles.kinds.len();
        let mut training = fresh(application, SimulatorRules::Sia, kinds, job);
        training.kind = profiles.kind(&row["gpu_type"]).expect("a kind");
        let parts = (0..).zip(placement(row));
        training.parts = parts
            .map(|(node, gpus)| NodeAllocation { node, gpus })
            .collect();
        training.batch = logged_split(row);
        training.epoch = number(row, "epoch");
        training.progress = number(row, "progress_from");
        if !progress_is_logged(&training, row) {
            assert_eq!(&row["placement"], "44444", "{row:?}");
            differing.push(row);
        }
    }
    assert!(rows.len() > 19_000 && differing.len() <= 3, "{differing:?}");
}

/// Whether the goodput of a training gives the logged progress of a stretch. At the end of an epoch
/// it has to give the seconds, which the artefact rounds.
fn progress_is_logged(training: &ReferenceTraining<'_>, row: &BTreeMap<String, String>) -> bool {
    let seconds = number::<f64>(row, "to_s") - number::<f64>(row, "from_s");
    let logged: f64 = number(row, "progress_to");
    let gained = logged - training.progress;
    let goal = training.application.progress_until(training.epoch + 1);
    if (logged / goal - 1.0).abs() < ROUNDING {
        return (gained / training.goodput()).round_ties_even() == seconds;
    }
    (training.goodput() * seconds / gained - 1.0).abs() < ROUNDING
}
