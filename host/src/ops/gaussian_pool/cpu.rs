//! Separable passes by rows: first along y, one whole row of the image at a time, then along x.
//!
//! A task takes a few rows of one plane; how many depends on the shapes alone, so that sums have one order for any number
//! of threads. Along x the columns are regrouped by their remainder modulo the stride ([`Columns`]), so that every inner
//! loop runs over adjacent elements of slices, which the compiler vectorises.

use std::ops::Range;

use rayon::prelude::*;

use super::plan::{Axis, Plan};
use super::weights::{self, Derivatives, Weights};
use super::{Backward, Forward};
use crate::device::{Cpu, OnCpu, accumulate};
use crate::{Compute, Error, Out, Result, Tensor};

/// Elements of the output that one task computes, about.
const TASK: usize = 4096;

impl<T: Compute> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let plan = &self.plan;
        let gaussians = gaussians(plan, self.mean, self.var, weights::weights::<T>)?;
        let x = self.x.host()?;
        let [vertical, horizontal] = plan.axes;
        let (image, output) = (vertical.image * horizontal.image, vertical.output * horizontal.output);
        let rows = rows_per_task(horizontal.output);
        self.y.host_mut()?.par_chunks_mut(output).enumerate().for_each(|(map, y)| {
            let (plane, kernel) = (map / plan.kernels, map % plan.kernels);
            let [along_y, along_x] = &gaussians[plan.set(plane) * plan.kernels + kernel];
            let x = &x[plane * image..][..image];
            let task = |first: usize, y: &mut [T]| {
                let mut row = vec![T::zero(); horizontal.image];
                let mut columns = Columns::new(&horizontal);
                for (oy, y) in (first..).zip(y.chunks_mut(horizontal.output)) {
                    let weights = along_y.case(vertical.case(oy));
                    let terms = vertical
                        .inside(oy)
                        .map(|i| (weights[i], &x[(oy * vertical.stride + i - vertical.padding) * horizontal.image..]));
                    weighted_sum(&mut row, terms);
                    columns.set(&row);
                    columns.pool(&row, along_x, y);
                }
            };
            y.par_chunks_mut(rows * horizontal.output).enumerate().for_each(|(i, y)| task(i * rows, y));
        });
        Ok(())
    }
}

impl<T: Compute> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let plan = &self.plan;
        let gaussians = gaussians(plan, self.mean, self.var, weights::derivatives::<T>)?;
        let (x, dy) = (self.x.host()?, self.dy.host()?);
        let pass = Pass { plan, gaussians: &gaussians, x, dy, parameters: self.dmean.is_some() || self.dvar.is_some() };
        let width = plan.axes[1].image;
        let rows = rows_per_task(width);
        let (dx, beta) = match self.dx {
            Some(Out { tensor, beta }) => (Some(tensor.host_mut()?), T::of(beta)),
            None => (None, T::zero()),
        };
        let sums: Vec<Vec<Sums>> = match dx {
            Some(dx) => dx
                .par_chunks_mut((plan.axes[0].image * width).max(1))
                .enumerate()
                .flat_map(|(plane, dx)| {
                    let tasks = dx.par_chunks_mut(rows * width).enumerate();
                    tasks.map(move |(i, dx)| (plane, i * rows..i * rows + dx.len() / width, Some(dx)))
                })
                .map(|(plane, rows, dx)| pass.rows(plane, rows, dx, beta))
                .collect(),
            None if pass.parameters => (0..plan.planes())
                .into_par_iter()
                .flat_map(|plane| {
                    let height = plan.axes[0].image;
                    (0..height.div_ceil(rows))
                        .into_par_iter()
                        .map(move |i| (plane, i * rows..height.min((i + 1) * rows)))
                })
                .map(|(plane, rows)| pass.rows(plane, rows, None, beta))
                .collect(),
            None => return Ok(()),
        };
        if pass.parameters {
            let total = total(plan, &sums);
            write_parameters(plan, &total, self.dmean, self.dvar)?;
        }
        Ok(())
    }
}

fn rows_per_task(width: usize) -> usize {
    (TASK / width).max(1)
}

/// What `along` makes of each Gaussian's parameters along y and x, by set and kernel.
fn gaussians<T: Compute, W>(
    plan: &Plan,
    mean: &Tensor<T>,
    var: &Tensor<T>,
    along: impl Fn(&Axis, T, T) -> W,
) -> Result<Vec<[W; 2]>> {
    let (means, vars) = (mean.host()?, var.host()?);
    let invalid = |argument, tensor: &Tensor<T>, at: usize, value: T, expected: &str| {
        let (last, kernels) = (tensor.shape()[2], tensor.shape()[1]);
        let index = [at / last / kernels, at / last % kernels, at % last];
        Error::Argument { op: plan.op, argument, got: format!("{value} at {index:?}"), expected: expected.into() }
    };
    if let Some(i) = means.iter().position(|m| !m.is_finite()) {
        return Err(invalid("mean", mean, i, means[i], "finite values"));
    }
    if let Some(i) = vars.iter().position(|v| !(v.is_finite() && *v > T::zero())) {
        return Err(invalid("var", var, i, vars[i], "finite values above 0"));
    }
    let variances = plan.variances();
    let pairs = means.chunks(2).zip(vars.chunks(variances));
    Ok(pairs
        .map(|(mean, var)| [0, 1].map(|axis| along(&plan.axes[axis], mean[axis], var[axis.min(variances - 1)])))
        .collect())
}

