//! Backward over larger windows three apart, in row-major images.

use cuda_std::prelude::*;

use super::Divisor;
use super::backward::Quotients;
use crate::band;
use crate::band::spread::{Along, Spread};
use crate::window::{Nchw, Window};

/// How far windows are apart.
const STRIDE: usize = 3;

/// As [`avg_pool_backward`](super::avg_pool_backward), by [meshes](crate::band::spread), for windows three apart and of `GROUPS` whole meshes both ways.
///
/// # Safety
/// The module's, but for the tiling; the window is such, without dilation; `dx` begins at a multiple of 16 bytes; `spread` is the
/// window's, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], GROUPS = [2, 3])
)]
pub unsafe fn avg_pool_backward_meshes<T: Storage, const GROUPS: usize>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    divisor: Divisor,
    spread: Spread,
) {
    let quotients = Quotients::new(&window, divisor);
    let rest = [0, 1].map(|axis| window.size[axis] - (GROUPS * STRIDE) as u32);
    // SAFETY: the caller's; outputs are there if inside.
    unsafe {
        let laid = spread.laid::<STRIDE, GROUPS>(&window);
        laid.put(dy, &window, |dy, row, column| quotients.of(&window, [dy], row, column)[0]);
        thread::sync_threads();
        // Of all columns, and of the first, which have one window more.
        let along = |outputs: Along| {
            let mut sum = 0.0;
            unrolled!(C in [1 2 3] { if C <= GROUPS { sum += outputs.by(C); } });
            [sum, if rest[1] == 0 { sum } else { sum + outputs.by(0) }]
        };
        laid.store(dx, beta, &window, along, |before, last| {
            let mut sums = last;
            unrolled!(G in [1 2] {
                if G < GROUPS { sums = [sums[0] + before[G][0], sums[1] + before[G][1]]; }
            });
            let mut values = [[sums[0]; STRIDE]; STRIDE];
            // The launch's: no thread takes the other way.
            if rest != [0, 0] {
                let more = [sums[0] + before[0][0], sums[1] + before[0][1]];
                unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
                    let sums = if (I as u32) < rest[0] { more } else { sums };
                    values[I][J] = if (J as u32) < rest[1] { sums[1] } else { sums[0] };
                }); });
            }
            values
        });
    }
}
