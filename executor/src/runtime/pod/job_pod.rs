//! Additions of a job's document to the pod template: the user's image, volumes, and variables from
//! secrets.
//!
//! Permissions were checked at submission. Here only conflicts with the template are rejected.

use crate::error::ExecutorError;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    LocalObjectReference, PersistentVolumeClaimVolumeSource, PodSpec, SecretKeySelector,
    SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use muster_model::spec::{Pod, SecretKey, Volume as SpecVolume};

/// Mount path of shared memory. The template has a volume there, which a job may replace.
const SHARED_MEMORY: &str = "/dev/shm";

/// Name prefix of volumes that jobs bring.
const OWN_PREFIX: &str = "own-";

/// Whether the job brings the volume of this name.
pub fn is_job_volume(volume: &str) -> bool {
    volume.starts_with(OWN_PREFIX)
}

/// A path of the job that conflicts with a path of the template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "pod.volumes[{index}].path is {path:?}; expected a path apart from {taken:?}, which every task has"
)]
pub struct PathTaken {
    index: usize,
    path: String,
    taken: String,
}

impl From<PathTaken> for ExecutorError {
    fn from(taken: PathTaken) -> Self {
        Self::PodPath(taken.to_string())
    }
}

/// Adds the job's image, secrets and volumes to the pod.
///
/// # Errors
/// [`PathTaken`] if a volume is mounted at, above or below a path of the template: it would hide
/// files that the task needs.
pub fn apply(spec: &mut PodSpec, container: &mut Container, own: &Pod) -> Result<(), PathTaken> {
    if let Some(image) = &own.image {
        container.image = Some(image.clone());
        // The template's policy applies to its own image. By default a changing tag is pulled each
        // time, and another tag is not.
        container.image_pull_policy = None;
    }
    let secrets = own
        .pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    spec.image_pull_secrets
        .get_or_insert_default()
        .extend(secrets);
    let variables = own.secret_env.iter().map(variable);
    container.env.get_or_insert_default().extend(variables);
    for wanted in own
        .volumes
        .iter()
        .filter(|wanted| wanted.path() == SHARED_MEMORY)
    {
        take_out(spec, container, wanted.path());
    }
    for (index, wanted) in own.volumes.iter().enumerate() {
        let mounts = container.volume_mounts.get_or_insert_default();
        let template = mounts.iter().take(mounts.len() - index);
        if let Some(taken) = template
            .map(|one| &one.mount_path)
            .find(|taken| overlap(wanted.path(), taken))
        {
            return Err(PathTaken {
                index,
                path: wanted.path().to_owned(),
                taken: taken.clone(),
            });
        }
        let name = format!("{OWN_PREFIX}{index}");
        mounts.push(mount(&name, wanted));
        spec.volumes
            .get_or_insert_default()
            .push(volume(name, wanted));
    }
    Ok(())
}

/// Removes the template's mount at this path, and its volume if no other mount uses it.
fn take_out(spec: &mut PodSpec, container: &mut Container, path: &str) {
    let mounts = container.volume_mounts.get_or_insert_default();
    let Some(place) = mounts
        .iter()
        .position(|mount| mount.mount_path.trim_end_matches('/') == path)
    else {
        return;
    };
    let name = mounts.remove(place).name;
    if mounts.iter().all(|mount| mount.name != name) {
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|volume| volume.name != name);
    }
}

/// Whether the paths are equal or one contains the other. The template's path may end with a slash.
fn overlap(path: &str, taken: &str) -> bool {
    let taken = taken.trim_end_matches('/');
    is_within(taken, path) || is_within(path, taken)
}

