//! What Gaussian pooling refuses, and what it says.

use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::{Device, Layout, Out, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("gaussian_pool::rejects_parameters_that_are_no_gaussians", rejects_parameters_that_are_no_gaussians),
        on_cpu("gaussian_pool::rejects_images_that_are_not_4d", rejects_images_that_are_not_4d),
        on_cpu("gaussian_pool::rejects_means_that_do_not_fit", rejects_means_that_do_not_fit),
        on_cpu("gaussian_pool::rejects_variances_that_do_not_fit", rejects_variances_that_do_not_fit),
        on_cpu("gaussian_pool::rejects_dilation", rejects_dilation),
        on_cpu("gaussian_pool::rejects_windows_that_do_not_fit", rejects_windows_that_do_not_fit),
        on_cpu("gaussian_pool::rejects_gradients_of_other_shapes", rejects_gradients_of_other_shapes),
    ];
    tests.push(on_cpu("gaussian_pool::rejects_gradients_in_another_layout", rejects_gradients_in_another_layout));
    tests.push(on_cpu("gaussian_pool::rejects_orders_that_are_no_layout", rejects_orders_that_are_no_layout));
    let name = "gaussian_pool::rejects_what_kernels_cannot_count";
    tests.extend(on_each_gpu(name, rejects_what_kernels_cannot_count));
    tests.extend(on_each_gpu("gaussian_pool::rejects_f64_on_a_gpu", rejects_f64_on_a_gpu));
    tests
}

fn zeros(shape: &[usize]) -> Tensor<f32> {
    Tensor::zeros(&Device::cpu(), shape).expect("memory for a test's input")
}

fn forward(x: &[usize], mean: &[usize], var: &[usize], window: Window) -> ferrolayer::Result<Tensor<f32>> {
    let var = Tensor::full(&Device::cpu(), var, 1.0)?;
    gaussian_pool::forward(&zeros(x), &zeros(mean), &var, &window, Normalize::Window)
}

fn rejects_parameters_that_are_no_gaussians() -> Outcome {
    let pool = |mean: [f32; 4], var: [f32; 2]| {
        let mean = Tensor::from_slice(&Device::cpu(), &[1, 2, 2], &mean)?;
        let var = Tensor::from_slice(&Device::cpu(), &[1, 2, 1], &var)?;
        gaussian_pool::forward(&zeros(&[1, 1, 4, 4]), &mean, &var, &Window::new([2, 2]), Normalize::Window)
    };
    for (var, shown) in [(0.0, "0"), (-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        assert_error(
            pool([0.0; 4], [1.0, var]),
            &format!("gaussian_pool.forward: var is {shown} at [0, 1, 0], expected finite values above 0"),
        )?;
    }
    for (mean, shown) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
        assert_error(
            pool([0.0, 0.0, 0.0, mean], [1.0, 1.0]),
            &format!("gaussian_pool.forward: mean is {shown} at [0, 1, 1], expected finite values"),
        )?;
    }
    Ok(())
}

fn rejects_images_that_are_not_4d() -> Outcome {
    assert_error(
        forward(&[3, 4, 4], &[1, 1, 2], &[1, 1, 1], Window::new([2, 2])),
        "gaussian_pool.forward: x has shape [3, 4, 4], expected [N, C, H, W]",
    )?;
    assert_error(
        forward(&[2, 0, 4, 4], &[1, 1, 2], &[1, 1, 1], Window::new([2, 2])),
        "gaussian_pool.forward: x has shape [2, 0, 4, 4], expected no zero but for the batch, dimension 0",
    )
}

fn rejects_means_that_do_not_fit() -> Outcome {
    for mean in [&[2, 1, 2][..], &[1, 0, 2], &[1, 1, 3], &[1, 2]] {
        assert_error(
            forward(&[1, 3, 4, 4], mean, &[1, 1, 1], Window::new([2, 2])),
            &format!(
                "gaussian_pool.forward: mean has shape {mean:?}, expected [1, K, 2] or [3, K, 2] with K at least 1 for 3 channels"
            ),
        )?;
    }
    Ok(())
}

