//! Backward with the gradients of mean and variance, of row-major images, of square windows of a few known sizes whose weights are the same
//! everywhere in all planes or in all of a channel: by [bands](crate::band) of rows of `x` and `dy` in shared memory, so that each is read once.
//!
//! A thread goes down its columns of inputs, four where rows are a multiple of four elements, else as many as windows are apart, in cells of as
//! many rows. It keeps the rows of `dy` whose windows are over its cell. Of these it makes the input's gradient, along y and then along x, and adds
//! `x · dy` to a sum for each position of the window ([`positions`](super::positions) says what these are for).
//!
//! A block leaves four sums, or four for each of its planes where each channel has a Gaussian; another kernel adds these up. Where all share one, a
//! block takes a band after another, and keeps its sums.
//!
//! What lies outside of the image counts as zeros. Where that makes a sum NaN, because an element is infinite, a thread does its sums again without.
//!
//! Bound by memory in f32, of 2×2 to 5×5 windows two apart: 0.79 to 0.85 of the copy rate on an H200; by instructions in 16 bits and of larger windows, and of
//! small planes by what each thread does once (docs/perf).

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::cell::{COLUMNS, Cell, OVER, over};
use super::sets::{Derived, Sets};
use super::{SUMS_PER_GAUSSIAN, leave};
use crate::band::{self, BandLaunch, Bands, Series, Span, Staged, least};
use crate::elementwise::{put, put4};
use crate::window::{Nchw, Window};

/// Columns of inputs of a thread whose rows are a multiple of as many.
pub const FOUR: u32 = 4;

/// Sizes of windows, how far they are apart, and what is left of their padding by that, that there are kernels for.
const SIZES: [(u32, u32, u32); 9] =
    [(2, 2, 0), (3, 2, 0), (3, 2, 1), (5, 2, 0), (7, 2, 1), (3, 1, 0), (5, 1, 0), (4, 4, 0), (3, 3, 0)];

/// The same of the input's gradient alone, and whether by fours.
const INPUT_SIZES: [(u32, u32, u32, bool); 5] =
    [(5, 2, 0, false), (7, 2, 1, false), (4, 4, 0, false), (4, 4, 0, true), (3, 3, 0, false)];

/// Blocks that a multiprocessor has room for, at least: as many as leave a thread the registers for its sums, and for the rows that it keeps.
pub const fn min_blocks(size: usize, fours: bool) -> u32 {
    match (size, fours) {
        (2, _) => 4,
        (3, _) | (4, true) => 3,
        _ => 2,
    }
}

/// The same of the input's gradient alone.
const fn input_min_blocks(size: usize) -> u32 {
    if size > 5 { 3 } else { 4 }
}

/// The bands of a launch for elements of so many bytes, of all gradients or of the input's alone; none where there is no kernel for the windows.
pub fn plan(window: &Window<Nchw>, bytes: usize, learnt: bool) -> Option<(Bands, BandLaunch)> {
    let [size, stride, padding] = [window.size[0], window.stride[0], window.padding[0]];
    let phase = padding % stride;
    let square = window.size[1] == size && window.stride[1] == stride && window.padding[1] % stride == phase;
    let known = if learnt {
        SIZES.contains(&(size, stride, phase))
    } else {
        INPUT_SIZES.contains(&(size, stride, phase, by_fours(window)))
    };
    let columns = window.input[1].div_ceil(if by_fours(window) { FOUR } else { stride });
    let fits = square && window.dilation == [1; 2] && known;
    fits.then(|| Bands::of_gradient_cells(window, columns, bytes, if learnt { bytes } else { 0 }))?
}

/// Whether a thread has four columns.
pub const fn by_fours(window: &Window<Nchw>) -> bool {
    window.input[1].is_multiple_of(FOUR) && FOUR.is_multiple_of(window.stride[1])
}

/// `dx = sum over windows that cover the pixel of weight * dy + beta * dx`, where it is asked for, and each block's part of the sums of
/// `x * dw * dy` by `mu_y`, `mu_x`, `var_y` and `var_x`: of windows of `SIZE` by `SIZE` positions, `STRIDE` apart, whose paddings leave `PHASE` by that.
/// Where all planes share a Gaussian the sums are laid out `[blocks, 4]`, else `[planes, bands of a plane, 4]`.
///
/// There is a block for each band of the series, or fewer if all planes share a Gaussian.
///
/// # Safety
/// The parent module's. `x` and `dx` hold the inputs of `window`, which is such and whose rows are a multiple of four elements if `FOURS`, and `dy` its
/// outputs; `mean` and `var` are those of `sets`, one a plane; `sums` holds what is left; `bands` are [the plan's](plan), with its block, and the
/// series of them; there is shared memory for the [weights and their derivatives](Sets::bytes_with_derivatives) and the plan's.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = min_blocks(SIZE, FOURS),
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, PHASE, FOURS) = [
            (2, 2, 0, false), (2, 2, 0, true), (3, 2, 0, false), (3, 2, 0, true), (3, 2, 1, false), (3, 2, 1, true),
            (5, 2, 0, false), (5, 2, 0, true), (7, 2, 1, false), (7, 2, 1, true), (3, 1, 0, false), (3, 1, 0, true),
            (5, 1, 0, false), (5, 1, 0, true), (4, 4, 0, false), (4, 4, 0, true), (3, 3, 0, false),
        ]
    )
)]
pub unsafe fn gaussian_pool_all_gradients<
    T: Storage,
    const SIZE: usize,
    const STRIDE: usize,
    const PHASE: usize,
    const FOURS: bool,
