//! What a task's pod sees of a folder that it shares with all tasks of its node and with the executor: some parts of it, each mounted by itself,
//! and nothing else. All tenants' programs run as the same user, so what lies beside those would be theirs to read, to lock and, where it
//! is mounted so, to write.
//!
//! Over the whole folder an empty one is mounted, since a template may mount more than the folder. Where each part comes from the kubelet finds out on the
//! node, outside of the pod, hence no mount in it stands in the way of another.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::path::{Path, PathBuf};

/// Of an empty folder, which holds nothing but the places of mounts.
const EMPTY_BYTES: u32 = 1 << 20;

/// A folder, by its path on the node's executor and in each pod alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut<'a> {
    pub folder: &'a Path,
    /// What the volume of the empty folder is called.
    pub name: &'static str,
    pub seen: Vec<Seen>,
}

/// A folder within it that is there in the pod. It must be there on the node when the pod starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Relative.
    pub path: PathBuf,
    pub read_only: bool,
}

/// Where the template mounts nothing of the folder, nothing is done.
pub fn shut(spec: &mut PodSpec, container: &mut Container, shut: &Shut<'_>) {
    let mounts = container.volume_mounts.get_or_insert_default();
    let over = mounts
        .iter()
        .enumerate()
        .filter(|(_, mount)| mount.sub_path_expr.is_none())
        .filter(|(_, mount)| shut.folder.starts_with(&mount.mount_path))
        .max_by_key(|(_, mount)| Path::new(&mount.mount_path).components().count());
    let Some((place, over)) = over.map(|(place, mount)| (place, mount.clone())) else {
        return;
    };
    let within = shut.folder.strip_prefix(&over.mount_path);
    let within = within.expect("it is a prefix of it");
    if within.as_os_str().is_empty() {
        mounts.remove(place);
    }
    mounts.push(VolumeMount {
        name: shut.name.to_owned(),
        mount_path: text(shut.folder),
        ..VolumeMount::default()
    });
    let base = Path::new(over.sub_path.as_deref().unwrap_or_default()).join(within);
    mounts.extend(shut.seen.iter().map(|seen| VolumeMount {
        name: over.name.clone(),
        mount_path: text(&shut.folder.join(&seen.path)),
        sub_path: Some(text(&base.join(&seen.path))),
        read_only: seen.read_only.then_some(true),
        ..VolumeMount::default()
    }));
    spec.volumes.get_or_insert_default().push(Volume {
        name: shut.name.to_owned(),
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

    /// What is mounted where, and the volumes, where the template has this mount besides another and `a` and `b/c` are seen of a folder.
    fn mounted(mount: &Value) -> (Value, Value) {
        let container = json!({ "name": "task", "volumeMounts": [mount, { "name": "tmp", "mountPath": "/tmp" }] });
        let mut container: Container = serde_json::from_value(container).expect("a container");
        let mut spec: PodSpec = serde_json::from_value(json!({ "containers": [] })).expect("a pod");
        let seen = |path: &str, read_only| Seen {
            path: path.into(),
            read_only,
        };
        let of_data = Shut {
            folder: Path::new("/var/lib/muster"),
            name: "hidden-data",
            seen: vec![seen("a", true), seen("b/c", false)],
        };
        shut(&mut spec, &mut container, &of_data);
        (json!(container.volume_mounts), json!(spec.volumes))
    }

    #[test]
    fn of_a_folder_only_what_is_to_be_seen_is_there() {
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
    fn what_a_template_mounts_above_the_folder_stays() {
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
    fn a_template_without_the_folder_is_left_alone() {
        let other = json!({ "name": "data", "mountPath": "/var/lib/muster-2" });
        let (mounts, volumes) = mounted(&other);
        assert_eq!(
            mounts,
            json!([other, { "name": "tmp", "mountPath": "/tmp" }])
        );
        assert_eq!(volumes, json!(null));
    }
}
