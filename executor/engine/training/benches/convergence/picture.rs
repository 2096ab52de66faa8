//! Picture of every pair's curve: one column per consistency, accuracy over time above, over bytes
//! below; one file without scripts.

use super::{ConvergenceRun, EvaluationPoint, TARGET};
use std::fmt::Write;

const PANEL: (f64, f64) = (330.0, 220.0);
const MARGIN: (f64, f64) = (64.0, 56.0);
const GAP: (f64, f64) = (24.0, 64.0);
const LEGEND: f64 = 120.0;
/// Colours that people with colour vision deficiency can distinguish (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#8a8a8a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b5a400",
];
/// Lowest accuracy shown. Below it is the first minute of training, in which all curves are
/// similar.
const LOWEST: f64 = 0.76;
const HIGHEST: f64 = 0.92;

/// Horizontal axis of a row.
struct ChartAxis {
    title: &'static str,
    of: fn(&EvaluationPoint) -> f64,
    /// Whether the axis is logarithmic.
    logarithmic: bool,
}

const AXES: [ChartAxis; 2] = [
    ChartAxis {
        title: "seconds",
        of: |point| point.seconds,
        logarithmic: false,
    },
    ChartAxis {
        title: "MB exchanged",
        of: |point| point.bytes / 1e6,
        logarithmic: true,
    },
];

/// Position of a panel, and the values at its left and right edge.
struct Panel {
    x: f64,
    y: f64,
    from: f64,
    to: f64,
}

pub fn draw(runs: &[ConvergenceRun]) -> String {
    let consistencies = distinct(runs.iter().map(|run| run.consistency));
    let codecs = distinct(runs.iter().map(|run| run.codec));
    let columns = consistencies.len().max(1) as f64;
    let width = MARGIN.0 + columns * (PANEL.0 + GAP.0) + LEGEND;
    let height = MARGIN.1 + 2.0 * (PANEL.1 + GAP.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <style>text{{fill:#222}} .grid{{stroke:#ddd}} .back{{fill:#fff}} @media (prefers-color-scheme: dark){{text{{fill:#ddd}} .grid{{stroke:#444}} .back{{fill:#161616}}}}</style>\n\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n\
         <text x=\"{}\" y=\"22\" font-size=\"15\">Test accuracy on Fashion-MNIST: {}</text>\n",
        MARGIN.0,
        super::grid::SETTING
    );
    for (row, axis) in AXES.iter().enumerate() {
        let (from, to) = ends(runs, axis);
        for (column, consistency) in consistencies.iter().enumerate() {
            let panel = Panel {
                x: MARGIN.0 + column as f64 * (PANEL.0 + GAP.0),
                y: MARGIN.1 + row as f64 * (PANEL.1 + GAP.1),
                from,
                to,
            };
            let of_panel: Vec<&ConvergenceRun> = runs
                .iter()
                .filter(|run| run.consistency == *consistency)
                .collect();
            svg += &panel.frame(axis, consistency, column == 0);
            for run in of_panel {
                let colour = codecs.iter().position(|codec| *codec == run.codec);
                svg += &panel.curve(axis, run, COLOURS[colour.unwrap_or(0) % COLOURS.len()]);
            }
        }
    }
    let x = width - LEGEND;
    for (at, codec) in codecs.iter().enumerate() {
        let y = MARGIN.1 + 14.0 + 20.0 * at as f64;
        let colour = COLOURS[at % COLOURS.len()];
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"{}\">{codec}</text>",
            x + 22.0,
            x + 30.0,
            y + 4.0
        );
    }
    svg + "</svg>\n"
}

impl Panel {
    fn across(&self, axis: &ChartAxis, value: f64) -> f64 {
        let share = if axis.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.x + PANEL.0 * share.clamp(0.0, 1.0)
    }

    fn up(&self, accuracy: f64) -> f64 {
        let share = (accuracy - LOWEST) / (HIGHEST - LOWEST);
        self.y + PANEL.1 * (1.0 - share.clamp(0.0, 1.0))
    }

    fn frame(&self, axis: &ChartAxis, consistency: &str, labelled: bool) -> String {
        let (right, bottom) = (self.x + PANEL.0, self.y + PANEL.1);
        let mut svg = String::new();
        for percent in (76..=92).step_by(4) {
            let y = self.up(f64::from(percent) / 100.0);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{}\" y1=\"{y}\" x2=\"{right}\" y2=\"{y}\"/>",
                self.x
            );
            if labelled {
                let _ = writeln!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{percent} %</text>",
                    self.x - 8.0,
                    y + 4.0
                );
            }
        }
        for tick in ticks(axis, self.from, self.to) {
            let x = self.across(axis, tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>",
                self.y,
                bottom + 16.0
            );
        }
        let target = self.up(TARGET);
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" y1=\"{target}\" x2=\"{right}\" y2=\"{target}\" stroke=\"#888\" stroke-dasharray=\"5 4\"/>\n\
             <text x=\"{}\" y=\"{}\" font-weight=\"600\">{consistency}</text>\n\
             <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            self.x,
            self.x,
            self.y - 8.0,
            bottom + 32.0,
            axis.title
        );
        svg
    }

    fn curve(&self, axis: &ChartAxis, run: &ConvergenceRun, colour: &str) -> String {
        let shown = run.points.iter().filter(|point| point.accuracy >= LOWEST);
        let points: Vec<String> = shown
            .map(|point| {
                let (x, y) = (self.across(axis, (axis.of)(point)), self.up(point.accuracy));
                format!("{x:.1},{y:.1}")
            })
            .collect();
        format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" points=\"{}\"><title>{} {}</title></polyline>\n",
            points.join(" "),
            run.consistency,
            run.codec
        )
    }
}

/// Range of a whole row, so that columns can be compared.
fn ends(runs: &[ConvergenceRun], axis: &ChartAxis) -> (f64, f64) {
    let points = runs.iter().flat_map(|run| &run.points);
    let values = points.map(axis.of);
    let largest = values.clone().fold(1.0, f64::max);
    if !axis.logarithmic {
        return (0.0, largest);
    }
    let smallest = values.fold(largest, f64::min).max(0.01);
    (
        10f64.powf(smallest.log10().floor()),
        10f64.powf(largest.log10().ceil()),
    )
}

fn ticks(axis: &ChartAxis, from: f64, to: f64) -> Vec<f64> {
    if axis.logarithmic {
        let decades = (to / from).log10().round() as i32;
        return (0..=decades)
            .map(|decade| from * 10f64.powi(decade))
            .collect();
    }
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];
    let step = steps
        .into_iter()
        .find(|step| to / step <= 7.0)
        .unwrap_or(600.0);
    (0..=(to / step) as u32)
        .map(|n| f64::from(n) * step)
        .collect()
}

fn distinct(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut out = Vec::new();
    for name in names {
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}
