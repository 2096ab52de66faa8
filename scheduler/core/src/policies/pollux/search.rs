//! Genetic search: tournament selection, crossover over jobs, mutation, and survival of the best of
//! parents and children.

use super::genome::{Genome, SearchEnvironment};
use super::speedup::by_node;
use crate::policies::allocation_state::AllocationState;
use crate::policies::place;
use crate::problem::NodeAllocation;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const POPULATION: usize = 100;
const GENERATIONS: usize = 100;
/// Fraction of a child's mutated rows that return to the present allocation.
const RESET: f64 = 0.1;

/// State of one search.
pub struct GeneticSearch<'r, 'a> {
    ground: SearchEnvironment<'r, 'a>,
    /// Nodes with free GPUs, from which mutations draw.
    nodes: Vec<u32>,
    random: ChaCha8Rng,
}

impl<'r, 'a> GeneticSearch<'r, 'a> {
    pub fn new(state: &'r AllocationState<'a>, jobs: Vec<usize>) -> Self {
        let nodes = (0..).zip(&state.tally.free);
        Self {
            nodes: nodes
                .filter(|&(_, &free)| free > 0)
                .map(|(node, _)| node)
                .collect(),
            // The instant is the seed. The same problem gives the same decision, and the next one
            // another search.
            random: ChaCha8Rng::seed_from_u64(state.problem.now_s.to_bits()),
            ground: SearchEnvironment::new(state, &jobs),
        }
    }

    /// Returns the allocation of every contender.
    pub fn run(mut self) -> Vec<(usize, Vec<NodeAllocation>)> {
        let present = self.ground.present();
        let mut rows = present.rows.clone();
        if !self.nodes.is_empty() {
            let best = self.best(&present);
            // The tolerance prevents moves for a rounding error.
            if best.cost < present.cost * (1.0 - 1e-9) {
                rows = best.rows;
            }
        }
        let contenders = self.ground.contenders.iter();
        let given = contenders.zip(rows);
        given.map(|(of, row)| (of.job, of.as_held(row))).collect()
    }

    fn best(&mut self, present: &Genome) -> Genome {
        let mut population = self.first(present);
        for _ in 0..GENERATIONS {
            let children: Vec<Genome> = (0..POPULATION).map(|_| self.child(&population)).collect();
            population.extend(children);
            survive(&mut population);
        }
        population.swap_remove(0)
    }

    /// Returns the first population: the present allocation, equal shares, and mutations of both.
    fn first(&mut self, present: &Genome) -> Vec<Genome> {
        let mut population = vec![present.clone(), self.fair()];
        while population.len() < POPULATION {
            let rows = population[population.len() % 2].rows.clone();
            population.push(self.mutated(rows, 0.5));
        }
        survive(&mut population);
        population
    }

    /// Returns the genome in which all jobs get an equal part of the GPUs, packed on nodes.
    fn fair(&self) -> Genome {
        let problem = self.ground.state.problem;
        let contenders = &self.ground.contenders;
        let gpus =
            self.ground.state.tally.gpus() / u32::try_from(contenders.len()).unwrap_or(1).max(1);
        let mut tally = self.ground.state.tally.clone();
        let mut rows = Vec::with_capacity(contenders.len());
        for of in contenders {
            let unit = &of.of.unit;
            let gpus = (gpus.min(of.most) / unit.gpus.max(1) * unit.gpus.max(1)).max(of.least);
            let kinds = self.ground.state.kinds_for(of.job, gpus);
            let mut places = kinds.into_iter();
            let parts =
                places.find_map(|kind| place::packed(&mut tally, problem, kind, unit, gpus));
            rows.push(by_node(&parts.unwrap_or_default()));
        }
        self.ground.repaired(rows, 0)
    }

    fn child(&mut self, population: &[Genome]) -> Genome {
        let (a, b) = (self.parent(population), self.parent(population));
        let point = self.below(a.rows.len() + 1);
        let rows = a.rows[..point].iter().chain(&b.rows[point..]);
        let rows: Vec<Vec<NodeAllocation>> = rows.cloned().collect();
        // One mutation per child on average. With two or four, a hundred generations come less near
        // to the result of thousands.
        let rate = 1.0 / rows.len() as f64;
        self.mutated(rows, rate)
    }

    /// Tournament selection: returns the better of two random individuals.
    fn parent<'p>(&mut self, population: &'p [Genome]) -> &'p Genome {
        // The population is sorted by cost.
        let (a, b) = (self.below(population.len()), self.below(population.len()));
        &population[a.min(b)]
    }

    fn mutated(&mut self, mut rows: Vec<Vec<NodeAllocation>>, rate: f64) -> Genome {
        let mut first = 0;
        for (index, row) in rows.iter_mut().enumerate() {
            if !self.happens(rate) {
                continue;
            }
            if self.happens(RESET) {
                row.clone_from(&self.ground.contenders[index].present);
            } else {
                self.mutate(index, row);
            }
            // The mutated job takes what it wants first, or only what the others leave, with equal
            // probability.
            first = if self.happens(0.5) { index } else { first };
        }
        self.ground.repaired(rows, first)
    }

    /// Clears the row, or draws a new number of GPUs on one node, or both.
    fn mutate(&mut self, index: usize, row: &mut Vec<NodeAllocation>) {
        if self.happens(0.5) {
            row.clear();
            if self.happens(0.5) {
                return;
            }
        }
        let own = !row.is_empty() && self.happens(0.5);
        let among = if own { row.len() } else { self.nodes.len() };
        let drawn = self.below(among);
        let node = if own {
            row[drawn].node
        } else {
            self.nodes[drawn]
        };
        let unit = self.ground.contenders[index].of.unit.gpus.max(1);
        let units = self.ground.state.problem.nodes[node as usize].gpus / unit;
        let drawn = NodeAllocation {
            node,
            gpus: unit * self.below(units as usize + 1) as u32,
        };
        row.retain(|part| part.node != node && self.ground.kind(part) == self.ground.kind(&drawn));
        row.push(drawn);
        row.sort_by_key(|part| part.node);
    }

    fn below(&mut self, bound: usize) -> usize {
        // The bias of 64 bits over a few thousand is negligible.
        let product = u128::from(self.random.next_u64()) * bound as u128;
        (product >> 64) as usize
    }

    fn happens(&mut self, chance: f64) -> bool {
        f64::from(self.random.next_u32()) < chance * 4_294_967_296.0
    }
}

/// Keeps the best individuals without duplicates.
fn survive(population: &mut Vec<Genome>) {
    population.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    population.dedup();
    population.truncate(POPULATION);
}
