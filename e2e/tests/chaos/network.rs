//! Hosts as network namespaces of this machine on one bridge, with links that can be cut.

use crate::schedule::{ChaosHost, DATABASES};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// Hardware address that no host has: packets to it are lost silently.
const NOWHERE: &str = "02:00:00:00:00:99";
const PREFIX: &str = "mch";

/// Namespaces, bridge and links; removed on drop.
#[derive(Debug)]
pub struct ChaosNetwork {
    /// Prefix of the names of this process's bridge and namespaces.
    name: String,
    /// First three numbers of every address.
    subnet: String,
    /// Last number of each host's address.
    hosts: BTreeMap<ChaosHost, usize>,
    /// Postgres server that has the address for clients.
    database: Mutex<usize>,
}

impl ChaosNetwork {
    /// Creates the network of `hosts`.
    ///
    /// # Errors
    /// If this machine or this user cannot create it.
    pub fn create(hosts: &[ChaosHost]) -> Result<Self, String> {
        remove_left();
        let pid = std::process::id();
        let network = Self {
            name: format!("{PREFIX}{pid}"),
            subnet: format!("10.{}.{}", 128 + (pid / 250) % 100, pid % 250),
            hosts: hosts.iter().copied().zip(2..).collect(),
            database: Mutex::new(0),
        };
        let bridge = &network.name;
        ip(&["link", "add", bridge, "type", "bridge"])?;
        let gateway = format!("{}/24", network.gateway());
        ip(&["addr", "add", &gateway, "dev", bridge])?;
        ip(&["link", "set", bridge, "up"])?;
        for host in hosts {
            let (space, port) = (network.namespace(*host), network.port(*host));
            let address = format!("{}/24", network.address(*host));
            ip(&["netns", "add", &space])?;
            ip(&[
                "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space,
            ])?;
            ip(&["link", "set", &port, "master", bridge, "up"])?;
            ip(&["-n", &space, "addr", "add", &address, "dev", "eth0"])?;
            for device in ["lo", "eth0"] {
                ip(&["-n", &space, "link", "set", device, "up"])?;
            }
        }
        network.move_database(0);
        Ok(network)
    }

    /// Address of Postgres for clients, independent of the leading server.
    pub fn database_address(&self) -> String {
        format!("{}.250", self.subnet)
    }

    /// Server that has this address.
    pub fn database(&self) -> usize {
        *self.database.lock().expect("no panic")
    }

    /// Removes the address from both servers, as if the leading one were gone.
    pub fn withdraw_database(&self) {
        for number in 0..DATABASES {
            let space = self.namespace(ChaosHost::Postgres(number));
            let address = format!("{}/24", self.database_address());
            // One of them does not have it.
            let _ = ip(&["-n", &space, "addr", "del", &address, "dev", "eth0"]);
        }
    }

    /// Assigns the address to one server and announces it.
    pub fn move_database(&self, number: usize) {
        self.withdraw_database();
        *self.database.lock().expect("no panic") = number;
        let (space, address) = (
            self.namespace(ChaosHost::Postgres(number)),
            self.database_address(),
        );
        let with_mask = format!("{address}/24");
        said(ip(&[
            "-n", &space, "addr", "add", &with_mask, "dev", "eth0",
        ]));
        let _ = ip(&["neigh", "flush", "to", &address]);
        for host in self.hosts.keys() {
            let _ = ip(&[
                "-n",
                &self.namespace(*host),
                "neigh",
                "flush",
                "to",
                &address,
            ]);
        }
    }

    /// Addresses at which other hosts reach the host.
    fn addresses(&self, host: ChaosHost) -> Vec<String> {
        let mut addresses = vec![self.address(host)];
        if host == ChaosHost::Postgres(self.database()) {
            addresses.push(self.database_address());
        }
        addresses
    }

    pub fn address(&self, host: ChaosHost) -> String {
        format!("{}.{}", self.subnet, self.hosts[&host])
    }

    /// Address of this process.
    pub fn gateway(&self) -> String {
        format!("{}.1", self.subnet)
    }

    pub fn subnet(&self) -> String {
        format!("{}.0/24", self.subnet)
    }

    pub fn path(&self, host: ChaosHost) -> PathBuf {
        PathBuf::from("/run/netns").join(self.namespace(host))
    }

    /// Drops all packets between the two hosts silently.
    pub fn cut(&self, one: ChaosHost, other: ChaosHost) {
        let to_nowhere = ["lladdr", NOWHERE, "nud", "permanent"];
        self.between(one, other, "replace", &to_nowhere);
    }

    pub fn join(&self, one: ChaosHost, other: ChaosHost) {
        self.between(one, other, "del", &[]);
    }

    fn between(&self, one: ChaosHost, other: ChaosHost, change: &str, rest: &[&str]) {
        for (from, to) in [(one, other), (other, one)] {
            let space = self.namespace(from);
            for address in self.addresses(to) {
                let arguments = ["-n", &space, "neigh", change, &address, "dev", "eth0"];
                said(ip(&[&arguments, rest].concat()));
            }
        }
    }

    pub fn isolate(&self, host: ChaosHost) {
        said(ip(&["link", "set", &self.port(host), "down"]));
    }

    pub fn connect(&self, host: ChaosHost) {
        said(ip(&["link", "set", &self.port(host), "up"]));
    }

    fn namespace(&self, host: ChaosHost) -> String {
        format!("{}-{host}", self.name)
    }

    /// The host's end in the bridge; at most 15 characters.
    fn port(&self, host: ChaosHost) -> String {
        format!("{}-{}", self.name, self.hosts[&host])
    }
}

impl Drop for ChaosNetwork {
    fn drop(&mut self) {
        for host in self.hosts.keys() {
            let _ = ip(&["netns", "del", &self.namespace(*host)]);
            let _ = ip(&["link", "del", &self.port(*host)]);
        }
        let _ = ip(&["link", "del", &self.name]);
    }
}

/// Remaining namespaces and bridges of this story.
pub fn left(pid: u32) -> Vec<String> {
    let name = format!("{PREFIX}{pid}");
    let all = ip(&["netns", "list"]).unwrap_or_default() + &ip(&["-o", "link"]).unwrap_or_default();
    let lines = all.lines().filter(|line| line.contains(&name));
    lines.map(str::to_owned).collect()
}

/// Whether the process lives whose id the name begins with.
fn lives(name: &str) -> bool {
    let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
    std::path::Path::new("/proc").join(digits).exists()
}

/// Removes the remains of killed runs of this story.
fn remove_left() {
    for line in ip(&["netns", "list"]).unwrap_or_default().lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if name.strip_prefix(PREFIX).is_some_and(|rest| !lives(rest)) {
            let _ = ip(&["netns", "del", name]);
        }
    }
    let bridges = ip(&["-o", "link", "show", "type", "bridge"]).unwrap_or_default();
    for name in bridges.lines().filter_map(|line| line.split(": ").nth(1)) {
        if name.strip_prefix(PREFIX).is_some_and(|rest| !lives(rest)) {
            let _ = ip(&["link", "del", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("run ip: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), said.trim()))
}

fn said(outcome: Result<String, String>) {
    if let Err(error) = outcome {
        eprintln!("chaos: {error}");
    }
}
