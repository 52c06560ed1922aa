//! Windows of a known size, one apart, with the channels last, by packs of these down strips of outputs.

use cuda_std::prelude::*;

use crate::elements::Elements;
use crate::falling::{blocks, fall};
use crate::packs::{PACKS_BLOCK, PackWeights, VECTOR, place};
use crate::vectors::{LANES, Lanes};
use crate::window::{Nhwc, Window};

/// As [`avg_pool_forward`](super::avg_pool_forward), of windows one apart of 3×3, 5×5 and 7×7 positions, by packs of 2 to 8 bytes of channels [down strips of
/// outputs](crate::falling), where all windows have the same `divisor`. Backward, with `spread` not 0, it is the sum of `dy / divisor` over the window
/// turned round.
///
/// Bound by memory of 3×3 windows (on 64×64×112×112 0.90 of the copy rate in f32 on an H200, 0.86 in f16), of larger ones by instructions (5×5 0.84 and
/// 0.78, 7×7 0.63 and 0.49).
///
/// # Safety
/// The module's, but for the tiling. `x` and `y` are what `window` says, whose channels are packs of `BYTES` bytes, fewer than 2³¹ in a plane of `x`, and whose
/// windows are `SIZE` by `SIZE` and one apart; groups have `lanes` packs; `elements` are the outputs, each two columns of a row, by as many packs,
/// `rows` a thread, with the launch's grid for each group.
#[kernel(
    block = PACKS_BLOCK,
    min_blocks = blocks(BYTES, size_of::<T>(), SIZE, 1, false),
    instances(
        (T, BYTES, SIZE) = [
            (f32, 4, 3), (f32, 4, 5), (f32, 4, 7), (f32, 8, 3), (f32, 8, 5), (f32, 8, 7),
            (f16, 2, 3), (f16, 2, 5), (f16, 2, 7), (f16, 4, 3), (f16, 4, 5), (f16, 4, 7), (f16, 8, 3), (f16, 8, 5),
            (bf16, 2, 3), (bf16, 2, 5), (bf16, 2, 7), (bf16, 4, 3), (bf16, 4, 5), (bf16, 4, 7), (bf16, 8, 3), (bf16, 8, 5)
        ]
    )
)]
pub unsafe fn avg_pool_forward_falling<T: Lanes, const BYTES: usize, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: f32,
    spread: u32,
    elements: Elements,
    lanes: u32,
    rows: u32,
) {
    let reciprocal = 1.0 / divisor;
    // Backward each gradient by its share: sums of gradients may pass the largest float where those of quotients do not.
    let along_x = if spread != 0 { reciprocal } else { 1.0 };
    let weights = || -> PackWeights { [1.0, along_x].map(|weight| [[weight; LANES]; VECTOR as usize]) };
    let place = place(&window, elements, PACKS_BLOCK, lanes);
    // SAFETY: the caller's.
    unsafe {
        fall::<T, BYTES, SIZE, 1>(x, y, &window, (place, rows), weights, |sum| {
            if spread != 0 { sum } else { sum.map(|sum| quotient::<T>(sum, divisor, reciprocal)) }
        });
    }
}

/// `sum / of`, of which the reciprocal is known: in f32 the nearest number, by what the product with that leaves; in 16 bits, which are rounded once
/// more, that product.
#[device_inline]
pub(super) fn quotient<T>(sum: f32, of: f32, reciprocal: f32) -> f32 {
    let near = sum * reciprocal;
    if size_of::<T>() < 4 {
        return near;
    }
    let nearest = float::fma(float::fma(-near, of, sum), reciprocal, near);
    // Infinity leaves no number.
    if near.abs() <= f32::MAX { nearest } else { near }
}
