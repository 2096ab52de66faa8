//! `muster down`: stops the `muster up` of a data folder and waits for its end.

use super::Down;
use super::data::DataFolder;
use crate::output::line;
use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(90);
const STEP: Duration = Duration::from_millis(100);

/// # Errors
/// If the process cannot be signalled, or does not end.
pub async fn down(options: Down) -> anyhow::Result<()> {
    let folder = DataFolder::choose(options.data)?;
    let Some(pid) = folder.running()? else {
        return line(&format!("no cluster runs on {}", folder.root().display()));
    };
    let process = Pid::from_raw(pid).context("the lock file names no process")?;
    kill_process(process, Signal::TERM).with_context(|| format!("signal process {pid}"))?;
    let mut waited = Duration::ZERO;
    while folder.running()?.is_some() {
        if waited >= PATIENCE {
            bail!(
                "process {pid} has not stopped within {} s",
                PATIENCE.as_secs()
            );
        }
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
    line("stopped")
}
