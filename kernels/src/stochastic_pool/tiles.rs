//! Draws from row-major windows that are [summed by rows](super::by_rows): the sums of windows' rows, which windows below each other share,
//! first; then a thread draws from each window by these.
//!
//! Launch: blocks of up to [`THREADS`] threads, each with a tile of a plane's outputs, or with some whole planes where these are small: as many threads as
//! whole rows of the tile, about, so that each goes down one column. The rows of weights that the tile's windows have lie in shared memory, with zeros beside them for what is outside the image, which change no sum, so that no thread
//! asks what is there. They begin at multiples of all banks: whichever rows threads draw from, windows an odd number of elements apart are in
//! different banks. Behind them are the rows' sums, `[plane][row of weights][column of outputs]`, of which a thread adds up those of four windows beside each
//! other, which share elements, where their stride has code of its own.
//!
//! Bound by instructions: where windows overlap much those of a draw, some five a row, five a column and fifty for its random number; of windows
//! further apart those that bring weights, too. On an H200 7×7 one apart of 64×64×112×112 in f32 reaches 0.27 of the copy rate, with 78 % of the slots
//! used, 9×9 three apart of 111×113 0.50, with 65 %.

mod plan;

use cuda_std::prelude::*;

pub use self::plan::Tiles;
use self::plan::{FOUR, THREADS};
use super::elements::{Elements, InMemory};
use super::sums_of_rows::{Summed, draw};
use super::{state, uniform_of};
use crate::philox::Pass;
use crate::window::{Divider, Nchw, Window};

/// Such blocks that a multiprocessor has room for, at least: 56 registers a thread.
const BLOCKS: u32 = 5;
/// Elements of the four windows' rows of which a thread adds up weights, at most.
const LOADED: usize = 24;

/// As [`stochastic_pool_forward`](super::stochastic_pool_forward), for windows that are summed by rows, of `SIZE` by `SIZE` positions unless that is 0.
///
/// # Safety
/// The module's, but for the tiling; the window is such, and its outputs are no more than 2³²; `tiles` are the window's, with the
/// launch's grid, block and shared memory.
#[kernel(
    max_threads = THREADS,
    min_blocks = BLOCKS,
    instances(T = [f32, f16, bf16], SIZE = [0, 4, 5, 6, 7, 8, 9, 11])
)]
pub unsafe fn stochastic_pool_forward_tiles<T: Storage, const SIZE: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: GlobalMut<u8>,
    state: Global<u64>,
    window: Window<Nchw>,
    tiles: Tiles,
) {
    let size = if SIZE > 0 { [SIZE as u32; 2] } else { window.size };
    let tile = Tile::of_block(&window, &tiles);
    let lines = (tiles.rows - 1) * window.stride[0] + size[0];
    let count = tile.planes * lines;
    let weights = dynamic_shared::<f32>();
    // SAFETY: the launch's shared memory is for the rows of weights and for their sums; inputs are loaded only where they are in the image; the
    // outputs exist where they are stored.
    unsafe {
        let sums = weights.offset(count * tiles.pitch);
        stage(x, &window, &tiles, &tile, lines, weights);
        let pass = Pass::new(state.load(state::SEED), state.load(state::OFFSET));
        thread::sync_threads();
        match window.stride[1] {
            1 if SIZE > 0 => of_fours::<SIZE, 1>(&tiles, count, weights, sums),
            2 if SIZE > 0 => of_fours::<SIZE, 2>(&tiles, count, weights, sums),
            3 if SIZE > 0 => of_fours::<SIZE, 3>(&tiles, count, weights, sums),
            stride => of_ones::<SIZE>(&tiles, count, [size[1], stride], weights, sums),
        }
        thread::sync_threads();
        let of_line = tiles.fours * FOUR;
        let (below, first, step) = own(tiles.columns, tiles.by_columns);
        let column = tile.first[1] + below;
        let there = (first < step) & (column < window.output[1]);
        let end = if there { tile.planes * tiles.rows } else { 0 };
        let (mut number, mut again) = (first, false);
        while number < end {
            let at = tile.output(&window, &tiles, number, column);
            if at.row < window.output[0] {
                let line = at.of_block * lines + at.of_plane * window.stride[0];
                let summed = Staged {
                    sums: sums.offset(line * of_line + below),
                    columns: of_line,
                    weights: weights.offset(line * tiles.pitch + below * window.stride[1]),
                    pitch: tiles.pitch,
                };
                let drawn = draw::<SIZE>(&summed, size, uniform_of(pass.number(at.output)));
                again |= drawn.again;
                y.store(at.output as usize, T::from_f32(drawn.value));
                indices.store(at.output as usize, drawn.position as u8);
            }
            number += step;
        }
        // Seldom, and apart from the loop that is for all: the registers are few.
        let mut number = if again { first } else { end };
        while number < end {
            let at = tile.output(&window, &tiles, number, column);
            if at.row < window.output[0] {
                let source = InMemory { x: x.offset(window.input_plane(at.plane)), window, channel: 0 };
                let elements = Elements { window, source, row: at.row, column, by_rows: true };
                let (position, value) = elements.draw(uniform_of(pass.number(at.output)));
                y.store(at.output as usize, T::from_f32(value));
                indices.store(at.output as usize, position as u8);
            }
            number += step;
        }
    }
}

