//! Which kernels a pass takes: of the ways that have a plan for it, the first in the tables here.
//!
//! A way's own file says for which windows, layouts and types there are kernels (what is legal), lays blocks over them by a model of their bytes and
//! of a multiprocessor's room (what follows), and leaves to others what these were measured to do faster. What is left is an order, from the most special
//! to the most general, by what each was measured to take (`docs/perf/log.md`): instructions and not bytes are what most differ by, of which no model is.
//! `FERROLAYER_EXPLAIN=1` prints the way that is taken and why.

use std::cell::OnceCell;

use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::apart::Plan as ApartPlan;
use kernels::gaussian_pool::correlate::CorrelatePlan;
use kernels::gaussian_pool::direct::Plan as DirectPlan;
use kernels::gaussian_pool::global::Globals;
use kernels::gaussian_pool::lanes::LanesPlan;
use kernels::gaussian_pool::matrices::MatricesPlan;
use kernels::gaussian_pool::slide::{Plan as SlidePlan, Slide as Slides};
use kernels::gaussian_pool::staged::StagedPlan;
use kernels::gaussian_pool::strips::walk::WalkPlan;
use kernels::gaussian_pool::strips::{Plan as StripsPlan, Strips as ManyStrips};

use super::super::plan::Plan;
use super::super::{Backward, columns};
use super::row_major::{BackwardWay, ForwardWay, RowMajorPlan};
use super::runs_learnt::RunsPlan;
use super::{
    all_gradients, along_y, apart, apiece, bands_along_y, channels, direct, elements, falling_packs, few, flat, global,
    lanes, large, matrices, meshes, packs, packs_apiece, parameters_falling, patches, planes, positions, row_major,
    shares, slide, spans, staged, strips, taps, vectors,
};
use crate::device::Gpu;
use crate::{DType, Real};

/// A way to make the forward pass, and its plan.
pub(super) enum ForwardBy {
    FallingPacks(falling_packs::FallingPacksPlan),
    Spans(spans::SpansPlan),
    BandsAlongY(bands_along_y::BandsAlongYPlan),
    AlongY(along_y::AlongYPlan),
    Flat(flat::FlatPlan),
    Packs(packs::PacksPlan),
    Direct(DirectPlan),
    Elements(elements::ElementsPlan),
    Matrices(MatricesPlan),
    RowMajor(RowMajorPlan<ForwardWay>),
    PacksApiece(packs_apiece::PacksApiecePlan),
    Apiece(apiece::ApiecePlan),
    Channels(channels::ChannelsPlan),
    Warps(large::WarpPlan),
    Apart(ApartPlan),
    Patches(patches::PatchesPlan),
    Lanes(LanesPlan),
    Staged(StagedPlan),
    Few(few::FewPlan),
    Taps(taps::TapsPlan),
    Slide(SlidePlan),
    Vectors(vectors::VectorsPlan),
    Columns(WalkPlan),
    Strips(StripsPlan),
    /// Tiles of any window, for which there is always a plan.
    Tiles,
}

/// A way to make the backward pass, and its plan.
pub(super) enum BackwardBy {
    FallingPacks(falling_packs::FallingPacksPlan),
    Spans(spans::SpansPlan),
    ParametersFalling(parameters_falling::ParametersPlan),
    Flat(flat::FlatPlan),
    Packs(packs::PacksPlan),
    Elements(elements::ElementsPlan),
    Few(few::FewPlan),
    Shares(shares::SharesPlan),
    Patches(patches::PatchesPlan),
    Matrices(MatricesPlan),
    RowMajor(RowMajorPlan<BackwardWay>),
    Globals((Globals, u32)),
    PacksApiece(packs_apiece::PacksApiecePlan),
    Channels(channels::ChannelsPlan),
    AllGradients(all_gradients::AllGradientsPlan),
    ColumnsOfMeshes(planes::ColumnsPlan),
    Meshes(meshes::MeshesPlan),
    Runs(RunsPlan),
    Correlate(CorrelatePlan),
    Lanes(LanesPlan),
    Staged(StagedPlan),
    Taps(taps::TapsPlan),
    /// The input's gradient by itself, and then the parameters', by the ways that these have alone.
    InputFirst,
    Slide(SlidePlan),
    Positions(positions::PositionsPlan),
    Vectors(vectors::VectorsPlan),
    Columns(WalkPlan),
    Strips(StripsPlan),
    /// Tiles of any window, for which there is always a plan.
    Tiles,
}

