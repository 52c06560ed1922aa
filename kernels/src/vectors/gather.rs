//! Backward: what the windows over inputs give.

use cuda_std::prelude::*;

use super::{AHEAD, LANES, Lanes, Numbers, Vectors};
use crate::window::{Nhwc, Window};

/// An output whose window is over an input, and the input's row and column in it.
#[derive(Clone, Copy)]
pub(crate) struct Over {
    pub output: [u32; 2],
    pub position: [u32; 2],
}

/// `dx = what the outputs give + beta * dx` over this thread's inputs, `ROWS` below each other or one: `load(inside, vector)` of
/// several windows' outputs at once, each the vector of a number if it is `inside`, and `add(sum, loaded, over)`, which adds nothing
/// for others. Inputs get what outputs give in the outputs' order.
///
/// # Safety
/// `dx` holds the window's inputs, and begins at a multiple of 16 bytes; `vectors` are of these, with the launch's grid and block;
/// windows overlap, unless `ROWS` is [`AHEAD`].
#[device_inline]
pub(crate) unsafe fn gather<T: Lanes, G: Copy, const ROWS: usize>(
    dx: GlobalMut<T>,
    beta: f32,
    window: &Window<Nhwc>,
    vectors: &Vectors,
    load: impl Fn(bool, usize) -> G,
    add: impl Fn(Numbers, G, Over) -> Numbers,
) {
    let place = vectors.place(ROWS as u32);
    if !place.there {
        return;
    }
    let down = vectors.by_across.divide(vectors.count);
    let padded = [place.row + window.padding[0], place.column + window.padding[1]];
    // The first that may be over the input, which wraps round where there is none before; of few outputs all are asked. Where windows do not
    // overlap there is one, if any.
    let last = |axis: usize, padded: u32| {
        let last = vectors.by_stride[axis].divide(padded);
        if ROWS > 1 { last } else { last.min(window.output[axis] - 1) }
    };
    let column = last(1, padded[1]).wrapping_sub(vectors.across - 1);
    let row = |r: u32| last(0, padded[0] + r).wrapping_sub(down - 1);
    let rows = [row(0), row(1), row(2), row(3)];
    let first = vectors.first(&place, window.output);
    let over = |k: usize, next: u32| {
        let (r, [i, j]) = if ROWS > 1 {
            (k, [0; 2])
        } else {
            let i = vectors.by_across.divide(next + k as u32);
            (0, [i, next + k as u32 - i * vectors.across])
        };
        let output = [rows[r].wrapping_add(i), column.wrapping_add(j)];
        let position = [
            (padded[0] + r as u32).wrapping_sub(output[0].wrapping_mul(window.stride[0])),
            padded[1].wrapping_sub(output[1].wrapping_mul(window.stride[1])),
        ];
        let is = (output[0] < window.output[0]) & (output[1] < window.output[1]);
        let is = is & (position[0] < window.size[0]) & (position[1] < window.size[1]);
        let is =
            is & if ROWS > 1 { place.row + (r as u32) < window.input[0] } else { next + (k as u32) < vectors.count };
        (is, Over { output, position })
    };
    let load = |k: usize, next: u32| {
        let (is, Over { output: [row, column], .. }) = over(k, next);
        load(is, first.wrapping_add(vectors.at(row, column, window.output[1])))
    };
    // SAFETY: the caller's.
    let store = |r: u32, sum: Numbers| unsafe { vectors.put(dx, beta, window.input, &place, r, sum) };
    let mut sum = [0.0; LANES];
    if ROWS > 1 {
        let loaded = [load(0, 0), load(1, 0), load(2, 0), load(3, 0)];
        unrolled!(K in [0 1 2 3] { store(K as u32, add(sum, loaded[K], over(K, 0).1)); });
        return;
    }
    let mut next = 0;
    while next < vectors.count {
        let loaded = [load(0, next), load(1, next), load(2, next), load(3, next)];
        unrolled!(K in [0 1 2 3] { sum = add(sum, loaded[K], over(K, next).1); });
        next += AHEAD as u32;
    }
    store(0, sum);
}
