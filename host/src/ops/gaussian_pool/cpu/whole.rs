//! The input's gradient of planes that have one window each, as before a classifier: the window's weights times the output's gradient.

use rayon::prelude::*;

use super::super::plan::{Axis, Plan};
use super::super::weights::Weights;
use super::{Task, per_turn, tasks};
use crate::device::rounding;
use crate::device::tasks::Tasks;
use crate::{Compute, Layout, Real};

/// Elements of a plane that one task has, about.
const ROWS: usize = 16 * 1024;

/// Whether planes follow each other and have one window each.
pub fn is_whole(plan: &Plan) -> bool {
    plan.layout == Layout::RowMajor && plan.axes.iter().all(|axis| axis.output == 1)
}

/// `dx = gradient + beta * dx`, of planes for which [`is_whole`] holds, from the weights of their Gaussians along y and x. What no window
/// covers has no term.
pub fn backward<T: Real>(
    plan: &Plan,
    gaussians: &[[&Weights<T::Compute>; 2]],
    dy: &[T],
    dx: &mut [T],
    beta: T::Compute,
) {
    let (axes @ [_, x], zero) = (&plan.axes, T::Compute::of(0.0));
    let [covered, columns] = axes.each_ref().map(|axis| axis.source(&(0..1)));
    let rows = (ROWS / x.image).max(1);
    let tasks = tasks(plan.planes(), axes.each_ref().map(|axis| axis.image), rows, Some(dx));
    tasks.into_par_iter().run_with(per_turn(rows * x.image), Vec::new, |room, Task { plane, rows, out }| {
        let terms = plan.of_plane(gaussians, plane).iter().zip(&dy[plane * plan.kernels..][..plan.kernels]);
        for (row, dx) in rows.zip(out.unwrap_or_default().chunks_exact_mut(x.image)) {
            rounding(dx, beta, room, |dx| {
                dx.fill(zero);
                if !covered.contains(&row) {
                    return;
                }
                for (along, dy) in terms.clone() {
                    let [by_y, by_x] = [0, 1].map(|axis| of_pixels(&axes[axis], along[axis]));
                    let of_row = dy.widen() * by_y[row - covered.start];
                    let weights = dx[columns.clone()].iter_mut().zip(by_x);
                    weights.for_each(|(dx, weight)| *dx += of_row * *weight);
                }
            });
        }
    });
}

/// The weights of the pixels that the only window covers.
fn of_pixels<'a, C: Compute>(axis: &Axis, weights: &'a Weights<C>) -> &'a [C] {
    &weights.case(axis.case(0))[axis.inside(0)]
}
