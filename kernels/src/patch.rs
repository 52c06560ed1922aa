//! Pooling by patches: what the kernels for windows of a known geometry share.
//!
//! Backward, a thread gathers for a patch of neighbouring inputs: two rows by four elements that are stored at once, columns
//! of a channel or, with the channels last, channels of each of two pixels. Forward, it slides the window over a patch of
//! outputs: two rows by two of a channel, whose inputs are loaded by four columns at once, or four channels of a pixel. The
//! windows over a patch are known when the kernel is compiled, but for where the image ends: every element is loaded once
//! for the whole patch, all loads are under way at once, and no place is divided for.
//!
//! Bound by memory. In f32 these reach 0.67 to 0.89 of the copy rate on an H200 (64×64×112×112, docs/perf): with 3 or 4 blocks a
//! multiprocessor, too few loads are under way to hide their latency. In 16 bits, where as many elements are half the
//! bytes, 0.37 to 0.74: instructions are suspected there.

use core::marker::PhantomData;

use cuda_std::prelude::*;

use crate::elementwise::put4;
use crate::window::{Order, Tiling, Window};

/// Rows of a patch.
const ROWS: usize = 2;
/// Elements that are stored at once.
const VECTOR: u32 = 4;
/// Columns of a patch of inputs with the channels last.
const PIXELS: u32 = 2;
/// Columns of a patch of a channel's outputs.
const PAIR: u32 = 2;

/// A window of as many rows as columns, with the same stride and padding both ways and without dilation; the stride
/// divides the sizes of a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed<const SIZE: u32, const STRIDE: u32, const PADDING: u32>;

impl<const SIZE: u32, const STRIDE: u32, const PADDING: u32> Fixed<SIZE, STRIDE, PADDING> {
    /// The first output over a patch, counted from that which the patch's first input begins with.
    const FIRST: i32 = {
        assert!(STRIDE == 2, "the stride divides a patch, and at most three outputs are over it each way");
        let before = SIZE as i32 - 1 - PADDING as i32;
        -(before / STRIDE as i32)
    };

    /// Outputs over as many inputs.
    const fn over(inputs: usize) -> usize {
        ((inputs as i32 - 1 + PADDING as i32) / STRIDE as i32 - Self::FIRST + 1) as usize
    }

    /// The position of output number `output` over a patch at input number `input`, if its window has one there.
    const fn position(output: usize, input: usize) -> Option<u32> {
        let begin = (Self::FIRST + output as i32) * STRIDE as i32 - PADDING as i32;
        let position = input as i32 - begin;
        if 0 <= position && position < SIZE as i32 { Some(position as u32) } else { None }
    }

    /// Whether a window is such, and patches fit its images.
    pub fn fits<L: Order>(window: &Window<L>) -> bool {
        let is = |pair: [u32; 2], number| pair == [number; 2];
        let geometry = is(window.size, SIZE) && is(window.stride, STRIDE) && is(window.padding, PADDING);
        let together = if L::CHANNELS_LAST { window.channels } else { window.input[1] };
        geometry && is(window.dilation, 1) && together.is_multiple_of(VECTOR)
    }
}

/// How threads are laid over patches.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches<L: Order> {
    tiling: Tiling,
    /// Patches that are neighbours and of the same pixels.
    groups: u32,
    order: PhantomData<L>,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl<L: Order> KernelParam for Patches<L> {}

impl<L: Order> Patches<L> {
    /// Over the inputs of windows that patches fit; and the grid and the block of the launch.
    pub fn of_inputs(window: &Window<L>) -> (Self, [u32; 3], [u32; 3]) {
        let [height, width] = window.input;
        let across = if L::CHANNELS_LAST { width.div_ceil(PIXELS) } else { width / VECTOR };
        Self::new(window, [height.div_ceil(ROWS as u32), across])
    }

    /// Over the outputs.
    pub fn of_outputs(window: &Window<L>) -> (Self, [u32; 3], [u32; 3]) {
        let [height, width] = window.output;
        let size =
            if L::CHANNELS_LAST { [height, width] } else { [height.div_ceil(ROWS as u32), width.div_ceil(PAIR)] };
        Self::new(window, size)
    }

