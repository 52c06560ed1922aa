mod falling;

use cuda_std::launch::LaunchDims;
use kernels::avg_pool::{
    AvgPoolBackward, AvgPoolBackwardAny, AvgPoolBackwardBand, AvgPoolBackwardGroups, AvgPoolBackwardMeshes,
    AvgPoolBackwardOctets, AvgPoolBackwardPairs, AvgPoolBackwardPatch, AvgPoolBackwardQuads, AvgPoolBackwardShares,
    AvgPoolBackwardSpans, AvgPoolBackwardVectors, AvgPoolForward, AvgPoolForwardApart, AvgPoolForwardBand,
    AvgPoolForwardBelow, AvgPoolForwardChunks, AvgPoolForwardColumns, AvgPoolForwardOctets, AvgPoolForwardPairs,
    AvgPoolForwardPatch, AvgPoolForwardQuads, AvgPoolForwardSpans, AvgPoolForwardVectors, AvgPoolForwardWarp,
    AvgPoolForwardWholes, BELOW, BELOW_BLOCK, Divisor, given_width,
};
use kernels::band::Bands;
use kernels::band::any::Lines;
use kernels::band::spread::Spread;
use kernels::chunks::{self, Chunks};
use kernels::elements::Elements;
use kernels::patch::Patches;
use kernels::patch::quads::{self, Quads};
use kernels::pieces;
use kernels::spans;
use kernels::warps::Warps;
use kernels::wholes::{self, Wholes};
use kernels::window::{Covering, Nchw, Nhwc, Order, Tiling, Window};

use super::{Averages, Backward, Forward};
use crate::device::{Gpu, OnGpu, for_half, for_storage};
use crate::ops::window::{
    Choice, FEW_AVERAGED, Kernels, are_twos, band_dims, channels_last, elements, for_apart, for_columns, for_groups,
    for_order, for_padded, for_shares, for_slide, for_spans, for_vectors, forward_vectors, is_little,
    is_little_backward, row_major, spans_of_inputs, spans_of_outputs, turned,
};
use crate::{Layout, Real, Result};

/// How far windows are apart of which runs of elements take less time backward than bands of rows, at least.
const FAR: u32 = 3;

impl Averages {
    fn launch<L: Order>(&self, window: &Window<L>) -> Divisor {
        let ([height, width], [above, left]) = (window.input, window.padding);
        let (begin, end) = match self.divisor.count_include_pad {
            true => ([0, 0], [height + 2 * above, width + 2 * left]),
            false => ([above, left], [height + above, width + left]),
        };
        // Windows of which every position counts have the same divisor, and no thread counts.
        let all_count = (0..2).all(|axis| {
            let last = (window.output[axis] - 1) * window.stride[axis] + window.size[axis];
            begin[axis] == 0 && last <= end[axis]
        });
        let [rows, columns] = window.size.map(|size| size as f32);
        let size = if all_count { rows * columns } else { 0.0 };
        let given = self.divisor.divisor_override.map_or(size, |divisor| divisor.get() as f32);
        Divisor { begin, end, given }
    }
}

/// Outputs of which several a thread take less time than one; and than a warp for each, or several warps.
const ENOUGH_BELOW: u64 = 1 << 17;
const ENOUGH_BELOW_OF_WARPS: u64 = 1 << 16;

/// Columns of windows of which more are on their way at a time, at least.
const WIDE: u32 = 8;

