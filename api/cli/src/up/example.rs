//! The example job: fetches its data set and submits it once per data folder. While it runs, a
//! second job starts and ends, to show that the first one shrinks and grows again.

use super::data::DataFolder;
use crate::config::path_variable;
use anyhow::{Context as _, bail};
use muster_client::Client;
use muster_model::id::JobId;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

const DOCUMENT: &str = include_str!("../../../../examples/fashion-cnn.yaml");
const VISITOR: &str = include_str!("../../../../examples/fashion-mlp-ssp.yaml");
const DATASET: &str = "fashion-mnist";

/// Returns the folder of data sets: `MUSTER_DATASETS`, or one in the user's cache directory.
#[must_use]
pub fn dataset_root() -> PathBuf {
    path_variable("MUSTER_DATASETS")
        .or_else(|| Some(path_variable("XDG_CACHE_HOME")?.join("muster/datasets")))
        .or_else(|| Some(path_variable("HOME")?.join(".cache/muster/datasets")))
        .unwrap_or_else(|| PathBuf::from("/var/cache/muster/datasets"))
}

/// Fetches the example's data set if it is missing.
///
/// # Errors
/// One line that names what is missing.
pub async fn fetch_dataset() -> anyhow::Result<PathBuf> {
    let root = dataset_root();
    if root
        .join(DATASET)
        .join("train-images-idx3-ubyte.gz")
        .exists()
    {
        return Ok(root);
    }
    let script = super::script::find("ensure-dataset").with_context(|| {
        format!(
            "the data set is missing: put Fashion-MNIST's four files into {}",
            root.join(DATASET).display()
        )
    })?;
    let status = Command::new(script)
        .arg(DATASET)
        .env("MUSTER_DATASETS", &root)
        .stdout(std::process::Stdio::null())
        .status()
        .await
        .context("run scripts/ensure-dataset")?;
    if !status.success() {
        bail!("the example's data set could not be fetched; see above, or start with --no-example");
    }
    Ok(root)
}

/// Submits the example, or finds the one of an earlier `muster up`.
///
/// # Errors
/// If REST refuses it.
pub async fn submit_once(folder: &DataFolder, client: &Client) -> anyhow::Result<JobId> {
    let mut state = folder.read_state()?;
    if let Some(job) = &state.example_job {
        let job: JobId = job.parse().context("up.toml names the example job")?;
        if client.find_job(job).await?.is_some() {
            return Ok(job);
        }
    }
    let document: serde_json::Value =
        serde_norway::from_str(DOCUMENT).context("examples/fashion-cnn.yaml")?;
    let job = client.submit(&document, None).await?.id;
    state.example_job = Some(job.to_string());
    folder.save_state(&state)?;
    Ok(job)
}

/// Submits the second job once per data folder, after a quarter of the first one's steps.
///
/// # Errors
/// If REST refuses it. Requests are repeated while the server is unreachable.
pub async fn visit(folder: &DataFolder, client: &Client, first: JobId) -> anyhow::Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    if folder.read_state()?.visitor_job.is_some() {
        return Ok(());
    }
    loop {
        match client.job(first).await {
            Ok(job) if job.phase.is_terminal() => return Ok(()),
            Ok(job) => {
                let progress = job
                    .progress
                    .and_then(|progress| Some((progress.step, progress.total_steps?)));
                if progress.is_some_and(|(step, total)| step * 4 >= total) {
                    break;
                }
            }
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK).await;
    }
    let document: serde_json::Value =
        serde_norway::from_str(VISITOR).context("examples/fashion-mlp-ssp.yaml")?;
    let key = format!("visitor-{first}");
    let visitor = client.submit(&document, Some(&key)).await?;
    let mut state = folder.read_state()?;
    state.visitor_job = Some(visitor.id.to_string());
    folder.save_state(&state)
}
