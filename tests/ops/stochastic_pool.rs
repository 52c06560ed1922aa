//! Stochastic pooling.

use ferrolayer::ops::Window;
use ferrolayer::ops::stochastic_pool::{self, Indices, Output, Random};
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{DType, Device, Layout, Out, Real, Tensor, bf16, f16};
use kernels::philox;

use crate::huge::{self, Huge};
use crate::max_pool::{Case, awkward, cases, in_both_layouts, positions, strides_like, strides_of};
use crate::support::*;

mod draws;
mod errors;
mod large;
mod sums_of_rows;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("stochastic_pool::worked_example", || worked_example(&Device::cpu())),
        on_cpu("stochastic_pool::matches_the_definition::f32", all_match_the_definition::<f32>),
        on_cpu("stochastic_pool::matches_the_definition::f64", all_match_the_definition::<f64>),
        on_cpu("stochastic_pool::matches_the_definition::f16", all_match_the_definition::<f16>),
        on_cpu("stochastic_pool::matches_the_definition::bf16", all_match_the_definition::<bf16>),
        on_cpu("stochastic_pool::matches_the_definition_on_random_windows", || {
            for_random(200, cases(1), |case| in_both_layouts(|layout| matches_the_definition::<f32>(&case, layout)))
        }),
        on_cpu("stochastic_pool::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("stochastic_pool::edge_values", || edge_values(&Device::cpu())),
        on_cpu("stochastic_pool::edge_windows_of_zeros", || windows_of_zeros(&Device::cpu())),
        on_cpu("stochastic_pool::edge_index_types", || index_types(&Device::cpu())),
        on_cpu("stochastic_pool::edge_empty_batch", || empty_batch(&Device::cpu())),
    ];
    tests.extend(draws::tests());
    tests.extend(errors::tests());
    tests.extend(large::tests());
    tests.extend(sums_of_rows::tests());
    tests.extend(on_each_gpu("stochastic_pool::worked_example", worked_example));
    tests.extend(on_each_gpu("stochastic_pool::matches_cpu::f32", |gpu| match_cpu::<f32>(gpu, &chosen())));
    tests.extend(on_each_gpu("stochastic_pool::matches_cpu::f16", |gpu| match_cpu::<f16>(gpu, &chosen())));
    tests.extend(on_each_gpu("stochastic_pool::matches_cpu::bf16", |gpu| match_cpu::<bf16>(gpu, &chosen())));
    tests.extend(on_each_gpu("stochastic_pool::matches_cpu_on_large_windows", |gpu| {
        let cases: Vec<_> = grouped().into_iter().map(|(shape, window)| Case { shape, window }).collect();
        match_cpu::<f32>(gpu, &cases)?;
        match_cpu::<f16>(gpu, &cases)?;
        match_cpu::<bf16>(gpu, &cases)
    }));
    tests.extend(on_each_gpu("stochastic_pool::matches_cpu_on_random_windows", |gpu| {
        for_random(10, cases(1), |case| match_cpu::<f32>(gpu, &[case]))
    }));
    tests.extend(on_each_gpu("stochastic_pool::edge_values", edge_values));
    tests.extend(on_each_gpu("stochastic_pool::edge_scales::f32", scales::<f32>));
    tests.extend(on_each_gpu("stochastic_pool::edge_scales::bf16", scales::<bf16>));
    tests.extend(on_each_gpu("stochastic_pool::edge_windows_of_zeros", windows_of_zeros));
    tests.extend(on_each_gpu("stochastic_pool::edge_index_types", index_types));
    tests.extend(on_each_gpu("stochastic_pool::edge_empty_batch", empty_batch));
    tests.push(on_real_gpu("stochastic_pool::matches_cpu_at_full_size", |gpu| {
        match_cpu::<f32>(gpu, &large())?;
        match_cpu::<bf16>(gpu, &large())
    }));
    tests.push(on_real_gpu("stochastic_pool::matches_cpu_on_many_random_windows", |gpu| {
        for_random(100, cases(1), |case| {
            match_cpu::<f32>(gpu, std::slice::from_ref(&case))?;
            match_cpu::<f16>(gpu, &[case])
        })
    }));
    tests.extend(on_each_gpu("stochastic_pool::matches_crops", |gpu| {
        huge::SMALL.iter().try_for_each(|small| matches_crops(gpu, small))
    }));
    tests.extend(huge::LARGEST.map(|(name, huge)| {
        on_real_gpu(&format!("stochastic_pool::huge_{name}"), move |gpu| matches_crops(gpu, &huge))
    }));
    tests
}

