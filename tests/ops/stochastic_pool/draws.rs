//! What stochastic pooling draws: by the probabilities, the same again, and anew.

use ferrolayer::ops::Window;
use ferrolayer::ops::stochastic_pool::{self, Indices, Random};
use ferrolayer::{Device, Error, Real, Tensor};

use crate::max_pool::{LAYOUTS, positions};
use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("stochastic_pool::draws_by_the_probabilities::over_outputs", draws_over_outputs::<f32>),
        on_cpu("stochastic_pool::draws_by_the_probabilities::over_outputs_in_f64", draws_over_outputs::<f64>),
        on_cpu("stochastic_pool::draws_by_the_probabilities::over_passes", draws_over_passes),
        on_cpu("stochastic_pool::draws_alike_in_both_layouts", draws_alike_in_both_layouts),
        on_cpu("stochastic_pool::draws_again_and_anew", || draws_again_and_anew(&Device::cpu())),
        on_cpu("stochastic_pool::draws_at_a_state_and_leaves_it", || draws_at_a_state(&Device::cpu())),
    ];
    tests.extend(on_each_gpu("stochastic_pool::draws_again_and_anew", draws_again_and_anew));
    tests.extend(on_each_gpu("stochastic_pool::draws_at_a_state_and_leaves_it", draws_at_a_state));
    tests
}

/// Pearson's statistic of how often each position was drawn, against the weights'.
fn chi_squared(counts: &[u64], weights: &[f64]) -> f64 {
    let (draws, sum): (u64, f64) = (counts.iter().sum(), weights.iter().sum());
    let expected = weights.iter().map(|weight| weight / sum * draws as f64);
    counts.iter().zip(expected).map(|(count, expected)| (*count as f64 - expected).powi(2) / expected).sum()
}

/// What a statistic with an even number of degrees of freedom passes with this probability: the survival function is
/// `exp(-x/2) sum (x/2)^i / i!` over `i < freedom / 2`.
fn chi_squared_bound(freedom: u32, probability: f64) -> f64 {
    assert!(freedom.is_multiple_of(2));
    let survival = |x: f64| {
        let terms = (1..freedom / 2).scan(1.0, |term, i| {
            *term *= x / 2.0 / f64::from(i);
            Some(*term)
        });
        (-x / 2.0).exp() * (1.0 + terms.sum::<f64>())
    };
    let (mut low, mut high) = (0.0, 1000.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        *if survival(middle) > probability { &mut low } else { &mut high } = middle;
    }
    high
}

/// Nine elements of a window, all above zero; and what is between them, which is not drawn.
const WEIGHTS: [f64; 9] = [1.0, 7.0, 0.25, 3.0, 5.0, 2.0, 0.5, 4.0, 9.0];

fn assert_drawn_by_weights(counts: &[u64]) {
    let (statistic, bound) = (chi_squared(counts, &WEIGHTS), chi_squared_bound(8, 1e-6));
    assert!(counts.iter().sum::<u64>() >= 1_000_000 && statistic < bound, "{statistic} of {bound}: {counts:?}");
    // The bound is one that wrong probabilities pass: by equal ones it would be.
    assert!(chi_squared(counts, &[1.0; 9]) > bound);
}

/// A million windows in one pass.
fn draws_over_outputs<T: Real>() -> Outcome {
    // Between the windows' elements, which are two apart, others that must not count.
    let (height, width) = (3 * 1000, 5 * 1000);
    let element = |i: usize| {
        let (row, column) = (i / width % 3, i % width % 5);
        if column < 3 { T::of(WEIGHTS[row * 3 + column]) } else { T::of(1e6) }
    };
    let x = Tensor::from_vec(&Device::cpu(), &[1, 1, height, width], (0..height * width).map(element).collect())?;
    let window = Window::new([3, 3]).stride([3, 5]);
    let indices = stochastic_pool::forward(&x, &window, &mut Random::new(&Device::cpu(), 11)?)?.indices;
    let mut counts = [0; 9];
    positions(&indices)?.into_iter().for_each(|position| counts[position as usize] += 1);
    assert_drawn_by_weights(&counts);
    Ok(())
}

