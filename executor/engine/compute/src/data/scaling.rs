//! Scaling of input values.

use super::examples::PixelNormalisation;

/// Scaling of images by channel and of tables by column. A list has one value for all of them, or
/// one value for each.
#[derive(Debug, Clone, PartialEq)]
pub enum FeatureScaling {
    /// No scaling; pixels are 0 to 1.
    None,
    /// Subtracts the training examples' mean and divides by their standard deviation; values
    /// without variation are only centred.
    Measured,
    /// Maps the training examples' minimum to 0 and their maximum to 1; values without variation
    /// are only shifted to 0.
    MinMax,
    /// `(x − mean) / std`; pixels are first divided by 255.
    Given { mean: Vec<f32>, std: Vec<f32> },
}

impl FeatureScaling {
    /// Returns the normalisation of each channel of the training examples' pixels; the channels of
    /// a pixel are adjacent.
    pub(super) fn of_bytes(&self, bytes: &[u8], channels: usize) -> Vec<PixelNormalisation> {
        match self {
            Self::None => vec![
                PixelNormalisation {
                    mean: 0.0,
                    std: 1.0
                };
                channels
            ],
            Self::Measured => PixelNormalisation::measured(bytes, channels),
            Self::MinMax => {
                let channels = (0..channels).map(|channel| {
                    let bytes = bytes.iter().skip(channel).step_by(channels);
                    let least = f32::from(bytes.clone().min().copied().unwrap_or(0)) / 255.0;
                    let largest = f32::from(bytes.max().copied().unwrap_or(255)) / 255.0;
                    let std = if largest > least {
                        largest - least
                    } else {
                        1.0
                    };
                    PixelNormalisation { mean: least, std }
                });
                channels.collect()
            }
            Self::Given { mean, std } => (0..channels)
                .map(|channel| PixelNormalisation {
                    mean: nth(mean, channel),
                    std: nth(std, channel),
                })
                .collect(),
        }
    }

    /// Returns the offset and the divisor of each column, or `None` if values stay unchanged.
    /// `rows` returns the training examples' values of a column.
    pub(super) fn of_columns<I: Iterator<Item = f32>>(
        &self,
        columns: usize,
        rows: impl Fn(usize) -> I,
    ) -> Option<Vec<(f64, f64)>> {
        (*self != Self::None).then(|| {
            (0..columns)
                .map(|column| self.of_column(column, &rows))
                .collect()
        })
    }

    fn of_column<I: Iterator<Item = f32>>(
        &self,
        column: usize,
        rows: impl Fn(usize) -> I,
    ) -> (f64, f64) {
        match self {
            Self::None => (0.0, 1.0),
            Self::Measured => {
                let count = rows(column).count().max(1) as f64;
                let mean = rows(column).map(f64::from).sum::<f64>() / count;
                let squares = rows(column).map(|x| (f64::from(x) - mean).powi(2));
                let variance = squares.sum::<f64>() / count;
                let std = if variance > 0.0 { variance.sqrt() } else { 1.0 };
                (mean, std)
            }
            Self::MinMax => {
                let ends = (f32::INFINITY, f32::NEG_INFINITY);
                let (least, largest) =
                    rows(column).fold(ends, |(least, largest), x| (least.min(x), largest.max(x)));
                let span = f64::from(largest) - f64::from(least);
                (f64::from(least), if span > 0.0 { span } else { 1.0 })
            }
            Self::Given { mean, std } => {
                (f64::from(nth(mean, column)), f64::from(nth(std, column)))
            }
        }
    }
}

/// Scales adjacent rows in place; `columns` has the offset and the divisor of each column.
pub(super) fn scale(numbers: &mut [f32], columns: &[(f64, f64)]) {
    for row in numbers.chunks_exact_mut(columns.len()) {
        for (x, (mean, std)) in row.iter_mut().zip(columns) {
            *x = ((f64::from(*x) - mean) / std) as f32;
        }
    }
}

fn nth(list: &[f32], at: usize) -> f32 {
    list[if list.len() == 1 { 0 } else { at }]
}
