//! Forward of row-major images, of windows of any size whose weights are the same everywhere, where windows are far apart: the sums along
//! y of all columns of a row of windows, and of these the sums along x.
//!
//! `y = sum over columns of weight_x * (sum down the column of weight_y * x)`
//!
//! Launch: blocks of [`ALONG_Y_BLOCK`] threads in one dimension, as many as fit, that take *lines*, rows of windows of a plane, turn after
//! turn; weights that all channels share are computed once, those of channels of their own for each turn's planes. A thread sums packs of
//! one or four columns of a line along y, with `AHEAD` rows of each under way, for `MAPS` Gaussians at once, into shared memory;
//! neighbouring threads have neighbouring packs. After a barrier a thread sums one window's columns. A word is left out after every 32, so
//! that windows a power of two apart are in different banks.
//!
//! Of rows that are no whole packs [bands](super::bands_along_y) take most.
//!
//! A row is read once for each window above it: of windows that overlap by more than half of their height other kernels read less.
//!
//! Bound by memory where rows are whole packs; in 16 bits, and where packs are of one column, by instructions (suspected, by their count).

use cuda_std::prelude::*;

use super::Geometry;

use super::weights::along_axes_of;
use crate::band::any::steps_inside;
use crate::packs::{add, load};
use crate::vectors::{LANES, Lanes};
use crate::window::{Divider, Nhwc, Order, Window};

/// Threads of a block.
pub const ALONG_Y_BLOCK: u32 = 256;
/// Rows of a pack that are loaded before the first of them is used.
const AHEAD: usize = 4;
/// Packs that a thread has at once, at most.
const PACKS: usize = 4;
/// Columns of a pack where rows are whole packs; else it is one.
pub const PACK: u32 = 4;
/// Packs of a turn, about: what its barriers take is little beside them.
const OF_TURN: u32 = 4 * ALONG_Y_BLOCK;
/// Words of the weights of a turn's planes that have their own, about, likewise.
const WEIGHTS: u32 = 1 << 12;
/// Columns of a turn for each Gaussian together, about: what leaves shared memory for other blocks.
const COLUMNS_OF_TURN: u32 = 2 * PACK * OF_TURN;

/// How blocks take lines apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Lines of all planes, and of a turn, and turns.
    total: u32,
    each: u32,
    turns: u32,
    /// Packs of a line.
    packs: u32,
    by_packs: Divider,
    /// By the lines of a plane, and by the windows of a line.
    by_rows: Divider,
    by_windows: Divider,
    /// Words from a line's sums to the next line's.
    of_line: u32,
    /// By the Gaussians of all channels, where each has its own.
    by_gaussians: Divider,
    /// Words of shared memory for weights.
    weights: u32,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Lines {}

/// A launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the kernel takes.
    pub lines: Lines,
    /// Whether rows are whole packs.
    pub by_packs: bool,
    /// Whether channels have Gaussians of their own.
    pub own: bool,
    /// Gaussians at once.
    pub maps: u32,
    /// Blocks.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u64,
}

