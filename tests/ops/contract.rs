//! The contract of ops: what every op keeps, and that the tools which check it find what is wrong.

mod faults;
mod sharing;
mod state;

use std::num::NonZero;

use ferrolayer::nn::{Apply, Layer, Mode, Sequential};
use ferrolayer::op::{Inputs, Op};
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::ops::{
    Window, add2, avg_pool, dense, exp, gaussian_pool, max_pool, prelu, relu, scale_add, softmax_cross_entropy,
    stochastic_pool,
};
use ferrolayer::testing::{compare_devices, gradcheck, normal};
use ferrolayer::{Device, Layout, Out, Real, Tensor, bf16, f16};

use crate::support::{Failed, Outcome, Trial, assert_error, assert_same_bits, on_cpu, on_each_gpu};

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("contract::output_tells_without_computing", output_tells_without_computing),
        on_cpu("contract::in_place_takes_no_memory", in_place_takes_no_memory),
        on_cpu("contract::apply_is_a_layer", apply_is_a_layer),
        on_cpu("contract::apply_rejects", apply_rejects),
        on_cpu("contract::wrong_counts_are_errors", wrong_counts_are_errors),
    ];
    tests.extend(on_each_gpu("contract::relu", |gpu| in_all_types(gpu, &relu::Op, &[&[3, 7]], &[])));
    tests.extend(on_each_gpu("contract::prelu", |gpu| in_all_types(gpu, &prelu::Op, &[&[4, 3, 5]], &[&[3]])));
    tests.extend(on_each_gpu("contract::add2", |gpu| in_all_types(gpu, &add2::Op, &[&[5, 3], &[5, 3]], &[])));
    tests.extend(on_each_gpu("contract::scale_add", |gpu| in_all_types(gpu, &scale_add::Op, &[&[17]], &[&[1], &[1]])));
    tests.extend(on_each_gpu("contract::exp", |gpu| in_f32(gpu, &exp::Op, &[&[3, 5]], &[])));
    tests.extend(on_each_gpu("contract::max_pool", the_max_pool));
    tests.extend(on_each_gpu("contract::avg_pool", the_avg_pool));
    tests.extend(on_each_gpu("contract::gaussian_pool", the_gaussian_pool));
    tests.extend(on_each_gpu("contract::dense", the_dense));
    tests.extend(on_each_gpu("contract::stochastic_pool", the_stochastic_pool));
    tests.extend(on_each_gpu("contract::softmax_cross_entropy", the_softmax_cross_entropy));
    tests.extend(faults::tests());
    tests.extend(sharing::tests());
    tests.extend(state::tests());
    tests
}

/// Normally distributed inputs of these shapes.
fn inputs(data: &[&[usize]], parameters: &[&[usize]]) -> Result<[Vec<Tensor<f64>>; 2], Failed> {
    let tensors = |seed: u64, shapes: &[&[usize]]| -> Result<Vec<_>, Failed> {
        let seeds = seed..;
        Ok(shapes
            .iter()
            .zip(seeds)
            .map(|(shape, seed)| normal(&Device::cpu(), seed, shape))
            .collect::<Result<_, _>>()?)
    };
    Ok([tensors(1, data)?, tensors(11, parameters)?])
}

/// Checks gradients on the CPU, and the GPU against the CPU, both in `T`.
fn check<T: Real, O: Op<T> + Op<f64>>(
    gpu: &Device,
    op: &O,
    data: &[Tensor<f64>],
    parameters: &[Tensor<f64>],
) -> Outcome {
    let (data, parameters): (Vec<_>, Vec<_>) = (data.iter().collect(), parameters.iter().collect());
    let inputs = Inputs { data: &data, parameters: &parameters };
    gradcheck(op, inputs)?;
    compare_devices::<T, _>(op, inputs, [&Device::cpu(), gpu])?;
    Ok(())
}

