//! GPUs of a task in an image, by NVIDIA's CDI specification of the node (`nvidia-ctk cdi
//! generate`).
//!
//! Device nodes and variables are applied as specified. Libraries and programs of the driver appear
//! in one folder instead of the image's own, so that no file of the image is covered. Hooks and
//! other files, such as those for graphics, are left out.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders of specifications, as in the CDI standard.
const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

const KIND: &str = "nvidia.com/gpu";

/// Why a task has no access to its GPUs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error(
        "the node has GPUs but no CDI specification of {KIND} in {}; run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        FOLDERS.join(" or ")
    )]
    Missing,
    #[error("the CDI specification has no device {KIND}={0}; run nvidia-ctk cdi generate again")]
    NoDevice(u32),
    #[error("the CDI specification names {}, which this node does not have; run nvidia-ctk cdi generate again", .0.display())]
    NoFile(PathBuf),
    #[error("the CDI specification {}: {why}", path.display())]
    Wrong { path: PathBuf, why: String },
}

/// What a program needs to use its GPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuAccess {
    /// Device files: path in the image and on the node.
    pub devices: BTreeMap<PathBuf, PathBuf>,
    /// Shared libraries of the driver on the node, by the names under which programs load them.
    pub libraries: BTreeMap<String, PathBuf>,
    /// Programs such as `nvidia-smi`.
    pub programs: BTreeMap<String, PathBuf>,
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Specification {
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Debug, Deserialize)]
struct Device {
    name: String,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Option<Vec<String>>,
    device_nodes: Option<Vec<DeviceNode>>,
    mounts: Option<Vec<Mount>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: PathBuf,
    #[serde(default)]
    host_path: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
}

/// Returns why tasks with GPUs cannot run in images, on a node with NVIDIA GPUs.
pub(crate) fn obstacle() -> Option<String> {
    let all = match read(&FOLDERS.map(Path::new)) {
        Ok(all) => all,
        Err(error) => return Some(error.to_string()),
    };
    let mut access = GpuAccess::default();
    let missing = all.iter().find_map(|one| access.add(&one.edits).err());
    missing.map(|error| error.to_string())
}

/// Returns what a task needs for the GPUs with these indexes of the driver.
///
/// # Errors
/// [`CdiError`].
pub(crate) fn gpu_access(gpus: &[u32]) -> Result<GpuAccess, CdiError> {
    access(&read(&FOLDERS.map(Path::new))?, gpus)
}

fn access(all: &[Specification], gpus: &[u32]) -> Result<GpuAccess, CdiError> {
    let mut access = GpuAccess::default();
    for gpu in gpus {
        let name = gpu.to_string();
        let mut found = false;
        for one in all {
            for device in one.devices.iter().filter(|device| device.name == name) {
                found = true;
                access.add(&device.edits)?;
                access.add(&one.edits)?;
            }
        }
        if !found {
            return Err(CdiError::NoDevice(*gpu));
        }
    }
    Ok(access)
}

/// Reads all specifications of NVIDIA's GPUs.
fn read(folders: &[&Path]) -> Result<Vec<Specification>, CdiError> {
    let mut all = Vec::new();
    for folder in folders {
        let mut paths: BTreeSet<PathBuf> = BTreeSet::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            paths.insert(entry.path());
        }
        for path in paths.into_iter().filter(|path| is_specification(path)) {
            let one = read_one(&path).map_err(|why| CdiError::Wrong { path, why })?;
            if one.kind == KIND {
                all.push(one);
            }
        }
    }
    if all.is_empty() {
        return Err(CdiError::Missing);
    }
    Ok(all)
}

fn is_specification(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

fn read_one(path: &Path) -> Result<Specification, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    // JSON is YAML too.
    serde_norway::from_str(&text).map_err(|error| error.to_string())
}

impl GpuAccess {
    /// Adds what a specification names. A driver without one of its files would fail later, and the
    /// program's error would not say why.
    fn add(&mut self, edits: &Edits) -> Result<(), CdiError> {
        for node in edits.device_nodes.iter().flatten() {
            let host = node.host_path.as_ref().unwrap_or(&node.path);
            self.devices.insert(node.path.clone(), host.clone());
        }
        for pair in edits.env.iter().flatten() {
            if let Some((name, value)) = pair.split_once('=') {
                self.env.insert(name.to_owned(), value.to_owned());
            }
        }
        for mount in edits.mounts.iter().flatten() {
            let path = &mount.host_path;
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let folder = path.parent().and_then(Path::file_name);
            let is_library = name.contains(".so.") || name.ends_with(".so");
            let is_program = folder.is_some_and(|folder| folder == "bin" || folder == "sbin");
            if (is_library || is_program) && !path.exists() {
                return Err(CdiError::NoFile(path.clone()));
            }
            if is_library {
                self.libraries.insert(name.to_owned(), path.clone());
                for other in other_names(path).unwrap_or_default() {
                    self.libraries.insert(other, path.clone());
                }
            } else if is_program {
                self.programs.insert(name.to_owned(), path.clone());
            }
        }
        Ok(())
    }
}