/// A backward pass over some rows of the image at a time.
struct Pass<'a, T: Compute> {
    plan: &'a Plan,
    gaussians: &'a [[Derivatives<T>; 2]],
    x: &'a [T],
    dy: &'a [T],
    /// Whether sums for mean and variance are asked for.
    parameters: bool,
}

/// The derivatives of one Gaussian's mean and variance, each along y and x.
#[derive(Clone, Copy, Default)]
struct Sums {
    mean: [f64; 2],
    var: [f64; 2],
}

impl<T: Compute> Pass<'_, T> {
    /// `dx` of some rows of a plane, and what these rows give to the sums of each of the plane's Gaussians.
    fn rows(&self, plane: usize, rows: Range<usize>, mut dx: Option<&mut [T]>, beta: T) -> Vec<Sums> {
        let [vertical, horizontal] = &self.plan.axes;
        let kernels = self.plan.kernels;
        let (width, output) = (horizontal.image, vertical.output * horizontal.output);
        let gaussians = &self.gaussians[self.plan.set(plane) * kernels..][..kernels];
        let mut sums = vec![Sums::default(); kernels];
        // dy gathered along y with the weights, and with their derivatives by mean and variance.
        let [mut by_weight, mut by_mean, mut by_var] = [(); 3].map(|()| vec![T::zero(); horizontal.output]);
        // The row of x, pooled along x in the same three ways.
        let [mut pooled, mut pooled_by_mean, mut pooled_by_var] = [(); 3].map(|()| vec![T::zero(); horizontal.output]);
        let (mut columns, mut spread) = (Columns::new(horizontal), Columns::new(horizontal));
        for iy in rows.clone() {
            let x = &self.x[(plane * vertical.image + iy) * width..][..width];
            // A row that no window covers is no term: its NaN times the zeros gathered for it would be one.
            let parameters = self.parameters && !vertical.covering(iy).is_empty();
            if parameters {
                columns.set(x);
            }
            spread.clear();
            for (kernel, [along_y, along_x]) in gaussians.iter().enumerate() {
                let dy = &self.dy[(plane * kernels + kernel) * output..][..output];
                let gather = |out: &mut [T], weights: &Weights<T>| {
                    let terms = vertical.covering(iy).map(|oy| {
                        let position = iy + vertical.padding - oy * vertical.stride;
                        (weights.case(vertical.case(oy))[position], &dy[oy * horizontal.output..])
                    });
                    weighted_sum(out, terms);
                };
                gather(&mut by_weight, &along_y.weight);
                if dx.is_some() {
                    spread.add(&by_weight, &along_x.weight);
                }
                if parameters {
                    gather(&mut by_mean, &along_y.by_mean);
                    gather(&mut by_var, &along_y.by_var);
                    columns.pool(x, &along_x.weight, &mut pooled);
                    columns.pool(x, &along_x.by_mean, &mut pooled_by_mean);
                    columns.pool(x, &along_x.by_var, &mut pooled_by_var);
                    let sums = &mut sums[kernel];
                    sums.mean[0] += dot(&by_mean, &pooled);
                    sums.mean[1] += dot(&by_weight, &pooled_by_mean);
                    sums.var[0] += dot(&by_var, &pooled);
                    sums.var[1] += dot(&by_weight, &pooled_by_var);
                }
            }
            if let Some(dx) = &mut dx {
                spread.write(&mut dx[(iy - rows.start) * width..][..width], beta);
            }
        }
        sums
    }
}

/// The tasks' sums, added in the tasks' order, by set and kernel.
fn total(plan: &Plan, tasks: &[Vec<Sums>]) -> Vec<Sums> {
    let mut total = vec![Sums::default(); plan.gaussians()];
    let per_plane = plan.axes[0].image.div_ceil(rows_per_task(plan.axes[1].image));
    for (task, sums) in tasks.iter().enumerate() {
        let set = plan.set(task / per_plane);
        for (total, sums) in total[set * plan.kernels..].iter_mut().zip(sums) {
            for axis in 0..2 {
                total.mean[axis] += sums.mean[axis];
                total.var[axis] += sums.var[axis];
            }
        }
    }
    total
}

fn write_parameters<T: Compute>(
    plan: &Plan,
    total: &[Sums],
    dmean: Option<Out<'_, T>>,
    dvar: Option<Out<'_, T>>,
) -> Result<()> {
    if let Some(Out { tensor, beta }) = dmean {
        for (out, sums) in tensor.host_mut()?.chunks_mut(2).zip(total) {
            (0..2).for_each(|axis| accumulate(&mut out[axis], T::of(sums.mean[axis]), T::of(beta)));
        }
    }
    if let Some(Out { tensor, beta }) = dvar {
        for (out, Sums { var, .. }) in tensor.host_mut()?.chunks_mut(plan.variances()).zip(total) {
            let sums = if plan.per_axis { *var } else { [var[0] + var[1]; 2] };
            out.iter_mut().zip(sums).for_each(|(out, sum)| accumulate(out, T::of(sum), T::of(beta)));
        }
    }
    Ok(())
}

