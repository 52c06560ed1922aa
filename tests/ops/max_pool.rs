//! Maximum pooling.

use ferrolayer::ops::Window;
use ferrolayer::ops::max_pool::{self, Indices};
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Layout, Out, Real, Tensor, bf16, f16};

pub use self::case::{Case, cases};
use self::case::{chosen, large};
use crate::huge::{self, Huge};
use crate::support::*;

mod abreast;
mod case;
mod channels_last;
mod errors;
mod infinities;
mod spans;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("max_pool::worked_example", || worked_example(&Device::cpu())),
        on_cpu("max_pool::matches_the_definition::f32", all_match_the_definition::<f32>),
        on_cpu("max_pool::matches_the_definition::f64", all_match_the_definition::<f64>),
        on_cpu("max_pool::matches_the_definition::f16", all_match_the_definition::<f16>),
        on_cpu("max_pool::matches_the_definition::bf16", all_match_the_definition::<bf16>),
        on_cpu("max_pool::matches_the_definition_on_random_windows", || {
            for_random(300, cases(3), |case| in_both_layouts(|layout| matches_the_definition::<f32>(&case, layout)))
        }),
        on_cpu("max_pool::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("max_pool::edge_values", || edge_values(&Device::cpu())),
        on_cpu("max_pool::edge_window_outside_the_image", || window_outside_the_image(&Device::cpu())),
        on_cpu("max_pool::edge_index_types", || index_types(&Device::cpu())),
        on_cpu("max_pool::edge_empty_batch", || empty_batch(&Device::cpu())),
    ];
    tests.extend(abreast::tests());
    tests.extend(spans::tests());
    tests.extend(channels_last::tests());
    tests.extend(infinities::tests());
    tests.extend(errors::tests());
    tests.extend(on_each_gpu("max_pool::worked_example", worked_example));
    tests.extend(on_each_gpu("max_pool::matches_cpu::f32", |gpu| match_cpu::<f32>(gpu, &chosen())));
    tests.extend(on_each_gpu("max_pool::matches_cpu::f16", |gpu| match_cpu::<f16>(gpu, &chosen())));
    tests.extend(on_each_gpu("max_pool::matches_cpu::bf16", |gpu| match_cpu::<bf16>(gpu, &chosen())));
    tests.extend(on_each_gpu("max_pool::matches_cpu_on_large_windows", |gpu| {
        let cases: Vec<_> = grouped().into_iter().map(|(shape, window)| Case::new(shape, window)).collect();
        match_cpu::<f32>(gpu, &cases)?;
        match_cpu::<f16>(gpu, &cases)?;
        match_cpu::<bf16>(gpu, &cases)
    }));
    tests.extend(on_each_gpu("max_pool::matches_cpu_on_random_windows", |gpu| {
        for_random(20, cases(3), |case| match_cpu::<f32>(gpu, &[case]))
    }));
    tests.extend(on_each_gpu("max_pool::matches_cpu_on_many_large_windows", |gpu| {
        let (shape, window) = grouped_and_many()[0];
        matches_cpu::<f32>(gpu, &Case::new(shape, window), Layout::RowMajor)
    }));
    tests.push(on_real_gpu("max_pool::matches_cpu_on_all_many_large_windows", |gpu| {
        grouped_and_many().into_iter().try_for_each(|(shape, window)| {
            matches_cpu::<f32>(gpu, &Case::new(shape, window), Layout::RowMajor)?;
            matches_cpu::<bf16>(gpu, &Case::new(shape, window), Layout::RowMajor)
        })
    }));
    tests.extend(on_each_gpu("max_pool::edge_values", edge_values));
    tests.extend(on_each_gpu("max_pool::edge_window_outside_the_image", window_outside_the_image));
    tests.extend(on_each_gpu("max_pool::edge_index_types", index_types));
    tests.extend(on_each_gpu("max_pool::edge_empty_batch", empty_batch));
    tests.push(on_real_gpu("max_pool::matches_cpu_at_full_size", |gpu| {
        match_cpu::<f32>(gpu, &large())?;
        match_cpu::<bf16>(gpu, &large())
    }));
    tests.push(on_real_gpu("max_pool::matches_cpu_on_many_random_windows", |gpu| {
        for_random(200, cases(3), |case| {
            match_cpu::<f32>(gpu, std::slice::from_ref(&case))?;
            match_cpu::<f16>(gpu, &[case])
        })
    }));
    tests.extend(on_each_gpu("max_pool::matches_crops", |gpu| {
        huge::SMALL.iter().try_for_each(|small| matches_crops(gpu, small))
    }));
    tests.extend(
        huge::LARGEST
            .map(|(name, huge)| on_real_gpu(&format!("max_pool::huge_{name}"), move |gpu| matches_crops(gpu, &huge))),
    );
    tests
}