/// The planes, and the first row and column of outputs, of a block.
struct Tile {
    plane: u32,
    planes: u32,
    first: [u32; 2],
}

impl Tile {
    #[device_inline]
    fn of_block(window: &Window<Nchw>, tiles: &Tiles) -> Self {
        let block = thread::block_idx_x();
        let lines = tiles.by_across.divide(block);
        let group = tiles.by_down.divide(lines);
        let first = [(lines - group * tiles.down) * tiles.rows, (block - lines * tiles.across) * tiles.columns];
        let plane = group * tiles.depth;
        Self { plane, planes: tiles.depth.min(window.planes - plane), first }
    }

    /// That in a column of the row with this number of the block's, which may be below the image.
    #[device_inline]
    fn output(&self, window: &Window<Nchw>, tiles: &Tiles, number: u32, column: u32) -> Output {
        // Of several planes the rows are all that there are.
        let of_block = if tiles.depth > 1 { tiles.by_rows.divide(number) } else { 0 };
        let of_plane = number - of_block * tiles.rows;
        let (plane, row) = (self.plane + of_block, self.first[0] + of_plane);
        Output { of_block, of_plane, plane, row, output: (plane * window.output[0] + row) * window.output[1] + column }
    }
}

/// An output: its plane of the block's and row of the tile's, its plane and row, and its number.
struct Output {
    of_block: u32,
    of_plane: u32,
    plane: u32,
    row: u32,
    output: u32,
}

/// This thread's of so many columns, its first row, and how many on the next is; none of the rows where the first is no less than that.
#[device_inline]
fn own(columns: u32, by_columns: Divider) -> (u32, u32, u32) {
    let thread = thread::thread_idx_x();
    let first = by_columns.divide(thread);
    (thread - first * columns, first, by_columns.divide(thread::block_dim_x()))
}

/// The rows of weights that the tile's windows have, with zeros beside them: warps by turns a row, as many columns at once as are left, up to
/// four to a lane.
///
/// # Safety
/// As the kernel's; a plane has so many lines.
#[device_inline]
unsafe fn stage<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    tiles: &Tiles,
    tile: &Tile,
    lines: u32,
    weights: Shared<f32>,
) {
    // What lies before the image wraps round to far after it.
    let [top, left] = [0, 1].map(|axis| (tile.first[axis] * window.stride[axis]).wrapping_sub(window.padding[axis]));
    let stage = Stage { input: window.input, top, left, lines, tile, tiles };
    // SAFETY: the caller's.
    unsafe {
        let x = x.offset(window.input_plane(tile.plane));
        let mut first = 0;
        while first < tiles.pitch {
            let columns = match (tiles.pitch - first) / warp::WARP_SIZE {
                1 => stage.columns::<T, 1, 4>(x, first, weights),
                2 | 3 => stage.columns::<T, 2, 4>(x, first, weights),
                _ => stage.columns::<T, 4, 2>(x, first, weights),
            };
            first += columns;
        }
    }
}

struct Stage<'a> {
    input: [u32; 2],
    top: u32,
    left: u32,
    lines: u32,
    tile: &'a Tile,
    tiles: &'a Tiles,
}

