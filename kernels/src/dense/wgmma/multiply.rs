//! The block's roles, and the multiplying warpgroups: a tile's slices as they come, each as four products of 16 of depth.

use cuda_std::arch::sm_90a::{
    Matrix, Sums, meet_cluster, set_max_registers_down, set_max_registers_up, wgmma_commit, wgmma_fence, wgmma_finish,
    wgmma_wait,
};
use cuda_std::grid;
use cuda_std::prelude::*;

use super::super::order::Tile;
use super::super::product::{Epilogue, Shape};
use super::copy::{Operand, prefetch};
use super::element::Factor;
use super::epilogue::Store;
use super::order::Order;
use super::ring::{Place, Ring};
use super::{DEPTH, PANEL, copy, in_widths, tile};

/// Registers of each thread of the copying warpgroup, and of the multiplying ones: of two of these, of three with few columns, and of
/// three with more, to which the copying thread gives some that it would need. All together are what a block begins with.
const COPY_REGISTERS: [u32; 3] = [40, 40, 32];
const MULTIPLY_REGISTERS: [u32; 3] = [232, 152, 160];
/// Columns up to which they are few.
const FEW: u32 = 128;

/// The block's tiles of `a · b`, `a: [rows, depth]`, `b: [depth, columns]`, into `epilogue`, or into `parts`,
/// `[splits, rows, columns]`, where they are given.
///
/// `A_DEPTH_INNER` says that `a` lies row by row, `B_DEPTH_INNER` that `b` lies column by column; otherwise the other way. A warpgroup has
/// `columns` columns of a tile: `COLUMNS`, or, where `ANY`, one of the [`widths`](super::widths) up to that.
///
/// # Safety
/// The module `dense`'s; all sizes are at least 1; rows in memory of all three matrices are multiples of
/// [`PIECE`](super::PIECE); the maps are of the operands, two of each, with the boxes of [`operand_box`](super::operand_box) for a side
/// and for its [`edge`](super::edge), pieces swapped within 128 bytes; `columns` is as it says.
#[device_inline]
pub unsafe fn product<
    T: Factor,
    const COLUMNS: u32,
    const HEIGHT: u32,
    const PARTS: u32,
    const ANY: bool,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
>(
    columns: u32,
    [a, b]: [[TensorMap; 2]; 2],
    epilogue: Epilogue<T::Element>,
    parts: Option<GlobalMut<f32>>,
    shape: Shape,
    splits: u32,
) {
    let ring = Ring::<T::Half, COLUMNS, HEIGHT, PARTS>::new(columns);
    let order = Order::<COLUMNS, HEIGHT, PARTS>::new(columns, T::in_halves(shape), splits, ring.cluster);
    let thread = thread::thread_idx_x();
    // SAFETY: the protocol of the module above.
    unsafe {
        if thread == 0 {
            // First of all: the first copies wait for them.
            prefetch::<A_DEPTH_INNER>(a);
            prefetch::<B_DEPTH_INNER>(b);
            ring.init();
        }
        if PARTS > 1 || ring.cluster.sharers() > 1 {
            meet_cluster();
        } else {
            thread::sync_threads();
        }
        // Each role waits for the grid before when it has done all that it can do without.
        if thread < 128 {
            if HEIGHT <= 2 {
                set_max_registers_down::<{ COPY_REGISTERS[0] }>();
            } else if COLUMNS <= FEW {
                set_max_registers_down::<{ COPY_REGISTERS[1] }>();
            } else {
                set_max_registers_down::<{ COPY_REGISTERS[2] }>();
            }
            if thread == 0 {
                let a = Operand { maps: a, count: shape.rows };
                let b = Operand { maps: b, count: shape.columns };
                copy::run::<T, COLUMNS, HEIGHT, PARTS, A_DEPTH_INNER, B_DEPTH_INNER>(ring, [a, b], order);
            } else {
                grid::begin();
            }
        } else {
            if HEIGHT <= 2 {
                set_max_registers_up::<{ MULTIPLY_REGISTERS[0] }>();
            } else if COLUMNS <= FEW {
                set_max_registers_up::<{ MULTIPLY_REGISTERS[1] }>();
            } else {
                set_max_registers_up::<{ MULTIPLY_REGISTERS[2] }>();
            }
            grid::begin();
            let store = Store { epilogue, parts, shape, ring };
            multiply::<T, COLUMNS, HEIGHT, PARTS, ANY, A_DEPTH_INNER, B_DEPTH_INNER>(ring, order, store);
        }
    }
}

/// Multiplies and stores this warpgroup's rows of the block's tiles.
///
/// # Safety
/// All threads of the warpgroup together; the protocol of the module above.
#[device_inline]
unsafe fn multiply<
    T: Factor,
    const COLUMNS: u32,
    const HEIGHT: u32,
    const PARTS: u32,
    const ANY: bool,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
