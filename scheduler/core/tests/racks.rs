//! Racks: under every policy, a gang on several nodes is placed in one rack if that needs no more
//! nodes.

use crate::dense::random::Dice;
use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::policies::place;
use muster_core::policy::Policy;
use muster_core::problem::{Demand, FreeResources, NodeAllocation, SchedulingProblem, nodes_of};
use muster_model::job::JobPhase;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Returns the racks of a job's workers.
fn racks_of(scene: &mut Scene, name: &str) -> BTreeSet<Option<String>> {
    let nodes: Vec<_> = scene
        .find(name)
        .tasks
        .iter()
        .map(|task| task.node)
        .collect();
    let all = scene.snapshot.nodes.iter();
    let own = all.filter(|node| nodes.contains(&node.id));
    own.map(|node| node.rack.clone()).collect()
}

/// Returns free nodes of two GPUs in these racks.
fn cluster(share: PolicyName, racks: &[&str]) -> Scene {
    let mut scene = Scene::cluster(u32::try_from(racks.len()).expect("few"), 2);
    scene.policy = Policy::named(share);
    for (node, rack) in scene.snapshot.nodes.iter_mut().zip(racks) {
        node.rack = (!rack.is_empty()).then(|| (*rack).to_owned());
    }
    scene
}

#[test]
fn gang_is_placed_in_rack_that_holds_it() {
    for &share in PolicyName::ALL {
        // By name the first two nodes would be taken, which are in different racks.
        for racks in [
            ["a", "b", "c", "b"],
            ["", "b", "a", "b"],
            ["a", "", "b", ""],
        ] {
            let mut scene = cluster(share, &racks);
            scene.job("gang").workers(4, 4).ps_shards(0, 0);
            scene.round();
            assert_ne!(scene.phase("gang"), JobPhase::Queued, "{share:?}");
            let racks = racks_of(&mut scene, "gang");
            assert_eq!(racks.len(), 1, "{share:?} takes {racks:?}");
        }
    }
}

#[test]
fn gang_larger_than_any_rack_starts_across_racks() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &["a", "b", "c", "d"]);
        scene.job("gang").workers(8, 8).ps_shards(0, 0);
        scene.round();
        assert_ne!(scene.phase("gang"), JobPhase::Queued, "{share:?}");
        assert_eq!(racks_of(&mut scene, "gang").len(), 4, "{share:?}");
    }
}

#[test]
fn gang_takes_rack_with_fewest_remaining_gpus() {
    let mut problem = crate::dense::cluster(7, 4);
    for (node, rack) in problem.nodes.iter_mut().zip([1, 2, 2, 2, 3, 3, 4]) {
        node.rack = rack;
    }
    let tally = FreeResources::empty(&problem);
    let parts = place::pack(&tally, &problem, 0, &Demand::GPU, 8).expect("it fits");
    let nodes: Vec<u32> = parts.iter().map(|part| part.node).collect();
    assert_eq!(nodes, [4, 5], "another gang of twelve finds its rack still");
}

/// Returns a cluster with partly taken nodes.
fn fragmented(dice: &mut Dice) -> (SchedulingProblem, FreeResources) {
    let mut problem = crate::dense::cluster(2 + dice.roll(10) as usize, 8);
    let mut tally = FreeResources::empty(&problem);
    for (number, node) in problem.nodes.iter_mut().enumerate() {
        node.rack = dice.roll(4);
        let gpus = dice.roll(9);
        let node = u32::try_from(number).expect("few");
        tally.take(&[NodeAllocation { node, gpus }], &Demand::GPU);
    }
    (problem, tally)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    /// Racks cost a gang neither its place nor an additional node. It is in one rack if any holds
    /// it on as few nodes.
    #[test]
    fn racks_only_break_ties(seed: u64) {
        let mut dice = Dice(seed);
        let (problem, tally) = fragmented(&mut dice);
        let gpus = dice.between(1, 24);
        let mut plain = problem.clone();
        plain.nodes.iter_mut().for_each(|node| node.rack = 0);
        for way in [place::pack, place::emptiest] {
            let near = way(&tally, &problem, 0, &Demand::GPU, gpus);
            let far = way(&tally, &plain, 0, &Demand::GPU, gpus);
            prop_assert_eq!(near.is_some(), far.is_some());
            let (Some(near), Some(far)) = (near, far) else { continue };
            prop_assert_eq!(nodes_of(&near), nodes_of(&far));
            prop_assert!(tally.holds(&near, &Demand::GPU));
            prop_assert_eq!(near.iter().map(|part| part.gpus).sum::<u32>(), gpus);
            let racks: BTreeSet<u32> = near.iter().map(|part| problem.nodes[part.node as usize].rack).collect();
            if racks.len() > 1 {
                for rack in 0..4 {
                    // The largest free nodes of the rack, as many as were taken.
                    let nodes = problem.nodes.iter().zip(&tally.free);
                    let of_rack = nodes.filter(|(node, _)| node.rack == rack);
                    let mut gaps: Vec<u32> = of_rack.map(|(_, &free)| free).collect();
                    gaps.sort_unstable_by(|a, b| b.cmp(a));
                    let most: u32 = gaps.iter().take(near.len()).sum();
                    prop_assert!(most < gpus, "rack {rack} holds it on as few nodes");
                }
            }
        }
    }
}
