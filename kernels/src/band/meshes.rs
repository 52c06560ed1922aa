//! Forward by meshes, squares as large as windows are apart, over windows of some whole ones both ways.
//!
//! A thread loads a mesh straight from memory and leaves in shared memory what its elements give together; after a barrier a thread
//! takes the meshes of a window. So each input is loaded once, by one thread, with as many loads under way as a mesh has
//! elements, and what windows share is computed once. Threads go down columns, of meshes and of windows.

#![allow(clippy::redundant_comparisons, reason = "indices that unrolling makes constants, compared with the same size")]

use cuda_std::prelude::*;

use super::any::{Lines, for_each_below, of_outputs};
use super::choice::{Costs, Weights};
use super::{BandLaunch, Bands, Span};
use crate::window::{Nchw, Window};

/// What is left of a mesh: two words.
pub(crate) type Left = Vec2<u32>;

/// How blocks are laid over rows of outputs and the meshes of their windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meshes {
    /// Over columns and rows of outputs.
    bands: Bands,
    meshes: Lines,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Meshes {}

/// As kernels bound by their instructions, in small blocks: windows three apart of 9×9 positions took a tenth less with 7 rows by 3 than with 8
/// by 5.
const WEIGHTS: Weights = Weights { most_run: 7, most_rows: 21, once: 3.0, ..Weights::HEAVY };

impl Meshes {
    /// Of windows of so many meshes both ways and nothing else, of whose inputs an element has `bytes`, and the launch; none where
    /// windows are not such, or a row of outputs has no room in shared memory.
    pub fn new(window: &Window<Nchw>, groups: u32, bytes: usize) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] || window.size != window.stride.map(|stride| groups * stride) {
            return None;
        }
        let size = window.output.map(|outputs| outputs + groups - 1);
        let line = u64::from(size[1]) * size_of::<Left>() as u64;
        let shared = |rows, depth| depth * (rows + u64::from(groups) - 1) * line;
        let Costs { planes, height, plane_bytes, most_bytes, moved, .. } = of_outputs(window, bytes, &[], 0);
        let costs = Costs { planes, height, plane_bytes, most_bytes, moved, shared };
        let (bands, launch) = Bands::new(window.output[1], WEIGHTS, &costs)?;
        Some((Self { bands, meshes: Lines::new(size) }, launch))
    }

    /// What this block takes of windows of so many meshes.
    #[device_inline]
    pub(crate) fn laid<const STRIDE: usize, const GROUPS: usize>(&self) -> Laid<STRIDE, GROUPS> {
        let span = self.bands.block.span();
        let height = span.rows[1] - span.rows[0] + GROUPS as u32 - 1;
        Laid { span, bands: self.bands, meshes: self.meshes, height }
    }
}

/// What a block takes of windows of `GROUPS` meshes both ways, `STRIDE` apart.
#[derive(Clone, Copy)]
pub(crate) struct Laid<const STRIDE: usize, const GROUPS: usize> {
    pub span: Span,
    bands: Bands,
    meshes: Lines,
    /// Rows of meshes of each plane.
    height: u32,
}

/// An output of a block.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Its number in the tensor.
    pub number: usize,
    pub plane: u32,
    pub row: u32,
    pub column: u32,
}

