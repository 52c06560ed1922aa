mod abreast;
mod tiles;

use cuda_std::launch::LaunchDims;
use kernels::band::Block;
use kernels::band::any::Phases;
use kernels::patch::Patches;
use kernels::patch::quads::{self, Quads};
use kernels::route::{
    RouteBackward, RouteBackwardAny, RouteBackwardBand, RouteBackwardOctets, RouteBackwardPairs, RouteBackwardPatch,
    RouteBackwardQuads, RouteBackwardVectors,
};
use kernels::window::{Covering, Nchw, Nhwc, Tiling};

use super::{Backward, Indices, for_indices};
use crate::device::{Gpu, OnGpu, for_half, for_storage};
use crate::ops::window::{
    Choice, FEW_PICKED, Kernels, band_dims, channels_last, for_order, for_padded, for_vectors, is_little_backward,
    row_major,
};
use crate::{Layout, Real, Result};

impl<T: Real> OnGpu for Backward<'_, T> {
    fn on_gpu(mut self, gpu: &Gpu) -> Result<()> {
        let (op, beta) = (self.op, self.dx.beta as f32);
        self.windows = self.windows.by_columns_backward(size_of::<T>(), false);
        if self.windows.layout == Layout::RowMajor
            && beta == 0.0
            && let Indices::U8(indices) = self.indices
        {
            let window = self.windows.launch::<Nchw>(op)?;
            for_half!(T as S, {
                if let Some((quads, blocks)) = Quads::of_inputs(&window, 1) {
                    let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, self.dx.tensor.gpu_mut::<S>(op, "dx")?);
                    let indices = indices.gpu::<u8>(op, "indices")?;
                    let _why = Kernels::Quads.because(&window);
                    let dims = LaunchDims::new(blocks, quads::BLOCK);
                    return if window.padding == [0; 2] {
                        let route = RouteBackwardQuads::<S, 0> { dy, indices, dx, window, quads };
                        // SAFETY: as below; the geometry fits.
                        unsafe { gpu.launch(dims, route) }
                    } else {
                        let route = RouteBackwardQuads::<S, 1> { dy, indices, dx, window, quads };
                        // SAFETY: as below; the geometry fits, which is padded by 1.
                        unsafe { gpu.launch(dims, route) }
                    };
                }
            });
        }
        if self.windows.layout == Layout::ChannelsLast
            && beta == 0.0
            && let Indices::U8(indices) = self.indices
        {
            let window = self.windows.launch::<Nhwc>(op)?;
            for_half!(T as S, {
                for_padded!(window, Patches::of_input_octets(&window) => SIZE: u32, PADDING, (patches, grid, block), {
                    let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, self.dx.tensor.gpu_mut::<S>(op, "dx")?);
                    let indices = indices.gpu::<u8>(op, "indices")?;
                    let _why = Kernels::Octets.because(&window);
                    let route = RouteBackwardOctets::<S, SIZE, PADDING> { dy, indices, dx, window, patches };
                    // SAFETY: as below; the geometry fits.
                    return unsafe { gpu.launch(LaunchDims::new(grid, block), route) };
                });
            });
        }
        for_storage!(T as S, op, "dy", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, self.dx.tensor.gpu_mut::<S>(op, "dx")?);
            for_order!(self.windows.layout => L, {
                let window = self.windows.launch::<L>(op)?;
                if let Indices::U8(indices) = self.indices {
                    let indices = indices.gpu::<u8>(op, "indices")?;
                    if let Some(window) = row_major(&window) {
                        let sizes = [size_of::<S>(), size_of::<u8>()];
                        for_padded!(window, Choice::CellPairs.of(&window, &sizes) => SIZE: u32, PADDING, (bands, launch), {
                            let _why = Kernels::Pairs.because(&window);
                            let route = RouteBackwardPairs::<S, SIZE, PADDING> { dy, indices, dx, beta, window, bands };
                            // SAFETY: as below; the window is such.
                            return unsafe { gpu.launch(band_dims(launch), route) };
                        });
                        for_padded!(window, Choice::Cells.of(&window, &sizes) => SIZE: u32, PADDING, (bands, launch), {
                            let _why = Kernels::Bands.because(&window);
                            let route = RouteBackwardBand::<S, SIZE, PADDING> { dy, indices, dx, beta, window, bands };
                            // SAFETY: as below; the window is such.
                            return unsafe { gpu.launch(band_dims(launch), route) };
                        });
                        if let Some(plan) = abreast::launch(gpu, &window) {
                            return self.abreast(gpu, indices, window, plan);
                        }
                    }
                    if let Some(window) = channels_last(&window) {
                        for_padded!(window, Patches::of_inputs(&window) => SIZE: u32, PADDING, (patches, grid, block), {
                            let _why = Kernels::Patches.because(&window);
                            let route = RouteBackwardPatch::<S, SIZE, PADDING> { dy, indices, dx, beta, window, patches };
                            // SAFETY: as below; the geometry fits.
                            return unsafe { gpu.launch(LaunchDims::new(grid, block), route) };
                        });
                        if let Some(plan) = tiles::launch(gpu, window, T::DTYPE) {
                            return self.tiles(gpu, indices, &window, plan);
                        }
                    }
                }
                let covering = Covering::new(&window);
                for_indices!(self.indices, indices as P => {
                    let indices = indices.gpu::<P>(op, "indices")?;
                    if let Some(window) = row_major(&window)
                        && !is_little_backward(&window, FEW_PICKED)
                        && let Some((block, launch, rows)) =
                            Block::of_inputs(&window, &[size_of::<S>(), size_of::<P>()])
                    {
                        let phases = Phases::new(&window, rows);
                        let _why = Kernels::AnyBands.because(&window);
                        let route = RouteBackwardAny::<S, P> { dy, indices, dx, beta, window, covering, block, phases };
                        // SAFETY: as below; the block and the phases are the window's, and the launch the block's.
                        return unsafe { gpu.launch(band_dims(launch), route) };
                    }
                    if let Some(window) = channels_last(&window) {
                        for_vectors!(window, size_of::<S>() => ROWS, vectors, dims, {
                            let _why = Kernels::Vectors.because(&window);
                            let route = RouteBackwardVectors::<S, P, ROWS> { dy, indices, dx, beta, window, vectors };
                            // SAFETY: as below; the window has no dilation, the vectors are of its inputs, and the launch theirs.
                            return unsafe { gpu.launch(dims, route) };
                        });
                    }
                    let (tiling, grid, block) = Tiling::new(&window, window.input);
                    let _why = Kernels::General.because(&window);
                    let route = RouteBackward::<S, L, P> { dy, indices, dx, beta, window, covering, tiling };
                    // SAFETY: `route::backward` checked that `dx` has the shape of the window's input, `dy` and `indices` that
                    // of its output, and that all have its layout; the tiling is over the input, and the launch its own.
                    // Memory begins at multiples of 16 bytes.
                    unsafe { gpu.launch(LaunchDims::new(grid, block), route) }
                })
            })
        })
    }
}
