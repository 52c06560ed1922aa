use cuda_std::launch::LaunchDims;
use kernels::permute::{BLOCK, DIMS, Order, Permute};

use super::Copy;
use crate::device::{Gpu, OnGpu, tiles};
use crate::{Element, Result};

impl<T: Element> OnGpu for Copy<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "permute.copy";
        let n = self.x.len();
        let mut order = Order { sizes: [1; DIMS], strides: [0; DIMS] };
        for (i, (size, stride)) in self.order.dims.iter().enumerate() {
            order.sizes[i] = *size as u64;
            order.strides[i] = *stride as u64;
        }
        let (x, y) = (self.x.gpu::<T>(OP, "x")?, self.y.gpu_mut::<T>(OP, "y")?);
        let (dims, n) = (LaunchDims::new(tiles(n, BLOCK), BLOCK), n as u64);
        macro_rules! copy {
            ($bits:ty) => {{
                let (x, mut y) = (x.bits::<$bits>(), y.bits_mut::<$bits>());
                // SAFETY: both hold `n` elements of this size; sizes and distances are those of two dense tensors of one
                // shape; the grid covers `n`.
                unsafe { gpu.launch(dims, Permute { x: &x, y: &mut y, order, n }) }
            }};
        }
        match size_of::<T>() {
            1 => copy!(u8),
            2 => copy!(u16),
            4 => copy!(u32),
            _ => copy!(u64),
        }
    }
}