    fn new(window: &Window<L>, size: [u32; 2]) -> (Self, [u32; 3], [u32; 3]) {
        let groups = if L::CHANNELS_LAST { window.channels / VECTOR } else { 1 };
        let (tiling, grid, block) = Tiling::new(&Window { channels: groups, ..*window }, size);
        (Self { tiling, groups, order: PhantomData }, grid, block)
    }
}

/// What outputs give to the inputs of their windows, one of each lane.
#[derive(Clone, Copy)]
pub(crate) struct Shares<const LANES: usize> {
    pub share: [f32; LANES],
    /// What is compared with an input's position in the window.
    pub position: [u32; LANES],
}

/// `LANES` elements, one or four, from `i` on, or `otherwise`.
///
/// # Safety
/// `from` holds them if `inside`, and four begin at a multiple of their size together.
#[inline(always)]
pub(crate) unsafe fn lanes<T: Vector4, const LANES: usize>(
    from: Global<T>,
    inside: bool,
    i: usize,
    otherwise: T,
) -> [T; LANES] {
    let mut elements = [otherwise; LANES];
    // SAFETY: the caller's.
    unsafe {
        if LANES == 1 {
            elements[0] = from.load_if(inside, i, otherwise);
        } else {
            let loaded = from.load4_if(inside, i, Vec4::splat(otherwise)).to_array();
            unrolled!(K in [0 1 2 3] { if K < LANES { elements[K] = loaded[K]; } });
        }
    }
    elements
}

/// `dx = what the outputs give + beta * dx` over this thread's patches: `shares(inside, output, row, column)` of the output
/// at that row and column, whose elements begin at `output` if it is `inside`, and `add(sum, share, index, position)` for
/// each input that the output's window has at `position`. Inputs get what outputs give in the outputs' order.
///
/// # Safety
/// `dx` holds the window's inputs, and begins at a multiple of 16 bytes; the geometry fits the window; `LANES` is four with
/// the channels last, else one.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel's, and what differs")]
pub(crate) unsafe fn gather<
    T: Storage,
    L: Order,
    const LANES: usize,
    const SIZE: u32,
    const STRIDE: u32,
    const PADDING: u32,