fn chosen() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    let mut cases = vec![
        Case { shape: [2, 3, 12, 12], window: window(2, 2) },
        Case { shape: [1, 2, 13, 15], window: window(3, 2).padding([1, 1]) },
        Case { shape: [1, 1, 9, 9], window: window(3, 1).padding([1, 1]) },
        Case { shape: [1, 2, 8, 6], window: window(3, 2).padding([1, 1]).ceil_mode(true) },
        Case { shape: [1, 1, 1, 1], window: window(1, 1) },
        Case { shape: [2, 1, 5, 300], window: window(2, 1) },
        Case { shape: [17, 9, 4, 3], window: window(2, 1) },
        Case { shape: [1, 2, 11, 17], window: Window::new([2, 1]).stride([3, 4]) },
        Case { shape: [2, 2, 19, 20], window: Window::new([19, 20]) },
        Case { shape: [1, 2, 66, 70], window: Window::new([64, 64]).stride([3, 5]) },
        Case { shape: [2, 300, 3, 5], window: window(2, 2).padding([1, 1]) },
    ];
    // Four outputs a thread: of a row, in a square with and without a row or a column more, of a column.
    cases.extend([
        Case { shape: [2, 3, 12, 16], window: window(2, 2) },
        Case { shape: [2, 2, 10, 12], window: window(2, 2) },
        Case { shape: [2, 2, 11, 20], window: window(3, 2) },
        Case { shape: [2, 2, 13, 12], window: window(3, 2) },
        Case { shape: [1, 3, 13, 15], window: window(2, 2) },
        Case { shape: [2, 2, 11, 14], window: window(3, 2) },
    ]);
    // By the sums of rows.
    cases.extend([
        Case { shape: [2, 3, 26, 31], window: window(8, 3).padding([3, 4]) },
        Case { shape: [1, 2, 24, 30], window: Window::new([11, 10]).stride([3, 3]).padding([5, 5]) },
        Case { shape: [2, 2, 14, 15], window: Window::new([6, 7]).stride([3, 3]) },
    ]);
    cases.extend(sums_of_rows::chosen());
    // A thread a plane, in more than a block.
    cases.push(Case { shape: [65, 2, 7, 7], window: Window::new([7, 7]) });
    let others = [patched(), by_vectors(), by_chunks()].concat();
    cases.extend(others.into_iter().map(|(shape, window)| Case { shape, window }));
    cases
}

fn large() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    vec![
        Case { shape: [8, 64, 112, 112], window: window(3, 2).padding([1, 1]) },
        Case { shape: [8, 64, 112, 112], window: window(2, 2) },
        Case { shape: [8, 64, 111, 113], window: window(9, 3).padding([4, 4]) },
        Case { shape: [3, 5, 701, 1003], window: window(5, 3).padding([2, 1]).ceil_mode(true) },
        Case { shape: [70_001, 3, 2, 2], window: window(2, 1) },
        Case { shape: [1, 2, 700, 500], window: Window::new([100, 50]).stride([13, 17]).padding([50, 25]) },
    ]
}

/// `a` by SPEC.md: the larger of `x` and 0, with the elements that have all the probability alone where there are such.
fn weights(window: &[f64], largest: f64) -> Vec<f64> {
    let only = |is: &dyn Fn(f64) -> bool| window.iter().map(|x| f64::from(u8::from(is(*x)))).collect::<Vec<_>>();
    let sum: f64 = window.iter().map(|x| x.max(0.0)).sum();
    match window {
        _ if window.iter().any(|x| x.is_nan()) => only(&|x| x.is_nan()),
        _ if window.contains(&f64::INFINITY) => only(&|x| x == f64::INFINITY),
        _ if sum > largest => window.iter().map(|x| x.max(0.0) / (1u64 << 32) as f64).collect(),
        _ => window.iter().map(|x| x.max(0.0)).collect(),
    }
}