impl Lines {
    /// Over planes of one channel, none of whose sizes is zero, of elements of so many bytes, with as many sets of as many Gaussians; `None` where
    /// there are too many to count. `at_once` says how many blocks work at a time, of so many on a multiprocessor.
    pub fn plan(
        window: &Window<Nhwc>,
        bytes: usize,
        [sets, gaussians]: [u32; 2],
        at_once: impl FnOnce(u32) -> u32,
    ) -> Option<Plan> {
        let [rows, windows] = window.output;
        // No block has room for longer rows.
        Some(window.input[1]).filter(|&columns| columns < 1 << 24)?;
        let count = |each: u32, times: u32| each.checked_mul(times).filter(|&total| total < 1 << 30);
        let total = count(window.planes, rows)?;
        count(window.planes, gaussians)?;
        let own = sets > 1;
        let by_packs = window.input[1].is_multiple_of(PACK);
        let packs = if by_packs { window.input[1] / PACK } else { window.input[1] };
        let maps = (1..=3).rev().find(|&maps| !own && gaussians.is_multiple_of(maps)).unwrap_or(1);
        let pack_bytes = if by_packs { PACK as usize * bytes } else { bytes };
        let at_once = at_once(blocks(pack_bytes, maps as usize));
        let of_set = u64::from(gaussians) * u64::from(words_of(window)?);
        // A turn's first and last planes may be there in part.
        let planes = (u64::from(WEIGHTS) / of_set).max(2) as u32;
        let fitting = if own { (planes - 2).saturating_mul(rows).saturating_add(1) } else { u32::MAX };
        // No more than leave each block some.
        let each = (OF_TURN / packs)
            .min(COLUMNS_OF_TURN / (maps * window.input[1]))
            .min(total.div_ceil(at_once.max(1)))
            .min(fitting)
            .max(1);
        // What the planes of a turn hold is counted in 32 bits.
        let planes_of_turn = u64::from((each - 1) / rows + 2);
        u32::try_from(planes_of_turn * u64::from(window.input[0]) * u64::from(packs)).ok()?;
        let of_line = padded(window.input[1]) | 1;
        let weights = of_set * if own { planes_of_turn } else { 1 };
        let sums = u64::from(maps) * u64::from(each) * u64::from(of_line);
        let [by_packs_of_line, by_rows, by_windows, by_gaussians] =
            [packs, rows, windows, count(sets, gaussians)?].map(Divider::new);
        let turns = total.div_ceil(each);
        let lines = Self {
            total,
            each,
            turns,
            packs,
            by_packs: by_packs_of_line,
            by_rows,
            by_windows,
            of_line,
            by_gaussians,
            weights: u32::try_from(weights).ok()?,
        };
        let shared_bytes = (weights + sums) * 4;
        Some(Plan { lines, by_packs, own, maps, blocks: turns.min(at_once), shared_bytes })
    }

    /// The plane and the row of a line.
    #[device_inline]
    fn place(&self, line: u32, rows: u32) -> [u32; 2] {
        let plane = self.by_rows.divide(line);
        [plane, line - plane * rows]
    }

    /// The first and the last plane of a turn.
    #[device_inline]
    fn planes(&self, turn: u32, rows: u32) -> [u32; 2] {
        let first = turn * self.each;
        let end = (first + self.each).min(self.total);
        [self.place(first, rows)[0], self.place(end - 1, rows)[0]]
    }
}

/// Packs of so many bytes that a thread has at once, fewer where each has weights of its own.
#[device_inline]
const fn at_once(bytes: usize, own: bool) -> usize {
    match (bytes, own) {
        (16, _) => 1,
        (8, _) | (_, true) => 2,
        _ => PACKS,
    }
}

/// Blocks that fit on a multiprocessor, as many as leave each thread the registers for its sums.
const fn blocks(bytes: usize, maps: usize) -> u32 {
    match (bytes, maps) {
        (16, 1) => 5,
        (16, _) | (8, 1 | 2) | (_, 1) => 4,
        _ => 3,
    }
}

/// Columns of a pack.
#[device_inline]
const fn columns<T>(bytes: usize) -> usize {
    bytes / size_of::<T>()
}

/// Words to a Gaussian's weights along x, after those along y, and to the next Gaussian's: fours of them begin at multiples of four.
#[device_inline]
pub(super) const fn words([height, width]: [u32; 2]) -> [u32; 2] {
    let along_x = height.next_multiple_of(4);
    [along_x, along_x + width.next_multiple_of(4)]
}

/// The latter, if there are not too many to count.
pub(super) fn words_of<L: Order>(window: &Window<L>) -> Option<u32> {
    let fits = window.size.iter().all(|&size| size < 1 << 30);
    fits.then(|| words(window.size)[1])
}

