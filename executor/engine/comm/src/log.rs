//! The task's log: plain lines on standard output, which the task's shim captures. The log is for
//! people; programs read the event file.

use std::fmt::Display;
use std::io::Write;

/// Writes one line. Errors are ignored, because a log without a reader is no reason to stop
/// training.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
