//! Work along x.

use std::array;

use multiversion::multiversion;

use super::sums::{Term, weighted_sum};
use crate::device::{accumulate, accumulate_all};
use crate::ops::gaussian_pool::plan::Axis;
use crate::ops::gaussian_pool::weights::Weights;
use crate::ops::rows::zip_strided;
use crate::{Compute, Real};

/// One row of an image for work along x with a stride `s`: column `i` stands at `[i % s][i / s]`, so that the columns that
/// one tap of adjacent windows reads are adjacent.
pub(super) struct Columns<'a, C> {
    axis: &'a Axis,
    /// Columns with one remainder.
    length: usize,
    values: Vec<C>,
    /// Where each tap of the first window that lies in the image reads; those of the next windows read the places after it.
    taps: Vec<usize>,
}

impl<'a, C: Compute> Columns<'a, C> {
    pub fn new(axis: &'a Axis) -> Self {
        let length = axis.image.div_ceil(axis.stride);
        let values = vec![C::zero(); length * axis.stride.min(axis.image)];
        let mut columns = Self { axis, length, values, taps: Vec::new() };
        if axis.leading < axis.trailing {
            let first = axis.leading * axis.stride - axis.padding;
            columns.taps = (first..first + axis.size).map(|column| columns.place(column)).collect();
        }
        columns
    }

    /// Where column `i` stands.
    fn place(&self, i: usize) -> usize {
        i % self.axis.stride * self.length + i / self.axis.stride
    }

    /// Takes the columns from a row.
    pub fn set(&mut self, row: &[C]) {
        part(&mut self.values, row, self.axis.stride);
    }

    /// What [`Columns::pool`] adds for the windows that lie in the image.
    pub fn terms(&self, weights: &Weights<C>) -> Vec<Term<C>> {
        let shared = weights.case(self.axis.shared().start);
        shared.iter().copied().zip(self.taps.iter().copied()).collect()
    }

    /// `y[o]` = the sum over window `o` of weight times column. `row` is what the columns were taken from, `terms` are
    /// [`Columns::terms`].
    pub fn pool(&self, row: &[C], weights: &Weights<C>, terms: &[Term<C>], y: &mut [C]) {
        let axis = self.axis;
        weighted_sum(&mut y[axis.leading..axis.trailing], &self.values, terms);
        for output in axis.cut_off() {
            let (taps, weights) = (axis.inside(output), weights.case(axis.case(output)));
            let first = output * axis.stride + taps.start - axis.padding;
            let pixels = &row[first..][..taps.len()];
            y[output] = weights[taps].iter().zip(pixels).map(|(&w, &x)| w * x).sum();
        }
    }

    /// The transpose: each column becomes the sum, over the windows of all `outputs` that cover it, of weight times output.
    /// Of the outputs only those are left whose weights are shared.
    pub fn spread(&mut self, outputs: &mut Outputs<'_, C>) {
        let axis = self.axis;
        let apart = outputs.take_apart();
        for (columns, terms) in self.values.chunks_mut(self.length).zip(&outputs.terms) {
            weighted_sum(columns, &outputs.lines, terms);
        }
        for (gaussian, output, value) in apart {
            let weights = outputs.weights[gaussian].case(axis.case(output));
            for j in axis.inside(output) {
                let place = self.place(output * axis.stride + j - axis.padding);
                self.values[place] += weights[j] * value;
            }
        }
    }

    /// `row = columns + beta * row`.
    pub fn write<T: Real<Compute = C>>(&self, row: &mut [T], beta: C) {
        match self.axis.stride {
            1 => accumulate_all(row, &self.values, beta),
            2 => self.join::<2, T>(row, beta),
            3 => self.join::<3, T>(row, beta),
            4 => self.join::<4, T>(row, beta),
            _ => self.write_apart(row, 1, beta),
        }
    }

    fn join<const STRIDE: usize, T: Real<Compute = C>>(&self, row: &mut [T], beta: C) {
        if row.len() < STRIDE {
            return self.write_apart(row, 1, beta);
        }
        join(row, array::from_fn::<_, STRIDE, _>(|remainder| &self.values[remainder * self.length..]), beta);
    }

