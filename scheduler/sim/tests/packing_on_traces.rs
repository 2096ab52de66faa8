//! Packing on a sample of the Philly trace: jobs of one GPU, more of them than there are GPUs, in turns alone and with two at work at once where
//! that pays. What they use of their GPUs is drawn, as the trace does not tell (`live/gpu_use.rs`).

mod traces;

use muster_core::policies::name::PolicyName;
use muster_core::policy::Slicing;
use muster_sim::live::{Terms, run};
use muster_sim::measure::Summary;
use muster_sim::peers::{Cluster, NodeGroup};
use muster_sim::trace::{Work, Workload, read};

/// From the 3,000th job on, those of one GPU that ran for ten minutes to four hours.
fn sample(all: &Workload, jobs: usize) -> Workload {
    let is_meant = |work: Work| matches!(work, Work::Seconds { seconds } if (600.0..=14_400.0).contains(&seconds));
    let kept = all.jobs.iter().skip(3_000);
    let kept = kept.filter(|job| job.gpus == 1 && is_meant(job.work));
    let mut jobs: Vec<_> = kept.take(jobs).cloned().collect();
    let times = jobs.iter().map(|job| job.submitted_s);
    let first_s = times.fold(f64::INFINITY, f64::min);
    jobs.iter_mut().for_each(|job| job.submitted_s -= first_s);
    Workload {
        name: "philly".to_owned(),
        jobs,
    }
}

#[test]
fn packing_shortens_what_turns_take() {
    let Some(file) = traces::part("clusters/philly_2017-09_2017-10.csv") else {
        return;
    };
    let text = std::fs::read_to_string(&file).unwrap();
    let workload = sample(&read("philly", "philly", &text).unwrap(), 100);
    let cluster = Cluster {
        groups: vec![NodeGroup {
            kind: None,
            nodes: 2,
            gpus: 4,
        }],
    };
    let summary = |packs: bool| {
        let terms = Terms {
            policy: PolicyName::Muster,
            is_elastic: false,
            slicing: Some(Slicing {
                quantum_ms: 60_000,
                suspended_per_gpu: 3,
            }),
            packs,
            until_s: Terms::UNTIL_S,
        };
        let done = run(None, &workload, &cluster, &terms, &mut || 0.0, &mut |_| {}).unwrap();
        Summary::of(&done, "live")
    };
    let (turns, packed) = (summary(false), summary(true));
    assert_eq!((turns.unfinished, packed.unfinished), (0, 0));
    eprintln!(
        "mean {:.0} s in turns, {:.0} s packed; the last ends after {:.0} and {:.0} s",
        turns.avg_jct_s, packed.avg_jct_s, turns.makespan_s, packed.makespan_s
    );
    assert!(packed.avg_jct_s < 0.9 * turns.avg_jct_s);
    assert!(packed.makespan_s < turns.makespan_s);
}
