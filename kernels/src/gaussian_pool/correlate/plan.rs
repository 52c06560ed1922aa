//! How a pass is shared by blocks.

use super::last::{SHARED_BYTES, channels};
use super::{CORRELATE_THREADS, Correlate, OPEN, PIXELS, SIZE, STRIDE, WARPS};
use crate::gaussian_pool::Geometry;

/// Blocks that run at once: on a GPU with fewer or more multiprocessors than an H200, the last round of blocks is less even.
const AT_ONCE: u32 = 132 * 3;
/// Steps of a block, at least, that those before its first are worth, and at most: tensor cores cut off what they add, so that long
/// sums lose digits.
const LEAST: u32 = 8;
const MOST: u32 = 64;

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorrelatePlan {
    /// What the kernel takes.
    pub parts: Correlate,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Channels and columns that there are, of those that warps have room for, in hundredths.
    pub busy: u32,
}

impl CorrelatePlan {
    /// With the channels last, of elements of this type; none where the kernel cannot.
    pub fn last<T>(geometry: &Geometry, variances: u32) -> Option<Self> {
        let sizes = (SIZE as u32, STRIDE as u32, 1);
        let alike = geometry.axes.iter().all(|axis| (axis.size, axis.stride, axis.cases) == sizes);
        // Pixels begin at multiples of 16 bytes.
        let whole = geometry.channels.is_multiple_of(channels::<T>() / 4);
        if !(alike && whole && geometry.kernels == 1 && geometry.sets == 1 && geometry.planes > 0) {
            return None;
        }
        let [vertical, horizontal] = &geometry.axes;
        let groups = geometry.channels.div_ceil(channels::<T>());
        let wide = (horizontal.output - 1) * STRIDE as u32 + SIZE as u32;
        let tiles = wide.div_ceil(PIXELS);
        // The last row of windows is open for as many steps more.
        let steps = vertical.output + OPEN as u32 - 1;
        let columns = u64::from(geometry.planes / geometry.channels) * u64::from(tiles) * u64::from(groups);
        let total = columns.div_ceil(u64::from(WARPS)) * u64::from(steps);
        let (columns, total) =
            (u32::try_from(columns).ok()?, u32::try_from(total).ok().filter(|&total| total < 1 << 31)?);
        let each = total.div_ceil(AT_ONCE).clamp(LEAST, MOST);
        let busy = u64::from(geometry.channels) * u64::from(wide) * 100
            / (u64::from(groups * channels::<T>()) * u64::from(tiles * PIXELS));
        Some(Self {
            parts: Correlate { groups, tiles, columns, steps, each, total, variances },
            blocks: total.div_ceil(each),
            threads: CORRELATE_THREADS,
            shared_bytes: SHARED_BYTES,
            busy: busy as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::prelude::*;

    use super::*;
    use crate::gaussian_pool::Axis;

    fn geometry(images: u32, channels: u32, [height, width]: [u32; 2], padding: u32) -> Geometry {
        let axes = [height, width].map(|image| {
            let (output, size, stride) = ((image + 2 * padding - 11) / 2 + 1, SIZE as u32, STRIDE as u32);
            Axis { image, output, size, stride, padding, shared_begin: 0, shared_end: output, cases: 1 }
        });
        Geometry {
            planes: images * channels,
            channels,
            kernels: 1,
            sets: 1,
            axes,
            lanes_log: 0,
            groups: 1,
            tile_columns: 1,
            tile_columns_reciprocal: 1 << 16,
            tiles: [1; 2],
        }
    }

    #[test]
    fn blocks_cover_all_steps_and_tiles_all_windows() {
        for (images, channels) in [(1, 8), (3, 72), (64, 64), (1000, 256)] {
            for (size, padding) in [([11, 12], 0), ([14, 14], 5), ([112, 112], 0), ([300, 41], 4)] {
                let geometry = geometry(images, channels, size, padding);
                let CorrelatePlan { parts, blocks, busy, .. } = CorrelatePlan::last::<f16>(&geometry, 1).unwrap();
                assert!((blocks - 1) * parts.each < parts.total && parts.total <= blocks * parts.each);
                assert!(parts.each <= MOST && busy <= 100);
                assert_eq!(parts.columns, images * parts.tiles * channels.div_ceil(32));
                assert!(parts.columns * parts.steps <= parts.total * WARPS);
                // The last window of a row begins in a tile or in the one before, and its last row meets the last step.
                let [vertical, horizontal] = &geometry.axes;
                assert!(2 * (horizontal.output - 1) + 11 <= parts.tiles * PIXELS);
                assert!(2 * (vertical.output - 1) + 11 <= parts.steps * 2);
            }
        }
    }

    #[test]
    fn what_the_kernel_cannot_is_refused() {
        let right = geometry(2, 24, [40, 40], 2);
        assert!(CorrelatePlan::last::<f16>(&right, 1).is_some());
        assert!(CorrelatePlan::last::<f16>(&Geometry { channels: 12, ..right }, 1).is_none());
        assert!(CorrelatePlan::last::<f16>(&Geometry { kernels: 3, ..right }, 1).is_none());
        assert!(CorrelatePlan::last::<f16>(&Geometry { sets: 24, ..right }, 1).is_none());
        let [vertical, horizontal] = right.axes;
        let cut = Axis { cases: 3, ..vertical };
        assert!(CorrelatePlan::last::<f16>(&Geometry { axes: [cut, horizontal], ..right }, 1).is_none());
    }
}
