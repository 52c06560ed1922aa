//! A whole training step as a CUDA graph: `cargo run --release --example graph`, on a machine with a GPU.
//!
//! Records one step of a small network (forward, loss, backward, SGD), replays it with new batches, learning rates and
//! constants, and prints microseconds per step queued one by one and replayed. Then it gives one kernel of a recorded pass
//! new arguments.

use std::process::ExitCode;
use std::time::Instant;

use ferrolayer::device::Gpu;
use ferrolayer::nn::{
    Dense, Flatten, GaussianPool, Gaussians, Layer, MaxPool, Mode, Optimiser, Prelu, ScaleAdd, Sequential, Sgd,
    SoftmaxCrossEntropy,
};
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::ops::{Window, scale_add};
use ferrolayer::{Device, Out, Result, Tensor};

const BATCH: usize = 64;
const STEPS: u32 = 500;

fn main() -> ExitCode {
    match Gpu::new(0).and_then(|gpu| run(&gpu)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("graph: {error}");
            ExitCode::from(2)
        }
    }
}

fn network(device: &Device) -> Result<Sequential<f32>> {
    let window = Window::new([5, 5]).stride([1, 1]).padding([2, 2]);
    let gaussians = Gaussians::scattered(device, [1, 4], &window, 0.5, true, 1)?;
    Ok(Sequential::new()
        .then(ScaleAdd::new(device, 1.0, 0.0)?)
        .then(GaussianPool::learnt(gaussians, window, Normalize::Window)?)
        .then(Prelu::new(device, 4, 0.25)?)
        .then(MaxPool::new(Window::new([2, 2])))
        .then(Flatten::new())
        .then(Dense::builder(64, 64).prelu_per_output(0.25).seed(2).build(device)?)
        .then(Dense::builder(64, 10).seed(4).build(device)?))
}

fn run(gpu: &Gpu) -> Result<()> {
    let device = Device::Gpu(gpu.clone());
    let mut network = network(&device)?;
    let mut optimiser = Sgd::new(0.001).momentum(0.9);
    let mut images = Tensor::zeros(&device, &[BATCH, 1, 8, 8])?;
    let labels = Tensor::from_vec(&device, &[BATCH], (0..BATCH as u32).map(|i| i % 10).collect())?;
    let batch =
        |step: u32| -> Vec<f32> { (0..BATCH as u32 * 64).map(|i| ((i * 37 + step * 11) % 97) as f32 / 97.0).collect() };

    let step = |network: &mut Sequential<f32>, optimiser: &mut Sgd<f32>, images: &Tensor<f32>| {
        let mut loss = SoftmaxCrossEntropy::new();
        network.zero_grad();
        let scores = network.forward(images, Mode::Train)?;
        let value = loss.forward(&scores, &labels, Mode::Train)?;
        network.backward_parameters(&loss.backward()?)?;
        optimiser.step(network)?;
        Ok(value)
    };
    let microseconds = |start: Instant| start.elapsed().as_secs_f64() * 1e6 / f64::from(STEPS);

    images.copy_from_slice(&batch(0))?;
    for _ in 0..20 {
        step(&mut network, &mut optimiser, &images)?;
    }
    gpu.synchronize()?;
    let start = Instant::now();
    for _ in 0..STEPS {
        step(&mut network, &mut optimiser, &images)?;
    }
    gpu.synchronize()?;
    let eager = microseconds(start);

    let (mut graph, loss) = gpu.record(|| step(&mut network, &mut optimiser, &images))?;
    graph.replay()?;
    gpu.synchronize()?;
    let start = Instant::now();
    for _ in 0..STEPS {
        graph.replay()?;
    }
    gpu.synchronize()?;
    let replayed = microseconds(start);
    println!("{} kernels a step: {eager:.1} us queued one by one, {replayed:.1} us replayed", graph.kernels().len());

    // What changes lives in device memory: the batch, the learning rate, the scale. Nothing is recorded again.
    for number in 1..4 {
        images.copy_from_slice(&batch(number))?;
        optimiser.set_learning_rate(0.001 / f64::from(number));
        optimiser.write_settings()?;
        for (name, parameter) in network.parameters_mut() {
            if name == "0.scale" {
                parameter.set(&[1.0 + 0.1 * number as f32])?;
            }
        }
        graph.replay()?;
        println!("batch {number}: loss {:.4}", loss.to_vec()?[0]);
    }

    // Arguments that launches pass by value are changed in the graph itself.
    let (dy, scale) = (Tensor::full(&device, &[4], 1.0f32)?, Tensor::full(&device, &[1], 3.0f32)?);
    let mut dx = Tensor::full(&device, &[4], 10.0f32)?;
    let (mut graph, ()) = gpu.record(|| scale_add::backward(&dy, &scale, Out::write(&mut dx)))?;
    graph.replay()?;
    println!("dx = dy * 3: {:?}", dx.to_vec()?);
    graph.update(0, || scale_add::backward(&dy, &scale, Out { tensor: &mut dx, beta: 2.0 }))?;
    graph.replay()?;
    println!("dx = dy * 3 + 2 * dx: {:?}", dx.to_vec()?);
    Ok(())
}
