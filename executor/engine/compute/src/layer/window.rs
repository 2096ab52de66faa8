//! Geometry of the windows of convolution and pooling on an image, and the patches below them
//! (im2col and col2im).
//!
//! A patch has kernel height × kernel width × channels elements, in the order of a convolution's
//! weight block. Positions in the padding count as 0. In NHWC order the columns of a patch's row
//! are adjacent, so both directions move runs of kernel width × channels elements.

use crate::simd::vectorised;
use std::ops::Range;

/// Windows on an image. Arrays hold height, then width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ImageWindows {
    pub(crate) image: [usize; 2],
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    /// Rows (columns) of padding on each side.
    pub(crate) padding: [usize; 2],
}

/// Part of a window that is on the image, along one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowSpan {
    /// First position in the window.
    pub(crate) tap: usize,
    /// First position on the image.
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl ImageWindows {
    /// Number of windows along each side.
    pub(crate) fn output(&self) -> [usize; 2] {
        [0, 1].map(|side| {
            (self.image[side] + 2 * self.padding[side] - self.kernel[side]) / self.stride[side] + 1
        })
    }

    pub(crate) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Whether each position of the image is one window.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Returns the part on the image of window `index` along `side`.
    #[inline(always)]
    pub(crate) fn span(&self, side: usize, index: usize) -> WindowSpan {
        let (start, padding) = (index * self.stride[side], self.padding[side]);
        let tap = padding.saturating_sub(start).min(self.kernel[side]);
        let end = (start + self.kernel[side])
            .min(self.image[side] + padding)
            .max(start + tap);
        WindowSpan {
            tap,
            at: (start + tap).saturating_sub(padding),
            len: end - start - tap,
        }
    }

    /// Returns the windows along `side` that are completely on the image.
    #[inline(always)]
    pub(crate) fn inner(&self, side: usize) -> Range<usize> {
        let (stride, padding) = (self.stride[side], self.padding[side]);
        let first = padding.div_ceil(stride);
        let covered = self.image[side] + padding;
        let end = match covered.checked_sub(self.kernel[side]) {
            None => 0,
            Some(last) => last / stride + 1,
        };
        first..end.min(self.output()[side]).max(first)
    }
}

/// Channels of an image that patches contain: all of them, or those of one group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PatchChannels {
    pub(crate) all: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// Copies the patches of the windows of row `y`. `LINE` is kernel width × channels, or 0 if this is
/// unknown at compile time. A constant turns each copy into a few instructions instead of a call,
/// which matters for short runs.
#[inline(always)]
fn gather_lines<const LINE: usize>(
    window: &ImageWindows,
    image: &[f32],
    y: usize,
    channels: PatchChannels,
    patches: &mut [f32],
) {
    let line = if LINE == 0 {
        window.kernel[1] * channels.count
    } else {
        LINE
    };
    let patch_len = window.kernel[0] * line;
    let rows = window.span(0, y);
    let inner = window.inner(1);
    let whole = channels.count == channels.all;
    for ky in 0..window.kernel[0] {
        let targets = patches
            .chunks_exact_mut(patch_len)
            .map(|patch| &mut patch[ky * line..][..line]);
        if !(rows.tap..rows.tap + rows.len).contains(&ky) {
            targets.for_each(|target| target.fill(0.0));
            continue;
        }
        let row_len = window.image[1] * channels.all;
        let source = &image[(rows.at + ky - rows.tap) * row_len..][..row_len];
        for (x, target) in targets.enumerate() {
            if whole && inner.contains(&x) {
                let at = x * window.stride[1] - window.padding[1];
                target.copy_from_slice(&source[at * channels.all..][..line]);
                continue;
            }
            let span = window.span(1, x);
            target.fill(0.0);
            let target = &mut target[span.tap * channels.count..][..span.len * channels.count];
            let source = source.chunks_exact(channels.all).skip(span.at);
            for (target, source) in target.chunks_exact_mut(channels.count).zip(source) {
                target.copy_from_slice(&source[channels.first..][..channels.count]);
            }
        }
    }
}

