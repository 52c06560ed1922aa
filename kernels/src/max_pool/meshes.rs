//! Forward over windows of some whole meshes.

use cuda_std::prelude::*;

use super::{Maximum, any_window, store};
use crate::band;
use crate::band::meshes::{Left, Meshes};
use crate::elementwise::get;
use crate::window::{Divider, Nchw, Window};

/// How far windows are apart.
const STRIDE: usize = 3;

/// As [`max_pool_forward`](super::max_pool_forward), by [meshes](crate::band::meshes), for windows three apart and of `GROUPS` meshes both ways,
/// without dilation.
///
/// Values are compared apart from where they are, by which NaN stays, but not where it came from, nor which of two zeros it was, nor
/// which infinity is in the image where all are negative: these are looked up again.
///
/// # Safety
/// The module's, but for the tiling; the window is such; `meshes` are the window's, with the launch's grid, block and shared
/// memory; `by_size` is by its number of columns.
#[kernel(max_threads = band::THREADS, min_blocks = band::MIN_BLOCKS, instances(T = [f32, f16, bf16], GROUPS = [2, 3]))]
pub unsafe fn max_pool_forward_meshes<T: Storage, const GROUPS: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    meshes: Meshes,
    by_size: Divider,
) {
    let laid = meshes.laid::<STRIDE, GROUPS>();
    // Places are in order within each window, and a window's first place is taken off at last.
    let place = |row: u32, column: u32| row * window.size[1] + column;
    // SAFETY: the caller's; outputs exist, and so do the inputs that are looked up.
    unsafe {
        laid.leave(
            x,
            &window,
            f32::NEG_INFINITY,
            |value, row, column| Maximum { value, position: place(row, column) },
            Maximum::or_number,
            |Maximum { value, position }| Left::new(value.to_bits(), position),
        );
        thread::sync_threads();
        // Of those as great, the first in row-major order: of several rows of meshes, that of the first.
        let along = |meshes: [Left; GROUPS]| {
            let mut value = f32::from_bits(meshes[0].x);
            unrolled!(J in [1 2] { if J < GROUPS { value = float::maximum(value, f32::from_bits(meshes[J].x)); } });
            let mut position = u32::MAX;
            unrolled!(J in [0 1 2] {
                if J < GROUPS {
                    let Left { x, y } = meshes[J];
                    position = if (f32::from_bits(x) == value) & (y < position) { y } else { position };
                }
            });
            Maximum { value, position }
        };
        laid.take(&window, along, Maximum::or_number, |output, Maximum { mut value, mut position }| {
            let [top, left] = [output.row * STRIDE as u32, output.column * STRIDE as u32];
            position = position.wrapping_sub(place(top - laid.span.rows[0] * STRIDE as u32, left));
            let plane = || x.offset(window.input_plane(laid.span.first_plane + output.plane));
            if value == 0.0 {
                // Which of the zeros it is.
                let i = by_size.divide(position);
                let row = (top + i - window.padding[0]) as usize;
                let column = (left + position - i * window.size[1] - window.padding[1]) as usize;
                value = get(plane(), row * window.input_line() + column);
            } else if value.is_nan() | (value == f32::NEG_INFINITY) {
                Maximum { value, position } = any_window(window, plane(), output.row, output.column);
            }
            store(y, indices, output.number, Maximum { value, position });
        });
    }
}
