//! Which units a pass is taken apart into.

use super::ring::VECTOR;
use super::{
    MOST_KERNELS, MOST_SIZE, Matrices, PIXELS, STRIDE, TILES, WARPS, WINDOWS, backward, forward, weights_words,
};
use crate::gaussian_pool::{Axis, Geometry};

/// Steps of a part, at least, where planes are few: a part loads half a step and computes one that it does not store.
const STEPS: u32 = 2;

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatricesPlan {
    /// What the kernel takes.
    pub matrices: Matrices,
    /// Blocks.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Whether rows of windows are of an even number.
    pub even: bool,
    /// Columns of the image or of windows that there are, of a hundred that strips have room for.
    pub busy: u32,
}

impl MatricesPlan {
    /// For the forward pass, by so many blocks at most; none where the kernel cannot.
    pub fn forward(geometry: &Geometry, variances: u32, blocks: u32) -> Option<Self> {
        let horizontal = &geometry.axes[1];
        // Of two fragments' columns a tile's windows are over those from the first vector on.
        if 2 * (WINDOWS - 1) + horizontal.size + forward::lead(horizontal) > 2 * PIXELS {
            return None;
        }
        let outputs = geometry.axes.each_ref().map(|axis| axis.output);
        Self::new(geometry, variances, blocks, outputs, WINDOWS, forward::words)
    }

    /// For the input's gradient, which is written and not added to what is there; likewise.
    pub fn backward(geometry: &Geometry, variances: u32, blocks: u32) -> Option<Self> {
        let [vertical, horizontal] = &geometry.axes;
        let pixels = [vertical.image + vertical.padding, horizontal.image];
        Self::new(geometry, variances, blocks, pixels, PIXELS, backward::words)
    }

    /// Of so many rows and columns, of which a step and a tile have `of_tile`.
    fn new(
        geometry: &Geometry,
        variances: u32,
        most: u32,
        [rows, columns]: [u32; 2],
        of_tile: u32,
        words: fn(usize) -> u32,
    ) -> Option<Self> {
        let [vertical, horizontal] = &geometry.axes;
        let known = |axis: &Axis| axis.size <= MOST_SIZE && axis.stride == STRIDE && axis.cases == 1;
        let kernels = geometry.kernels as usize;
        let several = kernels == 1 || kernels == MOST_KERNELS;
        if !(known(vertical) && known(horizontal) && several) || geometry.planes == 0 {
            return None;
        }
        // A plane's elements are counted in 32 bits, and so are the rows of a step past its last one.
        let pixels = |axis: fn(&Axis) -> u32| u64::from(axis(vertical)) * u64::from(axis(horizontal));
        let elements = pixels(|axis| axis.image).max(pixels(|axis| axis.output) * u64::from(geometry.kernels));
        if !horizontal.image.is_multiple_of(VECTOR) || elements >= 1 << 29 || vertical.image.max(columns) >= 1 << 27 {
            return None;
        }
        let of_strip = of_tile * TILES as u32;
        let (strips, total) = (columns.div_ceil(of_strip), rows.div_ceil(of_tile));
        let busy = (u64::from(columns) * 100 / u64::from(strips * of_strip)) as u32;
        let whole = u64::from(geometry.planes) * u64::from(strips);
        let wanted = (u64::from(most * WARPS) / whole) as u32;
        let steps = total.div_ceil(wanted.clamp(1, (total / STEPS).max(1)));
        let parts = total.div_ceil(steps);
        let units = u32::try_from(whole * u64::from(parts)).ok().filter(|&units| units < 1 << 31)?;
        let matrices = Matrices { units, strips, parts, steps, total, variances };
        Some(Self {
            matrices,
            blocks: units.div_ceil(WARPS).min(most),
            shared_bytes: (weights_words(geometry.sets, geometry.kernels) + WARPS * words(kernels))
                * size_of::<u32>() as u32,
            even: horizontal.output.is_multiple_of(2),
            busy,
        })
    }
}