/// Both orders of images in memory.
pub const LAYOUTS: [Layout; 2] = [Layout::RowMajor, Layout::ChannelsLast];

pub fn in_both_layouts(test: impl FnMut(Layout) -> Outcome) -> Outcome {
    LAYOUTS.into_iter().try_for_each(test)
}

/// By SPEC.md's words: NaN wins, then the greatest; of equals the first in row-major order; padding never.
fn define<T: Real>(case: &Case, x: &[T]) -> (Vec<f64>, Vec<u32>, Vec<u32>) {
    let mut best: Vec<Option<(f64, u32, u32)>> = vec![None; case.output_shape().iter().product()];
    let plane = case.shape[2] * case.shape[3];
    case.visit(|output, input, position| {
        let candidate = (x[input].f64(), position as u32, (input % plane) as u32);
        match best[output] {
            Some((value, ..)) if value.is_nan() || candidate.0 <= value => {}
            _ => best[output] = Some(candidate),
        }
    });
    let best: Vec<_> = best.into_iter().map(|best| best.expect("a position in the image")).collect();
    (best.iter().map(|b| b.0).collect(), best.iter().map(|b| b.1).collect(), best.iter().map(|b| b.2).collect())
}

/// Integers from a small range, so that windows hold equals, and now and then NaN and infinities.
pub fn awkward<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let special = |v: f64| match v as i32 {
        4 => f64::NAN,
        5 => f64::INFINITY,
        -4 => f64::NEG_INFINITY,
        0 if v < 0.0 => -0.0,
        whole => whole.into(),
    };
    normal::<f64>(seed, len).into_iter().map(|v| T::of(special(2.0 * v))).collect()
}

pub fn positions(indices: &Indices) -> ferrolayer::Result<Vec<u32>> {
    Ok(match indices {
        Indices::U8(indices) => indices.to_vec()?.into_iter().map(u32::from).collect(),
        Indices::U16(indices) => indices.to_vec()?.into_iter().map(u32::from).collect(),
    })
}

pub fn strides_of(indices: &Indices) -> &[usize] {
    match indices {
        Indices::U8(indices) => indices.strides(),
        Indices::U16(indices) => indices.strides(),
    }
}

/// The strides that a tensor of this shape has in `x`'s layout.
pub fn strides_like<T: Real>(x: &Tensor<T>, shape: &[usize]) -> Vec<usize> {
    x.layout().and_then(|layout| layout.strides(shape)).expect("a layout of images")
}

/// Whether the numbers are the same, signs of zeros included, and NaN where NaN is.
fn same_numbers<T: Real>(got: &Tensor<T>, expected: &[f64]) -> ferrolayer::Result<bool> {
    let same = |(got, expected): (T, &f64)| {
        got.f64().to_bits() == expected.to_bits() || got.f64().is_nan() && expected.is_nan()
    };
    Ok(got.to_vec()?.into_iter().zip(expected).all(same))
}

/// Whether windows have a position in the image all: dilation with padding can leave one without.
fn defined(case: &Case) -> bool {
    let mut seen = vec![false; case.output_shape().iter().product()];
    case.visit(|output, _, _| seen[output] = true);
    seen.iter().all(|seen| *seen)
}

fn all_match_the_definition<T: Real>() -> Outcome {
    chosen().iter().try_for_each(|case| in_both_layouts(|layout| matches_the_definition::<T>(case, layout)))
}

