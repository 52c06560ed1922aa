//! Planes of few terms: too small for loops over rows.
//!
//! Where all planes share their Gaussians, each result is the same sum of the same elements in all of them: which these are, and their
//! weights, is worked out once, and a plane costs a product for each.

use rayon::prelude::*;

use super::super::plan::{Axis, Plan};
use super::super::weights::Weights;
use super::per_turn;
use crate::device::tasks::Tasks;
use crate::device::{accumulate, widened};
use crate::{Compute, Layout, Real};

/// Terms of a plane, at most: of more, rows are long enough.
const MOST: usize = 512;
/// Planes whose elements are converted at once.
const PLANES: usize = 32;

/// What each result of a plane is a sum of.
pub struct Terms<C> {
    /// The element of the plane it is of, and its weight; those of a result follow those of the one before.
    terms: Vec<(u32, C)>,
    /// Where those of each result end.
    ends: Vec<u32>,
    /// Elements of a plane.
    elements: usize,
}

impl<C: Compute> Terms<C> {
    /// Of the outputs of a plane, by its elements, from the weights of its Gaussians along y and x; `None` where there are many, or planes do
    /// not share their Gaussians or do not follow each other.
    pub fn forward(plan: &Plan, gaussians: &[[&Weights<C>; 2]]) -> Option<Self> {
        let [y, x] = few(plan)?;
        let mut found = Self { terms: vec![], ends: vec![], elements: y.image * x.image };
        for [by_y, by_x] in gaussians {
            for (row, column) in pairs(y.output, x.output) {
                let (by_y, by_x) = (by_y.case(y.case(row)), by_x.case(x.case(column)));
                for i in y.inside(row) {
                    for j in x.inside(column) {
                        let [row, column] = [row * y.stride + i - y.padding, column * x.stride + j - x.padding];
                        found.terms.push(((row * x.image + column) as u32, by_y[i] * by_x[j]));
                    }
                }
                found.ends.push(found.terms.len() as u32);
            }
        }
        Some(found)
    }

    /// Of a plane's pixels, by its outputs, likewise.
    pub fn backward(plan: &Plan, gaussians: &[[&Weights<C>; 2]]) -> Option<Self> {
        let [y, x] = few(plan)?;
        let outputs = y.output * x.output;
        let mut found = Self { terms: vec![], ends: vec![], elements: gaussians.len() * outputs };
        for (down, across) in pairs(y.image, x.image) {
            for (kernel, [by_y, by_x]) in gaussians.iter().enumerate() {
                for row in y.covering(down) {
                    for column in x.covering(across) {
                        let weight_y = by_y.case(y.case(row))[down + y.padding - row * y.stride];
                        let weight_x = by_x.case(x.case(column))[across + x.padding - column * x.stride];
                        let element = kernel * outputs + row * x.output + column;
                        found.terms.push((element as u32, weight_y * weight_x));
                    }
                }
            }
            found.ends.push(found.terms.len() as u32);
        }
        Some(found)
    }

    /// `out = sums + beta * out`, of all planes.
    pub fn sum<T: Real<Compute = C>>(&self, from: &[T], out: &mut [T], beta: C) {
        let results = self.ends.len();
        let tasks = out.par_chunks_mut(PLANES * results).zip(from.par_chunks(PLANES * self.elements));
        let together = per_turn(PLANES * (self.terms.len() + results));
        tasks.run_with(together, Vec::new, |room, (out, from)| {
            let from = widened(from, room);
            for (out, from) in out.chunks_exact_mut(results).zip(from.chunks_exact(self.elements)) {
                let mut begin = 0;
                for (out, &end) in out.iter_mut().zip(&self.ends) {
                    let terms = &self.terms[begin as usize..end as usize];
                    let sum =
                        terms.iter().fold(C::zero(), |sum, &(element, weight)| sum + weight * from[element as usize]);
                    accumulate(out, sum, beta);
                    begin = end;
                }
            }
        });
    }
}

/// The axes of a pass of few terms a plane, whose planes follow each other and share their Gaussians.
fn few(plan: &Plan) -> Option<[Axis; 2]> {
    let along = |i: usize| plan.axes[i].output.saturating_mul(plan.axes[i].size);
    let terms = along(0).saturating_mul(along(1)).saturating_mul(plan.kernels);
    let fits = plan.layout == Layout::RowMajor && plan.sets == 1 && terms <= MOST;
    fits.then_some(plan.axes)
}

/// Rows and columns, in order.
fn pairs(height: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..height).flat_map(move |row| (0..width).map(move |column| (row, column)))
}