/// Which of the elements, each with its position, is drawn with these random numbers: where the sum of weights first passes a
/// part of the whole. Sums and product are those of `T`'s arithmetic: two numbers with 24 bits add and multiply right in 53.
///
/// One sum goes on from element to element. That of a window of more than 9 positions in up to 4096 rows goes on from row to row,
/// and to it is added one that goes on from element to element of a row.
fn draw<T: Real>(window: &Window, elements: &[(usize, f64)], [first, second, ..]: [u32; 4]) -> Option<usize> {
    let double = T::DTYPE == DType::F64;
    let rounded = |v: f64| if double { v } else { f64::from(v as f32) };
    let largest = if double { f64::MAX } else { f32::MAX.into() };
    let uniform = match double {
        true => ((u64::from(first) << 32 | u64::from(second)) >> 11) as f64 * 2f64.powi(-53),
        false => f64::from(first >> 8) * 2f64.powi(-24),
    };
    let weights = weights(&elements.iter().map(|(_, element)| *element).collect::<Vec<_>>(), largest);
    let by_rows = window.positions() > 9 && window.size[0] <= 4096;
    let (mut rows, mut so_far, mut row) = (0.0, 0.0, None);
    let sums = elements.iter().zip(&weights).map(|((position, _), weight)| {
        if by_rows && row.replace(position / window.size[1]) != Some(position / window.size[1]) {
            (rows, so_far) = (rounded(rows + so_far), 0.0);
        }
        so_far = rounded(so_far + weight);
        rounded(rows + so_far)
    });
    let sums: Vec<f64> = sums.collect();
    let until = rounded(uniform * sums.last()?);
    let passes = weights.iter().zip(&sums).position(|(weight, sum)| *weight > 0.0 && *sum > until);
    passes.or_else(|| weights.iter().rposition(|weight| *weight > 0.0))
}

/// The elements of each output's window, with their flat index in the input and their position.
fn windows(case: &Case) -> Vec<Vec<(usize, usize)>> {
    let mut windows = vec![Vec::new(); case.output_shape().iter().product()];
    case.visit(|output, input, position| windows[output].push((input, position)));
    windows
}

fn all_match_the_definition<T: Real>() -> Outcome {
    chosen().iter().try_for_each(|case| in_both_layouts(|layout| matches_the_definition::<T>(case, layout)))
}

fn matches_the_definition<T: Real>(case: &Case, layout: Layout) -> Outcome {
    const SEED: u64 = 0x1234_5678_9ABC_DEF0;
    const OFFSET: u64 = 0xFFFF_FFFF;
    let device = Device::Cpu(ferrolayer::device::Cpu::poisoning());
    let tensor = |shape: &[usize], values: &[T]| Tensor::from_slice(&device, shape, values)?.to_layout(layout);
    let (len, windows) = (case.shape.iter().product(), windows(case));
    for values in [awkward::<T>(1, len), normal(2, len)] {
        let x = tensor(&case.shape, &values)?;
        let mut random = Random::at(&device, SEED, OFFSET)?;
        let Output { y, indices } = stochastic_pool::forward(&x, &case.window, &mut random)?;
        let strides = strides_like(&x, &case.output_shape());
        assert_eq!((y.strides(), strides_of(&indices)), (&strides[..], &strides[..]), "{case:?}");
        let mean = stochastic_pool::forward_inference(&x, &case.window)?;
        assert_eq!(mean.strides(), strides, "{case:?}");
        let (dy, old) = (normal::<T>(3, windows.len()), normal::<T>(4, len));
        let mut dx: Vec<f64> = old.iter().map(|old| -0.5 * old.f64()).collect();
        let mut size: Vec<f64> = dx.iter().map(|v| v.abs()).collect();
        let (mut drawn, mut drawn_elements, mut means, mut magnitudes) = (vec![], vec![], vec![], vec![]);
        for (output, window) in windows.iter().enumerate() {
            let elements: Vec<_> = window.iter().map(|(input, position)| (*position, values[*input].f64())).collect();
            match draw::<T>(&case.window, &elements, philox::numbers(SEED, OFFSET, output as u64)) {
                None => {
                    drawn.push(case.window.positions() as u32);
                    drawn_elements.push(T::of(0.0));
                }
                Some(i) => {
                    let (input, position) = window[i];
                    drawn.push(position as u32);
                    drawn_elements.push(values[input]);
                    dx[input] += dy[output].f64();
                    size[input] += dy[output].f64().abs();
                }
            }
            let inside: Vec<f64> = elements.iter().map(|(_, element)| *element).collect();
            let weights = weights(&inside, f64::MAX);
            let sum: f64 = weights.iter().sum();
            let terms = inside.iter().zip(&weights).filter(|(_, weight)| **weight > 0.0);
            let expected: f64 = terms.map(|(a, weight)| weight / sum * a).sum();
            means.push(T::of(expected));
            // The sum of the weights is off by as much again.
            magnitudes.push(2.0 * expected);
        }
        let what = |what: &str| format!("{what} of {case:?}, {layout:?}");
        assert_eq!(positions(&indices)?, drawn, "{}", what("positions"));
        let same =
            |(got, expected): (&T, &T)| got.f64() == expected.f64() || got.f64().is_nan() && expected.f64().is_nan();
        assert!(y.to_vec()?.iter().zip(&drawn_elements).all(same), "{}", what("y"));
        assert_eq!(random.offset()?, OFFSET + 1);
        let terms = case.window.positions() + 1;
        assert_close(&what("mean"), &mean.to_vec()?, &means, terms, &magnitudes)?;

        let mut got = tensor(&case.shape, &old)?;
        let out = Out { tensor: &mut got, beta: -0.5 };
        stochastic_pool::backward(&tensor(&case.output_shape(), &dy)?, &indices, &case.window, &case.shape, out)?;
        let expected: Vec<T> = dx.into_iter().map(T::of).collect();
        assert_close(&what("dx"), &got.to_vec()?, &expected, terms, &size)?;
    }
    Ok(())
}

