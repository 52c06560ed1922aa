//! The launch of the kernel that sums all columns of a row of windows along y first, by bands of rows in shared memory, of planes that follow each other.

use std::cell::RefCell;

use kernels::band::{BandLaunch, Block};
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::along_y::PACK;
use kernels::gaussian_pool::bands_along_y::{GaussianPoolForwardBandsAlongY, Sums};
use kernels::window::{Nchw, Window};

use super::super::Forward;
use super::super::plan::Plan;
use super::patches::of_planes;
use crate::Layout::RowMajor;
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_storage};
use crate::ops::window::{band_dims, elements};
use crate::recent::Recent;
use crate::{DType, Real, Result};

/// A launch's window and its bands.
pub(super) struct BandsAlongYPlan {
    window: Window<Nchw>,
    sums: Sums,
    block: Block,
    launch: BandLaunch,
}

/// What a choice depends on: the window, an element's bytes, and how many sets of how many Gaussians there are.
type Key = (Window<Nchw>, usize, [u32; 2]);
type Choice = Option<(Sums, Block, BandLaunch)>;

/// Choices that a thread remembers.
const RECENT: usize = 8;
/// How far windows are apart along y that go this way, at least.
const FAR: u32 = 4;
/// Pixels of a plane that is large.
const LARGE: u64 = 1 << 12;
/// Rows of windows that go this way, at least; of many elements in large planes fewer, which others take whole where there are not as many.
const HIGH: u32 = 9;
const OF_MUCH: u32 = 7;
const MUCH: u64 = 1 << 21;
/// Rows of windows that do in small planes, at most.
const OF_SMALL: u32 = 12;

/// The plan of the kernel, if it can and no other is faster: rows are no whole packs of four, and maps have one Gaussian, or large ones of 16 bits two.
pub(super) fn plan(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<BandsAlongYPlan> {
    let [y, x] = &geometry.axes;
    let fits = plan.layout == RowMajor && plan.planes() > 0 && (y.cases, x.cases) == (1, 1);
    if !fits || x.image.is_multiple_of(PACK) || y.stride < FAR || x.stride / 2 >= x.size {
        return None;
    }
    let window = of_planes::<Nchw>(geometry, [geometry.planes, 1]);
    let large = u64::from(y.image) * u64::from(x.image) >= LARGE;
    let least = if large && elements(&window, window.input) >= MUCH { OF_MUCH } else { HIGH };
    // Of small planes in f32 that share a Gaussian only what overlaps much, of which the other way reads more.
    let overlap = dtype != DType::F32 || geometry.sets > 1 || 2 * u64::from(y.size) >= 5 * u64::from(y.stride);
    let most = if large || gpu.is_emulated() { u32::MAX } else { OF_SMALL };
    let few = geometry.kernels == 1 || large && dtype != DType::F32 && geometry.kernels == 2 || gpu.is_emulated();
    if !(least..=most).contains(&y.size) || !(large || overlap) || !few {
        return None;
    }
    let (sums, block, launch) = choice(window, dtype.size(), [geometry.sets, geometry.kernels])?;
    (launch.shared <= SHARED_WITHOUT_ASKING).then_some(BandsAlongYPlan { window, sums, block, launch })
}

/// [`Sums::plan`], which goes through all numbers of rows that a band may have: remembered for the windows of late.
fn choice(window: Window<Nchw>, bytes: usize, gaussians: [u32; 2]) -> Choice {
    thread_local! {
        static CHOICES: RefCell<Recent<Key, Choice, RECENT>> = RefCell::default();
    }
    let key = (window, bytes, gaussians);
    CHOICES.with_borrow_mut(|recent| recent.get(key, || Sums::plan(&window, bytes, gaussians)))
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn bands_along_y(self, gpu: &Gpu, geometry: Geometry, launch: BandsAlongYPlan) -> Result<()> {
        let plan = &self.plan;
        let _why =
            super::because(plan, "along y first, by bands of rows in shared memory, of windows that are far apart");
        let (op, variances) = (plan.op, plan.variances() as u32);
        let BandsAlongYPlan { window, sums, block, launch } = launch;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            type Kernel<'a, S> = GaussianPoolForwardBandsAlongY<'a, S>;
            let kernel = Kernel::<S> { x, mean, var, y, variances, geometry, window, block, sums };
            // SAFETY: `x` and `y` have the shapes and the layout that `window` and `geometry` were made of, and the parameters theirs;
            // block and sums are the window's, and the grid, the block and the shared memory theirs. Memory begins at multiples of 16 bytes.
            unsafe { gpu.launch(band_dims(launch), kernel) }
        })
    }
}
