//! Visible parts of the shared folders in a task's pod: its own task's part of the data folder, and
//! its own job's checkpoints.

use super::mount_allow_list::{MountAllowList, VisiblePath};
use crate::config;
use crate::runtime::sockets;
use muster_model::assignment::TaskLaunch;
use std::path::{Path, PathBuf};

/// Returns the visible parts of the data folder: the lease and the task's folder. The job's socket
/// folder and the shim programs are visible only if the task needs them.
///
/// Folders of other tasks contain secrets and locks and stay hidden, as do the executor's own
/// files.
#[must_use]
pub fn of_data<'a>(data: &'a Path, launch: &TaskLaunch) -> MountAllowList<'a> {
    let own = Path::new("tasks").join(launch.task_id.to_string());
    let mut all = vec![visible(config::SHOWN, true), visible(own, false)];
    if sockets::meets_others(launch) {
        all.push(visible(sockets::within(launch.job_id), false));
    }
    if launch.spec.pod.image.is_some() {
        all.push(visible("programs", true));
    }
    MountAllowList {
        folder: data,
        name: "hidden-data",
        visible: all,
    }
}

fn visible(path: impl Into<PathBuf>, read_only: bool) -> VisiblePath {
    let path = path.into();
    VisiblePath { path, read_only }
}

/// Returns the visible checkpoints: those of the job, and for reading those of the job in `from`.
#[must_use]
pub fn of_checkpoints<'a>(root: &'a Path, launch: &TaskLaunch) -> MountAllowList<'a> {
    let of_tenant = PathBuf::from(launch.tenant_id.to_string());
    let own = visible(of_tenant.join(launch.job_id.to_string()), false);
    let origin = launch.spec.from;
    let origin = origin.map(|from| visible(of_tenant.join(from.job.to_string()), true));
    MountAllowList {
        folder: root,
        name: "hidden-checkpoints",
        visible: std::iter::once(own).chain(origin).collect(),
    }
}