/// A few windows in each of many passes.
fn draws_over_passes() -> Outcome {
    let (cpu, outputs) = (Device::cpu(), 256);
    let row = |i: usize| WEIGHTS[i * 3..][..3].repeat(outputs);
    let values: Vec<f32> = (0..3).flat_map(row).map(|v| v as f32).collect();
    let x = Tensor::from_vec(&cpu, &[1, 1, 3, 3 * outputs], values)?;
    let mut random = Random::new(&cpu, 12)?;
    let mut counts = [0; 9];
    for _ in 0..4096 {
        let indices = stochastic_pool::forward(&x, &Window::new([3, 3]), &mut random)?.indices;
        positions(&indices)?.into_iter().for_each(|position| counts[position as usize] += 1);
    }
    assert_drawn_by_weights(&counts);
    Ok(())
}

fn draws_alike_in_both_layouts() -> Outcome {
    let cpu = Device::cpu();
    let x = normal_tensor::<f32>(&cpu, 1, &[2, 5, 12, 14]);
    let window = Window::new([3, 3]).stride([2, 2]).padding([1, 1]);
    let [rows, last] = LAYOUTS.map(|layout| {
        let random = &mut Random::new(&cpu, 5)?;
        stochastic_pool::forward(&x.to_layout(layout)?, &window, random)
    });
    let (rows, last) = (rows?, last?);
    assert_same_bits("y", &last.y, &rows.y)?;
    assert_eq!(positions(&last.indices)?, positions(&rows.indices)?);
    Ok(())
}

/// The same seed and offset draw the same, another of either something else; a state goes on where it is told to.
fn draws_again_and_anew(device: &Device) -> Outcome {
    let x = Tensor::full(device, &[2, 3, 16, 16], 1.0f32)?;
    let window = Window::new([4, 4]);
    let draw = |random: &mut Random| positions(&stochastic_pool::forward(&x, &window, random)?.indices);
    let mut random = Random::new(device, 42)?;
    let (first, second) = (draw(&mut random)?, draw(&mut random)?);
    assert_ne!(first, second);
    assert_eq!((random.seed()?, random.offset()?), (42, 2));
    assert_eq!(draw(&mut Random::new(device, 42)?)?, first);
    assert_eq!(draw(&mut Random::at(device, 42, 1)?)?, second);
    assert_ne!(draw(&mut Random::new(device, 43)?)?, first);
    // A clone has a state of its own, from where it was made on.
    let mut clone = random.clone();
    let third = draw(&mut random)?;
    assert_eq!(draw(&mut clone)?, third);
    assert_eq!((random.offset()?, clone.offset()?), (3, 3));
    // Inference draws nothing, and counts nothing.
    stochastic_pool::forward_inference(&x, &window)?;
    assert_eq!(random.offset()?, 3);
    Ok(())
}

/// The draws of `Random` with that seed and offset, as often as asked for.
fn draws_at_a_state(device: &Device) -> Outcome {
    const STATE: [u64; 2] = [0x1234_5678_9ABC_DEF0, 0xFFFF_FFFF];
    let x = normal_tensor::<f32>(device, 1, &[2, 3, 4, 5]);
    let window = Window::new([2, 3]).stride([1, 2]);
    let expected = stochastic_pool::forward(&x, &window, &mut Random::at(device, STATE[0], STATE[1])?)?;
    let state = Tensor::from_slice(device, &[2], &STATE)?;
    for _ in 0..2 {
        let got = stochastic_pool::forward_at(&x, &window, &state)?;
        assert_same_bits("y", &got.y, &expected.y)?;
        let (Indices::U8(got), Indices::U8(expected)) = (&got.indices, &expected.indices) else { panic!("one byte") };
        assert_same_bits("indices", got, expected)?;
        assert_eq!(state.to_vec()?, STATE);
    }
    let long = Tensor::from_slice(device, &[3], &[0u64; 3])?;
    assert_error(
        stochastic_pool::forward_at(&x, &window, &long),
        "stochastic_pool.forward_at: state has shape [3], expected [2]",
    )?;
    let elsewhere = stochastic_pool::forward_at(&x, &window, &state.to(&Device::Shapes)?);
    assert!(matches!(elsewhere, Err(Error::Device { argument: "state", .. })));
    Ok(())
}
