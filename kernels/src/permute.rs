//! A copy in another order: `y[i] = x[..]`, the elements of a dense tensor with its dimensions reordered.
//!
//! The launch gives `y`'s dimensions from the one that varies fastest, neighbours that stay neighbours taken together, and
//! for each the distance in `x`. Bound by memory: two elements moved for each.
//!
//! - [`permute_tiles`]: a block takes a tile of two dimensions, `y`'s fastest and `x`'s fastest, and turns it in shared memory, so
//!   that loads and stores are both of neighbours. Rows of the tile there lie four bytes or an element further apart than they are
//!   long: of square tiles neither side has bank conflicts.
//! - [`permute_rows`]: the same dimension is fastest in both; a tile is of this and another, and nothing is turned.
//! - [`permute`]: one thread for an element of `y`, for dimensions that are too short to fill a tile. Loads meet in the L2 cache.
//!
//! # Safety
//! `x` and `y` hold the product of the sizes, `n`; the distances stay inside `x`; the grid covers `n`, by tiles as
//! [`Tiles::blocks`] has them, and blocks by tiles have [`Tiles::shared`] bytes where they turn them.

use cuda_std::prelude::*;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Dimensions, at most.
pub const DIMS: usize = 8;

/// Dimensions of the copy, from the one that varies fastest; those that are not there have size 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// How long each is in `y`.
    pub sizes: [u64; DIMS],
    /// The distance between neighbours in `x`.
    pub strides: [u64; DIMS],
}

// SAFETY: `repr(C)` with only `u64` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Order {}

/// Elements of a tile, at most.
pub const TILE: u32 = 4096;
/// Elements that a thread loads before it uses the first.
const TOGETHER: u32 = 8;

/// A dimension of a copy by tiles.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// How long it is.
    pub size: u64,
    /// The distance between neighbours in `x`, and in `y`.
    pub x: u64,
    /// As `x`.
    pub y: u64,
}

impl Side {
    /// A dimension that is not there.
    pub const NONE: Self = Self { size: 1, x: 0, y: 0 };
}

/// A copy by tiles of two of its dimensions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// The tile's dimensions: `y`'s fastest, and `x`'s fastest, or where that is the same one, any other.
    pub sides: [Side; 2],
    /// The others.
    pub outer: [Side; DIMS - 2],
    /// How long a tile is along its dimensions: 2 to the power of this. At most [`TILE`] together.
    pub log_extents: [u32; 2],
}

// SAFETY: `repr(C)` with only integers inside, two of `u32` after those of `u64`: no padding, no pointers, the same layout on host
// and device.
unsafe impl KernelParam for Tiles {}

impl Tiles {
    /// How many tiles lie along one of their dimensions.
    #[inline(always)]
    fn along(&self, side: usize) -> u64 {
        // Not `div_ceil`: sizes are not zero.
        ((self.sides[side].size - 1) >> self.log_extents[side]) + 1
    }

    /// Blocks of the grid: one for each tile.
    pub fn blocks(&self) -> u64 {
        self.outer.iter().map(|side| side.size).product::<u64>() * self.along(0) * self.along(1)
    }

    /// Bytes of shared memory in which a block turns a tile of elements of so many bytes.
    pub fn shared(&self, bytes: u32) -> u32 {
        (pitch(bytes, self.log_extents[1]) << self.log_extents[0]) * bytes
    }