fn match_cpu<T: Real>(gpu: &Device, cases: &[Case]) -> Outcome {
    cases.iter().try_for_each(|case| in_both_layouts(|layout| matches_cpu::<T>(gpu, case, layout)))
}

/// The same positions and elements to the bit, in each of two passes.
fn matches_cpu<T: Real>(gpu: &Device, case: &Case, layout: Layout) -> Outcome {
    let cpu = Device::cpu();
    let (len, terms) = (case.shape.iter().product(), case.window.positions() + 1);
    let (mut on_cpu, mut on_gpu) = (Random::new(&cpu, 7)?, Random::new(gpu, 7)?);
    for (pass, values) in fewer(&[awkward::<T>(1, len), normal(2, len)]).iter().enumerate() {
        let what = |what: &str| format!("{what} of {case:?}, {layout:?}");
        let x = Tensor::from_slice(&cpu, &case.shape, values)?.to_layout(layout)?;
        let expected = stochastic_pool::forward(&x, &case.window, &mut on_cpu)?;
        let got = stochastic_pool::forward(&x.to(gpu)?, &case.window, &mut on_gpu)?;
        assert_same_bits(&what("y"), &got.y, &expected.y)?;
        assert!(positions(&got.indices)? == positions(&expected.indices)?, "{}", what("positions"));
        let mean = stochastic_pool::forward_inference(&x.to(gpu)?, &case.window)?;
        let expected_mean = stochastic_pool::forward_inference(&x, &case.window)?;
        let magnitudes: Vec<f64> = sizes(&expected_mean).iter().map(|mean| 2.0 * mean).collect();
        assert_close(&what("mean"), &mean.to_vec()?, &expected_mean.to_vec()?, terms, &magnitudes)?;

        let dy = normal_tensor::<T>(&cpu, 3, &case.output_shape()).to_layout(layout)?;
        let backward = |device: &Device, indices: &Indices, dy: &Tensor<T>| -> ferrolayer::Result<_> {
            let mut dx = x.to(device)?.empty_like()?;
            stochastic_pool::backward(&dy.to(device)?, indices, &case.window, &case.shape, Out::write(&mut dx))?;
            Ok(dx)
        };
        let size = sizes(&backward(&cpu, &expected.indices, &crate::max_pool::absolute(&dy)?)?);
        let (dx, expected) = (backward(gpu, &got.indices, &dy)?, backward(&cpu, &expected.indices, &dy)?);
        assert_close(&what("dx"), &dx.to_vec()?, &expected.to_vec()?, terms, &size)?;
        if let Some(again) = again(|| backward(gpu, &got.indices, &dy))? {
            assert_same_bits(&what("dx again"), &again, &dx)?;
        }
        assert_eq!((on_gpu.seed()?, on_gpu.offset()?), (7, pass as u64 + 1));
    }
    Ok(())
}