/// A forward pass, and what several ways look at, worked out when the first does.
struct ForwardCase<'a> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    geometry: &'a Geometry,
    dtype: DType,
    row_major: OnceCell<Option<RowMajorPlan<ForwardWay>>>,
    direct: OnceCell<Option<DirectPlan>>,
    channels: OnceCell<Option<channels::ChannelsPlan>>,
}

impl ForwardCase<'_> {
    fn row_major(&self) -> Option<RowMajorPlan<ForwardWay>> {
        *self.row_major.get_or_init(|| row_major::forward(self.gpu, self.plan, self.geometry, self.dtype))
    }

    fn direct(&self) -> Option<DirectPlan> {
        *self.direct.get_or_init(|| direct::plan(self.plan, self.geometry))
    }

    fn channels(&self) -> Option<channels::ChannelsPlan> {
        *self.channels.get_or_init(|| channels::forward(self.plan, self.geometry))
    }

    /// Whether no row-major way takes less time than those that begin with less.
    fn is_little(&self) -> bool {
        !self.row_major().as_ref().is_some_and(RowMajorPlan::is_much)
    }
}

/// The ways forward, in order.
const FORWARD: [fn(&ForwardCase<'_>) -> Option<ForwardBy>; 27] = {
    use ForwardBy::*;
    [
        |c| falling_packs::forward(c.gpu, c.plan, c.geometry, c.dtype).map(FallingPacks),
        |c| spans::forward(c.gpu, c.plan, c.geometry, c.dtype).map(Spans),
        |c| taps::forward(c.gpu, c.plan, c.geometry, c.dtype).map(Taps),
        |c| bands_along_y::plan(c.gpu, c.plan, c.geometry, c.dtype).map(BandsAlongY),
        |c| along_y::plan(c.gpu, c.plan, c.geometry, c.dtype, c.direct().is_some()).map(AlongY),
        // Of little, those whose blocks begin with least.
        |c| c.is_little().then(|| flat::forward(c.gpu, c.plan, c.geometry, c.dtype))?.map(Flat),
        |c| c.is_little().then(|| packs::forward(c.gpu, c.plan, c.geometry, c.dtype))?.map(Packs),
        // Of channels' own Gaussians others make a table of weights first.
        |c| (c.is_little() && c.geometry.sets > 1).then(|| c.direct())?.map(Direct),
        |c| {
            let wanted = c.is_little() && c.direct().is_none();
            wanted.then(|| elements::forward(c.plan, c.geometry, c.dtype))?.map(Elements)
        },
        |c| matrices::forward(c.gpu, c.plan, c.geometry, c.dtype).map(Matrices),
        |c| c.row_major().map(RowMajor),
        |c| packs_apiece::forward(c.gpu, c.plan, c.geometry, c.dtype).map(PacksApiece),
        |c| {
            let others = || c.channels().is_some();
            c.direct().is_none().then(|| apiece::forward(c.gpu, c.plan, c.geometry, others()))?.map(Apiece)
        },
        |c| c.channels().map(Channels),
        |c| c.direct().map(Direct),
        // Windows of which there are few, and such that share little.
        |c| large::of_huge(c.plan, c.geometry).map(Warps),
        |c| apart::plan(c.plan, c.geometry).map(Apart),
        |c| large::plan(c.plan, c.geometry).map(Warps),
        // What stages rows or planes in shared memory.
        |c| patches::forward(c.plan, c.geometry, c.dtype).map(Patches),
        |c| lanes::forward(c.plan, c.geometry, c.dtype).map(Lanes),
        |c| staged::forward(c.gpu, c.plan, c.geometry, c.dtype).map(Staged),
        |c| few::odd(c.geometry.channels).then(|| few::forward(c.plan, c.geometry))?.map(Few),
        |c| {
            let (variances, bytes) = (c.plan.variances() as u32, c.dtype.size() as u32);
            slide::plan(c.plan, c.geometry, || Slides::forward(c.geometry, variances, bytes)).map(Slide)
        },
        |c| vectors::forward(c.gpu, c.plan, c.geometry, c.dtype).map(Vectors),
        |c| few::forward(c.plan, c.geometry).map(Few),
        |c| columns::launch(c.plan, WalkPlan::forward(c.geometry, c.plan.variances() as u32)).map(Columns),
        |c| {
            let of_strips = ManyStrips::forward(c.geometry, c.plan.variances() as u32, strips::least(c.gpu));
            strips::plan(c.plan, of_strips).map(Strips)
        },
    ]
};

/// The way forward.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> ForwardBy {
    let (row_major, direct, channels) = Default::default();
    let case = ForwardCase { gpu, plan, geometry, dtype, row_major, direct, channels };
    FORWARD.iter().find_map(|way| way(&case)).unwrap_or(ForwardBy::Tiles)
}

