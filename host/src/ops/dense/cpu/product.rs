//! Products by the crate `gemm`, cut up into blocks that threads take turns at.
//!
//! A block copies what it needs of its operands to where the product reads it fast, converted and turned on the way, so that neither
//! takes a pass of its own. How a product is cut depends on its sizes only, and so does the order of its sums.

use std::ops::Range;

use gemm::Parallelism;
use multiversion::multiversion;

use super::turns::{Job, SHARED};
use crate::{Compute, Real};

/// Terms of a sum that are added in one go: what `gemm` takes of a block at a time stays in the second cache.
const DEPTH: usize = 512;
/// Blocks that keep several threads busy to the end.
const BLOCKS: usize = 8;
/// Rows of a block are a multiple of this, where there are more, and columns of that: whole tiles of `gemm` with AVX-512.
const TILE_OF: [usize; 2] = [12, 64];
/// Rows and columns of a block at most. More rows than columns: what a block turns and packs of the right operand pays for all rows.
const MOST: [usize; 2] = [1032, 256];
/// The same where the left operand is turned, which each block does, too.
const MOST_TURNED: [usize; 2] = [516, 1024];
/// Rows and columns from which on a block is halved for there to be more.
const HALVED: [usize; 2] = [264, 128];
/// Times that an element is used from which on it pays to turn an operand.
const USES: usize = 96;
/// Lines and columns that are turned together.
const TILE: usize = 16;

/// A matrix over a slice whose lines, rows or columns, are one after another.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, E> {
    elements: &'a [E],
    /// From line to line.
    stride: usize,
    /// Whether lines are columns.
    turned: bool,
}

impl<'a, E: Real> Matrix<'a, E> {
    /// Rows of this length.
    pub fn rows(elements: &'a [E], length: usize) -> Self {
        Self { elements, stride: length, turned: false }
    }

    /// Columns of this length: the transpose of [`Matrix::rows`].
    pub fn columns(elements: &'a [E], length: usize) -> Self {
        Self { elements, stride: length, turned: true }
    }

    /// These rows and columns, in memory; where `turn` says so, with lines the other way.
    fn block<'r>(
        &'r self,
        rows: Range<usize>,
        columns: Range<usize>,
        turn: bool,
        copy: &'r mut Vec<E::Compute>,
        strip: &mut Vec<E::Compute>,
    ) -> View<'r, E::Compute> {
        let (lines, along) = if self.turned { (columns, rows) } else { (rows, columns) };
        let (first, count, length) = (lines.start * self.stride + along.start, lines.len(), along.len());
        let zero = E::Compute::of(0.0);
        let widen = |first: usize, out: &mut [E::Compute]| E::widen_all(&self.elements[first..][..length], out);
        let view =
            |elements, stride, turned| View { elements, strides: if turned { [1, stride] } else { [stride, 1] } };
        if turn {
            // No power of two, so that not all lines are at the same place of the caches.
            let stride = count.next_multiple_of(TILE) + TILE;
            copy.resize(stride * length, zero);
            for start in (0..count).step_by(TILE) {
                let tile = TILE.min(count - start);
                let (first, out) = (first + start * self.stride, &mut copy[start..]);
                if let Some(elements) = E::as_compute(self.elements) {
                    turn_strip(&elements[first..], self.stride, [tile, length], out, stride);
                    continue;
                }
                strip.resize(TILE * length, zero);
                for (line, out) in strip.chunks_exact_mut(length).take(tile).enumerate() {
                    widen(first + line * self.stride, out);
                }
                turn_strip(strip, length, [tile, length], out, stride);
            }
            return view(copy, stride, !self.turned);
        }
        if let Some(elements) = E::as_compute(self.elements) {
            return view(&elements[first..], self.stride, self.turned);
        }
        copy.resize(count * length, zero);
        for (line, out) in copy.chunks_exact_mut(length).enumerate() {
            widen(first + line * self.stride, out);
        }
        view(copy, length, self.turned)
    }
}

/// `out[at * stride + line] = lines[line][at]`, for at most [`TILE`] lines.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn turn_strip<C: Compute>(lines: &[C], from: usize, [count, length]: [usize; 2], out: &mut [C], stride: usize) {
    let whole = if count == TILE { length / TILE * TILE } else { 0 };
    for at in (0..whole).step_by(TILE) {
        let mut tile = [[C::zero(); TILE]; TILE];
        for (line, tile) in tile.iter_mut().enumerate() {
            tile.copy_from_slice(&lines[line * from + at..][..TILE]);
        }
        for column in 0..TILE {
            let out = &mut out[(at + column) * stride..][..TILE];
            out.iter_mut().zip(&tile).for_each(|(out, line)| *out = line[column]);
        }
    }
    for at in whole..length {
        for (line, out) in out[at * stride..][..count].iter_mut().enumerate() {
            *out = lines[line * from + at];
        }
    }
}

/// Memory of the blocks that one thread makes.
#[derive(Default)]
pub(super) struct Room<C> {
    lhs: Vec<C>,
    rhs: Vec<C>,
    strip: Vec<C>,
    sums: Vec<C>,
}

/// `lhs · rhs`, of this shape, sums of `depth` terms.
#[derive(Clone, Copy)]
pub(super) struct Product<'a, L, R> {
    pub lhs: Matrix<'a, L>,
    pub rhs: Matrix<'a, R>,
    pub shape: [usize; 2],
    pub depth: usize,
}