    /// [`Columns::write`] into a row that has a column every `step` elements.
    pub fn write_apart<T: Real<Compute = C>>(&self, row: &mut [T], step: usize, beta: C) {
        for (remainder, values) in self.values.chunks(self.length).enumerate() {
            let outs = row[remainder * step..].iter_mut().step_by(self.axis.stride * step);
            values.iter().zip(outs).for_each(|(&value, out)| accumulate(out, value, beta));
        }
    }
}

/// Every `stride`th element of a row after the other, then those after them.
#[multiversion(targets("x86_64+avx2"))]
fn part<C: Compute>(values: &mut [C], row: &[C], stride: usize) {
    for (remainder, values) in values.chunks_mut(row.len().div_ceil(stride)).enumerate() {
        let row = &row[remainder..];
        zip_strided(values.iter_mut().take(row.len().div_ceil(stride)), row, stride, |value, column| *value = column);
    }
}

/// The other way: `row = column + beta * row`.
#[multiversion(targets("x86_64+avx2"))]
fn join<const STRIDE: usize, T: Real>(row: &mut [T], columns: [&[T::Compute]; STRIDE], beta: T::Compute) {
    let (chunks, rest) = row.as_chunks_mut::<STRIDE>();
    for (out, columns) in rest.iter_mut().zip(columns) {
        accumulate(out, columns[chunks.len()], beta);
    }
    let columns = columns.map(|columns| &columns[..chunks.len()]);
    for (i, chunk) in chunks.iter_mut().enumerate() {
        for (out, columns) in chunk.iter_mut().zip(columns) {
            accumulate(out, columns[i], beta);
        }
    }
}

/// One row of outputs of each Gaussian, with zeros before and after: as many as windows pass the image's edges.
pub(super) struct Outputs<'a, C> {
    axis: &'a Axis,
    weights: Vec<&'a Weights<C>>,
    margin: usize,
    /// Of a line, zeros included.
    length: usize,
    lines: Vec<C>,
    /// What is added for columns of each remainder modulo the stride.
    terms: Vec<Vec<Term<C>>>,
}

impl<'a, C: Compute> Outputs<'a, C> {
    pub fn new(axis: &'a Axis, weights: Vec<&'a Weights<C>>) -> Self {
        let margin = (axis.size - 1) / axis.stride;
        let columns = axis.image.div_ceil(axis.stride) + axis.padding.div_ceil(axis.stride);
        let length = margin + columns.max(axis.output);
        // Column `remainder + q * stride` is at tap `j` of output `q + (remainder + padding - j) / stride`.
        let terms = (axis.padding..axis.padding + axis.stride.min(axis.image)).map(|begin| {
            let taps = (begin % axis.stride..axis.size).step_by(axis.stride);
            let term = |line: usize, weights: &Weights<C>, tap: usize| {
                let first = line * length + margin + begin / axis.stride - tap / axis.stride;
                (weights.case(axis.shared().start)[tap], first)
            };
            let lines = weights.iter().enumerate();
            lines.flat_map(|(line, weights)| taps.clone().map(move |tap| term(line, weights, tap))).collect()
        });
        let terms = terms.collect();
        let lines = vec![C::zero(); weights.len() * length];
        Self { axis, weights, margin, length, lines, terms }
    }

    /// Those of one Gaussian.
    pub fn of(&mut self, gaussian: usize) -> &mut [C] {
        &mut self.lines[gaussian * self.length + self.margin..][..self.axis.output]
    }

    /// Leaves zeros where outputs have weights of their own, and gives those: Gaussian, number and value.
    fn take_apart(&mut self) -> Vec<(usize, usize, C)> {
        let shared = self.axis.shared();
        let mut apart = Vec::new();
        for gaussian in 0..self.weights.len() {
            for output in (0..shared.start).chain(shared.end..self.axis.output) {
                apart.push((gaussian, output, std::mem::replace(&mut self.of(gaussian)[output], C::zero())));
            }
        }
        apart
    }
}
