//! Gantt chart: the jobs on each GPU over time.

use super::axis::{Ticks, label, linear, spoken};
use super::lanes::{Bar, bars};
use super::svg::{HUES, Svg, SvgFrame, hue, width_of};
use crate::compare::title_of;
use crate::measure::{completion_times_s, mean};
use crate::run::{JobRun, SimulationRun};
use std::collections::BTreeMap;

/// Meaning of the bars' colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Application,
    Tenant,
}

const WIDTH: f64 = 1480.0;
const LEFT: f64 = 116.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 92.0;
/// Target height of all rows. The height of a row stays within `ROW`.
const ROWS_HEIGHT: f64 = 704.0;
const ROW: (f64, f64) = (1.0, 22.0);
/// Maximum number of nodes that are separated by gaps.
const GAPPED_NODES: usize = 128;
const GAP: f64 = 3.0;
/// Height of the strip below the rows with the number of waiting jobs.
const STRIP: f64 = 54.0;
const MOST_TICKS: f64 = 14.0;
/// Classes of bars, which alternate by job.
const SHADES: [&str; 4] = ["bar", "bar s1", "bar s2", "bar s3"];

/// Positions of all parts.
struct GanttLayout {
    row: f64,
    gap: f64,
    /// Upper edge of every node.
    node_y: Vec<f64>,
    /// Node of every row, and rows before that node.
    node_of_row: Vec<(usize, u32)>,
    bottom: f64,
    end_s: f64,
}

/// Draws a run. Rows are GPUs in the order of the nodes, bars are jobs. The strip below shows the
/// number of waiting jobs. A run records the number of GPUs per node, not their indices. The rows
/// within a node are therefore arbitrary.
#[must_use]
pub fn gantt(run: &SimulationRun, paint: Paint) -> String {
    let layout = GanttLayout::of(run);
    let mut svg = Svg::new(WIDTH, layout.bottom + 128.0, &title(run));
    let legend = Legend::of(run, paint);
    svg.text((LEFT, 28.0), "title", &title(run));
    svg.text((LEFT, 47.0), "soft", &subtitle(run));
    legend.draw(&mut svg);
    rows(&mut svg, run, &layout);
    let ticks = linear(layout.end_s, MOST_TICKS);
    axis(&mut svg, &layout, &ticks);
    for bar in bars(run) {
        draw_bar(&mut svg, run, &layout, &legend, bar);
    }
    waiting(&mut svg, run, &layout, &ticks);
    svg.finish()
}

fn title(run: &SimulationRun) -> String {
    format!("{} on {}", run.policy, title_of(&run.workload))
}

fn subtitle(run: &SimulationRun) -> String {
    let gpus: u32 = run.nodes.iter().map(|node| node.gpus).sum();
    format!(
        "{} jobs on {gpus} GPUs of {} nodes; mean completion time {}, last end after {}",
        run.jobs.len(),
        run.nodes.len(),
        spoken(mean(&completion_times_s(run))),
        spoken(run.end_s)
    )
}

impl GanttLayout {
    fn of(run: &SimulationRun) -> Self {
        let rows: u32 = run.nodes.iter().map(|node| node.gpus).sum();
        let gap = if run.nodes.len() > GAPPED_NODES {
            0.0
        } else {
            GAP
        };
        let row = (ROWS_HEIGHT / f64::from(rows.max(1))).clamp(ROW.0, ROW.1);
        let mut y = TOP;
        let mut before = 0;
        let mut node_y = Vec::with_capacity(run.nodes.len());
        let mut node_of_row = Vec::with_capacity(rows as usize);
        for (index, node) in run.nodes.iter().enumerate() {
            node_y.push(y);
            node_of_row.extend((0..node.gpus).map(|_| (index, before)));
            before += node.gpus;
            y += f64::from(node.gpus) * row + gap;
        }
        Self {
            row,
            gap,
            node_y,
            node_of_row,
            bottom: y - gap,
            end_s: run.end_s.max(1.0),
        }
    }

    fn x(&self, at_s: f64) -> f64 {
        LEFT + at_s / self.end_s * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, row: u32) -> f64 {
        let (node, before) = self.node_of_row[row as usize];
        self.node_y[node] + f64::from(row - before) * self.row
    }
}

/// Bands and names of the nodes.
fn rows(svg: &mut Svg, run: &SimulationRun, layout: &GanttLayout) {
    let mut free_y = f64::NEG_INFINITY;
    for (index, node) in run.nodes.iter().enumerate() {
        let y = layout.node_y[index];
        let height = f64::from(node.gpus) * layout.row;
        let frame = SvgFrame {
            x: LEFT,
            y,
            width: WIDTH - LEFT - RIGHT,
            height,
        };
        if layout.gap > 0.0 || index % 2 == 0 {
            svg.rect(frame, "band", "", None);
        }
        // Leaves out names that would overlap.
        let middle = y + height / 2.0 + 4.0;
        if middle - free_y >= 12.0 {
            free_y = middle;
            svg.text((LEFT - 8.0, middle), "soft end", &shortened(&node.name));
        }
    }
    svg.upright(
        (16.0, f64::midpoint(TOP, layout.bottom)),
        "soft",
        "GPUs by node",
    );
}

