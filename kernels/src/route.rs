//! The backward pass of pooling that picks one position of each window: `dx` at a position is the sum of `dy` over the
//! outputs that came from it.
//!
//! Launch: one thread for one place in a few rows of a plane of inputs, as [`Tiling`] lays them; neighbouring threads have
//! neighbouring columns, or channels where these are last. It gathers: each input visits the windows that cover it, in the
//! order of the outputs, and takes `dy` where the index names it. No atomics, no zeros written beforehand, and no
//! difference between windows that overlap and windows that leave gaps. Sums are `f32`, rounded once.
//!
//! That is any layout's and any size's. Where rows have room in shared memory, row-major images go by [bands](crate::band),
//! and common windows with the channels last by [patches](crate::patch); of 16 bits, where nothing is to be added to, common
//! windows go by [fours](crate::patch::quads) or by [octets] of channels. Other windows with the channels last go by
//! [vectors](crate::vectors) of these, or where many are over an input by tiles of sums, for which row-major planes go [abreast](crate::abreast).
//!
//! Bound by memory: reads `dy` and one or two bytes for each output, writes each input; windows that overlap meet in the
//! caches.

mod abreast;
mod tiles;
mod vectors;

use cuda_std::arch::sm_80::{Paired, where_equal_halves};
use cuda_std::prelude::*;

use crate::band::any::{Phases, outputs_of};
use crate::band::cells::{self, Given, inputs_of_cells, outputs_of_cells};
use crate::band::{self, Bands, Block, Span, Staged, Tile, pairs};
use crate::elementwise::{get, put};
use crate::patch::octets::{self, Octet, PAIRS, octet, sum_of_pairs};
use crate::patch::quads::{self, Giving, Quads};
use crate::patch::{self, Patches, Shares};
use crate::window::{
    Covering, FEWER_BLOCKS, FEWEST_BLOCKS, Nchw, Nhwc, Order, Pixel, Position, THREADS, Tiling, Window,
};
pub use abreast::*;
pub use tiles::*;
pub use vectors::*;

/// `dx = sum of dy over the outputs whose index names the input + beta * dx`. An index past the window's last position
/// names none.
///
/// # Safety
/// `dx` holds `window.planes` planes of `window.input` pixels of `window.channels` elements, `dy` and `indices` as many of
/// `window.output`; `tiling` is over the inputs, and the launch has its grid and block; `covering` is the window's, which
/// keeps its promises.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], L = [Nchw, Nhwc], P = [u8, u16])
)]
pub unsafe fn route_backward<T: Storage, L: Order, P: Position>(
    dy: Global<T>,
    indices: Global<P>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<L>,
    covering: Covering,
    tiling: Tiling,
) {
    let Some(plane) = tiling.plane() else { return };
    // SAFETY: the plane, the row and the place exist, by the tiling, and so do the outputs that cover them.
    unsafe {
        let first = window.output_plane(plane);
        let (dy, indices) = (dy.offset(first), indices.offset(first));
        for place in tiling.places() {
            let Pixel { column, channel } = tiling.pixel(&window, place);
            let across = covering.outputs(&window, 1, column);
            for row in tiling.rows() {
                let mut sum = 0.0;
                for output_row in covering.outputs(&window, 0, row) {
                    // The window's row that this input is in, if dilation does not step over it.
                    let offset = row + window.padding[0] - output_row * window.stride[0];
                    let i = covering.dilation[0].divide(offset);
                    if i * window.dilation[0] != offset {
                        continue;
                    }
                    let line = output_row as usize * window.output_line();
                    for output_column in across.clone() {
                        let offset = column + window.padding[1] - output_column * window.stride[1];
                        let output = line + (output_column * window.pixel() + channel) as usize;
                        // The index names this input if it lies in the window's row `i`, the right distance on.
                        let j = indices.load(output).widen().wrapping_sub(i * window.size[1]);
                        let share = get(dy, output);
                        let named = (j < window.size[1]) & (j.wrapping_mul(window.dilation[1]) == offset);
                        sum = if named { sum + share } else { sum };
                    }
                }
                let input = window.input_plane(plane) + row as usize * window.input_line() + place as usize;
                put(dx, input, sum, beta);
            }
        }
    }
}