impl Stage<'_> {
    /// So many of a lane's columns, of so many rows loaded before the first is stored. As many columns as the warp has.
    ///
    /// # Safety
    /// As [`stage`]'s; the rows have so many columns from the first on.
    #[device_inline]
    unsafe fn columns<T: Storage, const N: usize, const ROWS: usize>(
        &self,
        x: Global<T>,
        first: u32,
        weights: Shared<f32>,
    ) -> u32 {
        let [height, width] = self.input;
        let zero = T::from_f32(0.0);
        let first = first + warp::lane_id();
        let column = self.left.wrapping_add(first);
        let mut inside = [false; N];
        unrolled!(K in [0 1 2 3] { if K < N { inside[K] = column.wrapping_add(K as u32 * warp::WARP_SIZE) < width; } });
        let (count, pitch) = (self.tile.planes * self.lines, self.tiles.pitch);
        // SAFETY: rows in shared memory are there.
        let weights = unsafe { weights.offset(first) };
        let (mut line, warps) = (thread::thread_idx_x() / warp::WARP_SIZE, thread::block_dim_x() / warp::WARP_SIZE);
        while line < count {
            let mut values = [[zero; N]; ROWS];
            // SAFETY: the caller's: of the image where they are loaded, and of the block's rows where they are stored.
            unsafe {
                unrolled!(L in [0 1 2 3] {
                    if L < ROWS {
                        let line = line + L as u32 * warps;
                        let several = N < 4 && self.tiles.depth > 1;
                        let plane = if several { self.tiles.by_lines.divide(line) } else { 0 };
                        let row = self.top.wrapping_add(line - plane * self.lines);
                        let here = (line < count) & (row < height);
                        // What lies before the image is before its first element.
                        let at = (plane * height).wrapping_add(row).wrapping_mul(width).wrapping_add(column);
                        let at = at.cast_signed() as isize as usize;
                        unrolled!(K in [0 1 2 3] {
                            if K < N {
                                let at = at.wrapping_add(K * warp::WARP_SIZE as usize);
                                values[L][K] = x.load_if(here & inside[K], at, zero);
                            }
                        });
                    }
                });
                unrolled!(L in [0 1 2 3] {
                    if L < ROWS {
                        let line = line + L as u32 * warps;
                        unrolled!(K in [0 1 2 3] {
                            if K < N {
                                let weight = float::maximum(values[L][K].to_f32(), 0.0);
                                weights.store_if(line < count, line * pitch + K as u32 * warp::WARP_SIZE, weight);
                            }
                        });
                    }
                });
            }
            line += ROWS as u32 * warps;
        }
        N as u32 * warp::WARP_SIZE
    }
}

/// The sums of so many rows of `SIZE` weights, for windows `STRIDE` apart: of four windows beside each other a thread, which share what is loaded.
///
/// # Safety
/// As the kernel's; rows have whole vectors for whole fours of windows.
#[device_inline]
unsafe fn of_fours<const SIZE: usize, const STRIDE: usize>(
    tiles: &Tiles,
    lines: u32,
    weights: Shared<f32>,
    sums: Shared<f32>,
) {
    let (four, first, step) = own(tiles.fours, tiles.by_fours);
    let mut line = if first < step { first } else { lines };
    while line < lines {
        let mut loaded = [0.0; LOADED];
        // SAFETY: the caller's.
        unsafe {
            unrolled!(V in [0 1 2 3 4] {
                if V as u32 * FOUR < (SIZE + 3 * STRIDE) as u32 {
                    let from = line * tiles.pitch + four * (FOUR * STRIDE as u32) + V as u32 * FOUR;
                    let four = weights.load4(from).to_array();
                    unrolled!(K in [0 1 2 3] { loaded[4 * V + K] = four[K]; });
                }
            });
            let mut all = [0.0; FOUR as usize];
            unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] {
                if J < SIZE { unrolled!(W in [0 1 2 3] { all[W] += loaded[W * STRIDE + J]; }); }
            });
            sums.store4((line * tiles.fours + four) * FOUR, Vec4::from(all));
        }
        line += step;
    }
}

/// The sums of so many rows of weights, for windows of any size and stride, one at a time.
///
/// # Safety
/// As the kernel's.
#[device_inline]
unsafe fn of_ones<const SIZE: usize>(
    tiles: &Tiles,
    lines: u32,
    [width, stride]: [u32; 2],
    weights: Shared<f32>,
    sums: Shared<f32>,
) {
    let (column, first, step) = own(tiles.columns, tiles.by_columns);
    let mut line = if first < step { first } else { lines };
    while line < lines {
        let from = line * tiles.pitch + column * stride;
        let mut sum = 0.0;
        // SAFETY: the caller's.
        unsafe {
            if SIZE > 0 {
                unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10] { if J < SIZE { sum += weights.load(from + J as u32); } });
            } else {
                let mut j = 0;
                while j < width {
                    sum += weights.load(from + j);
                    j += 1;
                }
            }
            sums.store(line * tiles.fours * FOUR + column, sum);
        }
        line += step;
    }
}

/// A window in shared memory.
struct Staged {
    sums: Shared<f32>,
    columns: u32,
    weights: Shared<f32>,
    pitch: u32,
}

