//! By segments: elements next to each other that have one slope, or, where those would be few, a slope each.

use std::iter;
use std::ops::Range;

use multiversion::multiversion;
use rayon::prelude::*;

use super::{Backward, Forward, Layout};
use crate::device::convert::{accumulate, blocks, each, rounding, widened};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu};
use crate::element::convert::{Halves, TOGETHER, ToHalves, halves, to_halves};
use crate::{Compute, Out, ParameterOf, Real, Result};

/// Elements that one task takes, about; also the unit of the fixed order in which `dalpha` is summed.
const TASK: usize = 16 * 1024;

/// Neighbours with one slope that are enough for a loop of their own.
const ENOUGH: usize = 128;

/// Elements with a slope each that are gone over at once, at least, where there are so many.
const PERIOD: usize = 1024;

#[inline(always)]
fn slope<C: Compute>(x: C, alpha: C) -> C {
    if x > C::zero() { C::one() } else { alpha }
}

/// Which elements have which slope. A segment lies in one *row*: the neighbours with one slope, or those with a slope each.
enum Slopes<'a, C> {
    /// Row `i` has the slope `alpha[i % alpha.len()]`.
    OneARow { alpha: &'a [C], row: usize },
    /// Each row has these: all of `alpha`, several times over where they are few, `inner` elements with each.
    OneAnElement { alphas: Vec<C>, inner: usize, channels: usize },
}

/// What the elements of a segment have.
#[derive(Clone, Copy)]
enum Slope<'a, C> {
    One(C),
    Each(&'a [C]),
}

impl<'a, C: Compute> Slopes<'a, C> {
    fn new(layout: Layout, alpha: &'a [C]) -> Self {
        let Layout { outer, channels, inner } = layout;
        if channels == 1 {
            return Self::OneARow { alpha, row: outer * inner };
        }
        if inner >= ENOUGH {
            return Self::OneARow { alpha, row: inner };
        }
        let times = outer.clamp(1, PERIOD.div_ceil(channels * inner));
        let once = channels * inner;
        let mut alphas = Vec::with_capacity(times * once);
        for &alpha in alpha {
            alphas.resize(alphas.len() + inner, alpha);
        }
        for _ in 1..times {
            alphas.extend_from_within(..once);
        }
        Self::OneAnElement { alphas, inner, channels }
    }

    /// Elements that a task takes: in whole rows where those are of slopes each.
    fn task(&self) -> usize {
        match self {
            Self::OneARow { .. } => TASK,
            Self::OneAnElement { alphas, .. } => (TASK / alphas.len()).max(1) * alphas.len(),
        }
    }

    /// The segments of some elements, by their slopes and places.
    fn segments(&self, elements: Range<usize>) -> impl Iterator<Item = (Slope<'_, C>, Range<usize>)> {
        let row = match self {
            Self::OneARow { row, .. } => *row,
            Self::OneAnElement { alphas, .. } => alphas.len(),
        };
        (elements.start / row..elements.end.div_ceil(row)).map(move |number| {
            let places = elements.start.max(number * row)..elements.end.min((number + 1) * row);
            let slope = match self {
                Self::OneARow { alpha, .. } => Slope::One(alpha[number % alpha.len()]),
                Self::OneAnElement { alphas, .. } => Slope::Each(&alphas[..places.len()]),
            };
            (slope, places)
        })
    }

    /// Adds the sums of a task to those of the channels.
    fn add(&self, elements: Range<usize>, parts: &[f64], sums: &mut [f64]) {
        match self {
            Self::OneARow { alpha, row } => {
                let rows = elements.start / row..;
                rows.zip(parts).for_each(|(row, part)| sums[row % alpha.len()] += part);
            }
            Self::OneAnElement { inner, channels, .. } => {
                let channel = |place: usize| place / inner % channels;
                parts.iter().enumerate().for_each(|(place, part)| sums[channel(place)] += part);
            }
        }
    }
}

