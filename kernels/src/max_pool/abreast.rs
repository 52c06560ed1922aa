//! Forward of windows of a known size, one apart, over row-major planes abreast.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::doubling::{Doubling, Found, Kept};
use super::ranked::Ranked;
use super::{any_window, store};
use crate::abreast::{ABREAST_BLOCK, Abreast, Line, Out, TOGETHER, pitch};
use crate::window::{Nchw, Window};

/// Columns of outputs of a lane, at most, and columns of inputs that their windows cover.
const MOST_RUN: usize = 7;
const MOST_WIDE: usize = 17;

/// Columns of outputs of a lane, of windows of so many columns: what is open along y has room.
pub const fn abreast_run(size: usize) -> usize {
    if size <= 9 { 7 } else { 5 }
}

/// Rows of which something is kept in shared memory, for which registers would not do: four of four rows, and five of eight.
const fn kept(element: usize, size: usize) -> [u32; 2] {
    match (element, size) {
        (4, 9) => [4, 0],
        (4, 13) => [4, 5],
        _ => [0, 0],
    }
}

/// Blocks that fit on a multiprocessor: as many as leave each thread the registers for what it has found and what is on its way.
pub const fn abreast_blocks(element: usize, size: usize) -> u32 {
    match (element, size) {
        (2, _) | (_, 5) => 16,
        _ => 12,
    }
}

/// Words of shared memory: of a row of inputs, so many from one plane's to the next one's, with what the last runs reach past it.
const fn of_inputs(abreast: &Abreast, size: usize) -> [u32; 2] {
    let pitch = pitch(abreast.part[1] + size as u32 - 1, abreast.lanes * abreast.run);
    [(abreast.planes * pitch + abreast.run).next_multiple_of(4), pitch]
}

/// Slots for the rows of what was found that are stored together, likewise.
const fn of_found(abreast: &Abreast) -> [u32; 2] {
    let pitch = pitch(TOGETHER * abreast.part[1], abreast.lanes * abreast.run);
    [abreast.planes * pitch, pitch]
}

/// Slots for what is kept of rows before.
const fn of_kept(abreast: &Abreast, element: usize, size: usize) -> u32 {
    let [fours, eights] = kept(element, size);
    (fours + eights) * abreast.run * ABREAST_BLOCK
}

/// Words of shared memory.
pub const fn abreast_shared<T: Ranked>(abreast: &Abreast, size: usize) -> u32 {
    of_inputs(abreast, size)[0] + T::WORDS * (of_found(abreast)[0] + of_kept(abreast, size_of::<T>(), size))
}

/// What was found of a lane's columns.
struct Run<T: Ranked, const RUN: usize>([T::Greatest; MOST_RUN]);

impl<T: Ranked, const RUN: usize> Clone for Run<T, RUN> {
    #[device_inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Ranked, const RUN: usize> Copy for Run<T, RUN> {}

impl<T: Ranked, const RUN: usize> Found for Run<T, RUN> {
    #[device_inline]
    fn or(self, later: Self) -> Self {
        let mut found = self.0;
        unrolled!(C in [0 1 2 3 4 5 6] { if C < RUN { found[C] = T::or(self.0[C], later.0[C]); } });
        Self(found)
    }
}

/// What is kept of rows before, in shared memory: slots of rows, of columns, and of lanes.
struct InShared<const SIZE: usize> {
    slots: Shared<u32>,
    room: u32,
    /// The lane.
    own: u32,
    /// The rows whose slots are the next, of fours and of eights.
    fours: u32,
    eights: u32,
}

impl<const SIZE: usize> InShared<SIZE> {
    /// Stores `found` in place of what is in the slots of that row.
    #[device_inline]
    fn exchange<T: Ranked, const RUN: usize>(&self, row: u32, found: Run<T, RUN>) -> Run<T, RUN> {
        let mut before = found;
        unrolled!(C in [0 1 2 3 4 5 6] { if C < RUN {
            let at = ((row * RUN as u32 + C as u32) * ABREAST_BLOCK + self.own, self.room);
            // SAFETY: this lane's.
            unsafe {
                before.0[C] = T::load(self.slots, at);
                T::store_if(self.slots, true, at, found.0[C]);
            }
        } });
        before
    }
}

impl<T: Ranked, const SIZE: usize, const RUN: usize> Kept<Run<T, RUN>> for InShared<SIZE> {
    #[device_inline]
    fn four(&mut self, found: Run<T, RUN>) -> Run<T, RUN> {
        let before = self.exchange(self.fours, found);
        self.fours = (self.fours + 1) % 4;
        before
    }

