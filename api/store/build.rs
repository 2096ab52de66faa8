//! Rebuilds the crate when a migration is added; the macro that embeds them only watches those it has already seen.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