    /// Where this block's tile begins in `x` and `y`, and how many elements it has along both dimensions.
    #[device_inline]
    fn place(&self) -> (u64, u64, [u32; 2]) {
        // The number of blocks has 32 bits, and so have its factors.
        let (mut x, mut y, mut rest) = (0, 0, thread::block_idx_x());
        let next = |rest: &mut u32, size: u32| {
            // SAFETY: no size is zero where there are elements.
            unsafe { core::hint::assert_unchecked(size != 0) };
            let quotient = *rest / size;
            let place = *rest - quotient * size;
            *rest = quotient;
            place as u64
        };
        let mut there = [0; 2];
        unrolled!(I in [0 1] {
            let side = self.sides[I];
            let first = next(&mut rest, self.along(I) as u32) << self.log_extents[I];
            x += first * side.x;
            y += first * side.y;
            let (left, extent) = (side.size - first, 1 << self.log_extents[I]);
            there[I] = if left < extent { left } else { extent } as u32;
        });
        unrolled!(I in [0 1 2 3 4 5] {
            // Most copies have one of these.
            if rest > 0 {
                let side = self.outer[I];
                let place = next(&mut rest, side.size as u32);
                x += place * side.x;
                y += place * side.y;
            }
        });
        (x, y, there)
    }
}

/// The distance in shared memory between rows of 2 to the power of `log_extent` elements of so many bytes.
#[inline(always)]
const fn pitch(bytes: u32, log_extent: u32) -> u32 {
    (1 << log_extent) + if bytes < 4 { 4 / bytes } else { 1 }
}

/// A thread's elements of a tile that is gone through in rows of 2 to the power of `log_width`, `distance` apart in the tensor, whose
/// elements are neighbours: every [`BLOCK`]th.
///
/// Row and column of the sum of a thread's number and a multiple of [`BLOCK`] are the sums of theirs, whichever is longer, a row or the
/// block: what all threads have in common is not computed by each.
#[derive(Clone, Copy)]
struct Mine {
    log_width: u32,
    height: u32,
    width: u32,
    distance: u64,
    /// Row and column of the first.
    first: (u32, u32),
}

impl Mine {
    #[device_inline]
    fn new(log_width: u32, [height, width]: [u32; 2], distance: u64) -> Self {
        let mine = Self { log_width, height, width, distance, first: (0, 0) };
        Self { first: mine.split(thread::thread_idx_x()), ..mine }
    }

    #[device_inline]
    fn split(&self, number: u32) -> (u32, u32) {
        (number >> self.log_width, number & ((1 << self.log_width) - 1))
    }

    /// Whether there are any from this multiple of [`BLOCK`] on, for the block.
    #[device_inline]
    fn goes_on(&self, number: u32) -> bool {
        number >> self.log_width < self.height
    }

    /// Of the one that is so many elements of the tile on: whether the tile has it, and where it is in the tensor.
    #[device_inline]
    fn place(&self, number: u32) -> (bool, usize) {
        let ((i, j), (down, along)) = (self.first, self.split(number));
        let there = i + down < self.height && j + along < self.width;
        let place = (i as u64 * self.distance + j as u64) + (down as u64 * self.distance + along as u64);
        (there, place as usize)
    }

    /// Where it is in shared memory, by the distances there between rows and columns.
    #[device_inline]
    fn shared(&self, number: u32, row: u32, column: u32) -> u32 {
        let ((i, j), (down, along)) = (self.first, self.split(number));
        (i * row + j * column) + (down * row + along * column)
    }

    /// [`TOGETHER`] of them, from the one that is so many elements on.
    ///
    /// # Safety
    /// `x` holds the tile's.
    #[device_inline]
    unsafe fn load<T: Element + From<u8>>(&self, x: Global<T>, number: u32) -> [T; TOGETHER as usize] {
        let mut loaded = [T::from(0); TOGETHER as usize];
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            let (there, place) = self.place(number + K as u32 * BLOCK);
            // SAFETY: the caller's; only what the tile has is loaded.
            loaded[K] = unsafe { x.load_if(there, place, loaded[K]) };
        });
        loaded
    }

    /// As [`Mine::load`].
    ///
    /// # Safety
    /// `y` holds the tile's.
    #[device_inline]
    unsafe fn store<T: Element>(&self, y: GlobalMut<T>, number: u32, values: [T; TOGETHER as usize]) {
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            let (there, place) = self.place(number + K as u32 * BLOCK);
            // SAFETY: the caller's; only what the tile has is stored.
            unsafe { y.store_if(there, place, values[K]) };
        });
    }
}

