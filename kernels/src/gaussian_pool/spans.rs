//! Row-major windows of a few columns, whatever their height and steps, whose weights are the same everywhere and which all planes share: by
//! [spans](crate::spans).
//!
//! `y = sum over rows of weight_y * (sum along the row of weight_x * x)`, and `dx` likewise over the windows that cover an input. A block computes the
//! weights along each axis, a warp an axis, into shared memory, and then goes over the spans of a few blocks, so that fewer wait for weights.
//!
//! Forward bound by memory in f32 (on 64×64×112×112 on an H200 0.74 to 0.87 of the copy rate), backward and in 16 bits, suspected, by instructions (0.56 to 0.78 backward
//! in f32; 0.57 to 0.72 and 0.32 to 0.62 in bf16).

use cuda_std::prelude::*;

use super::Geometry;
use super::weights::along_axes;
use crate::spans::{
    BLOCK, BLOCKS, MOST_INPUTS, MOST_WINDOWS, Rows, Span, Spans, Wanted, all, four_of, of_inputs, of_outputs, windows,
};
use crate::window::{Covering, Nchw, Window};

/// Columns of a window, at most.
const MOST_COLUMNS: usize = 5;

/// Bytes of a block's shared memory for the weights of windows of so many rows and columns.
pub const fn shared_bytes([height, width]: [u32; 2]) -> u32 {
    (height + width) * 4
}

/// Computes the weights into shared memory; those along x, and where those along y are. All threads of the block come here.
///
/// # Safety
/// The kernels'.
#[device_inline]
unsafe fn weights<const COLUMNS: usize>(
    parameters: [Global<f32>; 2],
    geometry: &Geometry,
    variances: u32,
) -> ([f32; MOST_COLUMNS], Shared<f32>) {
    let shared = dynamic_shared::<f32>();
    let mut along_x = [0.0; MOST_COLUMNS];
    // SAFETY: the caller's; written before the barrier.
    unsafe {
        along_axes(shared, parameters, geometry, variances, 0, false);
        thread::sync_threads();
        unrolled!(J in [0 1 2 3 4] {
            if J < COLUMNS { along_x[J] = shared.load(geometry.axes[0].size + J as u32); }
        });
    }
    (along_x, shared)
}

/// `y` = `x` pooled by one Gaussian, of windows of `COLUMNS` columns, `STRIDE` columns apart, padded by `PADDING` columns.
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, which is such and `geometry`'s; `mean` holds two and `var` `variances` elements; memory begins at
/// multiples of 16 bytes; `spans` are of the window's outputs, with the launch's grid or fewer blocks, and shared memory is what [`shared_bytes`] says.
#[kernel(
    block = BLOCK,
    min_blocks = BLOCKS,
    instances(
        T = [f32, f16, bf16],
        (COLUMNS, STRIDE, PADDING) = [
            (1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 2, 0), (3, 1, 1), (3, 2, 1), (4, 4, 0), (5, 1, 2), (5, 2, 2)
        ]
    )
)]
pub unsafe fn gaussian_pool_forward_spans<
    T: Storage,
    const COLUMNS: usize,
    const STRIDE: usize,
    const PADDING: usize,
>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    geometry: Geometry,
    window: Window<Nchw>,
    spans: Spans,
) {
    // SAFETY: the caller's; the plane, the row and the outputs exist.
    unsafe {
        let (along_x, along_y) = weights::<COLUMNS>([mean, var], &geometry, variances);
        let windows = windows(size_of::<T>(), STRIDE);
        let mut block = thread::block_idx_x();
        while block < spans.blocks() {
            let place = spans.place(window.output[0], block);
            let first = place.number * windows as u32;
            let wanted = Wanted {
                x: x.offset(window.input_plane(place.plane)),
                size: window.input,
                first: (place.row * window.stride[0]).wrapping_sub(window.padding[0]),
                step: 1,
                count: window.size[0],
                column: first * STRIDE as u32,
                around: of_outputs(windows, COLUMNS, STRIDE, PADDING),
                outside: T::from_f32(0.0),
            };
            let mut pooled = Pooled::<COLUMNS, STRIDE> { windows, along_x, along_y, sums: [0.0; MOST_WINDOWS] };
            spans.each(&wanted, &mut pooled);
            let (width, output) = (window.output[1], window.output_plane(place.plane));
            let at = (output + place.row as usize * width as usize + first as usize, [first, width]);
            let vectors = |at, four| y.store4(at, four_of::<T>(four));
            let single = |at, bits| y.store(at, T::from_f32(f32::from_bits(bits)));
            spans.store(&place, at, (windows, all(pooled.sums.map(f32::to_bits))), vectors, single);
            block += thread::grid_dim_x();
        }
    }
}

