//! What maximum pooling refuses, and what it says.

use ferrolayer::ops::Window;
use ferrolayer::ops::max_pool::{self, Indices};
use ferrolayer::{Device, Layout, Out, Tensor};

use super::LAYOUTS;
use crate::support::*;

pub fn tests() -> Vec<Trial> {
    vec![
        on_cpu("max_pool::rejects_other_dimensions", rejects_other_dimensions),
        on_cpu("max_pool::rejects_empty_channels", rejects_empty_channels),
        on_cpu("max_pool::rejects_windows_that_do_not_fit", rejects_windows_that_do_not_fit),
        on_cpu("max_pool::rejects_padding_over_half", rejects_padding_over_half),
        on_cpu("max_pool::rejects_too_many_positions", rejects_too_many_positions),
        on_cpu("max_pool::rejects_gradients_of_other_shapes", rejects_gradients_of_other_shapes),
        on_cpu("max_pool::rejects_indices_of_other_windows", rejects_indices_of_other_windows),
        on_cpu("max_pool::rejects_tensors_elsewhere", rejects_tensors_elsewhere),
        on_cpu("max_pool::rejects_other_layouts", rejects_other_layouts),
        on_cpu("max_pool::takes_either_layout_of_one_pixel", takes_either_layout_of_one_pixel),
        on_cpu("max_pool::rejects_planes_past_flat_indices", rejects_planes_past_flat_indices),
        on_cpu("max_pool::rejects_rows_past_31_bits", rejects_rows_past_31_bits),
    ]
}

fn rejects_other_dimensions() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[3, 8, 8])?;
    let expected = "x has shape [3, 8, 8], expected [N, C, H, W] with no zero but for N";
    assert_error(max_pool::forward(&x, &Window::new([2, 2])), &format!("max_pool.forward: {expected}"))?;
    let inference = max_pool::forward_inference(&x, &Window::new([2, 2]));
    assert_error(inference, &format!("max_pool.forward_inference: {expected}"))
}

fn rejects_empty_channels() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[2, 0, 8, 8])?;
    let expected = "max_pool.forward: x has shape [2, 0, 8, 8], expected [N, C, H, W] with no zero but for N";
    assert_error(max_pool::forward(&x, &Window::new([2, 2])), expected)
}

fn rejects_windows_that_do_not_fit() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[1, 1, 8, 4])?;
    let expected = "max_pool.forward: x has shape [8, 4], expected a height and a width that a window [3, 3] fits into";
    assert_error(max_pool::forward(&x, &Window::new([3, 3]).dilation([1, 2])), expected)?;
    let expected = "max_pool.forward: stride is [0, 1], expected at least 1 each way";
    assert_error(max_pool::forward(&x, &Window::new([3, 3]).stride([0, 1])), expected)
}

fn rejects_padding_over_half() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[1, 1, 8, 8])?;
    let expected = "max_pool.forward: padding is [1, 2], expected at most half the window [3, 3]";
    assert_error(max_pool::forward(&x, &Window::new([3, 3]).padding([1, 2])), expected)
}

fn rejects_too_many_positions() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[1, 1, 300, 300])?;
    let expected = "max_pool.forward: window is [256, 257], expected at most 65536 positions";
    assert_error(max_pool::forward(&x, &Window::new([256, 257])), expected)
}

fn rejects_gradients_of_other_shapes() -> Outcome {
    let cpu = Device::cpu();
    let (x, window) = (Tensor::<f32>::zeros(&cpu, &[1, 2, 8, 8])?, Window::new([2, 2]));
    let got = max_pool::forward(&x, &window)?;
    let mut dx = x.empty_like()?;
    let mut other = Tensor::zeros(&cpu, &[1, 2, 8, 9])?;
    let result = max_pool::backward(&x, &got.indices, &window, &[1, 2, 8, 8], Out::write(&mut dx));
    assert_error(result, "max_pool.backward: dy has shape [1, 2, 8, 8], expected [1, 2, 4, 4]")?;
    let result = max_pool::backward(&got.y, &got.indices, &window, &[1, 2, 8, 8], Out::write(&mut other));
    assert_error(result, "max_pool.backward: dx has shape [1, 2, 8, 9], expected [1, 2, 8, 8]")?;
    let result = max_pool::backward(&got.y, &got.indices, &window, &[2, 8, 8], Out::write(&mut dx));
    let expected = "max_pool.backward: input_shape has shape [2, 8, 8], expected [N, C, H, W] with no zero but for N";
    assert_error(result, expected)
}

