use std::cell::RefCell;

use cuda_std::launch::LaunchDims;
use kernels::band::any::Lines;
use kernels::band::{BandLaunch, Bands, Block};
use kernels::chunks::{self, Chunks};
use kernels::patch::Patches;
use kernels::stochastic_pool::{
    Falling, Fours, Large, ROWS_BLOCK, StochasticPoolAdvance, StochasticPoolForward, StochasticPoolForwardAny,
    StochasticPoolForwardBand, StochasticPoolForwardColumns, StochasticPoolForwardFalling, StochasticPoolForwardFours,
    StochasticPoolForwardLarge, StochasticPoolForwardOctets, StochasticPoolForwardPairs, StochasticPoolForwardPatch,
    StochasticPoolForwardSquares, StochasticPoolForwardTiles, StochasticPoolForwardTwos, StochasticPoolInference,
    StochasticPoolInferenceAny, StochasticPoolInferenceBand, StochasticPoolInferenceChunks,
    StochasticPoolInferenceColumns, StochasticPoolInferenceFours, StochasticPoolInferenceMeshes,
    StochasticPoolInferenceOctets, StochasticPoolInferencePatch, StochasticPoolInferenceSquares,
    StochasticPoolInferenceVectors, StochasticPoolInferenceWarp, StochasticPoolInferenceWholes, TWOS_BLOCK, Tiles,
    Twos,
};
use kernels::warps::Warps;
use kernels::wholes::{self, Wholes};
use kernels::window::{Nchw, Nhwc, Tiling, Window};

use super::{Advance, Forward, Inference};
use crate::device::{Gpu, OnGpu, for_half, for_storage};
use crate::ops::route::{Indices, for_indices};
use crate::ops::window::{
    Choice, Kernels, band_dims, channels_last, for_columns, for_meshes, for_order, for_padded, for_slide,
    forward_vectors, is_little, row_major,
};
use crate::recent::Recent;
use crate::{Layout, Real, Result};

/// Runs a block, which returns, with the size of a row-major window as a constant and what a launch by fours of a row
/// takes, if there are kernels for such.
macro_rules! for_fours_of_a_row {
    ($window:expr => $size:ident, $padding:ident, $found:pat, $body:block) => {
        for_fours_of_a_row!(@ $window => $size = 2, $padding = 0, $found, $body);
        for_fours_of_a_row!(@ $window => $size = 3, $padding = 1, $found, $body);
    };
    (@ $window:expr => $size:ident = $a:literal, $padding:ident = $b:literal, $found:pat, $body:block) => {
        if $window.size == [$a, $a]
            && $window.padding == [$b, $b]
            && let Some($found) = Fours::of_a_row(&$window)
        {
            const $size: usize = $a;
            const $padding: u32 = $b;
            $body
        }
    };
}

/// Runs a block, which returns, with the size of a square window as a constant and what a launch takes, if there are kernels of that
/// size.
macro_rules! for_sizes {
    ([$($a:literal)*], $window:expr, $found:expr => $size:ident, $pattern:pat, $body:block) => {$(
        if $window.size == [$a, $a]
            && let Some($pattern) = $found
        {
            const $size: usize = $a;
            $body
        }
    )*};
}

/// Runs a block, which returns, with the size of a window that is summed by rows as a constant, 0 of those without a kernel of their own, and
/// what a launch by these sums takes, if there is one.
macro_rules! for_sums_of_rows {
    ($window:expr, $found:expr => $size:ident, $pattern:pat, $body:block) => {
        if let Some(found) = $found {
            for_sizes!([4 5 6 7 8 9 11], $window, Some(found) => $size, $pattern, $body);
            const $size: usize = 0;
            let $pattern = found;
            $body
        }
    };
}

/// Runs a block, which returns, with the stride of a row-major window of 3×3 positions as a constant and what a launch by bands of
/// outputs takes, if there are kernels for such.
macro_rules! for_strides_of_three {
    ([$($a:literal)*], $window:expr, $bytes:expr => $stride:ident, $found:pat, $body:block) => {$(
        if $window.size == [3; 2]
            && $window.stride == [$a; 2]
            && let Some($found) = Choice::Outputs.of(&$window, &[$bytes])
        {
            const $stride: usize = $a;
            $body
        }
    )*};
}

