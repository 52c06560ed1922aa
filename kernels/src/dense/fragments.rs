//! A lane's products by FFMA: eight rows by `QUADS` fours of columns, of operands that lie depth by depth in shared memory.
//!
//! What limits is the way from the registers: there are two banks of them, of the even and of the odd, each of which gives one a clock,
//! and a cache that keeps an operand for the next instruction. So of each FFMA one operand is the one before's, a row's element, and
//! columns go by in an order in which the sums' registers and the columns' take both banks in turns. And the way from shared memory, which four
//! schedulers share: a load of 16 bytes takes some three of its clocks (by `ncu` on an H200), so that what is loaded at a depth is to be
//! multiplied often.

use cuda_std::prelude::*;

/// How far the second four of a lane's rows are from the first.
pub const ROWS_APART: u32 = 16;
/// How far a lane's quads of columns are apart.
pub const QUADS_APART: u32 = 32;
/// Rows of a lane.
pub const LANE_ROWS: u32 = 8;

/// A lane's sums.
pub type Sums<const QUADS: usize> = [[[f32; 4]; QUADS]; LANE_ROWS as usize];

/// The first row and the first column of a lane among its warp's: lanes are four down and eight across.
#[device_inline]
pub fn lane_place() -> [u32; 2] {
    let lane = thread::thread_idx_x() % warp::WARP_SIZE;
    [lane / 8 * 4, lane % 8 * 4]
}

/// Row `i` of the eight of a lane whose first is `row`.
#[device_inline]
pub fn row_of(row: u32, i: u32) -> u32 {
    row + i / 4 * ROWS_APART + i % 4
}

/// Where a lane's operands are in shared memory, from a depth on.
#[derive(Clone, Copy)]
pub struct Operands {
    pub rows: Shared<f32>,
    pub columns: Shared<f32>,
    /// How far the next depth's rows and columns are: constants.
    pub pitches: [u32; 2],
}

/// What a lane has in registers of the operands at one depth.
pub struct Fragments<const QUADS: usize> {
    rows: [Vec4<f32>; 2],
    columns: [Vec4<f32>; QUADS],
}

impl<const QUADS: usize> Fragments<QUADS> {
    /// Whether the next rows are loaded when these are done with, into their registers: threads of fewer sums have no others left.
    const ROWS_IN_PLACE: bool = QUADS < 4;

    /// Those at so many of depth from `operands` on.
    ///
    /// # Safety
    /// The operands are there.
    #[device_inline]
    pub unsafe fn load(operands: Operands, depth: u32) -> Self {
        // SAFETY: the caller's; all zeros is an array of floats.
        unsafe {
            let mut columns: [Vec4<f32>; QUADS] = core::mem::zeroed();
            unrolled!(Q in [0 1 2 3] {
                if Q < QUADS { columns[Q] = Self::load_quad(operands, depth, Q as u32); }
            });
            Self { rows: [0, 1].map(|four| Self::load_rows(operands, depth, four)), columns }
        }
    }

    /// The first or the second four of the rows.
    #[device_inline]
    unsafe fn load_rows(operands: Operands, depth: u32, four: u32) -> Vec4<f32> {
        // SAFETY: the caller's.
        unsafe { operands.rows.load4(depth * operands.pitches[0] + four * ROWS_APART) }
    }

    #[device_inline]
    unsafe fn load_quad(operands: Operands, depth: u32, quad: u32) -> Vec4<f32> {
        // SAFETY: the caller's.
        unsafe { operands.columns.load4(depth * operands.pitches[1] + quad * QUADS_APART) }
    }

    /// Adds to the sums what one depth gives, and loads the fragments at another.
    ///
    /// # Safety
    /// As [`Fragments::load`].
    #[device_inline]
    pub unsafe fn multiply(&mut self, sums: &mut Sums<QUADS>, next: Operands, depth: u32) {
        let Self { rows: [low, high], columns } = *self;
        // A row's sums, and back again the next one's: the last column's element is the next row's first.
        macro_rules! there {
            ($r:literal $a:expr) => {
                unrolled!(Q in [0 1 2 3] {
                    if Q < QUADS {
                        let Vec4 { x, y, z, w } = columns[Q];
                        sums[$r][Q][1] = float::fma($a, y, sums[$r][Q][1]);
                        sums[$r][Q][0] = float::fma($a, x, sums[$r][Q][0]);
                        sums[$r][Q][3] = float::fma($a, w, sums[$r][Q][3]);
                        sums[$r][Q][2] = float::fma($a, z, sums[$r][Q][2]);
                    }
                });
            };
        }
        macro_rules! back {
            ($r:literal $a:expr) => {
                unrolled!(Q in [3 2 1 0] {
                    if Q < QUADS {
                        let Vec4 { x, y, z, w } = columns[Q];
                        sums[$r][Q][2] = float::fma($a, z, sums[$r][Q][2]);
                        sums[$r][Q][3] = float::fma($a, w, sums[$r][Q][3]);
                        sums[$r][Q][0] = float::fma($a, x, sums[$r][Q][0]);
                        sums[$r][Q][1] = float::fma($a, y, sums[$r][Q][1]);
                    }
                });
            };
        }
        macro_rules! load {
            (columns $q:literal) => {
                if $q < QUADS {
                    // SAFETY: the caller's.
                    self.columns[$q] = unsafe { Self::load_quad(next, depth, $q as u32) };
                }
            };
            (rows $four:literal if $now:expr) => {
                if $now {
                    // SAFETY: the caller's.
                    self.rows[$four] = unsafe { Self::load_rows(next, depth, $four as u32) };
                }
            };
        }
        load!(rows 0 if !Self::ROWS_IN_PLACE);
        load!(rows 1 if !Self::ROWS_IN_PLACE);
        load!(columns 0);
        there!(0 low.x);
        load!(columns 1);
        back!(1 low.y);
        load!(columns 2);
        there!(2 low.z);
        load!(columns 3);
        back!(3 low.w);
        load!(rows 0 if Self::ROWS_IN_PLACE);
        there!(4 high.x);
        back!(5 high.y);
        there!(6 high.z);
        back!(7 high.w);
        load!(rows 1 if Self::ROWS_IN_PLACE);
    }
}