/// Where a column's sum is, from a line's first on.
#[device_inline]
pub(super) const fn padded(column: u32) -> u32 {
    column + column / 32
}

/// `y[n, c*K + k]` = `x[n, c]` pooled by Gaussian `k` of `K`, which `geometry.kernels` is, of those that all channels share or, with `OWN`, of the
/// channel's.
///
/// On an H200, 9×9 five apart on 64×64×112×112 0.73 of the copy rate in f32 and 0.49 in bf16 (docs/perf).
///
/// # Safety
/// The parent module's. `x` and `y` are what `window` says, of planes of one channel, `y` as many for each Gaussian; `mean` holds two and `var`
/// `variances` elements for each, of which `MAPS` divides the number; `lines` are of the window, as shared memory is, and rows are whole packs of `BYTES` bytes.
#[kernel(
    block = ALONG_Y_BLOCK,
    min_blocks = blocks(BYTES, MAPS),
    instances(
        (T, BYTES) = [(f32, 4), (f16, 2), (bf16, 2), (f32, 16), (f16, 8), (bf16, 8)],
        (MAPS, OWN) = [(1, false), (2, false), (3, false), (1, true)]
    )
)]
pub unsafe fn gaussian_pool_forward_along_y<T: Lanes, const BYTES: usize, const MAPS: usize, const OWN: bool>(
    x: Global<T>,
    mean: Global<f32>,
    var: Global<f32>,
    y: GlobalMut<T>,
    variances: u32,
    geometry: Geometry,
    window: Window<Nhwc>,
    lines: Lines,
) {
    let weights = dynamic_shared::<f32>();
    let (of, gaussians) = (words(window.size), geometry.kernels);
    let of_gaussian = of[1];
    // SAFETY: the caller's; all threads come together.
    unsafe {
        if !OWN {
            along_axes_of(weights, [mean, var], &geometry, variances, (gaussians, |map| map), of, false);
            thread::sync_threads();
        }
        let sums = weights.offset(lines.weights);
        let mut turn = thread::block_idx_x();
        while turn < lines.turns {
            if OWN {
                let [first, last] = lines.planes(turn, window.output[0]);
                let gaussian = |number: u32| {
                    let number = first * gaussians + number;
                    number - lines.by_gaussians.divide(number) * (geometry.sets * gaussians)
                };
                let count = (last - first + 1) * gaussians;
                along_axes_of(weights, [mean, var], &geometry, variances, (count, gaussian), of, false);
                thread::sync_threads();
            }
            let mut map = 0;
            while map < gaussians {
                let weights = weights.offset(map * of_gaussian);
                let of_plane = if OWN { gaussians * of_gaussian } else { 0 };
                down::<T, BYTES, MAPS, OWN>(x, &window, &lines, turn, (weights, of_plane), sums);
                thread::sync_threads();
                across::<T, MAPS>(y, &window, &lines, turn, (weights, of_plane), sums, [map, gaussians]);
                thread::sync_threads();
                map += MAPS as u32;
            }
            turn += thread::grid_dim_x();
        }
    }
}