/// As [`route_backward`], by [patches](crate::patch), for windows of `SIZE` by `SIZE` positions, two apart, padded by `PADDING`.
///
/// # Safety
/// As [`route_backward`]'s; the window is such, `dx` begins at a multiple of 16 bytes, `dy` and
/// `indices` where four elements may be loaded at once, and `patches` are the window's, with the launch's grid and block.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWEST_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn route_backward_patch<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        let load = |inside, output| Shares {
            share: dy.load4_if(inside, output, Vec4::splat(T::from_f32(0.0))).map(T::to_f32).to_array(),
            position: indices.load4_if(inside, output, Vec4::splat(u8::MAX)).map(u32::from).to_array(),
        };
        let none = Shares { share: [0.0; 4], position: [u32::MAX; 4] };
        let shares = |shares: Shares, _, _| shares;
        patch::gather::<T, _, SIZE, PADDING>(dx, beta, &window, &patches, none, load, shares, named);
    }
}

/// Gradients and indices of an output's octet, and a position; none where the window has none.
type Named = Option<((Octet, Octet), u32)>;
/// Four elements by pairs, and those one on.
type Fours = [[u32; 2]; 2];

/// As [`route_backward_patch`], by [octets](crate::patch::octets), into `dx` as it was not: without `beta`.
///
/// # Safety
/// As [`route_backward_patch`]'s, and `patches` are of octets; `indices` begin at a multiple of 8 bytes.
#[kernel(
    max_threads = THREADS,
    min_blocks = FEWER_BLOCKS,
    instances(T = [f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn route_backward_octets<T: Paired, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    window: Window<Nhwc>,
    patches: Patches,
) {
    // SAFETY: the caller's; `gather` asks for outputs that are there, and says where others are not.
    unsafe {
        let (dy, indices) = (dy.cast::<u32>(), indices.cast::<u32>());
        let none = (Vec4::splat(0), Vec2::splat(u32::MAX));
        let load = |inside, octet: usize| {
            (
                dy.load4_if(inside, octet.wrapping_mul(PAIRS), none.0),
                indices.load2_if(inside, octet.wrapping_mul(2), none.1),
            )
        };
        // Indices as halves of words, as `dy` is.
        let widened = |(dy, indices): (Vec4<u32>, Vec2<u32>), _, _| {
            let halves = |four| [integer::bytes::<0x4140>(four, 0), integer::bytes::<0x4342>(four, 0)];
            let [[a, b], [c, d]] = [indices.x, indices.y].map(halves);
            (dy.to_array(), [a, b, c, d])
        };
        let sum_of = |&(): &(), outputs: [[Named; 2]; 2]| {
            octet(|pair| {
                sum_of_pairs::<T>(outputs.map(|row| {
                    row.map(|output| {
                        let ((dy, index), position) = output?;
                        Some(dy[pair] & where_equal_halves(index[pair], position * 0x1_0001))
                    })
                }))
            })
        };
        octets::gather::<_, _, _, SIZE, PADDING>(dx.cast(), &window, &patches, none, load, || (), widened, sum_of);
    }
}

/// Gradients of a row of outputs by pairs, and their indices: of four windows, and of those one on with padding, one before without.
type Row = (Fours, Fours);

/// As [`route_backward_octets`], of row-major images and windows of 3×3 positions padded by `PADDING`, by [fours](crate::patch::quads) of
/// outputs: of the columns of inputs every other one has one window over it, and the others have two, and the same goes for rows.
///
/// # Safety
/// As [`route_backward`]'s, but for the tiling; memory begins at multiples of 16 bytes; `quads` are of the window's
/// [inputs](Quads::of_inputs), with as many blocks.
#[kernel(block = quads::BLOCK, min_blocks = FEWER_BLOCKS, instances(T = [f16, bf16], PADDING = [0, 1]))]
pub unsafe fn route_backward_quads<T: Paired, const PADDING: u32>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    window: Window<Nchw>,
    quads: Quads,
) {
    let load = |inside: bool, beside: bool, from: Giving| {
        // SAFETY: the caller's; `gather` says which are there.
        unsafe {
            if PADDING > 0 {
                aligned(dy, indices, inside, beside, from.output)
            } else {
                unaligned(dy, indices, inside, beside, &window, from)
            }
        }
    };
    let give = |&(): &(), rows: [Row; 2]| {
        let mut inputs = [[0; 4]; 2];
        unrolled!(R in [0 1] {
            unrolled!(P in [0 1] {
                let named = |row: usize, on: usize, position: u32| {
                    let (dy, indices) = rows[row];
                    Some(dy[on][P] & where_equal_halves(indices[on][P], position * 0x1_0001))
                };
                // With padding the first row of inputs is the second of its windows, the second one the last and the first of the
                // next; without, the first is the last and the first of the next, and the second is theirs.
                let two = (R == 1) == (PADDING > 0);
                let [first, last] = if PADDING > 0 { [0, 1] } else { [1, 0] };
                let (row, i) = match (two, PADDING > 0) {
                    (true, _) => (0, 6),
                    (false, true) => (0, 3),
                    (false, false) => (1, 3),
                };
                let below = |on: usize, position: u32| if two { named(1, on, position) } else { None };
                let one = sum_of_pairs::<T>([[named(row, 0, i + 1), None], [below(0, 1), None]]);
                let both = [
                    [named(row, first, i + 2), named(row, last, i)],
                    [below(first, 2), below(last, 0)],
                ];
                let both = sum_of_pairs::<T>(both);
                let [even, odd] = if PADDING > 0 { [one, both] } else { [both, one] };
                inputs[R][2 * P] = integer::bytes::<0x5410>(even, odd);
                inputs[R][2 * P + 1] = integer::bytes::<0x7632>(even, odd);
            });
        });
        inputs
    };
    // SAFETY: the caller's.
    unsafe { quads::gather::<_, _, PADDING, 1>(dx.cast(), &window, &quads, load, || (), give) };
}

