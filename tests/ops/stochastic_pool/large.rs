//! Large windows, which are summed by rows: the same draws on all devices.

use cuda_std::emulator::SANITIZED;
use ferrolayer::ops::Window;
use ferrolayer::ops::stochastic_pool::{self, Random};
use ferrolayer::{DType, Device, Real, Tensor, bf16, f16};
use kernels::philox;
use proptest::prelude::*;

use super::{draw, match_cpu, matches_the_definition, windows};
use crate::max_pool::{Case, in_both_layouts, positions};
use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("stochastic_pool::large::matches_the_definition::f32", all_match_the_definition::<f32>),
        on_cpu("stochastic_pool::large::matches_the_definition::f64", all_match_the_definition::<f64>),
        on_cpu("stochastic_pool::large::matches_the_definition::f16", all_match_the_definition::<f16>),
        on_cpu("stochastic_pool::large::matches_the_definition::bf16", all_match_the_definition::<bf16>),
        on_cpu("stochastic_pool::large::matches_the_definition_on_random_windows", || {
            for_random(30, cases(), |case| in_both_layouts(|layout| matches_the_definition::<f32>(&case, layout)))
        }),
        on_cpu("stochastic_pool::large::edge_values::f32", || edge_values::<f32>(&Device::cpu())),
        on_cpu("stochastic_pool::large::edge_values::f64", || edge_values::<f64>(&Device::cpu())),
        on_cpu("stochastic_pool::large::edge_values::f16", || edge_values::<f16>(&Device::cpu())),
        on_cpu("stochastic_pool::large::edge_values::bf16", || edge_values::<bf16>(&Device::cpu())),
    ];
    tests.extend(on_each_gpu("stochastic_pool::large::matches_cpu::f32", |gpu| match_cpu::<f32>(gpu, &chosen())));
    tests.extend(on_each_gpu("stochastic_pool::large::matches_cpu::f16", |gpu| match_cpu::<f16>(gpu, &chosen())));
    tests.extend(on_each_gpu("stochastic_pool::large::matches_cpu::bf16", |gpu| match_cpu::<bf16>(gpu, &chosen())));
    tests.extend(on_each_gpu("stochastic_pool::large::matches_cpu_on_random_windows", |gpu| {
        for_random(10, cases(), |case| match_cpu::<f32>(gpu, &[case]))
    }));
    tests.extend(on_each_gpu("stochastic_pool::large::edge_values::f32", edge_values::<f32>));
    tests.extend(on_each_gpu("stochastic_pool::large::edge_values::f16", edge_values::<f16>));
    tests.extend(on_each_gpu("stochastic_pool::large::edge_values::bf16", edge_values::<bf16>));
    tests.push(on_real_gpu("stochastic_pool::large::matches_cpu_at_full_size", |gpu| {
        match_cpu::<f32>(gpu, &full_size())?;
        match_cpu::<f16>(gpu, &full_size())?;
        match_cpu::<bf16>(gpu, &full_size())
    }));
    tests.push(on_real_gpu("stochastic_pool::large::matches_cpu_on_many_random_windows", |gpu| {
        for_random(100, cases(), |case| {
            match_cpu::<f32>(gpu, std::slice::from_ref(&case))?;
            match_cpu::<bf16>(gpu, &[case])
        })
    }));
    tests
}

/// The smallest that are large and the largest that are not, global ones, one row and one column, rows that are aligned and rows
/// that are not, windows that overlap and that reach into the padding, channels that are no power of two, and the most rows.
fn chosen() -> Vec<Case> {
    let case = |shape, window| Case { shape, window };
    let global = |n, c, size: [usize; 2]| case([n, c, size[0], size[1]], Window::new(size));
    let mut cases = vec![
        global(2, 3, [16, 16]),
        global(2, 3, [15, 17]),
        global(3, 5, [28, 28]),
        global(2, 33, [16, 17]),
        case([2, 3, 4, 300], Window::new([1, 300])),
        case([2, 3, 300, 5], Window::new([300, 1])),
        case([1, 3, 19, 21], Window::new([17, 16]).stride([3, 2]).padding([8, 8])),
        case([1, 33, 18, 17], Window::new([17, 16]).stride([2, 1])),
        case([2, 2, 22, 28], Window::new([20, 18]).stride([3, 4]).padding([5, 3]).ceil_mode(true)),
        case([1, 2, 40, 48], Window::new([16, 20]).stride([16, 20]).ceil_mode(true)),
        global(1, 1, [4096, 1]),
        case([1, 2, 4097, 1], Window::new([4097, 1])),
        case([1, 1, 3000, 2], Window::new([4096, 2]).padding([1000, 0])),
    ];
    // Larger ones take a sanitizer minutes, and have no other barriers.
    cases.retain(|case| !SANITIZED || case.shape.iter().product::<usize>() <= 2_000);
    cases
}

