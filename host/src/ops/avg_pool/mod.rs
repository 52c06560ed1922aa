//! Average pooling over two dimensions: `y` is the sum of each window over a divisor (LeCun et al., NIPS 1989).
//!
//! `x: [N, C, H, W]`, `y: [N, C, Ho, Wo]`; sizes, edges and divisors are those of PyTorch's `torch.nn.AvgPool2d`, which
//! has no dilation. Padding adds nothing to the sum; what it does to the divisor, [`Divisor`] says.
//!
//! Backward needs nothing of the forward pass: `dx` at a position is the sum of `dy / divisor` over the windows that
//! cover it.

mod cpu;
mod gpu;

use std::num::NonZero;

use super::window::{Window, Windows};
use crate::{Compute, Error, Out, Result, Tensor, check};

/// What a window's sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    /// Whether positions in the padding count. Positions past the padding, which `ceil_mode` allows, never do.
    pub count_include_pad: bool,
    /// Divides every sum, whatever the window covers.
    pub divisor_override: Option<NonZero<i64>>,
}

impl Default for Divisor {
    /// PyTorch's: padding counts.
    fn default() -> Self {
        Self { count_include_pad: true, divisor_override: None }
    }
}

/// Windows, and what each one's sum is divided by.
#[derive(Clone, Copy, Debug)]
struct Averages {
    windows: Windows,
    divisor: Divisor,
}

impl Averages {
    fn new(
        op: &'static str,
        argument: &'static str,
        input_shape: &[usize],
        window: &Window,
        divisor: &Divisor,
    ) -> Result<Self> {
        let windows = Windows::new(op, argument, input_shape, window)?;
        if window.dilation != [1, 1] {
            return Err(Error::Argument {
                op,
                argument: "dilation",
                got: format!("{:?}", window.dilation),
                expected: "[1, 1]: an average has none".into(),
            });
        }
        Ok(Self { windows, divisor: *divisor })
    }

    /// The positions along `axis` that count for the divisor of this output.
    ///
    /// The divisor is their product over both axes, unless it is overridden.
    fn counted(&self, axis: usize, output: usize) -> usize {
        let Windows { window, input, .. } = self.windows;
        let (begin, end) = (output * window.stride[axis], output * window.stride[axis] + window.size[axis]);
        let padding = window.padding[axis];
        match self.divisor.count_include_pad {
            true => end.min(input[axis] + 2 * padding) - begin,
            false => end.min(input[axis] + padding) - begin.max(padding),
        }
    }
}

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Compute> {
    averages: Averages,
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Compute> {
    averages: Averages,
    dy: &'a Tensor<T>,
    dx: Out<'a, T>,
}

/// The average of each window of `x`.
///
/// # Errors
/// [`Error::Shape`] unless `x` is `[N, C, H, W]` with no zero but for `N` and a window fits into it;
/// [`Error::Argument`] for a window that is none (see [`Window::output_size`]) or has a dilation; [`Error::DType`] for
/// `f64` on a GPU; the device's own errors.
pub fn forward<T: Compute>(x: &Tensor<T>, window: &Window, divisor: &Divisor) -> Result<Tensor<T>> {
    let averages = Averages::new("avg_pool.forward", "x", x.shape(), window, divisor)?;
    let mut y = Tensor::empty(x.device(), &averages.windows.output_shape())?;
    x.device().run(Forward { averages, x, y: &mut y })?;
    Ok(y)
}

/// `dx`, given `dy` and the shape of the input that [`forward`] was given with this window and divisor.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Device`] for tensors that do not go together; else as [`forward`].
pub fn backward<T: Compute>(
    dy: &Tensor<T>,
    window: &Window,
    divisor: &Divisor,
    input_shape: &[usize],
    dx: Out<'_, T>,
) -> Result<()> {
    const OP: &str = "avg_pool.backward";
    let averages = Averages::new(OP, "input_shape", input_shape, window, divisor)?;
    check::shape(OP, "dy", dy, &averages.windows.output_shape())?;
    check::device(OP, "dx", dx.tensor, dy)?;
    check::shape(OP, "dx", dx.tensor, input_shape)?;
    dy.device().run(Backward { averages, dy, dx })
}