/// Four outputs and the one after them; the first begins at a multiple of four.
///
/// # Safety
/// They exist if they are `inside`, the last if it is `beside`.
#[device_inline]
unsafe fn aligned<T: Paired>(dy: Global<T>, indices: Global<u8>, inside: bool, beside: bool, first: usize) -> Row {
    // SAFETY: the caller's.
    unsafe {
        let dy_beside = u32::from(dy.cast::<u16>().load_if(beside, first + 4, 0));
        let index_beside = u32::from(indices.load_if(beside, first + 4, u8::MAX));
        let Vec2 { x, y } = dy.cast::<u32>().load2_if(inside, first / 2, Vec2::splat(0));
        let four = indices.cast::<u32>().load_if(inside, first / 4, u32::MAX);
        // Indices as halves of words, as `dy` is.
        let dy = [[x, y], [integer::bytes::<0x5432>(x, y), integer::bytes::<0x5432>(y, dy_beside)]];
        let indices = [
            [integer::bytes::<0x4140>(four, 0), integer::bytes::<0x4342>(four, 0)],
            [integer::bytes::<0x4241>(four, 0), integer::bytes::<0x5453>(four, index_beside)],
        ];
        (dy, indices)
    }
}

/// Four outputs and the one before them, wherever they begin: by the words that have them.
///
/// # Safety
/// The four exist if they are `inside`, but for one past the end of a row; all outputs are a multiple of four, fewer than 2³¹.
#[device_inline]
unsafe fn unaligned<T: Paired>(
    dy: Global<T>,
    indices: Global<u8>,
    inside: bool,
    beside: bool,
    window: &Window<Nchw>,
    from: Giving,
) -> Row {
    let count = window.planes * window.output[0] * window.output[1];
    let before = (from.output as u32).wrapping_sub(1);
    // As `from_before`: what is before the first wraps round.
    let four = (before.cast_signed() >> 2).cast_unsigned();
    // SAFETY: words that exist; the caller's.
    unsafe {
        let index_word = |k: u32| {
            let at = four.wrapping_add(k);
            indices.cast::<u32>().load_if(inside & (at < count / 4), at as usize, u32::MAX)
        };
        let indices = [index_word(0), index_word(1)];
        let [a, b, c] = quads::from_before(dy.cast(), inside, count, from.output);
        let of_indices = |a: u32, b: u32| integer::shifted(a, b, before % 4 * 8);
        // Of another row: none.
        let first = of_indices(indices[0], indices[1]) | if beside { 0 } else { 0xff };
        let last = of_indices(indices[1], 0) & 0xff | if from.column + 3 < window.output[1] { 0 } else { 0xff };
        // Indices as halves of words, as `dy` is.
        let dy = [[integer::bytes::<0x5432>(a, b), integer::bytes::<0x5432>(b, c)], [a, b]];
        let indices = [
            [integer::bytes::<0x4241>(first, 0), integer::bytes::<0x5453>(first, last)],
            [integer::bytes::<0x4140>(first, 0), integer::bytes::<0x4342>(first, 0)],
        ];
        (dy, indices)
    }
}

