use super::{LiveError, LiveRunSettings, gpu_use, run, sample};
use crate::contestants::contestant;
use crate::reference_simulators::{
    self, Cluster, NodeGroup, ProfiledTraining, Profiles, ReferenceSettings, SimulatorRules,
};
use crate::run::{AllocationSpan, SimulationRun};
use crate::trace::file::read_text;
use crate::trace::{Workload, read};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Slicing;
use muster_sim::scenario::{TaskPlacement, TrueSpeed};
use std::path::Path;

const HEADER: &str = "job_id,vc,submit_s,gpus,duration_s,status";

fn trace(rows: &[&str]) -> Workload {
    let text = format!("{HEADER}\n{}\n", rows.join("\n"));
    read("t.csv", "t", &text).expect("a trace")
}

fn under(
    policy: PolicyName,
    is_elastic: bool,
    workload: &Workload,
) -> Result<SimulationRun, LiveError> {
    let settings = LiveRunSettings {
        policy,
        is_elastic,
        chooses_batch: false,
        slicing: None,
        packs: false,
        stop_s: LiveRunSettings::STOP_S,
        until_s: LiveRunSettings::UNTIL_S,
    };
    on_four_gpus(&settings, workload)
}

fn on_four_gpus(
    settings: &LiveRunSettings,
    workload: &Workload,
) -> Result<SimulationRun, LiveError> {
    let cluster = Cluster {
        groups: vec![NodeGroup {
            kind: None,
            nodes: 1,
            gpus: 4,
        }],
    };
    run(None, workload, &cluster, settings, &mut || 0.0, &mut |_| {})
}

/// `a` holds all GPUs from 10 s on: 1 s to start, 100 s of training, 1 s to stop. `b` and `c` wait
/// until 112 s and then run at the same time.
#[test]
fn fifo_run_of_small_trace_has_expected_times() {
    let workload = trace(&["a,x,10,4,100,ok", "b,y,20,2,50,ok", "c,x,30,1,7.5,ok"]);
    let run = under(PolicyName::Fifo, false, &workload).expect("it runs");
    let times: Vec<_> = run
        .jobs
        .iter()
        .map(|job| (job.started_s, job.finished_s, job.gpu_s, job.request_s))
        .collect();
    assert_eq!(
        times,
        [
            (Some(10.0), Some(112.0), 408.0, 102.0),
            (Some(112.0), Some(164.0), 104.0, 52.0),
            (Some(112.0), Some(121.5), 9.5, 9.5),
        ]
    );
    assert_eq!(
        run.spans,
        [
            span(0, 4, 10.0, 112.0),
            span(2, 1, 112.0, 121.5),
            span(1, 2, 112.0, 164.0)
        ]
    );
    assert_eq!((run.end_s, run.jobs[1].tenant.as_str()), (164.0, "y"));
    assert!(run.jobs.iter().all(|job| job.restarts == 0));
}

fn span(job: u32, gpus: u32, from_s: f64, to_s: f64) -> AllocationSpan {
    AllocationSpan {
        job,
        node: 0,
        gpus,
        from_s,
        to_s,
    }
}

/// Alone on four GPUs with a request of two, the job has four from the start. A step takes 0.055 s
/// instead of 0.1 s.
#[test]
fn elastic_job_alone_grows_to_twice_its_request() {
    let workload = trace(&["a,x,0,2,1000,ok"]);
    let run = under(PolicyName::Optimus, true, &workload).expect("it runs");
    let job = &run.jobs[0];
    assert_eq!((job.finished_s, job.gpu_s), (Some(552.0), 4.0 * 552.0));
    assert_eq!((job.alone_s, job.least_gpu_s), (552.0, 2.0 * 1002.0));
}

