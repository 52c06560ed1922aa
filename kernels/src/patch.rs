//! Pooling by patches, with the channels last: what the kernels for windows of a known geometry share.
//!
//! Backward, a thread gathers for a patch of inputs: two by two pixels, of each four channels, which are stored at once.
//! Forward, it takes four channels of an output, or of a few of a column. The windows over a patch are known when the kernel is compiled, but for
//! where the image ends: every element is loaded once for the whole patch, all loads are under way at once, and no place is
//! divided for.
//!
//! Bound by memory: docs/perf has the share of the copy rate that each pass reaches. In 16 bits, where as many elements are
//! half the bytes, instructions bound it: where channels are a multiple of eight, those passes go by [`octets`].

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

pub mod octets;
pub mod quads;

use cuda_std::prelude::*;

use crate::band::cells::position;
use crate::elementwise::put4;
use crate::window::{MOST_COLUMNS, Nhwc, THREADS, Tiling, Window};

/// Rows of a patch.
const ROWS: usize = 2;
/// Elements that are stored at once.
const VECTOR: u32 = 4;
/// Columns of a patch of inputs.
const PIXELS: usize = 2;
/// Rows of a thread of a kernel that works out something before it begins; of as good ones the first.
const WEIGHTED_ROWS: [u32; 4] = [4, 3, 5, 6];
/// Its blocks that an H100 or H200 has room for: six on each of 132 multiprocessors.
const AT_ONCE: u64 = 6 * 132;
/// Channels of a patch.
const LANES: usize = VECTOR as usize;

/// How threads are laid over patches.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches {
    tiling: Tiling,
    /// Patches that are neighbours and of the same pixels.
    groups: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Patches {}

impl Patches {
    /// Over the inputs; and the grid and the block of the launch. None where channels are not a multiple of four, or windows
    /// not two apart or dilated.
    pub fn of_inputs(window: &Window<Nhwc>) -> Option<(Self, [u32; 3], [u32; 3])> {
        Self::of_input_vectors(window, VECTOR)
    }

    /// Over the outputs.
    pub fn of_outputs(window: &Window<Nhwc>) -> Option<(Self, [u32; 3], [u32; 3])> {
        let shared = window.size[0] > 2;
        Self::new(window, window.output, VECTOR, if shared { 4 } else { 1 }, [MOST_COLUMNS, THREADS])
    }

    /// As [`of_outputs`](Self::of_outputs), for kernels that draw a number for each output: small blocks of threads that have as
    /// much to do once, in runs of more rows, and indices of 32 bits.
    pub fn of_drawn_outputs(window: &Window<Nhwc>) -> Option<(Self, [u32; 3], [u32; 3])> {
        Self::drawn(window, VECTOR, 7)
    }

    /// As [`of_drawn_outputs`](Self::of_drawn_outputs), by octets.
    pub fn of_drawn_octets(window: &Window<Nhwc>) -> Option<(Self, [u32; 3], [u32; 3])> {
        Self::drawn(window, octets::LANES, 4)
    }

    fn drawn(window: &Window<Nhwc>, channels: u32, rows: u32) -> Option<(Self, [u32; 3], [u32; 3])> {
        let [height, width] = window.output.map(u64::from);
        let outputs = (u64::from(window.planes) * u64::from(window.channels)).checked_mul(height * width)?;
        (outputs <= 1 << 32).then(|| Self::new(window, window.output, channels, rows, [MOST_COLUMNS, THREADS / 2]))?
    }

    /// Over the outputs, of so many channels, for kernels that work out something before they begin: more rows a thread. Of `f32`, by
    /// small blocks, and as many rows as leave the last of them the least to do alone.
    pub fn of_weighted_outputs(window: &Window<Nhwc>, channels: u32) -> Option<(Self, [u32; 3], [u32; 3])> {
        let by = |rows, smaller| {
            Self::new(window, window.output, channels, rows, [MOST_COLUMNS / smaller, THREADS / smaller])
        };
        if channels != VECTOR {
            return by(3, 1);
        }
        // What comes before the first row takes about as long as a row.
        let takes = |grid: [u32; 3], rows: u32| {
            let blocks = grid.into_iter().map(u64::from).fold(1, u64::saturating_mul);
            blocks.div_ceil(AT_ONCE).saturating_mul(u64::from(rows + 1))
        };
        let ways = WEIGHTED_ROWS.into_iter().filter_map(|rows| by(rows, 2).map(|way| (takes(way.1, rows), way)));
        ways.min_by_key(|(takes, _)| *takes).map(|(_, way)| way)
    }

