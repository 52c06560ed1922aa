//! Which units a pass is taken apart into.

use cuda_std::prelude::*;

use super::parameters::{before, staged_bytes};
use super::{COLUMNS, ENOUGH, LINE, Lanes, STRIDE, VECTOR, WARPS, WINDOWS, reach, ring, turn};
use crate::gaussian_pool::{Axis, Geometry};

/// The windows, of both axes alike, that there are kernels for, two pixels apart.
const SIZES: [u32; 2] = [3, 11];
/// Gaussians of a channel that there are kernels for, with these windows, beside one.
const MAPS: (u32, u32) = (3, 11);
/// Steps that a part of a plane stores, at least, where planes are few: what windows reach over it is loaded twice.
const STEPS: u32 = 8;
/// Lanes that have columns, of a hundred, from which on instructions do not bound a pass that memory may.
const BUSY: u32 = 60;

/// Steps that a part stores, at most. Where memory bounds the pass, short parts are faster (measured; suspected: what warps read
/// and write at a time lies in fewer planes). Where instructions do, or few lanes are busy, what windows reach over costs
/// more than that.
const fn most_steps(pass: Pass, kernels: u32, size: u32, element: u32, whole: bool, busy: bool) -> u32 {
    match (pass, size, element) {
        _ if kernels > 1 => u32::MAX,
        (Pass::Backward, 3, 4) if busy => 4,
        (Pass::Parameters, 3, 4) => 8,
        (Pass::Backward, 3, 4) => 14,
        (Pass::Forward | Pass::Backward, 3, 2) if busy => 14,
        (Pass::Backward, _, 4) if busy && whole => 12,
        (Pass::Backward, _, 4) if busy => 16,
        _ => u32::MAX,
    }
}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanesPlan {
    /// What the kernel takes.
    pub lanes: Lanes,
    /// Blocks.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Whether a lane's columns are in the image all or not at all, and begin at multiples of four elements.
    pub whole: bool,
    /// Lanes that have columns of the image, of those of all units, in hundredths.
    pub busy: u32,
}

/// Which pass a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Forward,
    Backward,
    Parameters,
}

impl LanesPlan {
    /// For the forward pass of elements of so many bytes; none where the kernels cannot.
    pub fn forward(geometry: &Geometry, variances: u32, element: u32) -> Option<Self> {
        Self::new(geometry, variances, element, Pass::Forward)
    }

    /// For the backward pass, with the gradients of the parameters or not; none where the kernels cannot.
    pub fn backward(geometry: &Geometry, variances: u32, element: u32, parameters: bool) -> Option<Self> {
        Self::new(geometry, variances, element, if parameters { Pass::Parameters } else { Pass::Backward })
    }

