//! Stochastic gradient descent.

use ferrolayer::ops::sgd::{self, Settings};
use ferrolayer::testing::assert_close;
use ferrolayer::{Compute, Device, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("sgd::matches_the_formula", matches_the_formula),
        on_cpu("sgd::rejects_other_shapes", rejects_other_shapes),
        on_cpu("sgd::rejects_settings_out_of_range", rejects_settings_out_of_range),
    ];
    tests.extend(on_each_gpu("sgd::matches_cpu", matches_cpu));
    tests.extend(on_each_gpu("sgd::reads_new_settings", reads_new_settings));
    tests
}

const SETTINGS: Settings = Settings { learning_rate: 0.1, momentum: 0.9, weight_decay: 0.01 };

/// With or without a velocity, and Nesterov's momentum.
const KINDS: [(bool, bool); 3] = [(false, false), (true, false), (true, true)];

/// Value and velocity after one step.
fn step<T: Compute>(
    device: &Device,
    [value, velocity, gradient]: [&[T]; 3],
    (with_velocity, nesterov): (bool, bool),
) -> Result<[Tensor<T>; 2], Failed> {
    let tensor = |values: &[T]| Tensor::from_slice(device, &[values.len()], values);
    let (mut value, mut velocity) = (tensor(value)?, tensor(velocity)?);
    let kept = with_velocity.then_some(&mut velocity);
    sgd::step(&SETTINGS.to_tensor(device)?, &tensor(gradient)?, &mut value, kept, nesterov)?;
    Ok([value, velocity])
}

fn inputs<T: Compute>(len: usize) -> [Vec<T>; 3] {
    [1, 2, 3].map(|seed| normal(seed + len as u64, len))
}

/// The three lines of `torch.optim.SGD`'s documentation, one number at a time.
fn matches_the_formula() -> Outcome {
    let [value, velocity, gradient] = inputs::<f64>(37);
    for (with_velocity, nesterov) in KINDS {
        let got = step(&Device::cpu(), [&value, &velocity, &gradient], (with_velocity, nesterov))?;
        let [new_value, new_velocity] = [got[0].to_vec()?, got[1].to_vec()?];
        for i in 0..value.len() {
            let mut g = gradient[i] + SETTINGS.weight_decay * value[i];
            let mut b = velocity[i];
            if with_velocity {
                b = SETTINGS.momentum * b + g;
                g = if nesterov { g + SETTINGS.momentum * b } else { b };
            }
            assert!((new_velocity[i] - b).abs() < 1e-14, "{} {b}", new_velocity[i]);
            let expected = value[i] - SETTINGS.learning_rate * g;
            assert!((new_value[i] - expected).abs() < 1e-14, "{} {expected}", new_value[i]);
        }
    }
    Ok(())
}

fn matches_cpu(gpu: &Device) -> Outcome {
    for len in [0, 1, 3, 4, 1024, 1027, 2050] {
        let [value, velocity, gradient] = inputs::<f32>(len);
        let all: [&[f32]; 3] = [&value, &velocity, &gradient];
        // Every number counts with a factor below 2.
        let sizes: Vec<f64> =
            (0..len).map(|i| all.iter().map(|values| 2.0 * f64::from(values[i].abs())).sum()).collect();
        for kind in KINDS {
            let (expected, got, again) =
                (step(&Device::cpu(), all, kind)?, step(gpu, all, kind)?, step(gpu, all, kind)?);
            for (i, what) in ["value", "velocity"].into_iter().enumerate() {
                assert_close(what, &got[i].to_vec()?, &expected[i].to_vec()?, 4, &sizes)?;
                assert_same_bits(what, &again[i], &got[i])?;
            }
        }
    }
    Ok(())
}

fn reads_new_settings(device: &Device) -> Outcome {
    let mut settings = Settings { learning_rate: 0.5, momentum: 0.0, weight_decay: 0.0 };
    let (mut tensor, gradient) = (settings.to_tensor(device)?, Tensor::full(device, &[5], 1.0f32)?);
    let mut value = Tensor::full(device, &[5], 2.0f32)?;
    sgd::step(&tensor, &gradient, &mut value, None, false)?;
    assert_eq!(value.to_vec()?, [1.5; 5]);
    settings.learning_rate = 0.25;
    settings.write_to(&mut tensor)?;
    sgd::step(&tensor, &gradient, &mut value, None, false)?;
    assert_eq!(value.to_vec()?, [1.25; 5]);
    Ok(())
}

fn rejects_other_shapes() -> Outcome {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::<f32>::zeros(&device, shape).unwrap();
    let settings = SETTINGS.to_tensor(&device)?;
    let result = sgd::step(&settings, &zeros(&[3]), &mut zeros(&[2]), None, false);
    assert_error(result, "sgd.step: gradient has shape [3], expected [2]")?;
    let result = sgd::step(&settings, &zeros(&[2]), &mut zeros(&[2]), Some(&mut zeros(&[1])), false);
    assert_error(result, "sgd.step: velocity has shape [1], expected [2]")?;
    let result = sgd::step(&zeros(&[2]), &zeros(&[2]), &mut zeros(&[2]), None, false);
    assert_error(result, "sgd.step: settings has shape [2], expected [3]")
}

fn rejects_settings_out_of_range() -> Outcome {
    let device = Device::cpu();
    let refused = |settings: Settings, expected: &str| assert_error(settings.to_tensor::<f32>(&device), expected);
    let expected = "sgd.settings: learning_rate is -1, expected a finite number of at least 0";
    refused(Settings { learning_rate: -1.0, ..SETTINGS }, expected)?;
    let expected = "sgd.settings: momentum is inf, expected a finite number of at least 0";
    refused(Settings { momentum: f64::INFINITY, ..SETTINGS }, expected)?;
    let expected = "sgd.settings: weight_decay is NaN, expected a finite number of at least 0";
    refused(Settings { weight_decay: f64::NAN, ..SETTINGS }, expected)
}