impl<'a, C: Compute, L: Real<Compute = C>, R: Real<Compute = C>> Product<'a, L, R> {
    /// Makes it in blocks, one job each. `put` gets rows of sums, the columns that they are of, and where these are in `outs`,
    /// matrices of this product's shape.
    pub fn jobs<T: Real<Compute = C>, const N: usize>(
        self,
        outs: [&'a mut [T]; N],
        put: impl Fn(&mut [C], Range<usize>, [&mut [T]; N]) + Copy + Send + 'a,
    ) -> impl Iterator<Item = Job<'a, Room<C>>> {
        let [rows, columns] = self.shape;
        let [rows_each, columns_each] = cut(&self);
        let mut outs = outs.map(|out| blocks(out, columns, [rows_each, columns_each]).into_iter());
        let starts = (0..rows)
            .step_by(rows_each)
            .flat_map(move |row| (0..columns).step_by(columns_each).map(move |column| (row, column)));
        starts.map(move |(row, column)| {
            let (of_rows, of_columns) = (row..rows.min(row + rows_each), column..columns.min(column + columns_each));
            let mut outs =
                outs.each_mut().map(|blocks| blocks.next().expect("as many blocks as there are").into_iter());
            Job::new(of_rows.len() * of_columns.len() * self.depth, move |room| {
                let sums = self.block(of_rows, of_columns.clone(), room);
                for sums in sums.chunks_exact_mut(of_columns.len()) {
                    put(
                        sums,
                        of_columns.clone(),
                        outs.each_mut().map(|rows| rows.next().expect("as many rows as of sums")),
                    );
                }
            })
        })
    }

    /// The sums of these rows and columns.
    fn block<'r>(&self, rows: Range<usize>, columns: Range<usize>, room: &'r mut Room<C>) -> &'r mut [C] {
        let Room { lhs: left, rhs: right, strip, sums } = room;
        let shape = [rows.len(), columns.len()];
        sums.resize(shape[0] * shape[1], C::zero());
        if self.depth == 0 {
            sums.fill(C::zero());
        }
        let step = self.depth.div_ceil(self.depth.div_ceil(DEPTH).max(1)).max(1);
        for start in (0..self.depth).step_by(step) {
            let depth = start..self.depth.min(start + step);
            // Fastest is a right operand whose rows are whole; `gemm` turns the left one as fast.
            let lhs = self.lhs.block(rows.clone(), depth.clone(), false, left, strip);
            let turn = self.rhs.turned && shape[0] >= USES;
            let rhs = self.rhs.block(depth.clone(), columns.clone(), turn, right, strip);
            multiply(lhs, rhs, shape, depth.len(), sums, start > 0);
        }
        sums
    }
}

/// Rows and columns of a block.
fn cut<L, R>(product: &Product<'_, L, R>) -> [usize; 2] {
    let shape = product.shape;
    let shared = shape[0].saturating_mul(shape[1]).saturating_mul(product.depth) >= SHARED;
    let mut most = if product.lhs.turned { MOST_TURNED } else { MOST };
    loop {
        let each = [0, 1].map(|side| {
            let size = shape[side].max(1);
            size.div_ceil(size.div_ceil(most[side])).next_multiple_of(TILE_OF[side])
        });
        let count = shape[0].div_ceil(each[0]) * shape[1].div_ceil(each[1]);
        let shorter = usize::from(each[1] <= each[0]);
        match [shorter, 1 - shorter].into_iter().find(|&side| each[side] >= HALVED[side]) {
            Some(side) if shared && count < BLOCKS => most[side] = each[side] / 2,
            _ => return each,
        }
    }
}

/// The rows of each block of `out`, block after block, those of the first rows first.
fn blocks<T>(out: &mut [T], columns: usize, [rows_each, columns_each]: [usize; 2]) -> Vec<Vec<&mut [T]>> {
    let mut all = Vec::new();
    for rows in out.chunks_mut(rows_each * columns) {
        let first = all.len();
        all.extend((0..columns.div_ceil(columns_each)).map(|_| Vec::with_capacity(rows_each)));
        for row in rows.chunks_exact_mut(columns) {
            for (block, piece) in all[first..].iter_mut().zip(row.chunks_mut(columns_each)) {
                block.push(piece);
            }
        }
    }
    all
}

/// Elements and the distances from row to row and from column to column.
#[derive(Clone, Copy)]
struct View<'a, C> {
    elements: &'a [C],
    strides: [usize; 2],
}

impl<C> View<'_, C> {
    /// Whether element `[rows - 1, columns - 1]`, and so every one, is in the slice.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        let [row, column] = self.strides;
        rows == 0 || columns == 0 || (rows - 1) * row + (columns - 1) * column < self.elements.len()
    }
}

/// `out = lhs · rhs`, or is added to, `out` row-major of this shape.
fn multiply<C: Compute>(
    lhs: View<'_, C>,
    rhs: View<'_, C>,
    [rows, columns]: [usize; 2],
    depth: usize,
    out: &mut [C],
    add: bool,
) {
    assert!(lhs.holds(rows, depth) && rhs.holds(depth, columns) && out.len() == rows * columns);
    let ([lhs_row, lhs_column], [rhs_row, rhs_column]) = (lhs.strides, rhs.strides);
    // SAFETY: every element that the shapes and strides name is in its slice, as just checked; `out` is borrowed mutably and so
    // is no part of the others; `C` is f32 or f64, which the crate computes.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            out.as_mut_ptr(),
            1,
            columns as isize,
            add,
            lhs.elements.as_ptr(),
            lhs_column as isize,
            lhs_row as isize,
            rhs.elements.as_ptr(),
            rhs_column as isize,
            rhs_row as isize,
            C::of(1.0),
            C::of(1.0),
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
