use cuda_std::launch::{DeviceMemory, LaunchDims};
use kernels::prelu::{
    BLOCK, COLUMN_BLOCK, Columns, PART, PreluBackwardChannels, PreluBackwardColumns, PreluBackwardPlanes, PreluForward,
    PreluForwardVectors, Slopes, TILE, VECTORS, channels_of_block,
};
use kernels::window::Divider;

use super::{Backward, Forward, Layout};
use crate::device::{Gpu, OnGpu, explain, for_half, for_storage, tiles};
use crate::ops::sum_parts;
use crate::{DType, Element, Out, ParameterOf, Real, Result};

/// Below this a plane keeps too few threads of a block busy, and columns are taken instead.
const SMALL_PLANE: usize = 256;
/// From this on a plane's elements are enough for many blocks.
const LARGE_PLANE: usize = 64;

/// Elements of a channel that a warp takes in one launch with their sum, and that a block does.
const FEW_FOR_WARP: usize = 256;
const FEW_FOR_BLOCK: usize = 4096;
/// Channels of which blocks keep a GPU busy somewhat, and so much that each may take twice as many.
const SOME_CHANNELS: usize = 64;
const MANY_CHANNELS: usize = 128;
/// Elements of a plane that are too short a piece of memory.
const SHORT: usize = 16;

/// Elements that vectors are counted up to.
const MOST_VECTORS: usize = 1 << 33;
/// Threads that a GPU has room for, about: up to as many vectors each has one, so that all are on their way at once and no
/// multiprocessor is left without a block; of more a thread takes several, and what is worked out for a thread serves for them.
const ENOUGH: usize = 1 << 18;

/// Where a vector's slopes are, how many (0 where they are looked for one by one), and in words.
type Way = (Slopes, u32, &'static str);

/// How a forward pass goes by vectors; none of tensors that are empty, or too large to count.
fn by_vectors(layout: &Layout, n: usize) -> Option<Way> {
    let (channels, inner) = (layout.channels as u32, layout.inner as u64);
    if n == 0 || n >= MOST_VECTORS {
        return None;
    }
    if channels == 1 {
        return Some((Slopes::shared(), 1, "one slope for all"));
    }
    let whole = if inner == 1 {
        Slopes::of_pixels(channels).map(|slopes| (slopes, 4, "a multiple of 4 channels: 4 slopes for a vector"))
    } else {
        Slopes::of_planes(channels, inner)
            .map(|slopes| (slopes, 1, "planes of a multiple of 4: one slope for a vector"))
    };
    whole.or_else(|| {
        let slopes = Slopes::of_elements(channels, inner, n as u64)?;
        Some(match inner {
            1 => (slopes, 0, "no multiple of 4 channels: a vector's are looked for one by one"),
            2 => (slopes, 0, "planes of 2: a vector's channels are looked for one by one"),
            _ => (slopes, 2, "planes of no multiple of 4: 2 slopes for a vector"),
        })
    })
}

/// Runs a block with the slopes' type under a name: `f32`, or the elements' own.
macro_rules! for_slopes {
    ($generic:ty as $slopes:ident beside $storage:ty, $body:block) => {
        if <$generic as Element>::DTYPE == DType::F32 {
            type $slopes = f32;
            $body
        } else {
            type $slopes = $storage;
            $body
        }
    };
}

impl<T: Real, A: ParameterOf<T>> OnGpu for Forward<'_, T, A> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "prelu.forward";
        let n = self.y.len();
        let (channels, inner) = (self.layout.channels as u32, self.layout.inner as u64);
        let way = by_vectors(&self.layout, n);
        for_storage!(
            T as S,
            OP,
            "x",
            gpu,
            for_slopes!(A as P beside S, {
                let alpha = self.alpha.gpu::<P>(OP, "alpha")?;
                let x = self.x.map(|x| x.gpu::<S>(OP, "x")).transpose()?.map(|x| x as &dyn DeviceMemory<S>);
                let y = self.y.gpu_mut::<S>(OP, "y")?;
                let Some((slopes, count, why)) = way else {
                    let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
                    let _why = explain::because(|| "too many elements to count in 32 bits".into());
                    let forward = PreluForward::<S, P> { x, alpha, y, channels, inner, n: n as u64 };
                    // SAFETY: `x` and `y` are whole tensors of `n = outer * channels * inner` elements and `alpha` holds `channels`,
                    // checked by `prelu::forward`; the grid covers `n`, and is empty where a size is zero.
                    return unsafe { gpu.launch(dims, forward) };
                };
                // 16 bytes a thread where little is to be worked out for them: memory gives more to many threads of few bytes.
                let each = if n / 4 <= ENOUGH || (size_of::<S>() == 4 && count == 1) { 1 } else { VECTORS };
                let dims = LaunchDims::new(tiles(n, TILE * each), BLOCK);
                let _why = explain::because(|| format!("{why}, vectors a thread {each}"));
                let n = n as u64;
                macro_rules! launch {
                    ($slopes:literal) => {{
                        let forward = PreluForwardVectors::<S, P, $slopes> { x, alpha, y, slopes, each, n };
                        // SAFETY: as above; the slopes are the layout's, so many for a vector.
                        unsafe { gpu.launch(dims, forward) }
                    }};
                }
                match count {
                    1 => launch!(1),
                    2 => launch!(2),
                    4 => launch!(4),
                    _ => launch!(0),
                }
            })
        )
    }
}

