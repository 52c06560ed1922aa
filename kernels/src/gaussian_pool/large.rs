//! Gaussian pooling of few large windows, in both orders: [a warp an output, or several](crate::warps), by the tables of weights.
//!
//! `y = sum over the window of weight_y * weight_x * x`. Launch: [`Warps`]' grid, one for each Gaussian of a map along z; lanes take
//! columns and rows of the window, or neighbouring channels of it, and read their weights from the tables, which the cache holds.
//!
//! A window costs a product for each position, and not one for each row and column: it is for outputs so few that what they share is
//! worth less than threads that read.
//!
//! Bound by the time that memory takes to answer.

use cuda_std::prelude::*;

use super::Geometry;
use crate::warps::{self, Warps};
use crate::window::{Divider, Nhwc, Window};

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of the channel's set.
///
/// # Safety
/// The parent module's. `x` and `y` are what `geometry` says; `window` is of the same windows, over images of all channels with `NHWC` and else
/// over planes of one; the tables hold the weights, and no derivatives; `by_channels` divides by `geometry.channels`; `warps` are over the
/// window's outputs, with the launch's grid, block and shared memory.
#[kernel(max_threads = warps::THREADS, instances(T = [f32, f16, bf16], NHWC = [false, true]))]
pub unsafe fn gaussian_pool_forward_warp<T: Storage, const NHWC: bool>(
    x: Global<T>,
    weights_y: Global<f32>,
    weights_x: Global<f32>,
    y: GlobalMut<T>,
    by_channels: Divider,
    geometry: Geometry,
    window: Window<Nhwc>,
    warps: Warps,
) {
    let output = warps.output(&window);
    let (kernel, last) = (thread::block_idx_z(), window.channels - 1);
    let channel = if NHWC {
        // A lane past the last channel has its weights, and takes nothing.
        if output.channel < last { output.channel } else { last }
    } else {
        output.plane - by_channels.divide(output.plane) * geometry.channels
    };
    let set = if geometry.sets == 1 { 0 } else { channel };
    let step = geometry.entry_step(NHWC);
    let [vertical, horizontal] = geometry.axes;
    let first = [vertical.case(output.row) * vertical.size, horizontal.case(output.column) * horizontal.size];
    let mut sum = 0.0;
    // SAFETY: the tables hold all cases of each Gaussian; the output exists; all threads come to where they wait.
    unsafe {
        let weights_y = weights_y.offset(geometry.first_entry(NHWC, &vertical, set, kernel));
        let weights_x = weights_x.offset(geometry.first_entry(NHWC, &horizontal, set, kernel));
        let x = x.offset(window.input_plane(output.plane));
        warps::for_each(x, &window, &warps, &output, 0.0, |value, i, j| {
            // Rows past the last, of zeros, have its weight.
            let i = if i < vertical.size { i } else { vertical.size - 1 };
            let by_y = weights_y.load(((first[0] + i) * step) as usize);
            let by_x = weights_x.load(((first[1] + j) * step) as usize);
            sum = float::fma(by_y * by_x, value, sum);
        });
        let add =
            |[own, _]: [u32; 2], [other, _]: [u32; 2]| [(f32::from_bits(own) + f32::from_bits(other)).to_bits(), 0];
        let [sum, _] = warps.joined([f32::to_bits(sum), 0], add);
        let (maps, kernel) = (geometry.kernels as usize, kernel as usize);
        let number = if NHWC {
            output.number * maps + kernel
        } else {
            output.number + (output.plane as usize * (maps - 1) + kernel) * warps.of_plane()
        };
        y.store_if(output.first, number, T::from_f32(f32::from_bits(sum)));
    }
}
