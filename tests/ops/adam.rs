//! Adam.

use ferrolayer::ops::adam::{self, Clock, Settings};
use ferrolayer::testing::assert_close;
use ferrolayer::{Compute, Device, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("adam::matches_the_formula", matches_the_formula),
        on_cpu("adam::rejects_other_shapes", rejects_other_shapes),
        on_cpu("adam::rejects_a_clock_never_advanced", rejects_a_clock_never_advanced),
        on_cpu("adam::rejects_another_device", rejects_another_device),
        on_cpu("adam::rejects_settings_out_of_range", rejects_settings_out_of_range),
    ];
    tests.extend(on_each_gpu("adam::matches_cpu", matches_cpu));
    tests.extend(on_each_gpu("adam::counts_and_reads_new_settings", counts_and_reads_new_settings));
    tests.push(on_cpu("adam::counts_and_reads_new_settings", || counts_and_reads_new_settings(&Device::cpu())));
    tests
}

const SETTINGS: Settings = Settings { learning_rate: 0.1, betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.01 };

/// Value and both moments after the step that is the clock's `steps`th.
fn step<T: Compute>(
    device: &Device,
    [value, first, second, gradient]: [&[T]; 4],
    steps: usize,
) -> Result<[Tensor<T>; 3], Failed> {
    let tensor = |values: &[T]| Tensor::from_slice(device, &[values.len()], values);
    let (mut value, mut first, mut second) = (tensor(value)?, tensor(first)?, tensor(second)?);
    let mut clock = Clock::new(device, &SETTINGS)?;
    for _ in 0..steps {
        clock.advance()?;
    }
    adam::step(&clock, &tensor(gradient)?, &mut value, &mut first, &mut second)?;
    Ok([value, first, second])
}

fn inputs<T: Compute>(len: usize) -> [Vec<T>; 4] {
    let [value, first, second, gradient] = [1, 2, 3, 4].map(|seed| normal::<T>(seed + len as u64, len));
    // A mean of squares is not negative; kept off zero, where the step's size would be the rounding's.
    [value, first, second.into_iter().map(|v| v * v + T::of(0.01)).collect(), gradient]
}

/// What `torch.optim.Adam`'s documentation says, one number at a time: value and moments, and the sum of the magnitudes
/// of what the new value is made of.
fn formula([value, first, second, gradient]: [f64; 4], steps: usize) -> ([f64; 3], f64) {
    let Settings { learning_rate, betas: [beta1, beta2], epsilon, weight_decay } = SETTINGS;
    let g = gradient + weight_decay * value;
    let m = beta1 * first + (1.0 - beta1) * g;
    let v = beta2 * second + (1.0 - beta2) * g * g;
    let m_hat = |m: f64| m / (1.0 - beta1.powi(steps as i32));
    let v_hat = v / (1.0 - beta2.powi(steps as i32));
    let size = m_hat(first.abs() + gradient.abs() + value.abs()) / (v_hat.sqrt() + epsilon);
    let new = value - learning_rate * m_hat(m) / (v_hat.sqrt() + epsilon);
    ([new, m, v], value.abs() + learning_rate * size)
}

fn matches_the_formula() -> Outcome {
    let [value, first, second, gradient] = inputs::<f64>(37);
    for steps in [1, 2, 1000] {
        let got = step(&Device::cpu(), [&value, &first, &second, &gradient], steps)?;
        for i in 0..value.len() {
            let (expected, _) = formula([value[i], first[i], second[i], gradient[i]], steps);
            for (got, expected) in got.iter().zip(expected) {
                let got = got.to_vec()?[i];
                assert!((got - expected).abs() < 1e-12 * expected.abs().max(1.0), "step {steps}: {got} {expected}");
            }
        }
    }
    Ok(())
}

fn matches_cpu(gpu: &Device) -> Outcome {
    for (len, steps) in [(0, 1), (1, 1), (3, 2), (4, 5), (1024, 1), (1027, 3), (2050, 40)] {
        let [value, first, second, gradient] = inputs::<f32>(len);
        let all: [&[f32]; 4] = [&value, &first, &second, &gradient];
        let (expected, got, again) =
            (step(&Device::cpu(), all, steps)?, step(gpu, all, steps)?, step(gpu, all, steps)?);
        let at = |i: usize| all.map(|values| f64::from(values[i]));
        let moves: Vec<f64> = (0..len).map(|i| formula(at(i), steps).1).collect();
        let inputs: Vec<f64> = (0..len).map(|i| at(i).iter().map(|v| v.abs() + v * v).sum()).collect();
        for (i, (what, sizes)) in [("value", &moves), ("first", &inputs), ("second", &inputs)].into_iter().enumerate() {
            assert_close(what, &got[i].to_vec()?, &expected[i].to_vec()?, 6, sizes)?;
            assert_same_bits(what, &again[i], &got[i])?;
        }
    }
    Ok(())
}