/// Windows whose tiles a thread remembers.
const RECENT: usize = 8;

type TilesLaunch = Option<(Tiles, BandLaunch)>;

/// The tiles of a window, which take most of a microsecond to choose.
fn tiles_of(window: &Window<Nchw>) -> TilesLaunch {
    thread_local! {
        static TILES: RefCell<Recent<Window<Nchw>, TilesLaunch, RECENT>> = RefCell::default();
    }
    TILES.with_borrow_mut(|recent| recent.get(*window, || Tiles::new(window)))
}

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(mut self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "stochastic_pool.forward";
        if self.y.is_empty() {
            return Ok(());
        }
        let state = self.state.gpu::<u64>(OP, "state")?;
        if self.windows.layout == Layout::ChannelsLast
            && let Indices::U8(indices) = &mut self.indices
        {
            let window = self.windows.launch::<Nhwc>(OP)?;
            for_half!(T as S, {
                if let Some((twos, blocks)) = Twos::new(&window) {
                    let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
                    let indices = indices.gpu_mut::<u8>(OP, "indices")?;
                    let _why = Kernels::Twos.because(&window);
                    let draw = StochasticPoolForwardTwos::<S> { x, y, indices, state, window, twos };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, TWOS_BLOCK), draw) };
                }
                for_padded!(window, Patches::of_drawn_octets(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                    let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
                    let indices = indices.gpu_mut::<u8>(OP, "indices")?;
                    let _why = Kernels::Octets.because(&window);
                    let draw =
                        StochasticPoolForwardOctets::<S, SIZE, PADDING> { x, y, indices, state, window, patches };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), draw) };
                });
            });
        }
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(OP)?;
                if let Indices::U16(indices) = &mut self.indices
                    && let Some((large, launch)) = Large::new(&window)
                {
                    let indices = indices.gpu_mut::<u16>(OP, "indices")?;
                    let _why = Kernels::Rows.because(&window);
                    let draw = StochasticPoolForwardLarge::<S, L> { x, y, indices, state, window, large };
                    // SAFETY: as below; the window is such, and the launch its own.
                    return unsafe { gpu.launch(band_dims(launch), draw) };
                }
                if let Some(window) = row_major(&window)
                    && let Indices::U8(indices) = self.indices
                {
                    let indices = indices.gpu_mut::<u8>(OP, "indices")?;
                    for_fours_of_a_row!(window => SIZE, PADDING, (fours, blocks), {
                        let _why = Kernels::Fours.because(&window);
                        let draw =
                            StochasticPoolForwardFours::<S, SIZE, PADDING> { x, y, indices, state, window, fours };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(blocks, ROWS_BLOCK), draw) };
                    });
                    for_sizes!([2 3], window, Fours::of_squares(&window) => SIZE, (fours, blocks), {
                        let _why = Kernels::Fours.because(&window);
                        let draw = StochasticPoolForwardSquares::<S, SIZE> { x, y, indices, state, window, fours };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(blocks, ROWS_BLOCK), draw) };
                    });
                    for_sizes!([2 3], window, Fours::of_columns(&window) => SIZE, (fours, blocks), {
                        let _why = Kernels::Fours.because(&window);
                        let draw = StochasticPoolForwardColumns::<S, SIZE> { x, y, indices, state, window, fours };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(blocks, ROWS_BLOCK), draw) };
                    });
                    if window.size == [3; 2]
                        && window.padding == [1; 2]
                        && window.stride == [2; 2]
                        && let Some((bands, launch)) = Choice::DrawnPairs.of(&window, &[size_of::<S>()])
                    {
                        let _why = Kernels::Pairs.because(&window);
                        let draw = StochasticPoolForwardPairs::<S, 3, 1> { x, y, indices, state, window, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    }
                    for_slide!(window, size_of::<S>(), [2 / 2 3 / 1 3 / 2 3 / 3] => SIZE, STRIDE, (bands, launch), {
                        let _why = Kernels::Bands.because(&window);
                        let draw = StochasticPoolForwardBand::<S, SIZE, STRIDE> { x, y, indices, state, window, bands };
                        // SAFETY: as below; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    });
                    for_sums_of_rows!(window, tiles_of(&window) => SIZE, (tiles, launch), {
                        let _why = Kernels::SumsOfRows.because(&window);
                        let draw = StochasticPoolForwardTiles::<S, SIZE> { x, y, indices, state, window, tiles };
                        // SAFETY: as below; the window is such, and the launch its own.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    });
                    if let Some((block, launch)) = Block::of_outputs(&window, size_of::<S>(), 0) {
                        let outputs = Lines::new(window.output);
                        let _why = Kernels::AnyBands.because(&window);
                        let draw = StochasticPoolForwardAny::<S> { x, y, indices, state, window, block, outputs };
                        // SAFETY: as below; the block and the lines are the window's, and the launch the block's.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    }
                }
                if let Some(window) = channels_last(&window)
                    && let Indices::U8(indices) = self.indices
                {
                    let indices = indices.gpu_mut::<u8>(OP, "indices")?;
                    if let Some((twos, blocks)) = Twos::new(&window) {
                        let _why = Kernels::Twos.because(&window);
                        let draw = StochasticPoolForwardTwos::<S> { x, y, indices, state, window, twos };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(blocks, TWOS_BLOCK), draw) };
                    }
                    for_sums_of_rows!(window, Falling::new(&window) => SIZE, (falling, launch), {
                        let _why = Kernels::SumsOfRows.because(&window);
                        let draw = StochasticPoolForwardFalling::<S, SIZE> { x, y, indices, state, window, falling };
                        // SAFETY: as below; the window is such, and the launch its own.
                        return unsafe { gpu.launch(band_dims(launch), draw) };
                    });
                    for_padded!(window, Patches::of_drawn_outputs(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                        let _why = Kernels::Patches.because(&window);
                        let draw =
                            StochasticPoolForwardPatch::<S, SIZE, PADDING> { x, y, indices, state, window, patches };
                        // SAFETY: as below; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(grid, block), draw) };
                    });
                }
                for_indices!(self.indices, indices as P => {
                    let indices = indices.gpu_mut::<P>(OP, "indices")?;
                    let (tiling, grid, block) = Tiling::new(&window, window.output);
                    let _why = Kernels::General.because(&window);
                    let draw = StochasticPoolForward::<S, L, P> { x, y, indices, state, window, tiling };
                    // SAFETY: `stochastic_pool::forward` made `y` and `indices` with the shape that the window, which has no
                    // dilation, gives for `x`'s, in its layout, and the indices in a type for it; the state was checked; the
                    // tiling is over the output, and the launch its own. Memory begins at multiples of 16 bytes.
                    unsafe { gpu.launch(LaunchDims::new(grid, block), draw) }
                })
            })
        })
    }
}

