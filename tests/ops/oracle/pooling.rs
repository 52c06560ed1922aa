//! Pooling.

use ferrolayer::Out;
use ferrolayer::ops::avg_pool::{self, Divisor};
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::ops::{Window, max_pool, stochastic_pool};
use serde::Deserialize;

use super::Check;
use super::vectors::{Kind, Scalar, Trial};
use crate::support::{Failed, Outcome};

/// An input and the windows over it.
#[derive(Deserialize)]
struct Windows {
    x: [usize; 4],
    size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
}

/// A position of a window.
struct Position {
    /// Down and to the right from the window's first.
    place: [usize; 2],
    /// Where it is in its plane of the input; nowhere, for a position in the padding.
    pixel: Option<usize>,
}

impl Windows {
    fn window(&self) -> Window {
        let &Self { size, stride, padding, dilation, ceil_mode, .. } = self;
        Window { size, stride, padding, dilation, ceil_mode }
    }

    /// Elements of a plane of the input.
    fn plane(&self) -> usize {
        self.x[2] * self.x[3]
    }

    /// The positions of an output's window, row-major.
    fn positions(&self, output: [usize; 2]) -> Vec<Position> {
        let coordinate = |axis: usize, place: usize| {
            let padded = output[axis] * self.stride[axis] + place * self.dilation[axis];
            padded.checked_sub(self.padding[axis]).filter(|&at| at < self.x[2 + axis])
        };
        let places = (0..self.size[0]).flat_map(|i| (0..self.size[1]).map(move |j| [i, j]));
        let pixel = |[i, j]: [usize; 2]| Some(coordinate(0, i)? * self.x[3] + coordinate(1, j)?);
        places.map(|place| Position { place, pixel: pixel(place) }).collect()
    }