/// As [`route_backward`], by [bands](crate::band), for windows of `SIZE` by `SIZE` positions, two apart, padded by `PADDING`.
///
/// # Safety
/// As [`route_backward`]'s, but for the tiling; the window is such, without dilation; `dy`, `indices` and `dx` begin at multiples
/// of 16 bytes, and `bands` are of the window's cells, with the launch's grid, block and shared memory.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = band::FEWER_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn route_backward_band<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: the caller's; the launch's shared memory is for these rows and for the tile.
    unsafe {
        let staged = StagedOutputs::of_cells::<SIZE, PADDING>(dy, indices, &window, &span);
        let tile = Tile::new(staged.indices.behind(), &span, inputs_of_cells(&window, &span), window.input);
        let given = |inside, plane, row, column| staged.given(inside, plane, row, column);
        cells::gather::<SIZE, PADDING>(&tile, &window, &bands, &part, given, add);
        tile.write_out(dx, beta);
    }
}

/// As [`route_backward_band`], [two cells a thread](crate::band::pairs).
///
/// # Safety
/// As [`route_backward_band`]'s; `bands` are of pairs of cells.
#[kernel(
    max_threads = band::THREADS,
    min_blocks = pairs::MIN_BLOCKS,
    instances(T = [f32, f16, bf16], (SIZE, PADDING) = [(2, 0), (3, 0), (3, 1)])
)]
pub unsafe fn route_backward_pairs<T: Storage, const SIZE: u32, const PADDING: u32>(
    dy: Global<T>,
    indices: Global<u8>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    bands: Bands,
) {
    let span = bands.block.span();
    let part = bands.part(&span);
    // SAFETY: the caller's; the launch's shared memory is for these rows.
    unsafe {
        let staged = StagedOutputs::of_cells::<SIZE, PADDING>(dy, indices, &window, &span);
        let given = |inside, plane, row, column| staged.given(inside, plane, row, column);
        pairs::gather::<T, SIZE, PADDING>((dx, beta), &window, &bands, (&span, &part), given, add);
    }
}

/// What an output gives to the input that its window has at `position`, added to the input's sum.
#[device_inline]
fn add(sum: f32, given: Given, position: u32) -> f32 {
    named(sum, given.share, given.position, position)
}

/// Rows of outputs in shared memory: their gradients and their indices.
#[derive(Clone, Copy)]
struct StagedOutputs<T> {
    dy: Staged<T>,
    indices: Staged<u8>,
}

