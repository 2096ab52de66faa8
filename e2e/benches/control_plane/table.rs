//! Prints `what | ours | limit | ratio`, each with its method.

/// One ratio with the values of each round. Both values of a round were measured one after the
/// other.
pub struct RatioRow {
    pub what: &'static str,
    pub unit: &'static str,
    /// Method in one line.
    pub how: String,
    pub ours: Vec<f64>,
    pub limit: Vec<f64>,
}

pub fn print(rows: &[RatioRow]) {
    println!("\ncontrol plane, against Postgres with fsync on, on the same disk");
    println!(
        "{:<46} {:>9} {:>9} {:>6} {:>13}",
        "what", "ours", "limit", "ratio", "least..most"
    );
    for row in rows {
        let ratios: Vec<f64> = row
            .ours
            .iter()
            .zip(&row.limit)
            .map(|(ours, limit)| ours / limit)
            .collect();
        let (least, most) = (
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
        println!(
            "{:<46} {:>9.0} {:>9.0} {:>6.2} {:>6.2}..{:<5.2}",
            format!("{} ({})", row.what, row.unit),
            median(&row.ours),
            median(&row.limit),
            median(&ratios),
            least,
            most
        );
    }
    println!();
    for row in rows {
        println!("{}: {}", row.what, row.how);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