>(
    dx: GlobalMut<T>,
    beta: f32,
    window: &Window<L>,
    patches: &Patches<L>,
    shares: impl Fn(bool, usize, u32, u32) -> Shares<LANES>,
    add: impl Fn(f32, f32, u32, u32) -> f32,
) {
    let Some(plane) = patches.tiling.plane() else { return };
    let columns = if L::CHANNELS_LAST { PIXELS } else { VECTOR };
    let over = [Fixed::<SIZE, STRIDE, PADDING>::over(ROWS), Fixed::<SIZE, STRIDE, PADDING>::over(columns as usize)];
    let first = Fixed::<SIZE, STRIDE, PADDING>::FIRST;
    for place in patches.tiling.places() {
        let across = patches.tiling.column::<L>(place);
        let channel = (place - across * patches.groups) * VECTOR;
        let left = across * columns;
        for down in patches.tiling.rows() {
            let top = down * ROWS as u32;
            // What lies before the image wraps round to far after it, and is not loaded. One product finds the first output,
            // steps of a row and of a pixel the others: in 64 bits each product is several instructions.
            let corner = [top, left].map(|input| (input / STRIDE).wrapping_add_signed(first));
            let [row, column] = corner.map(|output| output.cast_signed() as isize);
            let (line, pixel) = (window.output_line() as isize, window.pixel() as isize);
            let origin = window.output_plane(plane) as isize + row * line + column * pixel + channel as isize;
            let none = Shares { share: [0.0; LANES], position: [u32::MAX; LANES] };
            let mut given = [[none; 3]; 3];
            unrolled!(I in [0 1 2] {
                unrolled!(J in [0 1 2] {
                    if I < over[0] && J < over[1] {
                        let (row, column) = (corner[0].wrapping_add(I as u32), corner[1].wrapping_add(J as u32));
                        let inside = (row < window.output[0]) & (column < window.output[1]);
                        let output = origin + I as isize * line + J as isize * pixel;
                        given[I][J] = shares(inside, output.cast_unsigned(), row, column);
                    }
                });
            });
            let mut sums = [[[0.0; LANES]; 4]; ROWS];
            unrolled!(I in [0 1 2] {
                unrolled!(J in [0 1 2] {
                    unrolled!(R in [0 1] {
                        unrolled!(C in [0 1 2 3] {
                            if I < over[0] && J < over[1] && C < columns as usize {
                                let at = (
                                    Fixed::<SIZE, STRIDE, PADDING>::position(I, R),
                                    Fixed::<SIZE, STRIDE, PADDING>::position(J, C),
                                );
                                if let (Some(i), Some(j)) = at {
                                    unrolled!(K in [0 1 2 3] {
                                        if K < LANES {
                                            let Shares { share, position } = given[I][J];
                                            sums[R][C][K] = add(sums[R][C][K], share[K], position[K], i * SIZE + j);
                                        }
                                    });
                                }
                            }
                        });
                    });
                });
            });
            let begin = window.input_plane(plane) + top as usize * window.input_line();
            unrolled!(R in [0 1] {
                if top + (R as u32) < window.input[0] {
                    let line = begin + R * window.input_line();
                    if LANES == 1 {
                        let [a, b, c, d] = sums[R].map(|sum| sum[0]);
                        // SAFETY: four columns of a row, whose number is a multiple of four.
                        unsafe { put4(dx, line + left as usize, Vec4::new(a, b, c, d), beta) };
                    } else {
                        unrolled!(C in [0 1] {
                            let column = left + C as u32;
                            if column < window.input[1] {
                                let mut of = [0.0; 4];
                                unrolled!(K in [0 1 2 3] { if K < LANES { of[K] = sums[R][C][K]; } });
                                let [a, b, c, d] = of;
                                let input = line + (column * window.pixel() + channel) as usize;
                                // SAFETY: four channels of a pixel, whose number is a multiple of four.
                                unsafe { put4(dx, input, Vec4::new(a, b, c, d), beta) };
                            }
                        });
                    }
                }
            });
        }
    }
}

/// Slides the windows of this thread's patches of outputs over the inputs of their channels: `begin(row, column)` is what
/// there is of an output before its first input, `step(state, input, position)` after another, in row-major order; inputs
/// outside of the image are `outside`. `finish(output, row, column, states)` gets two outputs that are neighbours, of which
/// the second may not exist.
///
/// # Safety
/// `x` holds the window's inputs, row-major, and begins at a multiple of 16 bytes; the geometry fits the window.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel's, and what differs")]
pub(crate) unsafe fn slide_channels_apart<
    T: Storage,
    L: Order,
    S: Copy,
    const SIZE: u32,
    const STRIDE: u32,
    const PADDING: u32,
