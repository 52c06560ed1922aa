//! Work along y, on whole rows.

use std::iter;
use std::ops::Range;

use smallvec::SmallVec;

use super::columns::{Columns, Terms};
use super::parts::Parts;
use super::sums::{Runs, Steps, Term, weighted_sums};
use crate::device::widened;
use crate::ops::gaussian_pool::plan::Axis;
use crate::ops::gaussian_pool::weights::{Factor, Weights};
use crate::{Compute, Real};

/// Rows of one plane, from row `first` on.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    values: &'a [T],
    first: usize,
    /// Elements of a row.
    pub line: usize,
}

impl<'a, C: Compute> Rows<'a, C> {
    /// Some rows of a plane, to compute with; in `room`, where they have to be converted for that.
    pub fn of<T: Real<Compute = C>>(plane: &'a [T], rows: &Range<usize>, line: usize, room: &'a mut Vec<C>) -> Self {
        let values = widened(&plane[rows.start * line..rows.end * line], room);
        Self { values, first: rows.start, line }
    }

    /// Those of several planes whose elements alternate.
    pub fn apart(self, planes: usize, room: &'a mut Vec<C>) -> impl Iterator<Item = Self> {
        let length = self.values.len() / planes;
        let order = Parts { count: planes, lanes: 1, rows: 1, length };
        let values = order.of(self.values, self.values.len().max(1), room);
        (0..planes).map(move |i| Self { values: &values[i * length..][..length], line: self.line / planes, ..self })
    }
}

impl<'a, T: Real> Rows<'a, T> {
    /// Some rows of a plane, as they are: converted as often as they are read.
    pub fn unconverted(plane: &'a [T], rows: &Range<usize>, line: usize) -> Self {
        Self { values: &plane[rows.start * line..rows.end * line], first: rows.start, line }
    }

    /// From one row to another.
    pub fn rows(&self, rows: &Range<usize>) -> &'a [T] {
        &self.values[self.place(rows.start)..self.place(rows.end)]
    }

    /// Where a row begins.
    fn place(&self, row: usize) -> usize {
        (row - self.first) * self.line
    }

    /// Each of some rows of outputs becomes the sum over its windows of weight times row.
    pub fn pool<W: Factor<T::Compute>>(
        &self,
        axis: &Axis,
        weights: &Weights<W>,
        outputs: &Range<usize>,
        out: &mut [T::Compute],
    ) {
        for Alike { output, count, inside, row } in alike(axis, outputs) {
            let weights = &weights.case(axis.case(output))[inside];
            let terms: Vec<_> = weights.iter().zip((row..).map(|row| self.place(row))).collect();
            let rows = Steps { count, sums: self.line, values: axis.stride * self.line };
            let runs = Runs { length: self.line, columns: Steps::ONCE, rows };
            weighted_sums(&mut out[(output - outputs.start) * self.line..], self.values, &terms, runs);
        }
    }

    /// Each of some rows of outputs becomes the sum over both axes of its windows at once, so that no sums along y are written.
    pub fn pool_windows<W: Factor<T::Compute>>(
        &self,
        axis: &Axis,
        weights: &Weights<W>,
        columns: &Columns<'_>,
        Terms(along_x): &Terms<'_, W>,
        outputs: &Range<usize>,
        out: &mut [T::Compute],
    ) {
        let line = out.len() / outputs.len();
        for Alike { output, count, inside, row } in alike(axis, outputs) {
            let weights = &weights.case(axis.case(output))[inside];
            for (first, across, along_x) in along_x {
                let mut products = SmallVec::<[_; 16]>::new();
                for (weight, row) in weights.iter().zip(row..) {
                    let place = self.place(row);
                    products.extend(along_x.iter().map(|(by_x, column)| (weight.times(by_x), place + column)));
                }
                let terms: SmallVec<[Term<'_, W>; 16]> = products.iter().map(|(w, place)| (w, *place)).collect();
                let runs = columns.windows(*across, Steps { count, sums: line, values: axis.stride * self.line });
                let out = &mut out[(output - outputs.start) * line + first * runs.length..];
                weighted_sums(out, self.values, &terms, runs);
            }
        }
    }

    /// The transpose: each row of the image becomes the sum over the outputs that cover it, of which these are rows. In `out`
    /// they are so many elements apart.
    pub fn gather<W: Factor<T::Compute>>(
        &self,
        axis: &Axis,
        weights: &Weights<W>,
        covered: &[Covered],
        out: &mut [T::Compute],
        step: usize,
    ) {
        for Covered { row, place, count, by } in covered {
            let term =
                |output: usize| (&weights.case(axis.case(output))[place - output * axis.stride], self.place(output));
            let terms: Vec<_> = by.clone().map(term).collect();
            let rows = Steps { count: *count, sums: axis.stride * step, values: self.line };
            let runs = Runs { length: self.line, columns: Steps::ONCE, rows };
            weighted_sums(&mut out[row * step..], self.values, &terms, runs);
        }
    }
}

/// Outputs next to each other whose windows have the same positions in the image.
struct Alike {
    /// The first, and how many.
    output: usize,
    count: usize,
    inside: Range<usize>,
    /// The row of the image at the first's first position.
    row: usize,
}

/// Of some outputs.
fn alike(axis: &Axis, outputs: &Range<usize>) -> impl Iterator<Item = Alike> {
    let (mut output, end) = (outputs.start, outputs.end);
    iter::from_fn(move || {
        let inside = (output < end).then(|| axis.inside(output))?;
        let whole = (axis.leading..axis.trailing).contains(&output);
        let count = if whole { axis.trailing.min(end) - output } else { 1 };
        let alike = Alike { output, count, row: output * axis.stride + inside.start - axis.padding, inside };
        output += count;
        Some(alike)
    })
}

/// Rows of an image, a stride apart, that outputs cover at the same positions.
pub(super) struct Covered {
    /// The first, of those that are asked for.
    pub row: usize,
    /// And of all, padding included.
    place: usize,
    count: usize,
    /// What covers the first; the next one is covered by the outputs after these.
    pub by: Range<usize>,
}

/// Of some rows.
pub(super) fn covered(axis: &Axis, rows: &Range<usize>) -> Vec<Covered> {
    let (mut all, shared) = (Vec::new(), axis.shared());
    for remainder in 0..axis.stride.min(rows.len()) {
        let mut row = remainder;
        while row < rows.len() {
            let (place, by) = (rows.start + row + axis.padding, axis.covering(rows.start + row));
            // Whether neither the image's edge nor the last output cuts off what covers it, and all have the same weights.
            let whole = place + 1 >= axis.size && place / axis.stride < shared.end && by.start >= shared.start;
            let left = (rows.len() - row).div_ceil(axis.stride);
            let count = if whole && !by.is_empty() { left.min(shared.end - by.end + 1) } else { 1 };
            all.push(Covered { row, place, count, by });
            row += count * axis.stride;
        }
    }
    all
}
