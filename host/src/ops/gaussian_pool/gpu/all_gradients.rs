//! Launches of the kernel that makes all gradients of row-major images by bands of rows.

use cuda_std::launch::DeviceMemory;
use kernels::band::{self, BandLaunch, Bands, Series};
use kernels::gaussian_pool::all_gradients::{GaussianPoolAllGradients, by_fours, min_blocks};
use kernels::gaussian_pool::sets::Sets;
use kernels::gaussian_pool::{Geometry, SUMS_PER_GAUSSIAN};
use kernels::window::{Nchw, Window};

use super::super::Backward;
use super::row_major::of;
use super::sum_parameters;
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_storage};
use crate::ops::window::{Choice, band_dims};
use crate::{Real, Result};

/// A launch's window, and how its threads are laid over it.
pub(super) struct AllGradientsPlan {
    window: Window<Nchw>,
    sets: Sets,
    bands: Bands,
    series: Series,
    launch: BandLaunch,
}

/// Bytes of shared memory that a multiprocessor of an A100 has for blocks, about.
const SHARED_OF_MULTIPROCESSOR: u32 = 160 * 1024;
/// Bytes of shared memory of a block for its threads' sums, beside what a launch asks for, and what it takes in any case.
const OF_SUMS: u32 = band::THREADS * SUMS_PER_GAUSSIAN * 4;
const OF_BLOCK: u32 = 1024;

const WHY: &str =
    "all gradients by bands of rows, for windows of a size compiled in and weights that are the same everywhere";

impl<T: Real> Backward<'_, T> {
    /// The plan, if gradients of the parameters are asked for, and there is a kernel for the windows, with one Gaussian a plane.
    pub(super) fn plan_all_gradients(&self, gpu: &Gpu, geometry: &Geometry) -> Option<AllGradientsPlan> {
        if geometry.kernels != 1 || self.dmean.is_none() && self.dvar.is_none() {
            return None;
        }
        let (window, sets) = of(&self.plan, geometry)?;
        let (bands, launch) = Choice::LearntCells.of(&window, &[T::DTYPE.size()])?;
        let shared = launch.shared + sets.bytes_with_derivatives(&bands, window.size[0]);
        if shared + OF_SUMS > SHARED_WITHOUT_ASKING {
            return None;
        }
        let series = Series::new(&bands);
        // Blocks that share a Gaussian take bands one after another, each as many.
        let most_threads = min_blocks(window.size[0] as usize, by_fours(&window)) * band::THREADS;
        let of_multiprocessor =
            (most_threads / launch.block[0]).min(SHARED_OF_MULTIPROCESSOR / (shared + OF_SUMS + OF_BLOCK));
        let each = if sets.is_one() { series.count().div_ceil(gpu.at_once(of_multiprocessor)) } else { 1 };
        let launch = BandLaunch { grid: [series.count().div_ceil(each), 1, 1], shared, ..launch };
        Some(AllGradientsPlan { window, sets, bands, series, launch })
    }

    pub(super) fn by_all_gradients(self, gpu: &Gpu, geometry: Geometry, launch: AllGradientsPlan) -> Result<()> {
        let plan = &self.plan;
        let why = super::because(plan, WHY);
        let op = plan.op;
        let AllGradientsPlan { window, sets, bands, series, launch } = launch;
        // Blocks leave sums of one Gaussian, which is all there is, or of each of their planes.
        let geometry = if sets.is_one() {
            Geometry { planes: launch.grid[0], tiles: [1, 1], ..geometry }
        } else {
            Geometry { tiles: [series.of_plane(), 1], ..geometry }
        };
        let parts = geometry.planes as usize * geometry.tiles[0] as usize;
        let mut workspace = gpu.workspace(parts * SUMS_PER_GAUSSIAN as usize)?;
        let mut of_blocks = workspace.as_slice_mut();
        for_storage!(T as S, op, "x", gpu, {
            let (x, dy) = (self.x.gpu::<S>(op, "x")?, self.dy.gpu::<S>(op, "dy")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            let (dx, beta) = match self.dx {
                Some(out) => (Some(out.tensor.gpu_mut::<S>(op, "dx")? as &mut dyn DeviceMemory<S>), out.beta as f32),
                None => (None, 0.0),
            };
            let sums = &mut of_blocks;
            macro_rules! run {
                ($size:literal, $stride:literal, $phase:literal, $fours:literal) => {{
                    type Kernel<'a, S> = GaussianPoolAllGradients<'a, S, $size, $stride, $phase, $fours>;
                    let kernel = Kernel::<S> { x, dy, mean, var, dx, beta, sums, sets, window, bands, series };
                    // SAFETY: `x`, `dy` and `dx` have the shapes and the layout that the window was made of, which is such, and the
                    // parameters theirs; there are four sums for each block, or each band of each plane; the block is the bands', with
                    // room for the weights and their derivatives, and there are enough of them. Memory begins at multiples of 16 bytes.
                    unsafe { gpu.launch(band_dims(launch), kernel) }
                }};
                ($size:literal, $stride:literal, $phase:literal, any) => {
                    if by_fours(&window) { run!($size, $stride, $phase, true) } else { run!($size, $stride, $phase, false) }
                };
            }
            match (window.size[0], window.stride[0], window.padding[0] % window.stride[0]) {
                (2, ..) => run!(2, 2, 0, any),
                (3, 3, _) => run!(3, 3, 0, false),
                (3, 1, _) => run!(3, 1, 0, any),
                (3, _, 0) => run!(3, 2, 0, any),
                (3, ..) => run!(3, 2, 1, any),
                (4, ..) => run!(4, 4, 0, any),
                (5, 1, _) => run!(5, 1, 0, any),
                (5, ..) => run!(5, 2, 0, any),
                _ => run!(7, 2, 1, any),
            }
        })?;
        drop(why);
        sum_parameters(gpu, plan, self.dmean, self.dvar, &of_blocks, geometry)
    }
}