/// Tensors past 2³² elements, around the places where the index passes 2³¹ and 2³²: each crop is as defined.
fn matches_crops(gpu: &Device, huge: &Huge) -> Outcome {
    let mut random = Random::new(gpu, 3)?;
    let x = huge.input::<f16>(gpu)?;
    let Output { y, indices } = stochastic_pool::forward(&x, &huge.window(), &mut random)?;
    let y = huge.download(y)?;
    let means = huge.download(stochastic_pool::forward_inference(&x, &huge.window())?)?;
    drop(x);
    let mut crops = Vec::new();
    for crop in huge.crops() {
        let input = crop.input::<f16>()?;
        crop.assert_output("mean", &means, &stochastic_pool::forward_inference(&input, &huge.window())?)?;
        // The indices of the crop's outputs in the whole tensor are not those of a tensor of its own.
        let [_, _, height, width] = input.shape().try_into().expect("four dimensions");
        let case = Case { shape: [1, 1, height, width], window: huge.window() };
        let (values, mut elements, mut drawn) = (input.to_vec()?, Vec::new(), Vec::new());
        for (output, window) in windows(&case).iter().enumerate() {
            let inside: Vec<_> = window.iter().map(|(input, position)| (*position, values[*input].f64())).collect();
            let chosen = draw::<f16>(&case.window, &inside, philox::numbers(3, 0, crop.output_index(output)));
            elements.push(chosen.map_or(f16::ZERO, |i| values[window[i].0]));
            drawn.push(chosen.map_or(case.window.positions(), |i| window[i].1) as u8);
        }
        let shape = case.output_shape();
        let expected = Tensor::from_vec(&Device::cpu(), &shape, elements)?;
        assert_same_bits(&format!("y at {crop:?}"), &crop.of_output(&y)?, &expected)?;
        crops.push((crop, Indices::U8(Tensor::from_vec(&Device::cpu(), &shape, drawn)?)));
    }
    drop((y, means));
    let (dy, mut dx) = (huge.output::<f16>(gpu)?, huge.empty_input::<f16>(gpu)?);
    stochastic_pool::backward(&dy, &indices, &huge.window(), &huge.shape, Out::write(&mut dx))?;
    drop((dy, indices));
    let dx = huge.download(dx)?;
    for (crop, indices) in crops {
        let mut expected = crop.input::<f16>()?;
        let shape = expected.shape().to_vec();
        stochastic_pool::backward(&crop.output()?, &indices, &huge.window(), &shape, Out::write(&mut expected))?;
        crop.assert_interior("dx", &dx, &expected)?;
    }
    Ok(())
}

/// By hand: only the positive elements are drawn, the mean is theirs, and the gradient goes to what was drawn.
fn worked_example(device: &Device) -> Outcome {
    let x = Tensor::from_slice(device, &[1, 1, 2, 4], &[1.0f32, -5.0, 0.0, -1.0, 3.0, 0.0, -2.0, 7.0])?;
    let window = Window::new([2, 2]);
    // (1 + 9) / 4, and the only positive element: 49 by 7, which is rounded.
    assert_close("mean", &stochastic_pool::forward_inference(&x, &window)?.to_vec()?, &[2.5, 7.0], 4, &[2.5, 7.0])?;
    let mut random = Random::new(device, 1)?;
    let mut seen = [0; 2];
    for _ in 0..64 {
        let Output { y, indices } = stochastic_pool::forward(&x, &window, &mut random)?;
        let (y, drawn) = (y.to_vec()?, positions(&indices)?);
        let which = usize::from(drawn[0] == 2);
        seen[which] += 1;
        assert_eq!((y[0], drawn[0]), [(1.0, 0), (3.0, 2)][which]);
        assert_eq!((y[1], drawn[1]), (7.0, 3));
        let (dy, mut dx) = (Tensor::from_slice(device, &[1, 1, 1, 2], &[10.0f32, 20.0])?, x.empty_like()?);
        stochastic_pool::backward(&dy, &indices, &window, &[1, 1, 2, 4], Out::write(&mut dx))?;
        let mut expected = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 20.0];
        expected[which * 4] = 10.0;
        assert_eq!(dx.to_vec()?, expected);
    }
    // 16 and 48 expected; fewer than one of each in 64 has a probability of 1e-8.
    assert!(seen[0] > 0 && seen[1] > seen[0], "{seen:?}");
    Ok(())
}