>(
    x: Global<T>,
    window: &Window<L>,
    patches: &Patches<L>,
    outside: f32,
    begin: impl Fn(u32, u32) -> S,
    step: impl Fn(S, f32, u32) -> S,
    finish: impl Fn(usize, u32, u32, [S; 2]),
) {
    let Some(plane) = patches.tiling.plane() else { return };
    let [height, width] = window.input;
    // Input rows and columns of a patch; the first column of four that are loaded at once is the first inside the image.
    let (down, right) = ((ROWS as u32 - 1) * STRIDE + SIZE, (PAIR - 1) * STRIDE + SIZE);
    for place in patches.tiling.places() {
        let columns = place * PAIR;
        let left = columns * STRIDE;
        for patch in patches.tiling.rows() {
            let rows = patch * ROWS as u32;
            let top = (rows * STRIDE).wrapping_sub(PADDING);
            // As in `gather`: one product, and steps.
            let line = window.input_line() as isize;
            let origin = window.input_plane(plane) as isize + top.cast_signed() as isize * line;
            let mut inputs = [[outside; 5]; 5];
            unrolled!(I in [0 1 2 3 4] {
                if (I as u32) < down {
                    let there = top.wrapping_add(I as u32) < height;
                    let line = (origin + I as isize * line).cast_unsigned();
                    let otherwise = T::from_f32(outside);
                    // SAFETY: inside the image where they are loaded; four columns of a row begin at a multiple of four.
                    let (four, before, after) = unsafe {
                        let at = |column: u32| line.wrapping_add(column as usize);
                        let four = x.load4_if(there & (left < width), at(left), Vec4::splat(otherwise));
                        let before = left.wrapping_sub(1);
                        let before = if PADDING > 0 { x.load_if(there & (before < width), at(before), otherwise) } else { otherwise };
                        let after = left + VECTOR;
                        let after = if right > VECTOR + PADDING { x.load_if(there & (after < width), at(after), otherwise) } else { otherwise };
                        (four.map(T::to_f32).to_array(), before.to_f32(), after.to_f32())
                    };
                    let [a, b, c, d] = four;
                    inputs[I] = if PADDING > 0 { [before, a, b, c, d] } else { [a, b, c, d, after] };
                }
            });
            let first = window.output_plane(plane) + rows as usize * window.output_line() + columns as usize;
            unrolled!(R in [0 1] {
                let row = rows + R as u32;
                if row < window.output[0] {
                    let mut states = [begin(row, columns), begin(row, columns + 1)];
                    unrolled!(C in [0 1] {
                        unrolled!(I in [0 1 2] {
                            unrolled!(J in [0 1 2] {
                                if (I as u32) < SIZE && (J as u32) < SIZE {
                                    let input = inputs[R * STRIDE as usize + I][C * STRIDE as usize + J];
                                    states[C] = step(states[C], input, I as u32 * SIZE + J as u32);
                                }
                            });
                        });
                    });
                    finish(first + R * window.output_line(), row, columns, states);
                }
            });
        }
    }
}

/// As [`slide_channels_apart`], with the channels last: `finish` gets four channels of an output.
///
/// # Safety
/// As [`slide_channels_apart`]'s, but for the order.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel's, and what differs")]
pub(crate) unsafe fn slide_channels_last<
    T: Storage,
    L: Order,
    S: Copy,
    const SIZE: u32,
    const STRIDE: u32,
    const PADDING: u32,
>(
    x: Global<T>,
    window: &Window<L>,
    patches: &Patches<L>,
    outside: f32,
    begin: impl Fn(u32, u32) -> S,
    step: impl Fn(S, f32, u32) -> S,
    finish: impl Fn(usize, u32, u32, [S; 4]),
) {
    let Some(plane) = patches.tiling.plane() else { return };
    let [height, width] = window.input;
    for place in patches.tiling.places() {
        let column = patches.tiling.column::<L>(place);
        let channel = (place - column * patches.groups) * VECTOR;
        for row in patches.tiling.rows() {
            let [top, left] = [row, column].map(|output| (output * STRIDE).wrapping_sub(PADDING));
            // As in `gather`: one product, and steps.
            let (line, pixel) = (window.input_line() as isize, window.pixel() as isize);
            let [down, right] = [top, left].map(|input| input.cast_signed() as isize);
            let origin = window.input_plane(plane) as isize + down * line + right * pixel + channel as isize;
            let mut inputs = [[[outside; 4]; 3]; 3];
            unrolled!(I in [0 1 2] {
                unrolled!(J in [0 1 2] {
                    if (I as u32) < SIZE && (J as u32) < SIZE {
                        let inside = (top.wrapping_add(I as u32) < height) & (left.wrapping_add(J as u32) < width);
                        let input = origin + I as isize * line + J as isize * pixel;
                        let otherwise = Vec4::splat(T::from_f32(outside));
                        // SAFETY: inside the image where they are loaded; a pixel's channels begin at a multiple of four.
                        let four = unsafe { x.load4_if(inside, input.cast_unsigned(), otherwise) };
                        inputs[I][J] = four.map(T::to_f32).to_array();
                    }
                });
            });
            let mut states = [begin(row, column); 4];
            unrolled!(I in [0 1 2] {
                unrolled!(J in [0 1 2] {
                    if (I as u32) < SIZE && (J as u32) < SIZE {
                        unrolled!(K in [0 1 2 3] {
                            states[K] = step(states[K], inputs[I][J][K], I as u32 * SIZE + J as u32);
                        });
                    }
                });
            });
            let line = window.output_plane(plane) + row as usize * window.output_line();
            finish(line + (column * window.pixel() + channel) as usize, row, column, states);
        }
    }
}