#[test]
fn jobs_without_length_are_not_sampled_and_refused_by_run() {
    let workload = trace(&[
        "a,x,0,1,,ok",
        "b,x,0,0,9,ok",
        "c,x,0,1,9,ok",
        "d,x,0,8,9,ok",
    ]);
    let refused = under(PolicyName::Fifo, false, &workload);
    assert!(matches!(refused, Err(LiveError::NoLength { job }) if job == "a"));
    let without_gpus = trace(&["b,x,0,0,9,ok"]);
    let refused = under(PolicyName::Fifo, false, &without_gpus);
    assert!(matches!(refused, Err(LiveError::NoGpus { job }) if job == "b"));
    let (kept, left_out) = sample(workload.clone(), 1);
    assert_eq!((kept.jobs.len(), left_out), (1, 2));
    assert_eq!(kept.jobs[0].name, "c");
    let (all, _) = sample(workload, usize::MAX);
    let refused = under(PolicyName::Fifo, false, &all).expect_err("d is too large");
    assert_eq!(
        refused.to_string(),
        "job d asks for 8 GPUs, the cluster has 4"
    );
}

/// Mean completion time with time slicing on four GPUs, of jobs submitted at the start.
fn mean_jct_s(workload: &Workload, packs: bool) -> f64 {
    let settings = LiveRunSettings {
        policy: PolicyName::Fifo,
        is_elastic: false,
        chooses_batch: false,
        slicing: Some(Slicing {
            quantum_ms: 60_000,
            suspended_per_gpu: 7,
        }),
        packs,
        stop_s: LiveRunSettings::STOP_S,
        until_s: LiveRunSettings::UNTIL_S,
    };
    let run = on_four_gpus(&settings, workload).expect("it runs");
    // A shared GPU counts once.
    let held_s: f64 = run.jobs.iter().map(|job| job.gpu_s).sum();
    assert!(
        held_s <= 4.0 * run.end_s + 1e-6,
        "{held_s} of {}",
        run.end_s
    );
    let ends = run.jobs.iter().map(|job| job.finished_s.expect("it ended"));
    ends.sum::<f64>() / run.jobs.len() as f64
}

/// Twenty jobs of one GPU on four GPUs, all submitted at the start.
#[test]
fn packing_beats_time_slicing_for_jobs_with_idle_gpu_time() {
    let rows: Vec<String> = (0..20).map(|n| format!("j{n},x,{n},1,1800,ok")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let workload = trace(&rows);
    let (turns_s, packed_s) = (mean_jct_s(&workload, false), mean_jct_s(&workload, true));
    // With time slicing five jobs share a GPU for two and a half hours.
    assert!((7_200.0..9_100.0).contains(&turns_s), "{turns_s}");
    assert!(packed_s < 0.9 * turns_s, "{packed_s} beside {turns_s}");
}

/// A GPU counts for the host until the host has ended.
#[test]
fn shared_gpu_counts_once_in_spans() {
    // The guest is the first job, in one case shorter and in one case longer than its host.
    for lengths_s in [[600, 900], [900, 600]] {
        held_once(lengths_s);
    }
}

fn held_once(lengths_s: [u32; 2]) {
    let mut names = (0..)
        .map(|number| format!("job-{number}"))
        .filter(|name| gpu_use::drawn(name).busy < 0.5);
    let rows: Vec<String> = lengths_s
        .map(|seconds| format!("{},x,0,1,{seconds},ok", names.next().expect("half of them")))
        .into();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let cluster = Cluster {
        groups: vec![NodeGroup {
            kind: None,
            nodes: 1,
            gpus: 1,
        }],
    };
    let settings = LiveRunSettings {
        policy: PolicyName::Fifo,
        is_elastic: false,
        chooses_batch: false,
        slicing: Some(Slicing {
            quantum_ms: 60_000,
            suspended_per_gpu: 3,
        }),
        packs: true,
        stop_s: LiveRunSettings::STOP_S,
        until_s: LiveRunSettings::UNTIL_S,
    };
    let run = run(
        None,
        &trace(&rows),
        &cluster,
        &settings,
        &mut || 0.0,
        &mut |_| {},
    );
    let run = run.expect("it runs");
    // With time slicing it would be the sum of both.
    assert!(run.end_s < 1_350.0, "they shared it: {}", run.end_s);
    let mut spans = run.spans.clone();
    spans.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    let mut pairs = spans.windows(2);
    assert!(
        pairs.all(|pair| pair[0].to_s <= pair[1].from_s),
        "{spans:?}"
    );
    let held_s: f64 = spans.iter().map(|span| span.to_s - span.from_s).sum();
    assert!((run.end_s - held_s).abs() < 15.0, "{spans:?}");
}

fn pollux() -> Profiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/pollux");
    Profiles::read(&folder).expect("the profiles are part of the repository")
}

