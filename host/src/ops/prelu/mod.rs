//! Parametric rectified linear unit: `y = x` where `x > 0`, else `alpha * x` (He et al., ICCV 2015, arXiv 1502.01852).
//!
//! `alpha` is one slope for all (`[1]`) or one per channel (`[C]`, dimension 1 of `x`: features of `[N, F]`, maps of `[N, C, H, W]`);
//! where `x` is of 16 bits it may be of the same type, or `f32`. Backward needs `x`:
//! - `dx = dy` where `x > 0`, else `alpha * dy`;
//! - `dalpha = sum of x * dy where x <= 0`, over all but the channels.
//!
//! At `x = 0` the slope is `alpha`. NaN in, NaN out.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use crate::Layout::{ChannelsLast, RowMajor};
use crate::{Error, Out, ParameterOf, Real, Result, Tensor, check};

/// `x` as `[outer, channels, inner]`; one shared slope is one channel.
#[derive(Clone, Copy, Debug)]
struct Layout {
    outer: usize,
    channels: usize,
    inner: usize,
}

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real, A: ParameterOf<T>> {
    layout: Layout,
    /// Without it, what `y` holds.
    x: Option<&'a Tensor<T>>,
    alpha: &'a Tensor<A>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real, A: ParameterOf<T>> {
    layout: Layout,
    x: &'a Tensor<T>,
    alpha: &'a Tensor<A>,
    dy: &'a Tensor<T>,
    dx: Option<Out<'a, T>>,
    dalpha: Option<Out<'a, A>>,
}

/// `y = prelu(x)`, with `x` of any shape when `alpha` is `[1]`, of at least two dimensions when it is `[C]`.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Device`] for tensors that do not go together; [`Error::DType`] for `f64` on a GPU; the
/// device's own errors.
pub fn forward<T: Real, A: ParameterOf<T>>(x: &Tensor<T>, alpha: &Tensor<A>) -> Result<Tensor<T>> {
    let layout = layout("prelu.forward", x, alpha)?;
    let mut y = x.empty_like()?;
    x.device().run(Forward { layout, x: Some(x), alpha, y: &mut y })?;
    Ok(y)
}

/// `x = prelu(x)`: no memory is taken, unless `x` is shared with another tensor, which keeps what it holds.
///
/// [`backward`] needs what `x` held: a clone of it, made before, is what to keep for it.
///
/// # Errors
/// As [`forward`].
pub fn forward_in_place<T: Real, A: ParameterOf<T>>(x: &mut Tensor<T>, alpha: &Tensor<A>) -> Result<()> {
    let layout = layout("prelu.forward_in_place", x, alpha)?;
    let device = x.device().clone();
    device.run(Forward { layout, x: None, alpha, y: x })
}

/// Both gradients, each where asked for; `dx` is of `x`'s shape, `dalpha` of `alpha`'s, whose sums are rounded once.
///
/// # Errors
/// As [`forward`].
pub fn backward<T: Real, A: ParameterOf<T>>(
    x: &Tensor<T>,
    alpha: &Tensor<A>,
    dy: &Tensor<T>,
    dx: Option<Out<'_, T>>,
    dalpha: Option<Out<'_, A>>,
) -> Result<()> {
    const OP: &str = "prelu.backward";
    let layout = layout(OP, x, alpha)?;
    check::like(OP, "dy", dy, x)?;
    if let Some(dx) = &dx {
        check::like(OP, "dx", dx.tensor, x)?;
    }
    if let Some(dalpha) = &dalpha {
        check::like(OP, "dalpha", dalpha.tensor, alpha)?;
    }
    x.device().run(Backward { layout, x, alpha, dy, dx, dalpha })
}

fn layout<T: Real, A: ParameterOf<T>>(op: &'static str, x: &Tensor<T>, alpha: &Tensor<A>) -> Result<Layout> {
    check::device(op, "alpha", alpha, x)?;
    check::only_batch_may_be_zero(op, "x", x)?;
    match (alpha.shape(), x.shape()) {
        ([1], _) => Ok(Layout { outer: 1, channels: 1, inner: x.len() }),
        ([c], [outer, channels, height, width])
            if c == channels && check::image_layout(op, "x", x)? == ChannelsLast =>
        {
            Ok(Layout { outer: outer * height * width, channels: *channels, inner: 1 })
        }
        ([c], [outer, channels, rest @ ..]) if c == channels => {
            if !x.is_contiguous() {
                return Err(x.disordered(op, "x", &[RowMajor]));
            }
            Ok(Layout { outer: *outer, channels: *channels, inner: rest.iter().product() })
        }
        (got, shape) => Err(Error::Shape {
            op,
            argument: "alpha",
            got: got.to_vec(),
            expected: match shape.get(1) {
                Some(channels) => format!("[1] or [{channels}] for x {shape:?}"),
                None => format!("[1] for x {shape:?}"),
            },
        }),
    }
}