    #[device_inline]
    fn eight(&mut self, found: Run<T, RUN>) -> Run<T, RUN> {
        let before = self.exchange(4 + self.eights, found);
        self.eights = if self.eights == 4 { 0 } else { self.eights + 1 };
        before
    }
}

/// Of each of `count` columns what is greater, `from` it on or `beside` it, so many columns further on.
#[device_inline]
fn along<T: Ranked>(
    from: &[T::Greatest; MOST_WIDE],
    beside: &[T::Greatest; MOST_WIDE],
    by: usize,
    count: usize,
) -> [T::Greatest; MOST_WIDE] {
    let mut found = *from;
    unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
        if J < count { found[J] = T::or(from[J], beside[(J + by) % MOST_WIDE]); }
    });
    found
}

/// Rows of what a warp has found, in shared memory and where they go.
struct Rows<T> {
    found: Shared<u32>,
    slots: [u32; 2],
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    /// Elements of a plane of outputs, and of a row.
    of_plane: u32,
    width: u32,
    /// Of a row of the part.
    columns: u32,
    /// Where the first row begins.
    line: u32,
}

impl<T: Ranked> Out for Rows<T> {
    #[device_inline]
    fn four(&self, plane: u32, i: u32) {
        let at = (plane * self.of_plane + self.line + i) as usize;
        // SAFETY: the outputs exist, and were found.
        unsafe {
            let [a, b, c, d] = T::load4(self.found, (plane * self.slots[1] + i, self.slots[0])).map(T::parts);
            self.y.store4(at, Vec4::new(a.0, b.0, c.0, d.0));
            if let Some(indices) = self.indices {
                let halves = [integer::bytes::<0x0040>(a.1, b.1), integer::bytes::<0x0040>(c.1, d.1)];
                indices.cast::<u32>().store(at / 4, integer::bytes::<0x5410>(halves[0], halves[1]));
            }
        }
    }

    #[device_inline]
    fn one(&self, plane: u32, row: u32, column: u32) {
        let at = (plane * self.of_plane + self.line + row * self.width + column) as usize;
        let slot = plane * self.slots[1] + row * self.columns + column;
        // SAFETY: likewise.
        unsafe {
            let (value, position) = T::parts(T::load(self.found, (slot, self.slots[0])));
            self.y.store(at, value);
            if let Some(indices) = self.indices {
                indices.store(at, position as u8);
            }
        }
    }
}