impl OnGpu for Advance<'_> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let state = self.state.gpu_mut::<u64>("stochastic_pool.forward", "random")?;
        // SAFETY: `Random` made the state; one block of one thread.
        unsafe { gpu.launch(LaunchDims::new(1, 1), StochasticPoolAdvance { state }) }
    }
}

impl<T: Real> OnGpu for Inference<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "stochastic_pool.forward_inference";
        if self.windows.layout == Layout::ChannelsLast {
            let window = self.windows.launch::<Nhwc>(OP)?;
            for_half!(T as S, {
                for_padded!(window, Patches::of_drawn_octets(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                    let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
                    let _why = Kernels::Octets.because(&window);
                    let mean = StochasticPoolInferenceOctets::<S, SIZE, PADDING> { x, y, window, patches };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), mean) };
                });
            });
        }
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            if self.windows.layout == Layout::RowMajor {
                let window = self.windows.launch::<Nchw>(OP)?;
                for_fours_of_a_row!(window => SIZE, PADDING, (fours, blocks), {
                    let _why = Kernels::Fours.because(&window);
                    let mean = StochasticPoolInferenceFours::<S, SIZE, PADDING> { x, y, window, fours };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, ROWS_BLOCK), mean) };
                });
                for_sizes!([2 3], window, Fours::of_squares(&window) => SIZE, (fours, blocks), {
                    let _why = Kernels::Fours.because(&window);
                    let mean = StochasticPoolInferenceSquares::<S, SIZE> { x, y, window, fours };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, ROWS_BLOCK), mean) };
                });
                for_sizes!([2 3], window, Fours::of_columns(&window) => SIZE, (fours, blocks), {
                    let _why = Kernels::Fours.because(&window);
                    let mean = StochasticPoolInferenceColumns::<S, SIZE> { x, y, window, fours };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, ROWS_BLOCK), mean) };
                });
                for_strides_of_three!([1 2], window, size_of::<S>() => STRIDE, (bands, launch), {
                    let _why = Kernels::Bands.because(&window);
                    let mean = StochasticPoolInferenceBand::<S, 3, STRIDE> { x, y, window, bands };
                    // SAFETY: as below; the window is such.
                    return unsafe { gpu.launch(band_dims(launch), mean) };
                });
                if let Some((wholes, blocks, shared)) = Wholes::new(&window, size_of::<S>()) {
                    let _why = Kernels::Wholes.because(&window);
                    let mean = StochasticPoolInferenceWholes::<S> { x, y, window, wholes };
                    let dims = LaunchDims::new(blocks, wholes::BLOCK).with_shared(shared);
                    // SAFETY: as below; the window is such, and the launch its own.
                    return unsafe { gpu.launch(dims, mean) };
                }
                if let Some((chunks, blocks)) = Chunks::new(&window, size_of::<S>()) {
                    let _why = Kernels::Chunks.because(&window);
                    let mean = StochasticPoolInferenceChunks::<S> { x, y, window, chunks };
                    // SAFETY: as below; the chunks are the window's, and the grid theirs.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, chunks::BLOCK), mean) };
                }
                if Warps::new(&window.in_order(), true).is_none() && !is_little(&window) {
                    for_meshes!(window, size_of::<S>(), [1 2 3] => GROUPS, (meshes, launch), {
                        let _why = Kernels::Meshes.because(&window);
                        let mean = StochasticPoolInferenceMeshes::<S, GROUPS> { x, y, window, meshes };
                        // SAFETY: as below; the meshes are the window's, which is such, and the launch theirs.
                        return unsafe { gpu.launch(band_dims(launch), mean) };
                    });
                    let bands = Bands::of_columns(&window, size_of::<S>(), &[2 * size_of::<f32>()]);
                    for_columns!(window, bands => STRIDE, GROUPS, (bands, launch), {
                        let outputs = Lines::new(window.output);
                        let _why = Kernels::AnyBands.because(&window);
                        let mean = StochasticPoolInferenceAny::<S, STRIDE, GROUPS> { x, y, window, bands, outputs };
                        // SAFETY: as below; the bands and the lines are the window's, and the launch the bands'; the geometry
                        // fits.
                        return unsafe { gpu.launch(band_dims(launch), mean) };
                    });
                }
            } else {
                let window = self.windows.launch::<Nhwc>(OP)?;
                for_padded!(window, Patches::of_drawn_outputs(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                    let _why = Kernels::Patches.because(&window);
                    let mean = StochasticPoolInferencePatch::<S, SIZE, PADDING> { x, y, window, patches };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), mean) };
                });
            }
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(OP)?;
                let warps = Warps::new(&window.in_order(), false);
                let launch = warps.as_ref().map(|(_, launch)| launch);
                if let Some((window, vectors, dims, kernels)) = forward_vectors(&window, 2, size_of::<S>(), launch) {
                    let _why = kernels.because(&window);
                    let mean = StochasticPoolInferenceVectors::<S> { x, y, window, vectors };
                    // SAFETY: as below; the vectors are of the window's outputs, and the launch theirs.
                    return unsafe { gpu.launch(dims, mean) };
                }
                if let Some((warps, launch)) = warps {
                    let _why = Kernels::Warps.because(&window);
                    let mean = StochasticPoolInferenceWarp::<S> { x, y, window: window.in_order(), warps };
                    // SAFETY: as below; the warps are over the outputs, and the launch theirs.
                    return unsafe { gpu.launch(band_dims(launch), mean) };
                }
                let (tiling, grid, block) = Tiling::new(&window, window.output);
                let _why = Kernels::General.because(&window);
                let mean = StochasticPoolInference::<S, L> { x, y, window, tiling };
                // SAFETY: `stochastic_pool::forward_inference` made `y` with the shape that the window, which has no dilation,
                // gives for `x`'s, in its layout; the tiling is over the output, and the launch its own. Memory begins at multiples
                // of 16 bytes.
                unsafe { gpu.launch(LaunchDims::new(grid, block), mean) }
            })
        })
    }
}
