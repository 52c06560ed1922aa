//! Passes of 16 bits, 16 bytes at once.

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;

use super::Divisor;
use super::backward::Quotients;
use super::forward::sum_of;
use crate::patch::Patches;
use crate::patch::octets::{self, Octet, PAIRS, Place, octet};
use crate::patch::quads::{self, Four, Giving, Quads};
use crate::window::{FEWER_BLOCKS, Nchw, Nhwc, Order, THREADS, Window};

/// What the sum of an output's window, of up to three positions each way, is multiplied with, `of_all` where all have the same:
/// no thread divides.
#[device_inline]
fn reciprocal<L: Order>(divisor: &Divisor, window: &Window<L>, of_all: f32, row: u32, column: u32) -> f32 {
    let along = |axis: usize, output: u32| {
        let counted = divisor.counted(window, axis, output);
        let of_few = if counted == 2.0 { 1.0 / 2.0 } else { 1.0 / 3.0 };
        if counted == 1.0 { 1.0 } else { of_few }
    };
    if divisor.given == 0.0 { along(0, row) * along(1, column) } else { of_all }
}

/// As [`avg_pool_forward_patch`](super::avg_pool_forward_patch), by [octets](crate::patch::octets). Sums are multiplied with their
/// divisor's reciprocal.
///
/// # Safety
/// As [`avg_pool_forward_patch`](super::avg_pool_forward_patch)'s, and `patches` are of octets.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_forward_octets<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: Divisor,
    patches: Patches,
) {
    let of_all = 1.0 / divisor.given;
    let finish = |&(): &(), output: usize, place: Place, inputs: [[Octet; SIZE]; SIZE]| {
        let reciprocal = reciprocal(&divisor, &window, of_all, place.row, place.column);
        let means = octet(|pair| {
            let pairs = inputs.map(|row| row.map(|octet| T::split(octet[pair])));
            T::join([0, 1].map(|which| sum_of(pairs.map(|row| sum_of(row.map(|pair| pair[which])))) * reciprocal))
        });
        // SAFETY: the output exists, and its channels begin at a multiple of eight.
        unsafe { y.cast().store4(output * PAIRS, Vec4::from(means)) };
    };
    // SAFETY: the caller's.
    unsafe { octets::each::<_, SIZE, PADDING>(x.cast(), &window, &patches, 0, || (), finish) };
}

/// As [`avg_pool_forward_octets`], of row-major images by [fours](crate::patch::quads) of a row.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes; `quads` are the window's, with
/// as many blocks.
#[kernel(
    block = quads::BLOCK,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_forward_quads<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    quads: Quads,
) {
    let of_all = 1.0 / divisor.given;
    let finish = |&(): &(), four: Four, rows: [[[f32; 2]; 2]; SIZE]| {
        let mean = |which: usize| {
            let reciprocal =
                |lane: u32| reciprocal(&divisor, &window, of_all, four.row, four.column + 2 * which as u32 + lane);
            let sum = |lane: usize| sum_of(rows.map(|row| row[which][lane]));
            T::join([sum(0) * reciprocal(0), sum(1) * reciprocal(1)])
        };
        // SAFETY: the outputs exist, and begin at a multiple of four.
        unsafe { y.cast().store2(quads.number(window.output[0], &four) * 2, Vec2::new(mean(0), mean(1))) };
    };
    let of_row = |&(): &(), eight: [u32; 4], beside: u32| {
        quads::columns::<SIZE, PADDING>(eight, beside).map(|pairs| {
            let pairs = pairs.map(T::split);
            [sum_of(pairs.map(|pair| pair[0])), sum_of(pairs.map(|pair| pair[1]))]
        })
    };
    // SAFETY: the caller's.
    unsafe { quads::each::<_, _, SIZE, PADDING>(x.cast(), &window, quads.here(), 0, || (), of_row, finish) };
}

/// What an output gives to each of eight channels, and the position of who gets it; none where it gives nothing.
type Given = Option<([f32; 8], u32)>;

/// As [`avg_pool_backward_patch`](super::avg_pool_backward_patch), by [octets](crate::patch::octets), into `dx` as it was not:
/// without `beta`.
///
/// # Safety
/// As [`avg_pool_backward_patch`](super::avg_pool_backward_patch)'s, and `patches` are of octets.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn avg_pool_backward_octets<T: Paired, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    window: Window<Nhwc>,
    divisor: Divisor,
    patches: Patches,
) {
    let quotients = Quotients::new(&window, divisor);
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        let dy = dy.cast::<u32>();
        let none = Vec4::splat(0);
        let load = |inside, octet: usize| dy.load4_if(inside, octet.wrapping_mul(PAIRS), none);
        let shares = |dy: Vec4<u32>, row, column| {
            let [a, b, c, d] = dy.to_array().map(T::split);
            quotients.of(&window, [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]], row, column)
        };
        let sum_of = |&(): &(), outputs: [[Given; 2]; 2]| {
            octet(|pair| {
                let mut sum = [0.0; 2];
                unrolled!(I in [0 1] { unrolled!(J in [0 1] {
                    if let Some((share, _)) = outputs[I][J] {
                        sum = [sum[0] + share[2 * pair], sum[1] + share[2 * pair + 1]];
                    }
                }); });
                T::join(sum)
            })
        };
        octets::gather::<_, _, _, SIZE, PADDING>(dx.cast(), &window, &patches, none, load, || (), shares, sum_of);
    }
}

/// As [`avg_pool_backward_octets`], of row-major images and windows of 3×3 positions padded by 1, by [fours](crate::patch::quads) of
/// outputs.
///
/// # Safety
/// The module's, but for the tiling; memory begins at multiples of 16 bytes; `quads` are of the window's
/// [inputs](Quads::of_inputs), with as many blocks.
#[kernel(block = quads::BLOCK, min_blocks = FEWER_BLOCKS, instances(T = [f16, bf16]))]
pub unsafe fn avg_pool_backward_quads<T: Paired>(
    dy: Global<T>,
    dx: GlobalMut<T>,
    window: Window<Nchw>,
    divisor: Divisor,
    quads: Quads,
) {
    let of_all = 1.0 / divisor.given;
    let load = |inside: bool, beside: bool, from: Giving| {
        // SAFETY: the caller's; `gather` says which are there.
        let (Vec2 { x, y }, z) = unsafe {
            let beside = dy.cast::<u16>().load_if(beside, from.output + 4, 0);
            (dy.cast::<u32>().load2_if(inside, from.output / 2, Vec2::splat(0)), beside.into())
        };
        let ([a, b], [c, d], [e, _]) = (T::split(x), T::split(y), T::split(z));
        // Nothing, of outputs that do not exist.
        let share = |dy: f32, on: u32| dy * reciprocal(&divisor, &window, of_all, from.row, from.column + on);
        [share(a, 0), share(b, 1), share(c, 2), share(d, 3), share(e, 4)]
    };
    let give = |&(): &(), [above, below]: [[f32; 5]; 2]| {
        let mut inputs = [[0; 4]; 2];
        unrolled!(K in [0 1 2 3] {
            // Even rows and columns of inputs have one window over them, odd ones two.
            let beside = above[K] + above[K + 1];
            inputs[0][K] = T::join([above[K], beside]);
            inputs[1][K] = T::join([above[K] + below[K], beside + below[K] + below[K + 1]]);
        });
        inputs
    };
    // SAFETY: the caller's.
    unsafe { quads::gather::<_, _, 1, 1>(dx.cast(), &window, &quads, load, || (), give) };
}
