//! Separable passes by rows: first along y, one whole row of the image at a time, then along x.
//!
//! A task takes a few rows of one plane; how many depends on the shapes alone, so that sums have one order for any number
//! of threads. Along x the columns are regrouped by their remainder modulo the stride ([`Columns`]), so that every inner
//! loop runs over adjacent elements of slices, which the compiler vectorises.
//!
//! Where the channels of a pixel are neighbours, a task takes a few rows of all planes of one image, and brings the rows
//! that it reads into the same order first, a few channels at a time ([`Apart`]).

use std::ops::Range;

use rayon::prelude::*;

use super::plan::{Axis, Plan};
use super::weights::{self, Derivatives, Weights};
use super::{Backward, Forward};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, accumulate};
use crate::{Compute, Error, Layout, Out, Real, Result, Tensor};

/// Elements of the output that one task computes, about.
const TASK: usize = 4096;

/// Channels that are brought apart at once: a cache line or two of a pixel.
const CHANNELS: usize = 16;

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let plan = &self.plan;
        let gaussians = gaussians(plan, self.mean, self.var, weights::weights::<T::Compute>)?;
        let (x, y) = (self.x.host()?, self.y.host_mut()?);
        let [vertical, horizontal] = plan.axes;
        let (width, image, output) =
            (horizontal.output, vertical.image * horizontal.image, vertical.output * horizontal.output);
        let maps = plan.channels * plan.kernels;
        match plan.layout {
            Layout::RowMajor => y.par_chunks_mut(output).enumerate().run(per_task(output), |(map, y)| {
                let (plane, kernel) = (map / plan.kernels, map % plan.kernels);
                let gaussian = &gaussians[plan.set(plane) * plan.kernels + kernel];
                let x = Rows { values: &x[plane * image..][..image], first: 0, width: horizontal.image };
                let rows = per_task(width);
                y.par_chunks_mut(rows * width).enumerate().run(1, |(i, y)| {
                    let rows = i * rows..i * rows + y.len() / width;
                    let mut rest = y;
                    pool(plan, gaussian, x, rows, |pooled| {
                        let (line, after) = std::mem::take(&mut rest).split_at_mut(width);
                        line.iter_mut().zip(pooled).for_each(|(y, &pooled)| *y = T::narrow(pooled));
                        rest = after;
                    });
                });
            }),
            Layout::ChannelsLast => {
                y.par_chunks_mut(output * maps).enumerate().run(per_task(output * maps), |(n, y)| {
                    let rows = per_task(width * maps.min(CHANNELS));
                    y.par_chunks_mut(rows * width * maps).enumerate().run(1, |(i, y)| {
                        let rows = i * rows..i * rows + y.len() / width / maps;
                        let source = vertical.source(&rows);
                        for channels in groups(plan.channels) {
                            let x =
                                Apart::new(x, [n, plan.channels], plan.axes.map(|axis| axis.image), &source, &channels);
                            let maps_here = channels.start * plan.kernels..channels.end * plan.kernels;
                            for map in maps_here {
                                let (channel, kernel) = (map / plan.kernels, map % plan.kernels);
                                let gaussian = &gaussians[plan.set(channel) * plan.kernels + kernel];
                                let mut pixels = y[map..].iter_mut().step_by(maps);
                                pool(plan, gaussian, x.rows(channel), rows.clone(), |pooled| {
                                    // The row that ends is asked first, so that no pixel is taken in vain.
                                    pooled.iter().zip(&mut pixels).for_each(|(&pooled, y)| *y = T::narrow(pooled));
                                });
                            }
                        }
                    });
                })
            }
        }
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let plan = &self.plan;
        let gaussians = gaussians(plan, self.mean, self.var, weights::derivatives::<T::Compute>)?;
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let (dx, beta) = match self.dx {
            Some(Out { tensor, beta }) => (Some(tensor.host_mut()?), T::Compute::of(beta)),
            None => (None, zero()),
        };
        let pass = Pass { plan, gaussians: &gaussians, x: self.x.host()?, dy: self.dy.host()?, beta, parameters };
        let [height, width] = plan.axes.map(|axis| axis.image);
        // A task has some rows of so many planes, of which each line of memory has a part.
        let (planes, rows) = match plan.layout {
            Layout::RowMajor => (1, per_task(width)),
            Layout::ChannelsLast => (plan.channels, per_task(width * plan.channels.min(CHANNELS))),
        };
        let task = |first_plane: usize, rows: Range<usize>, dx: Option<&mut [T]>| match plan.layout {
            Layout::RowMajor => pass.plane(first_plane, rows, dx),
            Layout::ChannelsLast => pass.image(first_plane / planes, rows, dx),
        };
        let line = width * planes;
        let together = per_task(height * line);
        // Of each image or plane, its tasks'.
        let sums: Vec<Vec<Vec<Sums>>> = match dx {
            Some(dx) => {
                let of = |(i, dx): (usize, &mut [T])| {
                    let tasks = dx.par_chunks_mut(rows * line).enumerate();
                    let rows = |j: usize, dx: &[T]| j * rows..j * rows + dx.len() / line;
                    tasks.map(|(j, dx)| task(i * planes, rows(j, dx), Some(dx))).gather(1)
                };
                dx.par_chunks_mut(height * line).enumerate().map(of).gather(together)
            }
            None if parameters => {
                let of = |i: usize| {
                    let tasks = (0..height.div_ceil(rows)).into_par_iter();
                    tasks.map(|j| task(i * planes, j * rows..height.min((j + 1) * rows), None)).gather(1)
                };
                (0..plan.planes() / planes).into_par_iter().map(of).gather(together)
            }
            None => return Ok(()),
        };
        if parameters {
            let sums: Vec<_> = sums.into_iter().flatten().collect();
            let first_planes = (0..).map(|task| task / height.div_ceil(rows) * planes);
            let total = total(plan, first_planes.zip(&sums));
            write_parameters(plan, &total, self.dmean, self.dvar)?;
        }
        Ok(())
    }
}

