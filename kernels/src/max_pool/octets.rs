//! Forward of 16 bits, two windows at once.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;

use super::{any_window, store};
use crate::patch::Patches;
use crate::patch::octets::{self, LANES, Octet, PAIRS, Place, octet};
use crate::patch::quads::{self, EACH, Four, Quads};
use crate::window::{FEWER_BLOCKS, FEWEST_BLOCKS, Nchw, Nhwc, THREADS, Window};

/// Blocks that a multiprocessor has room for, at least: with as many as Hopper takes, older GPUs' code spills.
const BLOCKS: u32 = if cfg!(target_feature = "sm_90") { FEWER_BLOCKS } else { FEWEST_BLOCKS };

/// As [`max_pool_forward_patch`](super::max_pool_forward_patch), by [octets](crate::patch::octets).
///
/// Comparisons see numbers only; a sum of all tells of a NaN, which is looked for again.
///
/// # Safety
/// As [`max_pool_forward_patch`](super::max_pool_forward_patch)'s, and `patches` are of octets.
#[kernel(
    max_threads = THREADS,
    min_blocks = BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn max_pool_forward_octets<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    let finish = |&(): &(), output: usize, place: Place, inputs: [[Octet; SIZE]; SIZE]| {
        // What is outside is minus infinity, and wins over nothing: of equals the first that is inside does.
        let first =
            |axis: usize, output: u32| PADDING.saturating_sub(output * 2) * if axis == 0 { SIZE as u32 } else { 1 };
        let first = both(first(0, place.row) + first(1, place.column));
        let found = octet(|pair| of_window::<T, SIZE>(inputs.map(|row| row.map(|octet| octet[pair])), first));
        // The lower byte of each half.
        let lower = integer::bytes::<0x6420>;
        let positions = octet(|pair| found[pair].1);
        // SAFETY: the output exists, and its channels begin at a multiple of eight.
        unsafe {
            y.cast().store4(output * PAIRS, Vec4::from(octet(|pair| found[pair].0)));
            if let Some(indices) = indices {
                indices.cast().store2(
                    output * 2,
                    Vec2::new(lower(positions[0], positions[1]), lower(positions[2], positions[3])),
                );
            }
            let [a, b, c, d] = octet(|pair| found[pair].2);
            let [first, second] = T::split(T::sum(T::sum(a, b), T::sum(c, d)));
            for_each_if((first + second).is_nan(), LANES, |lane| {
                let channel = window.input_plane(place.plane) + (place.channel + lane) as usize;
                let maximum = any_window(window, x.offset(channel), place.row, place.column);
                store(y, indices, output * LANES as usize + lane as usize, maximum);
            });
        }
    };
    let outside = T::join([f32::NEG_INFINITY; 2]);
    // SAFETY: the caller's.
    unsafe { octets::each::<_, SIZE, PADDING>(x.cast(), &window, &patches, outside, || (), finish) };
}

/// As [`max_pool_forward_octets`], of row-major images by [fours](crate::patch::quads) of a row.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes; `quads` are the window's, with
/// as many blocks.
#[kernel(
    block = quads::BLOCK,
    min_blocks = BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn max_pool_forward_quads<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    quads: Quads,
) {
    let finish = |&(): &(), four: Four, inputs: [[[u32; SIZE]; 2]; SIZE]| {
        let (number, Four { plane, row, column }) = (quads.number(window.output[0], &four), four);
        let down = if row * 2 < PADDING { SIZE as u32 } else { 0 };
        let right = if column * 2 < PADDING { 1 } else { 0 };
        let of = |which: usize, first: u32| of_window::<T, SIZE>(inputs.map(|row| row[which]), first);
        // Only the first window of a row may begin beside the image.
        let found = [of(0, both(down) + right), of(1, both(down))];
        // SAFETY: the outputs exist, and begin at a multiple of four.
        unsafe {
            y.cast().store2(number * 2, Vec2::new(found[0].0, found[1].0));
            if let Some(indices) = indices {
                indices.cast().store(number, integer::bytes::<0x6420>(found[0].1, found[1].1));
            }
            let [first, second] = T::split(T::sum(found[0].2, found[1].2));
            for_each_if((first + second).is_nan(), EACH, |which| {
                let maximum = any_window(window, x.offset(window.input_plane(plane)), row, column + which);
                store(y, indices, number * EACH as usize + which as usize, maximum);
            });
        }
    };
    let outside = T::join([f32::NEG_INFINITY; 2]);
    // SAFETY: the caller's.
    unsafe {
        let of_row = |&(): &(), eight, beside| quads::columns::<SIZE, PADDING>(eight, beside);
        quads::each::<_, _, SIZE, PADDING>(x.cast(), &window, quads.here(), outside, || (), of_row, finish);
    }
}

/// Calls `f` with each number below `count` if this is so: for what is seldom so, by one piece of code for all.
#[device_inline]
fn for_each_if(is: bool, count: u32, f: impl Fn(u32)) {
    let mut left = if is { (1u32 << count) - 1 } else { 0 };
    while left != 0 {
        f(left.trailing_zeros());
        left &= left - 1;
    }
}

/// A pair of this.
#[device_inline]
fn both(half: u32) -> u32 {
    half * 0x1_0001
}

/// Of a pair of windows' elements the first of the greatest and their positions, `first` for the first element, and the sums.
#[device_inline]
fn of_window<T: Paired, const SIZE: usize>(inputs: [[u32; SIZE]; SIZE], first: u32) -> (u32, u32, u32) {
    let (mut greatest, mut position, mut sum) = (inputs[0][0], first, inputs[0][0]);
    unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
        if I < SIZE && J < SIZE && (I, J) != (0, 0) {
            let here = inputs[I][J];
            let wins = T::where_greater(here, greatest);
            greatest = here & wins | greatest & !wins;
            position = both((I * SIZE + J) as u32) & wins | position & !wins;
            sum = T::sum(sum, here);
        }
    }); });
    (greatest, position, sum)
}
