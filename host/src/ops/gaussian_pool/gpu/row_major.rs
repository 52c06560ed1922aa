//! Launches of the kernels for windows of a few sizes one or two pixels apart in row-major images, whose planes share their Gaussians or have a
//! channel's.

use cuda_std::launch::LaunchDims;
use kernels::band::{BandLaunch, Bands, Series};
use kernels::gaussian_pool::Geometry;
use kernels::gaussian_pool::all_gradients::{GaussianPoolInputGradient, by_fours};
use kernels::gaussian_pool::bands::{GaussianPoolBackwardBands, GaussianPoolBackwardPairs, GaussianPoolForwardBands};
use kernels::gaussian_pool::falling::{self, BACKWARD, FOURS, GaussianPoolBackwardFalling, GaussianPoolFalling, ONES};
use kernels::gaussian_pool::quads::{CELLS, GaussianPoolBackwardQuads, GaussianPoolForwardQuads, Lines};
use kernels::gaussian_pool::sets::Sets;
use kernels::gaussian_pool::squares::{GaussianPoolForwardSquares, SQUARES_BLOCK, Squares};
use kernels::patch::quads::{BLOCK as QUADS_BLOCK, Quads};
use kernels::window::{Nchw, Window};

use super::super::plan::Plan;
use super::super::{Backward, Forward};
use super::lanes;
use super::meshes::window;
use super::patches::for_size;
use crate::Layout::RowMajor;
use crate::device::{Gpu, SHARED_WITHOUT_ASKING, for_half, for_storage};
use crate::ops::window::{Choice, band_dims, elements};
use crate::{DType, Real, Result};

/// A launch's window, and how its threads are laid over it.
#[derive(Clone, Copy)]
pub(super) struct RowMajorPlan<W> {
    window: Window<Nchw>,
    sets: Sets,
    way: W,
}

/// By which kernel, and the blocks.
#[derive(Clone, Copy)]
pub(super) enum ForwardWay {
    Squares(Squares, u32),
    Quads(Lines, u32),
    Bands(Bands, BandLaunch),
    Falling(Falling),
}

/// The same of the backward pass.
#[derive(Clone, Copy)]
pub(super) enum BackwardWay {
    Quads(Quads, u32),
    Pairs(Bands, BandLaunch),
    Bands(Bands, BandLaunch),
    /// Down four columns of inputs.
    Cells(Bands, BandLaunch),
    /// Down a cell's columns of inputs.
    InputCells(Bands, Series, BandLaunch),
    /// By the window turned round, which the plan's is.
    Falling(Falling),
}

/// The bands of the kernel whose threads go down columns.
#[derive(Clone, Copy)]
pub(super) struct Falling {
    bands: Bands,
    launch: BandLaunch,
    /// Whether a thread has four columns of inputs.
    fours: bool,
}

/// Outputs of as many threads of four windows twice as a GPU has room for, about: fewer are faster by squares.
const MANY_OUTPUTS: u64 = 1 << 21;
/// Elements of all planes below which other kernels, whose blocks begin with less, are faster than those that stage rows. On the emulated grid,
/// where neither counts, [both are 0](at_least).
const LITTLE: u64 = 1 << 19;
/// The same of 3×3 windows one apart in 16 bits, for which there is a kernel by runs of rows.
const LITTLE_OF_RUNS: u64 = 1 << 24;

/// The plan of the forward pass, if there is a kernel that is faster than others.
pub(super) fn forward(gpu: &Gpu, plan: &Plan, geometry: &Geometry, dtype: DType) -> Option<RowMajorPlan<ForwardWay>> {
    let (window, sets) = of(plan, geometry)?;
    let (of_half, one) = (dtype != DType::F32, sets.is_one());
    let way = match (window.size[0], window.stride[0]) {
        (2 | 3, 2) => {
            let many = window.size[0] == 2 || elements(&window, window.output) >= at_least(gpu, MANY_OUTPUTS);
            let quads = || Lines::new(&window).filter(|_| one && of_half && many);
            let squares = || Squares::new(&window).filter(|_| one);
            // Of 2×2 in f32 threads take windows straight from memory, if all have one Gaussian.
            let many = elements(&window, window.input) >= least(gpu, &sets);
            let staged = many && (of_half || window.size[0] == 3 || !one);
            let bands = || staged.then(|| with_room(Choice::Outputs.of(&window, &[dtype.size()])?, &sets, &window))?;
            let way = quads().map(|(lines, blocks)| ForwardWay::Quads(lines, blocks));
            let way = way.or_else(|| squares().map(|(squares, blocks)| ForwardWay::Squares(squares, blocks)));
            way.or_else(|| bands().map(|(bands, launch)| ForwardWay::Bands(bands, launch)))
        }
        _ if geometry.kernels == 1 => falling(gpu, &window, &sets, dtype).map(ForwardWay::Falling),
        _ => None,
    };
    Some(RowMajorPlan { window, sets, way: way? })
}

