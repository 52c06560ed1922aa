//! Windows of 2×2 two apart with the channels last: two channels of two outputs beside each other a thread.
//!
//! As [row by row](super::rows) there is no shared memory and no barrier, threads beside each other have channels beside each other,
//! and the random numbers are made while the elements are on their way.

use cuda_std::prelude::*;

use super::elements::{Elements, InMemory};
use super::four::{Draws, Make};
use super::rows::windows;
use super::weights::Weighed;
use crate::window::{Divider, Nhwc, Window, for_each_of};

/// Threads of a block.
pub const TWOS_BLOCK: u32 = 128;
/// Such blocks that a multiprocessor has room for, at least: 64 registers a thread. Older GPUs' code spills with as many.
const BLOCKS: u32 = if cfg!(target_feature = "sm_90") { 8 } else { 6 };
/// Channels of a thread, and its outputs beside each other.
const TWO: u32 = 2;

/// How threads are laid over outputs: by channels, then by columns, then by rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twos {
    count: u32,
    channels: u32,
    columns: u32,
    by: [Divider; 3],
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Twos {}

impl Twos {
    /// Over the window's outputs, and the blocks of the launch. None where windows are not two apart, whole and without
    /// padding, channels are no multiple of two, a row has one output, or there are too many.
    pub fn new(window: &Window<Nhwc>) -> Option<(Self, u32)> {
        let [height, width] = window.output;
        let whole = |axis: usize| {
            let end = (u64::from(window.output[axis]) - 1) * 2 + u64::from(window.size[axis]);
            window.padding[axis] == 0 && end <= window.input[axis].into()
        };
        let fits =
            window.size == [2; 2] && window.stride == [2; 2] && window.dilation == [1; 2] && whole(0) && whole(1);
        if !fits || !window.channels.is_multiple_of(TWO) || width < TWO {
            return None;
        }
        let (channels, columns) = (window.channels / TWO, width.div_ceil(TWO));
        let lines = u64::from(window.planes) * u64::from(height);
        // Indices of outputs have 32 bits.
        lines.checked_mul(u64::from(width) * u64::from(window.channels)).filter(|&outputs| outputs <= 1 << 32)?;
        let count = lines.checked_mul(u64::from(channels) * u64::from(columns))?;
        let count = u32::try_from(count).ok().filter(|&count| count < 1 << 31)?;
        let by = [channels, columns, height].map(Divider::new);
        Some((Self { count, channels, columns, by }, count.div_ceil(TWOS_BLOCK)))
    }
}

/// As [`stochastic_pool_forward`](super::stochastic_pool_forward), for windows of 2×2 positions, two apart, with the channels
/// last.
///
/// # Safety
/// The module's, but for the tiling; the window is such; memory begins at multiples of 16 bytes; `twos` are the window's, with as many
/// blocks.
#[kernel(block = TWOS_BLOCK, min_blocks = BLOCKS, instances(T = [f32, f16, bf16]))]
pub unsafe fn stochastic_pool_forward_twos<T: Weighed>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nhwc>,
    twos: Twos,
) {
    let number = thread::block_idx_x() * TWOS_BLOCK + thread::thread_idx_x();
    if number >= twos.count {
        return;
    }
    let place = twos.by[0].divide(number);
    let line = twos.by[1].divide(place);
    let plane = twos.by[2].divide(line);
    let [height, width] = window.output;
    let (channel, own, row) =
        ((number - place * twos.channels) * TWO, (place - line * twos.columns) * TWO, line - plane * height);
    // Where a row has an odd number of outputs, the last but one is two threads', of which one stores.
    let column = if own + TWO > width { width - TWO } else { own };
    let pixel = (plane as usize * window.input[0] as usize + 2 * row as usize) * window.input[1] as usize;
    // SAFETY: windows are whole.
    let x_here = unsafe { x.offset((pixel + 2 * column as usize) * window.channels as usize + channel as usize) };
    let step = window.channels as usize;
    // SAFETY: as above; channels are an even number.
    let at = |i: usize, j: usize| unsafe { T::load_two(x_here.offset(i * window.input_line() + j * step)) };
    let row_of = |i: usize| [at(i, 0), at(i, 1), at(i, 2), at(i, 3)];
    let rows = [row_of(0), row_of(1)];
    // SAFETY: the caller's.
    let make = unsafe { Draws::new(indices, state) };
    let weights = rows.map(|row| row.map(T::of_two));
    let map = plane * window.channels + channel;
    let index = (map * height + row) * width + column;
    let next = index.wrapping_add(height * width);
    let all = windows::<2>(|which, i, j| weights[i][which / 2 * 2 + j][which % 2]);
    let given = make.of_weights::<2>([index, next, index.wrapping_add(1), next.wrapping_add(1)], &all);
    let output = ((plane as usize * height as usize + row as usize) * width as usize + column as usize) * step;
    let output = output + channel as usize;
    // SAFETY: the outputs exist, and begin at a multiple of two.
    unsafe {
        let [a, b, c, d] = given.values;
        T::store_two(y, (output + step) / 2, [c, d]);
        make.store_two(true, (output + step) / 2, &given, 2);
        if column == own {
            T::store_two(y, output / 2, [a, b]);
        }
        make.store_two(column == own, output / 2, &given, 0);
        for_each_of(given.again, |which| {
            let (right, lane) = (which / 2, which % 2);
            if column + right >= own {
                let x = x.offset(window.input_plane(plane));
                let source = InMemory { x, window, channel: channel + lane };
                let elements = Elements { window, source, row, column: column + right, by_rows: false };
                let index = index.wrapping_add(lane * height * width).wrapping_add(right);
                let (position, value) = make.of_elements(index, &elements);
                let at = output + right as usize * step + lane as usize;
                y.store(at, T::from_f32(value));
                make.store(at, position);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_whole_windows_two_apart() {
        let window = |size: u32, channels: u32, input: [u32; 2], output: [u32; 2]| Window::<Nhwc> {
            planes: 3,
            channels,
            input,
            output,
            size: [size; 2],
            stride: [2; 2],
            dilation: [1; 2],
            ..Window::default()
        };
        let fits = |window: Window<Nhwc>| Twos::new(&window).is_some();
        assert!(fits(window(2, 4, [8, 9], [4, 4])));
        assert!(fits(window(2, 2, [9, 7], [4, 3])));
        assert!(!fits(window(2, 3, [9, 7], [4, 3])));
        assert!(!fits(window(3, 2, [9, 7], [4, 3])));
        assert!(!fits(window(2, 2, [7, 7], [4, 3])));
        assert!(!fits(window(2, 2, [8, 2], [4, 1])));
        assert!(!fits(Window { padding: [1; 2], ..window(2, 2, [9, 16], [5, 9]) }));
        assert!(!fits(window(2, 1 << 10, [1 << 12, 1 << 12], [1 << 11, 1 << 11])));
    }
}
