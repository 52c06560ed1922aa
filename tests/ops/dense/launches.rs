//! What tests of single kernels share: a tensor's memory, and the launch that adds the parts of a split product.

use cuda_std::element::Storage;
use cuda_std::launch::{Launch, LaunchDims};
use ferrolayer::Element;
use ferrolayer::device::{GpuBuffer, tiles};
use kernels::dense::{DenseFinish, FINISH_BLOCK, FINISH_COLUMNS, FINISH_ROWS, IDENTITY, PRELU_EACH, Shape};

use super::*;

pub const OP: &str = "test";

pub fn gpu(device: &Device) -> &Gpu {
    match device {
        Device::Gpu(gpu) => gpu,
        _ => unreachable!("a test of GPUs"),
    }
}

pub fn buffer<E: Element>(tensor: &Tensor<E>) -> Result<&GpuBuffer<E>, Failed> {
    Ok(tensor.gpu::<E>(OP, "input")?)
}

/// What a forward pass with PReLU has besides its output.
pub struct Forward<'a, T: Real> {
    pub z: &'a mut Tensor<T>,
    pub b: &'a Tensor<T>,
    pub alpha: &'a Tensor<f32>,
}

/// Adds the parts of a product, if there are several, into `sum + beta * out`.
pub fn finish<T: Real + Storage>(
    device: &Device,
    (shape, splits): (Shape, u32),
    parts: &Tensor<f32>,
    out: &mut Tensor<T>,
    beta: f32,
    forward: Option<Forward<'_, T>>,
) -> Outcome
where
    for<'a> DenseFinish<'a, T>: Launch,
{
    if splits == 1 {
        return Ok(());
    }
    let (parts, out) = (buffer(parts)?, out.gpu_mut::<T>(OP, "out")?);
    let kernel = match forward {
        Some(Forward { z, b, alpha }) => {
            let (z, b, alpha) = (z.gpu_mut::<T>(OP, "z")?, buffer(b)?, buffer(alpha)?);
            let (z, b, alpha, activation) = (Some(z as _), Some(b as _), Some(alpha as _), PRELU_EACH);
            DenseFinish {
                parts,
                out,
                z,
                b,
                alpha,
                refused: None,
                shape,
                splits,
                splits_if_refused: 0,
                activation,
                beta,
            }
        }
        None => {
            let (z, b, alpha, refused, activation) = (None, None, None, None, IDENTITY);
            DenseFinish { parts, out, z, b, alpha, refused, shape, splits, splits_if_refused: 0, activation, beta }
        }
    };
    let grid = [tiles(shape.rows as usize, FINISH_ROWS), tiles(shape.columns as usize, FINISH_COLUMNS), 1];
    // SAFETY: whole tensors of the shapes that the kernel asks for, as many parts as splits, and a grid that covers the
    // product.
    unsafe { gpu(device).launch(LaunchDims::new(grid, FINISH_BLOCK), kernel)? };
    Ok(())
}
