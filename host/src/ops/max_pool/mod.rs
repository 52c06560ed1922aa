//! Maximum pooling over two dimensions: `y` is the largest element of each window (Riesenhuber & Poggio, Nature
//! Neuroscience 2, 1999; as a layer of a network: Ranzato et al., CVPR 2007).
//!
//! `x: [N, C, H, W]`, `y: [N, C, Ho, Wo]`; sizes and edges are those of [`Window`], which are PyTorch's
//! `torch.nn.MaxPool2d`'s, dilation and `ceil_mode` included.
//! - Padding never wins: it is no element.
//! - NaN wins over every number.
//! - Of equals the first in row-major window order wins: -0 equals +0, and NaN counts as equal to NaN. (PyTorch keeps
//!   the last NaN of a window that holds several; in all else the indices are PyTorch's.)
//! - A window whose positions all lie outside the image, which dilation with padding can give, has the maximum of
//!   nothing: minus infinity, and passes no gradient on.
//!
//! Backward needs which position of its window each output came from, [`Indices`], in the smallest integer type that can
//! name all positions: `dx` at a position is the sum of `dy` over the outputs that came from it. [`flat_indices`] makes
//! PyTorch's indices of them.

mod cpu;
mod gpu;

use super::window::{Window, Windows};
use crate::{Compute, Device, Error, Out, Result, Tensor, check};

/// Which position of its window each output came from, row-major in the window: `i * size[1] + j`.
///
/// Of the output's shape; one byte each for windows of up to 256 positions, else two.
#[derive(Clone, Debug)]
pub enum Indices {
    /// For windows of up to 256 positions.
    U8(Tensor<u8>),
    /// For windows of up to 65536 positions.
    U16(Tensor<u16>),
}

impl Indices {
    /// The most positions that two bytes can name.
    const MOST: usize = 1 << 16;

    fn empty(device: &Device, windows: &Windows) -> Result<Self> {
        let shape = windows.output_shape();
        Ok(match Self::is_wide(&windows.window) {
            false => Self::U8(Tensor::empty(device, &shape)?),
            true => Self::U16(Tensor::empty(device, &shape)?),
        })
    }

    fn is_wide(window: &Window) -> bool {
        window.positions() > 1 << 8
    }

    /// The shape, which is the output's.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::U8(indices) => indices.shape(),
            Self::U16(indices) => indices.shape(),
        }
    }

    /// Where they are.
    pub fn device(&self) -> &Device {
        match self {
            Self::U8(indices) => indices.device(),
            Self::U16(indices) => indices.device(),
        }
    }

    /// Fails unless these can be the indices of a forward pass over `windows`.
    fn check(&self, op: &'static str, windows: &Windows) -> Result<()> {
        const ARGUMENT: &str = "indices";
        match self {
            Self::U8(indices) => check::shape(op, ARGUMENT, indices, &windows.output_shape())?,
            Self::U16(indices) => check::shape(op, ARGUMENT, indices, &windows.output_shape())?,
        }
        let wide = matches!(self, Self::U16(_));
        if wide == Self::is_wide(&windows.window) {
            return Ok(());
        }
        let name = |wide| if wide { "u16" } else { "u8" };
        Err(Error::Argument {
            op,
            argument: ARGUMENT,
            got: name(wide).into(),
            expected: format!("{} for a window of {} positions", name(!wide), windows.window.positions()),
        })
    }
}

/// What [`forward`] gives.
#[derive(Clone, Debug)]
pub struct Output<T: Compute> {
    /// The maxima.
    pub y: Tensor<T>,
    /// Where they were, for [`backward`].
    pub indices: Indices,
}

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Compute> {
    windows: Windows,
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
    indices: Option<&'a mut Indices>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Compute> {
    windows: Windows,
    dy: &'a Tensor<T>,
    indices: &'a Indices,
    dx: Out<'a, T>,
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
/// [`Error::Argument`] for a window that is none (see [`Window::output_size`]) or has more than 65536 positions;
/// [`Error::DType`] for `f64` on a GPU; the device's own errors.
pub fn forward<T: Compute>(x: &Tensor<T>, window: &Window) -> Result<Output<T>> {
    const OP: &str = "max_pool.forward";
    let windows = geometry(OP, "x", x.shape(), window)?;
    let mut y = Tensor::empty(x.device(), &windows.output_shape())?;
    let mut indices = Indices::empty(x.device(), &windows)?;
    x.device().run(Forward { windows, x, y: &mut y, indices: Some(&mut indices) })?;
    Ok(Output { y, indices })
}

/// The maximum of each window of `x`, for inference: no indices are kept.
///
/// # Errors
/// As [`forward`].
pub fn forward_inference<T: Compute>(x: &Tensor<T>, window: &Window) -> Result<Tensor<T>> {
    const OP: &str = "max_pool.forward_inference";
    let windows = geometry(OP, "x", x.shape(), window)?;
    let mut y = Tensor::empty(x.device(), &windows.output_shape())?;
    x.device().run(Forward { windows, x, y: &mut y, indices: None })?;
    Ok(y)
}

/// `dx`: each element of `dy` goes to where its maximum was, and what windows share adds up.
///
/// `indices` are what [`forward`] gave for this window and an input of `input_shape`, which is also `dx`'s.
///
/// # Errors
/// [`Error::Shape`], [`Error::Device`] and [`Error::Argument`] for arguments that do not go together; else as
/// [`forward`].
pub fn backward<T: Compute>(
    dy: &Tensor<T>,
    indices: &Indices,
    window: &Window,
    input_shape: &[usize],
    dx: Out<'_, T>,
) -> Result<()> {
    const OP: &str = "max_pool.backward";
    let windows = geometry(OP, "input_shape", input_shape, window)?;
    check::shape(OP, "dy", dy, &windows.output_shape())?;
    match indices {
        Indices::U8(indices) => check::device(OP, "indices", indices, dy)?,
        Indices::U16(indices) => check::device(OP, "indices", indices, dy)?,
    }
    indices.check(OP, &windows)?;
    check::device(OP, "dx", dx.tensor, dy)?;
    check::shape(OP, "dx", dx.tensor, input_shape)?;
    dy.device().run(Backward { windows, dy, indices, dx })
}

/// PyTorch's indices: `h * W + w` of each maximum in its plane of the input.
///
/// `indices` are what [`forward`] gave for this window and an input of `input_shape`. Of a window that lies outside the
/// image altogether, the index is that of its first position with no negative coordinate, which is PyTorch's too.
///
/// # Errors
/// As [`backward`]; [`Error::Shape`] for planes of 2³¹ elements and more.
pub fn flat_indices(indices: &Indices, window: &Window, input_shape: &[usize]) -> Result<Tensor<u32>> {
    const OP: &str = "max_pool.flat_indices";
    let windows = geometry(OP, "input_shape", input_shape, window)?;
    indices.check(OP, &windows)?;
    // The kernels' limits keep every index below 2^32.
    windows.launch(OP)?;
    let mut flat = Tensor::empty(indices.device(), &windows.output_shape())?;
    indices.device().run(FlatIndices { windows, indices, flat: &mut flat })?;
    Ok(flat)
}

fn geometry(op: &'static str, argument: &'static str, input_shape: &[usize], window: &Window) -> Result<Windows> {
    let windows = Windows::new(op, argument, input_shape, window)?;
    if window.positions() > Indices::MOST {
        return Err(Error::Argument {
            op,
            argument: "window",
            got: format!("{:?}", window.size),
            expected: format!("at most {} positions", Indices::MOST),
        });
    }
    Ok(windows)
}
