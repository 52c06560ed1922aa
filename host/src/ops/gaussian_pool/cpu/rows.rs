//! What one task does: some rows of one plane, forward or backward.

use std::ops::Range;

use super::along_y::{Rows, covered};
use super::columns::{Columns, Outputs};
use super::parts::Parts;
use super::sums::add_products;
use crate::Real;
use crate::device::rounding;
use crate::ops::gaussian_pool::plan::Plan;
use crate::ops::gaussian_pool::weights::{Derivatives, Factor, Weights};

/// Elements of rows that go through both stages at once, about: they stay in the first cache, and are so many that what is
/// done once for all of them does not count.
const BATCH: usize = 4 * 1024;

fn batches(rows: Range<usize>, batch: usize) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(batch).map(move |first| first..rows.end.min(first + batch))
}

/// Some rows of the output, of the Gaussians whose outputs alternate in `y`; `x` has the rows that these cover.
pub(super) fn pool<T: Real, V: Real<Compute = T::Compute>, W: Factor<T::Compute>>(
    plan: &Plan,
    gaussians: &[[Weights<W>; 2]],
    x: Rows<'_, V>,
    rows: Range<usize>,
    y: &mut [T],
) {
    let [vertical, horizontal] = &plan.axes;
    let (zero, lanes) = (T::Compute::of(0.0), plan.lanes());
    let batch = (BATCH / x.line).clamp(1, rows.len());
    let columns = Columns::new(horizontal, lanes, batch);
    let along_x: Vec<_> = gaussians.iter().map(|[_, along_x]| columns.terms(along_x)).collect();
    let at_once = columns.at_once(vertical);
    let mut lines = vec![zero; if at_once { 0 } else { batch * x.line }];
    let (mut in_order, mut pooled) = (Vec::new(), Vec::new());
    let mut y = y.chunks_mut(batch * horizontal.output * lanes * gaussians.len());
    for rows in batches(rows, batch) {
        let mut pool = |gaussian: usize, y: &mut [T::Compute]| {
            if at_once {
                return x.pool_windows(vertical, &gaussians[gaussian][0], &columns, &along_x[gaussian], &rows, y);
            }
            let lines = &mut lines[..rows.len() * x.line];
            x.pool(vertical, &gaussians[gaussian][0], &rows, lines);
            let line = horizontal.output * lanes;
            columns.pool(columns.of(lines, &mut in_order), &along_x[gaussian], y, [rows.len(), line]);
        };
        let y = y.next().unwrap_or_default();
        if gaussians.len() == 1 {
            rounding(y, zero, &mut pooled, |y| pool(0, y));
        } else {
            let length = y.len() / gaussians.len();
            pooled.resize(y.len(), zero);
            pooled.chunks_mut(length).enumerate().for_each(|(gaussian, y)| pool(gaussian, y));
            Parts { count: gaussians.len(), lanes: 1, rows: 1, length }.join(y, y.len(), &pooled, zero);
        }
    }
}

/// The derivatives of one Gaussian's mean and variance, each along y and x; of each of its sets of parameters.
#[derive(Clone)]
pub(super) struct Sums {
    pub mean: [Vec<f64>; 2],
    pub var: [Vec<f64>; 2],
}

impl Sums {
    pub fn new(sets: usize) -> Self {
        let zeros = || [(); 2].map(|()| vec![0.0; sets]);
        Self { mean: zeros(), var: zeros() }
    }
}

/// The gradient of some rows of one plane, where it is asked for: `dx = gradient + beta * dx`; and what these rows add to
/// the sums of each of the plane's Gaussians, if there is an `x`. `x` has these rows, `dy` of each Gaussian the rows whose
/// windows cover them.
pub(super) fn gradients<T: Real, W: Factor<T::Compute>>(
    plan: &Plan,
    gaussians: &[[Derivatives<W>; 2]],
    x: Option<Rows<'_, T::Compute>>,
    dy: &[Rows<'_, T::Compute>],
    rows: Range<usize>,
    dx: Option<&mut [T]>,
    beta: T::Compute,
) -> Vec<Sums> {
    let ([vertical, horizontal], lanes) = (&plan.axes, plan.lanes());
    let line = horizontal.image * lanes;
    let batch = (BATCH / line).clamp(1, rows.len());
    let columns = Columns::new(horizontal, lanes, batch);
    // dy gathered along y with the weights, of each Gaussian.
    let weights = gaussians.iter().map(|[_, along_x]| &along_x.weight).collect();
    let mut outputs = Outputs::new(horizontal, lanes, batch, weights);
    let (step, margin) = (outputs.line(), outputs.margin());
    // dy gathered along y with the derivatives of the weights by mean and variance; and rows of x, pooled along x with
    // the weights or with their derivatives.
    let [mut by_mean, mut by_var, mut pooled] =
        [(); 3].map(|()| if x.is_some() { outputs.zeros() } else { Vec::new() });
    let with_parameters = gaussians.iter().filter(|_| x.is_some());
    let along_x: Vec<_> = with_parameters
        .map(|[_, along_x]| [&along_x.weight, &along_x.by_mean, &along_x.by_var].map(|weights| columns.terms(weights)))
        .collect();
    let sets = gaussians[0][0].weight.case(0)[0].sets();
    let mut sums = vec![Sums::new(sets); gaussians.len()];
    let (mut in_order, mut room) = (Vec::new(), Vec::new());
    let mut dx = dx.map(|dx| dx.chunks_mut(batch * line));
    for rows in batches(rows, batch) {
        let covered = covered(vertical, &rows);
        let x = x.map(|x| columns.of(x.rows(&rows), &mut in_order));
        for (gaussian, [along_y, _]) in gaussians.iter().enumerate() {
            let dy = dy[gaussian];
            let gather = |weights, out: &mut [T::Compute]| {
                dy.gather(vertical, weights, &covered, &mut out[margin..], step);
            };
            gather(&along_y.weight, outputs.of(gaussian));
            if let Some(x) = x {
                gather(&along_y.by_mean, &mut by_mean);
                gather(&along_y.by_var, &mut by_var);
                let pool = |along_x, pooled: &mut [T::Compute]| {
                    columns.pool(x, along_x, &mut pooled[margin..], [rows.len(), step]);
                    // A row that no window covers is no term: its NaN times the zeros gathered for it would be one.
                    for uncovered in covered.iter().filter(|covered| covered.by.is_empty()) {
                        pooled[uncovered.row * step..][..step].fill(T::Compute::of(0.0));
                    }
                };
                let length = rows.len() * step;
                let [along_x, along_x_by_mean, along_x_by_var] = &along_x[gaussian];
                let (Sums { mean, var }, by_weight) = (&mut sums[gaussian], &outputs.of(gaussian)[..length]);
                pool(along_x, &mut pooled);
                add_products(&mut mean[0], &by_mean[..length], &pooled[..length]);
                add_products(&mut var[0], &by_var[..length], &pooled[..length]);
                pool(along_x_by_mean, &mut pooled);
                add_products(&mut mean[1], by_weight, &pooled[..length]);
                pool(along_x_by_var, &mut pooled);
                add_products(&mut var[1], by_weight, &pooled[..length]);
            }
        }
        if let Some(dx) = dx.as_mut().and_then(Iterator::next) {
            columns.spread(&mut outputs, &mut room, dx, beta);
        }
    }
    sums
}
