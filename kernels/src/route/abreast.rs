//! Any windows over row-major planes abreast.

use cuda_std::prelude::*;

use crate::abreast::{ABREAST_BLOCK, Abreast, Line, Out, TOGETHER, pitch};
use crate::elementwise::{put, put4};
use crate::window::{Divider, Nchw, Window};

/// Elements of a row that a lane loads, and stores, at most.
pub const ABREAST_LOADS: usize = 7;
/// What names no sum.
const NONE: u32 = u32::MAX;

/// What the window's numbers are divided by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbreastDividers {
    /// 2¹⁶ over the window's columns, rounded up: times a position, which is less than 2⁸, it is that over them in its upper half.
    width: u32,
    stride: [Divider; 2],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for AbreastDividers {}

impl AbreastDividers {
    /// Those of a window.
    pub fn new(window: &Window<Nchw>) -> Self {
        Self { width: (1_u32 << 16).div_ceil(window.size[1]), stride: window.stride.map(Divider::new) }
    }
}

/// Elements of four bytes of shared memory: gradients of a row of outputs with the sums that they are for, and sums of as many rows as a window has.
pub const fn abreast_shared(abreast: &Abreast, height: u32, stride: u32) -> u32 {
    2 * of_gradients(abreast) + abreast.planes * of_sums(abreast, height, stride)
}

/// Rows of sums: a window's, and those that are done and wait to be written together.
const fn lines(height: u32) -> u32 {
    (height + TOGETHER - 1).next_multiple_of(TOGETHER)
}

/// From a plane's sums to the next one's, where windows are so many columns apart.
const fn of_sums(abreast: &Abreast, height: u32, stride: u32) -> u32 {
    pitch(lines(height) * abreast.part[1], abreast.lanes * abreast.run * stride)
}

/// Gradients that there is room for: a row's, and what runs reach past it.
const fn of_gradients(abreast: &Abreast) -> u32 {
    (ABREAST_LOADS as u32 * ABREAST_BLOCK + 2 * abreast.run).next_multiple_of(2)
}

/// Rows of sums that are done, in shared memory, where their places are taken by others', and where they go.
struct Rows<T> {
    sums: Shared<f32>,
    /// From a plane's sums to the next one's.
    pitch: u32,
    /// That of the first row.
    slot: u32,
    dx: GlobalMut<T>,
    beta: f32,
    /// Elements of a plane of inputs, and of a row.
    of_plane: u32,
    width: u32,
    /// Of a row of the part.
    columns: u32,
    /// Where the first row begins.
    line: u32,
}

impl<T: Storage> Out for Rows<T> {
    #[device_inline]
    fn four(&self, plane: u32, i: u32) {
        let (at, slot) = (plane * self.of_plane + self.line + i, plane * self.pitch + self.slot + i);
        // SAFETY: the inputs exist, and are this lane's; so are their sums, now.
        unsafe {
            put4(self.dx, at as usize, self.sums.load4(slot), self.beta);
            self.sums.store4(slot, Vec4::splat(0.0));
        }
    }

    #[device_inline]
    fn one(&self, plane: u32, row: u32, column: u32) {
        let at = plane * self.of_plane + self.line + row * self.width + column;
        let slot = plane * self.pitch + self.slot + row * self.columns + column;
        // SAFETY: likewise.
        unsafe {
            put(self.dx, at as usize, self.sums.load(slot), self.beta);
            self.sums.store(slot, 0.0);
        }
    }
}

