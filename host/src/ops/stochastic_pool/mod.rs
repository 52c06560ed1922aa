//! Stochastic pooling over two dimensions (Zeiler & Fergus, ICLR 2013, arXiv 1301.3557): with `a = max(x, 0)` over a window
//! and `p_i = a_i / sum a`, training draws one position of each window by `p`, and inference gives the mean of all,
//! `sum p_i a_i`.
//!
//! `x: [N, C, H, W]`, `y: [N, C, Ho, Wo]`, in either [`Layout`], and all else in `x`'s; sizes and edges are those of
//! [`Window`], without dilation.
//! - Padding is never drawn, and adds nothing.
//! - Where no element of a window is above zero, the output is 0, the index names no position ([`Window::positions`], one
//!   past the last), and no gradient goes back.
//! - Infinities have all the probability, each as much as another; NaNs have it before them. A drawn element comes out as it
//!   is, and the mean with it is infinite or NaN. Minus infinity is a number below zero.
//! - Weights are added up in row-major order, one after another. Of a window of more than nine positions in at most 4096 rows the
//!   sum is by rows ([`kernels::stochastic_pool::by_rows`]): each row's alone, then the rows' one after another; up to an element it is
//!   that of the rows before, and added to it that of its row so far.
//! - Sums of finite elements do not overflow: their weights are made smaller where they would.
//!
//! The draws are Philox4x32-10's ([`kernels::philox`]) with [`Random`]'s seed as the key, and its offset and the output's
//! row-major index as the counter. The same numbers are compared with the same sums on every device and in both layouts:
//! all draw the same positions, with elements of 16 and 32 bits. (`f64` sums in `f64`, with a longer random number.)
//!
//! Backward of the draw goes to the drawn positions alone, by their [`Indices`]. The mean has no backward pass: it is for
//! inference.

mod contract;
mod cpu;
mod gpu;
mod random;

pub use contract::Op;
pub use random::Random;

use super::route;
pub use super::route::Indices;
use super::window::{Window, Windows};
use crate::{Error, Layout, Out, Real, Result, Tensor, check};

/// The most positions that two bytes can name, with one value left for none.
const MOST: usize = (1 << 16) - 1;

/// What [`forward`] gives.
#[derive(Clone, Debug)]
pub struct Output<T: Real> {
    /// The elements drawn.
    pub y: Tensor<T>,
    /// Where they were, for [`backward`]; one byte each for windows of up to 255 positions.
    pub indices: Indices,
}

/// A draw whose arguments have been checked.
struct Forward<'a, T: Real> {
    windows: Windows,
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
    indices: &'a mut Indices,
    /// Seed and offset.
    state: &'a Tensor<u64>,
}

/// Counts a pass that has drawn.
struct Advance<'a> {
    state: &'a mut Tensor<u64>,
}

/// A pass for inference whose arguments have been checked.
struct Inference<'a, T: Real> {
    windows: Windows,
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
}

/// One element of each window of `x`, drawn at random, and where it was. `random` moves on to the next draws.
///
/// # Errors
/// [`Error::Shape`] unless `x` is `[N, C, H, W]` with no zero but for `N` and a window fits into it; [`Error::Layout`] for a
/// layout other than those of [`Layout`]; [`Error::Argument`] for a window that is none (see [`Window::output_size`]), has
/// a dilation or more than 65535 positions; [`Error::Device`] for `random` elsewhere than `x`; on a GPU [`Error::DType`]
/// for `f64`, and [`Error::Shape`] for 2³¹ elements or more a row, or as many planes; the device's own errors.
pub fn forward<T: Real>(x: &Tensor<T>, window: &Window, random: &mut Random) -> Result<Output<T>> {
    const OP: &str = "stochastic_pool.forward";
    let windows = accepted(OP, Windows::over(OP, x, window)?)?;
    check::device(OP, "random", random.state(), x)?;
    if x.is_empty() {
        return draw(windows, x, window, random.state());
    }
    // For itself before it is read, so that both launches have the same memory.
    let state = random.own_state()?;
    let output = draw(windows, x, window, state)?;
    x.device().run(Advance { state })?;
    Ok(output)
}

/// As [`forward`], of the draws that `state` names, `[seed, offset]`: it is left as it is, and the same state draws the
/// same again. Whoever keeps the state counts its draws, as [`Random`] does.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Device`] for a `state` that is not `[2]`, or elsewhere than `x`; else as [`forward`].
pub fn forward_at<T: Real>(x: &Tensor<T>, window: &Window, state: &Tensor<u64>) -> Result<Output<T>> {
    const OP: &str = "stochastic_pool.forward_at";
    let windows = accepted(OP, Windows::over(OP, x, window)?)?;
    check::parameter(OP, "state", state, x, &[kernels::stochastic_pool::state::COUNT])?;
    draw(windows, x, window, state)
}

/// The state has been checked.
fn draw<T: Real>(windows: Windows, x: &Tensor<T>, window: &Window, state: &Tensor<u64>) -> Result<Output<T>> {
    let mut y = windows.empty_output(x.device())?;
    let mut indices = Indices::empty(x.device(), &windows, different(window))?;
    x.device().run(Forward { windows, x, y: &mut y, indices: &mut indices, state })?;
    Ok(Output { y, indices })
}

/// The mean of each window of `x` by the probabilities of its elements.
///
/// # Errors
/// As [`forward`].
pub fn forward_inference<T: Real>(x: &Tensor<T>, window: &Window) -> Result<Tensor<T>> {
    const OP: &str = "stochastic_pool.forward_inference";
    let windows = accepted(OP, Windows::over(OP, x, window)?)?;
    let mut y = windows.empty_output(x.device())?;
    x.device().run(Inference { windows, x, y: &mut y })?;
    Ok(y)
}

/// `dx`: each element of `dy` goes to the position that was drawn, and what windows share adds up.
///
/// `indices` are what [`forward`] gave for this window and an input of `input_shape`, which is also `dx`'s; both are in
/// `dy`'s layout.
///
/// # Errors
/// [`Error::Shape`], [`Error::Layout`], [`Error::Device`] and [`Error::Argument`] for arguments that do not go together;
/// else as [`forward`].
pub fn backward<T: Real>(
    dy: &Tensor<T>,
    indices: &Indices,
    window: &Window,
    input_shape: &[usize],
    dx: Out<'_, T>,
) -> Result<()> {
    const OP: &str = "stochastic_pool.backward";
    let windows = accepted(OP, Windows::new(OP, "input_shape", input_shape, Layout::RowMajor, window)?)?;
    route::backward(OP, windows, different(window), dy, indices, dx)
}

/// How many indices there are: the positions, and none.
fn different(window: &Window) -> usize {
    window.positions() + 1
}

fn accepted(op: &'static str, windows: Windows) -> Result<Windows> {
    windows.window.check_undilated(op, "stochastic pooling has none")?;
    if windows.window.positions() <= MOST {
        return Ok(windows);
    }
    let (got, expected) = (format!("{:?}", windows.window.size), format!("at most {MOST} positions"));
    Err(Error::Argument { op, argument: "window", got, expected })
}
