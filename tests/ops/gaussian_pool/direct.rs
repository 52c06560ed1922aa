//! Images and windows that reach each way of the kernel for small windows of a known size, row-major.

use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::{Device, Layout, Real, Tensor};

use super::{Case, elements::of_maps};
use crate::support::*;

/// Each size, of rows that are loaded by vectors and of others; padding; several Gaussians a map, more than a block's warps take at
/// once; of all channels and of each, of which a turn has a part of one, several, and more than there are.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, padding| Window::new([size; 2]).stride([size; 2]).padding([padding; 2]);
    let list = [
        ([3, 5, 7, 7], window(2, 0), 1),
        ([2, 3, 8, 12], window(2, 0), 1),
        ([1, 3, 7, 10], window(2, 1), 3),
        ([2, 2, 10, 11], window(3, 1), 1),
        ([2, 3, 9, 12], window(4, 0), 5),
        ([2, 3, 9, 13], window(4, 2), 1),
        ([1, 3, 17, 24], window(8, 0), 1),
        ([1, 2, 16, 19], window(8, 3), 2),
        ([3, 7, 29, 31], window(5, 2).stride([4, 4]), 1),
        ([40, 9, 6, 5], window(5, 0), 2),
        ([1, 2, 60, 62], window(4, 0).stride([3, 3]), 1),
    ];
    of_maps(&list, &[Layout::RowMajor], &[true, false])
}

/// Of so many windows that a thread takes two pieces, an image's are as they are of that image alone, which leaves it one; of two Gaussians, as
/// for one there may be other kernels.
pub(super) fn many_windows_are_as_few<T: Real>(gpu: &Device) -> Outcome {
    const IMAGES: usize = 17;
    let (mean, var) =
        (Tensor::full(gpu, &[1, 2, 2], T::Compute::of(0.25))?, Tensor::full(gpu, &[1, 2, 1], T::Compute::of(2.0))?);
    for ([height, width], size) in [([360, 364], 2), ([361, 363], 2), ([391, 392], 3)] {
        let window = Window::new([size; 2]).stride([size; 2]);
        let pool = |x: &[T]| -> Result<Vec<T>, Failed> {
            let x = Tensor::from_slice(gpu, &[x.len() / (height * width), 1, height, width], x)?;
            Ok(gaussian_pool::forward(&x, &mean, &var, &window, Normalize::Window)?.to_vec()?)
        };
        let x: Vec<T> = normal(size as u64, IMAGES * height * width);
        let y = pool(&x)?;
        for image in [0, IMAGES / 2, IMAGES - 1] {
            let alone = pool(&x[image * height * width..][..height * width])?;
            assert!(
                y[image * alone.len()..][..alone.len()] == alone,
                "image {image} of {height}x{width}, window {size}"
            );
        }
    }
    Ok(())
}