/// As [`route_backward`](super::route_backward), over row-major [planes abreast](crate::abreast).
///
/// A warp goes over the outputs whose windows are over its part of the inputs, a row at a time, and adds each gradient once to a sum in shared memory, where
/// its index says. Lanes have runs of outputs that are as long as a window is wide or longer, and go along them in step: what two lanes add at once is
/// in different columns. So there are no atomics, and sums have one order. A row of inputs that no window to come is over is written, and its sums are
/// another's.
///
/// Bound by shared memory, whose banks sums meet in (69 to 85 % of its rate), and by instructions: on 64×64×112×112 5×5 to 9×9 one apart 0.62 to 0.65 of the copy
/// rate in f32 on an H200, 0.38 to 0.42 in 16 bits, 13×13 0.48 and 0.28.
///
/// # Safety
/// As [`route_backward`](super::route_backward)'s, but for the tiling. The window has no dilation and fewer than 256 positions, and is no smaller than windows
/// are apart; `abreast` is of parts of the inputs, with whose grid the kernel is launched: the windows over a part are in no more columns than lanes of a
/// plane have by runs, which are no shorter than `size / stride`; a row of the warp's planes has no more than 32 times [`ABREAST_LOADS`] inputs,
/// and of outputs likewise; so many planes have fewer than 2³¹ of both. Shared memory is as [`abreast_shared`] says.
#[kernel(block = ABREAST_BLOCK, min_blocks = 16, instances(T = [f32, f16, bf16]))]
pub unsafe fn route_backward_abreast<T: Storage>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    abreast: Abreast,
    by: AbreastDividers,
) {
    let part = abreast.part(window.planes, window.input);
    let ([row, column], [rows, columns]) = (part.first, part.count);
    let [height, width] = window.size;
    // The first output whose windows are over the part, and how many are from there on.
    let over = |axis: usize| {
        let (size, stride) = (window.size[axis], by.stride[axis]);
        let padded = part.first[axis] + window.padding[axis];
        let begin = if padded < size { 0 } else { stride.divide(padded - size) + 1 };
        let end = (stride.divide(padded + part.count[axis] - 1) + 1).min(window.output[axis]);
        [begin, end.saturating_sub(begin)]
    };
    let [[first_row, count_of_rows], [first_column, count_of_columns]] = [over(0), over(1)];
    let [of_input, of_output] = [window.input, window.output].map(|[height, width]| height * width);
    let outputs = Line::<ABREAST_LOADS>::new(part.planes, count_of_columns, of_output);
    // SAFETY: the planes exist.
    let (dy, indices, dx) = unsafe {
        let (from, to) = (window.output_plane(part.plane), window.input_plane(part.plane));
        (dy.offset(from), indices.offset(from), dx.offset(to))
    };
    // A plane's rows of sums come round.
    let pairs = dynamic_shared::<u32>();
    // SAFETY: shared memory is so large.
    let sums = unsafe { pairs.offset(2 * of_gradients(&abreast)).cast::<f32>() };
    let (all, pitch) = (lines(height) * columns, of_sums(&abreast, height, window.stride[1]));
    let round = |at: u32| at.min(at.wrapping_sub(all));
    let mut slot = warp::lane_id();
    while slot < part.planes * pitch {
        // SAFETY: as above.
        unsafe { sums.store(slot, 0.0) };
        slot += warp::WARP_SIZE;
    }
    // The lane's run of a row of outputs.
    let (mut plane, mut lane) = (0, warp::lane_id());
    while lane >= abreast.lanes {
        lane -= abreast.lanes;
        plane += 1;
    }
    let is = plane < part.planes;
    let own = if is { plane * count_of_columns + lane * abreast.run } else { 0 };
    let of_lane = if is { count_of_columns.saturating_sub(lane * abreast.run) } else { 0 };
    let mut top = (first_row * window.stride[0]).wrapping_sub(window.padding[0]);
    let left = (first_column * window.stride[1]).wrapping_sub(window.padding[1]).wrapping_sub(column);
    // Of the lane's outputs the first column of their windows, and its sum in a row of sums.
    let (mut lefts, mut slots) = ([0; ABREAST_LOADS], [0; ABREAST_LOADS]);
    unrolled!(I in [0 1 2 3 4 5 6] {
        lefts[I] = left.wrapping_add(outputs.column[I] * window.stride[1]);
        slots[I] = lefts[I].wrapping_add(outputs.plane[I] * pitch);
    });
    // Sums of the first row of the windows of the outputs, and of the next row of inputs that is to be written.
    let above = if (top as i32) < row as i32 { row.wrapping_sub(top) * columns } else { 0 };
    let mut top_line = if above > 0 { all - above } else { top.wrapping_sub(row) * columns };
    let (mut line_to_write, mut to_write) = (0, row);
    let mut line = first_row * window.output[1] + first_column;
    let (zero, is) = (T::from_f32(0.0), count_of_rows > 0);
    // SAFETY: the row exists where it is loaded.
    let mut shares = unsafe { outputs.load(dy, is, line, zero) };
    // SAFETY: likewise.
    let mut positions = unsafe { outputs.load(indices, is, line, u8::MAX) };
    let mut number = 0;
    loop {
        let is_last = number == count_of_rows;
        // Rows above the windows to come have all that they get.
        let end = if is_last || (top as i32) > (row + rows) as i32 { row + rows } else { top };
        // What lanes have added all of them see.
        warp::sync_warp(u32::MAX);
        while is_last & (to_write < end) | ((to_write + TOGETHER) as i32 <= end as i32) {
            let count = (end - to_write).min(TOGETHER);
            let (slot, line) = (line_to_write, to_write * window.input[1] + column);
            let [_, width] = window.input;
            let out = Rows { sums, pitch, slot, dx, beta, of_plane: of_input, width, columns, line };
            part.store(&abreast, (of_input, width), count, &out);
            to_write += count;
            line_to_write = round(line_to_write + count * columns);
        }
        if is_last {
            return;
        }
        // Of the windows' rows, the first that is one of the part's, and how many are from there on.
        let first = if (top as i32) < row as i32 { row.wrapping_sub(top) } else { 0 };
        let count = (row + rows).wrapping_sub(top).min(height).wrapping_sub(first);
        unrolled!(I in [0 1 2 3 4 5 6] {
            let (share, position) = (shares[I].to_f32(), u32::from(positions[I]));
            let i = (position * by.width) >> 16;
            let j = position.wrapping_add(i.wrapping_mul(width.wrapping_neg()));
            let is = outputs.has(I) & (i.wrapping_sub(first) < count) & (lefts[I].wrapping_add(j) < columns);
            let at = round(top_line + i * columns).wrapping_add(slots[I]).wrapping_add(j);
            let slot = warp::lane_id() + I as u32 * warp::WARP_SIZE;
            // SAFETY: there is room for a row, and nobody reads it now.
            unsafe { pairs.store2(2 * slot, Vec2::new(share.to_bits(), if is { at } else { NONE })) };
        });
        warp::sync_warp(u32::MAX);
        number += 1;
        let is = number < count_of_rows;
        line += window.output[1];
        // SAFETY: likewise.
        (shares, positions) = unsafe { (outputs.load(dy, is, line, zero), outputs.load(indices, is, line, u8::MAX)) };
        let mut step = 0;
        // SAFETY: of the row, or past it.
        let mut next = unsafe { pairs.load2(2 * own) };
        while step < abreast.run {
            let Vec2 { x: share, y: to } = next;
            let is = (step < of_lane) & (to != NONE);
            step += 1;
            // SAFETY: likewise; no other lane has a gradient for this column in this step, and all that was added before is there.
            unsafe {
                next = pairs.load2(2 * (own + step));
                let before = sums.load_if(is, to, 0.0);
                sums.store_if(is, to, before + f32::from_bits(share));
            }
            warp::sync_warp(u32::MAX);
        }
        top = top.wrapping_add(window.stride[0]);
        top_line = round(top_line + window.stride[0] * columns);
    }
}
