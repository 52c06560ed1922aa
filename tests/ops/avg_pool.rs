//! Average pooling.

mod channels_last;
mod spans;

use std::num::NonZero;

use ferrolayer::ops::Window;
use ferrolayer::ops::avg_pool::{self, Divisor};
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Layout, Out, Real, Tensor, bf16, f16};

use crate::huge::{self, Huge};
use crate::max_pool::{Case, LAYOUTS, absolute, cases, in_both_layouts, strides_like};
use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("avg_pool::worked_example", || worked_example(&Device::cpu())),
        on_cpu("avg_pool::matches_the_definition::f32", all_match_the_definition::<f32>),
        on_cpu("avg_pool::matches_the_definition::f64", all_match_the_definition::<f64>),
        on_cpu("avg_pool::matches_the_definition::f16", all_match_the_definition::<f16>),
        on_cpu("avg_pool::matches_the_definition::bf16", all_match_the_definition::<bf16>),
        on_cpu("avg_pool::matches_the_definition_on_random_windows", || {
            for_random(300, cases(1), |case| in_both_layouts(|layout| matches_the_definition::<f32>(&case, layout)))
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
        on_cpu("avg_pool::rejects_other_layouts", rejects_other_layouts),
        on_cpu("avg_pool::takes_either_layout_of_one_pixel", takes_either_layout_of_one_pixel),
        on_cpu("avg_pool::rejects_f64_on_a_gpu", rejects_f64_on_a_gpu),
        on_cpu("avg_pool::rejects_rows_past_31_bits", rejects_rows_past_31_bits),
    ];
    tests.extend(on_each_gpu("avg_pool::worked_example", worked_example));
    tests.extend(on_each_gpu("avg_pool::matches_cpu::f32", |gpu| match_cpu::<f32>(gpu, &chosen())));
    tests.extend(on_each_gpu("avg_pool::matches_cpu::f16", |gpu| match_cpu::<f16>(gpu, &chosen())));
    tests.extend(on_each_gpu("avg_pool::matches_cpu::bf16", |gpu| match_cpu::<bf16>(gpu, &chosen())));
    tests.extend(on_each_gpu("avg_pool::matches_cpu_on_random_windows", |gpu| {
        for_random(10, cases(1), |case| match_cpu::<f32>(gpu, &[case]))
    }));
    tests.extend(on_each_gpu("avg_pool::matches_cpu_on_large_windows", |gpu| {
        let cases: Vec<_> = grouped().into_iter().map(|(shape, window)| Case { shape, window }).collect();
        match_cpu::<f32>(gpu, &cases)?;
        match_cpu::<f16>(gpu, &cases)?;
        match_cpu::<bf16>(gpu, &cases)
    }));
    tests.extend(on_each_gpu("avg_pool::matches_cpu_on_many_large_windows", |gpu| {
        let (shape, window) = grouped_and_many()[0];
        matches_cpu::<f32>(gpu, &Case { shape, window }, Layout::RowMajor)
    }));
    tests.extend(on_each_gpu("avg_pool::matches_cpu_on_several_runs", |gpu| {
        far_apart_and_many()
            .into_iter()
            .try_for_each(|(shape, window)| matches_cpu::<f32>(gpu, &Case { shape, window }, Layout::RowMajor))
    }));
    tests.push(on_real_gpu("avg_pool::matches_cpu_on_all_many_large_windows", |gpu| {
        grouped_and_many().into_iter().try_for_each(|(shape, window)| {
            matches_cpu::<f32>(gpu, &Case { shape, window }, Layout::RowMajor)?;
            matches_cpu::<bf16>(gpu, &Case { shape, window }, Layout::RowMajor)
        })
    }));
    tests.extend(on_each_gpu("avg_pool::edge_values", edge_values));
    tests.extend(on_each_gpu("avg_pool::edge_empty_batch", empty_batch));
    tests.push(on_real_gpu("avg_pool::matches_cpu_at_full_size", |gpu| {
        match_cpu::<f32>(gpu, &large())?;
        match_cpu::<bf16>(gpu, &large())
    }));
    tests.extend(channels_last::tests());
    tests.extend(spans::tests());
    tests.push(on_real_gpu("avg_pool::matches_cpu_on_many_random_windows", |gpu| {
        for_random(100, cases(1), |case| {
            match_cpu::<f32>(gpu, std::slice::from_ref(&case))?;
            match_cpu::<f16>(gpu, &[case])
        })
    }));
    tests.extend(on_each_gpu("avg_pool::matches_crops", |gpu| {
        huge::SMALL.iter().try_for_each(|small| matches_crops(gpu, small))
    }));
    tests.extend(
        huge::LARGEST
            .map(|(name, huge)| on_real_gpu(&format!("avg_pool::huge_{name}"), move |gpu| matches_crops(gpu, &huge))),
    );
    tests
}

