//! Parametric rectified linear unit.

mod forward;

use cuda_std::emulator::SANITIZED;
use ferrolayer::ops::prelu;
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Layout, Out, ParameterOf, Real, Tensor, bf16, f16};
use proptest::prelude::*;

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("prelu::matches_the_formula", matches_the_formula),
        on_cpu("prelu::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("prelu::edge_values", || edge_values(&Device::cpu())),
        on_cpu("prelu::rejects_slopes_that_do_not_fit", rejects_slopes_that_do_not_fit),
        on_cpu("prelu::rejects_other_shapes", rejects_other_shapes),
        on_cpu("prelu::rejects_empty_channels", rejects_empty_channels),
    ];
    tests.extend(on_each_gpu("prelu::matches_cpu::f32", matches_cpu::<f32, f32>));
    tests.extend(on_each_gpu("prelu::matches_cpu::f16", matches_cpu::<f16, f32>));
    tests.extend(on_each_gpu("prelu::matches_cpu::f16_slopes_of_f16", matches_cpu::<f16, f16>));
    tests.extend(on_each_gpu("prelu::matches_cpu::bf16", matches_cpu::<bf16, f32>));
    tests.extend(on_each_gpu("prelu::matches_cpu::bf16_slopes_of_bf16", matches_cpu::<bf16, bf16>));
    tests.extend(on_each_gpu("prelu::matches_cpu_on_random_shapes", matches_cpu_on_random_shapes));
    tests.push(on_cpu("prelu::slopes_of_16_bits::f16", || slopes_of_16_bits::<f16>(&Device::cpu())));
    tests.push(on_cpu("prelu::slopes_of_16_bits::bf16", || slopes_of_16_bits::<bf16>(&Device::cpu())));
    tests.extend(on_each_gpu("prelu::slopes_of_16_bits::f16", slopes_of_16_bits::<f16>));
    tests.extend(on_each_gpu("prelu::slopes_of_16_bits::bf16", slopes_of_16_bits::<bf16>));
    tests.push(on_cpu("prelu::in_place_is_the_same::f16", || in_place_is_the_same::<f16>(&Device::cpu())));
    tests.extend(on_each_gpu("prelu::in_place_is_the_same::f32", in_place_is_the_same::<f32>));
    tests.extend(on_each_gpu("prelu::in_place_is_the_same::f16", in_place_is_the_same::<f16>));
    tests.push(on_cpu("prelu::channels_last_is_the_same", || channels_last_is_the_same(&Device::cpu())));
    tests.extend(on_each_gpu("prelu::channels_last_is_the_same", channels_last_is_the_same));
    tests.extend(on_each_gpu("prelu::edge_values", edge_values));
    tests.extend(on_each_gpu("prelu::empty_batch_writes_dalpha", empty_batch_writes_dalpha));
    tests.extend(forward::tests());
    tests
        .push(on_real_gpu("prelu::matches_cpu_at_full_size", |gpu| compare::<f32, f32>(gpu, &[16, 64, 56, 57], 64, 9)));
    tests
}

/// Everything a forward and backward give, with `beta` 0 and 0.5.
struct Results<T: Real, A: Real> {
    y: Tensor<T>,
    dx: Tensor<T>,
    dalpha: Tensor<A>,
    dx_added: Tensor<T>,
    dalpha_added: Tensor<A>,
}

fn run<T: Real, A: ParameterOf<T>>(
    device: &Device,
    [x, dy, old]: [&Tensor<T>; 3],
    [alpha, old_alpha]: [&Tensor<A>; 2],
) -> Result<Results<T, A>, Failed> {
    let (x, alpha, dy) = (x.to(device)?, alpha.to(device)?, dy.to(device)?);
    let y = prelu::forward(&x, &alpha)?;
    let (mut dx, mut dalpha) = (x.empty_like()?, alpha.empty_like()?);
    prelu::backward(&x, &alpha, &dy, Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)))?;
    let (mut dx_added, mut dalpha_added) = (old.to(device)?, old_alpha.to(device)?);
    let beta = 0.5;
    prelu::backward(&x, &alpha, &dy, Some(Out { tensor: &mut dx_added, beta }), None)?;
    prelu::backward(&x, &alpha, &dy, None, Some(Out { tensor: &mut dalpha_added, beta }))?;
    Ok(Results { y, dx, dalpha, dx_added, dalpha_added })
}

