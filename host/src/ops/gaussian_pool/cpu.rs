//! Separable passes by rows: first along y, one whole row of the image at a time, then along x.
//!
//! A task takes a few rows of one plane ([`rows`]); how many depends on the shapes alone, so that sums have one order for any
//! number of threads. A pixel has one element, or all channels where these are neighbours ([`Plan::lanes`]). Either way
//! every inner loop ([`sums`]) runs over adjacent elements of slices, which the compiler vectorises: along x by the order of
//! columns ([`Columns`](columns::Columns)). Planes of few terms go by these ([`few`]), the input's gradient of
//! planes that have one window by its weights ([`whole`]). Elements of 16 bits are converted first, a task's at once, or where they are read.

mod along_y;
mod columns;
mod few;
mod parts;
mod rows;
mod sums;
mod whole;

use std::ops::Range;

use rayon::prelude::*;

use self::along_y::Rows;
use self::few::Terms;
use self::rows::{Sums, gradients};

use super::plan::{Axis, Plan};
use super::weights::{self, Derivatives, Factor, Weights};
use super::{Backward, Forward};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, accumulate};
use crate::{Compute, Error, Layout, Out, Real, Result, Tensor};

/// Elements of all tasks that a thread takes in turn, about.
const TURN: usize = 4096;

/// Elements of the image of which one task has the rows, about.
const ROWS: usize = 128 * 1024;

/// Windows along y that have an element of 16 bits, up to which it is converted for each of them: that takes less than to write what it
/// is converted to, and to read that.
const MOST_CONVERSIONS: usize = 2;

impl Plan {
    /// Elements of a pixel: its channels, where these are neighbours. They are pooled alike, and a plane has all of them.
    fn lanes(&self) -> usize {
        match self.layout {
            Layout::RowMajor => 1,
            Layout::ChannelsLast => self.channels,
        }
    }

    /// Gaussians whose outputs alternate in memory.
    fn alternating(&self) -> usize {
        match self.layout {
            Layout::RowMajor => 1,
            Layout::ChannelsLast => self.kernels,
        }
    }

    /// Whether the lanes of a pixel have weights of their own.
    fn by_lane(&self) -> bool {
        self.sets > 1 && self.lanes() > 1
    }

    /// Those of all Gaussians that a plane has.
    fn of_plane<'a, W>(&self, gaussians: &'a [W], plane: usize) -> &'a [W] {
        &gaussians[self.set(plane * self.lanes()) * self.kernels..][..self.kernels]
    }

    /// Elements of a row of the image, and of a row of the outputs of Gaussians that alternate.
    fn lines(&self) -> [usize; 2] {
        let [_, horizontal] = &self.axes;
        [horizontal.image * self.lanes(), horizontal.output * self.lanes() * self.alternating()]
    }

    /// Rows of the image that one task takes: more than its first windows have, which other tasks read, too.
    fn rows_per_task(&self) -> usize {
        (ROWS / self.lines()[0]).max(2 * self.axes[0].size)
    }
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let plan = &self.plan;
        let gaussians = gaussians(plan, self.mean, self.var, weights::weights::<T::Compute>)?;
        let (x, y) = (self.x.host()?, self.y.host_mut()?);
        let along: Vec<_> = gaussians.iter().map(|axes| axes.each_ref()).collect();
        if let Some(terms) = Terms::forward(plan, &along) {
            terms.sum(x, y, T::Compute::of(0.0));
        } else if plan.by_lane() {
            pool(plan, &by_lane(plan, &gaussians, Weights::by_lane), x, y);
        } else {
            pool(plan, &gaussians, x, y);
        }
        Ok(())
    }
}

fn pool<T: Real, W: Factor<T::Compute>>(plan: &Plan, gaussians: &[[Weights<W>; 2]], x: &[T], y: &mut [T]) {
    let (vertical, [x_line, line], alternating) = (plan.axes[0], plan.lines(), plan.alternating());
    let image = vertical.image * x_line;
    let in_registers =
        T::as_compute(x).is_none() && alternating * vertical.size.div_ceil(vertical.stride) <= MOST_CONVERSIONS;
    let rows = plan.rows_per_task().div_ceil(vertical.stride);
    let tasks =
        tasks(plan.planes() * plan.kernels / plan.lanes() / alternating, [vertical.output, line], rows, Some(y));
    tasks.into_par_iter().run_with(per_turn(rows * line), Vec::new, |room, Task { plane: i, rows, out }| {
        let (plane, gaussian) = (i * alternating / plan.kernels, i * alternating % plan.kernels);
        let gaussians = &plan.of_plane(gaussians, plane)[gaussian..][..alternating];
        let (x, source, y) = (&x[plane * image..][..image], vertical.source(&rows), out.unwrap_or_default());
        if in_registers {
            rows::pool(plan, gaussians, Rows::unconverted(x, &source, x_line), rows, y);
        } else {
            rows::pool(plan, gaussians, Rows::of(x, &source, x_line, room), rows, y);
        }
    });
}