/// Names of links beside a library that lead to it, such as `libcuda.so.1`. Programs load it by
/// these names.
fn other_names(library: &Path) -> io::Result<Vec<String>> {
    let library = fs::canonicalize(library)?;
    let folder = library.parent().ok_or(io::ErrorKind::NotFound)?;
    let file = library.file_name().unwrap_or_default().to_string_lossy();
    let stem = file.split(".so").next().unwrap_or_default().to_owned();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let is_link = entry.file_type()?.is_symlink() && name.starts_with(&stem);
        if is_link && fs::canonicalize(entry.path()).is_ok_and(|target| target == library) {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn specification(libraries: &Path) -> String {
        format!(
            "
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: '0'
    containerEdits: {{ deviceNodes: [{{ path: /dev/nvidia0 }}] }}
  - name: '1'
    containerEdits:
      deviceNodes: [{{ path: /dev/nvidia1, hostPath: /dev/other1 }}]
      env: [ONE=1]
  - name: all
    containerEdits: {{ deviceNodes: [{{ path: /dev/nvidia0 }}, {{ path: /dev/nvidia1 }}] }}
containerEdits:
  deviceNodes: [{{ path: /dev/nvidiactl }}, {{ path: /dev/nvidia-uvm }}]
  env: [NVIDIA_VISIBLE_DEVICES=void]
  hooks: [{{ hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [update-ldcache] }}]
  mounts:
    - {{ hostPath: {0}/libcuda.so.570.1, containerPath: /usr/lib/libcuda.so.570.1, options: [ro] }}
    - {{ hostPath: {0}/bin/nvidia-smi, containerPath: /usr/bin/nvidia-smi }}
    - {{ hostPath: /usr/share/vulkan/icd.d/x.json, containerPath: /etc/vulkan/x.json }}
",
            libraries.display()
        )
    }

    #[test]
    fn task_has_devices_of_its_gpus_and_the_driver() {
        let place = tempfile::tempdir().expect("a folder");
        let library = place.path().join("libcuda.so.570.1");
        fs::write(&library, "").expect("written");
        fs::create_dir(place.path().join("bin")).expect("made");
        let program = place.path().join("bin/nvidia-smi");
        fs::write(&program, "").expect("written");
        symlink("libcuda.so.570.1", place.path().join("libcuda.so.1")).expect("linked");
        symlink("libcuda.so.1", place.path().join("libcuda.so")).expect("linked");
        fs::write(place.path().join("a.yaml"), specification(place.path())).expect("written");
        fs::write(place.path().join("b.json"), r#"{"kind": "vendor.com/net"}"#).expect("written");
        let all = read(&[place.path(), Path::new("/no/such/folder")]).expect("read");
        let found = access(&all, &[1]).expect("it is there");
        let devices: Vec<String> = found
            .devices
            .iter()
            .map(|(path, host)| format!("{} {}", path.display(), host.display()))
            .collect();
        let expected = [
            "/dev/nvidia-uvm /dev/nvidia-uvm",
            "/dev/nvidia1 /dev/other1",
            "/dev/nvidiactl /dev/nvidiactl",
        ];
        assert_eq!(devices, expected);
        let names: Vec<&String> = found.libraries.keys().collect();
        assert_eq!(names, ["libcuda.so", "libcuda.so.1", "libcuda.so.570.1"]);
        assert!(found.libraries.values().all(|path| *path == library));
        assert_eq!(found.programs.len(), 1);
        assert_eq!(found.env["ONE"], "1");
        let missing = access(&all, &[7]).expect_err("no such GPU").to_string();
        assert!(missing.contains("nvidia.com/gpu=7"), "{missing}");
        fs::remove_file(&program).expect("removed");
        let missing = access(&all, &[1]).expect_err("no program").to_string();
        assert!(missing.contains("bin/nvidia-smi, which"), "{missing}");
    }

    #[test]
    fn node_without_specification_names_the_command() {
        let place = tempfile::tempdir().expect("a folder");
        let error = read(&[place.path()]).expect_err("none").to_string();
        assert!(error.contains("nvidia-ctk cdi generate"), "{error}");
        fs::write(place.path().join("x.yaml"), "kind: [").expect("written");
        let error = read(&[place.path()]).expect_err("no YAML").to_string();
        assert!(error.contains("x.yaml"), "{error}");
    }
}