/// `dx` = the gradient of the input, plus `beta * dx`, likewise: a thread gathers, for the inputs that its windows begin in, what the windows over them
/// give.
///
/// # Safety
/// As [`gaussian_pool_forward_spans`]'s, of `dy` and `dx`; `spans` are of the window's inputs, and `covering` is of it.
#[kernel(
    block = BLOCK,
    min_blocks = BLOCKS,
    instances(
        T = [f32, f16, bf16],
        (COLUMNS, STRIDE, PADDING) = [
            (1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 2, 0), (3, 1, 1), (3, 2, 1), (4, 4, 0), (5, 1, 2), (5, 2, 2)
        ]
    )
)]
pub unsafe fn gaussian_pool_backward_spans<
    T: Storage,
    const COLUMNS: usize,
    const STRIDE: usize,
    const PADDING: usize,
>(
    dy: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    dx: GlobalMut<T>,
    beta: f32,
    variances: u32,
    geometry: Geometry,
    window: Window<Nchw>,
    covering: Covering,
    spans: Spans,
) {
    // SAFETY: the caller's; the plane, the row and the inputs exist.
    unsafe {
        let (along_x, along_y) = weights::<COLUMNS>([mean, var], &geometry, variances);
        let windows = windows(size_of::<T>(), STRIDE);
        let mut block = thread::block_idx_x();
        while block < spans.blocks() {
            let place = spans.place(window.input[0], block);
            let first = place.number * windows as u32;
            let around = of_inputs(windows, COLUMNS, STRIDE, PADDING);
            let [begin, end] = covering.over(&window, 0, place.row);
            let wanted = Wanted {
                x: dy.offset(window.output_plane(place.plane)),
                size: window.output,
                first: begin,
                step: 1,
                count: end.saturating_sub(begin),
                column: first,
                around,
                outside: T::from_f32(0.0),
            };
            let mut gathered = Gathered::<COLUMNS, STRIDE, PADDING> {
                before: around[0],
                inputs: windows * STRIDE,
                below: (place.row + window.padding[0]).wrapping_sub(begin * window.stride[0]),
                down: window.stride[0],
                along_x,
                along_y,
                sums: [0.0; MOST_INPUTS],
            };
            spans.each(&wanted, &mut gathered);
            let (width, input) = (window.input[1], window.input_plane(place.plane));
            let column = first * STRIDE as u32;
            let at = (input + place.row as usize * width as usize + column as usize, [column, width]);
            spans.put(&place, dx, at, beta, (windows * STRIDE, gathered.sums));
            block += thread::grid_dim_x();
        }
    }
}

/// The weighted sums of a thread's windows.
struct Pooled<const COLUMNS: usize, const STRIDE: usize> {
    windows: usize,
    along_x: [f32; MOST_COLUMNS],
    along_y: Shared<f32>,
    sums: [f32; MOST_WINDOWS],
}

impl<T: Storage, const COLUMNS: usize, const STRIDE: usize> Rows<T> for Pooled<COLUMNS, STRIDE> {
    #[device_inline]
    fn take(&mut self, row: u32, span: Span<T>) {
        // SAFETY: rows are the window's, whose weights are there.
        let weight = unsafe { self.along_y.load(row) };
        let mut along = [0.0; MOST_WINDOWS];
        unrolled!(J in [0 1 2 3 4] { if J < COLUMNS { unrolled!(W in [0 1 2 3 4 5 6 7] { if W < self.windows {
            along[W] = float::fma(self.along_x[J], span[W * STRIDE + J].to_f32(), along[W]);
        } }); } });
        unrolled!(W in [0 1 2 3 4 5 6 7] {
            if W < self.windows { self.sums[W] = float::fma(weight, along[W], self.sums[W]); }
        });
    }
}

/// The sums that are a thread's inputs' gradients.
struct Gathered<const COLUMNS: usize, const STRIDE: usize, const PADDING: usize> {
    before: usize,
    inputs: usize,
    /// The inputs' row in the first row of windows over it, and how much less it is in each next.
    below: u32,
    down: u32,
    along_x: [f32; MOST_COLUMNS],
    along_y: Shared<f32>,
    sums: [f32; MOST_INPUTS],
}

impl<T: Storage, const COLUMNS: usize, const STRIDE: usize, const PADDING: usize> Rows<T>
    for Gathered<COLUMNS, STRIDE, PADDING>
{
    #[device_inline]
    fn take(&mut self, number: u32, span: Span<T>) {
        // SAFETY: the inputs' row is one of the windows', whose weights are there.
        let weight = unsafe { self.along_y.load(self.below.wrapping_sub(number * self.down)) };
        unrolled!(C in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] { if C < self.inputs {
            let mut along = 0.0;
            unrolled!(J in [0 1 2 3 4] { if J < COLUMNS {
                // The window whose column `J` the input is.
                let begins = C + PADDING + self.before * STRIDE;
                if begins >= J && (begins - J).is_multiple_of(STRIDE) {
                    along = float::fma(self.along_x[J], span[(begins - J) / STRIDE].to_f32(), along);
                }
            } });
            self.sums[C] = float::fma(weight, along, self.sums[C]);
        } });
    }
}