/// Some rows of one plane, and the memory for what comes of them.
struct Task<'a, T> {
    plane: usize,
    rows: Range<usize>,
    out: Option<&'a mut [T]>,
}

/// For all rows of so many planes, a few rows a task; what comes of a row is one `line`, and `out` has all.
fn tasks<T>(planes: usize, [height, line]: [usize; 2], rows: usize, mut out: Option<&mut [T]>) -> Vec<Task<'_, T>> {
    let of_plane = |plane| (0..height).step_by(rows).map(move |first| (plane, first..height.min(first + rows)));
    let task = |(plane, rows): (usize, Range<usize>)| {
        let (own, rest) = out.take().map(|out| out.split_at_mut(rows.len() * line)).unzip();
        out = rest;
        Task { plane, rows, out: own }
    };
    (0..planes).flat_map(of_plane).map(task).collect()
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let plan = self.plan.clone();
        let gaussians = gaussians(&plan, self.mean, self.var, weights::derivatives::<T::Compute>)?;
        let mut pass = self;
        if pass.dmean.is_none()
            && pass.dvar.is_none()
            && let Some(Out { tensor, beta }) = &mut pass.dx
        {
            let along: Vec<_> = gaussians.iter().map(|axes| axes.each_ref().map(|axis| &axis.weight)).collect();
            let (dy, beta) = (pass.dy.host()?, T::Compute::of(*beta));
            if let Some(terms) = Terms::backward(&plan, &along) {
                terms.sum(dy, tensor.host_mut()?, beta);
                return Ok(());
            }
            if whole::is_whole(&plan) {
                whole::backward(&plan, &along, dy, tensor.host_mut()?, beta);
                return Ok(());
            }
        }
        if plan.by_lane() {
            pass.with(&by_lane(&plan, &gaussians, Derivatives::by_lane))
        } else {
            pass.with(&gaussians)
        }
    }
}

impl<T: Real> Backward<'_, T> {
    fn with<W: Factor<T::Compute>>(self, gaussians: &[[Derivatives<W>; 2]]) -> Result<()> {
        let plan = &self.plan;
        let parameters = self.dmean.is_some() || self.dvar.is_some();
        let (dx, beta) = match self.dx {
            Some(Out { tensor, beta }) => (Some(tensor.host_mut()?), T::Compute::of(beta)),
            None => (None, T::Compute::of(0.0)),
        };
        let pass = Pass { plan, gaussians, x: self.x.host()?, dy: self.dy.host()?, beta, parameters };
        if dx.is_none() && !parameters {
            return Ok(());
        }
        let ([line, _], rows) = (plan.lines(), plan.rows_per_task());
        let tasks = tasks(plan.planes() / plan.lanes(), [plan.axes[0].image, line], rows, dx);
        let sums = tasks.into_par_iter().map_init(Vec::new, |rooms, task| (task.plane, pass.rows(task, rooms)));
        let sums = sums.gather(per_turn(rows * line));
        if parameters {
            write_parameters(plan, &total(plan, &sums), self.dmean, self.dvar)?;
        }
        Ok(())
    }
}

/// A backward pass, of which tasks take some rows.
struct Pass<'a, T: Real, W> {
    plan: &'a Plan,
    gaussians: &'a [[Derivatives<W>; 2]],
    x: &'a [T],
    dy: &'a [T],
    beta: T::Compute,
    /// Whether sums for mean and variance are asked for.
    parameters: bool,
}

impl<T: Real, W: Factor<T::Compute>> Pass<'_, T, W> {
    /// Does a task, and gives what its rows add to the sums of each of the plane's Gaussians.
    fn rows(&self, Task { plane, rows, out }: Task<'_, T>, rooms: &mut Vec<Vec<T::Compute>>) -> Vec<Sums> {
        let (plan, [line, dy_line]) = (self.plan, self.plan.lines());
        let [vertical, _] = &plan.axes;
        let (image, output) = (vertical.image * line, vertical.output * dy_line);
        let planes = plan.kernels / plan.alternating();
        rooms.resize_with(1 + 2 * planes, Vec::new);
        let (x_room, dy_rooms) = rooms.split_at_mut(1);
        let x = &self.x[plane * image..][..image];
        let x = self.parameters.then(|| Rows::of(x, &rows, line, &mut x_room[0]));
        let source = vertical.covering_any(&rows);
        let dy = self.dy[plane * planes * output..].chunks(output).zip(dy_rooms.as_chunks_mut().0);
        let dy: Vec<_> = dy
            .flat_map(|(dy, [room, apart])| Rows::of(dy, &source, dy_line, room).apart(plan.alternating(), apart))
            .collect();
        gradients(plan, plan.of_plane(self.gaussians, plane), x, &dy, rows, out, self.beta)
    }
}

