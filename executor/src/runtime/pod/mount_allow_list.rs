//! Allow-list of mounts. The executor and all tasks of a node share a folder. A task's pod sees
//! only parts of it, each mounted separately. Programs of all tenants run as the same user. They
//! could read, lock and perhaps write everything else in the folder.
//!
//! An empty volume covers the whole folder, because a template may mount a parent of it. The
//! kubelet resolves the source of each part on the node, so no mount of the pod affects another.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::path::{Path, PathBuf};

/// Size of the empty volume, which contains only mount points.
const EMPTY_BYTES: u32 = 1 << 20;

/// A folder at the same path in the executor and in each pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountAllowList<'a> {
    pub folder: &'a Path,
    /// Name of the empty volume.
    pub name: &'static str,
    pub visible: Vec<VisiblePath>,
}

/// A visible subfolder. It must exist on the node when the pod starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisiblePath {
    /// Relative to the folder.
    pub path: PathBuf,
    pub read_only: bool,
}

/// Replaces the template's mount of the folder. Without such a mount nothing changes.
pub fn restrict_mount(spec: &mut PodSpec, container: &mut Container, list: &MountAllowList<'_>) {
    let mounts = container.volume_mounts.get_or_insert_default();
    let over = mounts
        .iter()
        .enumerate()
        .filter(|(_, mount)| mount.sub_path_expr.is_none())
        .filter(|(_, mount)| list.folder.starts_with(&mount.mount_path))
        .max_by_key(|(_, mount)| Path::new(&mount.mount_path).components().count());
    let Some((place, over)) = over.map(|(place, mount)| (place, mount.clone())) else {
        return;
    };
    let within = list.folder.strip_prefix(&over.mount_path);
    let within = within.expect("it is a prefix of it");
    if within.as_os_str().is_empty() {
        mounts.remove(place);
    }
    mounts.push(VolumeMount {
        name: list.name.to_owned(),
        mount_path: text(list.folder),
        ..VolumeMount::default()
    });
    let base = Path::new(over.sub_path.as_deref().unwrap_or_default()).join(within);
    mounts.extend(list.visible.iter().map(|visible| VolumeMount {
        name: over.name.clone(),
        mount_path: text(&list.folder.join(&visible.path)),
        sub_path: Some(text(&base.join(&visible.path))),
        read_only: visible.read_only.then_some(true),
        ..VolumeMount::default()
    }));
    spec.volumes.get_or_insert_default().push(Volume {
        name: list.name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(EMPTY_BYTES.to_string())),
        }),
        ..Volume::default()
    });
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns mounts and volumes for a template with this mount and another one, if `a` and `b/c`
    /// of a folder are visible.
    fn mounted(mount: &Value) -> (Value, Value) {
        let container = json!({ "name": "task", "volumeMounts": [mount, { "name": "tmp", "mountPath": "/tmp" }] });
        let mut container: Container = serde_json::from_value(container).expect("a container");
        let mut spec: PodSpec = serde_json::from_value(json!({ "containers": [] })).expect("a pod");
        let visible = [("a", true), ("b/c", false)].map(|(path, read_only)| VisiblePath {
            path: path.into(),
            read_only,
        });
        let of_data = MountAllowList {
            folder: Path::new("/var/lib/muster"),
            name: "hidden-data",
            visible: visible.into(),
        };
        restrict_mount(&mut spec, &mut container, &of_data);
        (json!(container.volume_mounts), json!(spec.volumes))
    }

    #[test]
    fn only_visible_parts_of_a_folder_are_mounted() {
        let tmp = json!({ "name": "tmp", "mountPath": "/tmp" });
        let (mounts, volumes) = mounted(&json!({ "name": "data", "mountPath": "/var/lib/muster" }));
        assert_eq!(
            mounts,
            json!([
                tmp,
                { "name": "hidden-data", "mountPath": "/var/lib/muster" },
                { "name": "data", "mountPath": "/var/lib/muster/a", "subPath": "a", "readOnly": true },
                { "name": "data", "mountPath": "/var/lib/muster/b/c", "subPath": "b/c" },
            ])
        );
        let empty = json!({ "medium": "Memory", "sizeLimit": "1048576" });
        assert_eq!(
            volumes,
            json!([{ "name": "hidden-data", "emptyDir": empty }])
        );
    }

    #[test]
    fn mounts_above_the_folder_are_kept() {
        let above = json!({ "name": "data", "mountPath": "/var/lib/", "subPath": "lib" });
        let (mounts, _) = mounted(&above);
        assert_eq!(
            mounts,
            json!([
                above,
                { "name": "tmp", "mountPath": "/tmp" },
                { "name": "hidden-data", "mountPath": "/var/lib/muster" },
                { "name": "data", "mountPath": "/var/lib/muster/a", "subPath": "lib/muster/a", "readOnly": true },
                { "name": "data", "mountPath": "/var/lib/muster/b/c", "subPath": "lib/muster/b/c" },
            ])
        );
    }

    #[test]
    fn template_without_the_folder_is_not_changed() {
        let other = json!({ "name": "data", "mountPath": "/var/lib/muster-2" });
        let (mounts, volumes) = mounted(&other);
        assert_eq!(
            mounts,
            json!([other, { "name": "tmp", "mountPath": "/tmp" }])
        );
        assert_eq!(volumes, json!(null));
    }
}