>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: Option<GlobalMut<T>>,
    beta: f32,
    sums: GlobalMut<f32>,
    sets: Sets,
    window: Window<Nchw>,
    bands: Bands,
    series: Series,
) {
    // SAFETY: the caller's.
    unsafe {
        let parameters = ([mean, var], sets);
        gradients::<T, SIZE, STRIDE, PHASE, FOURS>(
            Some((x, sums)),
            dy,
            parameters,
            (dx, beta),
            &window,
            (&bands, &series),
        );
    }
}

/// As [`gaussian_pool_all_gradients`], of the input's gradient alone; a block for each band of the series.
///
/// # Safety
/// As [`gaussian_pool_all_gradients`]'s; shared memory has room for the [weights](Sets::bytes) and the plan's rows.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = input_min_blocks(SIZE),
    instances(
        T = [f32, f16, bf16],
        (SIZE, STRIDE, PHASE, FOURS) = [
            (5, 2, 0, false), (7, 2, 1, false), (4, 4, 0, false), (4, 4, 0, true), (3, 3, 0, false),
        ]
    )
)]
pub unsafe fn gaussian_pool_input_gradient<
    T: Storage,
    const SIZE: usize,
    const STRIDE: usize,
    const PHASE: usize,
    const FOURS: bool,
>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    sets: Sets,
    window: Window<Nchw>,
    bands: Bands,
    series: Series,
) {
    // SAFETY: the caller's.
    unsafe {
        let parameters = ([mean, var], sets);
        gradients::<T, SIZE, STRIDE, PHASE, FOURS>(None, dy, parameters, (Some(dx), beta), &window, (&bands, &series));
    }
}

