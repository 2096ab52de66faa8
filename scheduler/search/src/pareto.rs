//! Order of trials with several objectives: rank and crowding distance of NSGA-II (Deb et al., A
//! Fast and Elitist Multiobjective Genetic Algorithm, 2002). A row holds the losses of one trial.

use std::cmp::Ordering;

/// Rank of each row of losses: 0 for rows that no row dominates, 1 for rows that only rows of rank
/// 0 dominate, and so on. With one objective the rank is the position among distinct losses. Rows
/// have equal length and finite values.
pub(crate) fn ranks(losses: &[&[f64]]) -> Vec<usize> {
    let count = losses.len();
    if losses.first().is_some_and(|l| l.len() == 1) {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| losses[a][0].total_cmp(&losses[b][0]));
        let mut ranks = vec![0; count];
        for pair in order.windows(2) {
            let worse = losses[pair[0]][0] < losses[pair[1]][0];
            ranks[pair[1]] = ranks[pair[0]] + usize::from(worse);
        }
        return ranks;
    }
    // Efficient non-dominated sort (Zhang et al. 2015). In lexicographic order no row dominates an
    // earlier one. Each row goes to the first front without a row that dominates it. A row that a
    // front dominates is also dominated by every earlier front, which permits a binary search.
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| losses[a].partial_cmp(losses[b]).unwrap_or(Ordering::Equal));
    let mut ranks = vec![0; count];
    let mut fronts: Vec<Vec<usize>> = Vec::new();
    for row in order {
        let rank = fronts.partition_point(|front| {
            let mut members = front.iter().rev();
            members.any(|&member| dominates(losses[member], losses[row]))
        });
        if rank == fronts.len() {
            fronts.push(Vec::new());
        }
        fronts[rank].push(row);
        ranks[row] = rank;
    }
    ranks
}

/// Whether `a` is not worse than `b` in any objective and better in at least one.
fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

/// Crowding distance of each row of one front: the sum over the objectives of the distance between
/// its two neighbours, relative to the range. Infinite at both ends of each objective.
pub(crate) fn crowding(losses: &[&[f64]]) -> Vec<f64> {
    let count = losses.len();
    let mut distance = vec![0.0; count];
    let objectives = losses.first().map_or(0, |l| l.len());
    for k in 0..objectives {
        let loss: Vec<f64> = losses.iter().map(|row| row[k]).collect();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| loss[a].total_cmp(&loss[b]));
        let (first, last) = (order[0], order[count - 1]);
        let span = loss[last] - loss[first];
        distance[first] = f64::INFINITY;
        distance[last] = f64::INFINITY;
        if span > 0.0 {
            for triple in order.windows(3) {
                distance[triple[1]] += (loss[triple[2]] - loss[triple[0]]) / span;
            }
        }
    }
    distance
}

/// Indices of all rows, best first: by rank, then by larger crowding distance, then by position.
pub(crate) fn order(losses: &[&[f64]]) -> Vec<usize> {
    let ranks = ranks(losses);
    let mut order: Vec<usize> = (0..losses.len()).collect();
    if losses.first().is_none_or(|l| l.len() == 1) {
        order.sort_by_key(|&i| ranks[i]);
        return order;
    }
    let mut lonely = vec![0.0; losses.len()];
    for rank in 0..=ranks.iter().copied().max().unwrap_or(0) {
        let front: Vec<usize> = (0..losses.len()).filter(|&i| ranks[i] == rank).collect();
        let rows: Vec<&[f64]> = front.iter().map(|&i| losses[i]).collect();
        for (&i, distance) in front.iter().zip(crowding(&rows)) {
            lonely[i] = distance;
        }
    }
    order.sort_by(|&a, &b| {
        ranks[a]
            .cmp(&ranks[b])
            .then(lonely[b].total_cmp(&lonely[a]))
    });
    order
}

#[cfg(test)]
mod tests {
    use super::{dominates, ranks};
    use proptest::prelude::*;

    /// Reference implementation that removes front after front.
    fn peeled(losses: &[&[f64]]) -> Vec<usize> {
        let mut ranks = vec![usize::MAX; losses.len()];
        for rank in 0..losses.len() {
            let left: Vec<usize> = (0..losses.len()).filter(|&i| ranks[i] >= rank).collect();
            for &a in &left {
                if !left.iter().any(|&b| dominates(losses[b], losses[a])) {
                    ranks[a] = rank;
                }
            }
        }
        ranks
    }

    proptest! {
        #[test]
        fn ranks_equal_those_of_peeled_fronts(
            (objectives, values) in (1usize..5).prop_flat_map(|k| {
                (Just(k), prop::collection::vec(prop::sample::select(vec![-1.0, -0.0, 0.0, 0.5, 2.0, f64::MAX]), 0..40 * k))
            }),
        ) {
            let rows: Vec<&[f64]> = values.chunks_exact(objectives).collect();
            prop_assert_eq!(ranks(&rows), peeled(&rows));
        }
    }
}
