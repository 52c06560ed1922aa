use std::ops::Range;

use rayon::prelude::*;
use smallvec::SmallVec;

use super::{Averages, Backward, Forward};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, rounding};
use crate::ops::rows::{for_each_band, rows_per_task, zip_strided};
use crate::{Compute, Real, Result};

/// Elements of a plane of the input up to which loops over its lines take longer than going from window to window.
const SMALL: usize = 64;

impl Averages {
    /// The rows, or with `axis` 1 the columns, of the input that this one of the output averages over.
    fn inside(&self, axis: usize, output: usize) -> Range<usize> {
        let window = self.windows.window;
        let begin = output * window.stride[axis];
        let clamped = |place: usize| place.saturating_sub(window.padding[axis]).min(self.windows.input[axis]);
        clamped(begin)..clamped(begin + window.size[axis])
    }

    /// One axis' factor of an output's divisor.
    fn factor<C: Compute>(&self, axis: usize, output: usize) -> C {
        match (self.divisor.divisor_override, axis) {
            (None, _) => C::of(self.counted(axis, output) as f64),
            (Some(divisor), 0) => C::of(divisor.get() as f64),
            (Some(_), _) => C::one(),
        }
    }

    /// All factors: one for each row of the output, and one for each element of a row.
    fn factors<C: Compute>(&self) -> [Vec<C>; 2] {
        let ([height, width], pixel) = (self.windows.output, self.windows.pixel());
        let across = (0..width).flat_map(|i| std::iter::repeat_n(self.factor(1, i), pixel));
        [(0..height).map(|i| self.factor(0, i)).collect(), across.collect()]
    }

    /// The averages of a plane, window after window. Of a window each column is added up, then these: the order in which
    /// whole lines are.
    fn small_plane<T: Real>(&self, columns: &[(Range<usize>, T::Compute)], x: &[T], y: &mut [T]) {
        let (line, zero) = (self.windows.input_line(), T::Compute::of(0.0));
        for (row, y) in y.chunks_exact_mut(columns.len()).enumerate() {
            let (rows, down) = (self.inside(0, row), self.factor::<T::Compute>(0, row));
            let x = &x[rows.start * line..rows.end * line];
            for ((columns, across), y) in columns.iter().zip(y) {
                let mut sum = zero;
                for column in columns.clone() {
                    let (mut of_column, mut at) = (zero, column);
                    while let Some(x) = x.get(at) {
                        of_column += x.widen();
                        at += line;
                    }
                    sum += of_column;
                }
                *y = T::narrow(sum / (down * *across));
            }
        }
    }
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y, averages) = (self.x.host()?, self.y.host_mut()?, self.averages);
        if y.is_empty() {
            return Ok(());
        }
        let ([height, _], output_height) = (averages.windows.input, averages.windows.output[0]);
        let (line, output_line) = (averages.windows.input_line(), averages.windows.output_line());
        let planes = [height.saturating_mul(line), output_height.saturating_mul(output_line)];
        if averages.windows.pixel() == 1 && planes[0] <= SMALL {
            let columns = (0..output_line).map(|i| (averages.inside(1, i), averages.factor(1, i)));
            let columns = columns.collect::<SmallVec<[_; 8]>>();
            let each = y.par_chunks_mut(planes[1]).zip(x.par_chunks(planes[0]));
            each.run(rows_per_task(planes[0]), |(y, x)| averages.small_plane(&columns, x, y));
            return Ok(());
        }
        let (runs, zero) = (averages.windows.runs(), T::Compute::of(0.0));
        let [row_factors, factors] = averages.factors::<T::Compute>();
        y.par_chunks_mut(output_line).enumerate().run_with(
            rows_per_task(output_line),
            || (vec![zero; line], Vec::new()),
            |(sums, room), (row, y)| {
                let (plane, row) = (row / output_height, row % output_height);
                sums.fill(zero);
                for row in averages.inside(0, row) {
                    let line = &x[(plane * height + row) * line..][..line];
                    sums.iter_mut().zip(line).for_each(|(sum, x)| *sum += x.widen());
                }
                rounding(y, T::Compute::of(0.0), room, |y| {
                    y.fill(zero);
                    for run in &runs {
                        let y = y[run.outputs.clone()].iter_mut();
                        zip_strided(y, &sums[run.first..], run.stride, |y, sum| *y += sum);
                    }
                    for (y, factor) in y.iter_mut().zip(&factors) {
                        *y /= row_factors[row] * *factor;
                    }
                });
            },
        );
        Ok(())
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (dy, dx, averages) = (self.dy.host()?, self.dx.tensor.host_mut()?, self.averages);
        if dx.is_empty() {
            return Ok(());
        }
        let (output_height, output_line) = (averages.windows.output[0], averages.windows.output_line());
        let (line, runs, zero) = (averages.windows.input_line(), averages.windows.runs(), T::Compute::of(0.0));
        let [row_factors, factors] = averages.factors::<T::Compute>();
        for_each_band(dx, &averages.windows, self.dx.beta, |plane, band, dx| {
            let mut shares = vec![zero; output_line];
            let mut spread = vec![zero; line];
            for row in averages.windows.outputs_over(0, &band) {
                let dy = &dy[(plane * output_height + row) * output_line..][..output_line];
                for (share, (dy, factor)) in shares.iter_mut().zip(dy.iter().zip(&factors)) {
                    *share = dy.widen() / (row_factors[row] * *factor);
                }
                spread.fill(zero);
                for run in &runs {
                    let (cells, shares) = (&mut spread[run.first..], &shares[run.outputs.clone()]);
                    let add = |(cell, share): (&mut T::Compute, &T::Compute)| *cell += *share;
                    match run.stride {
                        1 => cells.iter_mut().zip(shares).for_each(add),
                        stride => cells.iter_mut().step_by(stride).zip(shares).for_each(add),
                    }
                }
                // The same share to each row that the windows cover, as far as it is of this band.
                let covered = averages.inside(0, row);
                for row in covered.start.max(band.start)..covered.end.min(band.end) {
                    let line = &mut dx[(row - band.start) * line..][..line];
                    line.iter_mut().zip(&spread).for_each(|(dx, share)| *dx += *share);
                }
            }
        });
        Ok(())
    }
}