fn matches_the_definition<T: Real>(case: &Case, layout: Layout) -> Outcome {
    if !defined(case) {
        return Ok(());
    }
    let device = Device::Cpu(ferrolayer::device::Cpu::poisoning());
    let tensor = |shape: &[usize], values: &[T]| Tensor::from_slice(&device, shape, values)?.to_layout(layout);
    let (len, outputs) = (case.shape.iter().product(), case.output_shape().iter().product());
    for values in [awkward::<T>(1, len), normal(2, len)] {
        let x = tensor(&case.shape, &values)?;
        let (y, index, flat) = define(case, &values);
        let got = max_pool::forward(&x, &case.window)?;
        assert_eq!(got.y.shape(), case.output_shape(), "{case:?}");
        let strides = strides_like(&x, &case.output_shape());
        assert_eq!((got.y.strides(), strides_of(&got.indices)), (&strides[..], &strides[..]), "{case:?}");
        assert!(same_numbers(&got.y, &y)?, "y of {case:?}, {layout:?}");
        assert_eq!(positions(&got.indices)?, index, "indices of {case:?}, {layout:?}");
        let got_flat = max_pool::flat_indices(&got.indices, &case.window, &case.shape)?;
        assert_eq!((got_flat.to_vec()?, got_flat.strides()), (flat.clone(), got.y.strides()), "flat {case:?}");
        assert_same_bits("inference", &max_pool::forward_inference(&x, &case.window)?, &got.y)?;

        // dx = sum of dy over the outputs whose maximum was there, in f64.
        let (dy, old) = (normal::<T>(3, outputs), normal::<T>(4, len));
        let (mut dx, mut size) = (vec![0.0f64; len], vec![0.0f64; len]);
        let plane = case.shape[2] * case.shape[3];
        let output_plane = case.output_shape()[2] * case.output_shape()[3];
        for (output, flat) in flat.iter().enumerate() {
            let input = output / output_plane * plane + *flat as usize;
            dx[input] += dy[output].f64();
            size[input] += dy[output].f64().abs();
        }
        let terms = case.window.positions() + 1;
        let dy = tensor(&case.output_shape(), &dy)?;
        // What dx held must not matter: it is NaN.
        let mut got_dx = x.empty_like()?;
        max_pool::backward(&dy, &got.indices, &case.window, &case.shape, Out::write(&mut got_dx))?;
        let expected: Vec<T> = dx.iter().map(|v| T::of(*v)).collect();
        assert_close(&format!("dx of {case:?}, {layout:?}"), &got_dx.to_vec()?, &expected, terms, &size)?;

        let mut added = tensor(&case.shape, &old)?;
        let out = Out { tensor: &mut added, beta: -0.5 };
        max_pool::backward(&dy, &got.indices, &case.window, &case.shape, out)?;
        let expected: Vec<T> = dx.iter().zip(&old).map(|(dx, old)| T::of(dx - 0.5 * old.f64())).collect();
        let size: Vec<f64> = size.iter().zip(&old).map(|(size, old)| size + old.f64().abs()).collect();
        assert_close(&format!("dx added of {case:?}, {layout:?}"), &added.to_vec()?, &expected, terms, &size)?;
    }
    Ok(())
}

fn match_cpu<T: Real>(gpu: &Device, cases: &[Case]) -> Outcome {
    cases.iter().try_for_each(|case| in_both_layouts(|layout| matches_cpu::<T>(gpu, case, layout)))
}

