//! Cost model that chooses the fastest algorithm for a size, from three measured figures: the α-β-γ
//! model of Thakur, Rabenseifner and Gropp (IJHPCA 2005). α is the time of a message, β the time
//! per byte sent and received at once, γ the time per added byte. All are in seconds.
//!
//! All ranks measure at the same time, as in a collective. Tasks that share cores or a network card
//! thus measure the β of a collective and not that of an idle pair. Every rank uses the slowest
//! figures of all ranks, so all choose the same algorithm.

use super::{AllReduceAlgorithm, all_reduce};
use crate::collective::add;
use crate::fabric::{
    CollectiveBuffer, FabricError, Flow, Mesh, ReceiveOp, ReceiveRange, SendRange,
};
use muster_compute::clock;

/// Number of exchanges of one float; α is their median.
const SMALL_ROUNDS: usize = 15;

/// Number of exchanges of [`LARGE`] floats (1 MiB); β follows from their median.
const LARGE_ROUNDS: usize = 5;
const LARGE: usize = 256 << 10;

/// Figures of one kind of link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkCost {
    /// Seconds per message without content.
    pub alpha_s: f64,
    /// Seconds per byte.
    pub beta_s: f64,
}

/// Measured figures of the links of a view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectiveCostModel {
    /// Links between tasks of one group.
    pub inside: LinkCost,
    /// Links between groups.
    pub between: LinkCost,
    /// Seconds to add a byte.
    pub gamma_s: f64,
}

impl CollectiveCostModel {
    /// Measures the links, in some milliseconds. All ranks must call this.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn probe(mesh: &mut Mesh, groups: &[Vec<usize>]) -> Result<Self, FabricError> {
        let rank = mesh.rank();
        let group = groups.iter().find(|group| group.contains(&rank));
        let inside = measure(mesh, group.expect("every rank is in a group"))?;
        let leaders: Vec<usize> = groups.iter().map(|group| group[0]).collect();
        let between = if leaders.contains(&rank) {
            measure(mesh, &leaders)?
        } else {
            [0.0; 2]
        };
        let mine = [inside[0], inside[1], between[0], between[1], gamma()];
        let [a, b, c, d, gamma_s] = slowest(mesh, mine)?;
        Ok(Self {
            inside: LinkCost {
                alpha_s: a,
                beta_s: b,
            },
            between: LinkCost {
                alpha_s: c,
                beta_s: d,
            },
            gamma_s,
        })
    }

    /// Seconds of an all-reduce of `bytes` over `n` ranks that are all connected by `link`.
    ///
    /// # Panics
    /// For the hierarchical algorithm, which has two kinds of links.
    #[must_use]
    pub fn flat_s(
        &self,
        algorithm: AllReduceAlgorithm,
        link: LinkCost,
        n: usize,
        bytes: f64,
    ) -> f64 {
        if n < 2 {
            return 0.0;
        }
        let power = 1 << n.ilog2();
        let rounds = f64::from(n.ilog2());
        let all = link.alpha_s + bytes * link.beta_s;
        let sum = bytes * self.gamma_s;
        // Surplus ranks above a power of two send their contribution once and receive the result
        // once.
        let fold = if power == n { 0.0 } else { 2.0 * all + sum };
        let spread =
            |n: usize| (n - 1) as f64 / n as f64 * bytes * (2.0 * link.beta_s + self.gamma_s);
        match algorithm {
            AllReduceAlgorithm::Ring => 2.0 * (n - 1) as f64 * link.alpha_s + spread(n),
            AllReduceAlgorithm::HalvingDoubling => {
                2.0 * rounds * link.alpha_s + spread(power) + fold
            }
            AllReduceAlgorithm::Butterfly => rounds * (all + sum) + fold,
            AllReduceAlgorithm::Tree => {
                let depth = f64::from(n.next_power_of_two().ilog2());
                depth * (2.0 * all + sum)
            }
            AllReduceAlgorithm::Hierarchical => panic!("has two kinds of links"),
        }
    }

    /// Seconds of an all-reduce over all ranks in `groups`.
    #[must_use]
    pub fn all_reduce_s(
        &self,
        algorithm: AllReduceAlgorithm,
        groups: &[Vec<usize>],
        bytes: f64,
    ) -> f64 {
        let n = groups.iter().map(Vec::len).sum();
        let largest = groups.iter().map(Vec::len).max().unwrap_or(1);
        if algorithm == AllReduceAlgorithm::Hierarchical {
            return self.flat_s(AllReduceAlgorithm::Tree, self.inside, largest, bytes)
                + self.flat_s(AllReduceAlgorithm::Ring, self.between, groups.len(), bytes);
        }
        // A flat algorithm waits for its slowest link, and all ranks of a group share the
        // connection to other groups.
        let link = match groups {
            [_] => self.inside,
            _ => LinkCost {
                alpha_s: self.between.alpha_s.max(self.inside.alpha_s),
                beta_s: match algorithm {
                    AllReduceAlgorithm::Ring => self.between.beta_s.max(self.inside.beta_s),
                    _ => (self.between.beta_s * largest as f64).max(self.inside.beta_s),
                },
            },
        };
        self.flat_s(algorithm, link, n, bytes)
    }

    /// Fastest algorithm over all ranks.
    #[must_use]
    pub fn choose(&self, groups: &[Vec<usize>], floats: usize) -> AllReduceAlgorithm {
        let bytes = floats as f64 * 4.0;
        fastest(&AllReduceAlgorithm::ALL, |algorithm| {
            self.all_reduce_s(algorithm, groups, bytes)
        })
    }

    /// Fastest algorithm between the leaders of `groups` groups.
    #[must_use]
    pub fn choose_between(&self, groups: usize, floats: usize) -> AllReduceAlgorithm {
        let bytes = floats as f64 * 4.0;
        let flat = [
            AllReduceAlgorithm::Ring,
            AllReduceAlgorithm::Tree,
            AllReduceAlgorithm::HalvingDoubling,
            AllReduceAlgorithm::Butterfly,
        ];
        fastest(&flat, |algorithm| {
            self.flat_s(algorithm, self.between, groups, bytes)
        })
    }
}