fn rejects_indices_of_other_windows() -> Outcome {
    let cpu = Device::cpu();
    let x = Tensor::<f32>::zeros(&cpu, &[1, 1, 40, 40])?;
    let (small, large) = (Window::new([16, 16]).stride([8, 8]), Window::new([17, 16]).stride([8, 8]));
    let (of_small, of_large) = (max_pool::forward(&x, &small)?, max_pool::forward(&x, &large)?);
    let mut dx = x.empty_like()?;
    let mut backward =
        |dy, indices, window| max_pool::backward(dy, indices, window, &[1, 1, 40, 40], Out::write(&mut dx));
    let result = backward(&of_large.y, &of_small.indices, &large);
    assert_error(result, "max_pool.backward: indices has shape [1, 1, 4, 4], expected [1, 1, 3, 4]")?;
    let other = Indices::U8(Tensor::zeros(&cpu, &[1, 1, 3, 4])?);
    let expected = "max_pool.backward: indices is u8, expected u16 for a window of 272 positions";
    assert_error(backward(&of_large.y, &other, &large), expected)?;
    let other = Indices::U16(Tensor::zeros(&cpu, &[1, 1, 4, 4])?);
    let expected = "max_pool.flat_indices: indices is u16, expected u8 for a window of 256 positions";
    assert_error(max_pool::flat_indices(&other, &small, &[1, 1, 40, 40]), expected)
}

fn rejects_tensors_elsewhere() -> Outcome {
    let (cpu, gpu) = (Device::cpu(), Device::Gpu(ferrolayer::device::Gpu::emulated()));
    let (x, window) = (Tensor::<f32>::zeros(&cpu, &[1, 1, 4, 4])?, Window::new([2, 2]));
    let got = max_pool::forward(&x, &window)?;
    let (dy, mut dx, mut far) = (got.y.to(&gpu)?, x.to(&cpu)?, x.to(&gpu)?);
    let result = max_pool::backward(&dy, &got.indices, &window, &[1, 1, 4, 4], Out::write(&mut dx));
    let moves = "like the other tensors; `Tensor::to` moves it";
    let expected = format!("max_pool.backward: indices is on the CPU, expected the emulated GPU {moves}");
    assert_error(result, &expected)?;
    let result = max_pool::backward(&got.y, &got.indices, &window, &[1, 1, 4, 4], Out::write(&mut far));
    let expected = format!("max_pool.backward: dx is on the emulated GPU, expected the CPU {moves}");
    assert_error(result, &expected)?;
    let x = Tensor::<f64>::zeros(&gpu, &[1, 1, 4, 4])?;
    let expected = "max_pool.forward: x holds f64, which the emulated GPU does not compute; expected f32, f16 or bf16";
    assert_error(max_pool::forward(&x, &window), expected)
}