fn four_by_four(nodes: u32) -> Cluster {
    Cluster {
        groups: vec![NodeGroup {
            kind: None,
            nodes,
            gpus: 4,
        }],
    }
}

fn profiled(policy: PolicyName, is_elastic: bool) -> LiveRunSettings {
    LiveRunSettings {
        policy,
        is_elastic,
        chooses_batch: false,
        slicing: None,
        packs: false,
        stop_s: LiveRunSettings::STOP_S,
        until_s: LiveRunSettings::UNTIL_S,
    }
}

fn under_profiles(
    profiles: &Profiles,
    workload: &Workload,
    cluster: &Cluster,
    settings: &LiveRunSettings,
) -> Result<SimulationRun, LiveError> {
    run(
        Some(profiles),
        workload,
        cluster,
        settings,
        &mut || 0.0,
        &mut |_| {},
    )
}

/// A profiled job of fixed size needs 30 s for start and stop, as in Pollux' simulator.
#[test]
fn profiled_job_trains_as_long_as_its_profile_says() {
    let text = "name,time,application,num_replicas,batch_size\na,0,cifar10,2,256\n";
    let workload = read("t.csv", "t", text).expect("a workload");
    let (profiles, cluster) = (pollux(), four_by_four(1));
    let settings = profiled(PolicyName::Fifo, false);
    let run = under_profiles(&profiles, &workload, &cluster, &settings);
    let run = run.expect("it runs");
    let rules = SimulatorRules::Pollux;
    let training = ProfiledTraining::fixed(&profiles, rules, &cluster, &workload.jobs[0]);
    let training = training.expect("it is profiled");
    let TrueSpeed::Table(speeds) = &training.speed else {
        panic!("the batch is constant")
    };
    let row = &speeds.by_kind["gpu"][0];
    let expected_s = 30.0 + training.steps as f64 / row[1];
    let finished_s = run.jobs[0].finished_s.expect("it ends");
    assert!(
        (finished_s - expected_s).abs() < 0.01,
        "{finished_s} {expected_s}"
    );
    assert!(row[1] > row[0], "two GPUs are faster");
}

/// The chosen batch is worth most where it may be large: one job alone on eight GPUs.
#[test]
fn chosen_batch_ends_profiled_job_earlier() {
    let text = "name,time,application,num_replicas,batch_size\na,0,cifar10,8,128\n";
    let workload = read("t.csv", "t", text).expect("a workload");
    let (profiles, cluster) = (pollux(), four_by_four(2));
    let ends_s = |chooses_batch| {
        let settings = LiveRunSettings {
            chooses_batch,
            ..profiled(PolicyName::Muster, true)
        };
        let run = under_profiles(&profiles, &workload, &cluster, &settings);
        run.expect("it runs").jobs[0].finished_s.expect("it ends")
    };
    let (constant_s, chosen_s) = (ends_s(false), ends_s(true));
    assert!(chosen_s < 0.7 * constant_s, "{chosen_s} {constant_s}");
}