fn matches_cpu<T: Real>(gpu: &Device, case: &Case, layout: Layout) -> Outcome {
    let cpu = Device::cpu();
    let len: usize = case.shape.iter().product();
    let old = normal_tensor::<T>(&cpu, 3, &case.shape).to_layout(layout)?;
    for values in fewer(&[awkward::<T>(1, len), normal(2, len)]) {
        let what = |what: &str| format!("{what} of {case:?}, {layout:?}");
        let x = Tensor::from_slice(&cpu, &case.shape, values)?.to_layout(layout)?;
        let expected = max_pool::forward(&x, &case.window)?;
        let got = max_pool::forward(&x.to(gpu)?, &case.window)?;
        let strides = strides_like(&x, &case.output_shape());
        assert_eq!((got.y.strides(), strides_of(&got.indices)), (&strides[..], &strides[..]), "{case:?}");
        assert_same_values(&what("y"), &got.y, &expected.y)?;
        assert_same_values(&what("inference"), &max_pool::forward_inference(&x.to(gpu)?, &case.window)?, &expected.y)?;
        assert!(positions(&got.indices)? == positions(&expected.indices)?, "indices of {case:?}, {layout:?}");
        let flat = |indices| max_pool::flat_indices(indices, &case.window, &case.shape);
        assert_same_bits(&what("flat indices"), &flat(&got.indices)?, &flat(&expected.indices)?)?;

        let dy = normal_tensor::<T>(&cpu, 4, &case.output_shape()).to_layout(layout)?;
        let backward = |device: &Device, indices: &Indices, dy: &Tensor<T>, beta: f64| -> ferrolayer::Result<_> {
            let mut dx = old.to(device)?;
            let out = Out { tensor: &mut dx, beta };
            max_pool::backward(&dy.to(device)?, indices, &case.window, &case.shape, out)?;
            Ok(dx)
        };
        let routed = backward(&cpu, &expected.indices, &absolute(&dy)?, 0.0)?;
        let magnitude: Vec<f64> = sizes(&routed).iter().zip(sizes(&old)).map(|(sum, old)| sum + old).collect();
        for &beta in fewer(&[-0.5, 0.0]) {
            let dx = backward(gpu, &got.indices, &dy, beta)?;
            let expected = backward(&cpu, &expected.indices, &dy, beta)?.to_vec()?;
            let what = what(&format!("dx with beta {beta}"));
            assert_close(&what, &dx.to_vec()?, &expected, case.window.positions() + 1, &magnitude)?;
            if let Some(again) = again(|| backward(gpu, &got.indices, &dy, beta))? {
                assert_same_bits(&format!("{what}, again"), &again, &dx)?;
            }
        }
    }
    Ok(())
}

/// Tensors past 2³² elements, around the places where the index passes 2³¹ and 2³²: each crop is what the CPU makes of it.
fn matches_crops(gpu: &Device, huge: &Huge) -> Outcome {
    let (x, dy) = (huge.input::<f16>(gpu)?, huge.output::<f16>(gpu)?);
    let max_pool::Output { y, indices } = max_pool::forward(&x, &huge.window())?;
    drop(x);
    let y = huge.download(y)?;
    for crop in huge.crops() {
        let expected = max_pool::forward(&crop.input::<f16>()?, &huge.window())?;
        assert_same_bits(&format!("y at {crop:?}"), &crop.of_output(&y)?, &expected.y)?;
    }
    drop(y);
    let mut dx = huge.empty_input::<f16>(gpu)?;
    max_pool::backward(&dy, &indices, &huge.window(), &huge.shape, Out::write(&mut dx))?;
    drop((dy, indices));
    let dx = huge.download(dx)?;
    for crop in huge.crops() {
        let input = crop.input::<f16>()?;
        let indices = max_pool::forward(&input, &huge.window())?.indices;
        let mut expected = input.empty_like()?;
        max_pool::backward(&crop.output()?, &indices, &huge.window(), input.shape(), Out::write(&mut expected))?;
        crop.assert_interior("dx", &dx, &expected)?;
    }
    Ok(())
}

/// The elements' magnitudes, in the tensor's order in memory.
pub fn absolute<T: Real>(x: &Tensor<T>) -> ferrolayer::Result<Tensor<T>> {
    let mut y = x.empty_like()?;
    y.copy_from_slice(&x.to_vec()?.into_iter().map(|v| T::of(v.f64().abs())).collect::<Vec<_>>())?;
    Ok(y)
}

/// By hand: overlapping windows that share a maximum, windows at the padding, an input row that wins nowhere.
fn worked_example(device: &Device) -> Outcome {
    let x = [
        1.0f32, 5.0, 2.0, 0.0, //
        3.0, 4.0, 8.0, 8.0, //
        -1.0, -2.0, -3.0, -4.0, //
        9.0, 9.0, 9.0, 9.0,
    ];
    let x = Tensor::from_slice(device, &[1, 1, 4, 4], &x)?;
    let window = Window::new([2, 3]).stride([2, 1]).padding([1, 1]);
    let max_pool::Output { y, indices } = max_pool::forward(&x, &window)?;
    assert_eq!(y.shape(), [1, 1, 3, 4]);
    assert_eq!(y.to_vec()?, [5.0, 5.0, 5.0, 2.0, 4.0, 8.0, 8.0, 8.0, 9.0, 9.0, 9.0, 9.0]);
    assert_eq!(positions(&indices)?, [5, 4, 3, 3, 2, 2, 1, 0, 1, 0, 0, 0]);
    let flat = max_pool::flat_indices(&indices, &window, &[1, 1, 4, 4])?;
    assert_eq!(flat.to_vec()?, [1, 1, 1, 2, 5, 6, 6, 6, 12, 12, 13, 14]);
    let dy = Tensor::from_vec(device, &[1, 1, 3, 4], (0..12).map(|i| (1u32 << i) as f32).collect())?;
    let mut dx = x.empty_like()?;
    max_pool::backward(&dy, &indices, &window, &[1, 1, 4, 4], Out::write(&mut dx))?;
    let expected = [
        0.0, 7.0, 8.0, 0.0, //
        0.0, 16.0, 224.0, 0.0, //
        0.0, 0.0, 0.0, 0.0, //
        768.0, 1024.0, 2048.0, 0.0,
    ];
    assert_eq!(dx.to_vec()?, expected);
    Ok(())
}

