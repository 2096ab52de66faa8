//! What a task's pod sees of the folders that it shares with others: of the data folder its own task's, of the checkpoints its own job's.

use super::shut::{Seen, Shut};
use crate::config;
use crate::runtime::sockets;
use muster_model::assignment::TaskLaunch;
use std::path::{Path, PathBuf};

/// The lease, its own folder, and, each only where it needs it, the place where it meets other tasks of its job, and the shims' programs.
///
/// Nothing else: not other tasks' folders with their secrets and locks, nor what the executor keeps for itself.
#[must_use]
pub fn of_data<'a>(data: &'a Path, launch: &TaskLaunch) -> Shut<'a> {
    let seen = |path: PathBuf, read_only| Seen { path, read_only };
    let own = Path::new("tasks").join(launch.task_id.to_string());
    let mut all = vec![seen(config::SHOWN.into(), true), seen(own, false)];
    if sockets::meets_others(launch) {
        all.push(seen(sockets::within(launch.job_id), false));
    }
    if launch.spec.pod.image.is_some() {
        all.push(seen("programs".into(), true));
    }
    Shut {
        folder: data,
        name: "hidden-data",
        seen: all,
    }
}

/// What its own job writes, and, of the job that it begins from, what that has written.
#[must_use]
pub fn of_checkpoints<'a>(root: &'a Path, launch: &TaskLaunch) -> Shut<'a> {
    let of_tenant = PathBuf::from(launch.tenant_id.to_string());
    let own = Seen {
        path: of_tenant.join(launch.job_id.to_string()),
        read_only: false,
    };
    let origin = launch.spec.from.map(|from| Seen {
        path: of_tenant.join(from.job.to_string()),
        read_only: true,
    });
    Shut {
        folder: root,
        name: "hidden-checkpoints",
        seen: std::iter::once(own).chain(origin).collect(),
    }
}
