//! Cumulative distribution of completion times: the share of jobs that end within a time, by
//! policy.

use super::axis::{SPOKEN, spoken};
use super::svg::{HUES, Svg, SvgFrame, hue, width_of};
use crate::measure::{mean, percentile};

/// One line of the picture.
#[derive(Debug, Clone, PartialEq)]
pub struct CdfCurve {
    pub name: String,
    /// Completion times of the jobs that ended, in seconds, in any order.
    pub values_s: Vec<f64>,
    /// Jobs that did not end within their run; the line then ends below the top.
    pub unfinished: usize,
}

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 50.0;
/// Lower edge of the plot, without axis and legend.
const BOTTOM: f64 = 392.0;

/// Beyond the hues, a second round is dashed and a third one dotted.
const DASHES: [&str; 3] = ["", "8 4", "2 3"];

/// Draws the distributions over a logarithmic axis of time. The dot on a line is its mean.
#[must_use]
pub fn cdf(title: &str, curves: &[CdfCurve]) -> String {
    let legend_rows = legend_rows(curves);
    let height = HEIGHT + (legend_rows.len().saturating_sub(1)) as f64 * 20.0;
    let mut svg = Svg::new(WIDTH, height, title);
    svg.text((LEFT, 28.0), "title", title);
    let scale = CdfTimeScale::of(curves);
    grid(&mut svg, &scale);
    for (index, curve) in curves.iter().enumerate() {
        draw(&mut svg, &scale, index, curve);
    }
    for (line, row) in legend_rows.iter().enumerate() {
        let y = BOTTOM + 70.0 + line as f64 * 20.0;
        for &(index, x) in row {
            let points = [(x, y - 4.0), (x + 24.0, y - 4.0)];
            let name = &curves[index].name;
            svg.curve(&points, &hue(index), dash(index), name);
            svg.text((x + 30.0, y), "", &entry(&curves[index]));
        }
    }
    svg.finish()
}

/// Legend of a line.
fn entry(curve: &CdfCurve) -> String {
    let mean = spoken(mean(&curve.values_s));
    match curve.unfinished {
        0 => format!("{} (mean {mean})", curve.name),
        count => format!("{} ({count} unfinished)", curve.name),
    }
}

/// Index and left edge of every entry, by row.
fn legend_rows(curves: &[CdfCurve]) -> Vec<Vec<(usize, f64)>> {
    let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut x = f64::INFINITY;
    for (index, curve) in curves.iter().enumerate() {
        let width = 30.0 + width_of(&entry(curve), 12.0) + 18.0;
        if x + width > WIDTH - RIGHT {
            rows.push(Vec::new());
            x = LEFT;
        }
        if let Some(row) = rows.last_mut() {
            row.push((index, x));
        }
        x += width;
    }
    rows
}

fn dash(index: usize) -> &'static str {
    DASHES[index / HUES % DASHES.len()]
}

/// Time axis from the largest tick below all times to the smallest tick above.
struct CdfTimeScale {
    from_s: f64,
    to_s: f64,
}

impl CdfTimeScale {
    fn of(curves: &[CdfCurve]) -> Self {
        let values_s = curves.iter().flat_map(|curve| &curve.values_s).copied();
        let least = values_s.clone().fold(f64::INFINITY, f64::min);
        let most = values_s.fold(0.0, f64::max);
        let below = SPOKEN.iter().rev().find(|(at_s, _)| *at_s <= least);
        let above = SPOKEN.iter().find(|(at_s, _)| *at_s >= most);
        let from_s = below.map_or(SPOKEN[0].0, |tick| tick.0);
        let to_s = above.map_or(most, |tick| tick.0);
        Self {
            from_s,
            to_s: to_s.max(from_s * 3.0),
        }
    }

    fn x(&self, at_s: f64) -> f64 {
        let share = (at_s.max(self.from_s) / self.from_s).ln() / (self.to_s / self.from_s).ln();
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }
}

fn y(share: f64) -> f64 {
    BOTTOM - share * (BOTTOM - TOP)
}