/// What a GPU has many blocks for, of several outputs each.
fn full_size() -> Vec<Case> {
    let case = |shape, window| Case { shape, window };
    let global = |n, c, size: [usize; 2]| case([n, c, size[0], size[1]], Window::new(size));
    vec![
        global(8, 8, [255, 255]),
        global(16, 256, [56, 56]),
        global(64, 255, [28, 28]),
        case([1, 1, 1024, 1024], Window::new([32, 32]).stride([32, 32])),
        case([2, 37, 90, 87], Window::new([16, 18]).stride([3, 5]).padding([8, 9]).ceil_mode(true)),
        case([512, 40, 3, 260], Window::new([1, 256]).stride([1, 3])),
        case([3, 17, 4100, 16], Window::new([4096, 15])),
    ]
}

/// Large windows over images that are not much larger.
fn cases() -> impl Strategy<Value = Case> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    let parameters = (1..3usize, 1..5usize, 1..40usize, pair(0..6), pair(1..5), pair(0..9), any::<bool>());
    parameters.prop_map(|(n, c, height, more, stride, padding, ceil_mode)| {
        let size = [height, 256usize.div_ceil(height) + more[1]];
        let padding = [0, 1].map(|axis| padding[axis].min(size[axis] / 2));
        let [h, w] = [0, 1].map(|axis| (size[axis] + more[axis]).saturating_sub(2 * padding[axis]).max(1));
        Case { shape: [n, c, h, w], window: Window::new(size).stride(stride).padding(padding).ceil_mode(ceil_mode) }
    })
}

fn all_match_the_definition<T: Real>() -> Outcome {
    chosen().iter().try_for_each(|case| in_both_layouts(|layout| matches_the_definition::<T>(case, layout)))
}

/// A state of which the first output's number is the largest of 24 bits.
const LAST: [u64; 2] = [7, 20_922_799];

/// Nothing, NaN, infinities, sums past the largest number and below the smallest normal one, with numbers up to just below 1.
fn edge_values<T: Real>(device: &Device) -> Outcome {
    assert_eq!(philox::numbers(LAST[0], LAST[1], 0)[0] >> 8, (1 << 24) - 1);
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let [max, least] = match T::DTYPE {
        DType::F64 => [f64::MAX, f64::from_bits(1)],
        DType::F16 => [65504.0, 2f64.powi(-24)],
        DType::Bf16 => [3.3e38, 2f64.powi(-133)],
        _ => [f32::MAX.into(), f32::from_bits(1).into()],
    };
    // What there is in the image from the back on, and everywhere else.
    let planes: [(&[f64], f64); 13] = [
        (&[], 0.0),
        (&[], -1.0),
        (&[1.0], 0.0),
        (&[nan], 1.0),
        (&[nan, inf, 1.0, nan], 2.0),
        (&[inf], max),
        (&[1.0, inf, -inf, inf], 0.0),
        (&[-inf, 0.0], max),
        (&[], max),
        (&[0.0, 0.0, least, least], 0.0),
        (&[-1.0, least], -0.0),
        (&[least, 0.0, 1.0], least),
        // Of a sum that goes on from element to element, what comes after the large one would be lost.
        (&[2f64.powi(24)], 1.0),
    ];
    let size = 17;
    let case =
        Case { shape: [1, planes.len(), size, size], window: Window::new([16, 16]).padding([3, 3]).stride([2, 3]) };
    let image = |(last, rest): &(&[f64], f64)| -> Vec<T> {
        let rest = std::iter::repeat_n(rest, size * size - last.len());
        // Also in other rows than the last.
        let mut image: Vec<T> = rest.chain(last.iter().rev()).map(|v| T::of(*v)).collect();
        last.iter().enumerate().for_each(|(i, v)| image[(i + 5) * size + 4 * i] = T::of(*v));
        image
    };
    let values: Vec<T> = planes.iter().flat_map(image).collect();
    let outputs = case.output_shape().iter().product::<usize>() / planes.len();
    for [seed, offset] in [[3, 0], [3, 1], [1 << 40, 2], LAST] {
        // The first output of each plane in turn has that number.
        for shift in 0..planes.len() {
            let values = [&values[shift * size * size..], &values[..shift * size * size]].concat();
            let x = Tensor::from_vec(&Device::cpu(), &case.shape, values.clone())?;
            in_both_layouts(|layout| {
                let x = x.to_layout(layout)?;
                let mut random = Random::at(device, seed, offset)?;
                let got = stochastic_pool::forward(&x.to(device)?, &case.window, &mut random)?;
                let (y, drawn) = (got.y.to_vec()?, positions(&got.indices)?);
                for (output, window) in windows(&case).iter().enumerate() {
                    let elements: Vec<_> =
                        window.iter().map(|(input, position)| (*position, values[*input].f64())).collect();
                    let chosen = draw::<T>(&case.window, &elements, philox::numbers(seed, offset, output as u64));
                    let what =
                        format!("{output} of {:?}, {layout:?}", planes[(output / outputs + shift) % planes.len()]);
                    let position = chosen.map_or(case.window.positions(), |i| window[i].1);
                    assert_eq!(drawn[output], position as u32, "{what}");
                    let value = chosen.map_or(0.0, |i| elements[i].1);
                    assert!(y[output].f64() == value || y[output].f64().is_nan() && value.is_nan(), "{what}");
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}