    /// Calls `f` with the number of each output map (an image's channel, or one of its `kernels`), the output's place in
    /// `y`, and its window.
    fn for_each_output(
        &self,
        trial: &Trial<'_>,
        kernels: usize,
        mut f: impl FnMut(usize, usize, [usize; 2], &[Position]),
    ) -> Outcome {
        let &[.., height, width] = trial.shape("y")? else {
            return Err(format!("y has shape {:?}, expected four dimensions", trial.shape("y")?).into());
        };
        let windows: Vec<_> =
            (0..height * width).map(|i| [i / width, i % width]).map(|at| (at, self.positions(at))).collect();
        for map in 0..self.x[0] * self.x[1] * kernels {
            for (i, (at, positions)) in windows.iter().enumerate() {
                f(map, map * height * width + i, *at, positions);
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
pub struct Max {
    #[serde(flatten)]
    windows: Windows,
    values: Kind,
    gradient: Kind,
}

impl Check for Max {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let (window, shape) = (self.windows.window(), &self.windows.x);
        let x = trial.input::<T>(self.values, 0, shape)?;
        let dy = trial.input::<T>(self.gradient, 1, trial.shape("y")?)?;
        let max_pool::Output { y, indices } = max_pool::forward(&x.tensor, &window)?;
        let flat = max_pool::flat_indices(&indices, &window, shape)?;
        let mut dx = x.tensor.empty_like()?;
        max_pool::backward(&dy.tensor, &indices, &window, shape, Out::write(&mut dx))?;
        trial.exact("y", &y)?;

        let expected = self.expected_indices(trial, &x.host)?;
        let got = trial.elements("index", &flat)?;
        if let Some(i) = (0..got.len()).find(|&i| got[i] != expected.index[i]) {
            return Err(format!("index: element {i} is {}, expected {}", got[i], expected.index[i]).into());
        }

        let mut sums = vec![(0.0, 0.0); x.host.len()];
        self.windows.for_each_output(trial, 1, |map, output, _, positions| {
            // A window outside of the image altogether has no maximum to pass a gradient to.
            if positions.iter().all(|position| position.pixel.is_none()) {
                return;
            }
            let (sum, size) = &mut sums[map * self.windows.plane() + expected.index[output] as usize];
            *sum += dy.host[output].f64();
            *size += dy.host[output].f64().abs();
        })?;
        let (routed, sizes): (Vec<T>, Vec<f64>) = sums.iter().map(|(sum, size)| (T::of(*sum), *size)).unzip();
        let expected_dx = if expected.is_pytorchs { trial.expected("dx")? } else { &routed };
        trial.close_to("dx", &dx, expected_dx, window.positions(), &sizes)
    }
}

/// Of each output, where in its plane the maximum is.
struct Indices {
    index: Vec<u32>,
    is_pytorchs: bool,
}

impl Max {
    /// PyTorch's, but for windows with several NaN. SPEC.md, Pooling, Max: "NaN wins; on ties the first in row-major
    /// window order." PyTorch keeps the last NaN.
    fn expected_indices<T: Scalar>(&self, trial: &Trial<'_>, x: &[T]) -> Result<Indices, Failed> {
        let mut index: Vec<u32> = trial.expected::<T>("index")?.iter().map(|index| index.f64() as u32).collect();
        let mut is_pytorchs = true;
        self.windows.for_each_output(trial, 1, |map, output, _, positions| {
            let plane = &x[map * self.windows.plane()..][..self.windows.plane()];
            let first_nan = positions.iter().filter_map(|position| position.pixel).find(|&pixel| plane[pixel].is_nan());
            if let Some(first) = first_nan.map(|pixel| pixel as u32).filter(|&first| first != index[output]) {
                index[output] = first;
                is_pytorchs = false;
            }
        })?;
        Ok(Indices { index, is_pytorchs })
    }
}

#[derive(Deserialize)]
pub struct Average {
    #[serde(flatten)]
    windows: Windows,
    count_include_pad: bool,
    divisor: Option<std::num::NonZero<i64>>,
    values: Kind,
    gradient: Kind,
}

impl Check for Average {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let (window, shape) = (self.windows.window(), &self.windows.x);
        let divisor = Divisor { count_include_pad: self.count_include_pad, divisor_override: self.divisor };
        let x = trial.input::<T>(self.values, 0, shape)?;
        let dy = trial.input::<T>(self.gradient, 1, trial.shape("y")?)?;
        let y = avg_pool::forward(&x.tensor, &window, &divisor)?;
        let mut dx = x.tensor.empty_like()?;
        avg_pool::backward(&dy.tensor, &window, &divisor, shape, Out::write(&mut dx))?;

        let (mut y_sizes, mut dx_sizes) = (vec![0.0; dy.host.len()], vec![0.0; x.host.len()]);
        self.windows.for_each_output(trial, 1, |map, output, at, positions| {
            let divisor = self.divisor_at(at, positions);
            for pixel in positions.iter().filter_map(|position| position.pixel) {
                let i = map * self.windows.plane() + pixel;
                y_sizes[output] += x.host[i].f64().abs() / divisor;
                dx_sizes[i] += dy.host[output].f64().abs() / divisor;
            }
        })?;
        trial.close("y", &y, window.positions(), &y_sizes)?;
        trial.close("dx", &dx, window.positions(), &dx_sizes)
    }
}

impl Average {
    /// The magnitude of what the window's sum is divided by.
    fn divisor_at(&self, output: [usize; 2], positions: &[Position]) -> f64 {
        if let Some(divisor) = self.divisor {
            return divisor.get().unsigned_abs() as f64;
        }
        let counted = |position: &&Position| {
            position.pixel.is_some()
                || self.count_include_pad
                    // In the padding, not past it, where `ceil_mode` lets the last window end.
                    && (0..2).all(|axis| {
                        let padded = output[axis] * self.windows.stride[axis] + position.place[axis];
                        padded < self.windows.x[2 + axis] + 2 * self.windows.padding[axis]
                    })
        };
        positions.iter().filter(counted).count() as f64
    }
}

#[derive(Deserialize)]
pub struct Stochastic {
    #[serde(flatten)]
    windows: Windows,
    values: Kind,
}

impl Check for Stochastic {
    /// The pass for inference: what training draws is random.
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let (window, shape) = (self.windows.window(), &self.windows.x);
        let x = trial.input::<T>(self.values, 0, shape)?;
        let y = stochastic_pool::forward_inference(&x.tensor, &window)?;

        // Of an infinity the formula makes NaN, as infinity by infinity; here it is NaN or infinite.
        let mut expected = trial.expected::<T>("y")?.to_vec();
        let got = trial.elements("y", &y)?;
        let mut sizes = vec![0.0; expected.len()];
        self.windows.for_each_output(trial, 1, |map, output, _, positions| {
            for pixel in positions.iter().filter_map(|position| position.pixel) {
                let element = x.host[map * self.windows.plane() + pixel].f64();
                // A mean is at most its largest element, and no element is counted but those above zero.
                sizes[output] = element.max(sizes[output]);
                if element == f64::INFINITY && !got[output].is_finite() {
                    expected[output] = got[output];
                }
            }
        })?;
        // A sum, a quotient and another sum for each position.
        trial.close_to("y", &y, &expected, 3 * window.positions(), &sizes)
    }
}

#[derive(Deserialize)]
pub struct Gaussian {
    #[serde(flatten)]
    windows: Windows,
    kernels: usize,
    /// Whether all channels share one set of parameters.
    shared: bool,
    per_axis: bool,
    normalize: Over,
    values: Kind,
    means: Kind,
    gradient: Kind,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Over {
    Window,
    Valid,
}

impl Check for Gaussian {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let (window, [_, channels, ..]) = (self.windows.window(), self.windows.x);
        let sets = if self.shared { 1 } else { channels };
        let variances = if self.per_axis { 2 } else { 1 };
        let x = trial.input::<T>(self.values, 0, &self.windows.x)?;
        let dy = trial.input::<T>(self.gradient, 1, trial.shape("y")?)?;
        let mean = trial.input::<T>(self.means, 2, &[sets, self.kernels, 2])?;
        let var = trial.input::<T>(Kind::Variances, 3, &[sets, self.kernels, variances])?;
        let normalize = match self.normalize {
            Over::Window => Normalize::Window,
            Over::Valid => Normalize::Valid,
        };
        let y = gaussian_pool::forward(&x.tensor, &mean.tensor, &var.tensor, &window, normalize)?;
        let (mut dx, mut dmean, mut dvar) =
            (x.tensor.empty_like()?, mean.tensor.empty_like()?, var.tensor.empty_like()?);
        gaussian_pool::backward(
            &x.tensor,
            &mean.tensor,
            &var.tensor,
            &window,
            normalize,
            &dy.tensor,
            Some(Out::write(&mut dx)),
            Some(Out::write(&mut dmean)),
            Some(Out::write(&mut dvar)),
        )?;

