//! Patches of eight neighbouring channels of 16 bits: 16 bytes, four [pairs](cuda_std::arch::sm_80::pairs), which are loaded and
//! stored at once and worked with two by two.
//!
//! In 16 bits memory leaves half the time for as many elements, so that instructions an element decide: here are half as many
//! places, accesses, comparisons and selections as of four channels one by one.

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;

use super::{PIXELS, Patches, ROWS};
use crate::band::cells::position;
use crate::window::{MOST_COLUMNS, Nhwc, THREADS, Window};

/// Channels of an octet.
pub const LANES: u32 = 8;
/// Pairs of an octet.
pub(crate) const PAIRS: usize = 4;

/// The pairs of an octet.
pub(crate) type Octet = [u32; PAIRS];

/// Where an octet is: of the plane's pixels or outputs this row and column, of its channels those from `channel` on.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub plane: u32,
    pub row: u32,
    pub column: u32,
    pub channel: u32,
}

impl Patches {
    /// As [`of_inputs`](Self::of_inputs), by octets. None where channels are not a multiple of eight.
    pub fn of_input_octets(window: &Window<Nhwc>) -> Option<(Self, [u32; 3], [u32; 3])> {
        Self::of_input_vectors(window, LANES)
    }

    /// As [`of_outputs`](Self::of_outputs), by octets.
    pub fn of_output_octets(window: &Window<Nhwc>) -> Option<(Self, [u32; 3], [u32; 3])> {
        let (rows, most_columns) = if window.size[0] > 2 { (2, MOST_COLUMNS / 2) } else { (1, MOST_COLUMNS) };
        Self::new(window, window.output, LANES, rows, [most_columns, THREADS])
    }
}

/// `f` of each pair of an octet, by its number.
#[device_inline]
pub(crate) fn octet<T>(f: impl Fn(usize) -> T) -> [T; PAIRS] {
    [f(0), f(1), f(2), f(3)]
}

/// Over this thread's patches, for windows of `SIZE` by `SIZE` positions, two apart and padded by `PADDING`: `load(inside, octet)`
/// of all outputs over a patch at once, of which each is octet number `octet` if it is `inside`, or `none`; `given(loaded, row, column)`
/// of each; and `dx = sum_of(with, outputs)` for each input, of those that cover it, in their order, and its position in their windows. `with` is
/// what `before` gives: all threads of the block call it, once, and the first loads are on their way then.
///
/// # Safety
/// `dx` holds the window's inputs, and begins at a multiple of 16 bytes; the window is such; `patches` are of its inputs.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "functions, each of one step")]
pub(crate) unsafe fn gather<W, L: Copy, G: Copy, const SIZE: u32, const PADDING: u32>(
    dx: GlobalMut<u32>,
    window: &Window<Nhwc>,
    patches: &Patches,
    none: L,
    load: impl Fn(bool, usize) -> L,
    before: impl FnOnce() -> W,
    given: impl Fn(L, u32, u32) -> G,
    sum_of: impl Fn(&W, [[Option<(G, u32)>; 2]; 2]) -> Octet,
) {
    // Along each axis a patch is a cell: one or two windows cover it.
    let two = const { position::<SIZE, PADDING>(false, 0).is_some() };
    let first = if two && PADDING == 0 { -1 } else { 0 };
    let (input_line, output_line) = [window.input[1], window.output[1]].map(|width| width * patches.groups).into();
    // As in `super::gather`: what is before the image wraps round; one product, and steps; all loads first.
    let load = |there: bool, plane: u32, place: u32, down: u32| {
        let across = patches.tiling.column::<Nhwc>(place);
        let group = place - across * patches.groups;
        let corner = [down, across].map(|output| output.wrapping_add_signed(first));
        let [row, column] = corner.map(|output| output.cast_signed() as isize);
        let (line, pixel) = (output_line as isize, patches.groups as isize);
        let rows = plane as isize * window.output[0] as isize + row;
        let origin = rows * line + column * pixel + group as isize;
        let mut loaded = [[none; 2]; 2];
        unrolled!(I in [0 1] {
            unrolled!(J in [0 1] {
                if two || I + J == 0 {
                    let (row, column) = (corner[0].wrapping_add(I as u32), corner[1].wrapping_add(J as u32));
                    let inside = there & (row < window.output[0]) & (column < window.output[1]);
                    loaded[I][J] = load(inside, (origin + I as isize * line + J as isize * pixel).cast_unsigned());
                }
            });
        });
        (corner, loaded)
    };
    let (plane, place, mut rows) = (patches.plane(), patches.place(), patches.tiling.rows());
    let down = rows.next();
    let there = plane.is_some() & place.is_some() & down.is_some();
    let (mut corner, mut loaded) = load(there, plane.unwrap_or(0), place.unwrap_or(0), down.unwrap_or(0));
    let with = before();
    let (Some(plane), Some(place), Some(mut down)) = (plane, place, down) else { return };
    let across = patches.tiling.column::<Nhwc>(place);
    let group = place - across * patches.groups;
    loop {
        let given = |i: usize, j: usize| {
            given(loaded[i][j], corner[0].wrapping_add(i as u32), corner[1].wrapping_add(j as u32))
        };
        let given = [[given(0, 0), given(0, 1)], [given(1, 0), given(1, 1)]];
        let (top, left) = (down * ROWS as u32, across * PIXELS as u32);
        let line = plane as usize * window.input[0] as usize + top as usize;
        let origin = line * input_line as usize + (left * patches.groups + group) as usize;
        unrolled!(R in [0 1] {
            unrolled!(C in [0 1] {
                let at = |i: usize, j: usize| -> Option<(G, u32)> {
                    // Of the cell's windows the last is the only one, if they are not two.
                    let row = position::<SIZE, PADDING>(i == 1 || !two, R as u32);
                    let column = position::<SIZE, PADDING>(j == 1 || !two, C as u32);
                    let there = two || i + j == 0;
                    if there { Some((given[i][j], row? * SIZE + column?)) } else { None }
                };
                let sum = sum_of(&with, [[at(0, 0), at(0, 1)], [at(1, 0), at(1, 1)]]);
                let inside = (top + (R as u32) < window.input[0]) & (left + (C as u32) < window.input[1]);
                let octet = origin + R * input_line as usize + C * patches.groups as usize;
                // SAFETY: the octet is of the image where it is inside.
                unsafe { dx.store4_if(inside, octet * PAIRS, Vec4::from(sum)) };
            });
        });
        let Some(next) = rows.next() else { break };
        down = next;
        (corner, loaded) = load(true, plane, place, down);
    }
}