/// A copy by tiles that are turned in shared memory, of elements of 1, 2, 4 and 8 bytes; `LOG_EXTENT` of both sides is compiled in, or
/// 0.
///
/// # Safety
/// The module's; `LOG_EXTENT` is the tiles', or 0.
#[kernel(block = BLOCK, instances(T = [u8, u16, u32, u64], LOG_EXTENT = [0, 6]))]
pub unsafe fn permute_tiles<T: Element + From<u8>, const LOG_EXTENT: u32>(x: Global<T>, y: GlobalMut<T>, tiles: Tiles) {
    let tile = dynamic_shared::<T>();
    let [log_height, log_width] = if LOG_EXTENT > 0 { [LOG_EXTENT; 2] } else { tiles.log_extents };
    let pitch = pitch(size_of::<T>() as u32, log_width);
    let (first_x, first_y, [height, width]) = tiles.place();
    // SAFETY: elements of the tile exist; each thread stores its own in the tile's shared memory, and all have been stored where
    // they are loaded.
    unsafe {
        let (x, y) = (x.offset(first_x as usize), y.offset(first_y as usize));
        let mine = Mine::new(log_width, [height, width], tiles.sides[0].x);
        let mut number = 0;
        while mine.goes_on(number) {
            let loaded = mine.load(x, number);
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                let number = number + K as u32 * BLOCK;
                tile.store_if(mine.place(number).0, mine.shared(number, pitch, 1), loaded[K]);
            });
            number += BLOCK * TOGETHER;
        }
        thread::sync_threads();
        // Rows of `y` are the tile's columns.
        let mine = Mine::new(log_height, [width, height], tiles.sides[1].y);
        let mut number = 0;
        while mine.goes_on(number) {
            let mut turned = [T::from(0); TOGETHER as usize];
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                let number = number + K as u32 * BLOCK;
                turned[K] = tile.load_if(mine.place(number).0, mine.shared(number, 1, pitch), turned[K]);
            });
            mine.store(y, number, turned);
            number += BLOCK * TOGETHER;
        }
    }
}

/// A copy by tiles whose elements are loaded in the order that they are stored in, of elements of 1, 2, 4 and 8 bytes.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [u8, u16, u32, u64]))]
pub unsafe fn permute_rows<T: Element + From<u8>>(x: Global<T>, y: GlobalMut<T>, tiles: Tiles) {
    let [log_width, _] = tiles.log_extents;
    let (first_x, first_y, [width, height]) = tiles.place();
    let [from, to] =
        [tiles.sides[1].x, tiles.sides[1].y].map(|distance| Mine::new(log_width, [height, width], distance));
    // SAFETY: elements of the tile exist.
    unsafe {
        let (x, y) = (x.offset(first_x as usize), y.offset(first_y as usize));
        let mut number = 0;
        while from.goes_on(number) {
            to.store(y, number, from.load(x, number));
            number += BLOCK * TOGETHER;
        }
    }
}

/// `y[i] = x[place of i]`, of elements of 1, 2, 4 and 8 bytes.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [u8, u16, u32, u64]))]
pub unsafe fn permute<T: Element>(x: Global<T>, y: GlobalMut<T>, order: Order, n: u64) {
    let i = thread::block_idx_x() as u64 * BLOCK as u64 + thread::thread_idx_x() as u64;
    if i >= n {
        return;
    }
    let (mut rest, mut place) = (i, 0);
    // SAFETY: no size is zero where there are elements; the element and its place exist.
    unsafe {
        let mut dim = 0;
        while dim < DIMS {
            let size = order.sizes[dim];
            core::hint::assert_unchecked(size != 0);
            let quotient = rest / size;
            place += (rest - quotient * size) * order.strides[dim];
            rest = quotient;
            dim += 1;
        }
        y.store(i as usize, x.load(place as usize));
    }
}
