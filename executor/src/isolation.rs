//! What separates process tasks of different tenants on this node.

use crate::clock;
use crate::config::{ExecutorConfig, RuntimeKind};
use crate::device;
use crate::error::ExecutorError;
use crate::image;
use crate::shim::isolation::{obstacle, top_folders};
use crate::task_user::TaskUsers;
use muster_model::node::{Capacity, ImageSupport, TaskIsolation};
use muster_model::place::Place;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the isolation of the node's tasks; `None` if they are pods.
///
/// # Errors
/// If `task_user` names users that cannot enter a needed folder.
pub fn of_node(config: &ExecutorConfig) -> Result<Option<TaskIsolation>, ExecutorError> {
    if config.runtime == RuntimeKind::Pod {
        return Ok(None);
    }
    let Some(users) = config.task_user else {
        return Ok(Some(TaskIsolation::ExecutorUser));
    };
    match users {
        TaskUsers::Shared(_) => {
            check_access(config, users, false)?;
            Ok(Some(TaskIsolation::SharedUser))
        }
        TaskUsers::PerTenant { .. } => {
            let shared_view = obstacle().map_err(ExecutorError::Isolation)?;
            check_access(config, users, shared_view.is_none())?;
            if let Some(why) = &shared_view {
                tracing::warn!(
                    why,
                    "tasks share /tmp and see the processes of other tenants; give the executor CAP_SYS_ADMIN to prevent it"
                );
            }
            Ok(Some(TaskIsolation::TenantUsers { shared_view }))
        }
    }
}

/// Returns whether process tasks of the node can run in images; `None` if they are pods. The shim's
/// way is tried in a process of its own.
///
/// # Errors
/// If this program cannot be started.
pub fn image_support(
    config: &ExecutorConfig,
    capacity: &Capacity,
) -> Result<Option<ImageSupport>, ExecutorError> {
    if config.runtime == RuntimeKind::Pod {
        return Ok(None);
    }
    let found = match image_obstacle(config, capacity)? {
        None => ImageSupport::Able,
        Some(why) => {
            tracing::warn!(why, "tasks of this node cannot run in images");
            ImageSupport::Unable { why }
        }
    };
    Ok(Some(found))
}

fn image_obstacle(
    config: &ExecutorConfig,
    capacity: &Capacity,
) -> Result<Option<String>, ExecutorError> {
    if device::has_cuda(capacity)
        && let Some(why) = image::cdi_obstacle()
    {
        return Ok(Some(why));
    }
    // Not on the disk of the data folder, which may be full.
    let name = format!("muster-trial-{:016x}", clock::random());
    let folder = std::env::temp_dir().join(name);
    let own = std::env::current_exe().map_err(ExecutorError::read("/proc/self/exe"))?;
    let mut trial = Command::new(&own);
    // The variables of this process contain secrets, and the trial becomes a user of tasks.
    trial.env_clear();
    trial.arg("try-image").arg("--folder").arg(&folder);
    if let Some(users) = config.task_user {
        trial.arg("--task-user").arg(users.example().to_string());
    }
    let said = trial
        .stdin(Stdio::null())
        .output()
        .map_err(ExecutorError::shim(&own))?;
    // The trial cannot remove it: there it is a mount point.
    let _ = fs::remove_dir_all(&folder);
    if said.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&said.stderr);
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line = line.map(str::to_owned);
    Ok(Some(line.unwrap_or_else(|| said.status.to_string())))
}

/// Whether tasks have a mount namespace of their own.
#[must_use]
pub fn has_own_view(isolation: Option<&TaskIsolation>) -> bool {
    matches!(
        isolation,
        Some(TaskIsolation::TenantUsers { shared_view: None })
    )
}

/// Checks that the users can enter the folders that tasks need. With a view of their own, only
/// these folders themselves matter: the shim replaces those above them.
fn check_access(
    config: &ExecutorConfig,
    users: TaskUsers,
    has_own_view: bool,
) -> Result<(), ExecutorError> {
    let user = users.example();
    let checkpoints = match &config.checkpoint_root {
        Place::Folder(path) => Some(path.as_path()),
        Place::Bucket(_) => None,
    };
    let own = std::env::current_exe().ok();
    let programs = [
        config.task_binary.parent(),
        own.as_deref().and_then(Path::parent),
    ];
    let needed: Vec<&Path> = [&*config.data_dir, &*config.dataset_root]
        .into_iter()
        .chain(checkpoints)
        .chain(programs.into_iter().flatten())
        .collect();
    let closed = |folder: &Path, barrier: &Path| ExecutorError::Setting {
        name: "task_user",
        problem: format!(
            "is {users}, which cannot enter {}, where {} lies",
            barrier.display(),
            folder.display()
        ),
    };
    if has_own_view {
        let folders = top_folders(&needed);
        let barred = folders.iter().find(|folder| user.is_barred_from(folder));
        return barred.map_or(Ok(()), |folder| Err(closed(folder, folder)));
    }
    for folder in needed {
        // With a file name appended, because the folder itself must be enterable too.
        if let Some(barrier) = user.barrier(&folder.join("x")) {
            return Err(closed(folder, barrier));
        }
    }
    Ok(())
}