/// The sum of one, two or four pairs, in order, rounded once; of no other number.
#[device_inline]
pub(crate) fn sum_of_pairs<T: Paired>(pairs: [[Option<u32>; 2]; 2]) -> u32 {
    let sum_of_two = |a: Option<u32>, b: Option<u32>| match (a, b) {
        (Some(a), Some(b)) => Some(T::sum(a, b)),
        (a, None) => a,
        (None, b) => b,
    };
    match pairs {
        [[Some(a), Some(b)], [Some(c), Some(d)]] => {
            let (a, b, c, d) = (T::split(a), T::split(b), T::split(c), T::split(d));
            T::join([a[0] + b[0] + c[0] + d[0], a[1] + b[1] + c[1] + d[1]])
        }
        [[a, b], [c, d]] => sum_of_two(sum_of_two(a, b), sum_of_two(c, d)).unwrap_or(0),
    }
}

/// Goes over this thread's outputs of windows of `SIZE` by `SIZE` positions, two apart and padded by `PADDING`:
/// `finish(with, octet, place, inputs)` gets the output's number among octets, where it is, and its window's inputs, all on their way
/// at once, with the pair `outside` for what is not in the image. Threads beside each other have rows beside each other. `with` is
/// what `before` gives: all threads of the block call it, once, and the first loads are on their way then.
///
/// # Safety
/// `x` holds the window's inputs, and begins at a multiple of 16 bytes; the window is such; `patches` are of its outputs.
#[device_inline]
pub(crate) unsafe fn each<W, const SIZE: usize, const PADDING: u32>(
    x: Global<u32>,
    window: &Window<Nhwc>,
    patches: &Patches,
    outside: u32,
    before: impl FnOnce() -> W,
    finish: impl Fn(&W, usize, Place, [[Octet; SIZE]; SIZE]),
) {
    let (input_line, output_line) = [window.input[1], window.output[1]].map(|width| width * patches.groups).into();
    let load = |there: bool, plane: u32, place: u32, row: u32| {
        let column = patches.tiling.column::<Nhwc>(place);
        let group = place - column * patches.groups;
        let [top, left] = [row, column].map(|output| (output * 2).wrapping_sub(PADDING));
        let (line, pixel) = (input_line as isize, patches.groups as isize);
        let [down, right] = [top, left].map(|input| input.cast_signed() as isize);
        let rows = plane as isize * window.input[0] as isize + down;
        let origin = rows * line + right * pixel + group as isize;
        let mut inputs = [[[outside; PAIRS]; SIZE]; SIZE];
        unrolled!(I in [0 1 2] {
            unrolled!(J in [0 1 2] {
                if I < SIZE && J < SIZE {
                    let (row, column) = (top.wrapping_add(I as u32), left.wrapping_add(J as u32));
                    let inside = there & (row < window.input[0]) & (column < window.input[1]);
                    let octet = (origin + I as isize * line + J as isize * pixel).cast_unsigned();
                    // SAFETY: inside the image where they are loaded.
                    inputs[I][J] =
                        unsafe { x.load4_if(inside, octet.wrapping_mul(PAIRS), Vec4::splat(outside)) }.to_array();
                }
            });
        });
        inputs
    };
    let (plane, place, mut rows) = (patches.plane(), patches.place(), patches.tiling.rows());
    let row = rows.next();
    let there = plane.is_some() & place.is_some() & row.is_some();
    let mut inputs = load(there, plane.unwrap_or(0), place.unwrap_or(0), row.unwrap_or(0));
    let with = before();
    let (Some(plane), Some(place), Some(mut row)) = (plane, place, row) else { return };
    let column = patches.tiling.column::<Nhwc>(place);
    let channel = (place - column * patches.groups) * LANES;
    loop {
        let line = plane as usize * window.output[0] as usize + row as usize;
        let octet = line * output_line as usize + place as usize;
        finish(&with, octet, Place { plane, row, column, channel }, inputs);
        let Some(next) = rows.next() else { break };
        row = next;
        inputs = load(true, plane, place, row);
    }
}
