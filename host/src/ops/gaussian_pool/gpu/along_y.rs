//! The launch of the kernel that sums all columns of a row of windows along y first, of planes that follow each other.

use std::ops::RangeInclusive;

use cuda_std::launch::LaunchDims;
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::along_y::{ALONG_Y_BLOCK, GaussianPoolForwardAlongY, Lines, PACK, Plan as LinesPlan};
use kernels::window::{Nhwc, Window};

use super::super::Forward;
use super::super::plan::Plan;
use super::elements::elements;
use super::patches::of_planes;
use crate::Layout::RowMajor;
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_storage};
use crate::{DType, Real, Result};

/// A launch's window and its lines.
pub(super) struct AlongYPlan {
    window: Window<Nhwc>,
    of: LinesPlan,
    dims: LaunchDims,
}

/// How far windows are apart along y that go this way, at least.
const FAR: u32 = 4;
/// Rows of windows that others take whole, of which there are enough from these on, at least.
const WHOLE: u32 = 7;
/// Elements from which on such do, and such three apart, at least.
const MUCH: u64 = 1 << 21;
/// Rows of windows three apart that strips take, and columns of images up to which they do.
const OF_STRIPS: RangeInclusive<u32> = 9..=12;
/// See [`OF_STRIPS`].
const NARROW: u32 = 32;

/// The plan of the kernel, if it can and no other is faster. `others` may take whole windows of a size compiled in.
pub(super) fn plan(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType, others: bool) -> Option<AlongYPlan> {
    let [y, x] = &geometry.axes;
    if plan.layout != RowMajor || plan.planes() == 0 || (y.cases, x.cases) != (1, 1) {
        return None;
    }
    let window = of_planes::<Nhwc>(geometry, [geometry.planes, 1]);
    let ([height, width], [down, across], columns) = (window.size, window.stride, window.input[1]);
    let much = elements(&window, window.input) >= MUCH || gpu.is_emulated();
    let by_packs = columns.is_multiple_of(PACK) && much;
    let far = match down {
        FAR.. if others => height >= WHOLE && geometry.kernels == 1 && by_packs,
        FAR.. => true,
        3 => by_packs && height >= WHOLE && columns > NARROW && !OF_STRIPS.contains(&height),
        _ => false,
    };
    // Of windows further apart most columns are not theirs.
    if !far || across >= 2 * width {
        return None;
    }
    let gaussians = [geometry.sets, geometry.kernels];
    let of = Lines::plan(&window, dtype.size(), gaussians, |blocks| gpu.at_once(blocks))?;
    if of.shared_bytes > u64::from(SHARED_WITHOUT_ASKING) {
        return None;
    }
    let dims = LaunchDims::new(of.blocks, ALONG_Y_BLOCK).with_shared(of.shared_bytes as u32);
    Some(AlongYPlan { window, of, dims })
}

/// Runs a block with `$bytes`, `$maps` and `$own` as the parameters of these names of the kernel.
macro_rules! for_kernel {
    ($t:ty, $of:expr, $bytes:ident, $maps:ident, $own:ident, $body:expr) => {
        for_kernel!(
            @ ($of.by_packs, $of.own, $of.maps), $bytes, $maps, $own, $body; size_of::<$t>();
            (false, true, _): (1, 1, true); (true, true, _): (4, 1, true);
            (false, _, 1): (1, 1, false); (false, _, 2): (1, 2, false); (false, _, _): (1, 3, false);
            (true, _, 1): (4, 1, false); (true, _, 2): (4, 2, false); (true, _, _): (4, 3, false);
        )
    };
    (@ $case:expr, $bytes:ident, $maps:ident, $own:ident, $body:expr; $size:expr; $(($p:pat, $o:pat, $m:pat): ($a:literal, $b:literal, $c:literal);)*) => {
        match $case {
            $(($p, $o, $m) => {
                const $bytes: usize = $a * $size;
                const $maps: usize = $b;
                const $own: bool = $c;
                $body
            })*
        }
    };
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn along_y(self, gpu: &Gpu, geometry: Geometry, launch: AlongYPlan) -> Result<()> {
        let plan = &self.plan;
        let _why = super::because(plan, "along y first, all columns of a row of windows, which are far apart");
        let (op, variances) = (plan.op, plan.variances() as u32);
        let AlongYPlan { window, of, dims } = launch;
        let lines = of.lines;
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            for_kernel!(S, of, BYTES, MAPS, OWN, {
                type Kernel<'a, S> = GaussianPoolForwardAlongY<'a, S, BYTES, MAPS, OWN>;
                let launch = Kernel::<S> { x, mean, var, y, variances, geometry, window, lines };
                // SAFETY: `x` and `y` have the shapes and the layout that `window` and `geometry` were made of, and the parameters
                // theirs; the lines are the window's, and the grid and the shared memory theirs. Memory begins at multiples of 16 bytes.
                unsafe { gpu.launch(dims, launch) }
            })
        })
    }
}
