//! What every op checks of its arguments, said the same way everywhere: an op calls these before it computes anything.
//!
//! `op` and `argument` are what the error names: `relu.backward` and `dy`.

use crate::{Element, Error, Layout, Out, Result, Tensor};

/// Fails unless `tensor` has exactly this shape.
///
/// # Errors
/// [`Error::Shape`]
pub fn shape<T: Element>(
    op: &'static str,
    argument: &'static str,
    tensor: &Tensor<T>,
    expected: &[usize],
) -> Result<()> {
    if tensor.shape() == expected {
        return Ok(());
    }
    Err(Error::Shape { op, argument, got: tensor.shape().to_vec(), expected: format!("{expected:?}") })
}

/// Fails unless `tensor` is where `reference`, the op's first input, is.
///
/// # Errors
/// [`Error::Device`]
pub fn device<T: Element, U: Element>(
    op: &'static str,
    argument: &'static str,
    tensor: &Tensor<T>,
    reference: &Tensor<U>,
) -> Result<()> {
    if tensor.device() == reference.device() {
        return Ok(());
    }
    Err(Error::Device { op, argument, got: tensor.device().to_string(), expected: reference.device().to_string() })
}

/// Fails when a dimension other than the first, the batch, is zero.
///
/// # Errors
/// [`Error::Shape`]
pub fn only_batch_may_be_zero<T: Element>(op: &'static str, argument: &'static str, tensor: &Tensor<T>) -> Result<()> {
    if tensor.shape().iter().skip(1).all(|&d| d > 0) {
        return Ok(());
    }
    Err(Error::Shape {
        op,
        argument,
        got: tensor.shape().to_vec(),
        expected: "no zero but for the batch, dimension 0".into(),
    })
}

/// Fails unless `tensor` has the shape, the order in memory and the device of `reference`.
///
/// # Errors
/// [`Error::Device`], [`Error::Shape`] or [`Error::Layout`], whichever comes first
pub fn like<T: Element, U: Element>(
    op: &'static str,
    argument: &'static str,
    tensor: &Tensor<T>,
    reference: &Tensor<U>,
) -> Result<()> {
    device(op, argument, tensor, reference)?;
    shape(op, argument, tensor, reference.shape())?;
    if tensor.is_ordered_like(reference) {
        return Ok(());
    }
    let expected: &[Layout] = match reference.layout() {
        Some(Layout::ChannelsLast) => &[Layout::ChannelsLast],
        Some(Layout::RowMajor) | None => &[Layout::RowMajor],
    };
    Err(tensor.disordered(op, argument, expected))
}

/// Fails unless `tensor`, a parameter, is where `x` is and has this shape.
///
/// # Errors
/// [`Error::Device`] or [`Error::Shape`]
pub fn parameter<T: Element, U: Element>(
    op: &'static str,
    argument: &'static str,
    tensor: &Tensor<T>,
    x: &Tensor<U>,
    expected: &[usize],
) -> Result<()> {
    device(op, argument, tensor, x)?;
    shape(op, argument, tensor, expected)
}

/// Fails unless a gradient, where it is asked for, can hold that of `reference`: [`like`].
///
/// # Errors
/// As [`like`].
pub fn gradient<T: Element, U: Element>(
    op: &'static str,
    argument: &'static str,
    out: &Option<Out<'_, T>>,
    reference: &Tensor<U>,
) -> Result<()> {
    out.as_ref().map_or(Ok(()), |out| like(op, argument, out.tensor, reference))
}

/// The layout of an image, if there are kernels for it.
///
/// # Errors
/// [`Error::Layout`]
pub fn image_layout<T: Element>(op: &'static str, argument: &'static str, tensor: &Tensor<T>) -> Result<Layout> {
    tensor.layout().ok_or_else(|| tensor.disordered(op, argument, &[Layout::RowMajor, Layout::ChannelsLast]))
}

/// Fails unless `tensor`, whose shape has been checked, is in this layout.
///
/// # Errors
/// [`Error::Layout`]
pub fn in_layout<T: Element>(
    op: &'static str,
    argument: &'static str,
    tensor: &Tensor<T>,
    layout: Layout,
) -> Result<()> {
    if tensor.is_in(layout) {
        return Ok(());
    }
    let expected: &[Layout] = match layout {
        Layout::ChannelsLast => &[Layout::ChannelsLast],
        Layout::RowMajor => &[Layout::RowMajor],
    };
    Err(tensor.disordered(op, argument, expected))
}