/// The sums along y of all columns of a turn's lines, for each of `MAPS` Gaussians, whose weights begin there, those of the plane after the first
/// so many words further.
///
/// # Safety
/// The kernel's.
#[device_inline]
unsafe fn down<T: Lanes, const BYTES: usize, const MAPS: usize, const OWN: bool>(
    x: Global<T>,
    window: &Window<Nhwc>,
    lines: &Lines,
    turn: u32,
    (weights, of_plane): (Shared<f32>, u32),
    to: Shared<f32>,
) {
    let [height, width] = [window.input[0], lines.packs];
    let (size, first) = (window.size[0], turn * lines.each);
    let [_, of_gaussian] = words(window.size);
    let count = lines.each.min(lines.total - first) * lines.packs;
    // What a turn's lines are of begins here: no more than 32 bits count.
    let [plane, _] = lines.place(first, window.output[0]);
    // SAFETY: the plane exists.
    let x = unsafe { x.offset(window.input_plane(plane)) };
    let mut number = thread::thread_idx_x();
    while number < count {
        let mut tops = [0u32; PACKS];
        let mut at = [0u32; PACKS];
        let mut places = [0u32; PACKS];
        let mut owns = [0u32; PACKS];
        unrolled!(P in [0 1 2 3] {
            if P < at_once(BYTES, OWN) {
                let number = number + P as u32 * ALONG_Y_BLOCK;
                let line = lines.by_packs.divide(number);
                let pack = number - line * lines.packs;
                let [of, row] = lines.place(first + line, window.output[0]);
                let top = (row * window.stride[0]).wrapping_sub(window.padding[0]);
                // Of a pack that is not there no row is in the image.
                tops[P] = if number < count { top } else { height };
                at[P] = ((of - plane) * height).wrapping_add(top).wrapping_mul(width).wrapping_add(pack);
                owns[P] = if number < count { (of - plane) * of_plane } else { 0 };
                places[P] = line * lines.of_line + padded(pack * columns::<T>(BYTES) as u32);
            }
        });
        let mut sums = [[[0.0; LANES]; MAPS]; PACKS];
        let mut i = 0;
        while i < size {
            let mut rows = [[[0; 4]; PACKS]; AHEAD];
            unrolled!(R in [0 1 2 3] {
                unrolled!(P in [0 1 2 3] {
                    if P < at_once(BYTES, OWN) {
                        let row = i + R as u32;
                        let inside = (row < size) & (tops[P].wrapping_add(row) < height);
                        // SAFETY: loaded only where the row is in the image.
                        rows[R][P] = unsafe { load::<T, BYTES>(x, inside, at[P] as usize) };
                        at[P] = at[P].wrapping_add(width);
                    }
                });
            });
            if OWN {
                unrolled!(P in [0 1 2 3] {
                    if P < at_once(BYTES, OWN) {
                        // SAFETY: the rows' weights are there; what is past the last is not used.
                        let along_y = unsafe { weights.load4(owns[P] + i) }.to_array();
                        unrolled!(R in [0 1 2 3] {
                            if i + (R as u32) < size {
                                sums[P][0] = add::<T, BYTES>(sums[P][0], along_y[R], T::numbers(rows[R][P]));
                            }
                        });
                    }
                });
            } else {
                unrolled!(R in [0 1 2 3] {
                    if i + (R as u32) < size {
                        unrolled!(M in [0 1 2] {
                            if M < MAPS {
                                // SAFETY: a position of the window.
                                let weight = unsafe { weights.load(M as u32 * of_gaussian + i + R as u32) };
                                unrolled!(P in [0 1 2 3] {
                                    if P < at_once(BYTES, OWN) {
                                        sums[P][M] = add::<T, BYTES>(sums[P][M], weight, T::numbers(rows[R][P]));
                                    }
                                });
                            }
                        });
                    }
                });
            }
            i += AHEAD as u32;
        }
        unrolled!(P in [0 1 2 3] {
            if P < at_once(BYTES, OWN) && number + (P as u32) * ALONG_Y_BLOCK < count {
                unrolled!(M in [0 1 2] {
                    if M < MAPS {
                        unrolled!(C in [0 1 2 3] {
                            if C < columns::<T>(BYTES) {
                                let at = M as u32 * lines.each * lines.of_line + places[P] + C as u32;
                                // SAFETY: the column's place, which no other thread has; no word is left out between a pack's.
                                unsafe { to.store(at, sums[P][M][C]) };
                            }
                        });
                    }
                });
            }
        });
        number += at_once(BYTES, OWN) as u32 * ALONG_Y_BLOCK;
    }
}