impl<const STRIDE: usize, const GROUPS: usize> Laid<STRIDE, GROUPS> {
    /// Leaves what all of the block's meshes give: `of(value, row, column)` is what an element of `x` gives, `outside` where there
    /// is none, at this row of the block's and column of the padded image, and `merge` what two give of which the second comes after the
    /// first in row-major order of their mesh. A barrier is to follow.
    ///
    /// # Safety
    /// `x` holds the window's planes; the window is such, and the launch's shared memory is for the meshes.
    #[device_inline]
    pub(crate) unsafe fn leave<T: Storage, V: Copy>(
        &self,
        x: Global<T>,
        window: &Window<Nchw>,
        outside: f32,
        of: impl Fn(f32, u32, u32) -> V,
        merge: impl Fn(V, V) -> V,
        left: impl Fn(V) -> Left,
    ) {
        let [height, width] = window.input;
        let all = dynamic_shared::<u32>();
        let otherwise = T::from_f32(outside);
        let first_row = (self.span.rows[0] * STRIDE as u32).wrapping_sub(window.padding[0]);
        let first_plane = self.span.first_plane as usize * height as usize;
        // What lies before the image wraps round to far after it.
        let of_column = |column: u32| {
            let x = (column * STRIDE as u32).wrapping_sub(window.padding[1]);
            let mut inside = [false; STRIDE];
            unrolled!(J in [0 1 2 3] { if J < STRIDE { inside[J] = x.wrapping_add(J as u32) < width; } });
            (x, inside)
        };
        for_each_below(&self.meshes, self.span.depth * self.height, of_column, |(left_of, inside), column, line| {
            let plane = self.meshes.plane(&self.span, line);
            let row = (line - plane * self.height) * STRIDE as u32;
            let y = row.wrapping_add(first_row);
            let at = (first_plane + plane as usize * height as usize)
                .wrapping_add_signed(y.cast_signed() as isize)
                .wrapping_mul(width as usize)
                .wrapping_add_signed(left_of.cast_signed() as isize);
            let mut values = [[otherwise; STRIDE]; STRIDE];
            unrolled!(I in [0 1 2 3] {
                if I < STRIDE {
                    let here = y.wrapping_add(I as u32) < height;
                    let at = at.wrapping_add(I * width as usize);
                    unrolled!(J in [0 1 2 3] {
                        if J < STRIDE {
                            // SAFETY: loaded only where row and column are in the image.
                            values[I][J] = unsafe { x.load_if(here & inside[J], at.wrapping_add(J), otherwise) };
                        }
                    });
                }
            });
            let first = column * STRIDE as u32;
            let of = |i: usize, j: usize| of(values[i][j].to_f32(), row + i as u32, first + j as u32);
            let mut whole = of(0, 0);
            unrolled!(I in [0 1 2 3] { unrolled!(J in [0 1 2 3] {
                if I < STRIDE && J < STRIDE && (I, J) != (0, 0) { whole = merge(whole, of(I, J)); }
            }); });
            // SAFETY: the launch's shared memory has two words for each mesh.
            unsafe { all.store2((line * self.meshes.width + column) * 2, left(whole)) };
        });
    }

    /// Calls `f` with each output of this thread and what its window's meshes give: `along` is what is had of a row of them, and
    /// `merge` of a row and what is below it.
    ///
    /// # Safety
    /// All was [left](Self::leave), a barrier ago; the window is such.
    #[device_inline]
    pub(crate) unsafe fn take<A: Copy>(
        &self,
        window: &Window<Nchw>,
        along: impl Fn([Left; GROUPS]) -> A,
        merge: impl Fn(A, A) -> A,
        f: impl Fn(Output, A),
    ) {
        let (all, span) = (dynamic_shared::<u32>(), &self.span);
        let part = self.bands.part(span);
        let plane = window.output_plane(span.first_plane + part.plane);
        self.bands.for_each_column(&part, |column| {
            let mut at = (part.plane * self.height + part.rows[0] - span.rows[0]) * self.meshes.width + column;
            let mut next = || {
                let mut meshes = [Left::splat(0); GROUPS];
                unrolled!(J in [0 1 2] {
                    // SAFETY: the block has the meshes of its windows.
                    if J < GROUPS { meshes[J] = unsafe { all.load2((at + J as u32) * 2) }; }
                });
                at += self.meshes.width;
                along(meshes)
            };
            // SAFETY: of words; the first is left behind before it is used, the others are made next.
            let mut rows: [A; GROUPS] = unsafe { core::mem::zeroed() };
            unrolled!(I in [1 2] { if I < GROUPS { rows[I] = next(); } });
            let mut row = part.rows[0];
            let mut number = plane + row as usize * window.output_line() + column as usize;
            while row < part.rows[1] {
                unrolled!(I in [1 2] { if I < GROUPS { rows[I - 1] = rows[I]; } });
                rows[GROUPS - 1] = next();
                let mut all = rows[0];
                unrolled!(I in [1 2] { if I < GROUPS { all = merge(all, rows[I]); } });
                f(Output { number, plane: part.plane, row, column }, all);
                number += window.output_line();
                row += 1;
            }
        });
    }
}