>(
    ring: Ring<T::Half, COLUMNS, HEIGHT, PARTS>,
    mut order: Order<COLUMNS, HEIGHT, PARTS>,
    store: Store<T, COLUMNS, HEIGHT, PARTS>,
) {
    let warp = thread::thread_idx_x() / warp::WARP_SIZE - 4;
    let lane = thread::thread_idx_x() % warp::WARP_SIZE;
    let group = warp / 4;
    // The warpgroup's rows, or its columns.
    let [down, across] = if HEIGHT == 1 { [0, group * ring.columns * DEPTH] } else { [group * PANEL, 0] };
    // SAFETY: inside a stage.
    let (a, b) = unsafe {
        let (a, b) = (ring.slices().offset(down), ring.slices().offset(tile(ring.columns, HEIGHT)[0] * DEPTH + across));
        (Matrix::at(a, 2 * PANEL), Matrix::at(b, 2 * PANEL))
    };
    // SAFETY: all zeros is an array of floats. Not `[0.0; 128]`, which becomes a loop and then local memory.
    let mut sums: Sums = unsafe { core::mem::zeroed() };
    let mut place = Place::<COLUMNS, HEIGHT, PARTS>::START;
    while let Some(tile) = order.next() {
        let slices = Slices::<T, COLUMNS, HEIGHT, PARTS, A_DEPTH_INNER, B_DEPTH_INNER> { ring, a, b, lane, tile };
        // SAFETY: the caller's; the sums are whole when all products are done.
        unsafe {
            let (before, ahead);
            if ANY {
                // Before the products, for which width after width would fetch it.
                ahead = store.ahead(tile, warp);
                (place, before) = slices.multiply_any(&mut sums, place);
            } else {
                (place, before) = slices.multiply::<COLUMNS, false>(&mut sums, place);
                ahead = store.ahead(tile, warp);
                wgmma_finish::<COLUMNS>(&mut sums);
            }
            if PARTS == 1 || tile.slices > 0 {
                ring.release(before.stage, lane);
            }
            store.put(&sums, tile, warp, before, &ahead);
        }
    }
}

/// A tile's slices, and where a warpgroup finds what it multiplies of the first stage.
struct Slices<
    T: Factor,
    const COLUMNS: u32,
    const HEIGHT: u32,
    const PARTS: u32,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
> {
    ring: Ring<T::Half, COLUMNS, HEIGHT, PARTS>,
    a: Matrix,
    b: Matrix,
    lane: u32,
    tile: Tile,
}

impl<
    T: Factor,
    const COLUMNS: u32,
    const HEIGHT: u32,
    const PARTS: u32,
    const A_DEPTH_INNER: bool,
    const B_DEPTH_INNER: bool,
> Slices<T, COLUMNS, HEIGHT, PARTS, A_DEPTH_INNER, B_DEPTH_INNER>
{
    /// Begins the products of `WIDTH` columns of all slices, from `place` on; the last slice's are under way yet. Where the next tile's slices
    /// begin, and where the last one is.
    ///
    /// # Safety
    /// All threads of the warpgroup together; the protocol of the module above.
    #[device_inline]
    unsafe fn multiply<const WIDTH: u32, const ANY: bool>(
        &self,
        sums: &mut Sums,
        mut place: Place<COLUMNS, HEIGHT, PARTS>,
    ) -> (Place<COLUMNS, HEIGHT, PARTS>, Place<COLUMNS, HEIGHT, PARTS>) {
        let &Self { ring, a, b, lane, tile } = self;
        let mut before = place;
        let mut slice = 0;
        // Bytes from the first stage. Where the compiler knows no stage's size it is kept, and not multiplied anew: the products wait for it.
        let mut kept = 2 * place.stage * ring.stage;
        while slice < tile.slices {
            let on = if ANY { kept } else { 2 * place.stage * ring.stage };
            let (a, b) = (a.offset(on), b.offset(on));
            // SAFETY: the stage is full, and stays so until this warp arrives. What is under way when a product begins are
            // products into the same sums, which come in order.
            unsafe {
                ring.full(place.stage).wait(place.parity);
                wgmma_fence();
                unrolled!(K in [0 1 2 3] {
                    let a = a.offset(K as u32 * step(A_DEPTH_INNER));
                    let b = b.offset(K as u32 * step(B_DEPTH_INNER));
                    T::multiply::<WIDTH, A_DEPTH_INNER, B_DEPTH_INNER>(sums, a, b, K > 0 || slice > 0);
                });
                wgmma_commit();
                wgmma_wait::<1>();
                if slice > 0 {
                    ring.release(before.stage, lane);
                }
            }
            before = place;
            place = place.next(ring.stages);
            kept = if place.stage == 0 { 0 } else { kept + 2 * ring.stage };
            slice += 1;
        }
        (place, before)
    }

    /// [`Slices::multiply`] of the launch's width, and waits for the last slice's products: the loop is there once for each width, for the
    /// width is part of the instruction.
    ///
    /// # Safety
    /// As [`Slices::multiply`].
    #[device_inline]
    unsafe fn multiply_any(
        &self,
        sums: &mut Sums,
        place: Place<COLUMNS, HEIGHT, PARTS>,
    ) -> (Place<COLUMNS, HEIGHT, PARTS>, Place<COLUMNS, HEIGHT, PARTS>) {
        macro_rules! of_width {
            ($($width:literal)*) => {
                $(if const { in_widths($width, COLUMNS, HEIGHT) } && self.ring.columns == $width {
                    // SAFETY: the caller's.
                    return unsafe {
                        let places = self.multiply::<$width, true>(sums, place);
                        wgmma_finish::<$width>(sums);
                        places
                    };
                })*
            };
        }
        of_width!(32 40 48 56 64 72 80 88 96 104 112 120 128 136 144 152 160 168 176 184 192 200 208 216 224 232 240 248 256);
        (place, place)
    }
}

/// Bytes from 16 of depth to the next 16 of an operand's slice.
const fn step(depth_inner: bool) -> u32 {
    if depth_inner { 2 * 16 } else { 2 * 16 * 64 }
}