fn in_f32<O: Op<f32> + Op<f64>>(gpu: &Device, op: &O, data: &[&[usize]], parameters: &[&[usize]]) -> Outcome {
    let [data, parameters] = inputs(data, parameters)?;
    check::<f32, _>(gpu, op, &data, &parameters)
}

fn in_all_types<O: Op<f32> + Op<f16> + Op<bf16> + Op<f64>>(
    gpu: &Device,
    op: &O,
    data: &[&[usize]],
    parameters: &[&[usize]],
) -> Outcome {
    let [data, parameters] = inputs(data, parameters)?;
    check::<f32, _>(gpu, op, &data, &parameters)?;
    check::<f16, _>(gpu, op, &data, &parameters)?;
    check::<bf16, _>(gpu, op, &data, &parameters)?;
    // Image ops take both orders of memory.
    let shape = [2, 3, 2, 3];
    let data = data.iter().map(|_| normal(&Device::cpu(), 3, &shape)?.to_layout(Layout::ChannelsLast));
    check::<f32, _>(gpu, op, &data.collect::<Result<Vec<_>, _>>()?, &parameters)
}

fn the_max_pool(gpu: &Device) -> Outcome {
    let window = Window::new([2, 3]).stride([1, 2]).padding([1, 0]);
    in_all_types(gpu, &max_pool::Op { window }, &[&[2, 2, 4, 5]], &[])
}

fn the_avg_pool(gpu: &Device) -> Outcome {
    let divisor = avg_pool::Divisor { divisor_override: NonZero::new(3), ..Default::default() };
    let op = avg_pool::Op { window: Window::new([2, 2]).stride([1, 1]), divisor };
    in_all_types(gpu, &op, &[&[2, 2, 4, 3]], &[])
}

fn the_gaussian_pool(gpu: &Device) -> Outcome {
    let [data, _] = inputs(&[&[2, 2, 4, 5]], &[])?;
    let mean = Tensor::from_slice(&Device::cpu(), &[2, 1, 2], &[0.3, -0.4, -0.1, 0.6])?;
    let var = Tensor::from_slice(&Device::cpu(), &[2, 1, 2], &[0.5, 1.5, 0.8, 0.4])?;
    for normalize in [Normalize::Window, Normalize::Valid] {
        let op = gaussian_pool::Op { window: Window::new([3, 2]).stride([1, 2]).padding([1, 1]), normalize };
        let parameters = [mean.clone(), var.clone()];
        check::<f32, _>(gpu, &op, &data, &parameters)?;
        check::<f16, _>(gpu, &op, &data, &parameters)?;
        check::<bf16, _>(gpu, &op, &data, &parameters)?;
        let last = data.iter().map(|x| x.to_layout(Layout::ChannelsLast)).collect::<Result<Vec<_>, _>>()?;
        check::<f32, _>(gpu, &op, &last, &parameters)?;
    }
    Ok(())
}

/// What it draws in `f64` is not what it draws in `f32`, so that the tools have nothing to compare with.
fn the_stochastic_pool(gpu: &Device) -> Outcome {
    let (window, seed) = (Window::new([2, 3]).stride([1, 2]), 5);
    let x = normal::<f32>(gpu, 1, &[2, 3, 4, 5])?;
    let op = stochastic_pool::Op { window, seed };
    let inputs = Inputs { data: &[&x], parameters: &[] };
    assert_same_bits(
        "inference",
        &forward(&op, inputs, Mode::Eval)?,
        &stochastic_pool::forward_inference(&x, &window)?,
    )?;
    let mut random = stochastic_pool::Random::new(gpu, seed)?;
    let mut model = Sequential::new().then(Apply::new(op, vec![])?);
    for draw in 0..3 {
        let expected = stochastic_pool::forward(&x, &window, &mut random)?;
        assert_same_bits(&format!("draw {draw}"), &model.forward(&x, Mode::Train)?, &expected.y)?;
        let (dy, mut dx) = (normal(gpu, 2 + draw, expected.y.shape())?, x.empty_like()?);
        stochastic_pool::backward(&dy, &expected.indices, &window, x.shape(), Out::write(&mut dx))?;
        assert_same_bits(&format!("dx {draw}"), &model.backward(&dy)?, &dx)?;
    }
    Ok(())
}