        let (mut y_sizes, mut dx_sizes) = (vec![0.0; dy.host.len()], vec![0.0; x.host.len()]);
        let (mut dmean_sizes, mut dvar_sizes) = (vec![0.0; mean.host.len()], vec![0.0; var.host.len()]);
        self.windows.for_each_output(trial, self.kernels, |map, output, _, positions| {
            let (plane, kernel) = (map / self.kernels, map % self.kernels);
            let set = if self.shared { 0 } else { plane % channels };
            let gaussian = set * self.kernels + kernel;
            let along = |axis: usize| if self.per_axis { gaussian * 2 + axis } else { gaussian };
            let mean = [0, 1].map(|axis| mean.host[gaussian * 2 + axis].f64());
            let var = [0, 1].map(|axis| var.host[along(axis)].f64());
            let dy = dy.host[output].f64().abs();
            for term in self.terms(mean, var, positions) {
                let i = plane * self.windows.plane() + term.pixel;
                let x = x.host[i].f64().abs();
                y_sizes[output] += term.weight * x;
                dx_sizes[i] += term.weight * dy;
                for axis in 0..2 {
                    dmean_sizes[gaussian * 2 + axis] += term.by_mean[axis] * x * dy;
                    dvar_sizes[along(axis)] += term.by_var[axis] * x * dy;
                }
            }
        })?;
        let positions = window.positions();
        let sums = dy.host.len() / (sets * self.kernels) * positions;
        trial.close("y", &y, positions, &y_sizes)?;
        trial.close("dx", &dx, positions * self.kernels, &dx_sizes)?;
        for (name, got, sizes) in [("dmean", &dmean, &dmean_sizes), ("dvar", &dvar, &dvar_sizes)] {
            // A weight's derivatives add up to 0 over a window: of an infinite pixel or gradient they make an infinity, or
            // NaN, by the order in which they are taken. It has to be one of the two, and the rest has to be right.
            let got_elements = trial.elements(name, got)?;
            let either =
                |(got, expected): (&T, &T)| if expected.is_finite() || got.is_finite() { *expected } else { *got };
            let expected: Vec<T> = got_elements.iter().zip(trial.expected::<T>(name)?).map(either).collect();
            trial.close_to(name, got, &expected, sums, sizes)?;
        }
        Ok(())
    }
}

/// The sizes that the roundings of a pixel's weight, and of the weight's derivatives, are relative to.
struct Term {
    pixel: usize,
    weight: f64,
    by_mean: [f64; 2],
    by_var: [f64; 2],
}

impl Gaussian {
    /// The pixels of a window, as the formula has them: a weight's relative error is as many roundings as its exponents are
    /// large, and a derivative is a weight times a difference.
    fn terms(&self, mean: [f64; 2], var: [f64; 2], positions: &[Position]) -> Vec<Term> {
        let all = self.normalize == Over::Window;
        let counted: Vec<&Position> = positions.iter().filter(|position| all || position.pixel.is_some()).collect();
        let distance = |position: &Position, axis: usize| {
            position.place[axis] as f64 - (self.windows.size[axis] as f64 - 1.0) / 2.0 - mean[axis]
        };
        let exponent =
            |position: &Position| (0..2).map(|axis| -distance(position, axis).powi(2) / (2.0 * var[axis])).sum::<f64>();
        let largest = counted.iter().map(|position| exponent(position)).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = counted.iter().map(|position| (exponent(position) - largest).exp()).sum();
        let weight = |position: &Position| (exponent(position) - largest).exp() / sum;
        let slopes = |position: &Position| {
            let distances = [0, 1].map(|axis| distance(position, axis).abs());
            let by_mean = [0, 1].map(|axis| distances[axis] / var[axis]);
            let by_var = [0, 1].map(|axis| distances[axis].powi(2) / (2.0 * var[axis].powi(2)));
            [by_mean, by_var]
        };
        let average = |which: usize, axis: usize| -> f64 {
            counted.iter().map(|position| weight(position) * slopes(position)[which][axis]).sum()
        };
        let averages = [0, 1].map(|which| [0, 1].map(|axis| average(which, axis)));
        let term = |position: &&Position| {
            let size = weight(position) * (1.0 + exponent(position).abs() + largest.abs());
            let [by_mean, by_var] =
                [0, 1].map(|which| [0, 1].map(|axis| size * (slopes(position)[which][axis] + averages[which][axis])));
            Some(Term { pixel: position.pixel?, weight: size, by_mean, by_var })
        };
        counted.iter().filter_map(term).collect()
    }
}