fn fastest(
    among: &[AllReduceAlgorithm],
    seconds: impl Fn(AllReduceAlgorithm) -> f64,
) -> AllReduceAlgorithm {
    let best = among
        .iter()
        .min_by(|a, b| seconds(**a).total_cmp(&seconds(**b)));
    *best.expect("there are algorithms")
}

/// α and β of a subset in which each rank exchanges with both neighbours at once; zeros for a
/// single rank.
fn measure(mesh: &mut Mesh, members: &[usize]) -> Result<[f64; 2], FabricError> {
    let n = members.len();
    if n < 2 {
        return Ok([0.0; 2]);
    }
    let me = members.iter().position(|&member| member == mesh.rank());
    let me = me.expect("only members measure");
    let (to, from) = (members[(me + 1) % n], members[(me + n - 1) % n]);
    let (out, mut back) = (vec![1.0; LARGE], vec![0.0; LARGE]);
    let mut medians = [0.0; 2];
    for (median, (len, rounds)) in medians
        .iter_mut()
        .zip([(1, SMALL_ROUNDS), (LARGE, LARGE_ROUNDS)])
    {
        let flow = Flow {
            to: Some(to),
            sends: vec![SendRange {
                range: 0..len,
                from: CollectiveBuffer::Input,
                after: None,
            }],
            from: Some(from),
            takes: vec![ReceiveRange {
                range: 0..len,
                how: ReceiveOp::Store,
            }],
            in_step: false,
            lends: false,
        };
        let mut seconds = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let began = clock::now();
            mesh.run(&out, &mut back, &flow)?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        *median = seconds[rounds / 2];
    }
    let [alpha_s, large_s] = medians;
    let beta_s = (large_s - alpha_s).max(0.0) / (LARGE as f64 * 4.0);
    Ok([alpha_s, beta_s])
}

fn gamma() -> f64 {
    let (mut out, input) = (vec![1.0f32; LARGE], vec![1.0f32; LARGE]);
    let mut seconds: Vec<f64> = (0..LARGE_ROUNDS)
        .map(|_| {
            let began = clock::now();
            add::add_to(std::hint::black_box(&mut out), &input);
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[LARGE_ROUNDS / 2] / (LARGE as f64 * 4.0)
}

/// Maximum of each figure over all ranks. The figures are sent as single precision and are the same
/// on all ranks.
fn slowest(mesh: &mut Mesh, mine: [f64; 5]) -> Result<[f64; 5], FabricError> {
    let (rank, n) = (mesh.rank(), mesh.size());
    let mut input = vec![0.0f32; 5 * n];
    for (slot, figure) in input[5 * rank..].iter_mut().zip(mine) {
        *slot = figure as f32;
    }
    let mut all = vec![0.0; 5 * n];
    all_reduce(mesh, AllReduceAlgorithm::Tree, &[], &input, &mut all)?;
    Ok(std::array::from_fn(|figure| {
        let of_ranks = all.iter().skip(figure).step_by(5).copied();
        f64::from(of_ranks.fold(0.0, f32::max))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: CollectiveCostModel = CollectiveCostModel {
        inside: LinkCost {
            alpha_s: 2e-6,
            beta_s: 1e-10,
        },
        between: LinkCost {
            alpha_s: 50e-6,
            beta_s: 1e-9,
        },
        gamma_s: 1e-10,
    };

    fn flat(n: usize) -> Vec<Vec<usize>> {
        (0..n).map(|rank| vec![rank]).collect()
    }

    #[test]
    fn small_sums_use_few_hops_and_large_sums_few_bytes() {
        assert_eq!(MODEL.choose(&flat(8), 1), AllReduceAlgorithm::Butterfly);
        assert_eq!(
            MODEL.choose(&flat(8), 100_000),
            AllReduceAlgorithm::HalvingDoubling
        );
        // If n is not a power of two, surplus ranks send all bytes twice, which the ring does not.
        assert_eq!(MODEL.choose(&flat(6), 25_000_000), AllReduceAlgorithm::Ring);
    }

    #[test]
    fn slow_links_select_the_hierarchical_algorithm() {
        let groups: Vec<Vec<usize>> = (0..4)
            .map(|node| (4 * node..4 * node + 4).collect())
            .collect();
        assert_eq!(
            MODEL.choose(&groups, 100_000),
            AllReduceAlgorithm::Hierarchical
        );
    }

    #[test]
    fn ring_of_two_matches_the_cost_formula() {
        let link = MODEL.between;
        let seconds = MODEL.flat_s(AllReduceAlgorithm::Ring, link, 2, 1e6);
        // Two hops, half of the bytes in each, and half of the bytes added.
        assert!((seconds - (2.0 * 50e-6 + 1e6 * 1e-9 + 0.5e6 * 1e-10)).abs() < 1e-12);
    }
}
