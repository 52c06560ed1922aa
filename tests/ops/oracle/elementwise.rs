//! Ops of which each output has one element of each input.

use ferrolayer::Out;
use ferrolayer::ops::{add2, exp, prelu, relu, scale_add};
use serde::Deserialize;

use super::vectors::{Kind, Scalar, Trial};
use super::{Check, magnitudes};
use crate::support::Outcome;

#[derive(Deserialize)]
pub struct Prelu {
    x: Vec<usize>,
    /// 1, or one for each channel.
    slopes: usize,
    values: Kind,
    gradient: Kind,
    alpha: Kind,
}

impl Check for Prelu {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let x = trial.input::<T>(self.values, 0, &self.x)?;
        let dy = trial.input::<T>(self.gradient, 1, &self.x)?;
        let alpha = trial.input::<T>(self.alpha, 2, &[self.slopes])?;
        let y = prelu::forward(&x.tensor, &alpha.tensor)?;
        let (mut dx, mut dalpha) = (x.tensor.empty_like()?, alpha.tensor.empty_like()?);
        let (to_dx, to_dalpha) = (Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)));
        prelu::backward(&x.tensor, &alpha.tensor, &dy.tensor, to_dx, to_dalpha)?;

        let inner: usize = self.x[2..].iter().product();
        let set = |i: usize| if self.slopes == 1 { 0 } else { i / inner % self.slopes };
        let slope = |i: usize| if x.host[i] > T::zero() { 1.0 } else { alpha.host[set(i)].f64() };
        trial.close("y", &y, 1, &magnitudes(&x.host, |i, x| slope(i) * x))?;
        trial.close("dx", &dx, 1, &magnitudes(&dy.host, |i, dy| slope(i) * dy))?;
        let mut sums = vec![0.0; self.slopes];
        for (i, (x, dy)) in x.host.iter().zip(&dy.host).enumerate() {
            if *x > T::zero() {
                continue;
            }
            sums[set(i)] += (x.f64() * dy.f64()).abs();
        }
        trial.close("dalpha", &dalpha, x.host.len() / self.slopes, &sums)
    }
}

#[derive(Deserialize)]
pub struct Relu {
    x: Vec<usize>,
    values: Kind,
    gradient: Kind,
}

impl Check for Relu {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let x = trial.input::<T>(self.values, 0, &self.x)?;
        let dy = trial.input::<T>(self.gradient, 1, &self.x)?;
        let y = relu::forward(&x.tensor)?;
        let mut dx = x.tensor.empty_like()?;
        relu::backward(&y, &dy.tensor, Out::write(&mut dx))?;
        // The formula's 0 has no sign; PyTorch gives -0 for -0. The sum of -0 and 0 is 0.
        let unsigned: Vec<T> = trial.expected::<T>("y")?.iter().map(|&y| y + T::zero()).collect();
        trial.exact_to("y", &y, &unsigned)?;
        trial.exact("dx", &dx)
    }
}

#[derive(Deserialize)]
pub struct Add2 {
    x: Vec<usize>,
    values: Kind,
    gradient: Kind,
}

impl Check for Add2 {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let [a, b] = [0, 2].map(|tensor| trial.input::<T>(self.values, tensor, &self.x));
        let (a, b, dy) = (a?, b?, trial.input::<T>(self.gradient, 1, &self.x)?);
        let y = add2::forward(&a.tensor, &b.tensor)?;
        let (mut da, mut db) = (a.tensor.empty_like()?, b.tensor.empty_like()?);
        add2::backward(&dy.tensor, Some(Out::write(&mut da)), Some(Out::write(&mut db)))?;
        // One rounding, and none: all right results have the same bits.
        trial.exact("y", &y)?;
        trial.exact("da", &da)?;
        trial.exact("db", &db)
    }
}

#[derive(Deserialize)]
pub struct ScaleAdd {
    x: Vec<usize>,
    values: Kind,
    gradient: Kind,
}

impl Check for ScaleAdd {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let x = trial.input::<T>(self.values, 0, &self.x)?;
        let dy = trial.input::<T>(self.gradient, 1, &self.x)?;
        let (s, c) = (trial.input::<T>(Kind::Plain, 2, &[1])?, trial.input::<T>(Kind::Plain, 3, &[1])?);
        let y = scale_add::forward(&x.tensor, &s.tensor, &c.tensor)?;
        let mut dx = x.tensor.empty_like()?;
        scale_add::backward(&dy.tensor, &s.tensor, Out::write(&mut dx))?;
        let [s, c] = [s.host[0].f64(), c.host[0].f64()];
        trial.close("y", &y, 2, &magnitudes(&x.host, |_, x| (x * s).abs() + c.abs()))?;
        trial.exact("dx", &dx)
    }
}

#[derive(Deserialize)]
pub struct Exp {
    x: Vec<usize>,
    values: Kind,
    gradient: Kind,
}

impl Check for Exp {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let x = trial.input::<T>(self.values, 0, &self.x)?;
        let dy = trial.input::<T>(self.gradient, 1, &self.x)?;
        let y = exp::forward(&x.tensor)?;
        let mut dx = x.tensor.empty_like()?;
        exp::backward(&x.tensor, &y, &dy.tensor, Out::write(&mut dx))?;
        let sizes: Vec<f64> = trial.expected::<T>("y")?.iter().map(|y| y.f64()).collect();
        trial.close("y", &y, 1, &sizes)?;
        trial.close("dx", &dx, 1, &magnitudes(&dy.host, |i, dy| sizes[i] * dy))
    }
}