/// The plan of the backward pass for the input's gradient alone; likewise. There are kernels that cannot add it to what is there.
pub(super) fn backward(
    gpu: &Gpu,
    plan: &Plan,
    geometry: &Geometry,
    dtype: DType,
    writes: bool,
) -> Option<RowMajorPlan<BackwardWay>> {
    let (window, sets) = of(plan, geometry).filter(|_| geometry.kernels == 1)?;
    let (of_half, one) = (dtype != DType::F32, sets.is_one());
    let bytes = [dtype.size()];
    if window.stride == [1; 2] {
        let (window, sets) = (turned(window), sets.turned());
        let way = BackwardWay::Falling(falling(gpu, &window, &sets, dtype)?);
        return Some(RowMajorPlan { window, sets, way });
    }
    let way = match (window.size, window.stride, window.padding) {
        // By warps, most of whose lanes have columns: a little faster.
        ([3, 3], [2, 2], [0, 0]) if one && !of_half && lanes::most_busy(plan, geometry, dtype) => None,
        ([2, 2], [2, 2], [0, 0]) | ([3, 3], [2, 2], [0, 0] | [1, 1]) => {
            let quads = || Quads::of_inputs(&window, CELLS).or_else(|| Quads::of_inputs_apart(&window, CELLS));
            let quads = || quads().filter(|_| one && writes && of_half);
            // Of 2×2 in f32 blocks of pairs are too small to begin with weights.
            let by_pairs = of_half || window.size[0] == 3;
            let pairs = || by_pairs.then(|| with_room(Choice::CellPairs.of(&window, &bytes)?, &sets, &window))?;
            let bands = || with_room(Choice::Cells.of(&window, &bytes)?, &sets, &window);
            let way = quads().map(|(quads, blocks)| BackwardWay::Quads(quads, blocks));
            let way = way.or_else(|| pairs().map(|(bands, launch)| BackwardWay::Pairs(bands, launch)));
            way.or_else(|| bands().map(|(bands, launch)| BackwardWay::Bands(bands, launch)))
        }
        ([size, _], [2, 2], [padding, _]) if BACKWARD.contains(&(size, padding % 2 == 1)) => {
            let many = elements(&window, window.input) >= least(gpu, &sets);
            let bands = many.then(|| with_room(Choice::FallingCells.of(&window, &bytes)?, &sets, &window))?;
            bands.map(|(bands, launch)| BackwardWay::Cells(bands, launch))
        }
        _ => None,
    };
    let cells = || {
        // Of channels' own Gaussians others take less time, which make a table first, where windows are as large as they are far apart and small, or
        // there is little.
        let threes = (window.size, window.stride) == ([3; 2], [3; 2]);
        if !one && (threes || elements(&window, window.input) < LITTLE && !gpu.is_emulated()) {
            return None;
        }
        let (bands, launch) = with_room(Choice::InputCells.of(&window, &bytes)?, &sets, &window)?;
        let series = Series::new(&bands);
        Some(BackwardWay::InputCells(bands, series, BandLaunch { grid: [series.count(), 1, 1], ..launch }))
    };
    Some(RowMajorPlan { window, sets, way: way.or_else(cells)? })
}

/// The window, and which planes have which Gaussians, if the weights of each are the same everywhere.
pub(super) fn of(plan: &Plan, geometry: &Geometry) -> Option<(Window<Nchw>, Sets)> {
    let [y, x] = &geometry.axes;
    let same = (y.cases, x.cases) == (1, 1);
    let square = (y.size, y.stride) == (x.size, x.stride);
    let fits = plan.layout == RowMajor && plan.planes() > 0 && same && square;
    fits.then(|| (window(geometry), Sets::new(geometry.sets, geometry.kernels, plan.variances() as u32)))
}