/// What a launch by outputs one below the other takes, with the channels last, of windows that overlap by more than half along y. `by_warps` may take them.
fn below<L: Order>(gpu: &Gpu, window: &Window<L>, by_warps: bool) -> Option<(Window<Nhwc>, Elements, u32)> {
    let window =
        channels_last(window).filter(|window| 2 * u64::from(window.size[0]) >= 5 * u64::from(window.stride[0]))?;
    let enough = if by_warps { ENOUGH_BELOW_OF_WARPS } else { ENOUGH_BELOW };
    if elements(&window, window.output) < enough && !gpu.is_emulated() {
        return None;
    }
    let (elements, blocks) = Elements::new(&window, window.output, BELOW, BELOW_BLOCK)?;
    Some((window, elements, blocks))
}

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(mut self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "avg_pool.forward";
        self.averages.windows = self.averages.windows.by_columns(size_of::<T>());
        if self.averages.windows.layout == Layout::RowMajor {
            let window = self.averages.windows.launch::<Nchw>(OP)?;
            for_half!(T as S, {
                for_padded!(window, Quads::new(&window) => SIZE: usize, PADDING, (quads, blocks), {
                    let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
                    let divisor = self.averages.launch(&window);
                    let _why = Kernels::Quads.because(&window);
                    let forward = AvgPoolForwardQuads::<S, SIZE, PADDING> { x, y, window, divisor, quads };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, quads::BLOCK), forward) };
                });
            });
        }
        if self.averages.windows.layout == Layout::ChannelsLast {
            let window = self.averages.windows.launch::<Nhwc>(OP)?;
            let divisor = self.averages.launch(&window).given;
            if let Some(falling) = falling::launch(gpu, divisor, window, T::DTYPE) {
                return self.falling(gpu, OP, &window, divisor, falling);
            }
            for_half!(T as S, {
                for_padded!(window, Patches::of_output_octets(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                    let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
                    let divisor = self.averages.launch(&window);
                    let _why = Kernels::Octets.because(&window);
                    let forward = AvgPoolForwardOctets::<S, SIZE, PADDING> { x, y, window, divisor, patches };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), forward) };
                });
            });
        }
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            for_order!(self.averages.windows.layout => L, {
                let window = self.averages.windows.launch::<L>(OP)?;
                let divisor = self.averages.launch(&window);
                if let Some(window) = row_major(&window) {
                    for_padded!(window, Choice::OutputPairs.of(&window, &[size_of::<S>()]) => SIZE: usize, PADDING, (bands, launch), {
                        let _why = Kernels::Pairs.because(&window);
                        let forward = AvgPoolForwardPairs::<S, SIZE, PADDING> { x, y, window, divisor, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), forward) };
                    });
                    for_slide!(window, size_of::<S>(), [2 / 2 3 / 1 3 / 2] => SIZE, STRIDE, (bands, launch), {
                        let _why = Kernels::Bands.because(&window);
                        let forward = AvgPoolForwardBand::<S, SIZE, STRIDE> { x, y, window, divisor, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), forward) };
                    });
                    for_apart!(window, size_of::<S>(), true => SIZE, (pieces, blocks), {
                        let _why = Kernels::Pieces.because(&window);
                        let forward = AvgPoolForwardApart::<S, SIZE> { x, y, window, divisor, pieces };
                        // SAFETY: as below; the window is such, and the pieces are its own.
                        return unsafe { gpu.launch(LaunchDims::new(blocks, pieces::BLOCK), forward) };
                    });
                    if let Some((spans, blocks)) = spans_of_outputs(&window, size_of::<S>(), are_twos(&window)) {
                        return for_spans!(window => COLUMNS, STRIDE, PADDING, {
                            let _why = Kernels::Spans.because(&window);
                            type Kernel<'a, S> = AvgPoolForwardSpans<'a, S, COLUMNS, STRIDE, PADDING>;
                            let forward = Kernel::<S> { x, y, window, divisor, spans };
                            // SAFETY: as below; the window is such, and the spans are its own.
                            unsafe { gpu.launch(LaunchDims::new(blocks, spans::BLOCK), forward) }
                        });
                    }
                }
                if let Some(window) = channels_last(&window) {
                    for_padded!(window, Patches::of_outputs(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                        let _why = Kernels::Patches.because(&window);
                        let forward = AvgPoolForwardPatch::<S, SIZE, PADDING> { x, y, window, divisor, patches };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(grid, block), forward) };
                    });
                }
                if let Some(window) = row_major(&window) {
                    if let Some((wholes, blocks, shared)) = Wholes::new(&window, size_of::<S>()) {
                        let _why = Kernels::Wholes.because(&window);
                        let forward = AvgPoolForwardWholes::<S> { x, y, window, divisor, wholes };
                        let dims = LaunchDims::new(blocks, wholes::BLOCK).with_shared(shared);
                        // SAFETY: as below; the window is such, and the launch its own.
                        return unsafe { gpu.launch(dims, forward) };
                    }
                    if let Some((chunks, blocks)) = Chunks::new(&window, size_of::<S>()) {
                        let _why = Kernels::Chunks.because(&window);
                        let forward = AvgPoolForwardChunks::<S> { x, y, window, divisor, chunks };
                        // SAFETY: as below; the chunks are the window's, and the grid theirs.
                        return unsafe { gpu.launch(LaunchDims::new(blocks, chunks::BLOCK), forward) };
                    }
                }
                let bands = row_major(&window)
                    .and_then(|window| Bands::of_columns(&window, size_of::<S>(), &[size_of::<f32>()]));
                let warps = Warps::new(&window.in_order(), bands.is_some());
                if let (Some(window), None) = (row_major(&window), warps)
                    && !is_little(&window)
                {
                    for_columns!(window, bands => STRIDE, GROUPS, (bands, launch), {
                        let outputs = Lines::new(window.output);
                        let _why = Kernels::AnyBands.because(&window);
                        let forward = AvgPoolForwardColumns::<S, STRIDE, GROUPS> { x, y, window, divisor, bands, outputs };
                        // SAFETY: as below; the bands and the lines are the window's, and the launch the bands'; the geometry
                        // fits.
                        return unsafe { gpu.launch(band_dims(launch), forward) };
                    });
                }
                if let Some((window, vectors, dims, kernels)) = forward_vectors(&window, 1, size_of::<S>(), warps.as_ref().map(|(_, launch)| launch)) {
                    let _why = kernels.because(&window);
                    let forward = AvgPoolForwardVectors::<S> { x, y, window, divisor, vectors };
                    // SAFETY: as below; the vectors are of the window's outputs, and the launch theirs.
                    return unsafe { gpu.launch(dims, forward) };
                }
                if let Some((window, elements, blocks)) = below(gpu, &window, warps.is_some()) {
                    let _why = Kernels::Below.because(&window);
                    let dims = LaunchDims::new(blocks, BELOW_BLOCK);
                    macro_rules! run {
                        ($ahead:literal) => {{
                            let forward = AvgPoolForwardBelow::<S, $ahead> { x, y, window, divisor, elements };
                            // SAFETY: as below; the elements are the window's outputs, as many a thread as the kernel takes.
                            return unsafe { gpu.launch(dims, forward) };
                        }};
                    }
                    if window.size[1] < WIDE { run!(4) } else { run!(8) }
                }
                if let Some((warps, launch)) = warps {
                    let _why = Kernels::Warps.because(&window);
                    let forward = AvgPoolForwardWarp::<S> { x, y, window: window.in_order(), divisor, warps };
                    // SAFETY: as below; the warps are over the outputs, and the launch theirs.
                    return unsafe { gpu.launch(band_dims(launch), forward) };
                }
                let (tiling, grid, block) = Tiling::new(&window, window.output);
                let _why = Kernels::General.because(&window);
                let forward = AvgPoolForward::<S, L> { x, y, window, divisor, tiling };
                // SAFETY: `avg_pool::forward` made `y` with the shape that the window, which has no dilation, gives for `x`'s,
                // in its layout; the tiling is over the output, and the launch its own. Memory begins at multiples of 16
                // bytes.
                unsafe { gpu.launch(LaunchDims::new(grid, block), forward) }
            })
        })
    }
}

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(mut self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "avg_pool.backward";
        self.averages.windows = self.averages.windows.by_columns_backward(size_of::<T>(), true);
        let beta = self.dx.beta as f32;
        if self.averages.windows.layout == Layout::RowMajor && beta == 0.0 {
            let window = self.averages.windows.launch::<Nchw>(OP)?;
            for_half!(T as S, {
                if window.padding == [1; 2]
                    && let Some((quads, blocks)) = Quads::of_inputs(&window, 1)
                {
                    let (dy, dx) = (self.dy.gpu::<S>(OP, "dy")?, self.dx.tensor.gpu_mut::<S>(OP, "dx")?);
                    let divisor = self.averages.launch(&window);
                    let _why = Kernels::Quads.because(&window);
                    let backward = AvgPoolBackwardQuads::<S> { dy, dx, window, divisor, quads };
                    // SAFETY: as below; the geometry fits, which is padded by 1.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, quads::BLOCK), backward) };
                }
            });
        }
        if self.averages.windows.layout == Layout::ChannelsLast && beta == 0.0 {
            let window = self.averages.windows.launch::<Nhwc>(OP)?;
            let divisor = self.averages.launch(&window).given;
            if window.stride == [1; 2]
                && let Some(falling) = falling::launch(gpu, divisor, turned(window), T::DTYPE)
            {
                return self.falling(gpu, OP, &window, divisor, falling);
            }
            for_half!(T as S, {
                for_padded!(window, Patches::of_input_octets(&window) => SIZE: u32, PADDING, (patches, grid, block), {
                    let (dy, dx) = (self.dy.gpu::<S>(OP, "dy")?, self.dx.tensor.gpu_mut::<S>(OP, "dx")?);
                    let divisor = self.averages.launch(&window);
                    let _why = Kernels::Octets.because(&window);
                    let backward = AvgPoolBackwardOctets::<S, SIZE, PADDING> { dy, dx, window, divisor, patches };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), backward) };
                });
            });
        }
        for_storage!(T as S, OP, "dy", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(OP, "dy")?, self.dx.tensor.gpu_mut::<S>(OP, "dx")?);
            for_order!(self.averages.windows.layout => L, {
                let window = self.averages.windows.launch::<L>(OP)?;
                let divisor = self.averages.launch(&window);
                if let Some(window) = row_major(&window) {
                    for_padded!(window, Choice::CellPairs.of(&window, &[size_of::<S>()]) => SIZE: u32, PADDING, (bands, launch), {
                        let _why = Kernels::Pairs.because(&window);
                        let backward = AvgPoolBackwardPairs::<S, SIZE, PADDING> { dy, dx, beta, window, divisor, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), backward) };
                    });
                    for_padded!(window, Choice::Cells.of(&window, &[size_of::<S>()]) => SIZE: u32, PADDING, (bands, launch), {
                        let _why = Kernels::Bands.because(&window);
                        let backward = AvgPoolBackwardBand::<S, SIZE, PADDING> { dy, dx, beta, window, divisor, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), backward) };
                    });
                    let is_small_one_apart = window.stride == [1; 2] && window.size[0] <= 3 && window.size[1] <= 3;
                    if let Some((spans, blocks)) = spans_of_inputs(&window, size_of::<S>(), is_small_one_apart) {
                        let covering = Covering::new(&window);
                        return for_spans!(window => COLUMNS, STRIDE, PADDING, {
                            let _why = Kernels::Spans.because(&window);
                            type Kernel<'a, S> = AvgPoolBackwardSpans<'a, S, COLUMNS, STRIDE, PADDING>;
                            let backward = Kernel::<S> { dy, dx, beta, window, divisor, covering, spans };
                            // SAFETY: as below; the window is such, and the spans are of its inputs.
                            unsafe { gpu.launch(LaunchDims::new(blocks, spans::BLOCK), backward) }
                        });
                    }
                }
                if let Some(window) = channels_last(&window) {
                    for_padded!(window, Patches::of_inputs(&window) => SIZE: u32, PADDING, (patches, grid, block), {
                        let _why = Kernels::Patches.because(&window);
                        let backward =
                            AvgPoolBackwardPatch::<S, SIZE, PADDING> { dy, dx, beta, window, divisor, patches };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(grid, block), backward) };
                    });
                }
                if let Some(window) = channels_last(&window) {
                    for_vectors!(window, size_of::<S>() => ROWS, vectors, dims, {
                        let _why = Kernels::Vectors.because(&window);
                        let backward = AvgPoolBackwardVectors::<S, ROWS> { dy, dx, beta, window, divisor, vectors };
                        // SAFETY: as below; the vectors are of the window's inputs, and the launch theirs.
                        return unsafe { gpu.launch(dims, backward) };
                    });
                }
                let covering = Covering::new(&window);
                let little = is_little_backward(&window, FEW_AVERAGED);
                if let (Some(window), false) = (row_major(&window), little) {
                    if window.stride == [3, 3] {
                        for_groups!(window => _STRIDE, GROUPS, {
                            if let Some((spread, launch)) = Spread::new(&window, GROUPS as u32, size_of::<S>()) {
                                let _why = Kernels::Meshes.because(&window);
                                let backward =
                                    AvgPoolBackwardMeshes::<S, GROUPS> { dy, dx, beta, window, divisor, spread };
                                // SAFETY: as below; the meshes are the window's, which is such, and the launch theirs.
                                return unsafe { gpu.launch(band_dims(launch), backward) };
                            }
                        });
                    }
                    for_groups!(window => STRIDE, GROUPS, {
                        let width = given_width(&window, GROUPS as u32);
                        if let Some((bands, launch)) = Bands::of_groups(&window, GROUPS as u32, size_of::<S>(), width) {
                            let given = Lines::new([window.output[0], width]);
                            let _why = Kernels::AnyBands.because(&window);
                            let backward = AvgPoolBackwardGroups::<S, STRIDE, GROUPS> {
                                dy,
                                dx,
                                beta,
                                window,
                                covering,
                                divisor,
                                bands,
                                given,
                            };
                            // SAFETY: as below; the bands and the lines are the window's, the launch the bands', and the
                            // geometry fits.
                            return unsafe { gpu.launch(band_dims(launch), backward) };
                        }
                    });
                }
                if let (Some(window), false) = (row_major(&window), little)
                    && (0..2).all(|axis| window.stride[axis] >= FAR && window.size[axis] <= 2 * window.stride[axis])
                {
                    for_shares!(gpu, &window, 0 => OVER, (shares, dims), {
                        let _why = Kernels::Shares.because(&window);
                        let backward = AvgPoolBackwardShares::<S, OVER> { dy, dx, beta, window, divisor, shares };
                        // SAFETY: as below; the runs are the window's, and the launch theirs.
                        return unsafe { gpu.launch(dims, backward) };
                    });
                }
                if let (Some(window), false) = (row_major(&window), little)
                    && let Some((bands, launch)) = Bands::of_inputs(&window, size_of::<S>())
                {
                    let outputs = Lines::new(window.output);
                    let _why = Kernels::AnyBands.because(&window);
                    let backward = AvgPoolBackwardAny::<S> { dy, dx, beta, window, covering, divisor, bands, outputs };
                    // SAFETY: as below; the bands are of the window's inputs, and the launch theirs; the lines are its outputs'.
                    return unsafe { gpu.launch(band_dims(launch), backward) };
                }
                let (tiling, grid, block) = Tiling::new(&window, window.input);
                let _why = Kernels::General.because(&window);
                let backward = AvgPoolBackward::<S, L> { dy, dx, beta, window, covering, divisor, tiling };
                // SAFETY: `avg_pool::backward` checked that `dx` has the shape of the window's input and `dy` that of its
                // output, both in its layout; the window has no dilation; the tiling is over the input, and the launch its
                // own. Memory begins at multiples of 16 bytes.
                unsafe { gpu.launch(LaunchDims::new(grid, block), backward) }
            })
        })
    }
}
