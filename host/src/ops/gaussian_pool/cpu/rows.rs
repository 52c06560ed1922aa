//! What one task does: some rows of one plane, forward or backward.

use std::ops::Range;

use super::columns::{Columns, Outputs};
use super::sums::{dot, weighted_sum};
use crate::device::widened;
use crate::ops::gaussian_pool::plan::Plan;
use crate::ops::gaussian_pool::weights::{Derivatives, Weights};
use crate::{Compute, Real};

/// Rows of one plane, from row `first` on.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, C> {
    pub values: &'a [C],
    pub first: usize,
    pub width: usize,
}

impl<'a, C: Compute> Rows<'a, C> {
    /// Some rows of a plane, to compute with; in `room`, where they have to be converted for that.
    pub fn of<T: Real<Compute = C>>(plane: &'a [T], rows: &Range<usize>, width: usize, room: &'a mut Vec<C>) -> Self {
        let values = widened(&plane[rows.start * width..rows.end * width], room);
        Self { values, first: rows.start, width }
    }

    fn row(&self, row: usize) -> &'a [C] {
        &self.values[self.place(row)..][..self.width]
    }

    /// Where a row begins.
    fn place(&self, row: usize) -> usize {
        (row - self.first) * self.width
    }
}

/// Calls `write` with one after another of some rows of the output of one plane and one Gaussian; `x` has the rows that
/// these cover.
pub(super) fn pool<C: Compute>(
    plan: &Plan,
    [along_y, along_x]: &[Weights<C>; 2],
    x: Rows<'_, C>,
    rows: Range<usize>,
    mut write: impl FnMut(&[C]),
) {
    let [vertical, horizontal] = &plan.axes;
    let mut row = vec![C::zero(); horizontal.image];
    let mut columns = Columns::new(horizontal);
    let (mut terms, terms_along_x) = (Vec::new(), columns.terms(along_x));
    let mut pooled = vec![C::zero(); horizontal.output];
    for oy in rows {
        let inside = vertical.inside(oy);
        let first = x.place(oy * vertical.stride + inside.start - vertical.padding);
        let weights = &along_y.case(vertical.case(oy))[inside];
        terms.clear();
        terms.extend(weights.iter().enumerate().map(|(i, &weight)| (weight, first + i * x.width)));
        weighted_sum(&mut row, x.values, &terms);
        columns.set(&row);
        columns.pool(&row, along_x, &terms_along_x, &mut pooled);
        write(&pooled);
    }
}

/// The derivatives of one Gaussian's mean and variance, each along y and x.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub mean: [f64; 2],
    pub var: [f64; 2],
}

/// Calls `write`, where it is there, with the gradient of one after another of some rows of one plane, and gives what these
/// rows add to the sums of each of the plane's Gaussians, if there is an `x`. `x` has these rows, `dy` of each Gaussian the
/// rows whose windows cover them.
pub(super) fn gradients<C: Compute>(
    plan: &Plan,
    gaussians: &[[Derivatives<C>; 2]],
    x: Option<Rows<'_, C>>,
    dy: &[Rows<'_, C>],
    rows: Range<usize>,
    mut write: Option<impl FnMut(&Columns<'_, C>)>,
) -> Vec<Sums> {
    let [vertical, horizontal] = &plan.axes;
    let mut sums = vec![Sums::default(); gaussians.len()];
    // dy gathered along y with the derivatives of the weights by mean and variance.
    let [mut by_mean, mut by_var] = [(); 2].map(|()| vec![C::zero(); horizontal.output]);
    // The row of x, pooled along x with the weights and with their derivatives.
    let [mut pooled, mut pooled_by_mean, mut pooled_by_var] = [(); 3].map(|()| vec![C::zero(); horizontal.output]);
    let (mut columns, mut spread) = (Columns::new(horizontal), Columns::new(horizontal));
    // dy gathered along y with the weights, of each Gaussian.
    let mut outputs = Outputs::new(horizontal, gaussians.iter().map(|[_, along_x]| &along_x.weight).collect());
    let along_x = |[_, along_x]: &[Derivatives<C>; 2]| {
        [&along_x.weight, &along_x.by_mean, &along_x.by_var].map(|weights| columns.terms(weights))
    };
    let terms_along_x: Vec<_> = gaussians.iter().filter(|_| x.is_some()).map(along_x).collect();
    let cases: Vec<usize> = (0..vertical.output).map(|output| vertical.case(output)).collect();
    let mut terms = Vec::new();
    for iy in rows {
        let covering = vertical.covering(iy);
        // A row that no window covers is no term: its NaN times the zeros gathered for it would be one.
        let pixels = x.map(|x| x.row(iy)).filter(|_| !covering.is_empty());
        if let Some(pixels) = pixels {
            columns.set(pixels);
        }
        for (kernel, [along_y, along_x]) in gaussians.iter().enumerate() {
            let dy = dy[kernel];
            let mut gather = |out: &mut [C], weights: &Weights<C>| {
                terms.clear();
                terms.extend(covering.clone().map(|oy| {
                    let position = iy + vertical.padding - oy * vertical.stride;
                    (weights.case(cases[oy])[position], dy.place(oy))
                }));
                weighted_sum(out, dy.values, &terms);
            };
            gather(outputs.of(kernel), &along_y.weight);
            if let Some(pixels) = pixels {
                gather(&mut by_mean, &along_y.by_mean);
                gather(&mut by_var, &along_y.by_var);
                let [terms, terms_by_mean, terms_by_var] = &terms_along_x[kernel];
                columns.pool(pixels, &along_x.weight, terms, &mut pooled);
                columns.pool(pixels, &along_x.by_mean, terms_by_mean, &mut pooled_by_mean);
                columns.pool(pixels, &along_x.by_var, terms_by_var, &mut pooled_by_var);
                let (sums, by_weight) = (&mut sums[kernel], outputs.of(kernel));
                sums.mean[0] += dot(&by_mean, &pooled);
                sums.mean[1] += dot(by_weight, &pooled_by_mean);
                sums.var[0] += dot(&by_var, &pooled);
                sums.var[1] += dot(by_weight, &pooled_by_var);
            }
        }
        if let Some(write) = &mut write {
            spread.spread(&mut outputs);
            write(&spread);
        }
    }
    sums
}