    /// Over the inputs, of so many channels.
    fn of_input_vectors(window: &Window<Nhwc>, channels: u32) -> Option<(Self, [u32; 3], [u32; 3])> {
        let cells = window.input.map(|length| length.div_ceil(2));
        // Outputs that give to several patches are better found in the cache by wide blocks.
        let (rows, most_columns) = if window.size[0] > 2 { (2, THREADS) } else { (1, MOST_COLUMNS) };
        let most = [most_columns, THREADS];
        Self::new(window, cells, channels, rows, most)
    }

    /// The plane of this thread; none for threads past the last.
    #[device_inline]
    pub(crate) fn plane(&self) -> Option<u32> {
        self.tiling.plane()
    }

    /// The place of this thread in a row; none for threads past the last. It has no more: rows of which the grid has no room for all,
    /// in as many planes, are terabytes.
    #[device_inline]
    pub(crate) fn place(&self) -> Option<u32> {
        self.tiling.places().next()
    }

    fn new(
        window: &Window<Nhwc>,
        size: [u32; 2],
        channels: u32,
        rows: u32,
        most: [u32; 2],
    ) -> Option<(Self, [u32; 3], [u32; 3])> {
        if !window.channels.is_multiple_of(channels) || window.stride != [2; 2] || window.dilation != [1; 2] {
            return None;
        }
        let groups = window.channels / channels;
        let window = Window { channels: groups, ..*window };
        let (tiling, grid, block) = Tiling::of_rows(&window, size, rows, most);
        Some((Self { tiling, groups }, grid, block))
    }
}

/// What the channels of an output give to the inputs of their windows.
#[derive(Clone, Copy)]
pub(crate) struct Shares {
    pub share: [f32; LANES],
    /// What is compared with an input's position in the window.
    pub position: [u32; LANES],
}

/// `dx = what the outputs give + beta * dx` over this thread's patches, for windows of `SIZE` by `SIZE` positions, two apart
/// and padded by `PADDING`: `load(inside, output)` of all outputs over a patch at once, whose elements begin at `output` if they
/// are `inside`, or `none`, `shares(loaded, row, column)` of each, and `add(sum, share, index, position)` for each input that the output's
/// window has at `position`. Inputs get what outputs give in the outputs' order.
///
/// # Safety
/// `dx` holds the window's inputs, and begins at a multiple of 16 bytes; the window is such.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "functions, each of one step")]
pub(crate) unsafe fn gather<T: Storage, G: Copy, const SIZE: u32, const PADDING: u32>(
    dx: GlobalMut<T>,
    beta: f32,
    window: &Window<Nhwc>,
    patches: &Patches,
    none: G,
    load: impl Fn(bool, usize) -> G,
    shares: impl Fn(G, u32, u32) -> Shares,
    add: impl Fn(f32, f32, u32, u32) -> f32,
) {
    let Some(plane) = patches.plane() else { return };
    // Along each axis a patch is a cell: one or two windows cover it.
    let two = const { position::<SIZE, PADDING>(false, 0).is_some() };
    let first = if two && PADDING == 0 { -1 } else { 0 };
    for place in patches.tiling.places() {
        let across = patches.tiling.column::<Nhwc>(place);
        let channel = (place - across * patches.groups) * VECTOR;
        let left = across * PIXELS as u32;
        for down in patches.tiling.rows() {
            let top = down * ROWS as u32;
            // What lies before the image wraps round to far after it, and is not loaded. One product finds the first output,
            // steps of a row and of a pixel the others: in 64 bits each product is several instructions.
            let corner = [down, across].map(|output| output.wrapping_add_signed(first));
            let [row, column] = corner.map(|output| output.cast_signed() as isize);
            let (line, pixel) = (window.output_line() as isize, window.pixel() as isize);
            let origin = window.output_plane(plane) as isize + row * line + column * pixel + channel as isize;
            // All loads first: asked for where it is used, each would be waited for before the next.
            let mut loaded = [[none; 2]; 2];
            unrolled!(I in [0 1] {
                unrolled!(J in [0 1] {
                    if two || I + J == 0 {
                        let (row, column) = (corner[0].wrapping_add(I as u32), corner[1].wrapping_add(J as u32));
                        let inside = (row < window.output[0]) & (column < window.output[1]);
                        let output = origin + I as isize * line + J as isize * pixel;
                        loaded[I][J] = load(inside, output.cast_unsigned());
                    }
                });
            });
            let shares = |i: usize, j: usize| {
                shares(loaded[i][j], corner[0].wrapping_add(i as u32), corner[1].wrapping_add(j as u32))
            };
            let given = [[shares(0, 0), shares(0, 1)], [shares(1, 0), shares(1, 1)]];
            let mut sums = [[[0.0; LANES]; PIXELS]; ROWS];
            unrolled!(I in [0 1] {
                unrolled!(J in [0 1] {
                    unrolled!(R in [0 1] {
                        unrolled!(C in [0 1] {
                            // Of the cell's windows the last is the only one, if they are not two.
                            let at = (
                                position::<SIZE, PADDING>(I == 1 || !two, R as u32),
                                position::<SIZE, PADDING>(J == 1 || !two, C as u32),
                            );
                            if let (Some(i), Some(j)) = at
                                && (two || I + J == 0)
                            {
                                unrolled!(K in [0 1 2 3] {
                                    let Shares { share, position } = given[I][J];
                                    sums[R][C][K] = add(sums[R][C][K], share[K], position[K], i * SIZE + j);
                                });
                            }
                        });
                    });
                });
            });
            let begin = window.input_plane(plane) + top as usize * window.input_line();
            unrolled!(R in [0 1] {
                if top + (R as u32) < window.input[0] {
                    let line = begin + R * window.input_line();
                    unrolled!(C in [0 1] {
                        let column = left + C as u32;
                        if column < window.input[1] {
                            let input = line + (column * window.pixel() + channel) as usize;
                            // SAFETY: four channels of a pixel, whose number is a multiple of four.
                            unsafe { put4(dx, input, Vec4::from(sums[R][C]), beta) };
                        }
                    });
                }
            });
        }
    }
}

