//! Rules for dependencies between crates: `deny.toml` for single crates, and a complete list for
//! the pure crates. They apply to normal and build dependencies; tests may use more.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Crates that use only the listed parts of Muster, and all their allowed dependencies.
const PURE: [(&str, &[&str]); 6] = [
    (
        "muster-model",
        &[
            // Metrics in lines of a program's output (decision 0196).
            "regex",
            "serde",
            "serde_json",
            "sha2",
            // Suggestions for unknown fields (decision 0184).
            "strsim",
            "thiserror",
            "time",
            "utoipa",
            "uuid",
        ],
    ),
    (
        "muster-core",
        &[
            "microlp",
            "muster-model",
            "rand_chacha",
            "serde",
            "thiserror",
            "uuid",
        ],
    ),
    (
        "muster-search",
        &[
            "muster-model",
            "nalgebra",
            "rand_chacha",
            "serde",
            "statrs",
            "thiserror",
        ],
    ),
    (
        "muster-compute",
        &[
            "bytemuck",
            "csv",
            "cudarc",
            "flate2",
            "gemm",
            "image",
            "libloading",
            "npyz",
            "rand_chacha",
            "rayon",
            "rustix",
            "safetensors",
            "serde",
            // Only with the feature `emulator`.
            "tempfile",
            "thiserror",
            "zip",
        ],
    ),
    (
        "muster-sim",
        &[
            "muster-core",
            "muster-model",
            "serde",
            "serde_json",
            "thiserror",
            "uuid",
        ],
    ),
    (
        "muster-lab",
        &[
            "csv",
            // Traces are files, plain or compressed.
            "flate2",
            "muster-core",
            "muster-model",
            "muster-sim",
            "serde",
            "thiserror",
            "zstd",
        ],
    ),
];

#[test]
fn guarded_crates_are_used_by_listed_crates_only() {
    let used = dependencies();
    for (guarded, allowed) in law() {
        for (crate_name, dependencies) in &used {
            assert!(
                !dependencies.contains(&guarded) || allowed.contains(crate_name),
                "{crate_name} uses {guarded}, which only {allowed:?} may"
            );
        }
    }
}

/// Otherwise a new crate would have no rule.
#[test]
fn crate_without_rule_is_not_used() {
    let used = dependencies();
    let law = law();
    for (crate_name, dependencies) in &used {
        for dependency in dependencies
            .iter()
            .filter(|dependency| used.contains_key(*dependency))
        {
            assert!(
                law.contains_key(dependency),
                "{crate_name} uses {dependency}, which has no rule in deny.toml"
            );
        }
    }
}

#[test]
fn pure_crates_use_listed_dependencies_only() {
    let used = dependencies();
    for (crate_name, allowed) in PURE {
        let Some(dependencies) = used.get(crate_name) else {
            continue;
        };
        for dependency in dependencies {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{crate_name} uses {dependency}; it may use {allowed:?}"
            );
        }
    }
    assert!(used.contains_key("muster-model") && used.contains_key("muster-core"));
}

/// Crates that `deny.toml` guards, each with its allowed users.
fn law() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let law: toml::Table = text.parse().expect("deny.toml is TOML");
    let rules = law["bans"]["deny"]
        .as_array()
        .expect("bans.deny is a list of rules");
    let rules: BTreeMap<_, _> = rules
        .iter()
        .map(|rule| {
            let guarded = rule["crate"]
                .as_str()
                .expect("each rule names a crate")
                .to_owned();
            let allowed = rule["wrappers"]
                .as_array()
                .expect("each rule has wrappers")
                .iter();
            (
                guarded,
                allowed
                    .map(|name| name.as_str().expect("a wrapper is a name").to_owned())
                    .collect(),
            )
        })
        .collect();
    assert!(
        rules.contains_key("sqlx") && rules.contains_key("muster-store"),
        "deny.toml guards the store"
    );
    rules
}

/// Dependencies of each crate of the workspace, without those of its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--locked",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let name = package["name"].as_str().expect("a name").to_owned();
            let dependencies = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter();
            let kept = dependencies.filter(|dependency| dependency["kind"].as_str() != Some("dev"));
            (
                name,
                kept.map(|dependency| dependency["name"].as_str().expect("a name").to_owned())
                    .collect(),
            )
        })
        .collect()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