/// [`gaussian_pool_all_gradients`], or without `x` and sums [`gaussian_pool_input_gradient`].
///
/// # Safety
/// The kernels'.
#[device_inline]
unsafe fn gradients<T: Storage, const SIZE: usize, const STRIDE: usize, const PHASE: usize, const FOURS: bool>(
    learnt: Option<(Global<T>, GlobalMut<f32>)>,
    dy: Global<T>,
    (parameters, sets): ([Global<f32>; 2], Sets),
    (dx, beta): (Option<GlobalMut<T>>, f32),
    window: &Window<Nchw>,
    (bands, series): (&Bands, &Series),
) {
    let over = const { over(SIZE, STRIDE, PHASE) };
    let cells = const { if FOURS { FOUR as usize / STRIDE } else { 1 } };
    let columns = const { if FOURS { FOUR as usize } else { STRIDE } };
    let last = window.padding.map(|padding| padding.div_ceil(STRIDE as u32));
    let copy = |shared: Shared<f32>, span: &Span| {
        let given = outputs_of(window, span, last[0], over as u32);
        let taken = span.rows.map(|row| least(row * STRIDE as u32, window.input[0]));
        // SAFETY: the caller's; the launch's shared memory is for these rows.
        unsafe {
            let given = Staged::copy(shared.cast::<T>(), dy, span, given, window.output);
            let taken = learnt.map(|(x, _)| Staged::copy(given.behind::<T>(), x, span, taken, window.input));
            (given, taken)
        }
    };
    let mut number = thread::block_idx_x();
    let mut span = series.span(number);
    // SAFETY: the caller's; all threads come here.
    let ((mut given, mut taken), table) =
        unsafe { sets.stage::<_, SIZE>(parameters, &span, learnt.is_some(), |room| copy(room, &span)) };
    let mut part = bands.part(&span);
    // SAFETY: as above. The block has this plane, or the thread no columns.
    let (derived, weights) = unsafe { (learnt.map(|_| table.derive(parameters)), table.load(part.plane, 0)) };
    let zero = T::from_f32(0.0);
    let mut sums = Cell::<SIZE, STRIDE, PHASE>::new(weights);
    loop {
        let plane = window.input_plane(span.first_plane + part.plane);
        let line = window.input_line();
        for place in bands.each_column(&part) {
            let [height, width] = window.output;
            // The first of the outputs that give to the cells. What lies before the first wraps round to far after the last. One comparison
            // says of row and column whether an output is there: the row is below its column's height.
            let first = (cells as u32 * place + last[1]).wrapping_sub(over as u32 - 1);
            let mut below = [0; OVER];
            unrolled!(J in [0 1 2 3 4 5 6 7] {
                if J < over + cells - 1 && first.wrapping_add(J as u32) < width { below[J] = height; }
            });
            let column = place * columns as u32;
            let begin = plane + column as usize;
            // The first cell has as many rows of outputs as windows are over it.
            let mut output = (part.rows[0] + last[0]).wrapping_sub(over as u32 - 1);
            let mut cell = part.rows[0].wrapping_sub(over as u32 - 1);
            while cell != part.rows[1] {
                unrolled!(C in [0 1 2 3 4] {
                    if C < over && cell != part.rows[1] {
                        let at = given.place(part.plane, output, first);
                        unrolled!(J in [0 1 2 3 4 5 6 7] {
                            if J < over + cells - 1 {
                                let (inside, at) = (output < below[J], at.wrapping_add(J as u32));
                                // SAFETY: one of the outputs that give to this thread's rows, and then staged.
                                sums.outputs[C][J] = unsafe { given.load_if(inside, at, zero) }.to_f32();
                            }
                        });
                        // The first rows of outputs are for the first cell.
                        if cell.wrapping_sub(part.rows[0]) < part.rows[1] - part.rows[0] {
                            unrolled!(R in [0 1 2 3] {
                                let row = cell * STRIDE as u32 + R as u32;
                                if R < STRIDE && row < window.input[0] {
                                    // SAFETY: a row of the band; columns that are there, four where rows are a multiple of four.
                                    let x = taken.map(|rows| unsafe {
                                        let here = rows.place(part.plane, row, column);
                                        of_row::<T, FOURS>(&rows, here, columns, window.input[1] - column)
                                    });
                                    let given = sums.gather(C, R, columns, x);
                                    if let Some(dx) = dx {
                                        let at = begin + row as usize * line;
                                        // SAFETY: the row is there, and the columns that are stored; rows are a multiple of four, if it has four columns.
                                        unsafe {
                                            if FOURS {
                                                put4(dx, at, Vec4::from(given), beta);
                                            } else {
                                                unrolled!(K in [0 1 2 3] {
                                                    if K < columns && column + (K as u32) < window.input[1] {
                                                        put(dx, at + K, given[K], beta);
                                                    }
                                                });
                                            }
                                        }
                                    }
                                }
                            });
                        }
                        output = output.wrapping_add(1);
                        cell = cell.wrapping_add(1);
                    }
                });
            }
        }
        number += thread::grid_dim_x();
        if number >= series.count() {
            break;
        }
        // Everybody is done with the rows that are there.
        thread::sync_threads();
        span = series.span(number);
        part = bands.part(&span);
        // SAFETY: as above; all planes share the weights, before the rows.
        unsafe {
            (given, taken) = copy(table.behind(), &span);
            band::wait((given, taken));
        }
    }
    let (Some((x, parts)), Some(derived)) = (learnt, derived) else { return };
    // The derivatives are there.
    thread::sync_threads();
    // SAFETY: the block has this plane, or this thread no products, and came to a barrier since.
    let mut of_thread = unsafe { derived.gradients(part.plane, &sums.products) };
    let [a, b, c, d] = of_thread;
    if (a + b + c + d).is_nan() {
        // SAFETY: the caller's; as above.
        of_thread = unsafe { again::<_, SIZE, STRIDE>(x, dy, &derived, window, (bands, series), columns as u32) };
    }
    let of_threads = shared_array![f32; (band::THREADS * SUMS_PER_GAUSSIAN) as usize].handle();
    // SAFETY: there is room for the sums of all threads, and four for each block, or for each of its planes.
    unsafe {
        if sets.is_one() || !span.whole {
            leave(of_thread, of_threads, parts, thread::block_idx_x() as usize);
        } else {
            leave_of_planes(of_thread, of_threads, parts, &span, bands.threads_of_plane());
        }
    }
}

/// The inputs of a row from a place on, so many, of which so many are there; four if `FOURS`.
///
/// # Safety
/// They are staged, and the place is a multiple of four if `FOURS`.
#[device_inline]
unsafe fn of_row<T: Storage, const FOURS: bool>(
    rows: &Staged<T>,
    place: u32,
    columns: usize,
    there: u32,
) -> [f32; COLUMNS] {
    let zero = T::from_f32(0.0);
    // SAFETY: the caller's.
    unsafe {
        if FOURS {
            return rows.load4_if(true, place, Vec4::splat(zero)).map(T::to_f32).to_array();
        }
        let mut row = [0.0; COLUMNS];
        unrolled!(K in [0 1 2 3] {
            if K < columns {
                row[K] = rows.load_if((K as u32) < there, place + K as u32, zero).to_f32();
            }
        });
        row
    }
}

