mod abreast;
mod falling;

use cuda_std::launch::{DeviceMemory, Launch, LaunchDims};
use kernels::band::any::Lines;
use kernels::band::{BandLaunch, Bands};
use kernels::chunks::{self, Chunks};
use kernels::max_pool::{
    MaxPoolFlatIndices, MaxPoolForward, MaxPoolForwardApart, MaxPoolForwardBand, MaxPoolForwardChunks,
    MaxPoolForwardColumns, MaxPoolForwardMeshes, MaxPoolForwardOctets, MaxPoolForwardPairs, MaxPoolForwardPatch,
    MaxPoolForwardQuads, MaxPoolForwardSpans, MaxPoolForwardVectors, MaxPoolForwardWarp, MaxPoolForwardWholes,
};
use kernels::patch::Patches;
use kernels::patch::quads::{self, Quads};
use kernels::pieces;
use kernels::spans;
use kernels::vectors::Lanes;
use kernels::warps::Warps;
use kernels::wholes::{self, Wholes};
use kernels::window::{Covering, Divider, Nchw, Nhwc, Order, Position, Tiling, Window};

use super::{FlatIndices, Forward, Indices};
use crate::device::{Gpu, OnGpu, for_half, for_storage};
use crate::ops::route::for_indices;
use crate::ops::window::{
    Choice, Kernels, are_twos, band_dims, channels_last, for_apart, for_groups, for_meshes, for_order, for_padded,
    for_slide, for_spans, forward_vectors, is_little, row_major, spans_of_outputs,
};
use crate::{Layout, Real, Result};