/// NaN wins and the first of several does, zeros of either sign are equal, minus infinity is a value.
fn edge_values(device: &Device) -> Outcome {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let other_nan = f32::from_bits(0x7FC0_1234);
    let windows = [
        ([1.0, nan, inf, 2.0], nan, 1),
        ([nan, 7.0, other_nan, 8.0], nan, 0),
        ([7.0, other_nan, nan, -inf], other_nan, 1),
        ([-inf; 4], -inf, 0),
        ([-inf, -inf, -inf, f32::MIN], f32::MIN, 3),
        ([-0.0, 0.0, 0.0, -0.0], -0.0, 0),
        ([0.0, -0.0, -0.0, 0.0], 0.0, 0),
        ([-1.0, 0.0, -0.0, 0.0], 0.0, 1),
        ([inf, 1.0, inf, inf], inf, 0),
    ];
    let values = windows.iter().flat_map(|(window, ..)| *window).collect();
    let x = Tensor::from_vec(device, &[1, windows.len(), 2, 2], values)?;
    // Size 2 has a kernel of its own; the same elements as one row do not, nor with two bytes an index.
    for (shape, window) in [
        ([1, windows.len(), 2, 2], Window::new([2, 2])),
        ([1, windows.len(), 1, 4], Window::new([1, 4])),
        ([1, windows.len(), 1, 4], Window::new([1, 5]).padding([0, 1]).stride([1, 4]).ceil_mode(true)),
        ([1, windows.len(), 1, 4], Window::new([300, 4]).padding([150, 0]).stride([300, 4])),
    ] {
        let x = x.clone().reshape(&shape)?;
        let got = max_pool::forward(&x, &window)?;
        let (y, flat) = (got.y.to_vec()?, max_pool::flat_indices(&got.indices, &window, &shape)?.to_vec()?);
        let each = y.len() / windows.len();
        for (number, (elements, maximum, index)) in windows.iter().enumerate() {
            let (y, flat) = (y[number * each], flat[number * each]);
            assert_eq!((y.to_bits(), flat), (maximum.to_bits(), *index), "{elements:?} with {window:?}");
        }
    }
    // The same elements last of planes that are a window, after what is smaller or, of minus infinity, equal.
    let whole = |(elements, ..): &([f32; 4], f32, u32)| [[-inf; 16].as_slice(), elements].concat();
    let x = Tensor::from_vec(device, &[1, windows.len(), 4, 5], windows.iter().flat_map(whole).collect())?;
    let window = Window::new([4, 5]);
    let got = max_pool::forward(&x, &window)?;
    let flat = max_pool::flat_indices(&got.indices, &window, x.shape())?.to_vec()?;
    for ((elements, maximum, index), (y, flat)) in windows.iter().zip(got.y.to_vec()?.into_iter().zip(flat)) {
        let index = if *maximum == -inf { 0 } else { 16 + index };
        assert_eq!((y.to_bits(), flat), (maximum.to_bits(), index), "{elements:?} last of a plane");
    }
    // Padding never wins, not over what is less than zero either.
    let x = Tensor::full(device, &[1, 1, 3, 3], -7.0f32)?;
    for window in [Window::new([3, 3]), Window::new([2, 2]), Window::new([4, 4])] {
        let y = max_pool::forward(&x, &window.stride([1, 1]).padding([1, 1]))?.y;
        assert!(y.to_vec()?.iter().all(|y| *y == -7.0), "{window:?}: {y:?}");
    }
    Ok(())
}