    fn new(geometry: &Geometry, variances: u32, element: u32, pass: Pass) -> Option<Self> {
        let [vertical, horizontal] = &geometry.axes;
        let (size, stride, kernels) = (vertical.size, STRIDE as u32, geometry.kernels);
        let alike = [vertical, horizontal].iter().all(|axis| (axis.size, axis.stride, axis.cases) == (size, stride, 1));
        // Each 16 bytes of a row of the image are copied at once.
        let piece = 16 / element;
        let whole = horizontal.image.is_multiple_of(piece) && horizontal.padding.is_multiple_of(stride);
        let several = pass == Pass::Forward || (pass == Pass::Backward && whole);
        let maps = kernels == 1 || (several && (kernels, size) == MAPS);
        let known = alike && SIZES.contains(&size) && maps && (whole || pass == Pass::Backward);
        if !known || geometry.planes == 0 {
            return None;
        }
        // A plane's elements are counted in 32 bits.
        let pixels = |axis: fn(&Axis) -> u32| u64::from(axis(vertical)) * u64::from(axis(horizontal));
        if pixels(|axis| axis.image).max(pixels(|axis| axis.output) * u64::from(kernels)) >= 1 << 31 {
            return None;
        }
        let lead = if whole { horizontal.padding.next_multiple_of(piece) - horizontal.padding } else { 0 };
        let (columns, windows) = (COLUMNS as u32, WINDOWS as u32);
        // The lanes that store, from the first, of a row; and the steps that do.
        let last = |axis: &Axis, padding: u32, by: u32| (axis.image - 1 + axis.padding + padding) / by;
        let (first, all, total) = match pass {
            Pass::Forward => (0, (horizontal.output + lead / stride).div_ceil(windows), vertical.output),
            _ => {
                let first = (horizontal.padding + lead) / columns;
                let total = last(vertical, 0, stride) - vertical.padding / stride + 1;
                (first, last(horizontal, lead, columns) - first + 1, total)
            }
        };
        let beside = if pass == Pass::Parameters { before(size) } else { reach(size) };
        // Of several tiles, each begins where a copy does.
        let most = (warp::WARP_SIZE - beside) / (piece / columns) * (piece / columns);
        let of_tile = if all <= warp::WARP_SIZE - beside { all } else { most };
        let tiles = all.div_ceil(of_tile);
        let units = u64::from(geometry.planes) * u64::from(tiles);
        let busy = horizontal.image.div_ceil(columns) * 100 / (tiles * warp::WARP_SIZE);
        let short = total.div_ceil(most_steps(pass, kernels, size, element, whole, busy >= BUSY));
        let parts = ((u64::from(ENOUGH) / units) as u32).clamp(1, (total / STEPS).max(1)).max(short);
        let steps = total.div_ceil(parts);
        let parts = total.div_ceil(steps);
        let units = u32::try_from(units * u64::from(parts)).ok().filter(|&units| units < 1 << 31)?;
        let ring = ring::bytes(turn(size), element);
        let weights = |tables: u32| 4 * 2 * VECTOR * tables;
        let of_warp = match pass {
            Pass::Forward => weights(kernels) + ring,
            Pass::Backward => weights(kernels) + if whole { 0 } else { LINE * 4 },
            Pass::Parameters => weights(3) + staged_bytes() + ring,
        };
        let lanes = Lanes { units, tiles, lanes: of_tile, parts, steps, total, variances, lead, first };
        Some(Self { lanes, blocks: units.div_ceil(WARPS), shared_bytes: WARPS * of_warp, whole, busy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_planes() {
        for (size, padding) in [(3, 0), (3, 1), (11, 0), (11, 2), (11, 4), (11, 5)] {
            for (image, planes) in (11..700).flat_map(|image| [(image, 1), (image, 5000)]) {
                for (pass, element) in [Pass::Forward, Pass::Backward, Pass::Parameters]
                    .into_iter()
                    .flat_map(|pass| [(pass, 4), (pass, 2)])
                {
                    let output = (image + 2 * padding - size) / 2 + 1;
                    let (stride, shared_begin, shared_end) = (2, 0, output);
                    let axis = Axis { image, output, size, stride, padding, shared_begin, shared_end, cases: 1 };
                    let geometry = Geometry {
                        planes,
                        channels: 1,
                        kernels: 1,
                        sets: 1,
                        axes: [axis; 2],
                        lanes_log: 0,
                        groups: 1,
                        tile_columns: 1,
                        tile_columns_reciprocal: 1 << 16,
                        tiles: [1; 2],
                    };
                    let Some(LanesPlan { lanes, whole, .. }) = LanesPlan::new(&geometry, 1, element, pass) else {
                        assert!(pass != Pass::Backward && (image * element % 16 != 0 || padding % 2 != 0));
                        continue;
                    };
                    let (stored, what) =
                        (lanes.first + lanes.tiles * lanes.lanes, (image, size, padding, pass, element));
                    let beside = if pass == Pass::Parameters { before(size) } else { reach(size) };
                    assert!(lanes.lanes + beside <= warp::WARP_SIZE, "{what:?}");
                    assert!(!whole || (lanes.lead + padding) * element % 16 == 0, "{what:?}");
                    if pass == Pass::Forward {
                        assert!(stored * WINDOWS as u32 >= output + lanes.lead / 2, "{what:?}");
                    } else {
                        assert!(lanes.first * COLUMNS as u32 <= lanes.lead + padding, "{what:?}");
                        assert!(stored * COLUMNS as u32 >= image + lanes.lead + padding, "{what:?}");
                    }
                    assert!(lanes.parts * lanes.steps >= lanes.total && (lanes.parts - 1) * lanes.steps < lanes.total);
                }
            }
        }
    }
}