fn rejects_variances_that_do_not_fit() -> Outcome {
    for var in [&[1, 2, 1][..], &[3, 1, 1], &[3, 2, 3], &[3, 2]] {
        assert_error(
            forward(&[1, 3, 4, 4], &[3, 2, 2], var, Window::new([2, 2])),
            &format!("gaussian_pool.forward: var has shape {var:?}, expected [3, 2, 1] or [3, 2, 2], as mean's"),
        )?;
    }
    Ok(())
}

fn rejects_dilation() -> Outcome {
    assert_error(
        forward(&[1, 1, 4, 4], &[1, 1, 2], &[1, 1, 1], Window::new([2, 2]).dilation([1, 2])),
        "gaussian_pool.forward: dilation is [1, 2], expected [1, 1]: a Gaussian's window has no gaps",
    )
}

fn rejects_windows_that_do_not_fit() -> Outcome {
    assert_error(
        forward(&[1, 1, 4, 4], &[1, 1, 2], &[1, 1, 1], Window::new([5, 5])),
        "gaussian_pool.forward: x has shape [4, 4], expected a height and a width that a window [5, 5] fits into",
    )
}

fn rejects_gradients_of_other_shapes() -> Outcome {
    let (x, mean, window) = (zeros(&[1, 2, 4, 4]), zeros(&[1, 3, 2]), Window::new([2, 2]));
    let var = Tensor::full(&Device::cpu(), &[1, 3, 1], 1.0)?;
    let backward = |dy: &[usize], dx: &[usize], dmean: &[usize], dvar: &[usize]| {
        let [mut dx, mut dmean, mut dvar] = [dx, dmean, dvar].map(zeros);
        let [dx, dmean, dvar] = [&mut dx, &mut dmean, &mut dvar].map(|tensor| Some(Out::write(tensor)));
        gaussian_pool::backward(&x, &mean, &var, &window, Normalize::Valid, &zeros(dy), dx, dmean, dvar)
    };
    let (y, x, mean, var) = (&[1, 6, 2, 2], &[1, 2, 4, 4], &[1, 3, 2], &[1, 3, 1]);
    backward(y, x, mean, var)?;
    for (result, expected) in [
        (backward(&[1, 2, 2, 2], x, mean, var), "dy has shape [1, 2, 2, 2], expected [1, 6, 2, 2]"),
        (backward(y, &[1, 2, 4, 5], mean, var), "dx has shape [1, 2, 4, 5], expected [1, 2, 4, 4]"),
        (backward(y, x, &[1, 3, 1], var), "dmean has shape [1, 3, 1], expected [1, 3, 2]"),
        (backward(y, x, mean, &[1, 3, 2]), "dvar has shape [1, 3, 2], expected [1, 3, 1]"),
    ] {
        assert_error(result, &format!("gaussian_pool.backward: {expected}"))?;
    }
    Ok(())
}

fn rejects_gradients_in_another_layout() -> Outcome {
    let (x, mean, window) = (zeros(&[1, 2, 4, 4]), zeros(&[1, 1, 2]), Window::new([2, 2]));
    let var = Tensor::full(&Device::cpu(), &[1, 1, 1], 1.0)?;
    let (y, last) = (zeros(&[1, 2, 2, 2]), |tensor: &Tensor<f32>| tensor.to_layout(Layout::ChannelsLast));
    let backward = |x: &Tensor<f32>, dy: &Tensor<f32>, mut dx: Tensor<f32>| {
        gaussian_pool::backward(x, &mean, &var, &window, Normalize::Valid, dy, Some(Out::write(&mut dx)), None, None)
    };
    let strides = |argument: &str, what: &str| {
        format!("gaussian_pool.backward: {argument} has shape {what} order; `Tensor::to_layout` copies it")
    };
    backward(&last(&x)?, &last(&y)?, last(&x)?)?;
    let row_major = "[1, 2, 2, 2] and strides [8, 4, 2, 1], expected channels-last";
    assert_error(backward(&last(&x)?, &y, last(&x)?), &strides("dy", row_major))?;
    let channels_last = "[1, 2, 4, 4] and strides [32, 1, 8, 2], expected row-major";
    assert_error(backward(&x, &y, last(&x)?), &strides("dx", channels_last))
}

