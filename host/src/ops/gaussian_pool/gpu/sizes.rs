//! What kernels count: the window's ways, tiles, and the channels of a block.

use kernels::gaussian_pool::{Axis, DERIVATIVES_ENTRY, Geometry, MAX_LANES, max_tile_columns, tile_rows};

use super::super::plan::{self, Plan};
use super::MAX_COUNT;
use crate::Layout::{ChannelsLast, RowMajor};
use crate::device::tiles;
use crate::{Error, Result};

/// Neighbouring channels that a block takes: all that there are up to a warp's lanes; of more, as many as leave at most a
/// quarter of the threads without a channel.
pub(super) fn lanes(plan: &Plan) -> u32 {
    let channels = plan.channels as u32;
    match plan.layout {
        RowMajor => 1,
        ChannelsLast if channels <= MAX_LANES => channels.next_power_of_two(),
        ChannelsLast => {
            let few_idle =
                |lanes: &u32| u64::from(channels) * 4 >= channels.div_ceil(*lanes) as u64 * *lanes as u64 * 3;
            [MAX_LANES, MAX_LANES / 2].into_iter().find(few_idle).unwrap_or(MAX_LANES / 4)
        }
    }
}

/// The window's ways, for kernels that count along each axis in 32 bits.
pub(super) fn axes(plan: &Plan) -> Result<[Axis; 2]> {
    let image = plan.axes.map(|axis| axis.image);
    // What lies between a Gaussian's first entry of a table and its last: with channels last those of other sets too.
    let sets = if plan.layout == ChannelsLast { plan.sets } else { 1 };
    let fits = |axis: &plan::Axis| {
        let reach = axis.size.saturating_add(2 * axis.padding).saturating_add(axis.image);
        let entries = axis.cases().saturating_mul(axis.size).saturating_mul(sets);
        let vectors = entries.saturating_mul(DERIVATIVES_ENTRY as usize);
        reach.saturating_add(axis.stride).max(vectors) < 1 << 31
    };
    if !plan.axes.iter().all(fits) {
        return Err(Error::Argument {
            op: plan.op,
            argument: "window",
            got: format!("{:?} on an image of {image:?}", plan.window),
            expected:
                "fewer than 2^31 pixels along the padded image, the window and the stride together, and fewer than \
                       2^29 weights for all ways in which windows are cut off, of all channels where these are neighbours"
                    .into(),
        });
    }
    Ok([0, 1].map(|i| {
        let axis = &plan.axes[i];
        let shared = axis.shared();
        Axis {
            image: axis.image as u32,
            output: axis.output as u32,
            size: axis.size as u32,
            stride: axis.stride as u32,
            padding: axis.padding as u32,
            shared_begin: shared.start as u32,
            shared_end: shared.end as u32,
            cases: axis.cases() as u32,
        }
    }))
}

/// The sizes, with tiles of at most so many columns, all of about one width, for planes of this height and width.
pub(super) fn geometry(plan: &Plan, [height, width]: [usize; 2], columns: u32) -> Result<Geometry> {
    let (nhwc, lanes) = (plan.layout == ChannelsLast, lanes(plan));
    let most = max_tile_columns(nhwc, lanes);
    // Lanes leave so few columns that all are worth it.
    let across = width.div_ceil(if nhwc { most } else { columns.clamp(1, most) } as usize);
    let (tile_columns, rows) = (width.div_ceil(across) as u32, tile_rows(nhwc));
    let tiles = [tiles(height, rows), tiles(width, tile_columns)];
    let count = plan.planes().saturating_mul(tiles[0] as usize).saturating_mul(tiles[1] as usize);
    let pixel = if nhwc { plan.channels.saturating_mul(plan.kernels) } else { 1 };
    let row = plan.axes[1].image.max(plan.axes[1].output).saturating_mul(pixel);
    if [count, plan.planes(), plan.channels, plan.gaussians(), row].into_iter().any(|count| count > MAX_COUNT) {
        return Err(Error::Shape {
            op: plan.op,
            argument: "x",
            got: vec![plan.batch, plan.channels, plan.axes[0].image, plan.axes[1].image],
            expected: format!(
                "fewer than 2^31 planes, Gaussians and elements of a row of pixels, and fewer than 2^31 tiles of {rows} x \
                 {tile_columns} pixels in all planes"
            ),
        });
    }
    Ok(Geometry {
        planes: plan.planes() as u32,
        channels: plan.channels as u32,
        kernels: plan.kernels as u32,
        sets: plan.sets as u32,
        axes: axes(plan)?,
        lanes_log: lanes.trailing_zeros(),
        groups: (plan.channels as u32).div_ceil(lanes),
        tile_columns,
        tile_columns_reciprocal: (1u32 << 16).div_ceil(tile_columns),
        tiles,
    })
}

/// Tiles of all planes, which [`geometry`] limits.
pub(in super::super) fn tiles_of_planes(geometry: &Geometry) -> usize {
    geometry.planes as usize * geometry.tiles[0] as usize * geometry.tiles[1] as usize
}

/// Blocks: one for each tile of each group of channels.
pub(super) fn grid(geometry: &Geometry) -> u32 {
    tiles(tiles_of_planes(geometry) / geometry.channels as usize * geometry.groups as usize, 1)
}