/// The launch with shared memory for the weights, if there is so much.
fn with_room((bands, launch): (Bands, BandLaunch), sets: &Sets, window: &Window<Nchw>) -> Option<(Bands, BandLaunch)> {
    let shared = launch.shared + sets.bytes(&bands, window.size[0]);
    (shared <= SHARED_WITHOUT_ASKING).then_some((bands, BandLaunch { shared, ..launch }))
}

/// So many, from which on a kernel is faster than others; on the emulated grid any.
fn at_least(gpu: &Gpu, count: u64) -> u64 {
    if gpu.is_emulated() { 0 } else { count }
}

/// Elements of all planes from which on kernels that stage rows are faster than others, which make a table of several Gaussians first.
fn least(gpu: &Gpu, sets: &Sets) -> u64 {
    if sets.is_one() { at_least(gpu, LITTLE) } else { 0 }
}

/// The window one apart whose pooling of `dy` is the pass backward.
fn turned(window: Window<Nchw>) -> Window<Nchw> {
    let padding = [0, 1].map(|axis| window.size[axis] - 1 - window.padding[axis]);
    Window { input: window.output, output: window.input, padding, ..window }
}

/// The plan of the kernel whose threads go down columns, if there is one of these windows that is faster than others.
fn falling(gpu: &Gpu, window: &Window<Nchw>, sets: &Sets, dtype: DType) -> Option<Falling> {
    let (size, stride, [rows, columns]) = (window.size[0], window.stride[0], window.input);
    let of_half = dtype != DType::F32;
    let by_runs =
        of_half && sets.is_one() && (size, stride, window.padding) == (3, 1, [1; 2]) && columns.is_multiple_of(8);
    let little = if by_runs { LITTLE_OF_RUNS } else { least(gpu, sets) };
    // Of images of few rows much of what windows cover lies beside them.
    let beside = !of_half && size > 5 && 5 * window.padding[0] > rows;
    if elements(window, window.input) < little || beside {
        return None;
    }
    let by = |fours: bool| {
        let choice = if fours { Choice::FallingFours } else { Choice::FallingOnes };
        let (bands, launch) = with_room(choice.of(window, &[dtype.size()])?, sets, window)?;
        Some(Falling { bands, launch, fours })
    };
    let fours = FOURS.contains(&(size, stride, window.padding[1])).then(|| by(true)).flatten();
    // Of windows that share no inputs threads take these straight from memory, if all have one Gaussian.
    let ones = ONES.contains(&(size, stride)) && (stride < size || !sets.is_one());
    fours.or_else(|| ones.then(|| by(false)).flatten())
}

const SQUARES: &str = "straight from memory, two by two outputs a thread, for windows of a size compiled in and weights that all planes share";

const QUADS: &str =
    "straight from memory, four windows a thread, for windows of a size compiled in and weights that all planes share";

const BANDS: &str = "by bands of rows, for windows of a size compiled in and weights that are the same everywhere";

const FALLING: &str =
    "down columns of bands of rows, for windows of a size compiled in and weights that are the same everywhere";

/// Launches [`GaussianPoolFalling`] with these fields.
macro_rules! launch_falling {
    ($gpu:ident, $s:ty, $falling:ident, $window:ident, $sets:ident, $from:ident, $to:ident, $mean:ident, $var:ident, $beta:expr) => {{
        let Falling { bands, launch, fours } = $falling;
        let (window, sets) = ($window, $sets);
        let (from, to, mean, var, beta) = ($from, $to, $mean, $var, $beta);
        macro_rules! run {
            ($size:literal, $stride:literal, $each:literal, $lead:literal) => {{
                type Falling<'a> = GaussianPoolFalling<'a, $s, $size, $stride, $each, $lead>;
                let kernel = Falling { from, mean, var, to, beta, sets, window, bands };
                // SAFETY: the tensors have the shapes and the layout that the window was made of, and the parameters theirs; the launch is
                // the bands', with room for the weights, of the window's size and stride and so many columns a thread. Memory begins at multiples of 16 bytes.
                unsafe { $gpu.launch(band_dims(launch), kernel) }
            }};
        }
        let lead = if fours { falling::lead(window.padding[1]) } else { 0 };
        match (window.size[0], window.stride[0], fours, lead) {
            (3, 3, ..) => run!(3, 3, 1, 0),
            (4, ..) => run!(4, 4, 1, 0),
            (3, _, false, _) => run!(3, 1, 1, 0),
            (3, _, true, 0) => run!(3, 1, 4, 0),
            (3, _, true, 2) => run!(3, 1, 4, 2),
            (3, _, true, _) => run!(3, 1, 4, 3),
            (5, 1, false, _) => run!(5, 1, 1, 0),
            (5, 1, true, 0) => run!(5, 1, 4, 0),
            (5, 1, true, _) => run!(5, 1, 4, 2),
            (5, _, false, _) => run!(5, 2, 1, 0),
            (5, _, true, 0) => run!(5, 2, 2, 0),
            (5, _, true, _) => run!(5, 2, 2, 2),
            (_, _, false, _) => run!(7, 2, 1, 0),
            (_, _, true, 0) => run!(7, 2, 2, 0),
            (_, _, true, _) => run!(7, 2, 2, 1),
        }
    }};
}

