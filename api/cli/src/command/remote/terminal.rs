//! The user's terminal without line editing: every key goes to the remote command.

use anyhow::Context as _;
use muster_model::remote::TerminalSize;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::stdin;

/// Restores the terminal when it is dropped.
#[derive(Debug)]
pub struct RawTerminal(Termios);

impl RawTerminal {
    /// Returns the size of the terminal; `None` if the standard input is none.
    pub fn size() -> Option<TerminalSize> {
        if !isatty(stdin()) {
            return None;
        }
        let size = tcgetwinsize(stdin()).ok()?;
        Some(TerminalSize {
            rows: size.ws_row,
            columns: size.ws_col,
        })
    }

    /// # Errors
    /// If the settings of the terminal cannot be changed.
    pub fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(stdin()).context("read the settings of the terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).context("change the terminal")?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