fn forward<O: Op<f32>>(op: &O, inputs: Inputs<'_, f32>, mode: Mode) -> ferrolayer::Result<Tensor<f32>> {
    Ok(op.forward(&mut O::State::default(), inputs, mode)?.0)
}

fn the_dense(gpu: &Device) -> Outcome {
    use dense::{Kind, Op};
    in_f32(gpu, &Op::default(), &[&[3, 5], &[4, 5]], &[])?;
    in_f32(gpu, &Op { bias: true, activation: Kind::Relu }, &[&[3, 5], &[4, 5], &[4]], &[])?;
    let op = Op { bias: true, activation: Kind::Prelu };
    let [data, parameters] = inputs(&[&[3, 5], &[4, 5], &[4]], &[&[4]])?;
    check::<f32, _>(gpu, &op, &data, &parameters)?;
    check::<f16, _>(gpu, &op, &data, &parameters)?;
    check::<bf16, _>(gpu, &op, &data, &parameters)
}

fn the_softmax_cross_entropy(gpu: &Device) -> Outcome {
    let labels = Tensor::from_slice(&Device::cpu(), &[4], &[0, 2, 1, 2])?;
    in_f32(gpu, &softmax_cross_entropy::Op { labels }, &[&[4, 3]], &[])
}

/// Shapes of tensors for which no machine has memory, with forward's own errors.
fn output_tells_without_computing() -> Outcome {
    let x = Tensor::<f32>::empty_in(&Device::Shapes, &[1 << 12, 1 << 12, 1 << 12, 1 << 12], Layout::ChannelsLast)?;
    let y = relu::Op.output(Inputs { data: &[&x], parameters: &[] })?;
    assert_eq!((y.shape(), y.layout()), (x.shape(), Some(Layout::ChannelsLast)));
    let x = Tensor::<f32>::empty(&Device::Shapes, &[1 << 12, 1 << 12, 1 << 12, 1 << 12])?;
    let op = max_pool::Op { window: Window::new([2, 2]) };
    let y = op.output(Inputs { data: &[&x], parameters: &[] })?;
    assert_eq!(y.shape(), [1 << 12, 1 << 12, 1 << 11, 1 << 11]);
    let flat = Tensor::<f32>::zeros(&Device::cpu(), &[2, 3])?;
    let inputs = Inputs { data: &[&flat], parameters: &[] };
    let said = op.forward(&mut (), inputs, Mode::Eval).expect_err("not an image").to_string();
    assert_error(op.output(inputs), &said)?;
    // There is nothing to read.
    assert_error(
        y.to_vec(),
        "Tensor::to_vec: self is on no device (shapes only), expected a device with memory like the other tensors; \
         `Tensor::to` moves it",
    )
}

fn in_place_takes_no_memory() -> Outcome {
    let device = Device::cpu();
    let alpha = Tensor::from_slice(&device, &[1], &[0.5f32])?;
    let none = Inputs { data: &[], parameters: &[] };
    let with_alpha = Inputs { data: &[], parameters: &[&alpha] };
    for mode in [Mode::Train, Mode::Eval] {
        let mut x = Tensor::from_slice(&device, &[3], &[-1.0f32, 0.0, 2.0])?;
        let place = x.host()?.as_ptr();
        relu::Op.forward_in_place(&mut (), &mut x, none, mode)?;
        assert!(<relu::Op as Op<f32>>::overwrites(&relu::Op, mode) && x.host()?.as_ptr() == place);
    }
    // Backward of PReLU needs what `x` held.
    for (mode, overwritten) in [(Mode::Train, false), (Mode::Eval, true)] {
        let mut x = Tensor::from_slice(&device, &[3], &[-1.0f32, 0.0, 2.0])?;
        let place = x.host()?.as_ptr();
        let saved = prelu::Op.forward_in_place(&mut (), &mut x, with_alpha, mode)?;
        assert_eq!(x.to_vec()?, [-0.5, 0.0, 2.0]);
        assert_eq!(<prelu::Op as Op<f32>>::overwrites(&prelu::Op, mode), overwritten);
        match saved {
            Some(saved) => assert_eq!((saved.host()?.as_ptr(), saved.to_vec()?), (place, vec![-1.0, 0.0, 2.0])),
            None => assert_eq!(x.host()?.as_ptr(), place),
        }
    }
    Ok(())
}

