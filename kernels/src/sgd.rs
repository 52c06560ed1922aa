//! One step of stochastic gradient descent with momentum (`torch.optim.SGD`'s formula):
//!
//! `g = gradient + weight_decay * value`, `velocity = momentum * velocity + g`,
//! `value = value - learning_rate * velocity`; with Nesterov's momentum the last takes `g + momentum * velocity`, without
//! a velocity `g`.
//!
//! The settings are read when the kernel runs, so that a captured graph sees new ones at its next replay.
//!
//! Launch: one thread for four elements, [`TILE`] a block. Bound by memory: 20 bytes an element
//! with a velocity, 12 without.
//!
//! # Safety
//! `settings` holds [`setting::COUNT`] elements, every other buffer `n`, and all begin at multiples of 16 bytes; the grid
//! covers `n`.

use cuda_std::prelude::*;

use crate::elementwise::for_each4;
pub use crate::elementwise::{BLOCK, TILE};

/// Which element of the settings is what.
pub mod setting {
    /// The factor of the step.
    pub const LEARNING_RATE: usize = 0;
    /// The share of the last velocity that is kept.
    pub const MOMENTUM: usize = 1;
    /// The factor of the value that is added to its gradient.
    pub const WEIGHT_DECAY: usize = 2;
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// One step of a parameter of `n` elements; `nesterov` is 0 or 1.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn sgd_step_f32(
    settings: Global<f32>,
    gradient: Global<f32>,
    value: GlobalMut<f32>,
    velocity: Option<GlobalMut<f32>>,
    nesterov: u32,
    n: u64,
) {
    // SAFETY: the settings' length is the module's contract.
    let (rate, momentum, decay) = unsafe {
        (settings.load(setting::LEARNING_RATE), settings.load(setting::MOMENTUM), settings.load(setting::WEIGHT_DECAY))
    };
    let decayed = |gradient: f32, value: f32| float::fma(decay, value, gradient);
    let moved = |value: f32, step: f32| float::fma(-rate, step, value);
    let Some(velocity) = velocity else {
        for_each4(
            n,
            // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
            |i| unsafe {
                let old = value.load4(i);
                value.store4(i, old.zip_with(gradient.load4(i).zip_with(old, decayed), moved));
            },
            // SAFETY: `i < n`.
            |i| unsafe {
                let old = value.load(i);
                value.store(i, moved(old, decayed(gradient.load(i), old)));
            },
        );
        return;
    };
    let renewed = |velocity: f32, gradient: f32| float::fma(momentum, velocity, gradient);
    // Nesterov's step is the velocity that the next step would have with this gradient.
    let step = |velocity: f32, gradient: f32| if nesterov != 0 { renewed(velocity, gradient) } else { velocity };
    for_each4(
        n,
        // SAFETY: the four elements from `i` on are among the `n`, and `i` is a multiple of 4.
        |i| unsafe {
            let old = value.load4(i);
            let gradient = gradient.load4(i).zip_with(old, decayed);
            let new_velocity = velocity.load4(i).zip_with(gradient, renewed);
            velocity.store4(i, new_velocity);
            value.store4(i, old.zip_with(new_velocity.zip_with(gradient, step), moved));
        },
        // SAFETY: `i < n`.
        |i| unsafe {
            let old = value.load(i);
            let gradient = decayed(gradient.load(i), old);
            let new_velocity = renewed(velocity.load(i), gradient);
            velocity.store(i, new_velocity);
            value.store(i, moved(old, step(new_velocity, gradient)));
        },
    );
}
