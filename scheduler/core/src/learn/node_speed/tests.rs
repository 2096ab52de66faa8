use super::{CellMedians, Medians, NodeFactor, NodeObservation, node_factors};
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::node::NodeSpeed;
use std::collections::BTreeMap;
use uuid::Uuid;

const FULL_SAMPLES: f64 = 10.0;

/// Pseudo-random number from 0 to 1.
fn dice(seed: u32) -> f64 {
    let mixed = (u64::from(seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 40) as f64) / f64::from(1 << 24)
}

fn node(number: u32) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(number)))
}

/// A fully measured job of a family with one worker.
fn job(number: u32, family: u32, on: u32, steps_per_s: f64) -> NodeObservation {
    NodeObservation {
        node: node(on),
        job: JobId(Uuid::from_u128(u128::from(number))),
        gpu_kind: "A".to_owned(),
        tenant: TenantId(Uuid::nil()),
        family: format!("family-{family}"),
        workers: 1,
        ps_shards: 0,
        steps_per_s,
        samples: FULL_SAMPLES,
    }
}

/// Jobs of 20 families on random nodes with these speeds. The speed of a job varies by 3 %.
fn jobs(count: u32, speeds: &[f64]) -> Vec<NodeObservation> {
    (0..count)
        .map(|number| {
            let family = (dice(3 * number) * 20.0) as u32;
            let on = (dice(3 * number + 1) * speeds.len() as f64) as u32;
            let noise = 1.0 + 0.06 * (dice(3 * number + 2) - 0.5);
            let level = 1.0 + f64::from(family);
            job(number, family, on, level * speeds[on as usize] * noise)
        })
        .collect()
}

fn factors(observations: &[NodeObservation]) -> BTreeMap<NodeId, NodeFactor> {
    node_factors(observations, FULL_SAMPLES)
}

#[test]
fn planted_factors_are_recovered() {
    let speeds = [1.0, 0.8, 1.0, 1.1, 1.0, 1.0, 0.9, 1.0];
    let found = factors(&jobs(400, &speeds));
    for (number, speed) in (0..).zip(speeds) {
        let found = found[&node(number)];
        assert!(
            (found.factor / speed - 1.0).abs() < 0.02,
            "{number}: {found:?}"
        );
        assert!(found.weight > 20.0 && found.jobs > 20, "{found:?}");
    }
}

#[test]
fn three_families_with_a_job_elsewhere_show_a_slow_node() {
    let pair = |family| {
        let slow = job(2 * family, family, 0, 8.0);
        [slow, job(2 * family + 1, family, family + 1, 10.0)]
    };
    let two: Vec<_> = (0..2).flat_map(pair).collect();
    assert_eq!(factors(&two)[&node(0)].factor, 1.0);
    let three: Vec<_> = (0..3).flat_map(pair).collect();
    let found = factors(&three);
    assert!((found[&node(0)].factor - 0.8).abs() < 0.001, "{found:?}");
    assert_eq!(found[&node(1)].factor, 1.0, "one job says nothing");
}

#[test]
fn two_nodes_share_their_difference() {
    let jobs = (0..8).map(|number| {
        let on = number % 2;
        job(number, 0, on, if on == 0 { 0.81 } else { 1.0 })
    });
    let found = factors(&jobs.collect::<Vec<_>>());
    let [slow, fast] = [0, 1].map(|on| found[&node(on)].factor);
    assert!((slow - 0.9).abs() < 0.001 && (fast - 1.0 / 0.9).abs() < 0.001);
}

#[test]
fn jobs_on_one_node_show_no_deviation() {
    let measured: Vec<_> = (0..9).map(|number| job(number, 0, 0, 8.0)).collect();
    assert_eq!(factors(&measured), BTreeMap::new());
    // Neither do families that are each on their own node.
    let apart: Vec<_> = (0..9)
        .map(|number| job(number, number, number, 8.0))
        .collect();
    assert_eq!(factors(&apart), BTreeMap::new());
}

