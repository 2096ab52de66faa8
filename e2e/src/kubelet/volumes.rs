//! Volumes of a pod: host paths in place, and secrets, ConfigMaps, claims bound to host paths and
//! empty folders. Each is mounted at the container's path in the pod's own mount namespace.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Mounts its arguments, three per mount, up to `--`, and becomes the program after it.
pub const MOUNTING: &str = r#"
while [ "$1" != -- ]; do
  mkdir -p "$3" || exit 125
  case "$1" in
    tmpfs) mount -t tmpfs -o "size=$2" tmpfs "$3" ;;
    ro) mount --bind "$2" "$3" && mount -o remount,bind,ro "$3" ;;
    rw) mount --bind "$2" "$3" ;;
  esac || exit 125
  shift 3
done
shift
exec "$@"
"#;

/// Volumes and variables of one pod.
#[derive(Debug, Default)]
pub struct PodVolumes {
    /// Kind, source and target of each mount: the arguments of [`MOUNTING`].
    pub mounts: Vec<[String; 3]>,
    /// Values of variables that come from secrets.
    pub variables: BTreeMap<String, String>,
}

/// Prepares the volumes of a pod.
///
/// # Errors
/// Names the missing object.
pub async fn prepare(client: &Client, pod: &Pod, folder: &Path) -> Result<PodVolumes, String> {
    let spec = pod.spec.as_ref().expect("the server checks it");
    let container = &spec.containers[0];
    let namespace = pod.namespace().unwrap_or_default();
    let source = PodVolumeSource {
        client,
        namespace: &namespace,
        folder: folder.join(format!("{}.volumes", pod.name_any())),
    };
    let mut prepared = PodVolumes {
        variables: source.variables(container).await?,
        ..PodVolumes::default()
    };
    let mut mounts: Vec<&VolumeMount> = container.volume_mounts.iter().flatten().collect();
    // As container runtimes do: nested mounts come later.
    mounts.sort_by_key(|mount| Path::new(&mount.mount_path).components().count());
    for mount in mounts {
        let mut volumes = spec.volumes.iter().flatten();
        let volume = volumes.find(|volume| volume.name == mount.name);
        let volume = volume.ok_or_else(|| format!("there is no volume {}", mount.name))?;
        prepared.mounts.extend(source.mount(volume, mount).await?);
    }
    prepared.hold_on_to_sources(&source.folder)?;
    Ok(prepared)
}

impl PodVolumes {
    /// Keeps sources accessible that the pod's mounts hide, by bind mounts before the first mount.
    fn hold_on_to_sources(&mut self, folder: &Path) -> Result<(), String> {
        let targets: Vec<String> = self.mounts.iter().map(|[_, _, to]| to.clone()).collect();
        let is_hidden = |from: &str| targets.iter().any(|to| Path::new(from).starts_with(to));
        let mut held = Vec::new();
        for (number, [how, from, _]) in self.mounts.iter_mut().enumerate() {
            if how != "tmpfs" && is_hidden(from) {
                let stage = folder.join(format!("held-{number}"));
                fs::create_dir_all(&stage).map_err(|error| error.to_string())?;
                let stage = stage.to_string_lossy().into_owned();
                let from = std::mem::replace(from, stage.clone());
                held.push(["rw".to_owned(), from, stage]);
            }
        }
        self.mounts.splice(0..0, held);
        Ok(())
    }
}

struct PodVolumeSource<'a> {
    client: &'a Client,
    namespace: &'a str,
    /// Folder for files of this pod.
    folder: PathBuf,
}

impl PodVolumeSource<'_> {
    async fn variables(&self, container: &Container) -> Result<BTreeMap<String, String>, String> {
        let mut variables = BTreeMap::new();
        for variable in container.env.iter().flatten() {
            let from = variable.value_from.as_ref();
            let Some(key) = from.and_then(|from| from.secret_key_ref.as_ref()) else {
                continue;
            };
            let secret = self.secret(&key.name).await?;
            let value = secret.get(&key.key);
            let value = value
                .ok_or_else(|| format!("couldn't find key {} in Secret {}", key.key, key.name))?;
            variables.insert(
                variable.name.clone(),
                String::from_utf8_lossy(&value.0).into_owned(),
            );
        }
        Ok(variables)
    }

    async fn secret(&self, name: &str) -> Result<BTreeMap<String, ByteString>, String> {
        let api = Api::<Secret>::namespaced(self.client.clone(), self.namespace);
        let found = api.get(name).await.map_err(|error| error.to_string())?;
        Ok(found.data.unwrap_or_default())
    }

    async fn mount(
        &self,
        volume: &Volume,
        mount: &VolumeMount,
    ) -> Result<Option<[String; 3]>, String> {
        let target = Path::new(&mount.mount_path);
        if let Some(host) = &volume.host_path {
            let sub_path = mount.sub_path.as_deref().unwrap_or_default();
            let from = Path::new(&host.path).join(sub_path);
            // The folder is already in place, completely.
            if from == target && mount.read_only != Some(true) && sub_path.is_empty() {
                return Ok(None);
            }
            if !from.is_dir() {
                return Err(format!("there is no folder {}", from.display()));
            }
            let how = if mount.read_only == Some(true) {
                "ro"
            } else {
                "rw"
            };
            let from = from.to_string_lossy().into_owned();
            return Ok(Some([how.to_owned(), from, mount.mount_path.clone()]));
        }
        // In a container the folder would be created in its own file system.
        fs::create_dir_all(target).map_err(|error| error.to_string())?;
        let read_only = mount.read_only == Some(true);
        let mut source = self.folder.join(&volume.name);
        fs::create_dir_all(&source).map_err(|error| error.to_string())?;
        if let Some(of) = &volume.secret {
            let name = of.secret_name.as_deref().unwrap_or_default();
            for (key, value) in self.secret(name).await? {
                fs::write(source.join(key), value.0).map_err(|error| error.to_string())?;
            }
        } else if let Some(of) = &volume.config_map {
            let api = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace);
            let found = api.get(&of.name).await.map_err(|error| error.to_string())?;
            for (key, value) in found.data.unwrap_or_default() {
                fs::write(source.join(key), value).map_err(|error| error.to_string())?;
            }
        } else if let Some(of) = &volume.persistent_volume_claim {
            source = self.claimed(&of.claim_name).await?;
            source.extend(mount.sub_path.as_deref());
        } else if let Some(of) = &volume.empty_dir {
            if of.medium.as_deref() == Some("Memory") {
                let size = of.size_limit.clone().unwrap_or(Quantity("0".to_owned()));
                return Ok(Some(["tmpfs".to_owned(), size.0, mount.mount_path.clone()]));
            }
        } else {
            return Err(format!(
                "the stand-in knows no volume such as {}",
                volume.name
            ));
        }
        let how = if read_only { "ro" } else { "rw" };
        let source = source.to_string_lossy().into_owned();
        Ok(Some([how.to_owned(), source, mount.mount_path.clone()]))
    }

    /// Folder of the volume to which the claim is bound.
    async fn claimed(&self, name: &str) -> Result<PathBuf, String> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), self.namespace);
        let claim = claims.get(name).await.map_err(|error| error.to_string())?;
        let volume = claim.spec.and_then(|spec| spec.volume_name);
        let volume = volume.ok_or_else(|| format!("claim {name} is not bound"))?;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let volume = volumes
            .get(&volume)
            .await
            .map_err(|error| error.to_string())?;
        let path = volume.spec.and_then(|spec| spec.host_path);
        path.map(|host| PathBuf::from(host.path))
            .ok_or_else(|| format!("claim {name} is bound to no host path"))
    }
}