/// The windows of a turn's lines of the Gaussians from number `map` on, of so many in all.
///
/// # Safety
/// The kernel's; `from` holds the sums along y.
#[device_inline]
unsafe fn across<T: Storage, const MAPS: usize>(
    y: GlobalMut<T>,
    window: &Window<Nhwc>,
    lines: &Lines,
    turn: u32,
    (weights, of_plane): (Shared<f32>, u32),
    from: Shared<f32>,
    [map, gaussians]: [u32; 2],
) {
    let [rows, windows] = window.output;
    let first = turn * lines.each;
    let of_map = lines.each.min(lines.total - first) * windows;
    let [along_x, of_gaussian] = words(window.size);
    let [first_plane, _] = lines.place(first, rows);
    let mut number = thread::thread_idx_x();
    while number < MAPS as u32 * of_map {
        let own = match MAPS {
            1 => 0,
            2 => (number >= of_map) as u32,
            _ => (number >= of_map) as u32 + (number >= 2 * of_map) as u32,
        };
        let of_own = number - own * of_map;
        let line = lines.by_windows.divide(of_own);
        let column = of_own - line * windows;
        let left = (column * window.stride[1]).wrapping_sub(window.padding[1]);
        let line_at = (own * lines.each + line) * lines.of_line;
        let [plane, row] = lines.place(first + line, rows);
        let weights_at = (plane - first_plane) * of_plane + own * of_gaussian + along_x;
        let [mut j, end] = steps_inside(window, 1, column);
        let mut sum = 0.0;
        while j < end {
            // SAFETY: a position of the window, and a column of the image.
            unsafe {
                let along_y = from.load(line_at + padded(left.wrapping_add(j)));
                sum = float::fma(weights.load(weights_at + j), along_y, sum);
            }
            j += 1;
        }
        let plane = plane as usize * gaussians as usize + (map + own) as usize;
        let at = (plane * rows as usize + row as usize) * windows as usize + column as usize;
        // SAFETY: an output, which no other thread has.
        unsafe { y.store(at, T::from_f32(sum)) };
        number += ALONG_Y_BLOCK;
    }
}

#[cfg(test)]
mod tests {
    use core::marker::PhantomData;

    use super::*;

    fn plan(planes: u32, input: [u32; 2], gaussians: [u32; 2]) -> Option<Plan> {
        let output = input.map(|input| (input - 9) / 5 + 1);
        let window = Window {
            planes,
            channels: 1,
            input,
            output,
            size: [9; 2],
            stride: [5; 2],
            padding: [0; 2],
            dilation: [1; 2],
            order: PhantomData,
        };
        Lines::plan(&window, 2, gaussians, |blocks| 132 * blocks)
    }

    #[test]
    fn what_32_bits_do_not_count_has_no_plan() {
        assert!(plan(1, [40_000, 40_001], [1, 1]).is_some());
        assert!(plan(1, [70_000, 70_001], [1, 1]).is_none(), "two planes' packs");
        assert!(plan(1, [70_000, 70_000], [1, 1]).is_some(), "as many columns, by fours");
        assert!(plan(1, [9, u32::MAX], [1, 1]).is_none(), "a row");
        assert!(plan(1 << 20, [6_000, 12], [1, 1]).is_none(), "lines");
        assert!(plan(1 << 16, [28, 28], [1 << 10, 1 << 15]).is_none(), "maps");
    }

    #[test]
    fn a_turn_has_room_for_its_planes_weights() {
        for (planes, input) in [(4096, [111, 113]), (16_384, [28, 28]), (7, [13, 14])] {
            let plan = plan(planes, input, [7, 3]).unwrap();
            let [of_set, rows] = [3 * words([9; 2])[1], (input[0] - 9) / 5 + 1];
            for turn in 0..plan.lines.turns {
                let [first, last] = plan.lines.planes(turn, rows);
                assert!((last - first + 1) * of_set <= plan.lines.weights, "turn {turn} of {planes} planes");
            }
        }
    }
}
