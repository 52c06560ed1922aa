//! How a pass is taken apart into blocks.

use super::{
    OPEN, SIZE, STRIDE, Spread, Staged, backward_blocks, backward_pairs, backward_shared_bytes, backward_threads,
    channels, forward_blocks, forward_columns, forward_shared_bytes, forward_threads,
};
use crate::gaussian_pool::Geometry;

/// Multiprocessors that blocks are shared out to; on a GPU with fewer or more, the last round of blocks is less even.
const MULTIPROCESSORS: u64 = 132;
/// What a block takes before its first step, in steps: suspected, of the latency of the parameters and of the first columns.
const BEFORE: u64 = 8;

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedPlan {
    /// What the kernel takes.
    pub staged: Staged,
    /// Gaussians of the map.
    pub kernels: u32,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Channels and columns that there are, of those that blocks have room for, in hundredths.
    pub busy: u32,
}

/// What a pass asks of a plan.
struct Needs {
    /// Of parts, down and across.
    total: [u32; 2],
    /// Columns of a block.
    columns: u32,
    /// Rows of a part, at most.
    rows: u32,
    threads: u32,
    /// Blocks of a multiprocessor.
    resident: u32,
    shared_bytes: u32,
}

impl StagedPlan {
    /// For the forward pass over elements of this type; none where the kernels cannot.
    pub fn forward<T: Spread>(geometry: &Geometry, variances: u32) -> Option<Self> {
        let kernels = geometry.kernels;
        let needs = Needs {
            total: geometry.axes.map(|axis| axis.output),
            columns: forward_columns::<T>(kernels),
            rows: u32::MAX,
            threads: forward_threads::<T>(kernels),
            resident: forward_blocks::<T>(kernels),
            shared_bytes: forward_shared_bytes::<T>(kernels),
        };
        Self::new::<T>(geometry, variances, needs)
    }

    /// For the backward pass, of the input's gradient.
    pub fn backward<T: Spread>(geometry: &Geometry, variances: u32) -> Option<Self> {
        let (kernels, stride) = (geometry.kernels, STRIDE as u32);
        let needs = Needs {
            // Pairs of pixels, from that in which the padding ends.
            total: geometry.axes.map(|axis| {
                let last = (axis.padding + axis.image - 1) / stride;
                last + 1 - axis.padding / stride
            }),
            columns: backward_pairs::<T>(kernels),
            // Of parts that are lower what is written at a time lies closer together; where memory bounds the pass, that counts.
            rows: if kernels == 1 && size_of::<T>() == 4 { 10 } else { u32::MAX },
            threads: backward_threads::<T>(kernels),
            resident: backward_blocks::<T>(kernels),
            shared_bytes: backward_shared_bytes::<T>(kernels),
        };
        Self::new::<T>(geometry, variances, needs)
    }

    fn new<T: Spread>(geometry: &Geometry, variances: u32, needs: Needs) -> Option<Self> {
        let (kernels, element) = (geometry.kernels, size_of::<T>() as u32);
        let sizes = (SIZE as u32, STRIDE as u32, 1);
        let alike = geometry.axes.iter().all(|axis| (axis.size, axis.stride, axis.cases) == sizes);
        // Pixels begin at multiples of 16 bytes.
        let whole = geometry.channels.is_multiple_of(16 / element);
        if !(alike && whole && [1, 3].contains(&kernels) && geometry.sets == 1 && geometry.planes > 0) {
            return None;
        }
        let [rows, columns] = needs.total;
        let groups = geometry.channels.div_ceil(channels(element));
        let of_part = columns.div_ceil(columns.div_ceil(needs.columns));
        let across = columns.div_ceil(of_part);
        let each = u64::from(geometry.planes / geometry.channels) * u64::from(groups) * u64::from(across);
        let at_once = MULTIPROCESSORS * u64::from(needs.resident);
        // Rounds of blocks, by the steps of each.
        let cost = |down: u32| {
            let of_part = rows.div_ceil(down);
            let blocks = each * u64::from(rows.div_ceil(of_part));
            blocks.div_ceil(at_once) * (u64::from(of_part) + OPEN as u64 - 1 + BEFORE)
        };
        let least = rows.div_ceil(needs.rows);
        let down = (least..=rows.div_ceil(OPEN as u32).max(least)).min_by_key(|&down| cost(down))?;
        let of_part = [rows.div_ceil(down), of_part];
        let down = rows.div_ceil(of_part[0]);
        let blocks = u32::try_from(each * u64::from(down)).ok().filter(|&blocks| blocks < 1 << 31)?;
        let room = u64::from(groups * channels(element)) * u64::from(across * needs.columns);
        let busy = u64::from(geometry.channels) * u64::from(columns) * 100 / room;
        let [rows, columns] = of_part;
        Some(Self {
            staged: Staged { groups, parts: [down, across], rows, columns, total: needs.total, variances },
            kernels,
            blocks,
            threads: needs.threads,
            shared_bytes: needs.shared_bytes,
            busy: busy as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::prelude::*;

    use super::*;
    use crate::gaussian_pool::Axis;

    #[test]
    fn parts_cover_images() {
        for (image, padding) in (11..300).flat_map(|image| [(image, 0), (image, 1), (image, 5)]) {
            for (kernels, images) in [(1, 1), (3, 1), (1, 200), (3, 3)] {
                let (output, stride) = ((image + 2 * padding - 11) / 2 + 1, STRIDE as u32);
                let (size, shared_begin, shared_end) = (SIZE as u32, 0, output);
                let axis = Axis { image, output, size, stride, padding, shared_begin, shared_end, cases: 1 };
                let geometry = Geometry {
                    planes: images * 72,
                    channels: 72,
                    kernels,
                    sets: 1,
                    axes: [axis; 2],
                    lanes_log: 0,
                    groups: 1,
                    tile_columns: 1,
                    tile_columns_reciprocal: 1 << 16,
                    tiles: [1; 2],
                };
                let all = [
                    (StagedPlan::forward::<f32>(&geometry, 1), forward_columns::<f32>(kernels)),
                    (StagedPlan::forward::<f16>(&geometry, 1), forward_columns::<f16>(kernels)),
                    (StagedPlan::backward::<f32>(&geometry, 1), backward_pairs::<f32>(kernels)),
                    (StagedPlan::backward::<bf16>(&geometry, 1), backward_pairs::<bf16>(kernels)),
                ];
                for (plan, most) in all {
                    let plan = plan.unwrap();
                    let Staged { groups, parts, rows, columns, total, .. } = plan.staged;
                    assert!(columns <= most && plan.shared_bytes <= 227 << 10);
                    for (parts, of_part, total) in [(parts[0], rows, total[0]), (parts[1], columns, total[1])] {
                        assert!((parts - 1) * of_part < total && total <= parts * of_part);
                    }
                    assert_eq!(plan.blocks, images * groups * parts[0] * parts[1]);
                }
            }
        }
    }
}