/// The first step of a gradient of any size goes by the learning rate, and steps count.
fn counts_and_reads_new_settings(device: &Device) -> Outcome {
    let mut settings = Settings { learning_rate: 0.5, ..Settings::default() };
    let mut clock = Clock::<f32>::new(device, &settings)?;
    assert_eq!(clock.steps()?, 0);
    clock.advance()?;
    let move_by = |clock: &Clock<f32>| -> Result<f32, Failed> {
        let (mut first, mut second) = (Tensor::zeros(device, &[5])?, Tensor::zeros(device, &[5])?);
        let mut value = Tensor::zeros(device, &[5])?;
        adam::step(clock, &Tensor::full(device, &[5], 300.0f32)?, &mut value, &mut first, &mut second)?;
        Ok(value.to_vec()?[4])
    };
    assert_close("value", &[move_by(&clock)?], &[-0.5], 6, &[0.5])?;
    settings.learning_rate = 0.25;
    clock.set(&settings)?;
    clock.advance()?;
    assert_eq!(clock.steps()?, 2);
    // With moments that begin in the second step, both are less than corrected for.
    let expected = 0.25 * (0.1 / (1.0 - 0.9f64.powi(2))) / (0.001 / (1.0 - 0.999f64.powi(2))).sqrt();
    assert_close("value", &[move_by(&clock)?], &[-expected as f32], 6, &[expected])?;
    Ok(())
}

fn rejects_other_shapes() -> Outcome {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::<f32>::zeros(&device, shape).unwrap();
    let mut clock = Clock::new(&device, &SETTINGS)?;
    clock.advance()?;
    let step = |gradient: usize, first: usize, second: usize| {
        adam::step(&clock, &zeros(&[gradient]), &mut zeros(&[2]), &mut zeros(&[first]), &mut zeros(&[second]))
    };
    assert_error(step(3, 2, 2), "adam.step: gradient has shape [3], expected [2]")?;
    assert_error(step(2, 3, 2), "adam.step: first has shape [3], expected [2]")?;
    assert_error(step(2, 2, 3), "adam.step: second has shape [3], expected [2]")
}

fn rejects_a_clock_never_advanced() -> Outcome {
    let device = Device::cpu();
    let zeros = || Tensor::<f32>::zeros(&device, &[2]).unwrap();
    let clock = Clock::new(&device, &SETTINGS)?;
    assert_error(
        adam::step(&clock, &zeros(), &mut zeros(), &mut zeros(), &mut zeros()),
        "adam.step: clock is never advanced, expected advanced for this step",
    )
}

fn rejects_another_device() -> Outcome {
    let (device, gpu) = (Device::cpu(), Device::Gpu(ferrolayer::device::Gpu::emulated()));
    let zeros = || Tensor::<f32>::zeros(&device, &[2]).unwrap();
    let clock = Clock::new(&gpu, &SETTINGS)?;
    assert_error(
        adam::step(&clock, &zeros(), &mut zeros(), &mut zeros(), &mut zeros()),
        "adam.step: clock is on the emulated GPU, expected the CPU like the other tensors; `Tensor::to` moves it",
    )
}

fn rejects_settings_out_of_range() -> Outcome {
    let device = Device::cpu();
    let refused = |settings: Settings, expected: &str| assert_error(Clock::<f32>::new(&device, &settings), expected);
    let expected = "adam.settings: learning_rate is -1, expected a finite number of at least 0";
    refused(Settings { learning_rate: -1.0, ..SETTINGS }, expected)?;
    let expected = "adam.settings: epsilon is NaN, expected a finite number of at least 0";
    refused(Settings { epsilon: f64::NAN, ..SETTINGS }, expected)?;
    let expected = "adam.settings: weight_decay is inf, expected a finite number of at least 0";
    refused(Settings { weight_decay: f64::INFINITY, ..SETTINGS }, expected)?;
    let expected = "adam.settings: betas is 1, expected at least 0 and less than 1";
    refused(Settings { betas: [0.9, 1.0], ..SETTINGS }, expected)
}
