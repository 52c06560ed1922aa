//! Small windows two apart with the channels last: four or eight channels of an output at once.

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;

use super::elements::{Elements, InMemory};
use super::four::{Draws, Make, Means};
use super::rows::windows;
use super::weights::of_pair;
use crate::patch::octets::{self, LANES, Octet, PAIRS, Place};
use crate::patch::{self, Patches};
use crate::window::{Nhwc, THREADS, Window, for_each_of};

/// Threads of a block, at most.
const BLOCK: u32 = THREADS / 2;
/// Such blocks that a multiprocessor has room for, at least: 128 registers a thread, which keeps the elements of four
/// windows or eight.
const BLOCKS: u32 = 4;
/// The same for means of eight, which spill with as many.
const MEAN_BLOCKS: u32 = 3;

/// As [`stochastic_pool_forward`](super::stochastic_pool_forward), by [patches](crate::patch), for windows of a known
/// geometry with the channels last.
///
/// # Safety
/// The module's, but for the tiling; the window is such, and outputs are no more than 2³²; memory begins at multiples
/// of 16 bytes, and `patches` are of the window's outputs, with the launch's grid and block.
#[kernel(
    max_threads = BLOCK,
    min_blocks = BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn stochastic_pool_forward_patch<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's.
    unsafe { of_four::<T, SIZE, PADDING>(x, y, &window, &patches, Draws::new(indices, state)) };
}

/// As [`stochastic_pool_inference`](super::stochastic_pool_inference), as [`stochastic_pool_forward_patch`].
///
/// # Safety
/// As [`stochastic_pool_forward_patch`]'s.
#[kernel(
    max_threads = BLOCK,
    min_blocks = BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn stochastic_pool_inference_patch<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's.
    unsafe { of_four::<T, SIZE, PADDING>(x, y, &window, &patches, Means) };
}

/// As [`stochastic_pool_forward_patch`], by [octets](crate::patch::octets).
///
/// # Safety
/// As [`stochastic_pool_forward_patch`]'s, and `patches` are of octets.
#[kernel(
    max_threads = BLOCK,
    min_blocks = BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn stochastic_pool_forward_octets<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's.
    unsafe { of_eight::<T, SIZE, PADDING>(x, y, &window, &patches, Draws::new(indices, state)) };
}

/// As [`stochastic_pool_inference`](super::stochastic_pool_inference), as [`stochastic_pool_forward_octets`].
///
/// # Safety
/// As [`stochastic_pool_forward_octets`]'s.
#[kernel(
    max_threads = BLOCK,
    min_blocks = MEAN_BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn stochastic_pool_inference_octets<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's.
    unsafe { of_eight::<T, SIZE, PADDING>(x, y, &window, &patches, Means) };
}

/// The output's place, and the row-major index of its first channel; those of the next are a plane of outputs apart.
#[device_inline]
fn index_of(window: &Window<Nhwc>, place: Place) -> [u32; 2] {
    let [height, width] = window.output;
    let map = place.plane * window.channels + place.channel;
    [map * height * width + place.row * width + place.column, height * width]
}

/// The indices of four channels.
#[device_inline]
fn indices_of(first: u32, step: u32) -> [u32; 4] {
    [0, 1, 2, 3].map(|lane: u32| first.wrapping_add(lane.wrapping_mul(step)))
}

/// # Safety
/// As [`stochastic_pool_forward_patch`]'s.
#[device_inline]
unsafe fn of_four<T: Storage, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: &Window<Nhwc>,
    patches: &Patches,
    make: impl Make,
) {
    let Some(plane) = patches.plane() else { return };
    let finish = |output: usize, row: u32, column: u32, rows: [[[f32; SIZE]; 4]; SIZE]| {
        let pixel = window.output_plane(plane) + row as usize * window.output_line();
        let channel = (output - pixel) as u32 - column * window.channels;
        let place = Place { plane, row, column, channel };
        let [first, step] = index_of(window, place);
        let given = make.of_weights::<SIZE>(indices_of(first, step), &windows(|lane, i, j| rows[i][lane][j]));
        // SAFETY: the output exists, and its channels begin at a multiple of four.
        unsafe {
            y.store4(output, Vec4::from(given.values.map(T::from_f32)));
            make.store_four(output / 4, &given);
            for_each_of(given.again, |lane| look_again(x, y, window, make, place, first, step, output, lane));
        }
    };
    let weights = |row: [f32; SIZE]| row.map(|x| float::maximum(x, 0.0));
    // SAFETY: the caller's. A zero has no weight.
    unsafe { patch::slide::<T, [f32; SIZE], SIZE, PADDING>(x, window, patches, 0.0, weights, finish) };
}

/// # Safety
/// As [`stochastic_pool_forward_octets`]'s.
#[device_inline]
unsafe fn of_eight<T: Paired, const SIZE: usize, const PADDING: u32>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: &Window<Nhwc>,
    patches: &Patches,
    make: impl Make,
) {
    let finish = |_: &(), octet: usize, place: Place, inputs: [[Octet; SIZE]; SIZE]| {
        let [first, step] = index_of(window, place);
        let four = |pair: usize| windows::<SIZE>(|lane, i, j| of_pair::<T>(inputs[i][j][pair + lane / 2])[lane % 2]);
        let given = [
            make.of_weights::<SIZE>(indices_of(first, step), &four(0)),
            make.of_weights::<SIZE>(indices_of(first.wrapping_add(4 * step), step), &four(2)),
        ];
        let [[a, b, c, d], [e, f, g, h]] = given.map(|given| given.values);
        let values = [[a, b], [c, d], [e, f], [g, h]].map(T::join);
        // SAFETY: the output exists, and its channels begin at a multiple of eight.
        unsafe {
            y.cast().store4(octet * PAIRS, Vec4::from(values));
            make.store_eight(octet, [&given[0], &given[1]]);
            let [[a, b, c, d], [e, f, g, h]] = given.map(|given| given.again);
            for_each_of([a, b, c, d, e, f, g, h], |lane| {
                look_again(x, y, window, make, place, first, step, octet * LANES as usize, lane)
            });
        }
    };
    // SAFETY: the caller's. A zero has no weight.
    unsafe { octets::each::<_, SIZE, PADDING>(x.cast(), window, patches, 0, || (), finish) };
}

/// Goes over a channel's window by its elements.
///
/// # Safety
/// As the kernels'; the channel is `lane` past the place's, whose index is `first` and whose output is `output`.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "what a kernel has, and where it is")]
unsafe fn look_again<T: Storage>(
    x: Global<T>,
    y: GlobalMut<T>,
    window: &Window<Nhwc>,
    make: impl Make,
    place: Place,
    first: u32,
    step: u32,
    output: usize,
    lane: u32,
) {
    // SAFETY: the caller's.
    unsafe {
        let x = x.offset(window.input_plane(place.plane));
        let source = InMemory { x, window: *window, channel: place.channel + lane };
        let elements = Elements { window: *window, source, row: place.row, column: place.column, by_rows: false };
        let (position, value) = make.of_elements(first.wrapping_add(lane.wrapping_mul(step)), &elements);
        y.store(output + lane as usize, T::from_f32(value));
        make.store(output + lane as usize, position);
    }
}
