use std::ops::Range;

use rayon::prelude::*;

use super::{Averages, Backward, Forward};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu};
use crate::ops::rows::{for_each_band, rounding, rows_per_task, zip_strided};
use crate::{Compute, Real, Result};

impl Averages {
    /// The rows of the input that this row of the output averages over.
    fn rows(&self, row: usize) -> Range<usize> {
        let window = self.windows.window;
        let begin = row * window.stride[0];
        let inside = |row: usize| row.saturating_sub(window.padding[0]).min(self.windows.input[0]);
        inside(begin)..inside(begin + window.size[0])
    }

    /// Factors of the divisors: one for each row of the output, and one for each element of a row.
    fn factors<C: Compute>(&self) -> [Vec<C>; 2] {
        let ([height, width], pixel) = (self.windows.output, self.windows.pixel());
        let [down, right]: [Vec<C>; 2] = match self.divisor.divisor_override {
            None => [(0, height), (1, width)]
                .map(|(axis, outputs)| (0..outputs).map(|i| C::of(self.counted(axis, i) as f64)).collect()),
            Some(divisor) => [vec![C::of(divisor.get() as f64); height], vec![C::one(); width]],
        };
        [down, right.into_iter().flat_map(|factor| std::iter::repeat_n(factor, pixel)).collect()]
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
        let (runs, zero) = (averages.windows.runs(), T::Compute::of(0.0));
        let [row_factors, factors]: [Vec<T::Compute>; 2] = averages.factors();
        y.par_chunks_mut(output_line).enumerate().run_with(
            rows_per_task(output_line),
            || (vec![zero; line], Vec::new()),
            |(sums, room), (row, y)| {
                let (plane, row) = (row / output_height, row % output_height);
                sums.fill(zero);
                for row in averages.rows(row) {
                    let line = &x[(plane * height + row) * line..][..line];
                    sums.iter_mut().zip(line).for_each(|(sum, x)| *sum += x.widen());
                }
                rounding(y, room, |y| {
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
        let [row_factors, factors]: [Vec<T::Compute>; 2] = averages.factors();
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
                let covered = averages.rows(row);
                for row in covered.start.max(band.start)..covered.end.min(band.end) {
                    let line = &mut dx[(row - band.start) * line..][..line];
                    line.iter_mut().zip(&spread).for_each(|(dx, share)| *dx += *share);
                }
            }
        });
        Ok(())
    }
}