/// Warps that take a channel by themselves, where channels have so few elements that one launch is better than two.
fn warps_of_channel(layout: &Layout) -> Option<u32> {
    let Layout { outer, channels, inner } = *layout;
    // Of short pieces of a plane memory gives more than is asked for; of large planes a few blocks take longer than many and a sum.
    let fits = channels > 1 && inner >= SHORT && outer > 0 && (inner < LARGE_PLANE || channels >= SOME_CHANNELS);
    let most = if channels >= MANY_CHANNELS { 2 * FEW_FOR_BLOCK } else { FEW_FOR_BLOCK };
    match outer * inner {
        _ if !fits => None,
        few if few <= FEW_FOR_WARP => Some(1),
        few if few <= most => Some(BLOCK / 32),
        _ => None,
    }
}

impl<T: Real, A: ParameterOf<T>> Backward<'_, T, A> {
    /// `dx` and `dalpha` in one launch.
    fn by_channels(self, gpu: &Gpu, warps: u32) -> Result<()> {
        const OP: &str = "prelu.backward";
        let layout = self.layout;
        let Some(Out { tensor, beta }) = self.dalpha else { return Ok(()) };
        let [outer, channels, inner] = [layout.outer, layout.channels, layout.inner].map(|size| size as u32);
        let by_inner = Divider::new(inner);
        for_storage!(
            T as S,
            OP,
            "x",
            gpu,
            for_slopes!(A as P beside S, {
                let (x, dy) = (self.x.gpu::<S>(OP, "x")?, self.dy.gpu::<S>(OP, "dy")?);
                let (alpha, dalpha) = (self.alpha.gpu::<P>(OP, "alpha")?, tensor.gpu_mut::<P>(OP, "dalpha")?);
                let (dx, dx_beta) = Out::gpu::<S>(self.dx, OP, "dx")?;
                let beta = beta as f32;
                let _why = explain::because(|| {
                    let by = if warps == 1 { "a warp" } else { "a block" };
                    format!("{} elements a channel: {by} each, gradient and sum in one launch", outer * inner)
                });
                let dims = LaunchDims::new(channels.div_ceil(channels_of_block(warps)), BLOCK);
                macro_rules! launch {
                    ($warps:literal) => {{
                        let backward = PreluBackwardChannels::<S, P, $warps> {
                            x,
                            alpha,
                            dy,
                            dx,
                            dx_beta,
                            dalpha,
                            beta,
                            outer,
                            channels,
                            inner,
                            by_inner,
                        };
                        // SAFETY: shapes were checked by `prelu::backward`; a channel has fewer than 2³¹ elements, and the grid has all channels.
                        unsafe { gpu.launch(dims, backward) }
                    }};
                }
                if warps == 1 { launch!(1) } else { launch!(8) }
            })
        )
    }
}

