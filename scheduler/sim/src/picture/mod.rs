//! Pictures of runs: who held which GPU when, how completion times are spread, and a report of both with the figures.
//!
//! SVG is written by hand: rectangles, lines and text are all there is, a plotting crate would bring a rasteriser and fonts with it
//! and still know nothing of rows of GPUs. Colours are CSS variables that follow the reader's light or dark setting, in a file of
//! its own as well as inside the report.

mod axis;
mod cdf;
mod gantt;
mod lanes;
mod report;
mod svg;

pub use cdf::{Curve, cdf};
pub use gantt::{Paint, gantt};
pub use report::{curves, report};
