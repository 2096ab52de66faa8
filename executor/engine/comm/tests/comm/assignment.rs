//! Compares the parameter assignment with Optimus' own (PAA) on the parameter blocks of real
//! networks.

#[path = "../../../../../scheduler/lab/tests/traces/mod.rs"]
mod traces;

use muster_comm::assign::{ParameterPiece, assign, load};
use std::collections::BTreeMap;

/// Lengths of each network's blocks, in order.
fn networks() -> BTreeMap<String, Vec<usize>> {
    let file = traces::outside("ps/model_parameter_blocks.csv");
    let text = std::fs::read_to_string(file).expect("a file");
    let mut networks: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split(',');
        let (model, _block) = (fields.next().expect("a model"), fields.next());
        let len = fields.next().expect("a length").parse().expect("a number");
        networks.entry(model.to_owned()).or_default().push(len);
    }
    networks
}

/// Load of a shard under PAA.
#[derive(Clone, Copy, Default)]
struct ShardLoad {
    load: usize,
    requests: usize,
}

impl ShardLoad {
    fn take(&mut self, len: usize) {
        self.load += len;
        self.requests += 1;
    }
}

/// Optimus' parameter assignment (PAA) as published by its authors. Tiny blocks (up to 1 % of the
/// mean load) go to the shard with the fewest requests. Blocks up to the mean go to the best fit,
/// or else to the emptiest shard. Larger blocks are split over the emptiest shards, up to the mean
/// each; their last piece goes to the best fit.
fn paa(blocks: &[usize], shards: usize) -> Vec<ShardLoad> {
    let total: usize = blocks.iter().sum();
    let mean = total / shards;
    let mut filled = vec![ShardLoad::default(); shards];
    let mut largest_first = blocks.to_vec();
    largest_first.sort_unstable_by(|a, b| b.cmp(a));
    for block in largest_first {
        if block * 100 * shards <= total {
            let fewest = (0..shards).min_by_key(|&shard| filled[shard].requests);
            filled[fewest.expect("a shard")].take(block);
        } else if block <= mean {
            let fit = best_fit(&filled, mean, block);
            filled[fit].take(block);
        } else {
            let mut order: Vec<usize> = (0..shards).collect();
            order.sort_by_key(|&shard| filled[shard].load);
            let mut rest = block;
            for shard in order {
                let room = mean.saturating_sub(filled[shard].load);
                if rest < room {
                    break;
                }
                filled[shard].take(room);
                rest -= room;
            }
            if rest > 0 {
                let fit = best_fit(&filled, mean, rest);
                filled[fit].take(rest);
            }
        }
    }
    filled
}

fn best_fit(filled: &[ShardLoad], mean: usize, len: usize) -> usize {
    let holds = (0..filled.len()).filter(|&shard| filled[shard].load + len <= mean);
    let fullest = holds.min_by_key(|&shard| mean - filled[shard].load);
    fullest
        .or_else(|| (0..filled.len()).min_by_key(|&shard| filled[shard].load))
        .expect("a shard")
}

struct Compared {
    ours: f64,
    theirs: f64,
    our_requests: usize,
    their_requests: usize,
}

fn compare(lens: &[usize], shards: usize) -> Compared {
    let mut offset = 0;
    // A gap after every block prevents neighbours from merging, which would lower the number of
    // requests unfairly.
    let apart: Vec<ParameterPiece> = lens
        .iter()
        .map(|&len| {
            let piece = ParameterPiece { offset, len };
            offset += len + 1;
            piece
        })
        .collect();
    let assignment = assign(&apart, shards);
    let filled = paa(lens, shards);
    let mean = lens.iter().sum::<usize>() as f64 / shards as f64;
    let fullest = assignment.iter().map(|pieces| load(pieces)).max();
    let their_fullest = filled.iter().map(|shard| shard.load).max();
    Compared {
        ours: fullest.expect("a shard") as f64 / mean,
        theirs: their_fullest.expect("a shard") as f64 / mean,
        our_requests: assignment.iter().map(Vec::len).sum(),
        their_requests: filled.iter().map(|shard| shard.requests).sum(),
    }
}

#[test]
#[ignore = "needs MUSTER_TRACES: the parameter blocks of DL2"]
fn loads_are_within_one_percent_with_no_more_requests_than_paa() {
    let networks = networks();
    for (name, lens) in &networks {
        let found = compare(lens, 8);
        println!(
            "{name:13} max/mean load {:.4} (PAA {:.4}), requests {} (PAA {})",
            found.ours, found.theirs, found.our_requests, found.their_requests
        );
        assert!(found.ours <= 1.01, "{name}: {}", found.ours);
        assert!(found.our_requests <= found.their_requests, "{name}");
    }
}

/// With other numbers of shards PAA sometimes needs one request fewer, but its loads are then less
/// even than the limit here.
#[test]
#[ignore = "needs MUSTER_TRACES: the parameter blocks of DL2"]
fn fewer_requests_of_paa_cost_less_even_loads() {
    let networks = networks();
    let mut fewer = 0;
    for (name, lens) in &networks {
        for shards in 2..=16 {
            let found = compare(lens, shards);
            assert!(
                found.ours <= 1.01,
                "{name} on {shards} shards: {}",
                found.ours
            );
            if found.our_requests > found.their_requests {
                fewer += 1;
                assert!(found.theirs > 1.01, "{name} on {shards} shards");
            }
        }
    }
    println!(
        "PAA makes fewer requests in {fewer} of {} cases",
        networks.len() * 15
    );
    assert!(fewer * 20 <= networks.len() * 15);
}