/// As the layer that is written by hand, to the bit.
fn apply_is_a_layer() -> Outcome {
    let device = Device::cpu();
    let slopes = Tensor::from_slice(&device, &[1], &[0.25f32])?;
    let numbers = [3.0, 0.5].map(|number| Tensor::from_slice(&device, &[1], &[number]));
    let [scale, shift] = numbers;
    let mut applied = Sequential::new()
        .then(Apply::new(prelu::Op, vec![slopes])?)
        .then(Apply::new(scale_add::Op, vec![scale?, shift?])?);
    let mut written = Sequential::new()
        .then(ferrolayer::nn::Prelu::new(&device, 1, 0.25)?)
        .then(ferrolayer::nn::ScaleAdd::new(&device, 3.0f32, 0.5)?);
    let (x, dy) = (normal::<f32>(&device, 1, &[4, 3])?, normal::<f32>(&device, 2, &[4, 3])?);
    for mode in [Mode::Eval, Mode::Train] {
        assert_same_bits("y", &applied.forward(&x, mode)?, &written.forward(&x, mode)?)?;
    }
    assert_same_bits("dx", &applied.backward(&dy)?, &written.backward(&dy)?)?;
    assert!(applied.backward(&dy).is_err(), "one backward for each forward");
    let described: Vec<_> = applied.parameters().iter().map(|(name, p)| (name.clone(), p.is_trainable())).collect();
    let expected =
        [("0.alpha", true), ("1.s", false), ("1.c", false)].map(|(name, trained)| (name.to_owned(), trained));
    assert_eq!(described, expected);
    let gradients = |model: &Sequential<f32>| model.parameters()[0].1.gradient().cloned();
    let (got, expected) = (gradients(&applied).expect("trained"), gradients(&written).expect("trained"));
    assert_same_bits("dalpha", &got, &expected)?;
    // It adds up until it is forgotten.
    applied.forward(&x, Mode::Train)?;
    applied.backward_parameters(&dy)?;
    assert_eq!(gradients(&applied).expect("trained").to_vec()?[0], 2.0 * expected.to_vec()?[0]);
    applied.zero_grad();
    assert!(gradients(&applied).is_none());
    Ok(())
}

fn apply_rejects() -> Outcome {
    assert_error(
        Apply::<f32, _>::new(prelu::Op, vec![]).map(drop),
        "Apply::new: values is a list of 0, expected 1: [\"alpha\"]",
    )?;
    assert_error(
        Apply::<f32, _>::new(add2::Op, vec![]).map(drop),
        "Apply::new: op is add2, of [\"a\", \"b\"], expected an op of one data input",
    )
}

fn wrong_counts_are_errors() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[2])?;
    assert_error(
        add2::Op.forward(&mut (), Inputs { data: &[&x], parameters: &[] }, Mode::Eval).map(drop),
        "add2.forward: inputs is a list of 1, expected 2",
    )?;
    assert_error(
        relu::Op.forward(&mut (), Inputs { data: &[&x], parameters: &[&x] }, Mode::Eval).map(drop),
        "relu.forward: parameters is a list of 1, expected 0",
    )
}
