//! Forward over square windows of a few positions that share little, in row-major images.

use cuda_std::prelude::*;

use super::small::Seen;
use super::{Maximum, any_window, store};
use crate::pieces::{self, Pieces, Planes, columns, halves};
use crate::window::{Nchw, Window};

/// As [`max_pool_forward`](super::max_pool_forward), by [pieces](crate::pieces): a thread has a window, or half of one of 8×8.
///
/// # Safety
/// The module's, but for the tiling; the window is `SIZE` by `SIZE` positions, without dilation; memory begins at multiples of 16 bytes, and
/// `pieces` are of it, with the launch's grid.
#[kernel(
    block = pieces::BLOCK,
    min_blocks = pieces::blocks(SIZE),
    instances(T = [f32, f16, bf16], SIZE = [2, 3, 4, 5, 6, 7, 8])
)]
pub unsafe fn max_pool_forward_apart<T: Storage, const SIZE: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    pieces: Pieces,
) {
    let planes = Planes::of(&window);
    let piece = pieces.piece::<SIZE, false>(&planes, thread::block_idx_x(), 1, 0);
    // SAFETY: the caller's. Minus infinity wins over nothing.
    let values = unsafe {
        Pieces::load::<T, SIZE, false>(x, &planes, piece, T::from_f32(f32::NEG_INFINITY), pieces.by_vectors())
    };
    let (halves, columns) = (halves(SIZE), columns(SIZE, false));
    let first = piece.number % halves * columns;
    let mut seen = Seen::of(values[0][0].to_f32(), first);
    unrolled!(I in [0 1 2 3 4 5 6 7] { unrolled!(J in [0 1 2 3 4 5 6] {
        if (I as u32) < SIZE && (J as u32) < columns && (I, J) != (0, 0) {
            seen = seen.or(values[I][J].to_f32(), first + I as u32 * SIZE + J as u32);
        }
    }); });
    if halves == 2 {
        // The other half is the next thread's; both belong to one warp.
        let Seen { maximum: Maximum { value, position }, sum } = seen;
        let maximum = Maximum { value: warp::shuffle_xor(value, 1), position: warp::shuffle_xor(position, 1) };
        seen.maximum = seen.maximum.or_earlier(maximum);
        seen.sum = sum + warp::shuffle_xor(sum, 1);
    }
    if piece.there && first == 0 {
        let column = piece.number / halves;
        let output = window.output_plane(piece.plane) + piece.row as usize * window.output_line() + column as usize;
        // SAFETY: the output exists.
        unsafe {
            let again = seen.again();
            let x = x.offset(window.input_plane(piece.plane));
            let maximum = if again { any_window(window, x, piece.row, column) } else { seen.maximum };
            store(y, indices, output, maximum);
        }
    }
}
