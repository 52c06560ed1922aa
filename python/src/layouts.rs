//! What the operators' bodies share: gradients in forward's order, windows, and results that are not asked for.

use ferrolayer::ops::Window;
use ferrolayer::{Device, Element, Layout, Out, Tensor};
use ferrolayer_torch::{Arguments, Result};

/// `dy` in the order in memory that `reference` has, copied if it is in the other: a gradient may come in any.
pub fn ordered_like<T: Element, U: Element>(dy: Tensor<T>, reference: &Tensor<U>) -> Result<Tensor<T>> {
    match reference.layout() {
        Some(layout) if dy.layout() != Some(layout) && (layout == Layout::RowMajor || dy.shape().len() == 4) => {
            Ok(dy.to_layout(layout)?)
        }
        _ => Ok(dy),
    }
}

/// A gradient that may not be asked for.
pub struct Wanted<T: Element>(Option<Tensor<T>>);

impl<T: Element> Wanted<T> {
    /// With `reference`'s shape and order in memory, if it is wanted.
    pub fn like(wanted: bool, reference: &Tensor<T>) -> Result<Self> {
        Ok(Self(wanted.then(|| reference.empty_like()).transpose()?))
    }

    /// Of this shape, if it is wanted.
    pub fn of_shape(wanted: bool, device: &Device, shape: &[usize]) -> Result<Self> {
        Ok(Self(wanted.then(|| Tensor::empty(device, shape)).transpose()?))
    }

    /// Where a pass puts it.
    pub fn out(&mut self) -> Option<Out<'_, T>> {
        self.0.as_mut().map(Out::write)
    }

    /// It, or a tensor of no elements.
    pub fn or_empty(self, device: &Device) -> Result<Tensor<T>> {
        match self.0 {
            Some(gradient) => Ok(gradient),
            None => Ok(Tensor::empty(device, &[0])?),
        }
    }
}

/// `int kh, int kw, int sh, int sw, int ph, int pw`, and where it is asked for `int dh, int dw`, and `bool ceil_mode`.
pub fn window(arguments: &mut Arguments<'_>, dilated: bool) -> Result<Window> {
    let mut pair = || Ok::<_, ferrolayer_torch::Error>([arguments.size()?, arguments.size()?]);
    let (size, stride, padding) = (pair()?, pair()?, pair()?);
    let dilation = if dilated { pair()? } else { [1, 1] };
    let ceil_mode = arguments.bool()?;
    Ok(Window { size, stride, padding, dilation, ceil_mode })
}