/// With the draws fixed, as steps of 1e-5 leave them for this seed.
fn gradient_matches_finite_difference() -> Outcome {
    let cpu = Device::cpu();
    for case in chosen().into_iter().filter(|case| case.shape.iter().product::<usize>() < 1000) {
        // None within a step of the kink at zero.
        let at: Vec<f64> =
            normal::<f64>(1, case.shape.iter().product()).into_iter().map(|v| v + 0.1 * v.signum()).collect();
        let weights: Tensor<f64> = normal_tensor(&cpu, 2, &case.output_shape());
        let x = Tensor::from_slice(&cpu, &case.shape, &at)?;
        let indices = stochastic_pool::forward(&x, &case.window, &mut Random::new(&cpu, 9)?)?.indices;
        let mut dx = x.empty_like()?;
        stochastic_pool::backward(&weights, &indices, &case.window, &case.shape, Out::write(&mut dx))?;
        let weights = weights.to_vec()?;
        gradcheck_fn(&format!("x of {case:?}"), &at, &dx.to_vec()?, |x| {
            let x = Tensor::from_slice(&cpu, &case.shape, x).unwrap();
            let y = stochastic_pool::forward(&x, &case.window, &mut Random::new(&cpu, 9).unwrap()).unwrap().y;
            y.to_vec().unwrap().iter().zip(&weights).map(|(y, weight)| y * weight).sum()
        })?;
    }
    Ok(())
}

/// NaN before infinities before numbers; sums past the largest float and below the smallest normal one.
fn edge_values(device: &Device) -> Outcome {
    let (nan, inf, max, least) = (f32::NAN, f32::INFINITY, f32::MAX, f32::from_bits(1));
    // The elements, the positions that can be drawn, and the mean.
    let windows: [([f32; 4], &[u32], f32); 9] = [
        ([1.0, nan, inf, 2.0], &[1], nan),
        ([nan, -1.0, nan, inf], &[0, 2], nan),
        ([3.0, inf, max, -inf], &[1], inf),
        ([inf, 5.0, inf, inf], &[0, 2, 3], inf),
        ([max, max, max, max], &[0, 1, 2, 3], max),
        ([max, -inf, max, 0.0], &[0, 2], max),
        ([least, 0.0, 0.0, least], &[0, 3], least),
        ([-0.0, -inf, least, -1.0], &[2], least),
        ([1e30, 1e-30, -1e30, 0.0], &[0], 1e30),
    ];
    let values = windows.iter().flat_map(|(window, ..)| *window).collect();
    let x = Tensor::from_vec(device, &[1, windows.len(), 2, 2], values)?;
    let means = stochastic_pool::forward_inference(&x, &Window::new([2, 2]))?.to_vec()?;
    for ((window, _, mean), got) in windows.iter().zip(means) {
        let same = got == *mean
            || got.is_nan() && mean.is_nan()
            || (got - mean).abs() <= mean * 4.0 * f32::EPSILON + f32::MIN_POSITIVE;
        assert!(same, "{window:?}: {got}, expected {mean}");
    }
    let mut random = Random::new(device, 3)?;
    let mut seen = vec![Vec::new(); windows.len()];
    for _ in 0..100 {
        let Output { y, indices } = stochastic_pool::forward(&x, &Window::new([2, 2]), &mut random)?;
        for (number, (y, position)) in y.to_vec()?.into_iter().zip(positions(&indices)?).enumerate() {
            assert_eq!(y.to_bits(), windows[number].0[position as usize].to_bits(), "{:?}", windows[number]);
            seen[number].push(position);
        }
    }
    for ((window, drawn, _), mut seen) in windows.iter().zip(seen) {
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, *drawn, "{window:?}");
    }
    Ok(())
}

