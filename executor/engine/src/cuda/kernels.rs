//! The kernels' source, one for all devices.

use super::product::Kind;

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

/// For values of this kind.
pub(crate) fn source(kind: Kind) -> String {
    let define = match kind {
        Kind::F32 => "",
        Kind::Bf16 => "#define BF16\n",
    };
    format!("{define}{}", FILES.join("\n"))
}

/// Of all kernels, in the order of the source.
pub(crate) fn names() -> Vec<&'static str> {
    let after = FILES
        .iter()
        .flat_map(|file| file.split("extern \"C\" __global__ void ").skip(1));
    after
        .map(|text| {
            text.split('(')
                .next()
                .expect("a kernel has arguments")
                .trim()
        })
        .collect()
}