/// A backward pass, of which tasks take some rows.
struct Pass<'a, T: Real> {
    plan: &'a Plan,
    gaussians: &'a [[Derivatives<T::Compute>; 2]],
    x: &'a [T],
    dy: &'a [T],
    beta: T::Compute,
    /// Whether sums for mean and variance are asked for.
    parameters: bool,
}

impl<T: Real> Pass<'_, T> {
    /// Some rows of one plane, and what they add to the sums of each of the plane's Gaussians.
    fn plane(&self, plane: usize, rows: Range<usize>, dx: Option<&mut [T]>) -> Vec<Sums> {
        let [vertical, horizontal] = &self.plan.axes;
        let (kernels, width) = (self.plan.kernels, horizontal.image);
        let (image, output) = (vertical.image * width, vertical.output * horizontal.output);
        let gaussians = &self.gaussians[self.plan.set(plane) * kernels..][..kernels];
        let x = Rows { values: &self.x[plane * image..][..image], first: 0, width };
        let dy = |kernel: usize| {
            let values = &self.dy[(plane * kernels + kernel) * output..][..output];
            Rows { values, first: 0, width: horizontal.output }
        };
        let write = dx.map(|dx| {
            let mut lines = dx.chunks_mut(width);
            move |columns: &Columns<'_, T::Compute>| {
                lines.next().into_iter().for_each(|line| columns.write(line, 1, self.beta));
            }
        });
        gradients(self.plan, gaussians, x, dy, rows, write, self.parameters)
    }

    /// Some rows of one image whose channels are neighbours, as [`Pass::plane`] for one plane after another.
    fn image(&self, n: usize, rows: Range<usize>, mut dx: Option<&mut [T]>) -> Vec<Sums> {
        let &Plan { channels: all, kernels, axes: [vertical, horizontal], .. } = self.plan;
        let (width, source) = (horizontal.image, vertical.covering_any(&rows));
        let (sizes, output_sizes) = ([vertical.image, width], [vertical.output, horizontal.output]);
        let mut sums = Vec::with_capacity(all * kernels);
        for channels in groups(all) {
            let x = Apart::new(self.x, [n, all], sizes, &rows, &channels);
            let maps = channels.start * kernels..channels.end * kernels;
            let dy = Apart::new(self.dy, [n, all * kernels], output_sizes, &source, &maps);
            for channel in channels {
                let gaussians = &self.gaussians[self.plan.set(channel) * kernels..][..kernels];
                let dy = |kernel: usize| dy.rows(channel * kernels + kernel);
                let write = dx.as_deref_mut().map(|dx| {
                    let mut lines = dx.chunks_mut(width * all);
                    move |columns: &Columns<'_, T::Compute>| {
                        let line = lines.next().into_iter();
                        line.for_each(|line| columns.write(&mut line[channel..], all, self.beta));
                    }
                });
                let x = x.rows(channel);
                sums.extend(gradients(self.plan, gaussians, x, dy, rows.clone(), write, self.parameters));
            }
        }
        sums
    }
}

