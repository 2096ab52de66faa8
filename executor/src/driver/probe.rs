//! Test whether the driver of this machine supports driver checkpoints.

use super::library::Cuda;
use crate::config::{ExecutorConfig, RuntimeKind};
use crate::device;
use crate::environment;
use muster_model::node::{Capacity, DriverSuspend};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Number of polls for the answer. The first load of the driver after a boot takes seconds.
const LOOKS: u32 = 300;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns the ability of this node; `None` if it is not enabled or the node has no GPU.
#[must_use]
pub fn of_node(config: &ExecutorConfig, capacity: &Capacity) -> Option<DriverSuspend> {
    if config.driver_patience_ms == 0 || !device::has_cuda(capacity) {
        return None;
    }
    let driver_suspend = match config.runtime {
        RuntimeKind::Process => probe(&environment::passed(&config.pass_environment)),
        // A pod numbers its GPUs from 0 and has the libraries of its own image.
        RuntimeKind::Pod => DriverSuspend::Unable {
            why: "the tasks are pods, in which the driver is left alone".to_owned(),
        },
    };
    tracing::info!(
        ?driver_suspend,
        "asked the driver whether suspended programs leave the GPUs"
    );
    Some(driver_suspend)
}

/// Asks the driver in this process.
fn ability() -> DriverSuspend {
    match Cuda::load() {
        Ok(cuda) => DriverSuspend::Able {
            cuda: cuda.version(),
        },
        Err(error) => DriverSuspend::Unable {
            why: error.in_words(),
        },
    }
}

/// Asks the driver in a short-lived process, because a process that has loaded the driver keeps it
/// and some GPU memory. The process has the variables of a helper and no others: the daemon may
/// find libraries that a task does not find.
fn probe(environment: &BTreeMap<String, String>) -> DriverSuspend {
    ask(environment).unwrap_or_else(|error| DriverSuspend::Unable {
        why: format!("the driver cannot be asked: {error}"),
    })
}

fn ask(environment: &BTreeMap<String, String>) -> std::io::Result<DriverSuspend> {
    let own = std::env::current_exe()?;
    let mut asked = Command::new(own)
        .args(["driver", "--order", "probe"])
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    for _ in 0..LOOKS {
        if asked.try_wait()?.is_some() {
            let mut text = String::new();
            if let Some(mut output) = asked.stdout.take() {
                output.read_to_string(&mut text)?;
            }
            return Ok(serde_json::from_str(&text)?);
        }
        thread::sleep(LOOK_EVERY);
    }
    asked.kill()?;
    Ok(DriverSuspend::Unable {
        why: "the driver has not answered in time".to_owned(),
    })
}

/// Prints the ability, in the process that `probe` starts.
pub(super) fn tell() -> i32 {
    match serde_json::to_string(&ability()) {
        Ok(text) => {
            println!("{text}");
            0
        }
        Err(error) => {
            eprintln!("cannot say what the driver can do: {error}");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExecutorSettings;
    use muster_model::node::{Gpu, GpuKind};

    fn asked(runtime: RuntimeKind, driver_patience_ms: u64) -> Option<DriverSuspend> {
        let settings = ExecutorSettings {
            scheduler_url: Some("http://127.0.0.1:7071".to_owned()),
            join_token: Some("secret".to_owned()),
            data_dir: Some("/data".into()),
            checkpoint_root: Some("/checkpoints".parse().expect("a folder")),
            dataset_root: Some("/datasets".into()),
            task_binary: Some("/bin/true".into()),
            listen_host: Some("10.0.0.1".to_owned()),
            pod_template: Some("/pod.yaml".into()),
            runtime: Some(runtime),
            driver_patience_ms: Some(driver_patience_ms),
            ..ExecutorSettings::default()
        };
        let gpu = Gpu {
            index: 0,
            kind: GpuKind::Cuda,
            model: String::new(),
            memory_bytes: 0,
            compute_capability: None,
        };
        let capacity = Capacity {
            gpus: vec![gpu],
            cpu_milli: 0,
            memory_bytes: 0,
            rack: None,
            labels: std::collections::BTreeMap::new(),
            driver_suspend: None,
            pods: None,
            isolation: None,
            images: None,
        };
        of_node(&settings.resolve().expect("complete"), &capacity)
    }

    #[test]
    fn node_with_pods_reports_no_driver_checkpoints() {
        assert_eq!(asked(RuntimeKind::Pod, 0), None);
        assert_eq!(asked(RuntimeKind::Process, 0), None);
        match asked(RuntimeKind::Pod, 1_000) {
            Some(DriverSuspend::Unable { why }) => assert!(why.contains("pods"), "{why}"),
            other => panic!("a pod numbers its GPUs anew, and it says {other:?}"),
        }
    }
}