/// A backward pass, and what several ways look at, worked out when the first does.
struct BackwardCase<'a, 'b, T: Real> {
    pass: &'a Backward<'b, T>,
    gpu: &'a Gpu,
    plan: &'a Plan,
    geometry: &'a Geometry,
    dtype: DType,
    /// Whether the parameters' gradients are asked for.
    parameters: bool,
    /// Whether only the input's gradient is, and is not added to what is there.
    writes: bool,
    row_major: OnceCell<Option<RowMajorPlan<BackwardWay>>>,
    runs: OnceCell<Option<RunsPlan>>,
}

impl<T: Real> BackwardCase<'_, '_, T> {
    /// If the input's gradient alone is asked for.
    fn alone<P>(&self, plan: impl FnOnce() -> Option<P>) -> Option<P> {
        if self.parameters { None } else { plan() }
    }

    /// If that is written.
    fn written<P>(&self, plan: impl FnOnce() -> Option<P>) -> Option<P> {
        if self.writes { plan() } else { None }
    }

    /// If it is alone, and no row-major way takes less time than those that begin with less.
    fn little<P>(&self, plan: impl FnOnce() -> Option<P>) -> Option<P> {
        let is_much = || self.row_major().as_ref().is_some_and(RowMajorPlan::is_much);
        self.alone(|| if is_much() { None } else { plan() })
    }

    fn row_major(&self) -> Option<RowMajorPlan<BackwardWay>> {
        let plan = || row_major::backward(self.gpu, self.plan, self.geometry, self.dtype, self.writes);
        *self.row_major.get_or_init(|| self.alone(plan))
    }

    fn runs(&self) -> Option<RunsPlan> {
        *self.runs.get_or_init(|| self.pass.plan_runs_learnt(self.gpu, self.geometry))
    }

    /// Sums of each window: of the input's gradient one, with the parameters' three.
    fn each(&self) -> u32 {
        if self.parameters { 3 } else { 1 }
    }
}

type BackwardRule<T> = fn(&BackwardCase<'_, '_, T>) -> Option<BackwardBy>;

