//! Packing on a sample of the Philly trace: more jobs of one GPU than GPUs, with time slicing alone
//! and with packing. Their GPU use is drawn, because the trace does not contain it
//! (`live/gpu_use.rs`).

use muster_core::policies::name::PolicyName;
use muster_core::policy::Slicing;
use muster_lab::live::{LiveRunSettings, run};
use muster_lab::measure::Summary;
use muster_lab::reference_simulators::{Cluster, NodeGroup};
use muster_lab::trace::{TraceWork, Workload, file, read};

/// Jobs of one GPU that ran for ten minutes to four hours, from index `from` on.
fn sample(all: &Workload, from: usize, jobs: usize) -> Workload {
    let kept = all.jobs.iter().skip(from);
    let kept = kept.filter(|job| match job.work {
        TraceWork::Seconds { seconds } => job.gpus == 1 && (600.0..=14_400.0).contains(&seconds),
        _ => false,
    });
    let mut jobs: Vec<_> = kept.take(jobs).cloned().collect();
    let times = jobs.iter().map(|job| job.submitted_s);
    let first_s = times.fold(f64::INFINITY, f64::min);
    jobs.iter_mut().for_each(|job| job.submitted_s -= first_s);
    Workload {
        name: "philly".to_owned(),
        jobs,
    }
}

fn philly() -> Workload {
    let text = file::read_text(&crate::traces::outside(
        "clusters/philly_2017-09_2017-10.csv",
    ))
    .unwrap();
    read("philly", "philly", &text).unwrap()
}

/// Results with time slicing alone and with packing, on two nodes of four GPUs.
fn turns_and_packed(workload: &Workload) -> [Summary; 2] {
    let cluster = Cluster {
        groups: vec![NodeGroup {
            kind: None,
            nodes: 2,
            gpus: 4,
        }],
    };
    [false, true].map(|packs| {
        let settings = LiveRunSettings {
            policy: PolicyName::Muster,
            is_elastic: false,
            chooses_batch: false,
            slicing: Some(Slicing {
                quantum_ms: 60_000,
                suspended_per_gpu: 3,
            }),
            packs,
            stop_s: LiveRunSettings::STOP_S,
            until_s: LiveRunSettings::UNTIL_S,
        };
        let done = run(
            None,
            workload,
            &cluster,
            &settings,
            &mut || 0.0,
            &mut |_| {},
        )
        .unwrap();
        let summary = Summary::of(&done, "live");
        assert_eq!(summary.unfinished, 0);
        eprintln!(
            "packed {packs}: mean {:.0} s, the last ends after {:.0} s, {:.1} GPU-hours",
            summary.avg_jct_s, summary.makespan_s, summary.gpu_hours
        );
        summary
    })
}

#[test]
#[ignore = "needs MUSTER_TRACES: the Philly trace"]
fn packing_shortens_completion_times_of_time_slicing() {
    let all = philly();
    let [turns, packed] = turns_and_packed(&sample(&all, 3_000, 100));
    assert!(packed.avg_jct_s < 0.9 * turns.avg_jct_s);
    assert!(packed.makespan_s < turns.makespan_s);
    assert!(packed.gpu_hours < 0.95 * turns.gpu_hours);
}

/// All jobs are submitted at the start, so that no GPU is idle. The gain of packing is the saved
/// GPU-hours for the same work.
fn on_a_full_cluster(all: &Workload, from: usize) -> [Summary; 2] {
    let mut workload = sample(all, from, 100);
    workload
        .jobs
        .iter_mut()
        .for_each(|job| job.submitted_s = 0.0);
    let summaries = turns_and_packed(&workload);
    let [turns, packed] = &summaries;
    assert!(packed.avg_jct_s < 0.95 * turns.avg_jct_s, "from {from}");
    assert!(packed.makespan_s < 0.9 * turns.makespan_s, "from {from}");
    summaries
}

#[test]
#[ignore = "needs MUSTER_TRACES: the Philly trace"]
fn packing_saves_gpu_hours_on_full_cluster() {
    let all = philly();
    let [turns, packed] = on_a_full_cluster(&all, 16_000);
    assert!(turns.gpu_hours > 1.2 * packed.gpu_hours);
}

/// The five samples of docs/benchmarks/scheduling.md#packing.
#[test]
#[ignore = "takes minutes in a debug build, and needs MUSTER_TRACES: the Philly trace"]
fn packing_saves_gpu_hours_on_five_full_clusters() {
    let all = philly();
    let mut gpu_hours = [0.0; 2];
    for from in (0..5).map(|number| number * 8_000) {
        let summaries = on_a_full_cluster(&all, from);
        for (sum, summary) in gpu_hours.iter_mut().zip(&summaries) {
            *sum += summary.gpu_hours;
        }
    }
    let [turns, packed] = gpu_hours;
    assert!(turns > 1.25 * packed, "{turns} and {packed} GPU-hours");
}