/// The channels, a few at a time.
fn groups(channels: usize) -> impl Iterator<Item = Range<usize>> {
    (0..channels).step_by(CHANNELS).map(move |first| first..channels.min(first + CHANNELS))
}

/// Rows or planes of so many elements that one task takes.
fn per_task(elements: usize) -> usize {
    (TASK / elements).max(1)
}

/// What `along` makes of each Gaussian's parameters along y and x, by set and kernel.
fn gaussians<C: Compute, W>(
    plan: &Plan,
    mean: &Tensor<C>,
    var: &Tensor<C>,
    along: impl Fn(&Axis, C, C) -> W,
) -> Result<Vec<[W; 2]>> {
    let (means, vars) = (mean.host()?, var.host()?);
    let invalid = |argument, tensor: &Tensor<C>, at: usize, value: C, expected: &str| {
        let (last, kernels) = (tensor.shape()[2], tensor.shape()[1]);
        let index = [at / last / kernels, at / last % kernels, at % last];
        Error::Argument { op: plan.op, argument, got: format!("{value} at {index:?}"), expected: expected.into() }
    };
    if let Some(i) = means.iter().position(|m| !m.is_finite()) {
        return Err(invalid("mean", mean, i, means[i], "finite values"));
    }
    if let Some(i) = vars.iter().position(|v| !(v.is_finite() && *v > C::zero())) {
        return Err(invalid("var", var, i, vars[i], "finite values above 0"));
    }
    let variances = plan.variances();
    let pairs = means.chunks(2).zip(vars.chunks(variances));
    Ok(pairs
        .map(|(mean, var)| [0, 1].map(|axis| along(&plan.axes[axis], mean[axis], var[axis.min(variances - 1)])))
        .collect())
}

/// Rows of one plane, from row `first` on.
#[derive(Clone, Copy)]
struct Rows<'a, E> {
    values: &'a [E],
    first: usize,
    width: usize,
}

impl<'a, E> Rows<'a, E> {
    fn row(&self, row: usize) -> &'a [E] {
        &self.values[(row - self.first) * self.width..][..self.width]
    }
}

/// Rows of some planes of an image whose channels are neighbours, brought apart: plane after plane, and widened.
struct Apart<C> {
    values: Vec<C>,
    rows: Range<usize>,
    width: usize,
    first_channel: usize,
}

impl<C: Compute> Apart<C> {
    /// Of image number `n` of those with so many channels in all, of this height and width.
    fn new<T: Real<Compute = C>>(
        images: &[T],
        [n, all]: [usize; 2],
        [height, width]: [usize; 2],
        rows: &Range<usize>,
        channels: &Range<usize>,
    ) -> Self {
        let mut values = vec![zero(); channels.len() * rows.len() * width];
        let pixels = images[(n * height + rows.start) * width * all..].chunks(all).take(rows.len() * width);
        for (i, pixel) in pixels.enumerate() {
            let places = values[i..].iter_mut().step_by(rows.len() * width);
            places.zip(&pixel[channels.clone()]).for_each(|(place, value)| *place = value.widen());
        }
        Self { values, rows: rows.clone(), width, first_channel: channels.start }
    }

    fn rows(&self, channel: usize) -> Rows<'_, C> {
        let plane = self.rows.len() * self.width;
        let values = &self.values[(channel - self.first_channel) * plane..][..plane];
        Rows { values, first: self.rows.start, width: self.width }
    }
}

