//! Gaussian pooling as a layer.

use rand::SeedableRng;

use super::layer::{describe_window, take};
use super::{Layer, Mode, Parameter};
use crate::ops::dense::{Generator, Init};
use crate::ops::gaussian_pool::{self, Normalize};
use crate::ops::{Window, exp};
use crate::{Compute, Device, Error, Out, Result, Tensor};

/// The Gaussians that a [`GaussianPool`] begins with.
#[derive(Clone, Debug)]
pub struct Gaussians<T: Compute> {
    /// `(mu_y, mu_x)` from the window's centre, `[P, K, 2]`.
    pub mean: Tensor<T>,
    /// The variances, `[P, K, 1]`, or `[P, K, 2]` for one along each axis.
    pub var: Tensor<T>,
}

impl<T: Compute> Gaussians<T> {
    /// `kernels` Gaussians for each of `maps` maps (1: the same for all), scattered over `window`: means uniform within
    /// it, and all variances `var`, one for each Gaussian or, with `per_axis`, two.
    ///
    /// # Errors
    /// [`Error::Argument`] for a variance that is not finite and above 0; a device's own errors.
    pub fn scattered(
        device: &Device,
        [maps, kernels]: [usize; 2],
        window: &Window,
        var: f64,
        per_axis: bool,
        seed: u64,
    ) -> Result<Self> {
        positive("Gaussians::scattered", var)?;
        let mut generator = Generator::seed_from_u64(seed);
        let unit: Vec<f64> = Init::Uniform { low: -0.5, high: 0.5 }.draw(maps * kernels * 2, 1, 1, &mut generator)?;
        let mean = unit.chunks(2).flat_map(|at| (0..2).map(|axis| T::of(at[axis] * (window.size[axis] - 1) as f64)));
        Ok(Self {
            mean: Tensor::from_vec(device, &[maps, kernels, 2], mean.collect())?,
            var: Tensor::full(device, &[maps, kernels, if per_axis { 2 } else { 1 }], T::of(var))?,
        })
    }
}

fn positive(op: &'static str, var: f64) -> Result<()> {
    if var > 0.0 && var.is_finite() {
        return Ok(());
    }
    Err(Error::Argument { op, argument: "var", got: var.to_string(), expected: "finite and above 0".into() })
}

/// [`gaussian_pool`] as a layer, with Gaussians that are fixed or learnt.
///
/// Parameters: `mean`, and `var` where they are fixed. Where they are learnt it is `log_var` instead, the variances'
/// natural logarithm: whatever an optimiser adds to it, the variance stays positive, steps are relative to its size, and
/// no optimiser has to know of a bound, which clamping after each step would ask of it (and leave its momentum pushing
/// against). The gradient follows the chain: `dlog_var = dvar * var`. [`exp`] limits the logarithm to ±40, far beyond
/// where a Gaussian in a window turns into an average or a single pixel.
#[derive(Clone, Debug)]
pub struct GaussianPool<T: Compute> {
    mean: Parameter<T>,
    variance: Variance<T>,
    window: Window,
    normalize: Normalize,
    saved: Option<Saved<T>>,
}

#[derive(Clone, Debug)]
enum Variance<T: Compute> {
    Fixed(Parameter<T>),
    /// The logarithm, and memory for the variances' own gradient.
    Learnt(Parameter<T>, Tensor<T>),
}

#[derive(Clone, Debug)]
struct Saved<T: Compute> {
    x: Tensor<T>,
    var: Tensor<T>,
}

impl<T: Compute> GaussianPool<T> {
    /// With Gaussians that stay as they are.
    pub fn fixed(gaussians: Gaussians<T>, window: Window, normalize: Normalize) -> Self {
        let Gaussians { mean, var } = gaussians;
        let (mean, variance) = (Parameter::fixed(mean), Variance::Fixed(Parameter::fixed(var)));
        Self { mean, variance, window, normalize, saved: None }
    }