impl<T: Real> OnGpu for Forward<'_, T> {
    fn on_gpu(mut self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "max_pool.forward";
        self.windows = self.windows.by_columns(size_of::<T>());
        if self.windows.layout == Layout::RowMajor && !matches!(self.indices, Some(Indices::U16(_))) {
            let window = self.windows.launch::<Nchw>(OP)?;
            for_half!(T as S, {
                for_padded!(window, Quads::new(&window) => SIZE: usize, PADDING, (quads, blocks), {
                    let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
                    let indices = one_byte(self.indices, OP)?;
                    let _why = Kernels::Quads.because(&window);
                    let forward = MaxPoolForwardQuads::<S, SIZE, PADDING> { x, y, indices, window, quads };
                    // SAFETY: as `any_window`'s; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(blocks, quads::BLOCK), forward) };
                });
            });
            if let Some(plan) = abreast::launch(gpu, &window, T::DTYPE) {
                return self.abreast(gpu, OP, window, plan);
            }
        }
        if self.windows.layout == Layout::ChannelsLast && !matches!(self.indices, Some(Indices::U16(_))) {
            let window = self.windows.launch::<Nhwc>(OP)?;
            if let Some(falling) = falling::launch(gpu, window, T::DTYPE) {
                return self.falling(gpu, OP, &window, falling);
            }
            for_half!(T as S, {
                for_padded!(window, Patches::of_output_octets(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                    let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
                    let indices = one_byte(self.indices, OP)?;
                    let _why = Kernels::Octets.because(&window);
                    let forward = MaxPoolForwardOctets::<S, SIZE, PADDING> { x, y, indices, window, patches };
                    // SAFETY: as `any_window`'s; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), forward) };
                });
            });
        }
        for_storage!(T as S, OP, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(OP, "x")?, self.y.gpu_mut::<S>(OP, "y")?);
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(OP)?;
                let indices: Option<&mut dyn DeviceMemory<u8>> = match self.indices {
                    Some(Indices::U16(indices)) => {
                        let indices = indices.gpu_mut::<u16>(OP, "indices")?;
                        return any_window::<S, L, u16>(gpu, x, y, Some(indices), window);
                    }
                    Some(Indices::U8(indices)) => Some(indices.gpu_mut::<u8>(OP, "indices")?),
                    None => None,
                };
                if let Some(window) = row_major(&window) {
                    for_padded!(window, Choice::OutputPairs.of(&window, &[size_of::<S>()]) => SIZE: usize, PADDING, (bands, launch), {
                        let _why = Kernels::Pairs.because(&window);
                        let forward = MaxPoolForwardPairs::<S, SIZE, PADDING> { x, y, indices, window, bands };
                        // SAFETY: as `any_window`'s; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), forward) };
                    });
                    for_slide!(window, size_of::<S>(), [2 / 2 3 / 1 3 / 2] => SIZE, STRIDE, (bands, launch), {
                        let _why = Kernels::Bands.because(&window);
                        let forward = MaxPoolForwardBand::<S, SIZE, STRIDE> { x, y, indices, window, bands };
                        // SAFETY: as `any_window`'s; the window is such.
                        return unsafe { gpu.launch(band_dims(launch), forward) };
                    });
                    for_apart!(window, size_of::<S>(), false => SIZE, (pieces, blocks), {
                        let _why = Kernels::Pieces.because(&window);
                        let forward = MaxPoolForwardApart::<S, SIZE> { x, y, indices, window, pieces };
                        // SAFETY: as `any_window`'s; the window is such, and the pieces are its own.
                        return unsafe { gpu.launch(LaunchDims::new(blocks, pieces::BLOCK), forward) };
                    });
                    if let Some((spans, blocks)) = spans_of_outputs(&window, size_of::<S>(), are_twos(&window)) {
                        return for_spans!(window => COLUMNS, STRIDE, PADDING, {
                            let _why = Kernels::Spans.because(&window);
                            type Kernel<'a, S> = MaxPoolForwardSpans<'a, S, COLUMNS, STRIDE, PADDING>;
                            let forward = Kernel::<S> { x, y, indices, window, spans };
                            // SAFETY: as `any_window`'s; the window is such, and the spans are its own.
                            unsafe { gpu.launch(LaunchDims::new(blocks, spans::BLOCK), forward) }
                        });
                    }
                }
                if let Some(window) = row_major(&window)
                    && Wholes::new(&window, size_of::<S>()).is_none()
                    && Warps::new(&window.in_order(), true).is_none()
                    && !is_little(&window)
                {
                    for_meshes!(window, size_of::<S>(), [2 3] => GROUPS, (meshes, launch), {
                        let by_size = Divider::new(window.size[1]);
                        let _why = Kernels::Meshes.because(&window);
                        let forward = MaxPoolForwardMeshes::<S, GROUPS> { x, y, indices, window, meshes, by_size };
                        // SAFETY: as `any_window`'s; the meshes are the window's, which is such, and the launch theirs.
                        return unsafe { gpu.launch(band_dims(launch), forward) };
                    });
                    for_groups!(window => STRIDE, GROUPS, {
                        if let Some((bands, launch)) = by_columns(&window, size_of::<S>()) {
                            let (outputs, by_size) = (Lines::new(window.output), Divider::new(window.size[1]));
                            let _why = Kernels::AnyBands.because(&window);
                            let forward = MaxPoolForwardColumns::<S, u8, STRIDE, GROUPS> {
                                x,
                                y,
                                indices,
                                window,
                                bands,
                                outputs,
                                by_size,
                            };
                            // SAFETY: as `any_window`'s; the window is such.
                            return unsafe { gpu.launch(band_dims(launch), forward) };
                        }
                    });
                }
                if let Some(window) = channels_last(&window) {
                    for_padded!(window, Patches::of_outputs(&window) => SIZE: usize, PADDING, (patches, grid, block), {
                        let _why = Kernels::Patches.because(&window);
                        let forward = MaxPoolForwardPatch::<S, SIZE, PADDING> { x, y, indices, window, patches };
                        // SAFETY: as `any_window`'s; the geometry fits.
                        return unsafe { gpu.launch(LaunchDims::new(grid, block), forward) };
                    });
                }
                any_window::<S, L, u8>(gpu, x, y, indices, window)
            })
        })
    }
}

/// Indices of one byte, if any are asked for.
fn one_byte<'a>(
    indices: Option<&'a mut Indices>,
    op: &'static str,
) -> Result<Option<&'a mut (dyn DeviceMemory<u8> + 'a)>> {
    match indices {
        Some(Indices::U8(indices)) => Ok(Some(indices.gpu_mut::<u8>(op, "indices")?)),
        _ => Ok(None),
    }
}

/// What a launch by columns takes, of whose inputs an element has `bytes`.
fn by_columns(window: &Window<Nchw>, bytes: usize) -> Option<(Bands, BandLaunch)> {
    Bands::of_columns(window, bytes, &[size_of::<f32>(), size_of::<u32>()])
}