fn compare<T: Real, A: ParameterOf<T>>(gpu: &Device, shape: &[usize], slopes: usize, seed: u64) -> Outcome {
    let cpu = Device::cpu();
    let [x, dy, old] = [0, 1, 2].map(|s| normal_tensor::<T>(&cpu, 10 * seed + s, shape));
    let [alpha, old_alpha] = [3, 4].map(|s| normal_tensor::<A>(&cpu, 10 * seed + s, &[slopes]));
    let run = |device| run(device, [&x, &dy, &old], [&alpha, &old_alpha]);
    let (expected, got) = (run(&cpu)?, run(gpu)?);
    let context = |what: &str| format!("{what} of {shape:?}, {slopes} slopes");
    assert_same_bits(&context("y"), &got.y, &expected.y)?;
    assert_same_bits(&context("dx"), &got.dx, &expected.dx)?;

    // One product and one sum: two roundings, or one where they are fused.
    let sizes: Vec<f64> = sizes(&expected.dx).iter().zip(sizes(&old)).map(|(dx, old)| dx + old).collect();
    assert_close(&context("dx added"), &got.dx_added.to_vec()?, &expected.dx_added.to_vec()?, 2, &sizes)?;

    // dalpha sums |x dy| over everything but the channels.
    let terms = x.len() / slopes;
    let mut sizes = vec![0.0; slopes];
    let inner: usize = shape.iter().skip(2).product();
    for (i, (x, dy)) in x.to_vec()?.iter().zip(dy.to_vec()?).enumerate() {
        sizes[if slopes == 1 { 0 } else { i / inner % slopes }] += (x.f64() * dy.f64()).abs();
    }
    assert_close(&context("dalpha"), &got.dalpha.to_vec()?, &expected.dalpha.to_vec()?, terms, &sizes)?;
    for (size, old) in sizes.iter_mut().zip(old_alpha.to_vec()?) {
        *size += old.f64().abs();
    }
    let (dalpha, expected) = (got.dalpha_added.to_vec()?, expected.dalpha_added.to_vec()?);
    assert_close(&context("dalpha added"), &dalpha, &expected, terms + 1, &sizes)?;

    if let Some(again) = again(|| run(gpu))? {
        assert_same_bits(&context("dx again"), &again.dx_added, &got.dx_added)?;
        assert_same_bits(&context("dalpha again"), &again.dalpha_added, &got.dalpha_added)?;
    }
    Ok(())
}

/// Slopes of 16 bits give what the same numbers in `f32` do; their gradient is rounded once.
fn slopes_of_16_bits<T: Real<Compute = f32>>(device: &Device) -> Outcome
where
    f32: ParameterOf<T>,
{
    let [x, dy, old] = [1, 2, 3].map(|seed| normal_tensor::<T>(device, seed, &[4, 3, 35]));
    let [alpha, old_alpha] = [4, 5].map(|seed| normal_tensor::<T>(device, seed, &[3]));
    let wide = |tensor: &Tensor<T>| -> Result<Tensor<f32>, Failed> {
        let values: Vec<f32> = tensor.to_vec()?.into_iter().map(T::widen).collect();
        Ok(Tensor::from_slice(device, tensor.shape(), &values)?)
    };
    let got = run(device, [&x, &dy, &old], [&alpha, &old_alpha])?;
    let expected = run(device, [&x, &dy, &old], [&wide(&alpha)?, &wide(&old_alpha)?])?;
    assert_same_bits("y", &got.y, &expected.y)?;
    assert_same_bits("dx", &got.dx, &expected.dx)?;
    assert_same_bits("dx added", &got.dx_added, &expected.dx_added)?;
    for (got, expected) in [(got.dalpha, expected.dalpha), (got.dalpha_added, expected.dalpha_added)] {
        let rounded: Vec<T> = expected.to_vec()?.into_iter().map(T::narrow).collect();
        assert_eq!(got.to_vec()?, rounded);
    }
    Ok(())
}