/// As [`max_pool_forward`](super::max_pool_forward), of windows one apart of 5×5 to 13×13 positions, over row-major [planes abreast](crate::abreast).
///
/// A row of inputs goes by way of shared memory to the lanes whose windows are over it. These find maxima along x, and along y, by
/// doubling. Positions are counted in the part, along y from its first row on, and in a window once it is done. Comparisons see numbers
/// only: a warp with a NaN goes over its part again.
///
/// Bound by instructions, which take 68 to 73 % of the slots: on 64×64×112×112 5×5 0.66 of the copy rate in f32 on an H200, 0.47 in f16, 7×7 0.56 and
/// 0.45, 9×9 0.49 and 0.43, 13×13 0.29 and 0.27.
///
/// # Safety
/// The module's, but for the tiling; indices are of one byte. Windows are `SIZE` by `SIZE` and one apart, without dilation; `abreast` is of parts of the
/// outputs, whose columns all lanes of a plane together have by runs of `RUN`, and of whose planes rows of inputs have no more than 32 times `RUN` elements;
/// so many planes have fewer than 2³¹ of inputs and of outputs. Shared memory is as [`abreast_shared`] says.
#[kernel(
    block = ABREAST_BLOCK,
    min_blocks = abreast_blocks(size_of::<T>(), SIZE),
    instances(
        (T, SIZE, RUN) = [
            (f32, 5, 7), (f32, 7, 7), (f32, 9, 7), (f32, 13, 5),
            (f16, 5, 7), (f16, 7, 7), (f16, 9, 7), (f16, 13, 5),
            (bf16, 5, 7), (bf16, 7, 7), (bf16, 9, 7), (bf16, 13, 5)
        ]
    )
)]
pub unsafe fn max_pool_forward_abreast<T: Ranked, const SIZE: usize, const RUN: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    mut indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    abreast: Abreast,
) {
    let part = abreast.part(window.planes, window.output);
    let [rows, columns] = part.count;
    let [height, width] = window.input;
    let [top, left] = [0, 1].map(|axis| part.first[axis].wrapping_sub(window.padding[axis]));
    // The columns of inputs that there are: from the first, and past the last.
    let from = if (left as i32) < 0 { 0 } else { left };
    let to = left.wrapping_add(columns + SIZE as u32 - 1).min(width);
    let [of_input, of_output] = [window.input, window.output].map(|[height, width]| height * width);
    let inputs = Line::<RUN>::new(part.planes, to - from, of_input);
    let [size, pitch] = of_inputs(&abreast, SIZE);
    let staged = dynamic_shared::<u32>();
    let nothing = T::from_f32(f32::NEG_INFINITY).word();
    // SAFETY: shared memory is so large.
    let found = unsafe { staged.offset(size) };
    let slots_found = of_found(&abreast);
    let room = of_kept(&abreast, size_of::<T>(), SIZE);
    // SAFETY: likewise.
    let slots = unsafe { found.offset(T::WORDS * slots_found[0]) };
    let mut kept = InShared::<SIZE> { slots, room, own: warp::lane_id(), fours: 0, eights: 0 };
    let mut slot = warp::lane_id();
    while slot < room {
        // SAFETY: as above.
        unsafe { T::store_if(slots, true, (slot, room), T::at(nothing, 0)) };
        slot += warp::WARP_SIZE;
    }
    let mut slot = warp::lane_id();
    while slot < size {
        // SAFETY: as above; where no input is there is minus infinity.
        unsafe { staged.store(slot, nothing) };
        slot += warp::WARP_SIZE;
    }
    // SAFETY: the planes exist.
    let (x, y) = unsafe {
        let (input, output) = (window.input_plane(part.plane), window.output_plane(part.plane));
        if let Some(all) = indices {
            indices = Some(all.offset(output));
        }
        (x.offset(input), y.offset(output))
    };
    // Where the lane's inputs go.
    let mut slots = [0; RUN];
    unrolled!(I in [0 1 2 3 4 5 6] { if I < RUN {
        slots[I % RUN] = inputs.plane[I % RUN] * pitch + inputs.column[I % RUN] + from.wrapping_sub(left);
    } });
    let (mut next, mut line) = (top, top.wrapping_mul(width).wrapping_add(from));
    let outside = T::from_f32(f32::NEG_INFINITY);
    // SAFETY: the row exists where it is loaded.
    let mut coming = unsafe { inputs.load(x, next < height, line, outside) };
    // The lane's columns of its plane, from the first that their windows cover on.
    let (mut plane, mut lane) = (0, warp::lane_id());
    while lane >= abreast.lanes {
        lane -= abreast.lanes;
        plane += 1;
    }
    // Lanes that have none go along with the first.
    let is = plane < part.planes;
    let (plane, lane) = if is { (plane, lane) } else { (0, 0) };
    let (first, own) = (plane * pitch + lane * RUN as u32, plane * slots_found[1] + lane * RUN as u32);
    let of_lane = if is { columns.saturating_sub(lane * RUN as u32) } else { 0 };
    // Positions of the rows of the part that are done, and of those that are above the image.
    let positions_above = window.padding[0].saturating_sub(part.first[0]) * SIZE as u32;
    let mut positions_down = 0;
    let beside = window.padding[1].saturating_sub(part.first[1] + lane * RUN as u32);
    let mut nan = f32::NEG_INFINITY;
    let mut below = Doubling::new(Run::<T, RUN>([T::at(nothing, 0); MOST_RUN]));
    let mut row = 0;
    while row < rows + SIZE as u32 - 1 {
        let loaded = coming;
        // What lanes read of the row before, they have.
        warp::sync_warp(u32::MAX);
        unrolled!(I in [0 1 2 3 4 5 6] { if I < RUN {
            nan = float::maximum(nan, loaded[I % RUN].to_f32());
            // SAFETY: the plane's row has room for all columns that windows cover.
            unsafe { staged.store_if(inputs.has(I), slots[I % RUN], loaded[I % RUN].word()) };
        } });
        warp::sync_warp(u32::MAX);
        next = next.wrapping_add(1);
        line = line.wrapping_add(width);
        // SAFETY: likewise.
        coming = unsafe { inputs.load(x, next < height, line, outside) };
        let mut ones = [T::at(nothing, 0); MOST_WIDE];
        unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16] { if J < SIZE + RUN - 1 {
            // SAFETY: runs end in the plane's row, or in what is after it.
            let word = unsafe { staged.load(first + J as u32) };
            // Positions are none in the padding, where all that is inside is minus infinity.
            let position = if J <= SIZE / 2 && beside > J as u32 { beside } else { J as u32 };
            ones[J] = T::at(word, position);
        } });
        let along_x = match SIZE {
            5 => {
                let two = along::<T>(&ones, &ones, 1, RUN + 2);
                let four = along::<T>(&two, &two, 2, RUN);
                along::<T>(&four, &ones, 4, RUN)
            }
            7 => {
                let two = along::<T>(&ones, &ones, 1, RUN + 5);
                let four = along::<T>(&two, &two, 2, RUN + 3);
                along::<T>(&four, &four, 3, RUN)
            }
            9 => {
                let two = along::<T>(&ones, &ones, 1, RUN + 6);
                let four = along::<T>(&two, &two, 2, RUN + 4);
                let eight = along::<T>(&four, &four, 4, RUN);
                along::<T>(&eight, &ones, 8, RUN)
            }
            _ => {
                let two = along::<T>(&ones, &ones, 1, RUN + 11);
                let four = along::<T>(&two, &two, 2, RUN + 9);
                let eight = along::<T>(&four, &four, 4, RUN + 5);
                along::<T>(&eight, &eight, 5, RUN)
            }
        };
        let mut run = Run::<T, RUN>([T::at(nothing, 0); MOST_RUN]);
        let down = if positions_down < positions_above { positions_above } else { positions_down };
        positions_down += SIZE as u32;
        unrolled!(C in [0 1 2 3 4 5 6] { if C < RUN {
            run.0[C] = T::further(along_x[C], down);
        } });
        let windows = if size_of::<T>() == 4 && SIZE >= 9 {
            below.next_kept::<SIZE>(run, &mut kept)
        } else {
            below.next::<SIZE>(run)
        }
        .0;
        row += 1;
        if row >= SIZE as u32 {
            let output = row - SIZE as u32;
            let together = output % TOGETHER;
            unrolled!(C in [0 1 2 3 4 5 6] { if C < RUN {
                let before = 0_u32.wrapping_sub(output * SIZE as u32 + C as u32);
                let (is, at) = ((C as u32) < of_lane, (own + together * columns + C as u32, slots_found[0]));
                // SAFETY: the lane's.
                unsafe { T::store_if(found, is, at, T::further(windows[C], before)) };
            } });
            if (together == TOGETHER - 1) | (output == rows - 1) {
                warp::sync_warp(u32::MAX);
                let [first_row, first_column] = part.first;
                let line = (first_row + output - together) * window.output[1] + first_column;
                let [_, width] = window.output;
                let out = Rows { found, slots: slots_found, y, indices, of_plane: of_output, width, columns, line };
                part.store(&abreast, (of_output, width), together + 1, &out);
            }
        }
    }
    if warp::any(nan.is_nan()) {
        // Outputs that other lanes have stored are stored again.
        warp::sync_warp(u32::MAX);
        for plane in 0..part.planes {
            for row in part.first[0]..part.first[0] + rows {
                let mut column = warp::lane_id();
                while column < columns {
                    let at = (plane * of_output + row * window.output[1] + part.first[1] + column) as usize;
                    // SAFETY: the plane and the output exist, and the output is this lane's.
                    unsafe {
                        let maximum =
                            any_window(window, x.offset((plane * of_input) as usize), row, part.first[1] + column);
                        store(y, indices, at, maximum);
                    }
                    column += warp::WARP_SIZE;
                }
            }
        }
    }
}