fn is_within(inner: &str, outer: &str) -> bool {
    let rest = inner.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn variable((name, from): (&String, &SecretKey)) -> EnvVar {
    EnvVar {
        name: name.clone(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: from.secret.clone(),
                key: from.key.clone(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}

fn mount(name: &str, wanted: &SpecVolume) -> VolumeMount {
    let (read_only, sub_path) = match wanted {
        SpecVolume::Claim {
            read_only,
            sub_path,
            ..
        } => (*read_only, sub_path.clone()),
        SpecVolume::Secret { .. } | SpecVolume::ConfigMap { .. } => (true, None),
        SpecVolume::Scratch { .. } | SpecVolume::Memory { .. } => (false, None),
    };
    VolumeMount {
        name: name.to_owned(),
        mount_path: wanted.path().to_owned(),
        read_only: read_only.then_some(true),
        sub_path,
        ..VolumeMount::default()
    }
}

fn volume(name: String, wanted: &SpecVolume) -> Volume {
    let of = Volume {
        name,
        ..Volume::default()
    };
    match wanted {
        SpecVolume::Claim {
            name, read_only, ..
        } => Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: name.clone(),
                read_only: read_only.then_some(true),
            }),
            ..of
        },
        SpecVolume::Secret { name, .. } => Volume {
            secret: Some(SecretVolumeSource {
                secret_name: Some(name.clone()),
                ..SecretVolumeSource::default()
            }),
            ..of
        },
        SpecVolume::ConfigMap { name, .. } => Volume {
            config_map: Some(ConfigMapVolumeSource {
                name: name.clone(),
                ..ConfigMapVolumeSource::default()
            }),
            ..of
        },
        SpecVolume::Scratch { bytes, .. } => Volume {
            empty_dir: Some(empty(*bytes, None)),
            ..of
        },
        SpecVolume::Memory { bytes, .. } => Volume {
            empty_dir: Some(empty(*bytes, Some("Memory"))),
            ..of
        },
    }
}

fn empty(bytes: u64, medium: Option<&str>) -> EmptyDirVolumeSource {
    EmptyDirVolumeSource {
        medium: medium.map(str::to_owned),
        size_limit: Some(Quantity(bytes.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn over_template(own: &str) -> Result<(Value, Value), PathTaken> {
        let own: Pod = serde_norway::from_str(own).expect("pods");
        let mut spec: PodSpec = serde_json::from_value(json!({
            "containers": [],
            "imagePullSecrets": [{ "name": "ours" }],
            "volumes": [{ "name": "data", "hostPath": { "path": "/var/lib/muster" } }],
        }))
        .expect("a spec");
        let mut container: Container = serde_json::from_value(json!({
            "name": "task", "image": "muster", "imagePullPolicy": "Never", "env": [{ "name": "HOME", "value": "/tmp" }],
            "volumeMounts": [{ "name": "data", "mountPath": "/var/lib/muster" }],
        }))
        .expect("a container");
        apply(&mut spec, &mut container, &own)?;
        Ok((json!(spec), json!(container)))
    }

    #[test]
    fn job_additions_extend_the_template() {
        let own = "
image: r.io/trainer:3
pull_secrets: [theirs]
secret_env: { WANDB_API_KEY: { secret: wandb, key: api-key } }
volumes:
  - { kind: claim, name: imagenet, path: /data, read_only: true, sub_path: train }
  - { kind: secret, name: wandb, path: /etc/wandb }
  - { kind: config_map, name: settings, path: /etc/settings }
  - { kind: scratch, path: /scratch, bytes: 1Gi }
  - { kind: memory, path: /dev/shm, bytes: 512Mi }
";
        let (spec, container) = over_template(own).expect("they go together");
        assert_eq!(container["image"], "r.io/trainer:3");
        assert_eq!(
            container.get("imagePullPolicy"),
            None,
            "Kubernetes' own rule"
        );
        assert_eq!(
            spec["imagePullSecrets"],
            json!([{ "name": "ours" }, { "name": "theirs" }])
        );
        assert_eq!(
            container["env"][1],
            json!({ "name": "WANDB_API_KEY", "valueFrom": { "secretKeyRef": { "name": "wandb", "key": "api-key" } } })
        );
        assert_eq!(
            container["volumeMounts"],
            json!([
                { "name": "data", "mountPath": "/var/lib/muster" },
                { "name": "own-0", "mountPath": "/data", "readOnly": true, "subPath": "train" },
                { "name": "own-1", "mountPath": "/etc/wandb", "readOnly": true },
                { "name": "own-2", "mountPath": "/etc/settings", "readOnly": true },
                { "name": "own-3", "mountPath": "/scratch" },
                { "name": "own-4", "mountPath": "/dev/shm" },
            ])
        );
        assert_eq!(
            spec["volumes"],
            json!([
                { "name": "data", "hostPath": { "path": "/var/lib/muster" } },
                { "name": "own-0", "persistentVolumeClaim": { "claimName": "imagenet", "readOnly": true } },
                { "name": "own-1", "secret": { "secretName": "wandb" } },
                { "name": "own-2", "configMap": { "name": "settings" } },
                { "name": "own-3", "emptyDir": { "sizeLimit": "1073741824" } },
                { "name": "own-4", "emptyDir": { "medium": "Memory", "sizeLimit": "536870912" } },
            ])
        );
    }

    #[test]
    fn shared_memory_of_the_job_replaces_that_of_the_template() {
        let own: Pod =
            serde_norway::from_str("volumes: [{ kind: memory, path: /dev/shm, bytes: 1Gi }]")
                .expect("pods");
        let mut spec: PodSpec = serde_json::from_value(json!({
            "containers": [],
            "volumes": [{ "name": "tmp", "emptyDir": {} }, { "name": "shm", "emptyDir": { "medium": "Memory" } }],
        }))
        .expect("a spec");
        let mut container: Container = serde_json::from_value(json!({
            "name": "task",
            "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }, { "name": "shm", "mountPath": "/dev/shm" }],
        }))
        .expect("a container");
        apply(&mut spec, &mut container, &own).expect("the job may set its size");
        assert_eq!(
            json!(container.volume_mounts),
            json!([{ "name": "tmp", "mountPath": "/tmp" }, { "name": "own-0", "mountPath": "/dev/shm" }])
        );
        assert_eq!(
            json!(spec.volumes),
            json!([
                { "name": "tmp", "emptyDir": {} },
                { "name": "own-0", "emptyDir": { "medium": "Memory", "sizeLimit": "1073741824" } },
            ])
        );
    }

    #[test]
    fn volume_over_a_template_path_is_rejected() {
        for path in [
            "/var/lib/muster",
            "/var/lib",
            "/var",
            "/var/lib/muster/tasks",
        ] {
            let own = format!("volumes: [{{ kind: scratch, path: {path}, bytes: 1 }}]");
            let refused = over_template(&own).expect_err(path).to_string();
            assert!(
                refused.contains("pod.volumes[0].path") && refused.contains("\"/var/lib/muster\""),
                "{refused}"
            );
        }
        for path in ["/var/lib/muster-of-mine", "/var/lib/other", "/v"] {
            let own = format!("volumes: [{{ kind: scratch, path: {path}, bytes: 1 }}]");
            assert!(over_template(&own).is_ok(), "{path}");
        }
        assert!(overlap("/srv/extra/mine", "/srv/extra/"));
        // Volumes of the job itself may be nested.
        let nested = "volumes: [{ kind: scratch, path: /a/b, bytes: 1 }, { kind: scratch, path: /a, bytes: 1 }]";
        assert!(over_template(nested).is_ok());
    }
}
