//! Points of many trials in one array, so that each axis is read in one pass.

/// `width` numbers per point, point after point.
pub(super) struct Points {
    width: usize,
    count: usize,
    /// NaN if the point lacks the parameter.
    values: Vec<f64>,
}

impl Points {
    pub(super) fn room_for(count: usize, width: usize) -> Self {
        Self {
            width,
            count: 0,
            values: Vec::with_capacity(count * width),
        }
    }

    pub(super) fn push(&mut self, point: &[Option<f64>]) {
        self.count += 1;
        self.values
            .extend(point.iter().map(|value| value.unwrap_or(f64::NAN)));
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Value of each point in dimension `d`.
    pub(super) fn column(&self, d: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        let column = self.values.iter().skip(d).step_by(self.width);
        column.map(|value| (!value.is_nan()).then_some(*value))
    }
}