impl<T: Storage> StagedOutputs<T> {
    /// Those that give to the block's cells, once they are there.
    ///
    /// # Safety
    /// As [`route_backward_band`]'s; the launch's shared memory is for these rows.
    #[device_inline]
    unsafe fn of_cells<const SIZE: u32, const PADDING: u32>(
        dy: Global<T>,
        indices: Global<u8>,
        window: &Window<Nchw>,
        span: &Span,
    ) -> Self {
        let rows = outputs_of_cells::<SIZE, PADDING>(window, span);
        // SAFETY: the caller's.
        unsafe {
            let dy = Staged::copy(dynamic_shared::<T>(), dy, span, rows, window.output);
            let indices = Staged::copy(dy.behind(), indices, span, rows, window.output);
            band::wait((dy, indices));
            Self { dy, indices }
        }
    }

    /// What the output at this row and column of a plane gives, if it is `inside`; else nothing to any position.
    ///
    /// # Safety
    /// It is one of these where it is inside.
    #[device_inline]
    unsafe fn given(&self, inside: bool, plane: u32, row: u32, column: u32) -> Given {
        let Self { dy, indices } = self;
        // SAFETY: the caller's.
        unsafe {
            Given {
                share: dy.load_if(inside, dy.place(plane, row, column), T::from_f32(0.0)).to_f32(),
                position: u32::from(indices.load_if(inside, indices.place(plane, row, column), u8::MAX)),
            }
        }
    }
}

/// As [`route_backward`], by [bands](crate::band): outputs add to the inputs that their indices name, in shared memory, those
/// at once whose windows do not overlap.
///
/// # Safety
/// As [`route_backward`]'s, but for the tiling; `dy`, `indices` and `dx` begin at multiples of 16 bytes; `block` is of the
/// window's inputs and `phases` of its outputs, with the launch's grid, block and shared memory.
#[kernel(max_threads = band::THREADS, min_blocks = band::MIN_BLOCKS, instances(T = [f32, f16, bf16], P = [u8, u16]))]
pub unsafe fn route_backward_any<T: Storage, P: Position>(
    dy: Global<T>,
    indices: Global<P>,
    dx: GlobalMut<T>,
    beta: f32,
    window: Window<Nchw>,
    covering: Covering,
    block: Block,
    phases: Phases,
) {
    let span = block.span();
    let rows = outputs_of(&window, &covering, &span);
    let positions = window.size[0] * window.size[1];
    // SAFETY: the caller's; the launch's shared memory is for these rows of all.
    unsafe {
        let dy = Staged::copy(dynamic_shared::<T>(), dy, &span, rows, window.output);
        let indices = Staged::copy(dy.behind(), indices, &span, rows, window.output);
        let tile = Tile::new(indices.behind(), &span, span.rows, window.input);
        tile.clear();
        band::wait((dy, indices));
        let sums = tile.sums();
        phases.for_each_output(&span, rows, window.output[1], |plane, row, column| {
            let position = indices.load(indices.place(plane, row, column)).widen();
            let i = covering.width.divide(position);
            let j = position - i * window.size[1];
            // What lies before the image wraps round to far after it.
            let y = (row * window.stride[0] + i * window.dilation[0]).wrapping_sub(window.padding[0]);
            let x = (column * window.stride[1] + j * window.dilation[1]).wrapping_sub(window.padding[1]);
            let here = y.wrapping_sub(span.rows[0]) < span.rows[1] - span.rows[0];
            if (position < positions) & here & (x < window.input[1]) {
                let place = tile.place(plane, y, x);
                sums.store(place, sums.load(place) + dy.load(dy.place(plane, row, column)).to_f32());
            }
        });
        tile.write_out(dx, beta);
    }
}

/// An input's sum after an output whose index is `index`.
#[device_inline]
fn named(sum: f32, share: f32, index: u32, position: u32) -> f32 {
    if index == position { sum + share } else { sum }
}