/// The launch for windows of no size that there are kernels for.
fn any_window<'a, S: Lanes, L: Order, P: Position>(
    gpu: &Gpu,
    x: &'a dyn DeviceMemory<S>,
    y: &'a mut dyn DeviceMemory<S>,
    indices: Option<&'a mut (dyn DeviceMemory<P> + 'a)>,
    window: Window<L>,
) -> Result<()>
where
    MaxPoolForwardColumns<'a, S, P, 0, 0>: Launch,
    MaxPoolForwardWarp<'a, S, P>: Launch,
    MaxPoolForwardWholes<'a, S, P>: Launch,
    MaxPoolForwardChunks<'a, S, P>: Launch,
    MaxPoolForwardVectors<'a, S, P>: Launch,
    MaxPoolForward<'a, S, L, P>: Launch,
{
    if let Some(window) = row_major(&window)
        && let Some((wholes, blocks, shared)) = Wholes::new(&window, size_of::<S>())
    {
        let _why = Kernels::Wholes.because(&window);
        let forward = MaxPoolForwardWholes::<S, P> { x, y, indices, window, wholes };
        let dims = LaunchDims::new(blocks, wholes::BLOCK).with_shared(shared);
        // SAFETY: as below; the window is such, and the launch its own.
        return unsafe { gpu.launch(dims, forward) };
    }
    if let Some(window) = row_major(&window)
        && let Some((chunks, blocks)) = Chunks::new(&window, size_of::<S>())
    {
        let _why = Kernels::Chunks.because(&window);
        let forward = MaxPoolForwardChunks::<S, P> { x, y, indices, window, chunks };
        // SAFETY: as below; the chunks are the window's, and the grid theirs.
        return unsafe { gpu.launch(LaunchDims::new(blocks, chunks::BLOCK), forward) };
    }
    let bands = row_major(&window).and_then(|window| by_columns(&window, size_of::<S>()));
    let warps = Warps::new(&window.in_order(), bands.is_some());
    if let (Some(window), Some((bands, launch)), None) = (row_major(&window), bands, warps)
        && !is_little(&window)
    {
        let (outputs, by_size) = (Lines::new(window.output), Divider::new(window.size[1]));
        let _why = Kernels::AnyBands.because(&window);
        let forward = MaxPoolForwardColumns::<S, P, 0, 0> { x, y, indices, window, bands, outputs, by_size };
        // SAFETY: as below; the bands and the lines are the window's, and the launch the bands'.
        return unsafe { gpu.launch(band_dims(launch), forward) };
    }
    // Of each channel a value and a position.
    if let Some((window, vectors, dims, kernels)) =
        forward_vectors(&window, 2, size_of::<S>(), warps.as_ref().map(|(_, launch)| launch))
    {
        let _why = kernels.because(&window);
        let forward = MaxPoolForwardVectors::<S, P> { x, y, indices, window, vectors };
        // SAFETY: as below; the vectors are of the window's outputs, and the launch theirs.
        return unsafe { gpu.launch(dims, forward) };
    }
    if let Some((warps, launch)) = warps {
        let _why = Kernels::Warps.because(&window);
        let forward = MaxPoolForwardWarp::<S, P> { x, y, indices, window: window.in_order(), warps };
        // SAFETY: as below; the warps are over the outputs, and the launch theirs.
        return unsafe { gpu.launch(band_dims(launch), forward) };
    }
    let (tiling, grid, block) = Tiling::new(&window, window.output);
    let _why = Kernels::General.because(&window);
    let forward = MaxPoolForward::<S, L, P> { x, y, indices, window, tiling };
    // SAFETY: `max_pool::forward` made `y` and `indices` with the shape that the window gives for `x`'s, in its layout, and
    // the indices in a type for it; the tiling is over the output, and the launch its own. Memory begins at multiples of 16
    // bytes.
    unsafe { gpu.launch(LaunchDims::new(grid, block), forward) }
}

impl OnGpu for FlatIndices<'_> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "max_pool.flat_indices";
        let flat = self.flat.gpu_mut::<u32>(OP, "flat")?;
        for_order!(self.windows.layout => L, {
            let window = self.windows.launch::<L>(OP)?;
            let covering = Covering::new(&window);
            let (tiling, grid, block) = Tiling::new(&window, window.output);
            for_indices!(self.indices, indices as P => {
                let indices = indices.gpu::<P>(OP, "indices")?;
                let flatten = MaxPoolFlatIndices::<L, P> { indices, flat, window, covering, tiling };
                // SAFETY: `max_pool::flat_indices` checked that the indices have the shape of the window's output and its type,
                // and made `flat` of the same shape and layout; the tiling is over the output, and the launch its own.
                unsafe { gpu.launch(LaunchDims::new(grid, block), flatten) }
            })
        })
    }
}