/// The rows of outputs that give to the block's cells.
#[device_inline]
fn outputs_of(window: &Window<Nchw>, span: &Span, last: u32, over: u32) -> [u32; 2] {
    if span.whole {
        return [0, window.output[0]];
    }
    let end = least(span.rows[1] + last, window.output[0]);
    [least((span.rows[0] + last + 1).saturating_sub(over), end), end]
}

/// Leaves the sums over each plane's threads, by `mu_y`, `mu_x`, `var_y` and `var_x`.
///
/// # Safety
/// `of_threads` holds as many for each thread of the block, which is one-dimensional and made of whole warps, at a multiple of 16 bytes, and nobody
/// uses it; `sums` holds four for each plane; all threads of the block come together.
#[device_inline]
unsafe fn leave_of_planes(
    of_thread: [f32; SUMS_PER_GAUSSIAN as usize],
    of_threads: Shared<f32>,
    sums: GlobalMut<f32>,
    span: &Span,
    threads: u32,
) {
    // SAFETY: each thread has its place; they are read after a barrier.
    unsafe {
        of_threads.store4(thread::thread_idx_x() * SUMS_PER_GAUSSIAN, Vec4::from(of_thread));
        thread::sync_threads();
        let mut plane = thread::thread_idx_x() / warp::WARP_SIZE;
        while plane < span.depth {
            let mut sum = Vec4::splat(0.0);
            let mut i = warp::lane_id();
            while i < threads {
                let term = of_threads.load4((plane * threads + i) * SUMS_PER_GAUSSIAN);
                sum = sum.zip_with(term, |sum, term| sum + term);
                i += warp::WARP_SIZE;
            }
            let sum = sum.map(|sum| warp::reduce_sum(sum));
            if warp::lane_id() == 0 {
                sums.store4((span.first_plane + plane) as usize * SUMS_PER_GAUSSIAN as usize, sum);
            }
            plane += thread::block_dim_x() / warp::WARP_SIZE;
        }
    }
}

/// This thread's sums by `mu_y`, `mu_x`, `var_y` and `var_x` of what lies in the image alone, an input after another.
///
/// # Safety
/// The kernel's; a thread has so many columns. The derivatives are there.
#[device_inline]
unsafe fn again<T: Storage, const SIZE: usize, const STRIDE: usize>(
    x: Global<T>,
    dy: Global<T>,
    derived: &Derived<'_, SIZE>,
    window: &Window<Nchw>,
    (bands, series): (&Bands, &Series),
    columns: u32,
) -> [f32; SUMS_PER_GAUSSIAN as usize] {
    let mut sums = [0.0; SUMS_PER_GAUSSIAN as usize];
    // The output at that place whose window has an input at a position, if there is one.
    let output = |axis: usize, input: u32, position: u32| {
        let padded = (input + window.padding[axis]).wrapping_sub(position);
        let output = padded / STRIDE as u32;
        (output * STRIDE as u32 == padded && output < window.output[axis]).then_some(output)
    };
    let mut number = thread::block_idx_x();
    while number < series.count() {
        let span = series.span(number);
        let part = bands.part(&span);
        let plane = span.first_plane + part.plane;
        for place in bands.each_column(&part) {
            let mut row = part.rows[0] * STRIDE as u32;
            while row < least(part.rows[1] * STRIDE as u32, window.input[0]) {
                let mut column = place * columns;
                while column < least((place + 1) * columns, window.input[1]) {
                    let at = window.input_plane(plane) + row as usize * window.input_line() + column as usize;
                    // SAFETY: the input is there.
                    let x = unsafe { x.load(at) }.to_f32();
                    let mut position = 0;
                    while position < (SIZE * SIZE) as u32 {
                        let (i, j) = (position / SIZE as u32, position % SIZE as u32);
                        if let (Some(down), Some(across)) = (output(0, row, i), output(1, column, j)) {
                            let line = window.output_plane(plane) + down as usize * window.output_line();
                            // SAFETY: the output is there; so are the derivatives.
                            sums = unsafe {
                                let product = x * dy.load(line + across as usize).to_f32();
                                derived.add(part.plane, [i, j], product, sums)
                            };
                        }
                        position += 1;
                    }
                    column += 1;
                }
                row += 1;
            }
        }
        number += thread::grid_dim_x();
    }
    sums
}