vectorised! {
    /// `image` is height × width × all channels; `patches` receives the patches of the windows of
    /// row `y`.
    pub(crate) fn gather(
        window: &ImageWindows,
        image: &[f32],
        y: usize,
        channels: PatchChannels,
        patches: &mut [f32],
    ) {
        let line = window.kernel[1] * channels.count;
        match line {
            3 => gather_lines::<3>(window, image, y, channels, patches),
            5 => gather_lines::<5>(window, image, y, channels, patches),
            9 => gather_lines::<9>(window, image, y, channels, patches),
            21 => gather_lines::<21>(window, image, y, channels, patches),
            24 => gather_lines::<24>(window, image, y, channels, patches),
            48 => gather_lines::<48>(window, image, y, channels, patches),
            _ => gather_lines::<0>(window, image, y, channels, patches),
        }
    }

    /// Transpose of [`gather`]: adds the patches to the elements of the image.
    pub(crate) fn scatter(
        window: &ImageWindows,
        patches: &[f32],
        y: usize,
        channels: PatchChannels,
        image: &mut [f32],
    ) {
        let line = window.kernel[1] * channels.count;
        let rows = window.span(0, y);
        let row_len = window.image[1] * channels.all;
        for (x, patch) in patches.chunks_exact(window.kernel[0] * line).enumerate() {
            let span = window.span(1, x);
            let lines = patch.chunks_exact(line).skip(rows.tap).take(rows.len);
            for (row, part) in lines.enumerate() {
                let target = &mut image[(rows.at + row) * row_len + span.at * channels.all..];
                let part = &part[span.tap * channels.count..][..span.len * channels.count];
                if channels.count == channels.all {
                    add(&mut target[..part.len()], part);
                    continue;
                }
                for (target, part) in target.chunks_mut(channels.all).zip(part.chunks_exact(channels.count)) {
                    add(&mut target[channels.first..][..channels.count], part);
                }
            }
        }
    }
}

#[inline(always)]
fn add(sum: &mut [f32], part: &[f32]) {
    for (sum, part) in sum.iter_mut().zip(part) {
        *sum += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::math::dot;

    /// Image, kernel, stride and padding; channels, first channel and number of channels of the
    /// group. The cases include strides with a remainder, windows with padding on both ends, and
    /// groups.
    const CASES: [([[usize; 2]; 4], [usize; 3]); 10] = [
        ([[5, 6], [3, 3], [1, 1], [1, 1]], [1, 0, 1]),
        ([[5, 6], [3, 3], [1, 1], [1, 1]], [3, 0, 3]),
        ([[7, 8], [3, 3], [2, 2], [1, 1]], [2, 0, 2]),
        ([[11, 9], [7, 5], [2, 3], [3, 2]], [3, 0, 3]),
        ([[4, 6], [1, 3], [1, 1], [0, 1]], [2, 0, 2]),
        ([[2, 1], [3, 3], [1, 1], [1, 1]], [4, 0, 4]),
        ([[1, 1], [5, 5], [1, 1], [2, 2]], [2, 0, 2]),
        ([[6, 5], [2, 2], [2, 2], [0, 0]], [1, 0, 1]),
        ([[5, 5], [3, 3], [1, 2], [1, 0]], [6, 2, 2]),
        ([[6, 7], [3, 3], [2, 2], [1, 1]], [4, 3, 1]),
    ];

    fn window(index: usize) -> (ImageWindows, PatchChannels) {
        let ([image, kernel, stride, padding], [all, first, count]) = CASES[index];
        let window = ImageWindows {
            image,
            kernel,
            stride,
            padding,
        };
        (window, PatchChannels { all, first, count })
    }

    /// Direct implementation of the definition.
    fn expected(
        window: &ImageWindows,
        image: &[f32],
        y: usize,
        channels: PatchChannels,
    ) -> Vec<f32> {
        let mut out = Vec::new();
        for x in 0..window.output()[1] {
            for (ky, kx) in
                (0..window.taps()).map(|tap| (tap / window.kernel[1], tap % window.kernel[1]))
            {
                for c in channels.first..channels.first + channels.count {
                    let place = [(0, y, ky), (1, x, kx)].map(|(side, index, tap)| {
                        (index * window.stride[side] + tap)
                            .checked_sub(window.padding[side])
                            .filter(|&at| at < window.image[side])
                    });
                    out.push(match place {
                        [Some(row), Some(column)] => {
                            image[(row * window.image[1] + column) * channels.all + c]
                        }
                        _ => 0.0,
                    });
                }
            }
        }
        out
    }

    #[test]
    fn gather_equals_definition() {
        for index in 0..CASES.len() {
            let (window, channels) = window(index);
            let len = window.image[0] * window.image[1] * channels.all;
            let image: Vec<f32> = (1..=len).map(|i| i as f32).collect();
            for y in 0..window.output()[0] {
                let expected = expected(&window, &image, y, channels);
                let mut patches = vec![f32::NAN; expected.len()];
                gather(&window, &image, y, channels, &mut patches);
                assert_eq!(patches, expected, "{window:?} row {y}");
            }
        }
    }

    /// ⟨gather(a), b⟩ = ⟨a, scatter(b)⟩; with small whole numbers both sides are exact.
    #[test]
    fn scatter_is_the_transpose_of_gather() {
        for index in 0..CASES.len() {
            let (window, channels) = window(index);
            let len = window.image[0] * window.image[1] * channels.all;
            let a: Vec<f32> = (0..len).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
            for y in 0..window.output()[0] {
                let patches = window.output()[1] * window.taps() * channels.count;
                let b: Vec<f32> = (0..patches).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
                let (mut gathered, mut scattered) = (vec![0.0; patches], vec![0.0; len]);
                gather(&window, &a, y, channels, &mut gathered);
                scatter(&window, &b, y, channels, &mut scattered);
                assert_eq!(dot(&gathered, &b), dot(&a, &scattered), "{window:?}");
            }
        }
    }
}
