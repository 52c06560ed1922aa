//! Row-major windows of a few columns, whatever their height and steps.
//!
//! Bound by memory in f32 (on 64×64×112×112 on an H200 0.91 to 1.00 of the copy rate forward, 0.89 backward of windows that do not overlap), in 16 bits and backward of
//! windows that overlap by instructions (0.81 of 1×2 forward in bf16; `dx` of 3×3 one apart 0.74 in f32 and 0.38 in bf16).

use cuda_std::prelude::*;

use super::Divisor;
use super::falling::quotient;
use crate::elementwise::reciprocal;
use crate::spans::{
    BLOCK, BLOCKS, MOST_GRADIENTS, MOST_INPUTS, MOST_WINDOWS, Rows, Span, Spans, Wanted, all, four_of, of_inputs,
    of_outputs, windows,
};
use crate::window::{Covering, Nchw, Window};

/// As [`avg_pool_forward`](super::avg_pool_forward), by [spans](crate::spans), of windows of `COLUMNS` columns, `STRIDE` columns apart, padded by `PADDING`
/// columns.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes, and `spans` are of the window's outputs, with the
/// launch's grid.
#[kernel(
    block = BLOCK,
    min_blocks = BLOCKS,
    instances(
        T = [f32, f16, bf16],
        (COLUMNS, STRIDE, PADDING) = [
            (1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 2, 0), (3, 1, 1), (3, 2, 1), (4, 4, 0)
        ]
    )
)]
pub unsafe fn avg_pool_forward_spans<T: Storage, const COLUMNS: usize, const STRIDE: usize, const PADDING: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    spans: Spans,
) {
    let (place, windows) = (spans.place(window.output[0], thread::block_idx_x()), windows(size_of::<T>(), STRIDE));
    let first = place.number * windows as u32;
    let top = (place.row * window.stride[0]).wrapping_sub(window.padding[0]);
    let mut sums = Sums::<COLUMNS, STRIDE> { windows, sums: [0.0; MOST_WINDOWS] };
    // SAFETY: the caller's; the plane, the row and the outputs exist.
    unsafe {
        let x = x.offset(window.input_plane(place.plane));
        let wanted = Wanted {
            x,
            size: window.input,
            first: top,
            step: 1,
            count: window.size[0],
            column: first * STRIDE as u32,
            around: of_outputs(windows, COLUMNS, STRIDE, PADDING),
            outside: T::from_f32(0.0),
        };
        spans.each(&wanted, &mut sums);
        let mut sums = sums.sums;
        if divisor.given == 0.0 {
            let rows = divisor.counted(&window, 0, place.row);
            unrolled!(W in [0 1 2 3 4 5 6 7] { if W < windows {
                let count = rows * divisor.counted(&window, 1, first + W as u32);
                sums[W] = quotient::<T>(sums[W], count, reciprocal(count));
            } });
        } else {
            let near = reciprocal(divisor.given);
            sums = sums.map(|sum| quotient::<T>(sum, divisor.given, near));
        }
        let (width, output) = (window.output[1], window.output_plane(place.plane));
        let at = (output + place.row as usize * width as usize + first as usize, [first, width]);
        let vectors = |at, four| y.store4(at, four_of::<T>(four));
        let single = |at, bits| y.store(at, T::from_f32(f32::from_bits(bits)));
        spans.store(&place, at, (windows, all(sums.map(f32::to_bits))), vectors, single);
    }
}

/// Blocks of the backward kernel that fit on a multiprocessor: of 16 bits threads have more windows, and of wide ones more in registers.
const fn backward_blocks(bytes: usize, columns: usize) -> u32 {
    if bytes == 2 && columns > 2 { BLOCKS - 1 } else { BLOCKS }
}