/// The end of a long name, because numbered nodes differ there.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= 13 {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(count - 12).collect();
    format!("…{tail}")
}

fn axis(svg: &mut Svg, layout: &GanttLayout, ticks: &Ticks) {
    for &at_s in &ticks.at_s {
        let x = layout.x(at_s);
        svg.line((x, TOP - 4.0), (x, layout.bottom + 20.0 + STRIP), "grid");
        let y = layout.bottom + STRIP + 36.0;
        svg.text((x, y), "soft middle", &label(at_s, ticks.unit));
    }
    let what = format!("time since the workload's beginning ({})", ticks.unit.name);
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    svg.text((middle, layout.bottom + STRIP + 56.0), "soft middle", &what);
}

fn draw_bar(svg: &mut Svg, run: &SimulationRun, layout: &GanttLayout, legend: &Legend, bar: Bar) {
    let span = &run.spans[bar.span];
    let job = &run.jobs[span.job as usize];
    let x = layout.x(span.from_s);
    let frame = SvgFrame {
        x,
        y: layout.y(bar.row),
        width: (layout.x(span.to_s) - x).max(0.4),
        height: f64::from(bar.rows) * layout.row,
    };
    let gpus = span.gpus;
    let what = format!(
        "{} ({}, {}): {gpus} {} of {} from {} to {}",
        job.name,
        job.application,
        job.tenant,
        if gpus == 1 { "GPU" } else { "GPUs" },
        run.nodes[span.node as usize].name,
        spoken(span.from_s),
        spoken(span.to_s)
    );
    // Neighbours of one colour differ by shade.
    let shade = SHADES[span.job as usize % SHADES.len()];
    // Draws no edge, which would cover the whole bar.
    let is_thin = frame.width < 2.0 || frame.height < 2.0;
    let class = format!("{shade}{}", if is_thin { " thin" } else { "" });
    svg.rect(frame, &class, &legend.colour(job), Some(&what));
    let name = width_of(&job.name, 8.0) + 6.0;
    if frame.height >= 9.0 && frame.width >= name {
        let at = (frame.x + 3.0, frame.y + frame.height / 2.0 + 3.0);
        svg.text(at, "in-bar", &job.name);
    }
}

/// Submitted jobs without GPUs over time.
fn waiting(svg: &mut Svg, run: &SimulationRun, layout: &GanttLayout, ticks: &Ticks) {
    let steps = waiting_jobs(run);
    let most = steps.iter().map(|&(_, count)| count).max().unwrap_or(0);
    let floor = layout.bottom + 20.0 + STRIP;
    let y = |count: i64| floor - count as f64 / most.max(1) as f64 * (STRIP - 4.0);
    let mut points = vec![(layout.x(0.0), floor)];
    let mut count = 0;
    for &(at_s, next) in &steps {
        points.push((layout.x(at_s), y(count)));
        points.push((layout.x(at_s), y(next)));
        count = next;
    }
    points.push((layout.x(layout.end_s), y(count)));
    points.push((layout.x(layout.end_s), floor));
    svg.area(&points, "area");
    svg.line((LEFT, floor), (WIDTH - RIGHT, floor), "axis");
    for &at_s in &ticks.at_s {
        let x = layout.x(at_s);
        svg.line((x, floor), (x, floor + 4.0), "axis");
    }
    let name = (LEFT - 8.0, floor - 4.0);
    svg.text(name, "soft end", "jobs waiting");
    let figure = (LEFT - 8.0, floor - STRIP + 12.0);
    svg.text(figure, "soft end", &most.to_string());
}