fn rejects_other_layouts() -> Outcome {
    let cpu = Device::cpu();
    let (x, window) = (Tensor::<f32>::zeros(&cpu, &[2, 3, 4, 6])?, Window::new([2, 2]));
    let told = |strides: &str, expected: &str| {
        format!("has shape {strides}, expected {expected} order; `Tensor::to_layout` copies it")
    };
    let result = max_pool::forward(&x.clone().permute(&[1, 0, 2, 3])?, &window);
    let expected = told("[3, 2, 4, 6] and strides [24, 72, 6, 1]", "row-major or channels-last");
    assert_error(result, &format!("max_pool.forward: x {expected}"))?;

    let got = max_pool::forward(&x, &window)?;
    let last = max_pool::forward(&x.to_layout(Layout::ChannelsLast)?, &window)?;
    let (mut dx, mut last_dx) = (x.empty_like()?, x.to_layout(Layout::ChannelsLast)?);
    let backward = |dy, indices, dx: &mut _| max_pool::backward(dy, indices, &window, &[2, 3, 4, 6], Out::write(dx));
    let expected = told("[2, 3, 4, 6] and strides [72, 24, 6, 1]", "channels-last");
    let result = backward(&last.y, &last.indices, &mut dx);
    assert_error(result, &format!("max_pool.backward: dx {expected}"))?;
    let expected = told("[2, 3, 4, 6] and strides [72, 1, 18, 3]", "row-major");
    assert_error(backward(&got.y, &got.indices, &mut last_dx), &format!("max_pool.backward: dx {expected}"))?;
    let expected = told("[2, 3, 2, 3] and strides [18, 6, 3, 1]", "channels-last");
    let result = backward(&last.y, &got.indices, &mut last_dx);
    assert_error(result, &format!("max_pool.backward: indices {expected}"))
}

/// A gradient of one pixel an image, as a dense layer gives it, has both layouts: it goes with inputs in either.
fn takes_either_layout_of_one_pixel() -> Outcome {
    let cpu = Device::cpu();
    let window = Window::new([4, 5]);
    let dy = normal_tensor::<f32>(&cpu, 1, &[2, 3, 1, 1]);
    let mut results = Vec::new();
    for layout in LAYOUTS {
        let x = normal_tensor::<f32>(&cpu, 2, &[2, 3, 4, 5]).to_layout(layout)?;
        let indices = max_pool::forward(&x, &window)?.indices;
        let mut dx = x.empty_like()?;
        max_pool::backward(&dy, &indices, &window, x.shape(), Out::write(&mut dx))?;
        results.push(dx);
    }
    assert_same_bits("dx", &results[1], &results[0])
}

/// Nothing is computed, and so an empty batch is enough to be refused.
fn rejects_planes_past_flat_indices() -> Outcome {
    let window = Window::new([1, 2]);
    for (shape, refused) in [([0, 1, 1 << 16, 1 << 16], false), ([0, 1, 1 << 16, (1 << 16) + 2], true)] {
        let x = Tensor::<f32>::zeros(&Device::cpu(), &shape)?;
        let indices = max_pool::forward(&x, &window)?.indices;
        let result = max_pool::flat_indices(&indices, &window, &shape);
        if refused {
            let expected = "input_shape has shape [0, 1, 65536, 65538], expected planes of at most 2^32 positions";
            assert_error(result, &format!("max_pool.flat_indices: {expected}"))?;
        } else {
            assert_eq!(result?.len(), 0);
        }
    }
    Ok(())
}

fn rejects_rows_past_31_bits() -> Outcome {
    let gpu = Device::Gpu(ferrolayer::device::Gpu::emulated());
    let expected = "expected fewer than 2^31 elements a row, in fewer than 2^31 planes, and a window smaller than that";
    let x = Tensor::<f32>::zeros(&gpu, &[0, 1 << 20, 2, 1 << 12])?;
    assert_eq!(max_pool::forward(&x, &Window::new([2, 2]))?.y.len(), 0);
    let x = Tensor::<f32>::empty_in(&gpu, &[0, 1 << 20, 2, 1 << 12], Layout::ChannelsLast)?;
    let result = max_pool::forward(&x, &Window::new([2, 2]));
    assert_error(result, &format!("max_pool.forward: x has shape [4294967296, 2147483648], {expected}"))?;
    let x = Tensor::<f32>::zeros(&gpu, &[0, 1, 2, 1 << 31])?;
    let result = max_pool::forward(&x, &Window::new([2, 2]));
    assert_error(result, &format!("max_pool.forward: x has shape [2147483648, 1073741824], {expected}"))
}
