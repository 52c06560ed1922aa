//! The sizes of a pass: what its kernels read of planes, windows and tiles.

use cuda_std::prelude::*;

use super::divide;

/// A window's way along one axis; all below 2³¹, also `image + 2 * padding + size`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Pixels.
    pub image: u32,
    /// Windows.
    pub output: u32,
    /// Positions of a window.
    pub size: u32,
    /// Pixels from one window to the next.
    pub stride: u32,
    /// Pixels by which the first window begins before the image; at most half of `size`.
    pub padding: u32,
    /// The windows from this one to before `shared_end` have one vector of weights. Each one before has its own, counted
    /// from 0; the shared one follows, then those of each one after.
    pub shared_begin: u32,
    /// See `shared_begin`.
    pub shared_end: u32,
    /// How many vectors there are.
    pub cases: u32,
}

/// Sizes of a pass; none is zero but `planes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Batch times channels.
    pub planes: u32,
    /// Planes of each image.
    pub channels: u32,
    /// Gaussians for each plane, in order in the output's channels.
    pub kernels: u32,
    /// Sets of parameters: 1, or `channels`.
    pub sets: u32,
    /// Vertical and horizontal. A row of the input or the output, all that lie between two neighbours of a column, has fewer
    /// than 2³² elements, and so have a Gaussian's entries in a table of weights with all that lie between them.
    pub axes: [Axis; 2],
    /// The logarithm to base 2 of the lanes of a block; 0 where planes follow each other.
    pub lanes_log: u32,
    /// Groups of as many channels, which cover an image's.
    pub groups: u32,
    /// Columns of a tile, up to [`max_tile_columns`](super::max_tile_columns).
    pub tile_columns: u32,
    /// 2¹⁶ by `tile_columns`, rounded up: a number below 256 is divided by it exactly.
    pub tile_columns_reciprocal: u32,
    /// Tiles that cover a plane of what the pass writes, vertically and horizontally; of all planes fewer than 2³¹.
    pub tiles: [u32; 2],
}

// SAFETY: `repr(C)` with only `u32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Geometry {}

impl Axis {
    /// The vector of weights that a window has.
    #[device_inline]
    pub(super) fn case(&self, output: u32) -> u32 {
        output.min(self.shared_begin) + (output + 1).saturating_sub(self.shared_end)
    }

    /// Whether any window covers this pixel of the image; anything for one before or after it.
    #[device_inline]
    pub(super) fn is_covered(&self, pixel: u32) -> bool {
        let padded = pixel.wrapping_add(self.padding);
        let reach = (self.output - 1) * self.stride + self.size;
        // Only windows that leave gaps between them need the division.
        padded < reach && (self.stride <= self.size || divide(padded, self.stride).1 < self.size)
    }

    /// The windows that cover any of `count` pixels from `pixel` on: the first, and the one after the last. None when the
    /// second is not greater.
    #[device_inline]
    pub(super) fn covering(&self, pixel: u32, count: u32) -> (u32, u32) {
        let padded = pixel + self.padding;
        let begin = divide((padded + self.stride).saturating_sub(self.size), self.stride).0;
        let end = divide(padded + count - 1, self.stride).0 + 1;
        (begin, end.min(self.output))
    }
}

impl Geometry {
    /// Field by field: an index would put both axes into local memory.
    #[device_inline]
    pub(super) fn axis(&self, vertical: bool) -> Axis {
        let [y, x] = &self.axes;
        let choose = |y: u32, x: u32| if vertical { y } else { x };
        Axis {
            image: choose(y.image, x.image),
            output: choose(y.output, x.output),
            size: choose(y.size, x.size),
            stride: choose(y.stride, x.stride),
            padding: choose(y.padding, x.padding),
            shared_begin: choose(y.shared_begin, x.shared_begin),
            shared_end: choose(y.shared_end, x.shared_end),
            cases: choose(y.cases, x.cases),
        }
    }

    /// Where a Gaussian's entries of a table of weights begin, in entries.
    #[device_inline]
    pub(super) fn first_entry(&self, nhwc: bool, axis: &Axis, set: u32, kernel: u32) -> usize {
        let (entries, set, kernel) = ((axis.cases * axis.size) as usize, set as usize, kernel as usize);
        if nhwc {
            kernel * entries * self.sets as usize + set
        } else {
            (set * self.kernels as usize + kernel) * entries
        }
    }

    /// Entries from one of a Gaussian to its next: lanes, which have neighbouring sets, load neighbouring entries.
    #[device_inline]
    pub(super) fn entry_step(&self, nhwc: bool) -> u32 {
        if nhwc { self.sets } else { 1 }
    }
}