impl<W> RowMajorPlan<W> {
    /// Whether there are so many elements that no other kernel is faster.
    pub(super) fn is_much(&self) -> bool {
        elements(&self.window, self.window.input) >= LITTLE
    }
}

impl<T: Real> Forward<'_, T> {
    pub(super) fn row_major(self, gpu: &Gpu, launch: RowMajorPlan<ForwardWay>) -> Result<()> {
        let plan = &self.plan;
        let (op, variances) = (plan.op, plan.variances() as u32);
        let RowMajorPlan { window, sets, way } = launch;
        let _why = super::because(
            plan,
            match way {
                ForwardWay::Squares(..) => SQUARES,
                ForwardWay::Quads(..) => QUADS,
                ForwardWay::Bands(..) => BANDS,
                ForwardWay::Falling(..) => FALLING,
            },
        );
        for_half!(T as S, {
            if let ForwardWay::Quads(lines, blocks) = way {
                let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                return for_size!(window, SIZE: usize, PADDING, {
                    let launch =
                        GaussianPoolForwardQuads::<S, SIZE, PADDING> { x, mean, var, y, variances, window, lines };
                    // SAFETY: `x` and `y` have the shapes and the layout that `window` was made of, and the parameters theirs; the
                    // blocks are the lines', of the window's size and padding. Memory begins at multiples of 16 bytes.
                    unsafe { gpu.launch(LaunchDims::new(blocks, QUADS_BLOCK), launch) }
                });
            }
        });
        for_storage!(T as S, op, "x", gpu, {
            let (x, y) = (self.x.gpu::<S>(op, "x")?, self.y.gpu_mut::<S>(op, "y")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            match way {
                ForwardWay::Squares(squares, blocks) => {
                    let dims = LaunchDims::new(blocks, SQUARES_BLOCK);
                    macro_rules! run {
                        ($padding:literal) => {{
                            let launch = GaussianPoolForwardSquares::<S, $padding> {
                                x,
                                mean,
                                var,
                                y,
                                variances,
                                window,
                                squares,
                            };
                            // SAFETY: as above; the blocks are the squares'.
                            unsafe { gpu.launch(dims, launch) }
                        }};
                    }
                    if window.padding[0] == 0 { run!(0) } else { run!(1) }
                }
                ForwardWay::Bands(bands, launch) => {
                    macro_rules! run {
                        ($size:literal) => {{
                            let kernel = GaussianPoolForwardBands::<S, $size> { x, mean, var, y, sets, window, bands };
                            // SAFETY: as above; the launch is the bands'.
                            unsafe { gpu.launch(band_dims(launch), kernel) }
                        }};
                    }
                    if window.size[0] == 2 { run!(2) } else { run!(3) }
                }
                ForwardWay::Falling(falling) => {
                    launch_falling!(gpu, S, falling, window, sets, x, y, mean, var, 0.0)
                }
                ForwardWay::Quads(..) => Ok(()),
            }
        })
    }
}

