//! Average pooling over two dimensions: `y` is the sum of each window over a divisor (LeCun et al., NIPS 1989).
//!
//! `x: [N, C, H, W]`, `y: [N, C, Ho, Wo]`, in either [`Layout`]; sizes, edges and divisors are those of PyTorch's `torch.nn.AvgPool2d`, which
//! has no dilation. Padding adds nothing to the sum; what it does to the divisor, [`Divisor`] says.
//!
//! Backward needs nothing of the forward pass: `dx` at a position is the sum of `dy / divisor` over the windows that
//! cover it.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use std::num::NonZero;

use super::window::{Window, Windows};
use crate::{Layout, Out, Real, Result, Tensor};

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
    fn new(op: &'static str, windows: Windows, divisor: &Divisor) -> Result<Self> {
        windows.window.check_undilated(op, "an average has none")?;
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
struct Forward<'a, T: Real> {
    averages: Averages,
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    averages: Averages,
    dy: &'a Tensor<T>,
    dx: Out<'a, T>,
}

/// The average of each window of `x`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless `x` is `[N, C, H, W]` with no zero but for `N` and a window fits into it;
/// [`Error::Layout`](crate::Error::Layout) for a layout other than those of [`Layout`];
/// [`Error::Argument`](crate::Error::Argument) for a window that is none (see [`Window::output_size`]) or has a dilation;
/// on a GPU [`Error::DType`](crate::Error::DType) for `f64`, and [`Error::Shape`](crate::Error::Shape) for 2³¹ elements or
/// more a row, or as many planes; the device's own errors.
pub fn forward<T: Real>(x: &Tensor<T>, window: &Window, divisor: &Divisor) -> Result<Tensor<T>> {
    const OP: &str = "avg_pool.forward";
    let averages = Averages::new(OP, Windows::over(OP, x, window)?, divisor)?;
    let mut y = averages.windows.empty_output(x.device())?;
    x.device().run(Forward { averages, x, y: &mut y })?;
    Ok(y)
}

/// `dx`, given `dy` and the shape of the input that [`forward`] was given with this window and divisor; `dx` is in `dy`'s
/// layout.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape), [`Error::Layout`](crate::Error::Layout) and
/// [`Error::Device`](crate::Error::Device) for tensors that do not go together; else as [`forward`].
pub fn backward<T: Real>(
    dy: &Tensor<T>,
    window: &Window,
    divisor: &Divisor,
    input_shape: &[usize],
    dx: Out<'_, T>,
) -> Result<()> {
    const OP: &str = "avg_pool.backward";
    let windows = Windows::new(OP, "input_shape", input_shape, Layout::RowMajor, window)?;
    let averages = Averages::new(OP, windows.of_gradients(OP, dy, dx.tensor)?, divisor)?;
    dy.device().run(Backward { averages, dy, dx })
}