/// Also where another tensor shares the memory, which keeps what it holds.
fn in_place_is_the_same<T: Real>(device: &Device) -> Outcome
where
    f32: ParameterOf<T>,
{
    for slopes in [1, 3] {
        let (x, alpha) = (normal_tensor::<T>(device, 1, &[2, 3, 41]), normal_tensor::<f32>(device, 2, &[slopes]));
        let (before, expected) = (x.to_vec()?, prelu::forward(&x, &alpha)?);
        let mut y = x.clone();
        prelu::forward_in_place(&mut y, &alpha)?;
        assert_same_bits("y", &y, &expected)?;
        assert_eq!(x.to_vec()?, before);
        let mut alone = x;
        prelu::forward_in_place(&mut alone, &alpha)?;
        assert_same_bits("y without a copy", &alone, &expected)?;
    }
    Ok(())
}

fn channels_last_is_the_same(device: &Device) -> Outcome {
    for (shape, slopes) in [([2, 3, 5, 7], 3), ([3, 70, 2, 1], 70), ([2, 3, 5, 7], 1)] {
        let [x, dy, old] = [1, 2, 3].map(|seed| normal_tensor::<f32>(device, seed, &shape));
        let [alpha, old_alpha] = [4, 5].map(|seed| normal_tensor::<f32>(device, seed, &[slopes]));
        let expected = run(device, [&x, &dy, &old], [&alpha, &old_alpha])?;
        let last = |tensor: &Tensor<f32>| tensor.to_layout(Layout::ChannelsLast).unwrap();
        let got = run(device, [&last(&x), &last(&dy), &last(&old)], [&alpha, &old_alpha])?;
        assert_eq!((got.y.layout(), got.dx.layout()), (Some(Layout::ChannelsLast), Some(Layout::ChannelsLast)));
        assert_same_bits("y", &got.y, &expected.y)?;
        assert_same_bits("dx", &got.dx, &expected.dx)?;
        assert_same_bits("dx added", &got.dx_added, &expected.dx_added)?;
        // The same terms in another order.
        let mut sizes = vec![0.0; slopes];
        for (i, (x, dy)) in x.to_vec()?.iter().zip(dy.to_vec()?).enumerate() {
            sizes[i / (shape[2] * shape[3]) % shape[1] % slopes] += f64::from((x * dy).abs());
        }
        let terms = x.len() / slopes;
        assert_close("dalpha", &got.dalpha.to_vec()?, &expected.dalpha.to_vec()?, terms, &sizes)?;
    }
    // One slope for all asks for no order, as long as it is the same; slopes of channels do.
    let x = normal_tensor::<f32>(device, 6, &[2, 3, 5, 7]).permute(&[3, 1, 0, 2])?;
    prelu::forward(&x, &Tensor::full(device, &[1], 0.5f32)?)?;
    assert_error(
        prelu::forward(&x, &Tensor::full(device, &[3], 0.5f32)?),
        "prelu.forward: x has shape [7, 3, 2, 5] and strides [1, 35, 105, 7], expected row-major or channels-last order; \
         `Tensor::to_layout` copies it",
    )
}

