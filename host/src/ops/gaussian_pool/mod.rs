//! Gaussian pooling: each window is averaged with the weights of a Gaussian whose mean and variance can be learnt
//! (differentiable pooling: Zeiler & Fergus 2012, arXiv 1207.0151).
//!
//! `K` Gaussians per feature map, whose outputs stay separate: `x: [N, C, H, W]` gives `[N, C*K, Ho, Wo]`, channel
//! `c*K + k`. Parameters are `mean: [P, K, 2]`, `(mu_y, mu_x)` in pixels from the window's centre, and `var: [P, K, 1]`
//! (the same along both axes) or `[P, K, 2]` (`(var_y, var_x)`), in pixels squared; `P = 1` shares them between all
//! channels, `P = C` gives each channel its own. Where `x` is of 16 bits they and their gradients are `f32`, and so is the
//! arithmetic; results are rounded once. With `d = i - (k-1)/2 - mu` along each axis, position `(i, j)` of a
//! window has the weight
//!
//! `w = exp(-d_y²/(2 var_y) - d_x²/(2 var_x)) / Z`,
//!
//! where `Z` makes the weights of the positions that [`Normalize`] counts sum to one. Positions outside the image read
//! as 0.
//!
//! # How it is computed
//! The positions that count are a rectangle, so that the weights, `Z` included, are a product of one factor along y and
//! one along x, each of which sums to one. They are computed once per pass, a vector for each way in which windows are
//! cut off at the image's edges. With `m` the position that counts and is nearest to the mean, a factor is
//! `exp(-q_i) / sum exp(-q)` with `q_i = (d_i² - d_m²) / (2 var) >= 0`: the sum is at least 1, and no factor is NaN
//! however small or large the variance or however far away the mean. A variance below the type's smallest normal number
//! counts as that number.
//!
//! Backward needs `mean`, `var` and, for their gradients, `x`. `dx` gathers with the same factors. With `E` the average
//! under a factor,
//!
//! `dw_i/dmu = w_i (i - E[i]) / var` and `dw_i/dvar = w_i (q_i - E[q]) / var`,
//!
//! so that `dmean` and `dvar` separate likewise.
//!
//! # Parameters that are no Gaussian's
//! On the CPU a variance that is not above 0 and a parameter that is not finite are errors. On a GPU they are in device
//! memory and read when the pass runs, so that a new value needs no new launch: there such a Gaussian gives NaN in every
//! output and gradient that it has part in. Parameters that are valid never give NaN from finite inputs.

mod columns;
mod contract;
mod cpu;
mod gpu;
mod plan;
mod weights;

pub use contract::Op;

use self::plan::Plan;
use super::Window;
use crate::Layout::RowMajor;
use crate::{Error, Out, Real, Result, Tensor, check};

/// Which positions of a window the weights are normalised over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalize {
    /// All of them: at the image's edges the padding, which reads as 0, has part of the weight.
    Window,
    /// Those inside the image: at its edges the weights are larger, and always sum to one over the image.
    Valid,
}

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real> {
    plan: Plan,
    x: &'a Tensor<T>,
    mean: &'a Tensor<T::Compute>,
    var: &'a Tensor<T::Compute>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    plan: Plan,
    x: &'a Tensor<T>,
    mean: &'a Tensor<T::Compute>,
    var: &'a Tensor<T::Compute>,
    dy: &'a Tensor<T>,
    dx: Option<Out<'a, T>>,
    dmean: Option<Out<'a, T::Compute>>,
    dvar: Option<Out<'a, T::Compute>>,
}

/// Pools `x: [N, C, H, W]`, row-major or channels last, to `[N, C*K, Ho, Wo]` in the same layout.
///
/// ```
/// use ferrolayer::ops::Window;
/// use ferrolayer::ops::gaussian_pool::{self, Normalize};
/// use ferrolayer::{Device, Tensor};
///
/// let device = Device::cpu();
/// let x = Tensor::from_vec(&device, &[1, 1, 4, 4], (0..16).map(|i| i as f32).collect())?;
/// // Two Gaussians for all channels: a wide one, which averages, and a narrow one at the upper left.
/// let mean = Tensor::from_slice(&device, &[1, 2, 2], &[0.0, 0.0, -0.5, -0.5])?;
/// let var = Tensor::from_slice(&device, &[1, 2, 1], &[1e9, 1e-9])?;
/// let y = gaussian_pool::forward(&x, &mean, &var, &Window::new([2, 2]), Normalize::Window)?;
/// assert_eq!(y.shape(), [1, 2, 2, 2]);
/// assert_eq!(y.to_vec()?, [2.5, 4.5, 10.5, 12.5, 0.0, 2.0, 8.0, 10.0]);
/// # Ok::<(), ferrolayer::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`], [`Error::Layout`] and [`Error::Device`] for tensors that do not go together; [`Error::Argument`] for
/// a window that is dilated or not possible, and on the CPU for parameters that are no Gaussian's; [`Error::DType`] for
/// `f64` on a GPU, and there [`Error::Shape`] for more planes, or tiles of planes, than its kernels can count; the
/// device's own errors.
pub fn forward<T: Real>(
    x: &Tensor<T>,
    mean: &Tensor<T::Compute>,
    var: &Tensor<T::Compute>,
    window: &Window,
    normalize: Normalize,
) -> Result<Tensor<T>> {
    let plan = plan("gaussian_pool.forward", x, mean, var, window, normalize)?;
    let mut y = Tensor::empty_in(x.device(), &plan.output_shape(), plan.layout)?;
    x.device().run(Forward { plan, x, mean, var, y: &mut y })?;
    Ok(y)
}

