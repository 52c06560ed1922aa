//! Windows in which all is minus infinity: the first position in the image is the maximum's, and none in the padding.

use ferrolayer::ops::Window;
use ferrolayer::ops::max_pool;
use ferrolayer::{Device, Layout, Real, Tensor, bf16, f16};

use super::{Case, positions};
use crate::support::*;

/// Windows that reach into the padding, for each of the kernels: sizes, how far they are apart, paddings and dilations.
const WINDOWS: [([usize; 2], usize, [usize; 2], usize); 26] = [
    ([2, 2], 2, [1, 1], 1),
    ([2, 2], 1, [1, 1], 1),
    ([3, 3], 2, [1, 1], 1),
    ([3, 3], 1, [1, 1], 1),
    ([3, 3], 3, [1, 1], 1),
    ([3, 3], 4, [1, 1], 1),
    ([3, 3], 1, [1, 1], 2),
    ([4, 4], 2, [2, 2], 1),
    ([4, 4], 4, [2, 2], 1),
    ([5, 5], 2, [2, 2], 1),
    ([5, 5], 3, [2, 2], 1),
    ([5, 5], 1, [2, 2], 1),
    ([6, 6], 2, [3, 3], 1),
    ([7, 7], 2, [3, 3], 1),
    ([7, 7], 3, [3, 3], 1),
    ([7, 7], 1, [3, 3], 1),
    ([8, 8], 4, [4, 4], 1),
    ([8, 8], 8, [4, 4], 1),
    ([9, 9], 3, [4, 4], 1),
    ([9, 9], 1, [4, 4], 1),
    ([11, 11], 3, [5, 5], 1),
    ([11, 11], 4, [5, 5], 1),
    ([13, 13], 1, [6, 6], 1),
    ([16, 16], 5, [8, 8], 1),
    ([24, 26], 7, [12, 13], 1),
    ([3, 6], 2, [1, 3], 1),
];

/// Images of rows of many multiples and of none, and as many of them as all kernels take.
const SHAPES: [[usize; 4]; 3] = [[2, 8, 32, 40], [3, 16, 29, 33], [2, 3, 57, 55]];

/// As much as goes by columns of groups of rows, and by meshes, of row-major images: shapes, sizes of windows, how far they are apart, paddings.
const MUCH: [([usize; 4], usize, usize, usize); 7] = [
    ([8, 64, 37, 39], 5, 2, 2),
    ([8, 48, 30, 32], 7, 2, 3),
    ([8, 48, 21, 24], 9, 3, 4),
    ([8, 48, 22, 25], 10, 3, 5),
    ([8, 48, 22, 25], 11, 3, 5),
    ([8, 48, 28, 30], 9, 4, 4),
    ([8, 48, 28, 30], 13, 4, 6),
];

/// Whether maxima and their indices are the CPU's where most of the input is minus infinity.
pub(super) fn finds_the_first<T: Real>(gpu: &Device, case: &Case, layout: Layout) -> Outcome {
    let numbers = normal::<f64>(5, case.shape.iter().product());
    let values: Vec<T> = numbers.iter().map(|&v| T::of(if v < 2.0 { f64::NEG_INFINITY } else { v })).collect();
    let x = Tensor::from_slice(&Device::cpu(), &case.shape, &values)?.to_layout(layout)?;
    let expected = max_pool::forward(&x, &case.window)?;
    let got = max_pool::forward(&x.to(gpu)?, &case.window)?;
    assert_same_bits(&format!("y of infinities, {case:?}, {layout:?}"), &got.y, &expected.y)?;
    assert!(positions(&got.indices)? == positions(&expected.indices)?, "indices of infinities, {case:?}, {layout:?}");
    Ok(())
}

fn finds_all<T: Real>(gpu: &Device) -> Outcome {
    for layout in [Layout::RowMajor, Layout::ChannelsLast] {
        for shape in SHAPES {
            for (size, stride, padding, dilation) in WINDOWS {
                let window = Window::new(size).stride([stride; 2]).padding(padding).dilation([dilation; 2]);
                finds_the_first::<T>(gpu, &Case::new(shape, window), layout)?;
            }
        }
    }
    for (shape, size, stride, padding) in MUCH {
        let window = Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
        finds_the_first::<T>(gpu, &Case::new(shape, window), Layout::RowMajor)?;
    }
    Ok(())
}

pub(super) fn tests() -> Vec<Trial> {
    let mut tests = Vec::from_iter(on_each_gpu("max_pool::infinities::f32", finds_all::<f32>));
    tests.extend(on_each_gpu("max_pool::infinities::f16", finds_all::<f16>));
    tests.extend(on_each_gpu("max_pool::infinities::bf16", finds_all::<bf16>));
    tests
}