impl<T: Real, A: ParameterOf<T>> OnGpu for Backward<'_, T, A> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "prelu.backward";
        let layout = self.layout;
        if let Some(warps) = warps_of_channel(&layout)
            && self.dalpha.is_some()
        {
            return self.by_channels(gpu, warps);
        }
        // Stage 1 leaves its sums as [outer, channels, parts].
        let small = layout.inner < SMALL_PLANE && layout.channels > 1 && layout.outer > 0;
        let columns = u32::try_from(layout.channels * layout.inner).ok().filter(|&columns| small && columns < 1 << 31);
        let of_columns = columns.map(|columns| {
            let fits = |each| columns.is_multiple_of(each);
            let each = if fits(8) && T::DTYPE != DType::F32 {
                8
            } else if fits(4) {
                4
            } else {
                1
            };
            (Columns::new(layout.outer as u64, columns, layout.inner as u32, each), each)
        });
        let (outer, parts) = match of_columns {
            Some(((_, [chunks, ..]), _)) => (chunks as usize, layout.inner),
            None => (layout.outer, layout.inner.div_ceil(PART as usize)),
        };
        let count = outer * layout.channels * parts;
        let mut workspace = gpu.workspace(if self.dalpha.is_some() { count } else { 0 })?;
        let mut sums = workspace.as_slice_mut();
        let sums = self.dalpha.is_some().then_some(&mut sums as &mut dyn DeviceMemory<f32>);
        let (channels, inner) = (layout.channels as u32, layout.inner);
        let because_columns = |each: u32| {
            explain::because(|| {
                format!(
                    "planes of {inner}, less than {SMALL_PLANE}, would leave threads idle: by columns across planes, \
                     {each} a thread"
                )
            })
        };
        let launched: Result<()> = 'launched: {
            if let Some(((columns, grid), 8)) = of_columns {
                for_half!(T as S, {
                    for_slopes!(A as P beside S, {
                        let (x, dy) = (self.x.gpu::<S>(OP, "x")?, self.dy.gpu::<S>(OP, "dy")?);
                        let alpha = self.alpha.gpu::<P>(OP, "alpha")?;
                        let (dx, dx_beta) = Out::gpu::<S>(self.dx, OP, "dx")?;
                        let _why = because_columns(8);
                        let outer = layout.outer as u64;
                        let stage = PreluBackwardColumns::<S, P, 8> { x, alpha, dy, dx, dx_beta, sums, outer, columns };
                        // SAFETY: as below.
                        break 'launched unsafe { gpu.launch(LaunchDims::new(grid, COLUMN_BLOCK), stage) };
                    })
                });
            }
            for_storage!(
                T as S,
                OP,
                "x",
                gpu,
                for_slopes!(A as P beside S, {
                    let (x, dy) = (self.x.gpu::<S>(OP, "x")?, self.dy.gpu::<S>(OP, "dy")?);
                    let alpha = self.alpha.gpu::<P>(OP, "alpha")?;
                    let (dx, dx_beta) = Out::gpu::<S>(self.dx, OP, "dx")?;
                    if let Some(((columns, grid), each)) = of_columns {
                        let _why = because_columns(each);
                        let (dims, outer) = (LaunchDims::new(grid, COLUMN_BLOCK), layout.outer as u64);
                        if each == 4 {
                            let stage = PreluBackwardColumns::<S, P, 4> { x, alpha, dy, dx, dx_beta, sums, outer, columns };
                            // SAFETY: shapes were checked by `prelu::backward`; the columns are the layout's, a multiple of what a
                            // thread takes, with their grid; `sums` holds one element for each column of each block's rows.
                            unsafe { gpu.launch(dims, stage) }
                        } else {
                            let stage = PreluBackwardColumns::<S, P, 1> { x, alpha, dy, dx, dx_beta, sums, outer, columns };
                            // SAFETY: as above.
                            unsafe { gpu.launch(dims, stage) }
                        }
                    } else {
                        let dims = LaunchDims::new(count as u32, BLOCK);
                        let (parts, vector) = (parts as u32, u32::from(inner % 4 == 0));
                        let _why = explain::because(|| {
                            let loads = if vector == 1 {
                                "a multiple of 4: 4 at a time"
                            } else {
                                "no multiple of 4: one at a time"
                            };
                            format!("planes of {inner}, {loads}, parts of {PART}")
                        });
                        let (inner, by_channels, by_parts) =
                            (inner as u64, Divider::new(channels), Divider::new(parts.max(1)));
                        let stage = PreluBackwardPlanes::<S, P> {
                            x,
                            alpha,
                            dy,
                            dx,
                            dx_beta,
                            sums,
                            channels,
                            by_channels,
                            inner,
                            parts,
                            by_parts,
                            vector,
                        };
                        // SAFETY: shapes were checked by `prelu::backward`; the grid has one block for each part of each plane, fewer
                        // than 2³¹, and `sums` one element for each block; a plane of a multiple of 4 elements begins at one of 4 elements.
                        unsafe { gpu.launch(dims, stage) }
                    }
                })
            )
        };
        launched?;

        sum_parts(OP, gpu, workspace.as_slice(), [outer, layout.channels, parts], self.dalpha)
    }
}
