//! Ticks on axes of time.

/// Unit of the labels of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisUnit {
    pub name: &'static str,
    pub seconds: f64,
}

const SECOND: AxisUnit = AxisUnit {
    name: "s",
    seconds: 1.0,
};
const MINUTE: AxisUnit = AxisUnit {
    name: "min",
    seconds: 60.0,
};
const HOUR: AxisUnit = AxisUnit {
    name: "h",
    seconds: 3600.0,
};
const DAY: AxisUnit = AxisUnit {
    name: "d",
    seconds: 86_400.0,
};

/// Ticks and unit of a linear axis from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticks {
    pub unit: AxisUnit,
    /// Positions in seconds.
    pub at_s: Vec<f64>,
}

/// Readable steps between ticks for each unit.
const STEPS: [(AxisUnit, &[f64]); 4] = [
    (SECOND, &[1.0, 2.0, 5.0, 10.0, 15.0, 30.0]),
    (MINUTE, &[1.0, 2.0, 5.0, 10.0, 15.0, 30.0]),
    (HOUR, &[1.0, 2.0, 3.0, 6.0, 12.0]),
    (DAY, &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]),
];

/// At most `most` ticks from 0 to `end_s`; only the longest axes have more.
pub fn linear(end_s: f64, most: f64) -> Ticks {
    let all = STEPS
        .iter()
        .flat_map(|(unit, steps)| steps.iter().map(move |step| (*unit, step * unit.seconds)));
    let (unit, step_s) = all
        .clone()
        .find(|(_, step_s)| end_s / step_s <= most)
        .or_else(|| all.last())
        .unwrap_or((DAY, DAY.seconds));
    let count = (end_s / step_s).floor().max(0.0) as usize;
    Ticks {
        unit,
        at_s: (0..=count).map(|n| n as f64 * step_s).collect(),
    }
}

/// Label of a tick on an axis in `unit`.
pub fn label(at_s: f64, unit: AxisUnit) -> String {
    format!("{}", at_s / unit.seconds)
}

/// Ticks of a logarithmic axis: seconds and label.
pub const SPOKEN: [(f64, &str); 15] = [
    (1.0, "1 s"),
    (3.0, "3 s"),
    (10.0, "10 s"),
    (30.0, "30 s"),
    (60.0, "1 min"),
    (180.0, "3 min"),
    (600.0, "10 min"),
    (1800.0, "30 min"),
    (3600.0, "1 h"),
    (10_800.0, "3 h"),
    (36_000.0, "10 h"),
    (86_400.0, "1 d"),
    (259_200.0, "3 d"),
    (864_000.0, "10 d"),
    (2_592_000.0, "30 d"),
];

/// Duration with three digits in a suitable unit.
pub fn spoken(seconds: f64) -> String {
    let unit = [DAY, HOUR, MINUTE]
        .into_iter()
        .find(|unit| seconds >= 2.0 * unit.seconds)
        .unwrap_or(SECOND);
    let value = seconds / unit.seconds;
    if value >= 100.0 || unit == SECOND && value.fract() == 0.0 {
        format!("{value:.0} {}", unit.name)
    } else {
        format!("{value:.1} {}", unit.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{label, linear, spoken};

    #[test]
    fn linear_axis_has_few_round_ticks() {
        let ticks = linear(65_694.0, 12.0);
        assert_eq!((ticks.unit.name, ticks.at_s[1]), ("h", 7200.0));
        assert_eq!(ticks.at_s.len(), 10);
        assert_eq!(label(ticks.at_s[9], ticks.unit), "18");
        assert_eq!(linear(45.0, 12.0).at_s[1], 5.0);
        assert_eq!(linear(0.0, 12.0).at_s, [0.0]);
        assert!(linear(1e12, 12.0).at_s.len() > 12);
    }

    #[test]
    fn duration_is_printed_in_suitable_unit() {
        assert_eq!(spoken(45.0), "45 s");
        assert_eq!(spoken(2314.0), "38.6 min");
        assert_eq!(spoken(36_000.0), "10.0 h");
        assert_eq!(spoken(1e6), "11.6 d");
    }
}