fn rejects_orders_that_are_no_layout() -> Outcome {
    let (mean, var) = (zeros(&[2, 1, 2]), Tensor::full(&Device::cpu(), &[2, 1, 1], 1.0)?);
    let forward = |x: &Tensor<f32>, mean: &Tensor<f32>| {
        gaussian_pool::forward(x, mean, &var, &Window::new([2, 2]), Normalize::Window)
    };
    assert_error(
        forward(&zeros(&[2, 1, 4, 5]).permute(&[1, 0, 3, 2])?, &mean),
        "gaussian_pool.forward: x has shape [1, 2, 5, 4] and strides [20, 20, 1, 5], expected row-major or channels-last \
         order; `Tensor::to_layout` copies it",
    )?;
    assert_error(
        forward(&zeros(&[1, 2, 4, 4]), &zeros(&[2, 1, 2]).permute(&[2, 1, 0])?),
        "gaussian_pool.forward: mean has shape [2, 1, 2] and strides [1, 2, 2], expected row-major order; \
         `Tensor::to_layout` copies it",
    )
}

/// Empty batches, so that no memory is needed.
fn rejects_what_kernels_cannot_count(gpu: &Device) -> Outcome {
    let (mean, var) = (Tensor::<f32>::zeros(gpu, &[1, 1, 2])?, Tensor::full(gpu, &[1, 1, 1], 1.0f32)?);
    let forward = |x: &[usize], layout: Layout| {
        let x = Tensor::<f32>::empty_in(gpu, x, layout)?;
        gaussian_pool::forward(&x, &mean, &var, &Window::new([2, 2]), Normalize::Window)
    };
    let counts = "planes, Gaussians and elements of a row of pixels, and fewer than 2^31 tiles of";
    assert_error(
        forward(&[0, 1 << 31, 2, 2], Layout::RowMajor),
        &format!(
            "gaussian_pool.forward: x has shape [0, 2147483648, 2, 2], expected fewer than 2^31 {counts} 16 x 1 pixels in \
             all planes"
        ),
    )?;
    assert_error(
        forward(&[0, 1 << 20, 2, 1 << 11], Layout::ChannelsLast),
        &format!(
            "gaussian_pool.forward: x has shape [0, 1048576, 2, 2048], expected fewer than 2^31 {counts} 8 x 8 pixels in \
             all planes"
        ),
    )?;
    let window = Window::new([2, 2]);
    assert_error(
        forward(&[0, 1, 2, (1 << 31) - 1], Layout::RowMajor),
        &format!(
            "gaussian_pool.forward: window is {window:?} on an image of [2, 2147483647], expected fewer than 2^31 pixels \
             along the padded image, the window and the stride together, and fewer than 2^29 weights for all ways in which \
             windows are cut off, of all channels where these are neighbours"
        ),
    )
}

fn rejects_f64_on_a_gpu(gpu: &Device) -> Outcome {
    let tensor = |shape: &[usize]| Tensor::<f64>::full(gpu, shape, 1.0);
    let (x, mean, var) = (tensor(&[1, 1, 4, 4])?, tensor(&[1, 1, 2])?, tensor(&[1, 1, 1])?);
    let result = gaussian_pool::forward(&x, &mean, &var, &Window::new([2, 2]), Normalize::Window);
    assert_error(
        result,
        &format!("gaussian_pool.forward: x holds f64, which {gpu} does not compute; expected f32, f16 or bf16"),
    )
}