fn grid(svg: &mut Svg, scale: &CdfTimeScale) {
    for percent in [0.0, 25.0, 50.0, 75.0, 90.0, 100.0] {
        let at = y(percent / 100.0);
        svg.line((LEFT, at), (WIDTH - RIGHT, at), "grid");
        svg.text((LEFT - 8.0, at + 4.0), "soft end", &format!("{percent} %"));
    }
    let shown = scale.from_s..=scale.to_s;
    for (at_s, name) in SPOKEN.into_iter().filter(|(at_s, _)| shown.contains(at_s)) {
        let x = scale.x(at_s);
        svg.line((x, TOP), (x, BOTTOM + 5.0), "grid");
        svg.text((x, BOTTOM + 20.0), "soft middle", name);
    }
    svg.line((LEFT, BOTTOM), (WIDTH - RIGHT, BOTTOM), "axis");
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    let what = "job completion time, from submission to end (logarithmic)";
    svg.text((middle, BOTTOM + 42.0), "soft middle", what);
    svg.upright(
        (18.0, f64::midpoint(TOP, BOTTOM)),
        "soft",
        "share of jobs that are done",
    );
}

fn draw(svg: &mut Svg, scale: &CdfTimeScale, index: usize, curve: &CdfCurve) {
    let mut sorted = curve.values_s.clone();
    sorted.sort_by(f64::total_cmp);
    let Some(&first) = sorted.first() else {
        return;
    };
    let count = (sorted.len() + curve.unfinished) as f64;
    let mut points = vec![(scale.x(first), y(0.0))];
    for (done, &at_s) in (0_u32..).zip(&sorted) {
        points.push((scale.x(at_s), y(f64::from(done) / count)));
        points.push((scale.x(at_s), y(f64::from(done + 1) / count)));
    }
    points.push((WIDTH - RIGHT, y(sorted.len() as f64 / count)));
    let title = format!(
        "{}: mean {}, median {}, 99th percentile {}",
        curve.name,
        spoken(mean(&sorted)),
        spoken(percentile(&sorted, 0.5)),
        spoken(percentile(&sorted, 0.99))
    );
    svg.curve(&points, &hue(index), dash(index), &title);
    let mean_s = mean(&sorted);
    let below = sorted.partition_point(|&at_s| at_s <= mean_s) as f64;
    let frame = SvgFrame {
        x: scale.x(mean_s) - 4.0,
        y: y(below / count) - 4.0,
        width: 8.0,
        height: 8.0,
    };
    svg.dot(frame, &hue(index), &title);
}

#[cfg(test)]
mod tests {
    use super::{CdfCurve, CdfTimeScale, cdf, y};

    fn curve(name: &str, values_s: &[f64]) -> CdfCurve {
        CdfCurve {
            name: name.to_owned(),
            values_s: values_s.to_vec(),
            unfinished: 0,
        }
    }

    #[test]
    fn cdf_has_line_per_run_and_escapes_names() {
        let curves: Vec<CdfCurve> = (0..10)
            .map(|n| curve(&format!("<{n}>"), &[10.0, 100.0, 4000.0]))
            .collect();
        let svg = cdf("a & b", &curves);
        // Each in the plot and in the legend; the last two are dashed.
        assert_eq!(svg.matches("class=\"curve\"").count(), 20);
        assert_eq!(svg.matches("stroke-dasharray=\"8 4\"").count(), 4);
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;9&gt;"));
        assert!(!svg.contains("<9>"));
    }

    #[test]
    fn cdf_axis_spans_all_times_logarithmically() {
        let scale = CdfTimeScale::of(&[curve("a", &[12.0, 80.0]), curve("b", &[3000.0])]);
        assert_eq!((scale.from_s, scale.to_s), (10.0, 3600.0));
        let middle = (10.0_f64 * 3600.0).sqrt();
        assert!((scale.x(middle) - f64::midpoint(scale.x(10.0), scale.x(3600.0))).abs() < 1e-9);
        assert!(y(1.0) < y(0.0));
    }

    #[test]
    fn cdf_without_values_is_empty_plot() {
        let svg = cdf("nothing", &[curve("a", &[])]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
