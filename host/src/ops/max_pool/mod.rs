//! Maximum pooling over two dimensions: `y` is the largest element of each window (Riesenhuber & Poggio, Nature
//! Neuroscience 2, 1999; as a layer of a network: Ranzato et al., CVPR 2007).
//!
//! `x: [N, C, H, W]`, `y: [N, C, Ho, Wo]`, in either [`Layout`], and all else in `x`'s; sizes and edges are those of [`Window`], which are PyTorch's
//! `torch.nn.MaxPool2d`'s, dilation and `ceil_mode` included.
//! - Padding never wins: it is no element.
//! - NaN wins over every number. Which NaN it is, its sign and payload, may be lost on a GPU.
//! - Of equals the first in row-major window order wins: -0 equals +0, and NaN counts as equal to NaN. (PyTorch keeps
//!   the last NaN of a window that holds several; in all else the indices are PyTorch's.)
//! - A window whose positions all lie outside the image, which dilation with padding can give, has the maximum of
//!   nothing: minus infinity, and passes no gradient on.
//!
//! Backward needs which position of its window each output came from, [`Indices`], in the smallest integer type that can
//! name all positions: `dx` at a position is the sum of `dy` over the outputs that came from it. [`flat_indices`] makes
//! PyTorch's indices of them.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use super::route;
pub use super::route::Indices;
use super::window::{Window, Windows};
use crate::{Error, Layout, Out, Real, Result, Tensor};

/// The most positions that two bytes can name.
const MOST: usize = 1 << 16;

/// What [`forward`] gives.
#[derive(Clone, Debug)]
pub struct Output<T: Real> {
    /// The maxima.
    pub y: Tensor<T>,
    /// Where they were, for [`backward`].
    pub indices: Indices,
}

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real> {
    windows: Windows,
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
    indices: Option<&'a mut Indices>,
}

/// A conversion of indices whose arguments have been checked.
struct FlatIndices<'a> {
    windows: Windows,
    indices: &'a Indices,
    flat: &'a mut Tensor<u32>,
}

/// The maximum of each window of `x`, and where it was.
///
/// # Errors
/// [`Error::Shape`] unless `x` is `[N, C, H, W]` with no zero but for `N` and a window fits into it;
/// [`Error::Layout`] for a layout other than those of [`Layout`]; [`Error::Argument`] for a window that is none (see
/// [`Window::output_size`]) or has more than 65536 positions; on a GPU [`Error::DType`] for `f64`, and [`Error::Shape`]
/// for 2³¹ elements or more a row, or as many planes; the device's own errors.
pub fn forward<T: Real>(x: &Tensor<T>, window: &Window) -> Result<Output<T>> {
    const OP: &str = "max_pool.forward";
    let windows = few_positions(OP, Windows::over(OP, x, window)?)?;
    let mut y = windows.empty_output(x.device())?;
    let mut indices = Indices::empty(x.device(), &windows, window.positions())?;
    x.device().run(Forward { windows, x, y: &mut y, indices: Some(&mut indices) })?;
    Ok(Output { y, indices })
}

/// The maximum of each window of `x`, for inference: no indices are kept.
///
/// # Errors
/// As [`forward`].
pub fn forward_inference<T: Real>(x: &Tensor<T>, window: &Window) -> Result<Tensor<T>> {
    const OP: &str = "max_pool.forward_inference";
    let windows = few_positions(OP, Windows::over(OP, x, window)?)?;
    let mut y = windows.empty_output(x.device())?;
    x.device().run(Forward { windows, x, y: &mut y, indices: None })?;
    Ok(y)
}

/// `dx`: each element of `dy` goes to where its maximum was, and what windows share adds up.
///
/// `indices` are what [`forward`] gave for this window and an input of `input_shape`, which is also `dx`'s; both are in
/// `dy`'s layout.
///
/// # Errors
/// [`Error::Shape`], [`Error::Layout`], [`Error::Device`] and [`Error::Argument`] for arguments that do not go together; else as
/// [`forward`].
pub fn backward<T: Real>(
    dy: &Tensor<T>,
    indices: &Indices,
    window: &Window,
    input_shape: &[usize],
    dx: Out<'_, T>,
) -> Result<()> {
    const OP: &str = "max_pool.backward";
    let windows = few_positions(OP, Windows::new(OP, "input_shape", input_shape, Layout::RowMajor, window)?)?;
    route::backward(OP, windows, window.positions(), dy, indices, dx)
}

/// PyTorch's indices: `h * W + w` of each maximum in its plane of the input.
///
/// `indices` are what [`forward`] gave for this window and an input of `input_shape`. Of a window that lies outside the
/// image altogether, the index is that of its first position with no negative coordinate, which is PyTorch's too.
///
/// # Errors
/// As [`backward`]; [`Error::Shape`] for planes of which an index can pass 2³².
pub fn flat_indices(indices: &Indices, window: &Window, input_shape: &[usize]) -> Result<Tensor<u32>> {
    const OP: &str = "max_pool.flat_indices";
    let windows = few_positions(OP, Windows::new(OP, "input_shape", input_shape, Layout::RowMajor, window)?)?;
    let windows = Windows { layout: indices.layout(OP)?, ..windows };
    indices.check(OP, &windows, window.positions())?;
    // Of a window outside the image, the first position after the padding is less than a step past its edge.
    let [height, width] = [0, 1].map(|axis| match window.padding[axis] {
        0 => windows.input[axis],
        _ => windows.input[axis].max(window.dilation[axis]),
    });
    if height.checked_mul(width).is_none_or(|count| u32::try_from(count - 1).is_err()) {
        return Err(Error::Shape {
            op: OP,
            argument: "input_shape",
            got: input_shape.to_vec(),
            expected: "planes of at most 2^32 positions".into(),
        });
    }
    let mut flat = windows.empty_output(indices.device())?;
    indices.device().run(FlatIndices { windows, indices, flat: &mut flat })?;
    Ok(flat)
}

fn few_positions(op: &'static str, windows: Windows) -> Result<Windows> {
    if windows.window.positions() <= MOST {
        return Ok(windows);
    }
    Err(Error::Argument {
        op,
        argument: "window",
        got: format!("{:?}", windows.window.size),
        expected: format!("at most {MOST} positions"),
    })
}
