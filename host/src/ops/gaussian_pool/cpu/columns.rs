//! Work along x, on several rows at once.

use super::parts::Parts;
use super::sums::{Runs, Steps, Term, weighted_sums};
use crate::ops::gaussian_pool::plan::Axis;
use crate::ops::gaussian_pool::weights::{Factor, Weights};
use crate::{Compute, Real};

/// Lanes from which on a pixel is worth a loop of its own.
const LANES: usize = 8;

/// Where the columns of rows of an image stand for work along x.
///
/// Windows `s` columns apart read columns `s` apart at the same tap. Where a pixel has many lanes, these are neighbours
/// enough for a loop; where it has few, the columns are brought in order of their remainder modulo `s` first, so that those
/// that one tap of adjacent windows reads are adjacent.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    axis: &'a Axis,
    order: Parts,
    /// Elements of a row of the image.
    line: usize,
}

impl<'a> Columns<'a> {
    /// Of so many rows, at most.
    pub fn new(axis: &'a Axis, lanes: usize, rows: usize) -> Self {
        let count = if lanes < LANES { axis.stride.min(axis.image) } else { 1 };
        let order = Parts { count, lanes, rows, length: axis.image.div_ceil(count) };
        Self { axis, order, line: axis.image * lanes }
    }

    /// Those of some rows; in `room`, if they have to be brought in order.
    pub fn of<'r, C: Compute>(&self, rows: &'r [C], room: &'r mut Vec<C>) -> &'r [C] {
        self.order.of(rows, self.line, room)
    }

    /// Runs of so many outputs as sums, and of what they take of columns as values.
    fn runs(&self, count: usize, rows: usize, outputs: usize) -> Runs {
        let rows = Steps { count: rows, sums: outputs, values: self.order.line() };
        if self.order.count == self.axis.stride.min(self.axis.image) {
            return Runs { length: count * self.order.lanes, columns: Steps::ONCE, rows };
        }
        self.windows(count, rows)
    }

    /// Whether all positions of a window are summed at once: where a pixel has neighbours enough for a loop, and that takes no more
    /// products than to sum along y first.
    pub fn at_once(&self, vertical: &Axis) -> bool {
        let (height, width) = (vertical.size, self.axis.size);
        self.order.count == 1 && self.order.lanes >= LANES && height * width <= height * self.axis.stride + width
    }

    /// Runs of so many neighbouring outputs, of which all positions are summed at once.
    pub fn windows(&self, count: usize, rows: Steps) -> Runs {
        let lanes = self.order.lanes;
        Runs { length: lanes, columns: Steps { count, sums: lanes, values: self.axis.stride * lanes }, rows }
    }

    /// What pooling with these weights sums up.
    pub fn terms<'w, W>(&self, weights: &'w Weights<W>) -> Terms<'w, W> {
        let axis = self.axis;
        let of = |output: usize| {
            let (taps, weights) = (axis.inside(output), weights.case(axis.case(output)));
            taps.map(|tap| (&weights[tap], self.order.place(output * axis.stride + tap - axis.padding))).collect()
        };
        let inside = (axis.leading < axis.trailing).then_some((axis.leading, axis.trailing - axis.leading));
        let alike = inside.into_iter().chain(axis.cut_off().map(|output| (output, 1)));
        Terms(alike.map(|(first, count)| (first, count, of(first))).collect())
    }

    /// `y[o]` = the sum over window `o` of weight times column, in so many rows, of which the first begins with `y` and each
    /// has its outputs so many elements after the one before.
    pub fn pool<C: Compute, W: Factor<C>>(
        &self,
        columns: &[C],
        Terms(terms): &Terms<'_, W>,
        y: &mut [C],
        [rows, step]: [usize; 2],
    ) {
        for (first, count, terms) in terms {
            weighted_sums(&mut y[first * self.order.lanes..], columns, terms, self.runs(*count, rows, step));
        }
    }

    /// The transpose: `dx = columns + beta * dx`, where each column is the sum, over the windows of all `outputs` that cover
    /// it, of weight times output. Of the outputs only those are left whose weights are shared.
    pub fn spread<T: Real, W: Factor<T::Compute>>(
        &self,
        outputs: &mut Outputs<'_, T::Compute, W>,
        room: &mut Vec<T::Compute>,
        dx: &mut [T],
        beta: T::Compute,
    ) {
        let rows = dx.len() / self.line;
        if self.order.count == 1
            && beta == T::Compute::of(0.0)
            && let Some(dx) = T::as_compute_mut(dx)
        {
            return self.spread_to(outputs, dx, rows);
        }
        room.resize(self.order.len(), T::Compute::of(0.0));
        self.spread_to(outputs, room, rows);
        self.order.join(dx, self.line, room, beta);
    }

    fn spread_to<C: Compute, W: Factor<C>>(&self, outputs: &mut Outputs<'_, C, W>, columns: &mut [C], rows: usize) {
        let (axis, lanes) = (self.axis, self.order.lanes);
        let apart = outputs.take_apart(rows);
        let transposed = |Steps { count, sums, values }| Steps { count, sums: values, values: sums };
        for (remainder, terms) in outputs.terms.iter().enumerate() {
            let count = (axis.image - remainder).div_ceil(axis.stride);
            let Runs { length, columns: along_x, rows } = self.runs(count, rows, outputs.line);
            let runs = Runs { length, columns: transposed(along_x), rows: transposed(rows) };
            weighted_sums(&mut columns[self.order.place(remainder)..], &outputs.lines, terms, runs);
        }
        for ((gaussian, row, output), pixel) in outputs.apart(rows).zip(apart.chunks(lanes)) {
            let weights = outputs.weights[gaussian].case(axis.case(output));
            for j in axis.inside(output) {
                let place = row * self.order.line() + self.order.place(output * axis.stride + j - axis.padding);
                for (lane, (column, &value)) in columns[place..].iter_mut().zip(pixel).enumerate() {
                    let [weight] = weights[j].of_lanes(weights[j].lane(lane));
                    *column += weight * value;
                }
            }
        }
    }
}

