//! Where passes put gradients.

use cuda_std::launch::DeviceMemory;

use crate::{Element, Result, Tensor};

/// Where a pass puts a result that may be added to what is there: `tensor = result + beta * tensor`.
///
/// With `beta = 0` the tensor is not read (it may hold NaN).
#[derive(Debug)]
pub struct Out<'a, T: Element> {
    /// The tensor written to; of the result's shape.
    pub tensor: &'a mut Tensor<T>,
    /// The factor of what it held.
    pub beta: f64,
}

impl<'a, T: Element> Out<'a, T> {
    /// The result replaces what the tensor held.
    pub fn write(tensor: &'a mut Tensor<T>) -> Self {
        Self { tensor, beta: 0.0 }
    }

    /// The result is added to what the tensor held, as gradients over several batches are.
    pub fn add(tensor: &'a mut Tensor<T>) -> Self {
        Self { tensor, beta: 1.0 }
    }

    /// What a launch takes of a result that may not be asked for: the memory, as elements of the kernel's type, and `beta`,
    /// 0 where there is none.
    ///
    /// # Errors
    /// As [`Tensor::gpu`].
    #[allow(clippy::type_complexity, reason = "a pair")]
    pub fn gpu<U: Element>(
        out: Option<Self>,
        op: &'static str,
        argument: &'static str,
    ) -> Result<(Option<&'a mut dyn DeviceMemory<U>>, f32)> {
        match out {
            Some(Self { tensor, beta }) => Ok((Some(tensor.gpu_mut::<U>(op, argument)?), beta as f32)),
            None => Ok((None, 0.0)),
        }
    }
}