#[test]
fn other_size_or_kind_is_not_compared() {
    let mut measured: Vec<_> = (0..8)
        .map(|number| job(number, 0, number % 2, 8.0))
        .collect();
    for (number, one) in measured.iter_mut().enumerate() {
        if number % 2 == 1 {
            one.steps_per_s = 4.0;
            one.workers = 2;
        }
    }
    assert_eq!(factors(&measured), BTreeMap::new());
}

#[test]
fn single_unusual_job_makes_no_node_slow() {
    for fast in [0.3, 3.0] {
        let mut measured = jobs(120, &[1.0; 6]);
        let on = measured[7].node;
        measured[7].steps_per_s *= fast;
        measured[7].samples = 200.0;
        let found = factors(&measured);
        assert!((found[&on].factor - 1.0).abs() < 0.02, "{found:?}");
        // Also where it is the only job of its node, or one of few.
        let few = [
            job(0, 0, 0, fast),
            job(1, 0, 1, 1.0),
            job(2, 0, 1, 1.0),
            job(3, 0, 1, 1.0),
        ];
        let few = factors(&few);
        assert_eq!([0, 1].map(|on| few[&node(on)].factor), [1.0, 1.0]);
    }
}

#[test]
fn median_without_one_value_is_that_of_the_others() {
    for seed in 0..500 {
        let count = 2 + seed % 7;
        let values = (0..count).map(|place| {
            let value = (dice(seed * 20 + place) * 6.0).floor();
            let weight = 1 + (dice(seed * 20 + place + 10) * 4.0) as u32;
            (value, weight)
        });
        let values: Vec<(f64, u32)> = values.collect();
        let mut medians = CellMedians::default();
        medians.set(values.iter().copied());
        for place in 0..values.len() {
            let mut others = values.clone();
            others.remove(place);
            let Medians(lower, upper) = Medians::of(&mut others);
            let found = medians.without(place);
            assert_eq!((found.0, found.1), (lower, upper), "{values:?} {place}");
        }
    }
}

#[test]
fn few_samples_count_for_little() {
    let mut measured: Vec<_> = (0..4).map(|number| job(number, 0, 0, 8.0)).collect();
    measured.extend((4..8).map(|number| job(number, 0, 1, 10.0)));
    measured.extend((8..12).map(|number| job(number, 0, 2, 10.0)));
    assert!(factors(&measured)[&node(0)].factor < 0.81);
    for one in &mut measured[..4] {
        one.samples = 2.0;
    }
    assert_eq!(factors(&measured)[&node(0)].factor, 1.0);
}

#[test]
fn order_of_observations_has_no_effect() {
    let measured = jobs(200, &[1.0, 0.85, 1.2, 1.0, 0.97]);
    let found = factors(&measured);
    let mut turned = measured.clone();
    turned.reverse();
    assert_eq!(factors(&turned), found);
    turned.rotate_left(77);
    assert_eq!(factors(&turned), found);
}

#[test]
fn kinds_have_their_own_reference() {
    let mut measured = jobs(300, &[1.0, 1.0, 1.0, 0.5, 0.5, 0.4]);
    for one in &mut measured {
        if one.node >= node(3) {
            one.gpu_kind = "B".to_owned();
        }
    }
    let found = factors(&measured);
    let slow = found[&node(5)].factor;
    assert!((slow - 0.8).abs() < 0.02, "{found:?}");
    let typical = found[&node(3)].factor;
    assert!((typical - 1.0).abs() < 0.02, "{found:?}");
}

#[test]
fn small_deviation_is_rounded_away() {
    let rounded = |factor| {
        let factor = NodeFactor {
            factor,
            weight: 4.0,
            jobs: 4,
        };
        factor.rounded()
    };
    let speed = |percent| Some(NodeSpeed { percent, jobs: 4 });
    assert_eq!(rounded(0.986), None);
    assert_eq!(rounded(0.978), speed(98));
    assert_eq!(rounded(1.104), speed(110));
}