impl<T: Real, A: ParameterOf<T>> OnCpu for Forward<'_, T, A> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let mut room = Vec::new();
        let (alpha, y) = (widened(self.alpha.host()?, &mut room), self.y.host_mut()?);
        let x = self.x.map(|x| x.host()).transpose()?;
        let slopes = Slopes::new(self.layout, alpha);
        let task = slopes.task();
        y.par_chunks_mut(task).enumerate().run(1, |(i, y)| {
            let first = i * task;
            for (slope, places) in slopes.segments(first..first + y.len()) {
                let y = &mut y[places.start - first..places.end - first];
                values(y, x.map(|x| &x[places]), slope);
            }
        });
        Ok(())
    }
}

/// The outputs of a segment, in place where there is no `x`. What has 16 bits is converted in registers.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+f16c"))]
fn values<T: Real>(y: &mut [T], x: Option<&[T]>, slopes: Slope<'_, T::Compute>) {
    if let Some(y) = T::as_compute_mut(y) {
        let x = x.and_then(T::as_compute);
        return match slopes {
            Slope::One(alpha) => one_by_one(y, x, iter::repeat(alpha)),
            Slope::Each(alphas) => one_by_one(y, x, alphas.iter().copied()),
        };
    }
    let (halves, to_halves) = (halves!(), to_halves!());
    let whole = y.len() / TOGETHER * TOGETHER;
    let ((y, y_rest), x_rest) = (y.split_at_mut(whole), x.map(|x| &x[whole..]));
    match slopes {
        Slope::One(alpha) => {
            eights(y, x, iter::repeat([alpha; TOGETHER]), halves, to_halves);
            one_by_one(y_rest, x_rest, iter::repeat(alpha));
        }
        Slope::Each(alphas) => {
            eights(y, x, alphas.as_chunks().0.iter().copied(), halves, to_halves);
            one_by_one(y_rest, x_rest, alphas[whole..].iter().copied());
        }
    }
}

#[inline(always)]
fn one_by_one<T: Real>(y: &mut [T], x: Option<&[T]>, alphas: impl Iterator<Item = T::Compute>) {
    let of = |x: T, alpha: T::Compute| {
        let x = x.widen();
        T::narrow(slope(x, alpha) * x)
    };
    match x {
        Some(x) => y.iter_mut().zip(x.iter().zip(alphas)).for_each(|(y, (x, alpha))| *y = of(*x, alpha)),
        None => y.iter_mut().zip(alphas).for_each(|(y, alpha)| *y = of(*y, alpha)),
    }
}

/// The whole eights of a segment's outputs.
#[inline(always)]
fn eights<T: Real>(
    y: &mut [T],
    x: Option<&[T]>,
    alphas: impl Iterator<Item = [T::Compute; TOGETHER]>,
    halves: impl Halves,
    to_halves: impl ToHalves,
) {
    let y = y.as_chunks_mut().0.iter_mut().zip(alphas);
    match x {
        Some(x) => {
            for ((y, alphas), x) in y.zip(x.as_chunks().0) {
                *y = eight(*x, alphas, halves, to_halves);
            }
        }
        None => {
            for (y, alphas) in y {
                *y = eight(*y, alphas, halves, to_halves);
            }
        }
    }
}

/// No closure: it would not be compiled for its caller's target.
#[inline(always)]
fn eight<T: Real>(
    x: [T; TOGETHER],
    alphas: [T::Compute; TOGETHER],
    halves: impl Halves,
    to_halves: impl ToHalves,
) -> [T; TOGETHER] {
    let mut values = T::widen_together(x, halves);
    for (x, alpha) in values.iter_mut().zip(alphas) {
        *x = slope(*x, alpha) * *x;
    }
    T::narrow_together(values, to_halves)
}