impl<T: Real> Backward<'_, T> {
    pub(super) fn row_major(self, gpu: &Gpu, launch: RowMajorPlan<BackwardWay>) -> Result<()> {
        let plan = &self.plan;
        let (op, variances) = (plan.op, plan.variances() as u32);
        let RowMajorPlan { window, sets, way } = launch;
        let _why = super::because(
            plan,
            match way {
                BackwardWay::Quads(..) => QUADS,
                BackwardWay::Cells(..) | BackwardWay::Falling(..) => FALLING,
                BackwardWay::Pairs(..) | BackwardWay::Bands(..) | BackwardWay::InputCells(..) => BANDS,
            },
        );
        let Some(out) = self.dx else { return Ok(()) };
        let beta = out.beta as f32;
        for_half!(T as S, {
            if let BackwardWay::Quads(quads, blocks) = way {
                let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
                let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
                return for_size!(window, SIZE: usize, PADDING, {
                    type OfQuads<'a, S> = GaussianPoolBackwardQuads<'a, S, SIZE, PADDING>;
                    let kernel = OfQuads::<S> { dy, mean, var, dx, variances, window, quads };
                    // SAFETY: as the forward pass, of `dy` and `dx`; the blocks are the quads', of the window's inputs.
                    unsafe { gpu.launch(LaunchDims::new(blocks, QUADS_BLOCK), kernel) }
                });
            }
        });
        for_storage!(T as S, op, "dx", gpu, {
            let (dy, dx) = (self.dy.gpu::<S>(op, "dy")?, out.tensor.gpu_mut::<S>(op, "dx")?);
            let (mean, var) = (self.mean.gpu::<f32>(op, "mean")?, self.var.gpu::<f32>(op, "var")?);
            match way {
                BackwardWay::Pairs(bands, launch) => for_size!(window, SIZE: u32, PADDING, {
                    type Pairs<'a, S> = GaussianPoolBackwardPairs<'a, S, SIZE, PADDING>;
                    let kernel = Pairs::<S> { dy, mean, var, dx, beta, sets, window, bands };
                    // SAFETY: as above; the launch is the bands', of pairs of cells.
                    unsafe { gpu.launch(band_dims(launch), kernel) }
                }),
                BackwardWay::Bands(bands, launch) => for_size!(window, SIZE: u32, PADDING, {
                    type OfBands<'a, S> = GaussianPoolBackwardBands<'a, S, SIZE, PADDING>;
                    let kernel = OfBands::<S> { dy, mean, var, dx, beta, sets, window, bands };
                    // SAFETY: as above; the launch is the bands', of cells.
                    unsafe { gpu.launch(band_dims(launch), kernel) }
                }),
                BackwardWay::Cells(bands, launch) => {
                    macro_rules! run {
                        ($size:literal, $odd:literal) => {{
                            type Cells<'a, S> = GaussianPoolBackwardFalling<'a, S, $size, $odd>;
                            let kernel = Cells::<S> { dy, mean, var, dx, beta, sets, window, bands };
                            // SAFETY: as above; the launch is the bands', of the window's size and of columns padded so.
                            unsafe { gpu.launch(band_dims(launch), kernel) }
                        }};
                    }
                    match (window.size[0], window.padding[0] % 2) {
                        (5, 0) => run!(5, 0),
                        (5, _) => run!(5, 1),
                        (7, 0) => run!(7, 0),
                        (7, _) => run!(7, 1),
                        _ => run!(11, 1),
                    }
                }
                BackwardWay::InputCells(bands, series, launch) => {
                    macro_rules! run {
                        ($size:literal, $stride:literal, $phase:literal, $fours:literal) => {{
                            type Cells<'a, S> = GaussianPoolInputGradient<'a, S, $size, $stride, $phase, $fours>;
                            let kernel = Cells::<S> { dy, mean, var, dx, beta, sets, window, bands, series };
                            // SAFETY: as above; there is a block for each band.
                            unsafe { gpu.launch(band_dims(launch), kernel) }
                        }};
                    }
                    match (window.size[0], by_fours(&window)) {
                        (3, _) => run!(3, 3, 0, false),
                        (4, false) => run!(4, 4, 0, false),
                        (4, true) => run!(4, 4, 0, true),
                        (5, _) => run!(5, 2, 0, false),
                        _ => run!(7, 2, 1, false),
                    }
                }
                BackwardWay::Falling(falling) => {
                    launch_falling!(gpu, S, falling, window, sets, dy, dx, mean, var, beta)
                }
                BackwardWay::Quads(..) => Ok(()),
            }
        })
    }
}