fn chosen() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    let mut cases = vec![
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
        // The same of small planes: blocks of them and a part of one, whose last bytes are no whole 16.
        Case { shape: [3, 99, 7, 7], window: Window::new([7, 7]) },
        Case { shape: [1, 3, 9, 5], window: Window::new([9, 5]).stride([1, 2]).ceil_mode(true) },
        Case { shape: [1, 1, 20, 40], window: Window::new([18, 17]).stride([1, 2]).padding([9, 8]) },
        Case { shape: [1, 2, 66, 70], window: Window::new([64, 64]).stride([3, 5]) },
        Case {
            shape: [1, 1, 70, 67],
            window: Window::new([65, 66]).stride([40, 50]).padding([32, 33]).ceil_mode(true),
        },
        // A window of more rows than have a square of 32 bits.
        Case { shape: [1, 1, 70_001, 2], window: Window::new([70_000, 1]) },
        // With the channels last a few outputs one below the other, as many as a column has and one more.
        Case { shape: [2, 3, 19, 14], window: window(8, 2).padding([4, 4]) },
        Case { shape: [1, 5, 17, 13], window: window(3, 1).padding([1, 1]) },
        Case { shape: [1, 7, 40, 37], window: window(32, 3).padding([16, 16]) },
        Case { shape: [2, 3, 16, 11], window: Window::new([6, 2]).stride([3, 4]).padding([3, 1]).ceil_mode(true) },
        // More channels than a block has columns.
        Case { shape: [2, 300, 3, 5], window: window(2, 2).padding([1, 1]) },
    ];
    cases.extend(
        [patched(), by_vectors(), by_chunks(), far_apart()]
            .concat()
            .into_iter()
            .map(|(shape, window)| Case { shape, window }),
    );
    cases
}