impl<T: Real, A: ParameterOf<T>> OnCpu for Backward<'_, T, A> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, alpha, dy) = (self.x.host()?, self.alpha.host()?, self.dy.host()?);
        let mut room = Vec::new();
        let slopes = Slopes::new(self.layout, widened(alpha, &mut room));
        let (dx, beta) = match self.dx {
            Some(Out { tensor, beta }) => (Some(tensor.host_mut()?), T::Compute::of(beta)),
            None => (None, T::Compute::of(0.0)),
        };
        let pass = Pass { slopes: &slopes, x, dy, beta, sums: self.dalpha.is_some() };
        let task = slopes.task();
        let elements = |i: usize| i * task..x.len().min((i + 1) * task);
        let parts: Vec<Vec<f64>> = match dx {
            Some(dx) => {
                let tasks = dx.par_chunks_mut(task).enumerate();
                tasks.map(|(i, dx)| pass.task(elements(i), Some(dx))).gather(1)
            }
            None => (0..x.len().div_ceil(task)).into_par_iter().map(|i| pass.task(elements(i), None)).gather(1),
        };
        let Some(Out { tensor, beta }) = self.dalpha else { return Ok(()) };
        let mut sums = vec![0.0; self.layout.channels];
        for (i, parts) in parts.iter().enumerate() {
            slopes.add(elements(i), parts, &mut sums);
        }
        for (out, sum) in tensor.host_mut()?.iter_mut().zip(sums) {
            accumulate(out, T::Compute::of(sum), T::Compute::of(beta));
        }
        Ok(())
    }
}

/// A backward pass, of which tasks take some elements.
struct Pass<'a, T: Real> {
    slopes: &'a Slopes<'a, T::Compute>,
    x: &'a [T],
    dy: &'a [T],
    beta: T::Compute,
    /// Whether sums for the slopes are asked for.
    sums: bool,
}

impl<T: Real> Pass<'_, T> {
    /// The gradient of some elements, and the sums for the slopes: one for each segment, or one for each of a row's elements.
    fn task(&self, elements: Range<usize>, mut dx: Option<&mut [T]>) -> Vec<f64> {
        let first = elements.start;
        let (mut sums, mut x_room, mut dy_room, mut dx_room) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (slopes, segment) in self.slopes.segments(elements) {
            if self.sums {
                match slopes {
                    Slope::One(_) => sums.push(0.0),
                    Slope::Each(alphas) => sums.resize(alphas.len().max(sums.len()), 0.0),
                }
            }
            for block in blocks(segment.len()) {
                let places = segment.start + block.start..segment.start + block.end;
                let x = widened(&self.x[places.clone()], &mut x_room);
                let dy = widened(&self.dy[places.clone()], &mut dy_room);
                if let Some(dx) = &mut dx {
                    let gradient = |[x, dy]: [_; 2], alpha| slope(x, alpha) * dy;
                    let dx = &mut dx[places.start - first..places.end - first];
                    rounding(dx, self.beta, &mut dx_room, |dx| match slopes {
                        Slope::One(alpha) => each(dx, [x, dy], iter::repeat(alpha), gradient),
                        Slope::Each(alphas) => each(dx, [x, dy], alphas[block.clone()].iter().copied(), gradient),
                    });
                }
                match slopes {
                    _ if !self.sums => {}
                    Slope::One(_) => sums.last_mut().into_iter().for_each(|last| *last += sum(x, dy)),
                    Slope::Each(_) => add_terms(&mut sums[block], x, dy),
                }
            }
        }
        sums
    }
}

/// The part of an element in the gradient of its slope. NaN counts as not positive, so that it comes out as NaN.
#[inline(always)]
fn term<C: Compute>(x: C, dy: C) -> f64 {
    let product = x.f64() * dy.f64();
    if x > C::zero() { 0.0 } else { product }
}

/// The sum of all terms, over eight sums side by side so that it vectorises.
#[multiversion(targets("x86_64+avx2"))]
fn sum<C: Compute>(x: &[C], dy: &[C]) -> f64 {
    let mut sums = [0.0; 8];
    let ((x, x_rest), (dy, dy_rest)) = (x.as_chunks::<8>(), dy.as_chunks::<8>());
    for (x, dy) in x.iter().zip(dy) {
        for i in 0..8 {
            sums[i] += term(x[i], dy[i]);
        }
    }
    let rest: f64 = x_rest.iter().zip(dy_rest).map(|(&x, &dy)| term(x, dy)).sum();
    sums.into_iter().sum::<f64>() + rest
}

#[multiversion(targets("x86_64+avx2"))]
fn add_terms<C: Compute>(sums: &mut [f64], x: &[C], dy: &[C]) {
    for (sum, (&x, &dy)) in sums.iter_mut().zip(x.iter().zip(dy)) {
        *sum += term(x, dy);
    }
}
