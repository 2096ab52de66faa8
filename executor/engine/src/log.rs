//! The task's log: plain lines on standard output, which the task's shim captures. People read them; programs read events.

use std::error::Error;
use std::fmt::Display;
use std::io::Write;

/// Writes one line. A log that nobody captures any more is no reason to stop training, so failures are ignored.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// An error and its causes, outermost first, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