fn large() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    vec![
        Case { shape: [8, 64, 112, 112], window: window(3, 2).padding([1, 1]) },
        Case { shape: [8, 64, 112, 112], window: window(2, 2) },
        Case { shape: [3, 5, 701, 1003], window: window(5, 3).padding([2, 1]).ceil_mode(true) },
        Case { shape: [2, 64, 111, 113], window: window(5, 5) },
        Case { shape: [2, 64, 111, 113], window: window(7, 4).padding([3, 3]) },
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
fn define_forward<T: Real>(case: &Case, divisor: &Divisor, x: &[T]) -> (Vec<T>, Vec<f64>) {
    let counts = counts(case, divisor);
    let (mut y, mut size) = (vec![0.0; counts.len()], vec![0.0; counts.len()]);
    case.visit(|output, input, _| {
        let term = x[input].f64() / counts[output];
        y[output] += term;
        size[output] += term.abs();
    });
    (y.into_iter().map(T::of).collect(), size)
}

/// The same of `dx + beta * old`, given `dy`.
fn define_backward<T: Real>(case: &Case, divisor: &Divisor, dy: &[T], beta: f64, old: &[T]) -> (Vec<T>, Vec<f64>) {
    let counts = counts(case, divisor);
    let mut dx: Vec<f64> = old.iter().map(|old| if beta == 0.0 { 0.0 } else { beta * old.f64() }).collect();
    let mut size: Vec<f64> = dx.iter().map(|v| v.abs()).collect();
    case.visit(|output, input, _| {
        let term = dy[output].f64() / counts[output];
        dx[input] += term;
        size[input] += term.abs();
    });
    (dx.into_iter().map(T::of).collect(), size)
}

fn all_match_the_definition<T: Real>() -> Outcome {
    chosen().iter().try_for_each(|case| in_both_layouts(|layout| matches_the_definition::<T>(case, layout)))
}

fn matches_the_definition<T: Real>(case: &Case, layout: Layout) -> Outcome {
    let device = Device::Cpu(ferrolayer::device::Cpu::poisoning());
    let terms = case.window.positions() + 1;
    let x = normal_tensor::<T>(&device, 1, &case.shape).to_layout(layout)?;
    let dy = normal_tensor::<T>(&device, 2, &case.output_shape()).to_layout(layout)?;
    let old = normal_tensor::<T>(&device, 3, &case.shape).to_layout(layout)?;
    for divisor in divisors() {
        let what = |what: &str| format!("{what} of {case:?}, {layout:?}, {divisor:?}");
        let y = avg_pool::forward(&x, &case.window, &divisor)?;
        assert_eq!((y.shape(), y.strides()), (&case.output_shape()[..], &strides_like(&x, y.shape())[..]), "{case:?}");
        let (expected, size) = define_forward(case, &divisor, &x.to_vec()?);
        assert_close(&what("y"), &y.to_vec()?, &expected, terms, &size)?;

        // With beta = 0 what dx held must not matter: it is NaN.
        for beta in [0.0, -0.5] {
            let mut dx = if beta == 0.0 { x.empty_like()? } else { old.clone() };
            let out = Out { tensor: &mut dx, beta };
            avg_pool::backward(&dy, &case.window, &divisor, &case.shape, out)?;
            let (expected, size) = define_backward(case, &divisor, &dy.to_vec()?, beta, &old.to_vec()?);
            assert_close(&what(&format!("dx with beta {beta}")), &dx.to_vec()?, &expected, terms, &size)?;
        }
    }
    Ok(())
}

fn match_cpu<T: Real>(gpu: &Device, cases: &[Case]) -> Outcome {
    cases.iter().try_for_each(|case| in_both_layouts(|layout| matches_cpu::<T>(gpu, case, layout)))
}

fn matches_cpu<T: Real>(gpu: &Device, case: &Case, layout: Layout) -> Outcome {
    let cpu = Device::cpu();
    let terms = case.window.positions() + 1;
    let x = normal_tensor::<T>(&cpu, 1, &case.shape).to_layout(layout)?;
    let dy = normal_tensor::<T>(&cpu, 2, &case.output_shape()).to_layout(layout)?;
    let old = normal_tensor::<T>(&cpu, 3, &case.shape).to_layout(layout)?;
    let forward =
        |device: &Device, x: &Tensor<T>, divisor: &Divisor| avg_pool::forward(&x.to(device)?, &case.window, divisor);
    let backward = |device: &Device, dy: &Tensor<T>, divisor: &Divisor, beta: f64| -> ferrolayer::Result<_> {
        let mut dx = old.to(device)?;
        let out = Out { tensor: &mut dx, beta };
        avg_pool::backward(&dy.to(device)?, &case.window, divisor, &case.shape, out)?;
        Ok(dx)
    };
    for divisor in fewer(&divisors()) {
        let what = |what: &str| format!("{what} of {case:?}, {layout:?}, {divisor:?}");
        let size = sizes(&forward(&cpu, &absolute(&x)?, divisor)?);
        let (got, expected) = (forward(gpu, &x, divisor)?, forward(&cpu, &x, divisor)?);
        assert_eq!(got.strides(), strides_like(&x, got.shape()), "{case:?}");
        assert_close(&what("y"), &got.to_vec()?, &expected.to_vec()?, terms, &size)?;
        if let Some(again) = again(|| forward(gpu, &x, divisor))? {
            assert_same_bits(&what("y again"), &again, &got)?;
        }

        let shares = backward(&cpu, &absolute(&dy)?, divisor, 0.0)?;
        let size: Vec<f64> = sizes(&shares).iter().zip(sizes(&old)).map(|(size, old)| size + old).collect();
        for &beta in fewer(&[-0.5, 0.0]) {
            let (got, expected) = (backward(gpu, &dy, divisor, beta)?, backward(&cpu, &dy, divisor, beta)?);
            let what = what(&format!("dx with beta {beta}"));
            assert_close(&what, &got.to_vec()?, &expected.to_vec()?, terms, &size)?;
            if let Some(again) = again(|| backward(gpu, &dy, divisor, beta))? {
                assert_same_bits(&format!("{what}, again"), &again, &got)?;
            }
        }
    }
    Ok(())
}

/// Tensors past 2³² elements, around the places where the index passes 2³¹ and 2³²: each crop is what the CPU makes of it.
fn matches_crops(gpu: &Device, huge: &Huge) -> Outcome {
    let divisor = Divisor::default();
    let y = huge.download(avg_pool::forward(&huge.input::<f16>(gpu)?, &huge.window(), &divisor)?)?;
    for crop in huge.crops() {
        crop.assert_output("y", &y, &avg_pool::forward(&crop.input::<f16>()?, &huge.window(), &divisor)?)?;
    }
    drop(y);
    let mut dx = huge.empty_input::<f16>(gpu)?;
    let out = Out::write(&mut dx);
    avg_pool::backward(&huge.output::<f16>(gpu)?, &huge.window(), &divisor, &huge.shape, out)?;
    let dx = huge.download(dx)?;
    for crop in huge.crops() {
        let mut expected = crop.input::<f16>()?;
        let shape = expected.shape().to_vec();
        avg_pool::backward(&crop.output()?, &huge.window(), &divisor, &shape, Out::write(&mut expected))?;
        crop.assert_interior("dx", &dx, &expected)?;
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
            gradcheck_fn(&format!("x of {case:?}, {divisor:?}"), &x.to_vec()?, &dx.to_vec()?, |x| {
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

fn rejects_f64_on_a_gpu() -> Outcome {
    let gpu = Device::Gpu(ferrolayer::device::Gpu::emulated());
    let x = Tensor::<f64>::zeros(&gpu, &[1, 1, 4, 4])?;
    let expected = "avg_pool.forward: x holds f64, which the emulated GPU does not compute; expected f32, f16 or bf16";
    assert_error(avg_pool::forward(&x, &Window::new([2, 2]), &Divisor::default()), expected)
}

fn rejects_other_layouts() -> Outcome {
    let cpu = Device::cpu();
    let (window, divisor) = (Window::new([2, 2]), Divisor::default());
    let told = |strides: &str, expected: &str| {
        format!("has shape {strides}, expected {expected} order; `Tensor::to_layout` copies it")
    };
    let x = Tensor::<f32>::zeros(&cpu, &[2, 3, 4, 6])?;
    let result = avg_pool::forward(&x.clone().permute(&[0, 1, 3, 2])?, &window, &divisor);
    let expected = told("[2, 3, 6, 4] and strides [72, 24, 1, 6]", "row-major or channels-last");
    assert_error(result, &format!("avg_pool.forward: x {expected}"))?;
    let dy = avg_pool::forward(&x, &window, &divisor)?;
    let mut dx = x.to_layout(Layout::ChannelsLast)?;
    let result = avg_pool::backward(&dy, &window, &divisor, x.shape(), Out::write(&mut dx));
    let expected = told("[2, 3, 4, 6] and strides [72, 1, 18, 3]", "row-major");
    assert_error(result, &format!("avg_pool.backward: dx {expected}"))
}

/// A gradient of one pixel an image, as a dense layer gives it, has both layouts: it goes with inputs in either.
fn takes_either_layout_of_one_pixel() -> Outcome {
    let cpu = Device::cpu();
    let (window, divisor) = (Window::new([4, 5]), Divisor::default());
    let dy = normal_tensor::<f32>(&cpu, 1, &[2, 3, 1, 1]);
    let mut results = Vec::new();
    for layout in LAYOUTS {
        let mut dx = Tensor::empty_in(&cpu, &[2, 3, 4, 5], layout)?;
        avg_pool::backward(&dy, &window, &divisor, &[2, 3, 4, 5], Out::write(&mut dx))?;
        results.push(dx);
    }
    assert_same_bits("dx", &results[1], &results[0])
}

fn rejects_rows_past_31_bits() -> Outcome {
    let gpu = Device::Gpu(ferrolayer::device::Gpu::emulated());
    let expected = "expected fewer than 2^31 elements a row, in fewer than 2^31 planes, and a window smaller than that";
    let x = Tensor::<f32>::zeros(&gpu, &[0, 1, 1 << 31, 2])?;
    let result = avg_pool::forward(&x, &Window::new([2, 2]), &Divisor::default());
    assert_error(result, &format!("avg_pool.forward: x has shape [2147483648, 2], {expected}"))
}
