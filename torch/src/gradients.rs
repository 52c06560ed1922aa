//! What backward passes share: gradients in forward's order, and results that are not asked for.

use ferrolayer::{Device, Element, Layout, Out, Tensor};

use crate::Result;

/// `dy` in the order in memory that `reference` has, copied if it is in the other: a gradient may come in any.
///
/// # Errors
/// Those of the copy.
#[inline]
pub fn ordered_like<T: Element, U: Element>(dy: Tensor<T>, reference: &Tensor<U>) -> Result<Tensor<T>> {
    // As most are: nothing is to be found out of either.
    if dy.shape() == reference.shape() && dy.strides() == reference.strides() {
        return Ok(dy);
    }
    match reference.layout() {
        Some(layout) if dy.layout() != Some(layout) && (layout == Layout::RowMajor || dy.shape().len() == 4) => {
            Ok(dy.to_layout(layout)?)
        }
        _ => Ok(dy),
    }
}

/// A gradient that may not be asked for.
#[derive(Debug)]
pub struct Wanted<T: Element>(Option<Tensor<T>>);

impl<T: Element> Wanted<T> {
    /// With `reference`'s shape and order in memory, if it is wanted.
    ///
    /// # Errors
    /// Those of making a tensor.
    pub fn like(wanted: bool, reference: &Tensor<T>) -> Result<Self> {
        Ok(Self(wanted.then(|| reference.empty_like()).transpose()?))
    }

    /// Of this shape, if it is wanted.
    ///
    /// # Errors
    /// Those of making a tensor.
    pub fn of_shape(wanted: bool, device: &Device, shape: &[usize]) -> Result<Self> {
        Ok(Self(wanted.then(|| Tensor::empty(device, shape)).transpose()?))
    }

    /// Where a pass puts it.
    pub fn out(&mut self) -> Option<Out<'_, T>> {
        self.0.as_mut().map(Out::write)
    }

    /// It, or a tensor of no elements.
    ///
    /// # Errors
    /// Those of making a tensor.
    pub fn or_empty(self, device: &Device) -> Result<Tensor<T>> {
        match self.0 {
            Some(gradient) => Ok(gradient),
            None => Ok(Tensor::empty(device, &[0])?),
        }
    }
}