/// One row of an image for work along x with a stride `s`: column `i` stands at `[i % s][i / s]`, so that the columns that
/// one tap of adjacent windows reads are adjacent.
struct Columns<'a, T> {
    axis: &'a Axis,
    /// Columns with one remainder.
    length: usize,
    values: Vec<T>,
}

impl<'a, T: Compute> Columns<'a, T> {
    fn new(axis: &'a Axis) -> Self {
        let length = axis.image.div_ceil(axis.stride);
        Self { axis, length, values: vec![T::zero(); length * axis.stride.min(axis.image)] }
    }

    fn clear(&mut self) {
        self.values.fill(T::zero());
    }

    /// Takes the columns from a row.
    fn set(&mut self, row: &[T]) {
        let stride = self.axis.stride;
        for (remainder, values) in self.values.chunks_mut(self.length).enumerate() {
            for (value, &column) in values.iter_mut().zip(row[remainder..].iter().step_by(stride)) {
                *value = column;
            }
        }
    }

    /// `row = columns + beta * row`.
    fn write(&self, row: &mut [T], beta: T) {
        for (remainder, values) in self.values.chunks(self.length).enumerate() {
            for (&value, out) in values.iter().zip(row[remainder..].iter_mut().step_by(self.axis.stride)) {
                accumulate(out, value, beta);
            }
        }
    }

    /// Where column `i` stands.
    fn place(&self, i: usize) -> usize {
        i % self.axis.stride * self.length + i / self.axis.stride
    }

    /// Where tap `j` of the first window that lies in the image reads; those of the next windows read the places after it.
    fn tap(&self, j: usize) -> usize {
        self.place(self.axis.leading * self.axis.stride + j - self.axis.padding)
    }

    /// `y[o]` = the sum over window `o` of weight times column. `row` is what the columns were taken from.
    fn pool(&self, row: &[T], weights: &Weights<T>, y: &mut [T]) {
        let axis = self.axis;
        let whole = axis.leading..axis.trailing;
        if !whole.is_empty() {
            let shared = weights.case(axis.case(whole.start));
            let terms = shared.iter().enumerate().map(|(j, &w)| (w, &self.values[self.tap(j)..]));
            weighted_sum(&mut y[whole], terms);
        }
        for output in axis.cut_off() {
            let (taps, weights) = (axis.inside(output), weights.case(axis.case(output)));
            let first = output * axis.stride + taps.start - axis.padding;
            let pixels = &row[first..][..taps.len()];
            y[output] = weights[taps].iter().zip(pixels).map(|(&w, &x)| w * x).sum();
        }
    }

    /// The transpose: each column gets, from the windows that cover it, the sum of weight times `dy[o]`.
    fn add(&mut self, dy: &[T], weights: &Weights<T>) {
        let axis = self.axis;
        let whole = axis.leading..axis.trailing;
        if !whole.is_empty() {
            let shared = weights.case(axis.case(whole.start));
            for (j, &weight) in shared.iter().enumerate() {
                let first = self.tap(j);
                let columns = &mut self.values[first..][..whole.len()];
                columns.iter_mut().zip(&dy[whole.clone()]).for_each(|(column, &dy)| *column += weight * dy);
            }
        }
        for output in axis.cut_off() {
            let weights = weights.case(axis.case(output));
            for j in axis.inside(output) {
                let place = self.place(output * axis.stride + j - axis.padding);
                self.values[place] += weights[j] * dy[output];
            }
        }
    }
}

/// `out[i] = sum over the terms of weight * values[i]`, four terms at a time: `out` is loaded and stored a quarter as
/// often.
fn weighted_sum<'a, T: Compute>(out: &mut [T], mut terms: impl Iterator<Item = (T, &'a [T])>) {
    let n = out.len();
    out.fill(T::zero());
    loop {
        let [a, b, c, d] = [(); 4].map(|()| terms.next());
        match (a, b, c, d) {
            (Some((u, a)), Some((v, b)), Some((w, c)), Some((z, d))) => {
                let columns = a[..n].iter().zip(&b[..n]).zip(c[..n].iter().zip(&d[..n]));
                for (out, ((&a, &b), (&c, &d))) in out.iter_mut().zip(columns) {
                    *out += (u * a + v * b) + (w * c + z * d);
                }
            }
            (a, b, c, _) => {
                for (weight, values) in [a, b, c].into_iter().flatten() {
                    out.iter_mut().zip(&values[..n]).for_each(|(out, &value)| *out += weight * value);
                }
                return;
            }
        }
    }
}

/// The sum of products, over eight sums side by side so that it vectorises.
fn dot<T: Compute>(a: &[T], b: &[T]) -> f64 {
    let mut sums = [T::zero(); 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: T = a_rest.iter().zip(b_rest).map(|(&a, &b)| a * b).sum();
    (sums.into_iter().sum::<T>() + rest).f64()
}
