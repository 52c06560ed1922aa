//! The last stage of a sum over many blocks: the gradient of a parameter.

use cuda_std::launch::LaunchDims;
use kernels::prelu::{BLOCK, PreluBackwardSum};
use kernels::window::Divider;

use crate::device::{Gpu, GpuSlice, for_storage};
use crate::{Out, Real, Result};

/// Sums what blocks or warps left in `parts`, laid out `[outer, channels, inner]`, over the first and the last, into a
/// gradient of as many elements as channels, rounded once, where it is asked for. The order is fixed: the same bits each time. One
/// sum of all is `[1, 1, count]`.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) when `out` holds `f64`; the device's own errors.
///
/// # Panics
/// When `parts` is too short for `layout`, or `out` is not of its channels, or a channel has 2³¹ parts or more.
pub fn sum_parts<T: Real>(
    op: &'static str,
    gpu: &Gpu,
    parts: GpuSlice<'_, f32>,
    layout: [usize; 3],
    out: Option<Out<'_, T>>,
) -> Result<()> {
    let Some(Out { tensor, beta }) = out else { return Ok(()) };
    let [outer, channels, inner] = layout;
    assert_eq!(tensor.len(), channels, "one element for each channel");
    let sums = parts.slice(0..outer * channels * inner);
    assert!(outer.saturating_mul(inner) < 1 << 31, "a channel's parts are counted in 31 bits");
    let [outer, channels, parts] = [outer, channels, inner].map(|size| size as u32);
    let by_parts = Divider::new(parts.max(1));
    for_storage!(T as S, op, "the gradient of a parameter", gpu, {
        let (dalpha, beta) = (tensor.gpu_mut::<S>(op, "the gradient of a parameter")?, beta as f32);
        let kernel = PreluBackwardSum::<S> { sums: &sums, dalpha, beta, outer, channels, parts, by_parts };
        // SAFETY: `sums` is laid out so, and `out` holds a channel each, all checked above; one block a channel.
        unsafe { gpu.launch(LaunchDims::new(channels, BLOCK), kernel) }
    })
}
