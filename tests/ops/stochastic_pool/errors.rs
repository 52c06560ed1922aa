//! What stochastic pooling refuses, and what it says.

use ferrolayer::ops::Window;
use ferrolayer::ops::stochastic_pool::{self, Indices, Output, Random};
use ferrolayer::{Device, Layout, Out, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    vec![
        on_cpu("stochastic_pool::rejects_other_dimensions", rejects_other_dimensions),
        on_cpu("stochastic_pool::rejects_other_layouts", rejects_other_layouts),
        on_cpu("stochastic_pool::rejects_dilation", rejects_dilation),
        on_cpu("stochastic_pool::rejects_too_many_positions", rejects_too_many_positions),
        on_cpu("stochastic_pool::rejects_indices_of_other_types", rejects_indices_of_other_types),
        on_cpu("stochastic_pool::rejects_tensors_elsewhere", rejects_tensors_elsewhere),
        on_cpu("stochastic_pool::rejects_f64_on_a_gpu", rejects_f64_on_a_gpu),
    ]
}

/// The error of a forward pass in training of zeros of this shape.
fn assert_refused(shape: &[usize], window: Window, expected: &str) -> Outcome {
    let cpu = Device::cpu();
    let x = Tensor::<f32>::zeros(&cpu, shape)?;
    let result = stochastic_pool::forward(&x, &window, &mut Random::new(&cpu, 1)?);
    assert_error(result, &format!("stochastic_pool.forward: {expected}"))?;
    let result = stochastic_pool::forward_inference(&x, &window);
    assert_error(result, &format!("stochastic_pool.forward_inference: {expected}"))
}

fn rejects_other_dimensions() -> Outcome {
    let expected = "x has shape [3, 8, 8], expected [N, C, H, W] with no zero but for N";
    assert_refused(&[3, 8, 8], Window::new([2, 2]), expected)
}

fn rejects_dilation() -> Outcome {
    let expected = "dilation is [1, 2], expected [1, 1]: stochastic pooling has none";
    assert_refused(&[1, 1, 8, 8], Window::new([2, 2]).dilation([1, 2]), expected)
}

fn rejects_too_many_positions() -> Outcome {
    let expected = "window is [256, 256], expected at most 65535 positions";
    assert_refused(&[1, 1, 300, 300], Window::new([256, 256]), expected)
}

fn rejects_other_layouts() -> Outcome {
    let cpu = Device::cpu();
    let (x, window) = (Tensor::<f32>::zeros(&cpu, &[2, 3, 4, 6])?, Window::new([2, 2]));
    let mut random = Random::new(&cpu, 1)?;
    let result = stochastic_pool::forward(&x.clone().permute(&[1, 0, 2, 3])?, &window, &mut random);
    let expected = "x has shape [3, 2, 4, 6] and strides [24, 72, 6, 1], expected row-major or channels-last order";
    assert_error(result, &format!("stochastic_pool.forward: {expected}; `Tensor::to_layout` copies it"))?;
    let Output { y, indices } = stochastic_pool::forward(&x, &window, &mut random)?;
    let mut dx = x.to_layout(Layout::ChannelsLast)?;
    let result = stochastic_pool::backward(&y, &indices, &window, &[2, 3, 4, 6], Out::write(&mut dx));
    let expected = "dx has shape [2, 3, 4, 6] and strides [72, 1, 18, 3], expected row-major order";
    assert_error(result, &format!("stochastic_pool.backward: {expected}; `Tensor::to_layout` copies it"))
}

/// 256 positions and none do not fit into a byte, though maximum pooling's 256 do.
fn rejects_indices_of_other_types() -> Outcome {
    let cpu = Device::cpu();
    let (dy, mut dx) = (Tensor::<f32>::zeros(&cpu, &[1, 1, 1, 1])?, Tensor::zeros(&cpu, &[1, 1, 16, 16])?);
    let indices = Indices::U8(Tensor::zeros(&cpu, &[1, 1, 1, 1])?);
    let window = Window::new([16, 16]);
    let result = stochastic_pool::backward(&dy, &indices, &window, &[1, 1, 16, 16], Out::write(&mut dx));
    assert_error(result, "stochastic_pool.backward: indices is u8, expected u16 for a window of 256 positions")
}

fn rejects_tensors_elsewhere() -> Outcome {
    let (cpu, gpu) = (Device::cpu(), Device::Gpu(ferrolayer::device::Gpu::emulated()));
    let (x, window) = (Tensor::<f32>::zeros(&cpu, &[1, 1, 4, 4])?, Window::new([2, 2]));
    let result = stochastic_pool::forward(&x, &window, &mut Random::new(&gpu, 1)?);
    let moves = "like the other tensors; `Tensor::to` moves it";
    let expected = format!("stochastic_pool.forward: random is on the emulated GPU, expected the CPU {moves}");
    assert_error(result, &expected)
}

fn rejects_f64_on_a_gpu() -> Outcome {
    let gpu = Device::Gpu(ferrolayer::device::Gpu::emulated());
    let x = Tensor::<f64>::zeros(&gpu, &[1, 1, 4, 4])?;
    let mut random = Random::new(&gpu, 1)?;
    let result = stochastic_pool::forward(&x, &Window::new([2, 2]), &mut random);
    let expected = "x holds f64, which the emulated GPU does not compute; expected f32, f16 or bf16";
    assert_error(result, &format!("stochastic_pool.forward: {expected}"))?;
    assert_eq!(random.offset()?, 0);
    Ok(())
}