fn matches_cpu<T: Real, A: ParameterOf<T>>(gpu: &Device) -> Outcome {
    // Features, small planes, planes of one tile and beside it, one of everything; shared slopes and one per channel.
    let cases = [
        (vec![1, 1], 1),
        (vec![5], 1),
        (vec![33, 7], 7),
        (vec![3, 300], 300),
        (vec![130, 5, 3], 5),
        // A channel by a warp, by a block, and by two launches: of columns, of planes.
        (vec![2, 70, 7, 7], 70),
        (vec![2, 3, 32, 32], 3),
        (vec![3, 2, 31, 33], 2),
        (vec![700, 3, 7], 3),
        (vec![700, 4, 7], 4),
        (vec![9, 5, 8, 9], 5),
        (vec![70, 3, 15, 15], 3),
        // Planes in parts.
        (vec![3, 2, 5003], 2),
        (vec![2, 3, 48, 48], 3),
        (vec![5, 2, 31, 33], 2),
        (vec![2, 1, 4, 5], 1),
        (vec![2, 3, 37, 29], 1),
    ];
    for (seed, (shape, slopes)) in cases.iter().enumerate() {
        compare::<T, A>(gpu, shape, *slopes, seed as u64)?;
    }
    // Of which the second launch adds up more parts than its threads have on their way at once. A sanitizer would take a minute for
    // barriers that smaller ones reach.
    if SANITIZED { Ok(()) } else { compare::<T, A>(gpu, &[800, 3, 49], 3, cases.len() as u64) }
}

fn matches_cpu_on_random_shapes(gpu: &Device) -> Outcome {
    let strategy = (1usize..6, 1usize..9, 1usize..40, 1usize..40, any::<bool>());
    for_random(12, strategy, |(n, c, h, w, shared)| {
        compare::<f32, f32>(gpu, &[n, c, h, w], if shared { 1 } else { c }, 77)
    })
}

fn matches_the_formula() -> Outcome {
    let device = Device::cpu();
    let (x, dy): (Vec<f64>, Vec<f64>) = (normal(1, 2 * 3 * 5), normal(2, 2 * 3 * 5));
    let alpha = [0.25, -0.5, 2.0];
    let tensor = |values: &[f64]| Tensor::from_slice(&device, &[2, 3, 5], values);
    let slopes = Tensor::from_slice(&device, &[3], &alpha)?;
    let y = prelu::forward(&tensor(&x)?, &slopes)?;
    let (mut dx, mut dalpha) = (y.empty_like()?, slopes.empty_like()?);
    let (dx_out, dalpha_out) = (Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)));
    prelu::backward(&tensor(&x)?, &slopes, &tensor(&dy)?, dx_out, dalpha_out)?;
    let mut expected = [0.0; 3];
    for i in 0..x.len() {
        let channel = i / 5 % 3;
        let (slope, part) = if x[i] > 0.0 { (1.0, 0.0) } else { (alpha[channel], x[i] * dy[i]) };
        expected[channel] += part;
        assert_eq!((y.to_vec()?[i], dx.to_vec()?[i]), (slope * x[i], slope * dy[i]));
    }
    for (got, expected) in dalpha.to_vec()?.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-12, "{got} {expected}");
    }
    Ok(())
}

fn gradient_matches_finite_difference() -> Outcome {
    let device = Device::cpu();
    for slopes in [1, 3] {
        // Away from the kink at zero.
        let x: Vec<f64> = normal::<f64>(3, 24).into_iter().map(|v| v + 0.1 * v.signum()).collect();
        let (weights, alpha): (Vec<f64>, Vec<f64>) = (normal(4, 24), normal(5, slopes));
        let tensor = |values: &[f64]| Tensor::from_slice(&device, &[2, 3, 4], values).unwrap();
        let slope = |values: &[f64]| Tensor::from_slice(&device, &[slopes], values).unwrap();
        let loss = |x: &[f64], alpha: &[f64]| -> f64 {
            let y = prelu::forward(&tensor(x), &slope(alpha)).unwrap().to_vec().unwrap();
            y.iter().zip(&weights).map(|(y, w)| y * w).sum()
        };
        let (mut dx, mut dalpha) = (tensor(&x), slope(&alpha));
        let (dx_out, dalpha_out) = (Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)));
        prelu::backward(&tensor(&x), &slope(&alpha), &tensor(&weights), dx_out, dalpha_out)?;
        gradcheck_fn("x", &x, &dx.to_vec()?, |x| loss(x, &alpha))?;
        gradcheck_fn("alpha", &alpha, &dalpha.to_vec()?, |alpha| loss(&x, alpha))?;
    }
    Ok(())
}