impl Summed for Staged {
    type Row = Shared<f32>;

    #[device_inline]
    unsafe fn sum(&self, row: u32) -> f32 {
        // SAFETY: the caller's.
        unsafe { self.sums.load(row * self.columns) }
    }

    #[device_inline]
    unsafe fn row(&self, row: u32) -> Shared<f32> {
        // SAFETY: the caller's.
        unsafe { self.weights.offset(row * self.pitch) }
    }

    #[device_inline]
    unsafe fn weight(&self, row: Shared<f32>, column: u32) -> f32 {
        // SAFETY: the caller's.
        unsafe { row.load(column) }
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::launch::{Launch, LaunchDims};

    use super::super::tests::{bits, drawn_one_by_one, elements, window};
    use super::*;
    use crate::band::BandLaunch;

    fn drawn<const SIZE: usize>(
        window: &Window<Nchw>,
        x: &Vec<f32>,
        (tiles, launch): (Tiles, BandLaunch),
    ) -> (Vec<u32>, Vec<u8>)
    where
        for<'a> StochasticPoolForwardTiles<'a, f32, SIZE>: Launch,
    {
        let count = window.output_plane(window.planes);
        let (mut y, mut indices, state) = (vec![0.0; count], vec![0; count], [7, 2]);
        let (y_, indices_, state, window) = (&mut y, &mut indices, &state, *window);
        let draws = StochasticPoolForwardTiles::<f32, SIZE> { x, y: y_, indices: indices_, state, window, tiles };
        // SAFETY: the window is over `x`, the outputs and indices its, and the launch the tiles'.
        unsafe { draws.emulate(LaunchDims::new(launch.grid, launch.block).with_shared(launch.shared)) }.unwrap();
        (bits(&y), indices)
    }

    #[test]
    fn any_tiles_draw_the_same() {
        for (size, stride, padding) in [
            ([5, 5], [1, 1], [2, 2]),
            ([5, 5], [2, 2], [0, 2]),
            ([5, 5], [3, 3], [2, 1]),
            ([5, 5], [1, 4], [2, 2]),
            ([4, 3], [1, 3], [0, 1]),
            ([2, 9], [3, 1], [1, 4]),
            ([20, 2], [9, 2], [8, 1]),
        ] {
            let window = window::<Nchw>([7, 1], [23, 29], size, stride, padding);
            let x = elements(&window);
            let expected = drawn_one_by_one(&window, &x);
            let [height, width] = window.output;
            let whole = [1, 2, 3, 7].map(|depth| [depth, height, width]);
            for tile in [[1, 1, 1], [1, 1, width], [1, height, 3], [1, 2, 5]].into_iter().chain(whole) {
                let launch = Tiles::of(&window, tile).unwrap();
                assert!(drawn::<0>(&window, &x, launch) == expected, "{size:?} {stride:?} {tile:?}");
                if size == [5, 5] {
                    assert!(drawn::<5>(&window, &x, launch) == expected, "{size:?} {stride:?} {tile:?} compiled");
                }
            }
            assert!(drawn::<0>(&window, &x, Tiles::new(&window).unwrap()) == expected, "{size:?} {stride:?}");
        }
    }

    /// Tiles have room and cover all outputs, for any window.
    #[test]
    fn tiles_have_room() {
        let mut number = 1u64;
        let mut below = |end: u32| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) as u32 % end
        };
        let mut planned = 0;
        for _ in 0..3000 {
            let size = [1 + below(40), 1 + below(40)];
            let stride = size.map(|size| 1 + below(2 * size + 1));
            let padding = size.map(|size| below(size / 2 + 1));
            let input = size.map(|size| size + below([3, 40, 1200][size as usize % 3]));
            let window = window::<Nchw>([1 + below(3000), 1], input, size, stride, padding);
            let Some((tiles, launch)) = Tiles::new(&window) else { continue };
            planned += 1;
            let Tiles { depth, rows, columns, .. } = tiles;
            assert!(launch.shared <= 48 * 1024 && launch.block[0] <= THREADS, "{window:?}");
            assert!(depth == 1 || [rows, columns] == window.output, "{window:?}");
            assert_eq!(
                [tiles.down, tiles.across],
                [window.output[0].div_ceil(rows), window.output[1].div_ceil(columns)]
            );
            assert_eq!(launch.grid[0], window.planes.div_ceil(depth) * tiles.down * tiles.across, "{window:?}");
        }
        assert!(planned > 500, "{planned}");
    }
}
