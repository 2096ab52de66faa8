//! Pictures of runs: Gantt charts, distributions of completion times, and a report with both and
//! the measures.
//!
//! The SVG is written directly. It contains only rectangles, lines and text, and a plotting crate
//! would add a rasteriser and fonts. Colours are CSS variables that follow the reader's light or
//! dark setting, in a separate file as well as in the report.

mod axis;
mod cdf;
mod gantt;
mod lanes;
mod report;
mod svg;

pub use cdf::{CdfCurve, cdf};
pub use gantt::{Paint, gantt};
pub use report::{curves, report};