fn edge_values(device: &Device) -> Outcome {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Tensor::from_slice(device, &[6], &[nan, inf, -inf, 0.0, -0.0, -2.0])?;
    let alpha = Tensor::from_slice(device, &[1], &[0.5f32])?;
    let y = prelu::forward(&x, &alpha)?;
    assert_eq!(format!("{:?}", y.to_vec()?), format!("{:?}", [nan, inf, -inf, 0.0, -0.0, -1.0]));
    // At zero the slope is alpha; a gradient of zero there keeps infinities out of dalpha.
    let dy = Tensor::from_slice(device, &[6], &[1.0f32, 1.0, 1.0, 1.0, 1.0, 1.0])?;
    let mut dx = Tensor::full(device, &[6], nan)?;
    prelu::backward(&x, &alpha, &dy, Some(Out::write(&mut dx)), None)?;
    assert_eq!(dx.to_vec()?, [0.5, 1.0, 0.5, 0.5, 0.5, 0.5]);
    let mut dalpha = Tensor::full(device, &[1], 1.0f32)?;
    prelu::backward(&x, &alpha, &dy, None, Some(Out::write(&mut dalpha)))?;
    assert!(dalpha.to_vec()?[0].is_nan(), "NaN in, NaN out");
    Ok(())
}

fn empty_batch_writes_dalpha(device: &Device) -> Outcome {
    let (x, alpha) = (Tensor::<f32>::zeros(device, &[0, 3, 4])?, Tensor::full(device, &[3], 0.5f32)?);
    assert_eq!(prelu::forward(&x, &alpha)?.shape(), [0, 3, 4]);
    let mut dalpha = Tensor::full(device, &[3], 7.0f32)?;
    prelu::backward(&x, &alpha, &x, None, Some(Out::add(&mut dalpha)))?;
    assert_eq!(dalpha.to_vec()?, [7.0; 3]);
    prelu::backward(&x, &alpha, &x, None, Some(Out::write(&mut dalpha)))?;
    assert_eq!(dalpha.to_vec()?, [0.0; 3]);
    Ok(())
}

fn rejects_slopes_that_do_not_fit() -> Outcome {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::<f32>::zeros(&device, shape);
    assert_error(
        prelu::forward(&zeros(&[2, 3, 4])?, &zeros(&[4])?),
        "prelu.forward: alpha has shape [4], expected [1] or [3] for x [2, 3, 4]",
    )?;
    assert_error(
        prelu::forward(&zeros(&[3])?, &zeros(&[3])?),
        "prelu.forward: alpha has shape [3], expected [1] for x [3]",
    )
}

fn rejects_other_shapes() -> Outcome {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::<f32>::zeros(&device, shape);
    let (x, alpha) = (zeros(&[2, 3])?, zeros(&[1])?);
    let result = prelu::backward(&x, &alpha, &zeros(&[3, 2])?, None, None);
    assert_error(result, "prelu.backward: dy has shape [3, 2], expected [2, 3]")?;
    let result = prelu::backward(&x, &alpha, &x, None, Some(Out::write(&mut zeros(&[3])?)));
    assert_error(result, "prelu.backward: dalpha has shape [3], expected [1]")
}

fn rejects_empty_channels() -> Outcome {
    let device = Device::cpu();
    let x = Tensor::<f32>::zeros(&device, &[2, 0])?;
    assert_error(
        prelu::forward(&x, &Tensor::<f32>::zeros(&device, &[1])?),
        "prelu.forward: x has shape [2, 0], expected no zero but for the batch, dimension 0",
    )
}
