//! Layers, loss and optimisers together: the first steps of a training on the CPU and on a GPU.

use ferrolayer::nn::{
    Adam, Dense, Flatten, GaussianPool, Gaussians, Layer, MaxPool, Mode, Optimiser, Prelu, Residual, ScaleAdd,
    Sequential, Sgd, SoftmaxCrossEntropy,
};
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::testing::assert_close;
use ferrolayer::{Compute, Device, Result, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = on_each_gpu("training::first_losses_match_cpu", |gpu| {
        let small = Sizes { batch: 3, side: 6, gaussians: 2, hidden: 5, steps: 3 };
        first_losses_match_cpu(gpu, small)
    });
    tests.push(on_real_gpu("training::first_losses_of_the_digits_network_match_cpu", |gpu| {
        first_losses_match_cpu(gpu, Sizes { batch: 16, side: 8, gaussians: 8, hidden: 64, steps: 20 })
    }));
    tests
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    side: usize,
    gaussians: usize,
    hidden: usize,
    steps: usize,
}

const CLASSES: usize = 10;
/// The Gaussians' windows are 5 x 5.
const WINDOW: usize = 5;

impl Sizes {
    /// The digits example's network, with a way around one more layer.
    fn network<T: Compute>(&self, device: &Device) -> Result<Sequential<T>> {
        let window = Window::new([WINDOW; 2]).stride([1, 1]).padding([2, 2]);
        let gaussians = Gaussians::scattered(device, [1, self.gaussians], &window, 0.5, true, 1)?;
        let around = Dense::builder(self.hidden, self.hidden).relu().seed(3).build(device)?;
        Ok(Sequential::new()
            .then(GaussianPool::learnt(gaussians, window, Normalize::Window)?)
            .then(ScaleAdd::new(device, T::of(2.0), T::of(-0.5))?)
            .then(Prelu::new(device, self.gaussians, 0.25)?)
            .then(MaxPool::new(Window::new([2, 2])))
            .then(Flatten::new())
            .then(Dense::builder(self.features(), self.hidden).prelu_per_output(0.25).seed(2).build(device)?)
            .then(Residual::new(around))
            .then(Dense::builder(self.hidden, CLASSES).seed(4).build(device)?))
    }

    fn features(&self) -> usize {
        self.gaussians * (self.side / 2) * (self.side / 2)
    }

    /// A batch of images of grey values from 0 to 1 with digits, another one each step.
    fn batch<T: Compute>(&self, device: &Device, step: usize) -> Result<(Tensor<T>, Tensor<u32>)> {
        let shape = [self.batch, 1, self.side, self.side];
        // Drawn as f32 also for f64: the same images.
        let grey =
            normal::<f32>(step as u64, shape.iter().product()).into_iter().map(|v| T::of(f64::from(v.abs().min(1.0))));
        let labels =
            normal::<f64>(1000 + step as u64, self.batch).into_iter().map(|v| (v.abs() * 1e6) as u32 % CLASSES as u32);
        let images = Tensor::from_vec(device, &shape, grey.collect())?;
        Ok((images, Tensor::from_vec(device, &[self.batch], labels.collect())?))
    }

    /// The roundings on the longest way to a loss: the terms of the sums on the way forward, and on it and back once for
    /// each step before.
    fn terms(&self, step: usize) -> usize {
        let forward = WINDOW * WINDOW + self.features() + 2 * self.hidden + CLASSES + self.batch;
        // Parameters' gradients sum over the batch, those of the Gaussians over the pixels too.
        let backward = CLASSES + 2 * self.hidden + self.batch * self.side * self.side;
        forward + step * (forward + backward)
    }
}

/// One step's loss, before the step.
fn step<T: Compute>(
    network: &mut Sequential<T>,
    optimiser: &mut dyn Optimiser<T>,
    (images, labels): &(Tensor<T>, Tensor<u32>),
) -> Result<T> {
    let mut loss = SoftmaxCrossEntropy::new();
    network.zero_grad();
    let scores = network.forward(images, Mode::Train)?;
    let value = loss.forward(&scores, labels, Mode::Train)?;
    network.backward_parameters(&loss.backward()?)?;
    optimiser.step(network)?;
    Ok(value.to_vec()?[0])
}

/// How large the terms of a loss are: what the network gives with every parameter, and every slope, replaced by its
/// magnitude, so that nothing cancels. The loss moves with the scores by at most twice their largest error.
fn magnitude(sizes: Sizes, network: &Sequential<f64>, images: &Tensor<f64>) -> Result<f64> {
    let mut bound = sizes.network::<f64>(&Device::cpu())?;
    for ((name, bound), (_, parameter)) in bound.parameters_mut().into_iter().zip(network.parameters()) {
        let slope = name == "2.weight" || name.ends_with("alpha");
        let values = parameter.value().to_vec()?.into_iter().map(|v| if slope { v.abs().max(1.0) } else { v.abs() });
        // Means and logarithms of variances make weights that are positive already.
        if !name.starts_with("0.") {
            bound.set(&values.collect::<Vec<_>>())?;
        }
    }
    let scores = bound.forward(images, Mode::Eval)?.to_vec()?;
    Ok(1.0 + 2.0 * scores.into_iter().fold(0.0, f64::max))
}

/// Steps are small: an error of a step before moves a loss by no more than one of its own would, which makes all of
/// them roundings of one long sum. The exact losses are an f64 training's.
fn first_losses_match_cpu(gpu: &Device, sizes: Sizes) -> Outcome {
    fn optimisers<T: Compute>() -> [Box<dyn Optimiser<T>>; 2] {
        [Box::new(Sgd::new(0.01).momentum(0.9).weight_decay(1e-3).nesterov()), Box::new(Adam::new(1e-3))]
    }
    let cpu = Device::cpu();
    for (which, name) in ["sgd", "adam"].into_iter().enumerate() {
        let [mut on_cpu, mut on_gpu] = [sizes.network::<f32>(&cpu)?, sizes.network::<f32>(gpu)?];
        let mut exact = sizes.network::<f64>(&cpu)?;
        let [mut cpu_optimiser, mut gpu_optimiser] =
            [0, 1].map(|_| optimisers::<f32>().into_iter().nth(which).unwrap());
        let mut exact_optimiser = optimisers::<f64>().into_iter().nth(which).unwrap();
        for i in 0..sizes.steps {
            let images = sizes.batch(&cpu, i)?;
            let size = magnitude(sizes, &exact, &images.0)?;
            let expected = step(&mut exact, &mut *exact_optimiser, &images)?;
            let got = step(&mut on_gpu, &mut *gpu_optimiser, &sizes.batch(gpu, i)?)?;
            let host = step(&mut on_cpu, &mut *cpu_optimiser, &sizes.batch(&cpu, i)?)?;
            let what = |device: &str| format!("{name}, step {i}: loss on {device}");
            assert_close(&what("the CPU"), &[host], &[expected as f32], sizes.terms(i), &[size])?;
            assert_close(&what("the GPU"), &[got], &[expected as f32], sizes.terms(i), &[size])?;
            assert_close(&what("both"), &[got], &[host], sizes.terms(i), &[size])?;
        }
    }
    Ok(())
}
