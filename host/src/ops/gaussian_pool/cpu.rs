//! Separable passes by rows: first along y, one whole row of the image at a time, then along x.
//!
//! A task takes a few rows of one plane ([`rows`]); how many depends on the shapes alone, so that sums have one order for any
//! number of threads. Along x the columns are regrouped by their remainder modulo the stride ([`Columns`]), so that every
//! inner loop ([`sums`]) runs over adjacent elements of slices, which the compiler vectorises. Elements of 16 bits are
//! converted first, a task's at once.
//!
//! Where the channels of a pixel are neighbours, a task takes a few rows of all planes of one image, and brings the rows
//! that it reads into the same order first, a few channels at a time ([`Apart`]).

mod apart;
mod columns;
mod rows;
mod sums;

use std::ops::Range;

use rayon::prelude::*;

use self::apart::Apart;
use self::columns::Columns;
use self::rows::{Rows, Sums, gradients, pool};

use super::plan::{Axis, Plan};
use super::weights::{self, Derivatives};
use super::{Backward, Forward};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, accumulate, accumulate_all};
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
                let x = &x[plane * image..][..image];
                let rows = per_task(width);
                y.par_chunks_mut(rows * width).enumerate().run(1, |(i, y)| {
                    let rows = i * rows..i * rows + y.len() / width;
                    let mut room = Vec::new();
                    let x = Rows::of(x, &vertical.source(&rows), horizontal.image, &mut room);
                    let mut rest = y;
                    pool(plan, gaussian, x, rows, |pooled| {
                        let (line, after) = std::mem::take(&mut rest).split_at_mut(width);
                        accumulate_all(line, pooled, T::Compute::of(0.0));
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
            None => (None, T::Compute::of(0.0)),
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
        let (mut x_room, mut dy_rooms) = (Vec::new(), vec![Vec::new(); kernels]);
        let x = &self.x[plane * image..][..image];
        let x = self.parameters.then(|| Rows::of(x, &rows, width, &mut x_room));
        let source = vertical.covering_any(&rows);
        let dy = self.dy[plane * kernels * output..].chunks(output).zip(&mut dy_rooms);
        let dy: Vec<_> = dy.map(|(dy, room)| Rows::of(dy, &source, horizontal.output, room)).collect();
        let write = dx.map(|dx| {
            let mut lines = dx.chunks_mut(width);
            move |columns: &Columns<'_, T::Compute>| {
                lines.next().into_iter().for_each(|line| columns.write(line, self.beta));
            }
        });
        gradients(self.plan, gaussians, x, &dy, rows, write)
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
                let dy: Vec<_> = (0..kernels).map(|kernel| dy.rows(channel * kernels + kernel)).collect();
                let write = dx.as_deref_mut().map(|dx| {
                    let mut lines = dx.chunks_mut(width * all);
                    move |columns: &Columns<'_, T::Compute>| {
                        let line = lines.next().into_iter();
                        line.for_each(|line| columns.write_apart(&mut line[channel..], all, self.beta));
                    }
                });
                let x = self.parameters.then(|| x.rows(channel));
                sums.extend(gradients(self.plan, gaussians, x, &dy, rows.clone(), write));
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