/// The course of a job with a chosen batch ends with the work of its application.
#[test]
fn chosen_batch_keeps_the_work_of_the_application() {
    let text = "name,time,application,num_replicas,batch_size\na,0,cifar10,2,256\n";
    let workload = read("t.csv", "t", text).expect("a workload");
    let (profiles, cluster) = (pollux(), four_by_four(1));
    let rules = SimulatorRules::Pollux;
    let training = ProfiledTraining::chosen(&profiles, rules, &cluster, &workload.jobs[0]);
    let training = training.expect("it is profiled");
    let TrueSpeed::Goodput(table) = &training.speed else {
        panic!("the batch is chosen")
    };
    let end = table.course.last().expect("it has epochs").until_step;
    assert!((end - training.steps as f64).abs() <= 0.5);
    let at = |workers| TaskPlacement {
        kind: "gpu",
        nodes: 1,
        workers,
        ps_shards: 0,
    };
    let chosen = |workers, step| table.chosen(at(workers), step).expect("it is profiled");
    let [first, more, late] = [chosen(1, 0.0), chosen(4, 0.0), chosen(4, 0.9 * end)];
    assert!(
        more.batch.examples > first.batch.examples,
        "{first:?} {more:?}"
    );
    assert!(
        late.batch.examples > more.batch.examples,
        "{more:?} {late:?}"
    );
    assert!(
        table
            .chosen(
                TaskPlacement {
                    kind: "other",
                    ..at(1)
                },
                0.0
            )
            .is_none()
    );
    // The speed is constant within a stretch, so the times of stretches add up.
    let seconds = training.speed.seconds(at(2), end);
    assert!(seconds < end / chosen(2, 0.0).steps_per_s);
    assert!(seconds > end / chosen(2, 0.999 * end).steps_per_s);
}

#[test]
fn profiled_job_without_measurement_on_kind_is_refused() {
    let text = "name,time,application,num_replicas,batch_size\na,0,cifar10,2,256\n";
    let workload = read("t.csv", "t", text).expect("a workload");
    let mut profiles = pollux();
    let application = profiles.applications.get_mut("cifar10").expect("profiled");
    application.measured[0] = Default::default();
    let settings = profiled(PolicyName::Fifo, false);
    let refused = under_profiles(&profiles, &workload, &four_by_four(1), &settings);
    assert_eq!(
        refused.expect_err("no speed is known").to_string(),
        "job a runs \"cifar10\", which was not measured on GPUs of kind \"gpu\": leave the kind out of --cluster"
    );
}

/// The live planner learns speeds and restarts by family. Its mean completion time is then near
/// that of the policy under the rules of the published simulator.
#[test]
fn live_planner_is_near_published_rules_on_pollux_workload() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("traces/pollux/workloads-1.0/workload-1.csv.zst");
    let text = read_text(&path).expect("a workload");
    let workload = read("workload-1", "workload-1", &text).expect("a workload");
    let (profiles, cluster) = (pollux(), four_by_four(16));
    let settings = profiled(PolicyName::Muster, true);
    let live = under_profiles(&profiles, &workload, &cluster, &settings);
    let fixed = contestant("muster-fixed").expect("a contestant");
    let published = ReferenceSettings {
        rules: SimulatorRules::Pollux,
        interference: 0.0,
        until_s: ReferenceSettings::UNTIL_S,
    };
    let published = reference_simulators::run(
        &profiles,
        &workload,
        &cluster,
        &published,
        &fixed,
        &mut || 0.0,
        &mut |_| {},
    );
    let live_s = mean_s(&live.expect("it runs"));
    let published_s = mean_s(&published.expect("it runs"));
    let ratio = live_s / published_s;
    assert!((0.85..1.15).contains(&ratio), "{live_s} {published_s}");
}

fn mean_s(run: &SimulationRun) -> f64 {
    let lengths = run
        .jobs
        .iter()
        .map(|job| job.finished_s.expect("it ends") - job.submitted_s);
    lengths.sum::<f64>() / run.jobs.len() as f64
}
