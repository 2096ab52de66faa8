//! Rebuilds the crate when a migration is added. The macro that embeds migrations watches only the
//! files that it has already seen.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
