//! The network.
//!
//! Its sizes, the learning rate and how images are varied were chosen by the accuracy on parts split off from the images to
//! learn from, not on those that are held back.

use std::collections::HashMap;

use ferrolayer::nn::{Dense, Flatten, GaussianPool, Gaussians, Layer, MaxPool, Prelu, ScaleAdd, Sequential};
use ferrolayer::ops::dense::Init;
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::ops::{Window, exp};
use ferrolayer::{Device, Result, Tensor};

use crate::data::{CLASSES, SIDE};

/// Gaussians, and so feature maps.
pub const GAUSSIANS: usize = 8;
/// Height and width of a Gaussian's window.
pub const WINDOW: usize = 5;

const HIDDEN: usize = 64;
/// The slope that every PReLU begins with: PyTorch's.
const SLOPE: f64 = 0.25;

/// The Gaussians' window over an image: one at each pixel.
pub fn window() -> Window {
    Window::new([WINDOW; 2]).stride([1, 1]).padding([WINDOW / 2; 2])
}

/// The Gaussians that the network of this seed begins with: scattered over the window, each its own width and height.
pub fn gaussians(device: &Device, seed: u64) -> Result<Gaussians<f32>> {
    Gaussians::scattered(device, [1, GAUSSIANS], &window(), 0.5, true, layer_seed(seed, 0))
}

/// From `[N, 1, 8, 8]` to a score for each digit, `[N, 10]`.
///
/// | layer | output |
/// |---|---|
/// | Gaussian pooling, learnt: each map looks at the image through a window of its own | `[N, 8, 8, 8]` |
/// | scale and shift: weighted averages of grey values, 0 to 1, to both sides of zero | |
/// | PReLU with a slope for each map | |
/// | max pooling | `[N, 8, 4, 4]` |
/// | dense with PReLU | `[N, 64]` |
/// | dense | `[N, 10]` |
pub fn network(device: &Device, seed: u64) -> Result<Sequential<f32>> {
    let features = GAUSSIANS * (SIDE / 2) * (SIDE / 2);
    let hidden = Dense::builder(features, HIDDEN).init(Init::KaimingNormal { a: SLOPE }).bias(Init::Constant(0.0));
    let scores = Dense::builder(HIDDEN, CLASSES).bias(Init::Constant(0.0));
    Ok(Sequential::new()
        .then(GaussianPool::learnt(gaussians(device, seed)?, window(), Normalize::Window)?)
        .then(ScaleAdd::new(device, 2.0, -0.5)?)
        .then(Prelu::new(device, GAUSSIANS, SLOPE)?)
        .then(MaxPool::new(Window::new([2, 2])))
        .then(Flatten::new())
        .then(hidden.prelu_per_output(SLOPE).seed(layer_seed(seed, 1)).build(device)?)
        .then(scores.seed(layer_seed(seed, 2)).build(device)?))
}

/// The Gaussians that a network has learnt.
pub fn learnt(network: &Sequential<f32>) -> Result<Gaussians<f32>> {
    let parameters: HashMap<_, _> = network.parameters().into_iter().collect();
    let mean = parameters["0.mean"].value().clone();
    Ok(Gaussians { mean, var: exp::forward(parameters["0.log_var"].value())? })
}

/// What each Gaussian weighs the positions of its window with: its answer to images of one bright pixel each.
pub fn weights(gaussians: &Gaussians<f32>) -> Result<Vec<Vec<f32>>> {
    const POSITIONS: usize = WINDOW * WINDOW;
    let images = (0..POSITIONS * POSITIONS).map(|i| if i / POSITIONS == i % POSITIONS { 1.0 } else { 0.0 }).collect();
    let images = Tensor::from_vec(gaussians.mean.device(), &[POSITIONS, 1, WINDOW, WINDOW], images)?;
    let Gaussians { mean, var } = gaussians;
    let answers = gaussian_pool::forward(&images, mean, var, &Window::new([WINDOW; 2]), Normalize::Window)?.to_vec()?;
    Ok((0..GAUSSIANS).map(|k| answers.iter().skip(k).step_by(GAUSSIANS).copied().collect()).collect())
}

/// No two layers of any two networks draw from the same seed.
fn layer_seed(seed: u64, layer: u64) -> u64 {
    seed * 3 + layer
}