/// Goes over this thread's outputs of windows of `SIZE` by `SIZE` positions, two apart and padded by `PADDING`: `of_row(values)`
/// is what is made of a window's row in a channel, with `outside` for what is not in the image, and
/// `finish(output, row, column, rows)` gets that of four channels of an output. All inputs of an output are on their way at
/// once, and threads beside each other have rows beside each other.
///
/// # Safety
/// `x` holds the window's inputs, and begins at a multiple of 16 bytes; the window is such; `patches` are of its outputs.
#[device_inline]
pub(crate) unsafe fn each<T: Storage, R: Copy, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    window: &Window<Nhwc>,
    patches: &Patches,
    outside: f32,
    of_row: impl Fn([f32; SIZE]) -> R,
    finish: impl Fn(usize, u32, u32, [[R; LANES]; SIZE]),
) {
    let Some(plane) = patches.plane() else { return };
    let [height, width] = window.input;
    let otherwise = Vec4::splat(T::from_f32(outside));
    for place in patches.tiling.places() {
        let column = patches.tiling.column::<Nhwc>(place);
        let channel = (place - column * patches.groups) * VECTOR;
        for row in patches.tiling.rows() {
            let [top, left] = [row, column].map(|output| (output * 2).wrapping_sub(PADDING));
            // As in `gather`: one product, and steps.
            let (line, pixel) = (window.input_line() as isize, window.pixel() as isize);
            let [down, right] = [top, left].map(|input| input.cast_signed() as isize);
            let origin = window.input_plane(plane) as isize + down * line + right * pixel + channel as isize;
            let mut inputs = [[otherwise; SIZE]; SIZE];
            unrolled!(I in [0 1 2] {
                unrolled!(J in [0 1 2] {
                    if I < SIZE && J < SIZE {
                        let inside = (top.wrapping_add(I as u32) < height) & (left.wrapping_add(J as u32) < width);
                        let input = origin + I as isize * line + J as isize * pixel;
                        // SAFETY: inside the image where they are loaded; a pixel's channels begin at a multiple of four.
                        inputs[I][J] = unsafe { x.load4_if(inside, input.cast_unsigned(), otherwise) };
                    }
                });
            });
            let line = window.output_plane(plane) + row as usize * window.output_line();
            let rows = inputs.map(|row| of_lanes(row, &of_row));
            finish(line + (column * window.pixel() + channel) as usize, row, column, rows);
        }
    }
}

