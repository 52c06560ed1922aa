//! Channels last: forward of 3×3, 5×5 and 7×7 windows whose weights are the same everywhere, one apart, and of 5×5 and 7×7 windows two apart; and the
//! input's gradient of such one apart. All channels share a Gaussian, or each has its own. By packs of 2 to 8 bytes of neighbouring channels [down strips
//! of outputs](crate::falling).
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, with the weights of the channel
//!
//! Launch: blocks of [`PACKS_BLOCK`] threads, of a group of neighbouring packs of a pixel: along x as [`Elements`] lays them over two columns and a
//! strip of rows each, along y a row of blocks for each group. Neighbouring threads have neighbouring packs of neighbouring columns.
//!
//! Bound by memory of 3×3 windows (one apart on 64×64×112×112 0.91 of the copy rate in f32 on an H200, 0.86 in f16), of larger ones by instructions (5×5 0.82
//! and 0.78, 7×7 0.76 and 0.50; in f16 with a Gaussian for each channel 0.60 and 0.42).

use cuda_std::prelude::*;

use super::packs::{alike, own_shape, weights};
use super::packs_apiece::Group;
use crate::elements::Elements;
use crate::falling::{blocks, fall};
use crate::packs::{PACKS_BLOCK, channels, place};
use crate::vectors::Lanes;
use crate::window::{Nhwc, Window};

/// `y` = `x` pooled by one Gaussian, or by the channels'. Backward, of windows one apart, it is the pooling of `dy` by the window `turned` round.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, whose channels are packs of `BYTES` bytes, fewer than 2³¹ in a plane of `x`, and whose
/// windows are `SIZE` by `SIZE` and `STRIDE` apart both ways; `mean` holds two and `var` `variances` elements, with `APIECE` for each channel;
/// groups have `lanes` packs; `elements` are the window's outputs, each two columns of a row, by as many packs, `rows` a thread, with the launch's
/// grid for each group, and with `APIECE` shared memory is what [`shared_bytes`](super::packs_apiece::shared_bytes) says.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = blocks(BYTES, size_of::<T>(), SIZE, STRIDE, APIECE),
    instances(
        (T, BYTES, SIZE, STRIDE, APIECE) = [
            (f32, 4, 5, 1, false), (f32, 4, 5, 2, false), (f32, 4, 7, 1, false), (f32, 4, 7, 2, false),
            (f32, 4, 5, 1, true), (f32, 4, 5, 2, true), (f32, 4, 7, 1, true), (f32, 4, 7, 2, true),
            (f32, 8, 3, 1, false), (f32, 8, 5, 1, false), (f32, 8, 5, 2, false), (f32, 8, 7, 1, false), (f32, 8, 7, 2, false),
            (f32, 8, 3, 1, true), (f32, 8, 5, 1, true), (f32, 8, 5, 2, true),
            (f16, 2, 5, 1, false), (f16, 2, 5, 2, false), (f16, 2, 7, 1, false), (f16, 2, 7, 2, false),
            (f16, 2, 3, 1, true), (f16, 2, 5, 1, true), (f16, 2, 5, 2, true), (f16, 2, 7, 1, true), (f16, 2, 7, 2, true),
            (f16, 4, 3, 1, false), (f16, 4, 5, 1, false), (f16, 4, 5, 2, false), (f16, 4, 7, 1, false), (f16, 4, 7, 2, false),
            (f16, 4, 3, 1, true), (f16, 4, 5, 1, true), (f16, 4, 5, 2, true), (f16, 4, 7, 1, true), (f16, 4, 7, 2, true),
            (f16, 8, 3, 1, false), (f16, 8, 5, 1, false), (f16, 8, 5, 2, false), (f16, 8, 3, 1, true),
            (bf16, 2, 5, 1, false), (bf16, 2, 5, 2, false), (bf16, 2, 7, 1, false), (bf16, 2, 7, 2, false),
            (bf16, 2, 3, 1, true), (bf16, 2, 5, 1, true), (bf16, 2, 5, 2, true), (bf16, 2, 7, 1, true), (bf16, 2, 7, 2, true),
            (bf16, 4, 3, 1, false), (bf16, 4, 5, 1, false), (bf16, 4, 5, 2, false), (bf16, 4, 7, 1, false), (bf16, 4, 7, 2, false),
            (bf16, 4, 3, 1, true), (bf16, 4, 5, 1, true), (bf16, 4, 5, 2, true), (bf16, 4, 7, 1, true), (bf16, 4, 7, 2, true),
            (bf16, 8, 3, 1, false), (bf16, 8, 5, 1, false), (bf16, 8, 5, 2, false), (bf16, 8, 3, 1, true)
        ]
    )
)]
pub unsafe fn gaussian_pool_forward_falling_packs<
    T: Lanes,
    const BYTES: usize,
    const SIZE: usize,
    const STRIDE: usize,
    const APIECE: bool,
>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    turned: u32,
    variances: u32,
    window: Window<Nhwc>,
    elements: Elements,
    lanes: u32,
    rows: u32,
) {
    let turned = turned != 0;
    // SAFETY: the caller's.
    unsafe {
        if APIECE {
            let each = channels::<T>(BYTES);
            let group = Group::load([mean, var], variances, &window, (elements, lanes, each));
            let weights = || group.weights::<SIZE>(each, turned);
            fall::<T, BYTES, SIZE, STRIDE>(x, y, &window, (group.place, rows), weights, |sum| sum);
        } else {
            let shape = own_shape([mean, var], variances);
            let place = place(&window, elements, PACKS_BLOCK, lanes);
            let weights = || alike(weights::<SIZE>(shape, turned));
            fall::<T, BYTES, SIZE, STRIDE>(x, y, &window, (place, rows), weights, |sum| sum);
        }
    }
}