/// Dilation by 3 steps over an image of two rows: nothing is the maximum, and no input gets its gradient.
fn window_outside_the_image(device: &Device) -> Outcome {
    let window = Window::new([2, 1]).padding([1, 0]).dilation([3, 1]).stride([1, 1]);
    let x = Tensor::from_slice(device, &[1, 1, 2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let got = max_pool::forward(&x, &window)?;
    assert_eq!(got.y.to_vec()?, [f32::NEG_INFINITY; 3]);
    // As PyTorch has it: row 2, which is the first that is not negative, of rows 3 long.
    let flat = max_pool::flat_indices(&got.indices, &window, &[1, 1, 2, 3])?;
    assert_eq!(flat.to_vec()?, [6, 7, 8]);
    let mut dx = x.empty_like()?;
    let dy = Tensor::full(device, &[1, 1, 1, 3], 1.0)?;
    max_pool::backward(&dy, &got.indices, &window, &[1, 1, 2, 3], Out::write(&mut dx))?;
    assert_eq!(dx.to_vec()?, [0.0; 6]);
    Ok(())
}

/// One byte names 256 positions, the last of which is 255; two bytes name 65536.
fn index_types(device: &Device) -> Outcome {
    for (size, last) in [([16, 16], 255), ([257, 1], 256), ([256, 256], 65_535)] {
        let len = size[0] * size[1];
        let x = Tensor::from_vec(device, &[1, 1, size[0], size[1]], (0..len).map(|v| v as f32).collect())?;
        let got = max_pool::forward(&x, &Window::new(size))?;
        assert_eq!(matches!(got.indices, Indices::U8(_)), len <= 256, "{size:?}");
        assert_eq!(positions(&got.indices)?, [last], "{size:?}");
        assert_eq!(got.indices.shape(), [1, 1, 1, 1]);
        assert_eq!(got.indices.device(), device);
        // The emulated grid would take minutes for 65536 threads.
        if len <= 257 {
            let mut dx = x.empty_like()?;
            max_pool::backward(&got.y, &got.indices, &Window::new(size), x.shape(), Out::write(&mut dx))?;
            let mut expected = vec![0.0; len];
            expected[len - 1] = last as f32;
            assert_eq!(dx.to_vec()?, expected, "{size:?}");
        }
    }
    Ok(())
}

fn empty_batch(device: &Device) -> Outcome {
    let x = Tensor::<f32>::zeros(device, &[0, 3, 8, 8])?;
    let window = Window::new([2, 2]);
    let got = max_pool::forward(&x, &window)?;
    assert_eq!((got.y.shape(), got.indices.shape()), (&[0, 3, 4, 4][..], &[0, 3, 4, 4][..]));
    let mut dx = x.empty_like()?;
    max_pool::backward(&got.y, &got.indices, &window, &[0, 3, 8, 8], Out::write(&mut dx))?;
    assert_eq!(max_pool::flat_indices(&got.indices, &window, &[0, 3, 8, 8])?.len(), 0);
    assert_eq!(max_pool::forward_inference(&x, &window)?.shape(), [0, 3, 4, 4]);
    device.synchronize()?;
    Ok(())
}

fn gradient_matches_finite_difference() -> Outcome {
    let cpu = Device::cpu();
    for case in chosen().into_iter().filter(|case| case.shape.iter().product::<usize>() < 1000) {
        // Fewer than the prime 1009, all elements lie 0.01 apart or further: no step changes a maximum.
        let len: usize = case.shape.iter().product();
        let at: Vec<f64> = (0..len).map(|i| (i * 619 % 1009) as f64 * 0.01).collect();
        let weights: Tensor<f64> = normal_tensor(&cpu, 5, &case.output_shape());
        let x = Tensor::from_slice(&cpu, &case.shape, &at)?;
        let indices = max_pool::forward(&x, &case.window)?.indices;
        let mut dx = x.empty_like()?;
        max_pool::backward(&weights, &indices, &case.window, &case.shape, Out::write(&mut dx))?;
        let weights = weights.to_vec()?;
        gradcheck_fn(&format!("x of {case:?}"), &at, &dx.to_vec()?, |x| {
            let x = Tensor::from_slice(&cpu, &case.shape, x).unwrap();
            let y = max_pool::forward_inference(&x, &case.window).unwrap().to_vec().unwrap();
            y.iter().zip(&weights).map(|(y, weight)| y * weight).sum()
        })?;
    }
    Ok(())
}
