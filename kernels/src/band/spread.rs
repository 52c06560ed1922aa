//! Backward over windows of any size by meshes: squares of inputs as large as windows are apart.
//!
//! The same windows are over all inputs of a mesh, but for one more row and column of them over its first rows and columns where a
//! window's size is no multiple of the stride. What outputs give lies in shared memory, with zeros where there are none, so that
//! no thread asks which there are; a thread takes a mesh, and its sums go through shared memory to be stored in vectors.

use cuda_std::prelude::*;

use super::any::{Lines, for_four_below};
use super::choice::{Costs, MOST_BYTES, Weights};
use super::{BandLaunch, Bands, Span, Tile, least, staged_bytes};
use crate::window::{Nchw, Window};

/// How blocks are laid over meshes of inputs, whose rows and columns have the number of the last output over them; a thread has a
/// column of meshes and a run of rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    bands: Bands,
    /// Rows and columns of outputs that are in shared memory, with what is beside them.
    given: Lines,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Spread {}

/// As kernels bound by their instructions, in small blocks: windows three apart of 9×9 positions took least with 5 rows by 3.
const WEIGHTS: Weights = Weights { most_run: 5, most_rows: 15, ..Weights::HEAVY };

impl Spread {
    /// Of windows of so many whole meshes both ways, of whose inputs an element has `bytes`, and the launch; none where a row of
    /// meshes has no room in shared memory.
    pub fn new(window: &Window<Nchw>, groups: u32, bytes: usize) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] {
            return None;
        }
        let size = [0, 1].map(|axis| {
            let (stride, padding) = (window.stride[axis], window.padding[axis]);
            (window.input[axis] - 1 + padding) / stride + 1 - padding / stride
        });
        let given = Lines::new([size[0] + groups, size[1] + groups]);
        let [height, stride, whole] = [window.input[0], window.stride[0], window.output[0]].map(u64::from);
        let [width, narrow, wide] = [window.input[1], window.output[1], given.width].map(u64::from);
        let (groups, bytes, sum) = (u64::from(groups), bytes as u64, size_of::<f32>() as u64);
        let costs = Costs {
            planes: window.planes,
            height: size[0],
            plane_bytes: (whole * narrow + height * width) * bytes,
            most_bytes: MOST_BYTES,
            moved: |rows| (whole.min(rows + groups) * narrow + rows * stride * width) * bytes,
            shared: |rows, depth| {
                let inputs = height.min(rows * stride);
                staged_bytes(depth * (rows + groups) * wide * sum) + staged_bytes(depth * inputs * width * sum)
            },
        };
        let (bands, launch) = Bands::new(size[1], WEIGHTS, &costs)?;
        Some((Self { bands, given }, launch))
    }

    /// What this block takes of windows of `GROUPS` whole meshes both ways, `STRIDE` apart.
    ///
    /// # Safety
    /// The launch is this one's.
    #[device_inline]
    pub(crate) unsafe fn laid<const STRIDE: usize, const GROUPS: usize>(
        &self,
        window: &Window<Nchw>,
    ) -> Laid<STRIDE, GROUPS> {
        let (span, stride) = (self.bands.block.span(), STRIDE as u32);
        let first = [0, 1].map(|axis| window.padding[axis] / stride);
        let [begin, end] = span.rows.map(|row| ((row + first[0]) * stride).saturating_sub(window.padding[0]));
        let lines = span.rows[1] - span.rows[0] + GROUPS as u32;
        let given = dynamic_shared::<f32>();
        // SAFETY: the launch's shared memory is for what is given and for the inputs.
        let tile = unsafe {
            let behind = given.offset((span.depth * lines * self.given.width + 3) & !3);
            Tile::new(behind, &span, [begin, least(end, window.input[0])], window.input)
        };
        Laid { spread: *self, span, first, lines, given, tile }
    }
}

/// What a block takes.
#[derive(Clone, Copy)]
pub(crate) struct Laid<const STRIDE: usize, const GROUPS: usize> {
    spread: Spread,
    span: Span,
    /// The first row and column of meshes.
    first: [u32; 2],
    /// Rows of outputs of each plane.
    lines: u32,
    given: Shared<f32>,
    tile: Tile,
}

