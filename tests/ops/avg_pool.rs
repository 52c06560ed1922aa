//! Average pooling.

use std::num::NonZero;

use ferrolayer::ops::Window;
use ferrolayer::ops::avg_pool::{self, Divisor};
use ferrolayer::testing::{assert_close, gradcheck};
use ferrolayer::{Device, Out, Tensor};

use crate::max_pool::{Case, absolute, cases};
use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("avg_pool::worked_example", || worked_example(&Device::cpu())),
        on_cpu("avg_pool::matches_the_definition", || {
            chosen().into_iter().try_for_each(|case| matches_the_definition(&case))
        }),
        on_cpu("avg_pool::matches_the_definition_on_random_windows", || {
            for_random(300, cases(1), |case| matches_the_definition(&case))
        }),
        on_cpu("avg_pool::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("avg_pool::edge_values", || edge_values(&Device::cpu())),
        on_cpu("avg_pool::edge_empty_batch", || empty_batch(&Device::cpu())),
        on_cpu("avg_pool::rejects_other_dimensions", rejects_other_dimensions),
        on_cpu("avg_pool::rejects_dilation", rejects_dilation),
        on_cpu("avg_pool::rejects_windows_that_do_not_fit", rejects_windows_that_do_not_fit),
        on_cpu("avg_pool::rejects_padding_over_half", rejects_padding_over_half),
        on_cpu("avg_pool::rejects_gradients_of_other_shapes", rejects_gradients_of_other_shapes),
        on_cpu("avg_pool::rejects_tensors_elsewhere", rejects_tensors_elsewhere),
    ];
    tests.extend(on_each_gpu("avg_pool::worked_example", worked_example));
    tests.extend(on_each_gpu("avg_pool::matches_cpu", |gpu| {
        chosen().iter().try_for_each(|case| matches_cpu(gpu, case))
    }));
    tests.extend(on_each_gpu("avg_pool::matches_cpu_on_random_windows", |gpu| {
        for_random(10, cases(1), |case| matches_cpu(gpu, &case))
    }));
    tests.extend(on_each_gpu("avg_pool::edge_values", edge_values));
    tests.extend(on_each_gpu("avg_pool::edge_empty_batch", empty_batch));
    tests.push(on_real_gpu("avg_pool::matches_cpu_at_full_size", |gpu| {
        large().iter().try_for_each(|case| matches_cpu(gpu, case))
    }));
    tests.push(on_real_gpu("avg_pool::matches_cpu_on_many_random_windows", |gpu| {
        for_random(100, cases(1), |case| matches_cpu(gpu, &case))
    }));
    tests
}

fn chosen() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    vec![
        Case { shape: [2, 3, 12, 12], window: window(2, 2) },
        Case { shape: [1, 2, 13, 15], window: window(3, 2).padding([1, 1]) },
        Case { shape: [1, 1, 9, 9], window: window(3, 1).padding([1, 1]) },
        // The last window begins in the image and ends past the padding.
        Case { shape: [1, 2, 8, 6], window: window(3, 2).padding([1, 1]).ceil_mode(true) },
        Case { shape: [1, 1, 6, 7], window: window(4, 3).padding([2, 2]).ceil_mode(true) },
        Case { shape: [1, 1, 1, 1], window: window(1, 1) },
        Case { shape: [2, 1, 5, 300], window: window(2, 1) },
        Case { shape: [1, 1, 300, 3], window: window(3, 1).padding([1, 1]) },
        Case { shape: [17, 9, 4, 3], window: window(2, 1) },
        Case { shape: [1, 2, 11, 17], window: Window::new([2, 1]).stride([3, 4]) },
        Case { shape: [2, 2, 19, 20], window: Window::new([19, 20]) },
        Case { shape: [1, 1, 20, 40], window: Window::new([18, 17]).stride([1, 2]).padding([9, 8]) },
    ]
}

fn large() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    vec![
        Case { shape: [8, 64, 112, 112], window: window(3, 2).padding([1, 1]) },
        Case { shape: [8, 64, 112, 112], window: window(2, 2) },
        Case { shape: [3, 5, 701, 1003], window: window(5, 3).padding([2, 1]).ceil_mode(true) },
        Case { shape: [1, 1, 2, 300_001], window: window(2, 1) },
        Case { shape: [1, 1, 300_001, 2], window: window(2, 1) },
        Case { shape: [70_001, 3, 2, 2], window: window(2, 1) },
        Case { shape: [1, 2, 700, 500], window: Window::new([300, 200]).stride([13, 17]).padding([50, 100]) },
    ]
}

/// Every way to divide.
fn divisors() -> [Divisor; 4] {
    let overridden = |divisor| Divisor { divisor_override: NonZero::new(divisor), ..Divisor::default() };
    [Divisor::default(), Divisor { count_include_pad: false, ..Divisor::default() }, overridden(7), overridden(-2)]
}