/// Stores two neighbours, of which the second may not exist where a row has an odd number.
///
/// # Safety
/// `to` begins at a multiple of 16 bytes and holds `i`, a place in a row of `width` elements after an even number of others,
/// and the next if `column + 1 < width`.
#[inline(always)]
pub(crate) unsafe fn store_pair<T: Vector2>(to: GlobalMut<T>, i: usize, [a, b]: [T; 2], column: u32, width: u32) {
    // SAFETY: the caller's; rows of an even number of elements begin at even places.
    unsafe {
        if width.is_multiple_of(PAIR) {
            to.store2(i, Vec2::new(a, b));
        } else {
            to.store(i, a);
            if column + 1 < width {
                to.store(i + 1, b);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{Nchw, Nhwc};

    /// Of every input of a patch, at any place of the image, all windows over it and no others.
    fn covers<const SIZE: u32, const STRIDE: u32, const PADDING: u32>() {
        for inputs in [2, 4] {
            let over = Fixed::<SIZE, STRIDE, PADDING>::over(inputs);
            assert!(over <= 3, "{SIZE} {STRIDE} {PADDING}: {over} outputs over {inputs} inputs");
            for patch in 0..5 {
                let begin = patch * inputs;
                for input in 0..inputs {
                    let at = begin + input + PADDING as usize;
                    let expected: Vec<_> = (0..=at / STRIDE as usize)
                        .filter(|output| at - output * (STRIDE as usize) < SIZE as usize)
                        .map(|output| (output as i32, (at - output * STRIDE as usize) as u32))
                        .collect();
                    let corner = (begin / STRIDE as usize) as i32 + Fixed::<SIZE, STRIDE, PADDING>::FIRST;
                    let found: Vec<_> = (0..over)
                        .filter_map(|output| {
                            let position = Fixed::<SIZE, STRIDE, PADDING>::position(output, input)?;
                            Some((corner + output as i32, position))
                        })
                        .filter(|(output, _)| *output >= 0)
                        .collect();
                    assert_eq!(found, expected, "{SIZE} {STRIDE} {PADDING}: input {input} of patch {patch}");
                }
            }
        }
    }

    #[test]
    fn patches_know_their_windows() {
        covers::<2, 2, 0>();
        covers::<3, 2, 0>();
        covers::<3, 2, 1>();
    }

    #[test]
    fn fits_whole_vectors_of_such_windows() {
        let window = Window::<Nchw> {
            planes: 1,
            channels: 1,
            input: [7, 8],
            output: [4, 4],
            size: [3; 2],
            stride: [2; 2],
            padding: [1; 2],
            dilation: [1; 2],
            order: PhantomData,
        };
        assert!(
            Fixed::<3, 2, 1>::fits(&window) && !Fixed::<3, 2, 0>::fits(&window) && !Fixed::<2, 2, 0>::fits(&window)
        );
        assert!(!Fixed::<3, 2, 1>::fits(&Window { input: [8, 7], ..window }));
        assert!(!Fixed::<3, 2, 1>::fits(&Window { dilation: [1, 2], ..window }));
        let last = |channels| Window::<Nhwc> { channels, ..Window::default() };
        let shaped = |of: Window<Nhwc>| Window { size: [2; 2], stride: [2; 2], dilation: [1; 2], ..of };
        assert!(Fixed::<2, 2, 0>::fits(&shaped(last(8))) && !Fixed::<2, 2, 0>::fits(&shaped(last(6))));
    }
}