/// The gradients, each where asked for, with `dy` in `x`'s layout: `dx` of `x`'s shape and layout, `dmean` of `mean`'s, `dvar` of `var`'s (for `[P, K, 1]`
/// the sum over both axes), summed over what they are shared by.
///
/// # Errors
/// As [`forward`].
#[allow(clippy::too_many_arguments, reason = "three inputs, what forward was asked for, and the gradients, by name")]
pub fn backward<T: Real>(
    x: &Tensor<T>,
    mean: &Tensor<T::Compute>,
    var: &Tensor<T::Compute>,
    window: &Window,
    normalize: Normalize,
    dy: &Tensor<T>,
    dx: Option<Out<'_, T>>,
    dmean: Option<Out<'_, T::Compute>>,
    dvar: Option<Out<'_, T::Compute>>,
) -> Result<()> {
    const OP: &str = "gaussian_pool.backward";
    let plan = plan(OP, x, mean, var, window, normalize)?;
    check::device(OP, "dy", dy, x)?;
    check::shape(OP, "dy", dy, &plan.output_shape())?;
    check::in_layout(OP, "dy", dy, plan.layout)?;
    if let Some(dx) = &dx {
        check::device(OP, "dx", dx.tensor, x)?;
        check::shape(OP, "dx", dx.tensor, x.shape())?;
        check::in_layout(OP, "dx", dx.tensor, plan.layout)?;
    }
    for (argument, out, reference) in [("dmean", &dmean, mean), ("dvar", &dvar, var)] {
        if let Some(out) = out {
            check::like(OP, argument, out.tensor, reference)?;
        }
    }
    x.device().run(Backward { plan, x, mean, var, dy, dx, dmean, dvar })
}

fn plan<T: Real>(
    op: &'static str,
    x: &Tensor<T>,
    mean: &Tensor<T::Compute>,
    var: &Tensor<T::Compute>,
    window: &Window,
    normalize: Normalize,
) -> Result<Plan> {
    check::device(op, "mean", mean, x)?;
    check::device(op, "var", var, x)?;
    let wrong =
        |argument, shape: &[usize], expected: String| Err(Error::Shape { op, argument, got: shape.to_vec(), expected });
    let &[batch, channels, height, width] = x.shape() else {
        return wrong("x", x.shape(), "[N, C, H, W]".into());
    };
    check::only_batch_may_be_zero(op, "x", x)?;
    let (sets, kernels) = match *mean.shape() {
        [sets, kernels, 2] if (sets == 1 || sets == channels) && kernels > 0 => (sets, kernels),
        _ => {
            return wrong(
                "mean",
                mean.shape(),
                format!("[1, K, 2] or [{channels}, K, 2] with K at least 1 for {channels} channels"),
            );
        }
    };
    let per_axis = match *var.shape() {
        [s, k, variances @ (1 | 2)] if (s, k) == (sets, kernels) => variances == 2,
        _ => return wrong("var", var.shape(), format!("[{sets}, {kernels}, 1] or [{sets}, {kernels}, 2], as mean's")),
    };
    for (argument, tensor) in [("mean", mean), ("var", var)] {
        check::in_layout(op, argument, tensor, RowMajor)?;
    }
    let layout = check::image_layout(op, "x", x)?;
    if window.dilation != [1, 1] {
        return Err(Error::Argument {
            op,
            argument: "dilation",
            got: format!("{:?}", window.dilation),
            expected: "[1, 1]: a Gaussian's window has no gaps".into(),
        });
    }
    let axes = plan::axes(op, window, normalize, [height, width])?;
    Ok(Plan { op, layout, batch, channels, kernels, sets, per_axis, window: *window, axes })
}
