//! A copy in another order of memory: the same tensor, its elements elsewhere.
//!
//! What [`Tensor::to_layout`] does where a copy is needed. Ops never do this by themselves.

mod cpu;
mod gpu;

use crate::{Element, Error, Result, Tensor, check};

/// A copy whose arguments have been checked.
struct Copy<'a, T: Element> {
    order: Order,
    x: &'a Tensor<T>,
    y: &'a mut Tensor<T>,
}

/// Dimensions from the one that varies fastest in `y`: how long each is, and the distance between neighbours in `x`.
///
/// Dimensions that follow each other in both are one.
#[derive(Clone, Debug)]
struct Order {
    dims: Vec<(usize, usize)>,
}

impl Order {
    fn new(shape: &[usize], x: &[usize], y: &[usize]) -> Self {
        let mut axes: Vec<usize> = (0..shape.len()).filter(|&axis| shape[axis] != 1).collect();
        axes.sort_by_key(|&axis| y[axis]);
        let mut dims: Vec<(usize, usize)> = Vec::new();
        for axis in axes {
            match dims.last_mut() {
                Some((size, stride)) if *size * *stride == x[axis] => *size *= shape[axis],
                _ => dims.push((shape[axis], x[axis])),
            }
        }
        Self { dims }
    }
}

/// Copies `x` to `y`, of the same shape and device, each element to where `y` has it.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Device`] for tensors that do not go together, [`Error::Argument`] on a GPU for more than
/// eight dimensions that stay apart; the device's own errors.
pub fn copy<T: Element>(x: &Tensor<T>, y: &mut Tensor<T>) -> Result<()> {
    const OP: &str = "permute.copy";
    check::device(OP, "y", y, x)?;
    check::shape(OP, "y", y, x.shape())?;
    if x.is_empty() {
        return Ok(());
    }
    let order = Order::new(x.shape(), x.strides(), y.strides());
    if order.dims.len() > kernels::permute::DIMS {
        return Err(Error::Shape {
            op: OP,
            argument: "x",
            got: x.shape().to_vec(),
            expected: format!("at most {} dimensions in another order", kernels::permute::DIMS),
        });
    }
    x.device().run(Copy { order, x, y })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_stay_neighbours_are_one() {
        // [N, C, H, W] from NCHW to NHWC: C, then H and W as one, then N.
        let shape = [2, 3, 4, 5];
        let order = Order::new(&shape, &[60, 20, 5, 1], &[60, 1, 15, 3]);
        assert_eq!(order.dims, [(3, 20), (20, 1), (2, 60)]);
        // Nothing to reorder.
        assert_eq!(Order::new(&shape, &[60, 20, 5, 1], &[60, 20, 5, 1]).dims, [(120, 1)]);
        assert_eq!(Order::new(&[1, 1], &[1, 1], &[1, 1]).dims, []);
    }
}