/// The divisor of each output, counted position by position.
fn counts(case: &Case, divisor: &Divisor) -> Vec<f64> {
    let ([.., h, w], [n, c, oh, ow], window) = (case.shape, case.output_shape(), case.window);
    let along = |axis: usize, length: usize, output: usize| {
        let padding = window.padding[axis];
        let positions = (0..window.size[axis]).map(|position| output * window.stride[axis] + position);
        let counted = positions.filter(|from_padding| match divisor.count_include_pad {
            true => *from_padding < length + 2 * padding,
            false => (padding..length + padding).contains(from_padding),
        });
        counted.count()
    };
    (0..n * c * oh * ow)
        .map(|output| match divisor.divisor_override {
            Some(divisor) => divisor.get() as f64,
            None => (along(0, h, output / ow % oh) * along(1, w, output % ow)) as f64,
        })
        .collect()
}

/// The sums of the terms and of their magnitudes, in f64: of `y` given `x`.
fn define_forward(case: &Case, divisor: &Divisor, x: &[f32]) -> (Vec<f32>, Vec<f64>) {
    let counts = counts(case, divisor);
    let (mut y, mut size) = (vec![0.0; counts.len()], vec![0.0; counts.len()]);
    case.visit(|output, input, _| {
        let term = f64::from(x[input]) / counts[output];
        y[output] += term;
        size[output] += term.abs();
    });
    (y.into_iter().map(|v| v as f32).collect(), size)
}

/// The same of `dx + beta * old`, given `dy`.
fn define_backward(case: &Case, divisor: &Divisor, dy: &[f32], beta: f64, old: &[f32]) -> (Vec<f32>, Vec<f64>) {
    let counts = counts(case, divisor);
    let mut dx: Vec<f64> = old.iter().map(|old| if beta == 0.0 { 0.0 } else { beta * f64::from(*old) }).collect();
    let mut size: Vec<f64> = dx.iter().map(|v| v.abs()).collect();
    case.visit(|output, input, _| {
        let term = f64::from(dy[output]) / counts[output];
        dx[input] += term;
        size[input] += term.abs();
    });
    (dx.into_iter().map(|v| v as f32).collect(), size)
}

fn matches_the_definition(case: &Case) -> Outcome {
    let device = Device::Cpu(ferrolayer::device::Cpu::poisoning());
    let terms = case.window.positions() + 1;
    let x = normal_tensor::<f32>(&device, 1, &case.shape);
    let dy = normal_tensor::<f32>(&device, 2, &case.output_shape());
    let old = normal_tensor::<f32>(&device, 3, &case.shape);
    for divisor in divisors() {
        let y = avg_pool::forward(&x, &case.window, &divisor)?;
        assert_eq!(y.shape(), case.output_shape(), "{case:?}");
        let (expected, size) = define_forward(case, &divisor, &x.to_vec()?);
        assert_close(&format!("y of {case:?}, {divisor:?}"), &y.to_vec()?, &expected, terms, &size)?;

        // With beta = 0 what dx held must not matter: it is NaN.
        for beta in [0.0, -0.5] {
            let mut dx = if beta == 0.0 { x.empty_like()? } else { old.clone() };
            let out = Out { tensor: &mut dx, beta };
            avg_pool::backward(&dy, &case.window, &divisor, &case.shape, out)?;
            let (expected, size) = define_backward(case, &divisor, &dy.to_vec()?, beta.into(), &old.to_vec()?);
            let what = format!("dx of {case:?}, {divisor:?}, beta {beta}");
            assert_close(&what, &dx.to_vec()?, &expected, terms, &size)?;
        }
    }
    Ok(())
}