/// The ways backward, in order.
const fn backward_ways<T: Real>() -> [BackwardRule<T>; 30] {
    use BackwardBy::*;
    [
        |c| c.written(|| falling_packs::backward(c.gpu, c.plan, c.geometry, c.dtype)).map(FallingPacks),
        |c| c.alone(|| spans::backward(c.gpu, c.plan, c.geometry, c.dtype)).map(Spans),
        |c| {
            // The input's gradient has the same bits whatever else is asked for.
            let by_taps = || taps::backward(c.gpu, c.plan, c.geometry, c.dtype);
            c.pass.dx.is_some().then(by_taps)?.map(|plan| if c.parameters { InputFirst } else { Taps(plan) })
        },
        |c| c.pass.plan_parameters_falling(c.gpu, c.geometry).map(ParametersFalling),
        // Of little, those whose blocks begin with least.
        |c| c.little(|| flat::backward(c.gpu, c.plan, c.geometry, c.dtype)).map(Flat),
        |c| c.little(|| packs::backward(c.gpu, c.plan, c.geometry, c.dtype)).map(Packs),
        |c| c.little(|| elements::backward(c.plan, c.geometry, c.dtype)).map(Elements),
        // Windows that share nothing.
        |c| c.alone(|| shares::are_apart(c.geometry).then(|| few::little(c.plan, c.geometry))?).map(Few),
        |c| c.alone(|| shares::are_apart(c.geometry).then(|| shares::plan(c.gpu, c.plan, c.geometry))?).map(Shares),
        |c| c.written(|| patches::backward(c.plan, c.geometry, c.dtype)).map(Patches),
        |c| c.written(|| matrices::backward(c.gpu, c.plan, c.geometry, c.dtype)).map(Matrices),
        |c| c.row_major().map(RowMajor),
        |c| c.alone(|| few::little(c.plan, c.geometry)).map(Few),
        |c| c.alone(|| global::plan(c.plan, c.geometry, c.dtype)).map(Globals),
        |c| c.alone(|| packs_apiece::backward(c.gpu, c.plan, c.geometry, c.dtype)).map(PacksApiece),
        |c| channels::backward(c.plan, c.geometry, c.dtype, c.parameters).map(Channels),
        // All gradients at once; of short rows by runs, below.
        |c| {
            let short = c.runs().as_ref().is_some_and(RunsPlan::has_short_rows::<T>);
            (!short).then(|| c.pass.plan_all_gradients(c.gpu, c.geometry))?.map(AllGradients)
        },
        |c| c.pass.plan_columns(c.geometry).map(ColumnsOfMeshes),
        |c| c.alone(|| meshes::backward(c.plan, c.geometry, c.dtype)).map(Meshes),
        |c| c.runs().map(Runs),
        |c| c.pass.plan_correlate(c.gpu, c.geometry).map(Correlate),
        // What stages rows or planes in shared memory.
        |c| lanes::backward(c.plan, c.geometry, c.dtype, c.parameters).map(Lanes),
        |c| c.written(|| staged::backward(c.gpu, c.plan, c.geometry, c.dtype)).map(Staged),
        |c| c.alone(|| few::odd(c.geometry.channels).then(|| few::backward(c.plan, c.geometry))?).map(Few),
        |c| {
            let (variances, bytes) = (c.plan.variances() as u32, c.dtype.size() as u32);
            let launch = || Slides::backward(c.geometry, variances, bytes, c.parameters);
            slide::plan(c.plan, c.geometry, launch).map(Slide)
        },
        |c| c.pass.plan_positions(c.geometry).map(Positions),
        |c| c.alone(|| vectors::backward(c.gpu, c.plan, c.geometry, c.dtype, c.writes)).map(Vectors),
        |c| c.alone(|| shares::are_few(c.geometry).then(|| shares::plan(c.gpu, c.plan, c.geometry))?).map(Shares),
        |c| columns::launch(c.plan, WalkPlan::backward(c.geometry, c.plan.variances() as u32, c.each())).map(Columns),
        |c| {
            let of_strips = ManyStrips::backward(c.geometry, c.plan.variances() as u32, c.each(), strips::least(c.gpu));
            strips::plan(c.plan, of_strips).map(Strips)
        },
    ]
}

/// The way backward.
pub(super) fn backward<T: Real>(gpu: &Gpu, pass: &Backward<'_, T>, geometry: &Geometry) -> BackwardBy {
    let parameters = pass.dmean.is_some() || pass.dvar.is_some();
    let writes = !parameters && pass.dx.as_ref().is_some_and(|out| out.beta == 0.0);
    let (plan, dtype) = (&pass.plan, T::DTYPE);
    let (row_major, runs) = Default::default();
    let case = BackwardCase { pass, gpu, plan, geometry, dtype, parameters, writes, row_major, runs };
    backward_ways().iter().find_map(|way| way(&case)).unwrap_or(BackwardBy::Tiles)
}
