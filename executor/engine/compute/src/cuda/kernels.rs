//! Source of the kernels, common to all devices.

use super::product::ElementType;

const FILES: [&str; 9] = [
    include_str!("kernels/head.cu"),
    include_str!("kernels/elementwise.cu"),
    include_str!("kernels/columns.cu"),
    include_str!("kernels/normalise.cu"),
    include_str!("kernels/window.cu"),
    include_str!("kernels/pooling.cu"),
    include_str!("kernels/sequence.cu"),
    include_str!("kernels/loss.cu"),
    include_str!("kernels/update.cu"),
];

/// Kernels that use tensor cores on bf16 values.
const OF_BF16: &str = include_str!("kernels/attention.cu");

fn files(kind: ElementType) -> impl Iterator<Item = &'static str> {
    let more = (kind == ElementType::Bf16).then_some(OF_BF16);
    FILES.into_iter().chain(more)
}

/// Returns the source for values of this kind.
pub(crate) fn source(kind: ElementType) -> String {
    let define = match kind {
        ElementType::F32 => "",
        ElementType::Bf16 => "#define BF16\n",
    };
    let files: Vec<&str> = files(kind).collect();
    format!("{define}{}", files.join("\n"))
}

/// Returns the names of all kernels for values of this kind, in the order of the source.
pub(crate) fn names(kind: ElementType) -> Vec<&'static str> {
    let after = files(kind).flat_map(|file| file.split("extern \"C\" __global__ void ").skip(1));
    after
        .map(|text| {
            text.split('(')
                .next()
                .expect("a kernel has arguments")
                .trim()
        })
        .collect()
}