fn matches_cpu(gpu: &Device, case: &Case) -> Outcome {
    let cpu = Device::cpu();
    let terms = case.window.positions() + 1;
    let x = normal_tensor::<f32>(&cpu, 1, &case.shape);
    let dy = normal_tensor::<f32>(&cpu, 2, &case.output_shape());
    let old = normal_tensor::<f32>(&cpu, 3, &case.shape);
    let forward = |device: &Device, x: &Tensor<f32>, divisor: &Divisor| {
        avg_pool::forward(&x.to(device)?, &case.window, divisor)?.to_vec()
    };
    let backward = |device: &Device, dy: &Tensor<f32>, divisor: &Divisor, beta: f64| {
        let mut dx = if beta == 0.0 { Tensor::empty(device, &case.shape)? } else { old.to(device)? };
        let out = Out { tensor: &mut dx, beta };
        avg_pool::backward(&dy.to(device)?, &case.window, divisor, &case.shape, out)?;
        dx.to_vec()
    };
    let magnitudes = |values: Vec<f32>| values.into_iter().map(|v| f64::from(v.abs())).collect::<Vec<f64>>();
    for divisor in divisors() {
        let size = magnitudes(forward(&cpu, &absolute(&x)?, &divisor)?);
        let (got, expected) = (forward(gpu, &x, &divisor)?, forward(&cpu, &x, &divisor)?);
        assert_close(&format!("y of {case:?}, {divisor:?}"), &got, &expected, terms, &size)?;
        assert!(got == forward(gpu, &x, &divisor)?, "y of {case:?}, {divisor:?}, again");

        let size = magnitudes(backward(&cpu, &absolute(&dy)?, &divisor, 0.0)?);
        let size: Vec<f64> = size.iter().zip(old.to_vec()?).map(|(size, old)| size + f64::from(old.abs())).collect();
        for beta in [0.0, -0.5] {
            let (got, expected) = (backward(gpu, &dy, &divisor, beta)?, backward(&cpu, &dy, &divisor, beta)?);
            let what = format!("dx of {case:?}, {divisor:?}, beta {beta}");
            assert_close(&what, &got, &expected, terms, &size)?;
            assert!(got == backward(gpu, &dy, &divisor, beta)?, "{what}, again");
        }
    }
    Ok(())
}

/// By hand, for all divisors: a window at the padding, and one that `ceil_mode` lets end past the padding.
fn worked_example(device: &Device) -> Outcome {
    let shape = [1, 1, 2, 4];
    let x = Tensor::from_slice(device, &shape, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
    // Rows -1 to 1; columns -1 to 1, 1 to 3 and 3 to 5, of which 5 is past the padding.
    let window = Window::new([3, 3]).stride([3, 2]).padding([1, 1]).ceil_mode(true);
    let sums = [14.0, 30.0, 12.0];
    let dy = Tensor::from_slice(device, &[1, 1, 1, 3], &[36.0f32, 72.0, 144.0])?;
    for (divisor, counts) in divisors().into_iter().zip([[9.0, 9.0, 6.0], [4.0, 6.0, 2.0], [7.0; 3], [-2.0; 3]]) {
        let y = avg_pool::forward(&x, &window, &divisor)?;
        assert_eq!(y.shape(), [1, 1, 1, 3]);
        let expected: Vec<f32> = sums.iter().zip(counts).map(|(sum, count)| sum / count).collect();
        assert_eq!(y.to_vec()?, expected, "{divisor:?}");

        let mut dx = x.empty_like()?;
        avg_pool::backward(&dy, &window, &divisor, &shape, Out::write(&mut dx))?;
        let [left, middle, right] = [36.0 / counts[0], 72.0 / counts[1], 144.0 / counts[2]];
        let row = [left, left + middle, middle, middle + right];
        assert_close(&format!("dx, {divisor:?}"), &dx.to_vec()?, &[row, row].concat(), 2, &[200.0; 8])?;
    }
    Ok(())
}

/// A window of one value has that average, exactly; infinities and NaN stay in their windows and do not overflow early.
fn edge_values(device: &Device) -> Outcome {
    for size in 1..6 {
        let x = Tensor::full(device, &[1, 1, 6, 7], 0.1f32)?;
        let window = Window::new([size, size]).stride([1, 2]).padding([size / 2, size / 2]);
        let inside = Divisor { count_include_pad: false, ..Divisor::default() };
        let y = avg_pool::forward(&x, &window, &inside)?.to_vec()?;
        // Sums of 0.1 round, but not by a unit of the result's last place for each term.
        let allowed = 0.1 * f32::EPSILON * (size * size) as f32;
        assert!(y.iter().all(|y| (y - 0.1).abs() <= allowed), "{size}: {y:?}");
        let whole = Tensor::full(device, &[1, 1, 6, 7], 3.0f32)?;
        assert!(avg_pool::forward(&whole, &window, &inside)?.to_vec()?.iter().all(|y| *y == 3.0), "{size}");
    }
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Tensor::from_slice(device, &[1, 1, 1, 8], &[nan, 1.0, inf, 2.0, inf, -inf, 3.0, 5.0])?;
    let y = avg_pool::forward(&x, &Window::new([1, 2]), &Divisor::default())?.to_vec()?;
    assert!(y[0].is_nan() && y[1] == inf && y[2].is_nan() && y[3] == 4.0, "{y:?}");
    // Two gradients whose sum passes the largest float, and whose shares do not.
    let dy = Tensor::full(device, &[1, 1, 1, 2], 3e38f32)?;
    let mut dx = Tensor::zeros(device, &[1, 1, 1, 3])?;
    let window = Window::new([1, 2]).stride([1, 1]);
    avg_pool::backward(&dy, &window, &Divisor::default(), &[1, 1, 1, 3], Out::write(&mut dx))?;
    assert_eq!(dx.to_vec()?, [1.5e38, 3e38, 1.5e38]);
    Ok(())
}

fn empty_batch(device: &Device) -> Outcome {
    let x = Tensor::<f32>::zeros(device, &[0, 3, 8, 8])?;
    let window = Window::new([2, 2]);
    let y = avg_pool::forward(&x, &window, &Divisor::default())?;
    assert_eq!(y.shape(), [0, 3, 4, 4]);
    let mut dx = x.empty_like()?;
    avg_pool::backward(&y, &window, &Divisor::default(), &[0, 3, 8, 8], Out::write(&mut dx))?;
    device.synchronize()?;
    Ok(())
}

fn gradient_matches_finite_difference() -> Outcome {
    let cpu = Device::cpu();
    for case in chosen().into_iter().filter(|case| case.shape.iter().product::<usize>() < 1000) {
        for divisor in divisors() {
            let x: Tensor<f64> = normal_tensor(&cpu, 1, &case.shape);
            let weights: Tensor<f64> = normal_tensor(&cpu, 2, &case.output_shape());
            let mut dx = x.empty_like()?;
            avg_pool::backward(&weights, &case.window, &divisor, &case.shape, Out::write(&mut dx))?;
            let weights = weights.to_vec()?;
            gradcheck(&format!("x of {case:?}, {divisor:?}"), &x.to_vec()?, &dx.to_vec()?, |x| {
                let x = Tensor::from_slice(&cpu, &case.shape, x).unwrap();
                let y = avg_pool::forward(&x, &case.window, &divisor).unwrap().to_vec().unwrap();
                y.iter().zip(&weights).map(|(y, weight)| y * weight).sum()
            })?;
        }
    }
    Ok(())
}

fn rejects_other_dimensions() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[3, 8, 8])?;
    let expected = "avg_pool.forward: x has shape [3, 8, 8], expected [N, C, H, W] with no zero but for N";
    assert_error(avg_pool::forward(&x, &Window::new([2, 2]), &Divisor::default()), expected)
}

