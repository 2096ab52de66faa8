//! The task's log: plain lines on standard output, which the task's shim captures. People read them; programs read events.

use std::fmt::Display;
use std::io::Write;

/// Writes one line. A log that nobody captures any more is no reason to stop training, so failures are ignored.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