    /// With Gaussians that begin like these and are learnt.
    ///
    /// # Errors
    /// [`Error::Argument`] for a variance that is not finite and above 0; a device's own errors.
    pub fn learnt(gaussians: Gaussians<T>, window: Window, normalize: Normalize) -> Result<Self> {
        let Gaussians { mean, var } = gaussians;
        let mut logarithms = var.to_vec()?;
        for var in &mut logarithms {
            positive("GaussianPool::learnt", var.f64())?;
            *var = var.ln();
        }
        let log_var = Parameter::new(Tensor::from_vec(var.device(), var.shape(), logarithms)?);
        let variance = Variance::Learnt(log_var, var.empty_like()?);
        Ok(Self { mean: Parameter::new(mean), variance, window, normalize, saved: None })
    }

    /// The Gaussians as they are now.
    ///
    /// # Errors
    /// The device's own errors.
    pub fn gaussians(&self) -> Result<Gaussians<T>> {
        Ok(Gaussians { mean: self.mean.value().clone(), var: self.var()? })
    }

    fn var(&self) -> Result<Tensor<T>> {
        match &self.variance {
            Variance::Fixed(var) => Ok(var.value().clone()),
            Variance::Learnt(log_var, _) => exp::forward(log_var.value()),
        }
    }

    fn run(&mut self, dy: &Tensor<T>, input_too: bool) -> Result<Option<Tensor<T>>> {
        let Saved { x, var } = take(&mut self.saved, "GaussianPool")?;
        let mut dx = if input_too { Some(x.empty_like()?) } else { None };
        let Self { mean, variance, window, normalize, .. } = self;
        let (mu, dmean) = mean.for_backward()?;
        let (dx_out, normalize) = (dx.as_mut().map(Out::write), *normalize);
        match variance {
            Variance::Fixed(_) => {
                gaussian_pool::backward(&x, mu, &var, window, normalize, dy, dx_out, dmean, None)?;
            }
            Variance::Learnt(log_var, dvar) => {
                let dvar_out = Some(Out::write(dvar));
                gaussian_pool::backward(&x, mu, &var, window, normalize, dy, dx_out, dmean, dvar_out)?;
                if let (log, Some(dlog)) = log_var.for_backward()? {
                    exp::backward(log, &var, dvar, dlog)?;
                }
                log_var.accumulated();
            }
        }
        mean.accumulated();
        Ok(dx)
    }
}

impl<T: Compute> Layer<T> for GaussianPool<T> {
    fn describe(&self) -> String {
        let &[maps, kernels, _] = self.mean.value().shape() else { return "GaussianPool".into() };
        let learnt = if matches!(self.variance, Variance::Learnt(..)) { "learnt" } else { "fixed" };
        let shared = if maps == 1 { "for all maps" } else { "for each map" };
        format!("GaussianPool({kernels} {learnt} {shared}, {})", describe_window(&self.window))
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        self.saved = None;
        let var = self.var()?;
        let y = gaussian_pool::forward(x, self.mean.value(), &var, &self.window, self.normalize)?;
        if mode == Mode::Train {
            self.saved = Some(Saved { x: x.clone(), var });
        }
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        Ok(self.run(dy, true)?.expect("asked for"))
    }

    fn backward_parameters(&mut self, dy: &Tensor<T>) -> Result<()> {
        self.run(dy, false).map(drop)
    }

    fn parameters(&self) -> Vec<(String, &Parameter<T>)> {
        let variance = match &self.variance {
            Variance::Fixed(var) => ("var".into(), var),
            Variance::Learnt(log_var, _) => ("log_var".into(), log_var),
        };
        vec![("mean".into(), &self.mean), variance]
    }

    fn parameters_mut(&mut self) -> Vec<(String, &mut Parameter<T>)> {
        let variance = match &mut self.variance {
            Variance::Fixed(var) => ("var".into(), var),
            Variance::Learnt(log_var, _) => ("log_var".into(), log_var),
        };
        vec![("mean".into(), &mut self.mean), variance]
    }
}
