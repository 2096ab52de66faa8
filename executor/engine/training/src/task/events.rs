//! Event file of a task: one JSON object per line, appended with one `write(2)`. A reader never
//! sees a partial line of a living task, and a killed task leaves at most one partial line at the
//! end.

use crate::worker::Reporter;
use muster_model::assignment::TaskReport;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Open event file.
#[derive(Debug)]
pub struct EventsFile {
    file: File,
}

impl EventsFile {
    /// Opens the file for appending and creates it if necessary.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }
}

impl Reporter for EventsFile {
    fn report(&self, report: &TaskReport) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        let written = (&self.file).write(&line)?;
        if written < line.len() {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "half an event was written",
            ));
        }
        Ok(())
    }
}