/// Means of elements whose squares are no floats any more, in some windows of an image and in all.
fn scales<T: Real>(gpu: &Device) -> Outcome {
    let large = ([1, 8, 40, 44], Window::new([16, 17]).stride([5, 5]));
    let whole = ([65, 2, 7, 7], Window::new([7, 7]));
    for (shape, window) in [patched(), by_vectors(), by_chunks(), vec![large, whole]].concat() {
        let values: Vec<f64> = normal(5, shape.iter().product());
        for scales in [[-70, -70], [55, 55], [100, 100], [0, -120], [90, -30]] {
            let values = values.iter().enumerate().map(|(i, v)| T::of(v * 2f64.powi(scales[i / 7 % 2])));
            let x = Tensor::from_vec(&Device::cpu(), &shape, values.collect())?;
            in_both_layouts(|layout| {
                let x = x.to_layout(layout)?;
                let expected = stochastic_pool::forward_inference(&x, &window)?;
                let got = stochastic_pool::forward_inference(&x.to(gpu)?, &window)?;
                let magnitudes: Vec<f64> = sizes(&expected).iter().map(|mean| 2.0 * mean).collect();
                let what = format!("mean of {shape:?}, {window:?}, {layout:?}, {scales:?}");
                Ok(assert_close(&what, &got.to_vec()?, &expected.to_vec()?, window.positions() + 1, &magnitudes)?)
            })?;
        }
    }
    Ok(())
}

/// No element above zero: the output is 0, the index names nothing, and no gradient goes back.
fn windows_of_zeros(device: &Device) -> Outcome {
    let x = Tensor::from_slice(device, &[1, 1, 2, 4], &[0.0f32, -1.0, 0.0, 0.0, -0.0, f32::NEG_INFINITY, 2.0, 0.0])?;
    let window = Window::new([2, 2]).stride([1, 1]).padding([1, 1]);
    let Output { y, indices } = stochastic_pool::forward(&x, &window, &mut Random::new(device, 1)?)?;
    let expected = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 2.0, 0.0];
    assert_eq!(y.to_vec()?, expected);
    assert_eq!(positions(&indices)?, [4, 4, 4, 4, 4, 4, 4, 3, 2, 4, 4, 4, 1, 0, 4]);
    assert_eq!(stochastic_pool::forward_inference(&x, &window)?.to_vec()?, expected);
    let mut dx = Tensor::full(device, &[1, 1, 2, 4], f32::NAN)?;
    let dy = Tensor::full(device, &[1, 1, 3, 5], 1.0f32)?;
    stochastic_pool::backward(&dy, &indices, &window, &[1, 1, 2, 4], Out::write(&mut dx))?;
    assert_eq!(dx.to_vec()?, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0]);
    Ok(())
}

/// One byte names 255 positions and none of them, two bytes 65535.
fn index_types(device: &Device) -> Outcome {
    for (size, wide) in [([15, 17], false), ([16, 16], true)] {
        let len = size[0] * size[1];
        for last in [0.0, 1.0] {
            let mut values = vec![0.0f32; len];
            values[len - 1] = last;
            let x = Tensor::from_vec(device, &[1, 1, size[0], size[1]], values.clone())?;
            let Output { y, indices } = stochastic_pool::forward(&x, &Window::new(size), &mut Random::new(device, 1)?)?;
            assert_eq!(matches!(indices, Indices::U16(_)), wide, "{size:?}");
            let expected = if last == 0.0 { len } else { len - 1 };
            assert_eq!((y.to_vec()?, positions(&indices)?), (vec![last], vec![expected as u32]), "{size:?}");
            let mut dx = x.empty_like()?;
            stochastic_pool::backward(&y, &indices, &Window::new(size), x.shape(), Out::write(&mut dx))?;
            assert_eq!(dx.to_vec()?, values, "{size:?}");
        }
    }
    Ok(())
}

fn empty_batch(device: &Device) -> Outcome {
    let x = Tensor::<f32>::zeros(device, &[0, 3, 8, 8])?;
    let window = Window::new([2, 2]);
    let mut random = Random::new(device, 1)?;
    let Output { y, indices } = stochastic_pool::forward(&x, &window, &mut random)?;
    assert_eq!((y.shape(), indices.shape()), (&[0, 3, 4, 4][..], &[0, 3, 4, 4][..]));
    assert_eq!(stochastic_pool::forward_inference(&x, &window)?.shape(), [0, 3, 4, 4]);
    let mut dx = x.empty_like()?;
    stochastic_pool::backward(&y, &indices, &window, &[0, 3, 8, 8], Out::write(&mut dx))?;
    assert_eq!(random.offset()?, 0);
    Ok(())
}
