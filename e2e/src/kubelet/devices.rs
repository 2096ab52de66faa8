//! GPUs that a node's device plugin has given to pods, counted by living processes, independent of
//! other bookkeeping.

use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whole GPUs; other resources are not counted.
const RESOURCE: &str = "nvidia.com/gpu";

/// Devices of all nodes.
#[derive(Debug, Default)]
pub(super) struct NodeDevices(Mutex<BTreeMap<String, NodeDeviceCount>>);

#[derive(Debug, Default)]
struct NodeDeviceCount {
    now: u64,
    most: u64,
}

/// Devices of one pod, until this is dropped.
#[derive(Debug)]
pub(super) struct DeviceLease {
    devices: Arc<NodeDevices>,
    node: String,
    count: u64,
}

impl NodeDevices {
    pub(super) fn lease(self: &Arc<Self>, pod: &Pod) -> DeviceLease {
        let spec = pod.spec.as_ref().expect("the server checks it");
        let node = spec.node_name.clone().unwrap_or_default();
        let limits = spec.containers[0].resources.as_ref();
        let limit = limits.and_then(|limits| limits.limits.as_ref()?.get(RESOURCE));
        let count = limit.map_or(0, |limit| limit.0.parse().expect("GPUs are whole"));
        let mut given = self.lock();
        let of_node = given.entry(node.clone()).or_default();
        of_node.now += count;
        of_node.most = of_node.most.max(of_node.now);
        DeviceLease {
            devices: Arc::clone(self),
            node,
            count,
        }
    }

    pub(super) fn most(&self) -> BTreeMap<String, u64> {
        let given = self.lock();
        let given = given.iter();
        given
            .map(|(node, given)| (node.clone(), given.most))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, NodeDeviceCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceLease {
    fn drop(&mut self) {
        if let Some(given) = self.devices.lock().get_mut(&self.node) {
            given.now -= self.count;
        }
    }
}