fn rejects_dilation() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[1, 1, 8, 8])?;
    let window = Window::new([2, 2]).dilation([1, 2]);
    let expected = "avg_pool.forward: dilation is [1, 2], expected [1, 1]: an average has none";
    assert_error(avg_pool::forward(&x, &window, &Divisor::default()), expected)
}

fn rejects_windows_that_do_not_fit() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[1, 1, 8, 2])?;
    let expected = "avg_pool.forward: x has shape [8, 2], expected a height and a width that a window [3, 3] fits into";
    assert_error(avg_pool::forward(&x, &Window::new([3, 3]), &Divisor::default()), expected)
}

fn rejects_padding_over_half() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[1, 1, 8, 8])?;
    let window = Window::new([3, 3]).padding([2, 1]);
    let expected = "avg_pool.forward: padding is [2, 1], expected at most half the window [3, 3]";
    assert_error(avg_pool::forward(&x, &window, &Divisor::default()), expected)
}

fn rejects_gradients_of_other_shapes() -> Outcome {
    let cpu = Device::cpu();
    let (window, divisor) = (Window::new([2, 2]), Divisor::default());
    let (dy, mut dx) = (Tensor::<f32>::zeros(&cpu, &[1, 2, 4, 4])?, Tensor::zeros(&cpu, &[1, 2, 8, 8])?);
    let result = avg_pool::backward(&dy, &window, &divisor, &[1, 2, 8, 10], Out::write(&mut dx));
    assert_error(result, "avg_pool.backward: dy has shape [1, 2, 4, 4], expected [1, 2, 4, 5]")?;
    let result = avg_pool::backward(&dy, &window, &divisor, &[1, 2, 9, 8], Out::write(&mut dx));
    assert_error(result, "avg_pool.backward: dx has shape [1, 2, 8, 8], expected [1, 2, 9, 8]")
}

fn rejects_tensors_elsewhere() -> Outcome {
    let (cpu, gpu) = (Device::cpu(), Device::Gpu(ferrolayer::device::Gpu::emulated()));
    let (window, divisor) = (Window::new([2, 2]), Divisor::default());
    let (dy, mut dx) = (Tensor::<f32>::zeros(&cpu, &[1, 1, 2, 2])?, Tensor::zeros(&gpu, &[1, 1, 4, 4])?);
    let result = avg_pool::backward(&dy, &window, &divisor, &[1, 1, 4, 4], Out::write(&mut dx));
    let moves = "like the other tensors; `Tensor::to` moves it";
    let expected = format!("avg_pool.backward: dx is on the emulated GPU, expected the CPU {moves}");
    assert_error(result, &expected)
}