/// Changes of the number of waiting jobs.
fn waiting_jobs(run: &SimulationRun) -> Vec<(f64, i64)> {
    // A job waits from its submission to its end, except while it holds GPUs.
    let mut changes: Vec<(f64, i64)> = Vec::new();
    for job in &run.jobs {
        changes.push((job.submitted_s, 1));
        changes.push((job.finished_s.unwrap_or(run.end_s), -1));
    }
    let mut held: Vec<Vec<(f64, f64)>> = vec![Vec::new(); run.jobs.len()];
    for span in &run.spans {
        held[span.job as usize].push((span.from_s, span.to_s));
    }
    for (job, spans) in run.jobs.iter().zip(&mut held) {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let end_s = job.finished_s.unwrap_or(run.end_s);
        let mut until_s = f64::NEG_INFINITY;
        for &(from_s, to_s) in spans.iter() {
            // Simultaneous spans on several nodes count once, and not beyond the job's end.
            let (from_s, to_s) = (from_s.max(until_s), to_s.min(end_s));
            if to_s > from_s {
                changes.push((from_s, -1));
                changes.push((to_s, 1));
                until_s = to_s;
            }
        }
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut count = 0;
    let mut steps: Vec<(f64, i64)> = Vec::with_capacity(changes.len());
    for (at_s, change) in changes {
        count += change;
        match steps.last_mut() {
            Some(last) if last.0 == at_s => last.1 = count,
            _ => steps.push((at_s, count)),
        }
    }
    steps
}

/// Names of the groups by GPU time, largest first. Groups beyond the hues share a grey.
struct Legend {
    paint: Paint,
    names: Vec<String>,
    has_others: bool,
}

impl Legend {
    fn of(run: &SimulationRun, paint: Paint) -> Self {
        let mut held: BTreeMap<&str, f64> = BTreeMap::new();
        for job in &run.jobs {
            *held.entry(group(job, paint)).or_default() += job.gpu_s;
        }
        let mut names: Vec<(&str, f64)> = held.into_iter().collect();
        names.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        let has_others = names.len() > HUES;
        let names = names.into_iter().take(HUES);
        Self {
            paint,
            names: names.map(|(name, _)| name.to_owned()).collect(),
            has_others,
        }
    }

    fn colour(&self, job: &JobRun) -> String {
        let name = group(job, self.paint);
        match self.names.iter().position(|known| known == name) {
            Some(index) => hue(index),
            None => "var(--other)".to_owned(),
        }
    }

    fn draw(&self, svg: &mut Svg) {
        let others = self.has_others.then(|| "others".to_owned());
        let mut x = LEFT;
        for (index, name) in self.names.iter().chain(&others).enumerate() {
            let frame = SvgFrame {
                x,
                y: 60.0,
                width: 12.0,
                height: 12.0,
            };
            let fill = if index < self.names.len() {
                hue(index)
            } else {
                "var(--other)".to_owned()
            };
            svg.rect(frame, "", &fill, None);
            svg.text((x + 17.0, 70.5), "", name);
            x += 17.0 + width_of(name, 12.0) + 20.0;
        }
    }
}

fn group(job: &JobRun, paint: Paint) -> &str {
    match paint {
        Paint::Application => &job.application,
        Paint::Tenant => &job.tenant,
    }
}

#[cfg(test)]
mod tests {
    use super::{Paint, gantt, waiting_jobs};
    use crate::run::AllocationSpan;
    use crate::testing::{ran, run};

    fn span(job: u32, gpus: u32, from_s: f64, to_s: f64) -> AllocationSpan {
        AllocationSpan {
            job,
            node: 0,
            gpus,
            from_s,
            to_s,
        }
    }

    #[test]
    fn gantt_has_bar_per_span_and_escapes_names() {
        let mut two = run(4, vec![ran(0.0, 10.0), ran(0.0, 10.0)]);
        two.jobs[0].name = "<a>".to_owned();
        two.spans = vec![span(0, 2, 0.0, 10.0), span(1, 2, 0.0, 10.0)];
        let svg = gantt(&two, Paint::Application);
        assert_eq!(svg.matches("<rect class=\"bar").count(), 2);
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>"), "{svg}");
        // One row of two GPUs is half the height of all four.
        assert!(
            svg.contains("since the workload&#39;s beginning (s)"),
            "{svg}"
        );
    }

    #[test]
    fn groups_beyond_hues_share_grey() {
        let mut many = run(16, (0..12).map(|_| ran(0.0, 10.0)).collect());
        for (index, job) in (0_u32..).zip(&mut many.jobs) {
            job.tenant = format!("tenant-{index}");
            job.gpu_s = f64::from(100 - index);
            many.spans.push(span(index, 1, 0.0, 10.0));
        }
        let svg = gantt(&many, Paint::Tenant);
        assert!(svg.contains(">tenant-7<") && !svg.contains(">tenant-8<"));
        // Four bars and the bar of the legend.
        assert_eq!(svg.matches("fill=\"var(--other)\"").count(), 5);
    }

    #[test]
    fn waiting_strip_counts_jobs_without_gpus() {
        let mut one = run(4, vec![ran(0.0, 10.0)]);
        one.spans = vec![
            span(0, 2, 2.0, 4.0),
            span(0, 1, 2.0, 4.0),
            span(0, 2, 6.0, 10.0),
        ];
        assert_eq!(
            waiting_jobs(&one),
            [(0.0, 1), (2.0, 0), (4.0, 1), (6.0, 0), (10.0, 0)]
        );
    }
}
