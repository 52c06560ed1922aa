//! One step of Adam (Kingma & Ba, ICLR 2015, arXiv 1412.6980; `torch.optim.Adam`'s formula):
//!
//! `g = gradient + weight_decay * value`, `first = beta1 * first + (1 - beta1) * g`,
//! `second = beta2 * second + (1 - beta2) * g²`, `value = value - rate * first / (sqrt(second) * correction + epsilon)`
//! with `rate = learning_rate / (1 - beta1^t)` and `correction = 1 / sqrt(1 - beta2^t)`.
//!
//! `t` is counted on the device, by a kernel of one thread that runs once before the steps of all parameters and leaves
//! `rate` and `correction` for them: a captured graph counts on at each replay, and no parameter's kernel has to compute
//! a power.
//!
//! Launch: the count in one thread; a step in one thread for four elements, [`TILE`] a block.
//! Bound by memory: 28 bytes an element.
//!
//! # Safety
//! `settings` holds [`setting::COUNT`] elements, `rates` [`rate::COUNT`], `count` one, every other buffer `n`, and all
//! begin at multiples of 16 bytes; the grid covers `n`.

use cuda_std::prelude::*;

use crate::elementwise::for_each4;
pub use crate::elementwise::{BLOCK, TILE};

/// Which element of the settings is what.
pub mod setting {
    /// The factor of the step.
    pub const LEARNING_RATE: usize = 0;
    /// The share of the first moment that is kept.
    pub const BETA1: usize = 1;
    /// The share of the second moment that is kept.
    pub const BETA2: usize = 2;
    /// `1 - beta1`, of the beta before it was rounded.
    pub const ONE_MINUS_BETA1: usize = 3;
    /// `1 - beta2`, of the beta before it was rounded.
    pub const ONE_MINUS_BETA2: usize = 4;
    /// The natural logarithm of beta1.
    pub const LOG_BETA1: usize = 5;
    /// The natural logarithm of beta2.
    pub const LOG_BETA2: usize = 6;
    /// What is added to the divisor.
    pub const EPSILON: usize = 7;
    /// The factor of the value that is added to its gradient.
    pub const WEIGHT_DECAY: usize = 8;
    /// How many there are.
    pub const COUNT: usize = 9;
}

/// Which element of the rates, which [`AdamAdvanceF32`] renews, is what.
pub mod rate {
    /// `learning_rate / (1 - beta1^t)`.
    pub const STEP: usize = 0;
    /// `1 / sqrt(1 - beta2^t)`.
    pub const CORRECTION: usize = 1;
    /// How many there are.
    pub const COUNT: usize = 2;
}

/// Counts a step and renews the rates; a grid of one block.
///
/// # Safety
/// The module's.
#[kernel(block = 1)]
pub unsafe fn adam_advance_f32(settings: Global<f32>, count: GlobalMut<u32>, rates: GlobalMut<f32>) {
    // SAFETY: the lengths are the module's contract, and there is one thread.
    unsafe {
        let steps = count.load(0) + 1;
        count.store(0, steps);
        // 1 - beta^t, without the cancellation that this form has for a beta near 1.
        let rest = |log_beta: usize| -float::exp_m1(steps as f32 * settings.load(log_beta));
        rates.store(rate::STEP, settings.load(setting::LEARNING_RATE) / rest(setting::LOG_BETA1));
        rates.store(rate::CORRECTION, 1.0 / float::sqrt(rest(setting::LOG_BETA2)));
    }
}

/// One step of a parameter of `n` elements.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn adam_step_f32(
    settings: Global<f32>,
    rates: Global<f32>,
    gradient: Global<f32>,
    value: GlobalMut<f32>,
    first: GlobalMut<f32>,
    second: GlobalMut<f32>,
    n: u64,
) {
    // SAFETY: the lengths are the module's contract.
    let (beta1, beta2, share1, share2, epsilon, decay, step, correction) = unsafe {
        (
            settings.load(setting::BETA1),
            settings.load(setting::BETA2),
            settings.load(setting::ONE_MINUS_BETA1),
            settings.load(setting::ONE_MINUS_BETA2),
            settings.load(setting::EPSILON),
            settings.load(setting::WEIGHT_DECAY),
            rates.load(rate::STEP),
            rates.load(rate::CORRECTION),
        )
    };
    let decayed = |gradient: f32, value: f32| float::fma(decay, value, gradient);
    let first_moment = |moment: f32, gradient: f32| float::fma(beta1, moment, share1 * gradient);
    let second_moment = |moment: f32, gradient: f32| float::fma(beta2, moment, share2 * (gradient * gradient));
    let direction = |first: f32, second: f32| first / float::fma(float::sqrt(second), correction, epsilon);
    let moved = |value: f32, direction: f32| float::fma(-step, direction, value);
    for_each4(
        n,
        // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
        |i| unsafe {
            let old = value.load4(i);
            let gradient = gradient.load4(i).zip_with(old, decayed);
            let new_first = first.load4(i).zip_with(gradient, first_moment);
            let new_second = second.load4(i).zip_with(gradient, second_moment);
            first.store4(i, new_first);
            second.store4(i, new_second);
            value.store4(i, old.zip_with(new_first.zip_with(new_second, direction), moved));
        },
        // SAFETY: `i < n`.
        |i| unsafe {
            let old = value.load(i);
            let gradient = decayed(gradient.load(i), old);
            let (new_first, new_second) =
                (first_moment(first.load(i), gradient), second_moment(second.load(i), gradient));
            first.store(i, new_first);
            second.store(i, new_second);
            value.store(i, moved(old, direction(new_first, new_second)));
        },
    );
}