/// For windows that lie in the image alike the first one, their number, and what is summed for the first.
pub(super) struct Terms<'w, W>(pub Vec<(usize, usize, Vec<Term<'w, W>>)>);

/// Some rows of outputs of each Gaussian, with zeros before and after: as many as windows pass the image's edges.
pub(super) struct Outputs<'a, C, W> {
    axis: &'a Axis,
    lanes: usize,
    weights: Vec<&'a Weights<W>>,
    /// Elements of a row, zeros included.
    line: usize,
    /// Of one Gaussian's rows.
    rows: usize,
    lines: Vec<C>,
    /// What is added for columns of each remainder modulo the stride.
    terms: Vec<Vec<Term<'a, W>>>,
}

impl<'a, C: Compute, W: Factor<C>> Outputs<'a, C, W> {
    /// Of so many rows, at most.
    pub fn new(axis: &'a Axis, lanes: usize, rows: usize, weights: Vec<&'a Weights<W>>) -> Self {
        let columns = axis.image.div_ceil(axis.stride) + axis.padding.div_ceil(axis.stride);
        let margin = (axis.size - 1) / axis.stride;
        let line = (margin + columns.max(axis.output)) * lanes;
        let rows = rows * line;
        // Column `remainder + q * stride` is at tap `j` of output `q + (remainder + padding - j) / stride`.
        let terms = (axis.padding..axis.padding + axis.stride.min(axis.image)).map(|begin| {
            let taps = (begin % axis.stride..axis.size).step_by(axis.stride);
            let term = |gaussian: usize, weights: &'a Weights<W>, tap: usize| {
                let first = margin + begin / axis.stride - tap / axis.stride;
                (&weights.case(axis.shared().start)[tap], gaussian * rows + first * lanes)
            };
            let gaussians = weights.iter().enumerate();
            gaussians.flat_map(|(i, weights)| taps.clone().map(move |tap| term(i, weights, tap))).collect()
        });
        let terms = terms.collect();
        let lines = vec![C::zero(); weights.len() * rows];
        Self { axis, lanes, weights, line, rows, lines, terms }
    }

    /// Elements from one row to the next.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Zeros before the outputs of a row.
    pub fn margin(&self) -> usize {
        (self.axis.size - 1) / self.axis.stride * self.lanes
    }

    /// Rows of zeros, as of one Gaussian.
    pub fn zeros(&self) -> Vec<C> {
        vec![C::zero(); self.rows]
    }

    /// One Gaussian's rows.
    pub fn of(&mut self, gaussian: usize) -> &mut [C] {
        &mut self.lines[gaussian * self.rows..][..self.rows]
    }

    /// Those that have weights of their own: Gaussian, row and number.
    fn apart(&self, rows: usize) -> impl Iterator<Item = (usize, usize, usize)> + use<C, W> {
        let (shared, output) = (self.axis.shared(), self.axis.output);
        let rows = (0..self.weights.len()).flat_map(move |gaussian| (0..rows).map(move |row| (gaussian, row)));
        rows.flat_map(move |(gaussian, row)| {
            (0..shared.start).chain(shared.end..output).map(move |output| (gaussian, row, output))
        })
    }

    /// Leaves zeros where outputs have weights of their own, and gives these outputs.
    fn take_apart(&mut self, rows: usize) -> Vec<C> {
        let mut apart = Vec::new();
        for (gaussian, row, output) in self.apart(rows) {
            let place = row * self.line + self.margin() + output * self.lanes;
            let lanes = self.lanes;
            let pixel = &mut self.of(gaussian)[place..][..lanes];
            apart.extend_from_slice(pixel);
            pixel.fill(C::zero());
        }
        apart
    }
}
