//! Who is better where there are several objectives: ranks and crowding of NSGA-II (Deb et al.).

/// The rank of each row of losses: 0 for those that no other row dominates, 1 for those that only rows of rank 0 dominate, and so on.
/// One objective's ranks are by its order. Rows are of equal length.
#[must_use]
pub fn ranks(losses: &[&[f64]]) -> Vec<usize> {
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
    let mut ranks = vec![usize::MAX; count];
    let mut left: Vec<usize> = (0..count).collect();
    for rank in 0.. {
        if left.is_empty() {
            break;
        }
        let (front, rest): (Vec<usize>, Vec<usize>) = left
            .iter()
            .partition(|&&a| !left.iter().any(|&b| dominates(losses[b], losses[a])));
        for i in front {
            ranks[i] = rank;
        }
        left = rest;
    }
    ranks
}

/// No worse in any objective and better in one.
fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

/// How lonely each of these rows is among them: the ends of each objective are infinitely so.
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

/// All rows, best first: by rank, the lonelier first within one, then as they came.
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
