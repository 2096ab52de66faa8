//! A registry of images under test: Debian's `docker-registry` as a process, and images with
//! busybox that the tests build and push.

use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::secrets::RegistryAuth;
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use tar::{Builder, EntryType, Header};

/// Programs of the busybox image.
const PROGRAMS: [&str; 25] = [
    "sh", "cat", "chmod", "chroot", "echo", "env", "grep", "head", "id", "kill", "ln", "ls",
    "mkdir", "mknod", "mount", "mv", "ps", "pwd", "rm", "sleep", "stat", "test", "true", "umount",
    "wc",
];

pub struct Registry {
    place: tempfile::TempDir,
    process: Option<Child>,
    pub address: String,
}

impl Registry {
    /// Starts an empty registry.
    ///
    /// # Panics
    /// Without `MUSTER_REGISTRY`; scripts/run-tests then reports such tests as left out, by name.
    pub fn start() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("a port").to_string();
        drop(free);
        let config = json!({
            "version": "0.1",
            "log": { "level": "error" },
            "storage": { "filesystem": { "rootdirectory": place.path().join("data") } },
            "http": { "addr": address },
        });
        fs::write(place.path().join("config.yml"), config.to_string()).expect("written");
        let mut registry = Self {
            place,
            process: None,
            address,
        };
        registry.resume();
        registry
    }

    /// Starts it again, with the images that it had.
    pub fn resume(&mut self) {
        let process = Command::new(tool("docker-registry"))
            .arg("serve")
            .arg(self.place.path().join("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.expect("started"));
        for _ in 0..500 {
            if TcpStream::connect(&self.address).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("no registry at {}", self.address);
    }

    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("killed");
        process.wait().expect("reaped");
    }

    /// Stops its process where it is, so that requests get no answer, or continues it.
    pub fn hold(&self, is_held: bool) {
        let process = self.process.as_ref().expect("it runs");
        let pid = rustix::process::Pid::from_child(process);
        let signal = if is_held { Signal::STOP } else { Signal::CONT };
        rustix::process::kill_process(pid, signal).expect("ours");
    }

    /// Name of an image of this registry.
    pub fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }

    /// Pushes an image of these layers (tar archives) for this machine's platform.
    pub fn push(&self, image: &str, layers: Vec<Vec<u8>>) {
        let architecture = match std::env::consts::ARCH {
            "aarch64" => "arm64",
            _ => "amd64",
        };
        self.push_for(image, layers, architecture);
    }

    pub fn push_for(&self, image: &str, layers: Vec<Vec<u8>>, architecture: &str) {
        let reference: Reference = self.name(image).parse().expect("a name");
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": {
                "Env": ["PATH=/bin", "IN_IMAGE=yes", "LD_PRELOAD=/no/such/library"],
                "WorkingDir": "/srv/work", "Entrypoint": ["/bin/false"],
            },
            "rootfs": { "type": "layers", "diff_ids": [] },
        });
        let config = Config::oci_v1(config.to_string().into_bytes(), None);
        let layers: Vec<ImageLayer> = layers
            .into_iter()
            .map(|layer| ImageLayer::oci_v1_gzip(gzip(&layer), None))
            .collect();
        // Another test of this process may have chosen it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::new(ClientConfig {
            protocol: ClientProtocol::Http,
            ..ClientConfig::default()
        });
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let pushed = client.push(&reference, &layers, config, &RegistryAuth::Anonymous, None);
        runtime.block_on(pushed).expect("pushed");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn tool(name: &str) -> PathBuf {
    let folder = std::env::var("MUSTER_REGISTRY");
    let folder = folder.expect("MUSTER_REGISTRY is set: scripts/ensure-registry prints it");
    assert!(!folder.is_empty(), "scripts/ensure-registry found nothing");
    Path::new(&folder).join(name)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).expect("in memory");
    encoder.finish().expect("in memory")
}

/// A layer with busybox and the folder `/srv/work`.
pub fn busybox() -> Vec<u8> {
    let program = fs::read(tool("busybox")).expect("busybox");
    let mut layer = Builder::new(Vec::new());
    for folder in ["bin", "srv", "srv/work", "etc", "root"] {
        add(&mut layer, folder, EntryType::Directory, 0o755, b"");
    }
    add(
        &mut layer,
        "bin/busybox",
        EntryType::Regular,
        0o755,
        &program,
    );
    for name in PROGRAMS {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        layer
            .append_link(&mut header, format!("bin/{name}"), "busybox")
            .expect("in memory");
    }
    add(
        &mut layer,
        "etc/of-image",
        EntryType::Regular,
        0o600,
        b"hello\n",
    );
    layer.into_inner().expect("in memory")
}

/// A layer with one file.
pub fn one_file(path: &str, content: &[u8]) -> Vec<u8> {
    let mut layer = Builder::new(Vec::new());
    add(&mut layer, path, EntryType::Regular, 0o644, content);
    layer.into_inner().expect("in memory")
}

fn add(layer: &mut Builder<Vec<u8>>, path: &str, kind: EntryType, mode: u32, content: &[u8]) {
    let mut header = header(kind, mode, content.len());
    layer
        .append_data(&mut header, path, content)
        .expect("in memory");
}

fn header(kind: EntryType, mode: u32, bytes: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes as u64);
    header.set_mtime(1_600_000_000);
    header
}
