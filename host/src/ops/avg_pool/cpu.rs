use std::ops::Range;

use rayon::prelude::*;

use super::{Averages, Backward, Forward};
use crate::device::{Cpu, OnCpu};
use crate::ops::window::{for_each_band, rows_per_task, zip_strided};
use crate::{Compute, Result};

impl Averages {
    /// The rows of the input that this row of the output averages over.
    fn rows(&self, row: usize) -> Range<usize> {
        let window = self.windows.window;
        let begin = row * window.stride[0];
        let inside = |row: usize| row.saturating_sub(window.padding[0]).min(self.windows.input[0]);
        inside(begin)..inside(begin + window.size[0])
    }

    /// For each column of the window: the outputs for which it is inside the image, and the input's first column then.
    fn columns(&self) -> Vec<(Range<usize>, usize)> {
        let column = |j| {
            let outputs = self.windows.outputs_at(1, j);
            let begin = if outputs.is_empty() { 0 } else { self.windows.coordinate(1, outputs.start, j) };
            (outputs, begin)
        };
        (0..self.windows.window.size[1]).map(column).filter(|(outputs, _)| !outputs.is_empty()).collect()
    }

    /// Factors of the divisors: one for each row of the output, and one for each column.
    fn factors<T: Compute>(&self) -> [Vec<T>; 2] {
        let counted = |axis| (0..self.windows.output[axis]).map(|i| T::of(self.counted(axis, i) as f64)).collect();
        match self.divisor.divisor_override {
            None => [counted(0), counted(1)],
            Some(divisor) => {
                let [height, width] = self.windows.output;
                [vec![T::of(divisor.get() as f64); height], vec![T::one(); width]]
            }
        }
    }
}

impl<T: Compute> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y, averages) = (self.x.host()?, self.y.host_mut()?, self.averages);
        let ([height, width], [output_height, output_width]) = (averages.windows.input, averages.windows.output);
        let (columns, stride) = (averages.columns(), averages.windows.window.stride[1]);
        let [row_factors, factors]: [Vec<T>; 2] = averages.factors();
        let rows = y.par_chunks_mut(output_width).with_min_len(rows_per_task(output_width)).enumerate();
        rows.for_each_init(
            || vec![T::zero(); width],
            |sums, (row, y)| {
                let (plane, row) = (row / output_height, row % output_height);
                sums.fill(T::zero());
                for row in averages.rows(row) {
                    let line = &x[(plane * height + row) * width..][..width];
                    sums.iter_mut().zip(line).for_each(|(sum, x)| *sum += *x);
                }
                y.fill(T::zero());
                for (outputs, begin) in &columns {
                    zip_strided(y[outputs.clone()].iter_mut(), &sums[*begin..], stride, |y, sum| *y += sum);
                }
                for (y, factor) in y.iter_mut().zip(&factors) {
                    *y /= row_factors[row] * *factor;
                }
            },
        );
        Ok(())
    }
}

impl<T: Compute> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (dy, dx, averages) = (self.dy.host()?, self.dx.tensor.host_mut()?, self.averages);
        let (input, [output_height, output_width]) = (averages.windows.input, averages.windows.output);
        let (columns, stride) = (averages.columns(), averages.windows.window.stride[1]);
        let [row_factors, factors]: [Vec<T>; 2] = averages.factors();
        for_each_band(dx, input, T::of(self.dx.beta), |plane, band, dx| {
            let mut shares = vec![T::zero(); output_width];
            let mut spread = vec![T::zero(); input[1]];
            for row in averages.windows.outputs_over(0, &band) {
                let dy = &dy[(plane * output_height + row) * output_width..][..output_width];
                for (share, (dy, factor)) in shares.iter_mut().zip(dy.iter().zip(&factors)) {
                    *share = *dy / (row_factors[row] * *factor);
                }
                spread.fill(T::zero());
                for (outputs, begin) in &columns {
                    let cells = spread[*begin..].iter_mut().step_by(stride);
                    cells.zip(&shares[outputs.clone()]).for_each(|(cell, share)| *cell += *share);
                }
                // The same share to each row that the windows cover, as far as it is of this band.
                let covered = averages.rows(row);
                for row in covered.start.max(band.start)..covered.end.min(band.end) {
                    let line = &mut dx[(row - band.start) * input[1]..][..input[1]];
                    line.iter_mut().zip(&spread).for_each(|(dx, share)| *dx += *share);
                }
            }
        });
        Ok(())
    }
}
