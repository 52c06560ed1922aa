//! Row-major planes abreast: a warp goes down the rows of as many planes at once as it has lanes for, or of a strip of one.
//!
//! A row of the warp's planes is loaded, and stored, element after element: each lane has every 32nd of it, whatever the planes' width, and all lanes are
//! busy. By way of shared memory a lane has a run of neighbouring columns of outputs of one plane; runs have an odd length, so that lanes' columns are in
//! different banks. What a warp has worked out it stores some rows at a time, which are one after the other in memory where its part has whole ones: rows
//! seldom end where the memory's sectors do, and those that are written in parts take longer. A warp is a block, and waits for nobody.

use cuda_std::prelude::*;

use crate::window::Divider;

/// Threads of a block: a warp.
pub const ABREAST_BLOCK: u32 = warp::WARP_SIZE;

/// How warps lie over planes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abreast {
    /// Planes of a warp.
    pub planes: u32,
    /// Lanes of each plane.
    pub lanes: u32,
    /// Columns of outputs of a lane.
    pub run: u32,
    /// Rows and columns of a part of a plane: of its outputs forward, of its inputs backward.
    pub part: [u32; 2],
    /// By a part's columns.
    pub by_columns: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Abreast {}

/// Rows that are stored together.
pub const TOGETHER: u32 = 4;

/// What a warp has: the first of its planes and how many these are, and the first row and column of its part and how many it has of each.
pub(crate) struct Part {
    pub plane: u32,
    pub planes: u32,
    pub first: [u32; 2],
    pub count: [u32; 2],
}

impl Abreast {
    /// This warp's of so many planes of so many rows and columns. The grid has a block for each group of planes, for each part down and across.
    #[device_inline]
    pub(crate) fn part(&self, planes: u32, size: [u32; 2]) -> Part {
        let plane = thread::block_idx_x() * self.planes;
        let first = [thread::block_idx_y() * self.part[0], thread::block_idx_z() * self.part[1]];
        let count = [0, 1].map(|axis| self.part[axis].min(size[axis] - first[axis]));
        Part { plane, planes: self.planes.min(planes - plane), first, count }
    }
}

/// What a warp stores, some rows of each of its planes at a time.
pub(crate) trait Out {
    /// The four elements of a plane from the `i`th on, of rows that are one after the other in memory, at a multiple of four.
    fn four(&self, plane: u32, i: u32);
    /// That of a plane, so many rows down and in so many columns, which are past the row where rows are one after the other.
    fn one(&self, plane: u32, row: u32, column: u32);
}

impl Part {
    /// Stores the next `rows`, up to [`TOGETHER`], of planes of so many elements and columns.
    #[device_inline]
    pub(crate) fn store(&self, abreast: &Abreast, (of_plane, width): (u32, u32), rows: u32, out: &impl Out) {
        let ([first, _], [_, columns]) = (self.first, self.count);
        let are_whole = columns == width;
        // Planes begin at multiples of four elements, as memory does, and so do the parts of these.
        if are_whole & (rows == TOGETHER) & ((of_plane | first.wrapping_mul(width)).is_multiple_of(TOGETHER)) {
            let mut i = warp::lane_id();
            while i < self.planes * columns {
                let plane = abreast.by_columns.divide(i);
                out.four(plane, TOGETHER * (i - plane * columns));
                i += warp::WARP_SIZE;
            }
        } else {
            let (rows, columns) = if are_whole { (1, rows * columns) } else { (rows, columns) };
            for plane in 0..self.planes {
                for row in 0..rows {
                    let mut column = warp::lane_id();
                    while column < columns {
                        out.one(plane, row, column);
                        column += warp::WARP_SIZE;
                    }
                }
            }
        }
    }
}

/// From `least` on the first multiple of four that leaves, of 32, what so many lanes' runs leave, about: so far apart in shared memory planes' rows are in
/// different banks.
pub(crate) const fn pitch(least: u32, of_lanes: u32) -> u32 {
    let least = least.next_multiple_of(4);
    least + of_lanes.next_multiple_of(4).wrapping_sub(least) % warp::WARP_SIZE
}

/// A row of the warp's planes, of which a lane has up to `N` elements, every 32nd.
pub(crate) struct Line<const N: usize> {
    /// Whether the lane has its first element, in the lowest bit, its second, and so on.
    there: u32,
    /// The plane of each of the lane's, counted from the warp's first, and the column, from the row's first.
    pub plane: [u32; N],
    pub column: [u32; N],
    /// Where it is in the planes, from the first plane's row on.
    at: [u32; N],
}

impl<const N: usize> Line<N> {
    /// Of so many columns of planes of so many elements; no more than 32 times `N` in all planes.
    #[device_inline]
    pub fn new(planes: u32, columns: u32, of_plane: u32) -> Self {
        let mut line = Self { there: 0, plane: [0; N], column: [0; N], at: [0; N] };
        let (mut plane, mut column) = (0, warp::lane_id());
        unrolled!(I in [0 1 2 3 4 5 6] { if I < N {
            while column >= columns && plane < planes {
                column -= columns;
                plane += 1;
            }
            (line.plane[I % N], line.column[I % N]) = (plane, column);
            line.at[I % N] = plane.wrapping_mul(of_plane).wrapping_add(column);
            line.there |= u32::from(plane < planes) << I;
            column += warp::WARP_SIZE;
        } });
        line
    }

    /// Whether the lane has this element.
    #[device_inline]
    pub fn has(&self, i: usize) -> bool {
        self.there & 1 << i != 0
    }

    /// Where the lane's element is if the first plane's row begins at `line`. By 32 bits, and from the planes' beginning: else the compiler keeps an address
    /// for each.
    #[device_inline]
    pub fn at(&self, i: usize, line: u32) -> usize {
        self.at[i % N].wrapping_add(line) as usize
    }

    /// Loads the lane's elements of the row that begins at `line`, if it `is` one.
    ///
    /// # Safety
    /// `planes`, where the warp's begin, have that row, then.
    #[device_inline]
    pub unsafe fn load<T: Element>(&self, planes: Global<T>, is: bool, line: u32, otherwise: T) -> [T; N] {
        let mut loaded = [otherwise; N];
        unrolled!(I in [0 1 2 3 4 5 6] { if I < N {
            // SAFETY: the caller's.
            loaded[I % N] = unsafe { planes.load_if(is & self.has(I), self.at(I, line), otherwise) };
        } });
        loaded
    }
}