/// Calls `write` with one after another of some rows of the output of one plane and one Gaussian; `x` has the rows that
/// these cover.
fn pool<E: Real>(
    plan: &Plan,
    [along_y, along_x]: &[Weights<E::Compute>; 2],
    x: Rows<'_, E>,
    rows: Range<usize>,
    mut write: impl FnMut(&[E::Compute]),
) {
    let [vertical, horizontal] = &plan.axes;
    let mut row = vec![zero(); horizontal.image];
    let mut columns = Columns::new(horizontal);
    let mut pooled = vec![zero(); horizontal.output];
    for oy in rows {
        let weights = along_y.case(vertical.case(oy));
        let terms = vertical.inside(oy).map(|i| (weights[i], x.row(oy * vertical.stride + i - vertical.padding)));
        weighted_sum(&mut row, terms);
        columns.set(&row);
        columns.pool(&row, along_x, &mut pooled);
        write(&pooled);
    }
}

/// The derivatives of one Gaussian's mean and variance, each along y and x.
#[derive(Clone, Copy, Default)]
struct Sums {
    mean: [f64; 2],
    var: [f64; 2],
}

/// Calls `write`, where it is there, with the gradient of one after another of some rows of one plane, and gives what these
/// rows add to the sums of each of the plane's Gaussians, if `parameters` are asked for. `x` has these rows, `dy(kernel)` the rows
/// whose windows cover them.
fn gradients<'a, E: Real>(
    plan: &Plan,
    gaussians: &[[Derivatives<E::Compute>; 2]],
    x: Rows<'_, E>,
    dy: impl Fn(usize) -> Rows<'a, E>,
    rows: Range<usize>,
    mut write: Option<impl FnMut(&Columns<'_, E::Compute>)>,
    parameters: bool,
) -> Vec<Sums> {
    let [vertical, horizontal] = &plan.axes;
    let mut sums = vec![Sums::default(); gaussians.len()];
    // dy gathered along y with the weights, and with their derivatives by mean and variance.
    let [mut by_weight, mut by_mean, mut by_var] = [(); 3].map(|()| vec![zero(); horizontal.output]);
    // The row of x, pooled along x in the same three ways.
    let [mut pooled, mut pooled_by_mean, mut pooled_by_var] = [(); 3].map(|()| vec![zero(); horizontal.output]);
    let (mut columns, mut spread) = (Columns::new(horizontal), Columns::new(horizontal));
    let mut pixels = vec![zero(); horizontal.image];
    for iy in rows {
        // A row that no window covers is no term: its NaN times the zeros gathered for it would be one.
        let parameters = parameters && !vertical.covering(iy).is_empty();
        if parameters {
            pixels.iter_mut().zip(x.row(iy)).for_each(|(pixel, x)| *pixel = x.widen());
            columns.set(&pixels);
        }
        spread.clear();
        for (kernel, [along_y, along_x]) in gaussians.iter().enumerate() {
            let dy = dy(kernel);
            let gather = |out: &mut [E::Compute], weights: &Weights<E::Compute>| {
                let terms = vertical.covering(iy).map(|oy| {
                    let position = iy + vertical.padding - oy * vertical.stride;
                    (weights.case(vertical.case(oy))[position], dy.row(oy))
                });
                weighted_sum(out, terms);
            };
            gather(&mut by_weight, &along_y.weight);
            if write.is_some() {
                spread.add(&by_weight, &along_x.weight);
            }
            if parameters {
                gather(&mut by_mean, &along_y.by_mean);
                gather(&mut by_var, &along_y.by_var);
                columns.pool(&pixels, &along_x.weight, &mut pooled);
                columns.pool(&pixels, &along_x.by_mean, &mut pooled_by_mean);
                columns.pool(&pixels, &along_x.by_var, &mut pooled_by_var);
                let sums = &mut sums[kernel];
                sums.mean[0] += dot(&by_mean, &pooled);
                sums.mean[1] += dot(&by_weight, &pooled_by_mean);
                sums.var[0] += dot(&by_var, &pooled);
                sums.var[1] += dot(&by_weight, &pooled_by_var);
            }
        }
        if let Some(write) = &mut write {
            write(&spread);
        }
    }
    sums
}

/// The tasks' sums, added in the tasks' order, by set and kernel. Each comes with the number of the first plane of which
/// it has sums.
fn total<'a>(plan: &Plan, tasks: impl Iterator<Item = (usize, &'a Vec<Sums>)>) -> Vec<Sums> {
    let mut total = vec![Sums::default(); plan.gaussians()];
    for (first_plane, sums) in tasks {
        for (plane, sums) in (first_plane..).zip(sums.chunks(plan.kernels)) {
            for (total, sums) in total[plan.set(plane) * plan.kernels..].iter_mut().zip(sums) {
                for axis in 0..2 {
                    total.mean[axis] += sums.mean[axis];
                    total.var[axis] += sums.var[axis];
                }
            }
        }
    }
    total
}