/// Tasks of so many elements that a thread takes in turn.
fn per_turn(elements: usize) -> usize {
    (TURN / elements).max(1)
}

/// Of each of a plane's Gaussians what `of` makes of its lanes' along y and x.
fn by_lane<A, B>(plan: &Plan, gaussians: &[[A; 2]], of: impl Fn(&[&A]) -> B) -> Vec<[B; 2]> {
    let along = |kernel: usize, axis: usize| {
        let lanes = gaussians.iter().skip(kernel).step_by(plan.kernels);
        of(&lanes.map(|lane| &lane[axis]).collect::<Vec<_>>())
    };
    (0..plan.kernels).map(|kernel| [0, 1].map(|axis| along(kernel, axis))).collect()
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

/// The tasks' sums, each with its plane, added in the tasks' order; by kernel.
fn total(plan: &Plan, tasks: &[(usize, Vec<Sums>)]) -> Vec<Sums> {
    let mut total = vec![Sums::new(plan.sets); plan.kernels];
    for (plane, sums) in tasks {
        let set = plan.set(plane * plan.lanes());
        let add = |total: &mut [Vec<f64>; 2], sums: &[Vec<f64>; 2]| {
            for (total, sums) in total.iter_mut().zip(sums) {
                total[set..].iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
            }
        };
        for (total, sums) in total.iter_mut().zip(sums) {
            add(&mut total.mean, &sums.mean);
            add(&mut total.var, &sums.var);
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
    let gaussians = || (0..plan.sets).flat_map(|set| total.iter().map(move |sums| (set, sums)));
    if let Some(Out { tensor, beta }) = dmean {
        for (out, (set, Sums { mean, .. })) in tensor.host_mut()?.chunks_mut(2).zip(gaussians()) {
            (0..2).for_each(|axis| accumulate(&mut out[axis], C::of(mean[axis][set]), C::of(beta)));
        }
    }
    if let Some(Out { tensor, beta }) = dvar {
        for (out, (set, Sums { var: [y, x], .. })) in tensor.host_mut()?.chunks_mut(plan.variances()).zip(gaussians()) {
            let sums = if plan.per_axis { [y[set], x[set]] } else { [y[set] + x[set]; 2] };
            out.iter_mut().zip(sums).for_each(|(out, sum)| accumulate(out, C::of(sum), C::of(beta)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Normalize, Window, backward};
    use super::*;
    use crate::Device;

    fn values(len: usize, salt: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919 + salt) % 1009) as f32 / 1009.0 - 0.5).collect()
    }

    /// The same bits whatever the number of threads, of images of several tasks.
    #[test]
    fn order_of_sums_does_not_depend_on_the_threads() -> Result<()> {
        let cpu = Device::cpu();
        for (layout, shape, sets) in [
            (Layout::RowMajor, [2, 3, 90, 1700], 1),
            (Layout::RowMajor, [9, 5, 20, 21], 5),
            (Layout::ChannelsLast, [2, 19, 50, 200], 1),
            (Layout::ChannelsLast, [2, 19, 50, 200], 19),
        ] {
            let window = Window::new([3, 3]).stride([2, 2]);
            let [height, width] = window.output_size("test", [shape[2], shape[3]])?;
            let image = |shape: &[usize], salt| {
                Tensor::from_vec(&cpu, shape, values(shape.iter().product(), salt))?.to_layout(layout)
            };
            let (x, dy) = (image(&shape, 1)?, image(&[shape[0], shape[1], height, width], 2)?);
            let mean = Tensor::from_vec(&cpu, &[sets, 1, 2], values(sets * 2, 3))?;
            let var = Tensor::full(&cpu, &[sets, 1, 1], 1.5)?;
            let run = |threads| -> Result<_> {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (mut dmean, mut dvar) = (mean.empty_like()?, var.empty_like()?);
                let (to_mean, to_var) = (Some(Out::write(&mut dmean)), Some(Out::write(&mut dvar)));
                pool.install(|| backward(&x, &mean, &var, &window, Normalize::Window, &dy, None, to_mean, to_var))?;
                Ok([dmean.to_vec()?, dvar.to_vec()?].map(|v| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()))
            };
            let expected = run(1)?;
            for threads in [2, 3, 7] {
                assert!(run(threads)? == expected, "{layout:?} {shape:?} on {threads} threads");
            }
        }
        Ok(())
    }
}