/// What is made of a window's row, in each of four channels.
#[device_inline]
fn of_lanes<T: Storage, R: Copy, const SIZE: usize>(
    row: [Vec4<T>; SIZE],
    of_row: &impl Fn([f32; SIZE]) -> R,
) -> [R; LANES] {
    let of = |lane: usize| of_row(row.map(|four| four.to_array()[lane].to_f32()));
    [of(0), of(1), of(2), of(3)]
}

/// As [`each`], sliding down this thread's columns of outputs: rows that a window shares with the one before it are kept, and the
/// next rows are on their way while these are worked with. Fewer instructions, where rows are shared and these count, but
/// threads beside each other have rows further apart.
///
/// # Safety
/// As `each`'s.
#[device_inline]
pub(crate) unsafe fn slide<T: Storage, R: Copy, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    window: &Window<Nhwc>,
    patches: &Patches,
    outside: f32,
    of_row: impl Fn([f32; SIZE]) -> R,
    finish: impl Fn(usize, u32, u32, [[R; LANES]; SIZE]),
) {
    let Some(plane) = patches.plane() else { return };
    let [first, end] = patches.tiling.run();
    let otherwise = Vec4::splat(T::from_f32(outside));
    let (line, pixel) = (window.input_line(), window.pixel() as usize);
    for place in patches.tiling.places() {
        let column = patches.tiling.column::<Nhwc>(place);
        let channel = (place - column * patches.groups) * VECTOR;
        // What lies before the image wraps round to far after it. One comparison says of row and column whether an input is
        // there: the row is below its column's height.
        let [top, left] = [first, column].map(|output| (output * 2).wrapping_sub(PADDING));
        let mut height = [0; SIZE];
        unrolled!(J in [0 1 2] {
            if J < SIZE { height[J] = if left.wrapping_add(J as u32) < window.input[1] { window.input[0] } else { 0 }; }
        });
        let [down, right] = [top, left].map(|input| input.cast_signed() as isize);
        let origin = down * line as isize + right * pixel as isize + channel as isize;
        let mut at = window.input_plane(plane).wrapping_add_signed(origin);
        let mut input = top;
        let mut load = || {
            let mut row = [otherwise; SIZE];
            unrolled!(J in [0 1 2] {
                if J < SIZE {
                    // SAFETY: inside the image where they are loaded; a pixel's channels begin at a multiple of four.
                    row[J] = unsafe { x.load4_if(input < height[J], at.wrapping_add(J * pixel), otherwise) };
                }
            });
            input = input.wrapping_add(1);
            at = at.wrapping_add(line);
            row
        };
        let of_rows = |row: [Vec4<T>; SIZE]| of_lanes(row, &of_row);
        let mut rows = [of_rows([otherwise; SIZE]); SIZE];
        if SIZE > 2 {
            rows[SIZE - 1] = of_rows(load());
        }
        let mut next = [load(), load()];
        let mut output = window.output_plane(plane)
            + first as usize * window.output_line()
            + (column * window.pixel() + channel) as usize;
        let mut row = first;
        while row < end {
            let here = next;
            if row + 1 < end {
                next = [load(), load()];
            }
            if SIZE > 2 {
                rows[0] = rows[SIZE - 1];
            }
            rows[SIZE - 2] = of_rows(here[0]);
            rows[SIZE - 1] = of_rows(here[1]);
            finish(output, row, column, rows);
            output += window.output_line();
            row += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_whole_vectors_of_windows_two_apart() {
        let window = Window::<Nhwc> {
            planes: 1,
            channels: 8,
            input: [7, 9],
            output: [4, 5],
            size: [3; 2],
            stride: [2; 2],
            padding: [1; 2],
            dilation: [1; 2],
            ..Window::default()
        };
        let fits = |window: Window<Nhwc>| {
            let found = [Patches::of_outputs(&window), Patches::of_inputs(&window)].map(|found| found.is_some());
            assert_eq!(found[0], found[1]);
            found[0]
        };
        assert!(fits(window));
        assert!(!fits(Window { channels: 6, ..window }));
        assert!(!fits(Window { stride: [2, 1], ..window }));
        assert!(!fits(Window { dilation: [1, 2], ..window }));
    }
}
