//! The factors of the weights along one axis, for the CPU.

use super::plan::Axis;
use crate::Compute;

/// A weight of a position: one for all lanes of a pixel, or one for each.
pub trait Factor<C>: Send + Sync {
    /// Of how many sets it is one.
    fn sets(&self) -> usize;

    /// The lane of a pixel's, or a line of pixels', element.
    fn lane(&self, element: usize) -> usize;

    /// The product of two.
    fn times(&self, other: &Self) -> Self;

    /// Those of so many lanes from one on, and of the next pixel's.
    fn of_lanes<const LANES: usize>(&self, first: usize) -> [C; LANES];
}

impl<C: Compute> Factor<C> for C {
    #[inline(always)]
    fn sets(&self) -> usize {
        1
    }

    #[inline(always)]
    fn lane(&self, _: usize) -> usize {
        0
    }

    fn times(&self, other: &Self) -> Self {
        *self * *other
    }

    #[inline(always)]
    fn of_lanes<const LANES: usize>(&self, _: usize) -> [C; LANES] {
        [*self; LANES]
    }
}

/// A weight for each lane, and from the first on again as many as are asked for at once.
pub struct ByLane<C> {
    lanes: usize,
    weights: Vec<C>,
}

/// Lanes that are asked for at once, at most.
pub const BLOCK: usize = 64;

impl<C: Compute> ByLane<C> {
    fn new(weights: impl ExactSizeIterator<Item = C> + Clone) -> Self {
        let lanes = weights.len();
        Self { lanes, weights: weights.cycle().take(lanes + BLOCK - 1).collect() }
    }
}

impl<C: Compute> Factor<C> for ByLane<C> {
    #[inline(always)]
    fn sets(&self) -> usize {
        self.lanes
    }

    #[inline(always)]
    fn lane(&self, element: usize) -> usize {
        element % self.lanes
    }

    fn times(&self, other: &Self) -> Self {
        let weights = self.weights.iter().zip(&other.weights).map(|(a, b)| *a * *b).collect();
        Self { lanes: self.lanes, weights }
    }

    #[inline(always)]
    fn of_lanes<const LANES: usize>(&self, first: usize) -> [C; LANES] {
        std::array::from_fn(|i| self.weights[first..][..LANES][i])
    }
}

/// A Gaussian's factors along one axis, a vector of the window's size for each case of the axis. 0 where a position does
/// not count.
pub struct Weights<W> {
    size: usize,
    values: Vec<W>,
}

impl<W> Weights<W> {
    /// The vector of a case.
    pub fn case(&self, case: usize) -> &[W] {
        &self.values[case * self.size..][..self.size]
    }
}

impl<T: Compute> Weights<T> {
    fn zeros(axis: &Axis) -> Self {
        Self { size: axis.size, values: vec![T::zero(); axis.cases() * axis.size] }
    }

    fn case_mut(&mut self, case: usize) -> &mut [T] {
        &mut self.values[case * self.size..][..self.size]
    }

    /// Of several sets of parameters, one a lane.
    pub fn by_lane(lanes: &[&Self]) -> Weights<ByLane<T>> {
        let Self { size, values } = lanes[0];
        let of = |i: usize| ByLane::new(lanes.iter().map(|lane| lane.values[i]));
        Weights { size: *size, values: (0..values.len()).map(of).collect() }
    }
}

/// The factors and their derivatives by mean and variance.
pub struct Derivatives<W> {
    pub weight: Weights<W>,
    pub by_mean: Weights<W>,
    pub by_var: Weights<W>,
}

impl<T: Compute> Derivatives<T> {
    /// Of several sets of parameters, one a lane.
    pub fn by_lane(lanes: &[&Self]) -> Derivatives<ByLane<T>> {
        let of =
            |part: fn(&Self) -> &Weights<T>| Weights::by_lane(&lanes.iter().map(|lane| part(lane)).collect::<Vec<_>>());
        Derivatives { weight: of(|d| &d.weight), by_mean: of(|d| &d.by_mean), by_var: of(|d| &d.by_var) }
    }
}

/// The factors.
pub fn weights<T: Compute>(axis: &Axis, mean: T, var: T) -> Weights<T> {
    let mut weights = Weights::zeros(axis);
    for case in 0..axis.cases() {
        for (out, position) in weights.case_mut(case).iter_mut().zip(positions(axis, case, mean, var)) {
            *out = T::of(position.weight);
        }
    }
    weights
}

/// The factors and their derivatives.
pub fn derivatives<T: Compute>(axis: &Axis, mean: T, var: T) -> Derivatives<T> {
    let [mut weight, mut by_mean, mut by_var] = [(); 3].map(|()| Weights::zeros(axis));
    let variance = usable(var);
    for case in 0..axis.cases() {
        let positions = positions(axis, case, mean, var);
        let average = |f: fn(&Position) -> f64| positions.iter().map(|p| weighted(p, f(p))).sum::<f64>();
        let (mean_step, mean_exponent) = (average(|p| p.step), average(|p| p.exponent));
        let outs = weight.case_mut(case).iter_mut().zip(by_mean.case_mut(case)).zip(by_var.case_mut(case));
        for (((weight, by_mean), by_var), p) in outs.zip(&positions) {
            *weight = T::of(p.weight);
            *by_mean = T::of(weighted(p, p.step - mean_step) / variance);
            *by_var = T::of(weighted(p, p.exponent - mean_exponent) / variance);
        }
    }
    Derivatives { weight, by_mean, by_var }
}

/// A position of the window under one vector of weights.
struct Position {
    weight: f64,
    /// Pixels from the nearest position to the mean.
    step: f64,
    /// By how much its exponent is below that of the nearest position; infinite when not in f64's range.
    exponent: f64,
}

/// `weight * value`, where a weight of 0 outweighs an infinite exponent.
fn weighted(position: &Position, value: f64) -> f64 {
    if position.weight == 0.0 { 0.0 } else { position.weight * value }
}

/// No smaller than `T`'s smallest normal number, so that what is divided by it stays in `T`'s range.
fn usable<T: Compute>(var: T) -> f64 {
    var.max(T::min_positive_value()).f64()
}

fn positions<T: Compute>(axis: &Axis, case: usize, mean: T, var: T) -> Vec<Position> {
    let (mean, var) = (mean.f64(), usable(var));
    let counted = axis.counted(case);
    let last = (axis.size - 1) as f64;
    let nearest = (last / 2.0 + mean).clamp(counted.start as f64, counted.end as f64 - 1.0).round();
    let mut positions: Vec<Position> = (0..axis.size)
        .map(|i| {
            let i_f64 = i as f64;
            let step = i_f64 - nearest;
            // (d_i² - d_m²) / (2 var) by the difference of two squares: exact where they nearly cancel, and never
            // infinity times zero or less infinity.
            let exponent = if step == 0.0 { 0.0 } else { step * (((i_f64 + nearest - last) / 2.0 - mean) / var) };
            let weight = if counted.contains(&i) { (-exponent).exp() } else { 0.0 };
            Position { weight, step, exponent }
        })
        .collect();
    let sum: f64 = positions.iter().map(|p| p.weight).sum();
    positions.iter_mut().for_each(|p| p.weight /= sum);
    positions
}