/// As [`avg_pool_backward`](super::avg_pool_backward), likewise: a thread gathers, for the inputs that its windows begin in, what the windows over them
/// give.
///
/// # Safety
/// As [`avg_pool_forward_spans`]'s, of `dy` and `dx`; `spans` are of the window's inputs, and `covering` is of it.
#[kernel(
    block = BLOCK,
    min_blocks = backward_blocks(size_of::<T>(), COLUMNS),
    instances(
        T = [f32, f16, bf16],
        (COLUMNS, STRIDE, PADDING) = [
            (1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 2, 0), (3, 1, 1), (3, 2, 1), (4, 4, 0)
        ]
    )
)]
pub unsafe fn avg_pool_backward_spans<T: Storage, const COLUMNS: usize, const STRIDE: usize, const PADDING: usize>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    divisor: Divisor,
    covering: Covering,
    spans: Spans,
) {
    let (place, windows) = (spans.place(window.input[0], thread::block_idx_x()), windows(size_of::<T>(), STRIDE));
    let first = place.number * windows as u32;
    let around = of_inputs(windows, COLUMNS, STRIDE, PADDING);
    let [before, after] = around;
    let [begin, end] = covering.over(&window, 0, place.row);
    let shares =
        Shares { given: divisor.given != 0.0, near: reciprocal(divisor.given), of_columns: [0.0; MOST_GRADIENTS] };
    let mut gathered = Gathered::<COLUMNS, STRIDE, PADDING> {
        window,
        divisor,
        around,
        begin,
        inputs: windows * STRIDE,
        shares,
        sums: [0.0; MOST_INPUTS],
    };
    if divisor.given == 0.0 {
        unrolled!(K in [0 1 2 3 4 5 6 7 8 9 10 11] { if K < before + after {
            let column = (first + K as u32).wrapping_sub(before as u32);
            // What is no window gives nothing.
            if column < window.output[1] {
                gathered.shares.of_columns[K] = reciprocal(divisor.counted(&window, 1, column));
            }
        } });
    }
    // SAFETY: the caller's; the plane, the row and the inputs exist.
    unsafe {
        let dy = dy.offset(window.output_plane(place.plane));
        let wanted = Wanted {
            x: dy,
            size: window.output,
            first: begin,
            step: 1,
            count: end.saturating_sub(begin),
            column: first,
            around,
            outside: T::from_f32(0.0),
        };
        spans.each(&wanted, &mut gathered);
        let (width, input) = (window.input[1], window.input_plane(place.plane));
        let column = first * STRIDE as u32;
        let at = (input + place.row as usize * width as usize + column as usize, [column, width]);
        spans.put(&place, dx, at, beta, (windows * STRIDE, gathered.sums));
    }
}

/// The sums of a thread's windows.
struct Sums<const COLUMNS: usize, const STRIDE: usize> {
    windows: usize,
    sums: [f32; MOST_WINDOWS],
}

impl<T: Storage, const COLUMNS: usize, const STRIDE: usize> Rows<T> for Sums<COLUMNS, STRIDE> {
    #[device_inline]
    fn take(&mut self, _: u32, span: Span<T>) {
        unrolled!(J in [0 1 2 3] { if J < COLUMNS { unrolled!(W in [0 1 2 3 4 5 6 7] {
            if W < self.windows { self.sums[W] += span[W * STRIDE + J].to_f32(); }
        }); } });
    }
}

/// What gradients are multiplied by: the same for all if that is given, else for each column a factor. Each gradient by its share: sums of gradients
/// may pass the largest float where those of quotients do not.
struct Shares {
    given: bool,
    near: f32,
    of_columns: [f32; MOST_GRADIENTS],
}

/// The sums that are a thread's inputs' gradients.
struct Gathered<const COLUMNS: usize, const STRIDE: usize, const PADDING: usize> {
    window: Window<Nchw>,
    divisor: Divisor,
    around: [usize; 2],
    /// The first row of windows.
    begin: u32,
    inputs: usize,
    shares: Shares,
    sums: [f32; MOST_INPUTS],
}

impl<T: Storage, const COLUMNS: usize, const STRIDE: usize, const PADDING: usize> Rows<T>
    for Gathered<COLUMNS, STRIDE, PADDING>
{
    #[device_inline]
    fn take(&mut self, number: u32, span: Span<T>) {
        let [before, after] = self.around;
        let mut given = [0.0; MOST_GRADIENTS];
        if self.shares.given {
            unrolled!(K in [0 1 2 3 4 5 6 7 8 9 10 11] {
                if K < before + after { given[K] = span[K].to_f32() * self.shares.near; }
            });
        } else {
            let of_row = reciprocal(self.divisor.counted(&self.window, 0, self.begin + number));
            unrolled!(K in [0 1 2 3 4 5 6 7 8 9 10 11] {
                if K < before + after { given[K] = span[K].to_f32() * (of_row * self.shares.of_columns[K]); }
            });
        }
        unrolled!(C in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] { unrolled!(J in [0 1 2 3] {
            if C < self.inputs && J < COLUMNS {
                // The window whose column `J` the input is.
                let begins = C + PADDING + before * STRIDE;
                if begins >= J && (begins - J).is_multiple_of(STRIDE) { self.sums[C] += given[(begins - J) / STRIDE]; }
            }
        }); });
    }
}
