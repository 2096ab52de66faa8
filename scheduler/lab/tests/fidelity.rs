//! The rules of the published simulators reproduce their published results: completion times of the
//! Pollux artefact at all loads.

use muster_core::policies::name::PolicyName;
use muster_lab::reference_simulators::{
    Cluster, Contestant, NodeGroup, ObservationSource, Profiles, ReferenceSettings, SimulatorRules,
    run,
};
use muster_lab::trace::file;
use std::collections::BTreeMap;

/// All workloads but `exceptions` have a mean within `most` of the published mean.
fn compare(policy: PolicyName, is_elastic: bool, most: f64, exceptions: usize) {
    let pollux = crate::traces::committed("pollux");
    let profiles = Profiles::read(&pollux).unwrap();
    let cluster = Cluster {
        groups: vec![NodeGroup {
            kind: None,
            nodes: 16,
            gpus: 4,
        }],
    };
    let published = published(&pollux, policy.as_str());
    let (mut compared, mut within, mut worst) = (0, 0, 0.0_f64);
    for ((load, workload), times) in &published {
        let path = pollux.join(format!("workloads-{load}/workload-{workload}.csv"));
        // Four of the eight published workloads of each load are committed.
        if file::find(&path).is_none() {
            continue;
        }
        let text = file::read_text(&path).unwrap();
        let jobs = muster_lab::trace::read(&path.display().to_string(), workload, &text).unwrap();
        let contestant = Contestant {
            name: policy.to_string(),
            share: policy.policy(),
            observation_source: ObservationSource::Oracle,
            adapts_batch: false,
            is_elastic,
        };
        let run = run(
            &profiles,
            &jobs,
            &cluster,
            &ReferenceSettings {
                rules: SimulatorRules::Pollux,
                interference: 0.0,
                until_s: ReferenceSettings::UNTIL_S,
            },
            &contestant,
            &mut || 0.0,
            &mut |_| {},
        )
        .unwrap();
        let ours: f64 = run
            .jobs
            .iter()
            .map(|job| job.finished_s.unwrap() - job.submitted_s)
            .sum::<f64>()
            / run.jobs.len() as f64;
        let theirs = times.values().sum::<f64>() / times.len() as f64;
        let off = (ours / theirs - 1.0).abs();
        eprintln!("{policy} load {load} workload {workload}: {ours:.1} s, published {theirs:.1} s");
        worst = worst.max(off);
        within += usize::from(off <= most);
        compared += 1;
    }
    assert!(
        within + exceptions >= compared && worst <= 0.011,
        "{policy}: {within} of {compared} are within {most}, the worst is {worst} off"
    );
    assert!(compared >= 16, "only {compared} workloads were compared");
}

/// Published completion times by load and workload, then by job.
fn published(
    pollux: &std::path::Path,
    policy: &str,
) -> BTreeMap<(String, String), BTreeMap<String, f64>> {
    let text = file::read_text(&pollux.join("published_jct.csv")).unwrap();
    let mut published: BTreeMap<_, BTreeMap<String, f64>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [load, workload, of, job, time] = fields[..] else {
            panic!("a line of published_jct.csv has five fields: {line}");
        };
        if of == policy {
            let times = published
                .entry((load.to_owned(), workload.to_owned()))
                .or_default();
            times.insert(job.to_owned(), time.parse().unwrap());
        }
    }
    published
}

#[test]
fn tiresias_reproduces_published_times() {
    compare(PolicyName::Tiresias, false, 0.001, 0);
}

#[test]
fn optimus_with_oracle_reproduces_published_times() {
    // Step times of unmeasured shapes come from a table of the artefact's interpolation, linear
    // between its rows. This changes single decisions, whose effects add up on one workload.
    compare(PolicyName::Optimus, true, 0.005, 1);
}
