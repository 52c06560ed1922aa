//! What the pooling ops share that pick one position of each window: the positions, as PyTorch's tensors hold them, and the
//! gradients' orders in memory.

use ferrolayer::ops::max_pool::Indices;
use ferrolayer::{Element, Layout, Tensor};
use ferrolayer_torch::{AnyTensor, Arguments, Error, Result};

/// The next argument: `torch.uint8`, or the bits of a `u16` in `torch.int16`.
pub fn take(arguments: &mut Arguments<'_>) -> Result<Indices> {
    match arguments.any()? {
        AnyTensor::U8(indices) => Ok(Indices::U8(indices)),
        AnyTensor::U16(indices) => Ok(Indices::U16(indices)),
        other => Err(Error::Argument {
            operator: "pooling",
            argument: "indices",
            got: other.dtype_name().into(),
            expected: "torch.uint8 or torch.int16, as the forward pass gave them".into(),
        }),
    }
}

/// A result.
pub fn give(indices: Indices) -> AnyTensor {
    match indices {
        Indices::U8(indices) => indices.into(),
        Indices::U16(indices) => indices.into(),
    }
}

/// `dy` in the indices' order in memory, and memory for `dx`, for an input with images of this height and width.
pub fn gradients<T: Element>(dy: Tensor<T>, indices: &Indices, image: [usize; 2]) -> Result<(Tensor<T>, Tensor<T>)> {
    let layout = match indices {
        Indices::U8(indices) => indices.layout(),
        Indices::U16(indices) => indices.layout(),
    };
    gradients_in(layout.unwrap_or_default(), dy, image)
}

/// As [`gradients`], in this order.
pub fn gradients_in<T: Element>(layout: Layout, dy: Tensor<T>, image: [usize; 2]) -> Result<(Tensor<T>, Tensor<T>)> {
    let shape = input_shape(dy.shape(), image)?;
    let dy = if dy.layout() == Some(layout) { dy } else { dy.to_layout(layout)? };
    let dx = Tensor::empty_in(dy.device(), &shape, layout)?;
    Ok((dy, dx))
}

/// The shape of the input with such images that gave an output of this shape.
pub fn input_shape(output: &[usize], [height, width]: [usize; 2]) -> Result<[usize; 4]> {
    match *output {
        [batch, channels, _, _] => Ok([batch, channels, height, width]),
        _ => Err(Error::Argument {
            operator: "pooling",
            argument: "dy",
            got: format!("of shape {output:?}"),
            expected: "[N, C, Ho, Wo]".into(),
        }),
    }
}