fn write_parameters<C: Compute>(
    plan: &Plan,
    total: &[Sums],
    dmean: Option<Out<'_, C>>,
    dvar: Option<Out<'_, C>>,
) -> Result<()> {
    if let Some(Out { tensor, beta }) = dmean {
        for (out, sums) in tensor.host_mut()?.chunks_mut(2).zip(total) {
            (0..2).for_each(|axis| accumulate(&mut out[axis], C::of(sums.mean[axis]), C::of(beta)));
        }
    }
    if let Some(Out { tensor, beta }) = dvar {
        for (out, Sums { var, .. }) in tensor.host_mut()?.chunks_mut(plan.variances()).zip(total) {
            let sums = if plan.per_axis { *var } else { [var[0] + var[1]; 2] };
            out.iter_mut().zip(sums).for_each(|(out, sum)| accumulate(out, C::of(sum), C::of(beta)));
        }
    }
    Ok(())
}

fn zero<C: Compute>() -> C {
    C::zero()
}

/// One row of an image for work along x with a stride `s`: column `i` stands at `[i % s][i / s]`, so that the columns that
/// one tap of adjacent windows reads are adjacent.
struct Columns<'a, C> {
    axis: &'a Axis,
    /// Columns with one remainder.
    length: usize,
    values: Vec<C>,
}

impl<'a, C: Compute> Columns<'a, C> {
    fn new(axis: &'a Axis) -> Self {
        let length = axis.image.div_ceil(axis.stride);
        Self { axis, length, values: vec![zero(); length * axis.stride.min(axis.image)] }
    }

    fn clear(&mut self) {
        self.values.fill(zero());
    }

    /// Takes the columns from a row.
    fn set(&mut self, row: &[C]) {
        let stride = self.axis.stride;
        for (remainder, values) in self.values.chunks_mut(self.length).enumerate() {
            for (value, &column) in values.iter_mut().zip(row[remainder..].iter().step_by(stride)) {
                *value = column;
            }
        }
    }

    /// `row = columns + beta * row`, in a row that has a column every `step` elements.
    fn write<T: Real<Compute = C>>(&self, row: &mut [T], step: usize, beta: C) {
        for (remainder, values) in self.values.chunks(self.length).enumerate() {
            let outs = row[remainder * step..].iter_mut().step_by(self.axis.stride * step);
            values.iter().zip(outs).for_each(|(&value, out)| accumulate(out, value, beta));
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
    fn pool(&self, row: &[C], weights: &Weights<C>, y: &mut [C]) {
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
    fn add(&mut self, dy: &[C], weights: &Weights<C>) {
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
fn weighted_sum<'a, E: Real>(out: &mut [E::Compute], mut terms: impl Iterator<Item = (E::Compute, &'a [E])>) {
    let n = out.len();
    out.fill(zero());
    loop {
        let [a, b, c, d] = [(); 4].map(|()| terms.next());
        match (a, b, c, d) {
            (Some((u, a)), Some((v, b)), Some((w, c)), Some((z, d))) => {
                let columns = a[..n].iter().zip(&b[..n]).zip(c[..n].iter().zip(&d[..n]));
                for (out, ((&a, &b), (&c, &d))) in out.iter_mut().zip(columns) {
                    *out += (u * a.widen() + v * b.widen()) + (w * c.widen() + z * d.widen());
                }
            }
            (a, b, c, _) => {
                for (weight, values) in [a, b, c].into_iter().flatten() {
                    out.iter_mut().zip(&values[..n]).for_each(|(out, value)| *out += weight * value.widen());
                }
                return;
            }
        }
    }
}

/// The sum of products, over eight sums side by side so that it vectorises.
fn dot<C: Compute>(a: &[C], b: &[C]) -> f64 {
    let mut sums = [zero::<C>(); 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: C = a_rest.iter().zip(b_rest).map(|(&a, &b)| a * b).sum();
    (sums.into_iter().sum::<C>() + rest).f64()
}
