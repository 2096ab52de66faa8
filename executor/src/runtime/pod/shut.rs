//! What a task's pod may write of the data folder, which it shares with all tasks of its node and with the executor: the folder of its own task.
//! All tenants' programs run as the same user, and the shim of the next one is started from there. They still read it: the lease, the shim's
//! program, and the sockets by which tasks of one job on one node share memory, which lie in the tasks' folders.

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use muster_model::id::TaskId;
use std::path::Path;

/// Puts this over the template's mount of the data folder; where the template has none, nothing.
pub fn shut(container: &mut Container, data: &Path, task: TaskId) {
    let mounts = container.volume_mounts.get_or_insert_default();
    let over = mounts
        .iter_mut()
        .filter(|mount| mount.sub_path_expr.is_none() && data.starts_with(&mount.mount_path))
        .max_by_key(|mount| Path::new(&mount.mount_path).components().count());
    let Some(over) = over else {
        return;
    };
    let within = data
        .strip_prefix(&over.mount_path)
        .expect("it is a prefix of it");
    let base = Path::new(over.sub_path.as_deref().unwrap_or_default()).join(within);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let of_data = VolumeMount {
        name: over.name.clone(),
        mount_path: text(data),
        ..VolumeMount::default()
    };
    let sub_path = |path: &Path| (!path.as_os_str().is_empty()).then(|| text(path));
    if within.as_os_str().is_empty() {
        over.read_only = Some(true);
    } else {
        mounts.push(VolumeMount {
            sub_path: sub_path(&base),
            read_only: Some(true),
            ..of_data.clone()
        });
    }
    let own = Path::new("tasks").join(task.to_string());
    mounts.push(VolumeMount {
        mount_path: text(&data.join(&own)),
        sub_path: sub_path(&base.join(&own)),
        ..of_data
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What is mounted where in the pod of task 1, whose executor's data folder is `/var/lib/muster`.
    fn mounted(mount: &Value) -> Value {
        let container = json!({ "name": "task", "volumeMounts": [mount, { "name": "tmp", "mountPath": "/tmp" }] });
        let mut container: Container = serde_json::from_value(container).expect("a container");
        let task = TaskId(uuid::Uuid::from_u128(1));
        shut(&mut container, Path::new("/var/lib/muster"), task);
        let mut mounts = serde_json::to_value(&container.volume_mounts).expect("JSON");
        let mounts = mounts.as_array_mut().expect("a list");
        assert_eq!(mounts.remove(1)["name"], "tmp", "what is elsewhere stays");
        json!(mounts)
    }

    #[test]
    fn a_task_writes_its_own_folder_and_nothing_else() {
        let own = "/var/lib/muster/tasks/00000000-0000-0000-0000-000000000001";
        let id = "00000000-0000-0000-0000-000000000001";
        assert_eq!(
            mounted(&json!({ "name": "data", "mountPath": "/var/lib/muster" })),
            json!([
                { "name": "data", "mountPath": "/var/lib/muster", "readOnly": true },
                { "name": "data", "mountPath": own, "subPath": format!("tasks/{id}") },
            ])
        );
        // A folder above it, and a part of a volume.
        assert_eq!(
            mounted(&json!({ "name": "data", "mountPath": "/var/lib/", "subPath": "lib" })),
            json!([
                { "name": "data", "mountPath": "/var/lib/", "subPath": "lib" },
                { "name": "data", "mountPath": "/var/lib/muster", "subPath": "lib/muster", "readOnly": true },
                { "name": "data", "mountPath": own, "subPath": format!("lib/muster/tasks/{id}") },
            ])
        );
    }

    #[test]
    fn a_template_without_the_data_folder_is_left_alone() {
        let mut container: Container = serde_json::from_value(json!({ "name": "task", "volumeMounts": [{ "name": "data", "mountPath": "/var/lib/muster-2" }] })).expect("a container");
        let before = container.clone();
        let task = TaskId(uuid::Uuid::from_u128(1));
        shut(&mut container, Path::new("/var/lib/muster"), task);
        assert_eq!(container, before);
    }
}
