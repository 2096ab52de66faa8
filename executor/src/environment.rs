//! The environment of a task: its identity, its devices, and no variable of the daemon beyond the
//! configured ones.

use crate::device;
use crate::limits::TaskLimits;
use crate::process::TASK_VARIABLE;
use muster_model::assignment::TaskLaunch;
use muster_model::node::Capacity;
use std::collections::BTreeMap;

/// Returns the daemon's own variables with these names.
#[must_use]
pub fn passed(names: &[String]) -> BTreeMap<String, String> {
    let found = names
        .iter()
        .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
    found.collect()
}

/// Returns the variables of one task. `passed` are variables of the daemon selected by name, so
/// that none of its secrets are included.
#[must_use]
pub fn of_task(
    launch: &TaskLaunch,
    capacity: &Capacity,
    cores: u32,
    passed: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let threads = threads(launch, capacity, cores).to_string();
    let mut variables: BTreeMap<String, String> = passed.into_iter().collect();
    let own = [
        ("MUSTER_JOB_ID", launch.job_id.to_string()),
        (TASK_VARIABLE, launch.task_id.to_string()),
        ("MUSTER_REVISION", launch.revision.to_string()),
        ("MUSTER_THREADS", threads.clone()),
        ("RAYON_NUM_THREADS", threads.clone()),
    ];
    variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
    if launch.spec.command.is_some() {
        // Read by numpy, PyTorch and OpenMP. `torchrun` would set it to 1.
        variables.insert("OMP_NUM_THREADS".to_owned(), threads.clone());
    }
    if device::has_cuda(capacity) || launch.gpus.is_empty() {
        let gpus: Vec<String> = launch.gpus.iter().map(u32::to_string).collect();
        // Empty for a task without GPUs, so that it sees none. GPU indexes follow NVML, which uses
        // the order of the PCI bus.
        variables.insert("CUDA_VISIBLE_DEVICES".to_owned(), gpus.join(","));
        variables.insert("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned());
    }
    variables
}

/// Variables with paths of the node, which mean nothing in an image.
const PATHS_OF_NODE: [&str; 8] = [
    "PATH",
    "HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "PYTHONHOME",
    "TMPDIR",
    "VIRTUAL_ENV",
];

/// `PATH` of images that set none, as in other container runtimes.
const PATH_OF_IMAGE: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the variables of the daemon that a task in an image receives, and those of the image,
/// which precede them. Variables for the dynamic loader are left to the last step: the executor's
/// program, with its own libraries, runs before.
#[must_use]
pub fn in_image(
    passed: impl Iterator<Item = (String, String)>,
    of_image: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    // Programs ask for the name of the user, and the image does not know it.
    let own = [
        pair("PATH", PATH_OF_IMAGE),
        pair("USER", "muster"),
        pair("LOGNAME", "muster"),
    ];
    let passed = passed.filter(|(name, _)| !PATHS_OF_NODE.contains(&name.as_str()));
    let of_image = of_image.iter().filter(|(name, _)| !is_of_loader(name));
    let of_image = of_image.map(|(name, value)| pair(name, value));
    own.into_iter().chain(passed).chain(of_image).collect()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Whether the variable changes how the dynamic loader or the C library works.
#[must_use]
pub fn is_of_loader(name: &str) -> bool {
    name.starts_with("LD_") || name.starts_with("GLIBC_") || name.starts_with("MALLOC_")
}

/// Numbers the GPUs of a task from 0: in an image the driver finds no others.
pub fn number_gpus_anew(launch: &TaskLaunch, variables: &mut BTreeMap<String, String>) {
    let gpus: Vec<String> = (0..launch.gpus.len()).map(|gpu| gpu.to_string()).collect();
    variables.insert("CUDA_VISIBLE_DEVICES".to_owned(), gpus.join(","));
}

/// Number of threads of a task. On CPU slots the cores are divided by slots. A task on GPUs, or
/// without GPUs and slots, uses the cores to which it is limited.
fn threads(launch: &TaskLaunch, capacity: &Capacity, cores: u32) -> u32 {
    let held = u32::try_from(launch.gpus.len()).unwrap_or(u32::MAX);
    let threads = if device::has_cuda(capacity) || launch.gpus.is_empty() {
        u32::try_from(TaskLimits::of(launch, capacity).cpu_milli / 1_000)
            .unwrap_or(u32::MAX)
            .min(cores)
    } else {
        let slots = u32::try_from(capacity.gpus.len())
            .unwrap_or(u32::MAX)
            .max(1);
        cores.saturating_mul(held) / slots
    };
    threads.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::assignment::TaskLaunch;
    use muster_model::node::{Gpu, GpuKind};
    use serde_json::json;

    fn launch(gpus: &[u32], cpu_milli: u64) -> TaskLaunch {
        let id = "00000000-0000-7000-8000-000000000001";
        serde_json::from_value(json!({
            "task_id": id, "job_id": id, "tenant_id": id, "revision": 3, "role": { "kind": "worker", "rank": 0 },
            "workers": 1, "ps_shards": 1, "gpus": gpus, "cpu_milli": cpu_milli, "memory_bytes": 0, "secret": "00",
            "spec": {
                "version": "muster/v1", "name": "x", "stop": { "steps": 1 },
                "engine": {
                    "model": { "kind": "mlp", "hidden": [] }, "dataset": { "name": "fashion-mnist" },
                    "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 1,
                },
            },
            "resume_step": null, "trained_s": 0.0, "grace_ms": 1,
        }))
        .expect("a launch")
    }

    fn capacity(kind: GpuKind, count: u32) -> Capacity {
        let gpus = (0..count)
            .map(|index| Gpu {
                index,
                kind,
                model: String::new(),
                memory_bytes: 0,
                compute_capability: None,
            })
            .collect();
        Capacity {
            gpus,
            cpu_milli: 0,
            memory_bytes: 0,
            rack: None,
            labels: std::collections::BTreeMap::new(),
            driver_suspend: None,
            pods: None,
            isolation: None,
            images: None,
        }
    }

    fn threads_of(gpus: &[u32], slots: u32, cores: u32) -> String {
        let capacity = capacity(GpuKind::CpuSlot, slots);
        of_task(&launch(gpus, 0), &capacity, cores, [])["MUSTER_THREADS"].clone()
    }

    #[test]
    fn slots_share_the_cores() {
        assert_eq!(threads_of(&[0], 4, 16), "4");
        assert_eq!(threads_of(&[0, 1], 4, 16), "8");
        assert_eq!(threads_of(&[0, 1], 4, 6), "3");
        assert_eq!(threads_of(&[0], 4, 2), "1");
        assert_eq!(threads_of(&[], 4, 16), "1");
    }

    #[test]
    fn task_without_gpus_sees_none_and_uses_its_requested_cores() {
        for kind in [GpuKind::CpuSlot, GpuKind::Cuda] {
            let variables = of_task(&launch(&[], 3_000), &capacity(kind, 4), 16, []);
            assert_eq!(variables["CUDA_VISIBLE_DEVICES"], "", "{kind:?}");
            assert_eq!(variables["MUSTER_THREADS"], "3", "{kind:?}");
        }
    }

    #[test]
    fn task_sees_only_its_gpus() {
        let capacity = capacity(GpuKind::Cuda, 8);
        let of = |gpus: &[u32]| of_task(&launch(gpus, 4_000), &capacity, 16, []);
        assert_eq!(of(&[2, 5])["CUDA_VISIBLE_DEVICES"], "2,5");
        assert_eq!(of(&[])["CUDA_VISIBLE_DEVICES"], "");
        assert_eq!(of(&[2])["RAYON_NUM_THREADS"], "4");
    }

    #[test]
    fn variables_of_image_precede_those_of_the_node() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = pairs.iter().map(|(name, value)| pair(name, value));
            owned.collect()
        };
        let passed = pairs(&[
            ("PATH", "/node"),
            ("TZ", "UTC"),
            ("LANG", "C"),
            ("HOME", "/root"),
        ]);
        let of_image = pairs(&[("LANG", "de"), ("LD_PRELOAD", "/x.so"), ("USER", "app")]);
        let all = in_image(passed.into_iter(), &of_image);
        let found: BTreeMap<String, String> = all.into_iter().collect();
        let expected = [
            ("LANG", "de"),
            ("LOGNAME", "muster"),
            ("PATH", PATH_OF_IMAGE),
            ("TZ", "UTC"),
            ("USER", "app"),
        ];
        assert_eq!(found, pairs(&expected));
        let mut variables = pairs(&[("CUDA_VISIBLE_DEVICES", "2,5")]);
        number_gpus_anew(&launch(&[2, 5], 0), &mut variables);
        assert_eq!(variables["CUDA_VISIBLE_DEVICES"], "0,1");
    }
}
