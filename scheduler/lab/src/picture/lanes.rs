//! Assigns GPUs of a node to bars; a run contains only the number of GPUs per node.

use crate::run::SimulationRun;

/// Span on adjacent GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    pub span: usize,
    /// Rows from the cluster's first GPU.
    pub row: u32,
    pub rows: u32,
}

/// Assigns rows of its node to every span, if free the rows that its job had directly before.
/// Adjacent rows make one bar. Spans beyond the node's GPUs (an invalid run) are drawn over others
/// and not left out.
pub fn bars(run: &SimulationRun) -> Vec<Bar> {
    let mut first_row = Vec::with_capacity(run.nodes.len());
    let mut rows = 0_u32;
    for node in &run.nodes {
        first_row.push(rows);
        rows += node.gpus;
    }
    // End of use and last job of every row.
    let mut taken: Vec<(f64, u32)> = vec![(f64::NEG_INFINITY, u32::MAX); rows as usize];
    let mut order: Vec<usize> = (0..run.spans.len()).collect();
    order.sort_by(|&a, &b| run.spans[a].from_s.total_cmp(&run.spans[b].from_s));
    let mut bars = Vec::with_capacity(order.len());
    for index in order {
        let span = &run.spans[index];
        let node = span.node as usize;
        let first = first_row[node];
        let of_node = &mut taken[first as usize..(first + run.nodes[node].gpus) as usize];
        let mut lanes: Vec<usize> = (0..of_node.len()).collect();
        lanes.sort_by_key(|&lane| {
            let (until_s, job) = of_node[lane];
            let is_free = until_s <= span.from_s;
            (!is_free, job != span.job, lane)
        });
        lanes.truncate(span.gpus as usize);
        lanes.sort_unstable();
        for &lane in &lanes {
            of_node[lane] = (span.to_s, span.job);
        }
        for chunk in lanes.chunk_by(|a, b| a + 1 == *b) {
            // Lanes and rows are below the node's GPUs, a u32.
            bars.push(Bar {
                span: index,
                row: first + chunk[0] as u32,
                rows: chunk.len() as u32,
            });
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::{Bar, bars};
    use crate::run::{AllocationSpan, RunNode};
    use crate::testing::{ran, run};

    fn span(job: u32, node: u32, gpus: u32, from_s: f64, to_s: f64) -> AllocationSpan {
        AllocationSpan {
            job,
            node,
            gpus,
            from_s,
            to_s,
        }
    }

    fn bar(span: usize, row: u32, rows: u32) -> Bar {
        Bar { span, row, rows }
    }

    #[test]
    fn bars_keep_rows_of_job_and_do_not_overlap() {
        let mut two = run(4, vec![ran(0.0, 10.0), ran(0.0, 10.0)]);
        two.nodes.push(RunNode {
            name: "node-1".to_owned(),
            kind: "gpu".to_owned(),
            gpus: 2,
        });
        two.spans = vec![
            span(0, 0, 1, 0.0, 5.0),
            span(1, 0, 2, 0.0, 5.0),
            span(1, 0, 1, 5.0, 10.0),
            span(0, 0, 3, 5.0, 10.0),
            span(0, 1, 2, 5.0, 10.0),
        ];
        assert_eq!(
            bars(&two),
            [
                bar(0, 0, 1),
                bar(1, 1, 2),
                bar(2, 1, 1),
                // Row 0 was its own and row 1 is taken, so the span has two bars.
                bar(3, 0, 1),
                bar(3, 2, 2),
                bar(4, 4, 2),
            ]
        );
    }
}