impl<const STRIDE: usize, const GROUPS: usize> Laid<STRIDE, GROUPS> {
    /// Puts what outputs give into shared memory: `give(dy, row, column)` of the output there, and zero where there is none. A barrier is
    /// to follow.
    ///
    /// # Safety
    /// `dy` holds the outputs; the window is such, and the launch its [`Spread`]'s.
    #[device_inline]
    pub(crate) unsafe fn put<T: Storage>(
        &self,
        dy: Global<T>,
        window: &Window<Nchw>,
        give: impl Fn(f32, u32, u32) -> f32,
    ) {
        let (given, groups, count) = (&self.spread.given, GROUPS as u32, self.span.depth * self.lines);
        // What lies before the first output wraps round to far after it.
        let of_column = |column: u32| (column + self.first[1]).wrapping_sub(groups);
        let first_row = (self.span.rows[0] + self.first[0]).wrapping_sub(groups);
        for_four_below(given, count, of_column, |output, column, lines| {
            let none = T::from_f32(0.0);
            let (mut rows, mut gives) = ([0; 4], [none; 4]);
            unrolled!(K in [0 1 2 3] {
                let plane = given.plane(&self.span, lines[K]);
                rows[K] = (lines[K] - plane * self.lines).wrapping_add(first_row);
                let inside = (rows[K] < window.output[0]) & (output < window.output[1]) & (lines[K] < count);
                let at = window.output_plane(self.span.first_plane + plane);
                let at = at.wrapping_add(rows[K] as usize * window.output_line() + output as usize);
                // SAFETY: loaded only where the output is there.
                gives[K] = unsafe { dy.load_if(inside, at, none) };
            });
            unrolled!(K in [0 1 2 3] {
                let gives = give(gives[K].to_f32(), rows[K], output);
                // SAFETY: shared memory has these rows.
                unsafe { self.given.store_if(lines[K] < count, lines[K] * given.width + column, gives) };
            });
        });
    }

    /// Stores in `dx` what outputs give: `along(outputs)` is what is had of a row of the outputs that may be over a mesh, the first of which is over
    /// its first columns only, or over none, and `down(before, last)` what the rows of a mesh get of as many rows of outputs, the
    /// first of which likewise. A barrier is within.
    ///
    /// # Safety
    /// All was [put](Self::put), a barrier ago; `dx` holds the window's inputs and begins at a multiple of 16 bytes.
    #[device_inline]
    pub(crate) unsafe fn store<T: Storage, A: Copy>(
        &self,
        dx: GlobalMut<T>,
        beta: f32,
        window: &Window<Nchw>,
        along: impl Fn(Along) -> A,
        down: impl Fn([A; GROUPS], A) -> [[f32; STRIDE]; STRIDE],
    ) {
        let (bands, [height, width], stride) = (&self.spread.bands, window.input, STRIDE as u32);
        let part = bands.part(&self.span);
        let pitch = self.spread.given.width;
        let sums = self.tile.sums();
        bands.for_each_column(&part, |column| {
            let mut at = (part.plane * self.lines + part.rows[0] - self.span.rows[0]) * pitch + column;
            let mut y = ((part.rows[0] + self.first[0]) * stride).wrapping_sub(window.padding[0]);
            let x = ((column + self.first[1]) * stride).wrapping_sub(window.padding[1]);
            let mut place = self.tile.place(part.plane, y, x);
            let mut inside = [false; STRIDE];
            unrolled!(J in [0 1 2 3] { if J < STRIDE { inside[J] = x.wrapping_add(J as u32) < width; } });
            let mut next = || {
                let here = along(Along { given: self.given, at });
                at += pitch;
                here
            };
            let mut before = [next(); GROUPS];
            unrolled!(G in [1 2] { if G < GROUPS { before[G] = next(); } });
            let mut row = part.rows[0];
            while row < part.rows[1] {
                let last = next();
                let values = down(before, last);
                // Where all rows are there, no thread asks for each.
                let all = y < height.saturating_sub(stride - 1);
                unrolled!(I in [0 1 2 3] {
                    if I < STRIDE {
                        let here = all | (y.wrapping_add(I as u32) < height);
                        let place = place.wrapping_add(I as u32 * width);
                        unrolled!(J in [0 1 2 3] {
                            if J < STRIDE {
                                // SAFETY: the tile has the inputs of the block's meshes, and each belongs to one thread.
                                unsafe { sums.store_if(here & inside[J], place.wrapping_add(J as u32), values[I][J]) };
                            }
                        });
                    }
                });
                unrolled!(G in [1 2] { if G < GROUPS { before[G - 1] = before[G]; } });
                before[GROUPS - 1] = last;
                y = y.wrapping_add(stride);
                place = place.wrapping_add(stride * width);
                row += 1;
            }
        });
        // SAFETY: the caller's.
        unsafe { self.tile.write_out(dx, beta) };
    }
}

/// What a row of outputs gives that may be over a mesh.
#[derive(Clone, Copy)]
pub(crate) struct Along {
    given: Shared<f32>,
    at: u32,
}

impl Along {
    /// What is given by the output so many columns after the first.
    ///
    /// # Safety
    /// They are no more than the window's whole meshes.
    #[device_inline]
    pub(crate) unsafe fn by(self, column: usize) -> f32 {
        // SAFETY: the caller's: what may be over a mesh is in shared memory.
        unsafe { self.given.load(self.at + column as u32) }
    }
}
