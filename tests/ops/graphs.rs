//! Recorded passes: replays against the same passes queued one by one, with everything changed in between that may change.

use ferrolayer::device::{Gpu, Graph};
use ferrolayer::nn::{
    Dense, Flatten, GaussianPool, Gaussians, Layer, MaxPool, Mode, Optimiser, Prelu, ScaleAdd, Sequential, Sgd,
    SoftmaxCrossEntropy,
};
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::ops::stochastic_pool::{self, Random};
use ferrolayer::ops::{Window, relu, scale_add};
use ferrolayer::{Device, Error, Out, Result, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    vec![
        on_cpu("graphs::the_emulated_gpu_has_none", the_emulated_gpu_has_none),
        on_real_gpu("graphs::replays_are_eager_steps", replays_are_eager_steps),
        on_real_gpu("graphs::replays_draw_anew", replays_draw_anew),
        on_real_gpu("graphs::kernels_get_new_arguments", kernels_get_new_arguments),
        on_real_gpu("graphs::updates_share_no_memory_with_other_kernels", updates_share_no_memory_with_other_kernels),
        on_real_gpu("graphs::outlive_the_tensors_they_use", outlive_the_tensors_they_use),
        on_real_gpu("graphs::refuse_what_they_cannot_hold", refuse_what_they_cannot_hold),
        on_real_gpu(
            "graphs::a_failed_recording_leaves_the_stream_as_it_was",
            a_failed_recording_leaves_the_stream_as_it_was,
        ),
    ]
}

fn gpu(device: &Device) -> &Gpu {
    match device {
        Device::Gpu(gpu) => gpu,
        _ => unreachable!("a test on a GPU"),
    }
}

fn the_emulated_gpu_has_none() -> Outcome {
    let result = Gpu::emulated().record(|| Ok(()));
    assert_error(result, "Gpu::record: self is the emulated GPU, expected a GPU with a driver")
}

const CLASSES: usize = 10;
const BATCH: usize = 6;

/// A network of every kind of layer, its optimiser, and the batch that it is trained on.
struct Training {
    network: Sequential<f32>,
    optimiser: Sgd<f32>,
    images: Tensor<f32>,
    labels: Tensor<u32>,
}

impl Training {
    fn new(device: &Device) -> Result<Self> {
        let window = Window::new([5, 5]).stride([1, 1]).padding([2, 2]);
        let gaussians = Gaussians::scattered(device, [1, 4], &window, 0.5, true, 1)?;
        let network = Sequential::new()
            .then(GaussianPool::learnt(gaussians, window, Normalize::Valid)?)
            .then(ScaleAdd::new(device, 2.0, -0.5)?)
            .then(Prelu::new(device, 4, 0.25)?)
            .then(MaxPool::new(Window::new([2, 2])))
            .then(Flatten::new())
            .then(Dense::builder(4 * 4 * 4, 33).prelu_per_output(0.25).seed(2).build(device)?)
            .then(Dense::builder(33, CLASSES).seed(4).build(device)?);
        Ok(Self {
            network,
            optimiser: Sgd::new(0.05).momentum(0.9),
            images: Tensor::zeros(device, &[BATCH, 1, 8, 8])?,
            labels: Tensor::zeros(device, &[BATCH])?,
        })
    }

    fn step(&mut self) -> Result<Tensor<f32>> {
        let mut loss = SoftmaxCrossEntropy::new();
        self.network.zero_grad();
        let scores = self.network.forward(&self.images, Mode::Train)?;
        let value = loss.forward(&scores, &self.labels, Mode::Train)?;
        self.network.backward_parameters(&loss.backward()?)?;
        self.optimiser.step(&mut self.network)?;
        Ok(value)
    }

    /// What a user changes between steps, another way for each.
    fn change(&mut self, step: u64) -> Result<()> {
        self.images.copy_from_slice(&normal(step, self.images.len()))?;
        let labels: Vec<u32> = normal::<f64>(100 + step, BATCH).iter().map(|v| (v.abs() * 1e6) as u32 % 10).collect();
        self.labels.copy_from_slice(&labels)?;
        self.optimiser.set_learning_rate(0.05 / (1 + step) as f64);
        self.optimiser.write_settings()?;
        for (name, parameter) in self.network.parameters_mut() {
            // Gaussians' means and variances, the scale's constants, slopes: moved by hand now and then.
            let mine = ["0.", "1.", "2."].iter().position(|prefix| name.starts_with(prefix));
            if mine.is_some_and(|mine| mine as u64 == step % 4) {
                let moved: Vec<f32> = parameter.value().to_vec()?.iter().map(|v| v * 0.75 + 0.125).collect();
                parameter.set(&moved)?;
            }
        }
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<(String, Vec<u32>)>> {
        let parameters = self.network.parameters().into_iter();
        parameters
            .map(|(name, parameter)| Ok((name, parameter.value().to_vec()?.into_iter().map(f32::to_bits).collect())))
            .collect()
    }
}

fn replays_are_eager_steps(device: &Device) -> Outcome {
    let (mut eager, mut recorded) = (Training::new(device)?, Training::new(device)?);
    // The first step makes what later ones reuse: gradients, velocities, the optimiser's settings.
    for training in [&mut eager, &mut recorded] {
        training.change(0)?;
        training.step()?;
    }
    let before = recorded.parameters()?;
    let (mut graph, loss) = gpu(device).record(|| recorded.step())?;
    assert_eq!(recorded.parameters()?, before, "recording runs nothing");
    for step in 1..12 {
        eager.change(step)?;
        recorded.change(step)?;
        let expected = eager.step()?;
        graph.replay()?;
        assert_same_bits(&format!("loss of step {step}"), &loss, &expected)?;
        assert_eq!(recorded.parameters()?, eager.parameters()?, "parameters after step {step}");
    }
    Ok(())
}

/// The random state is in device memory, and a kernel moves it on: each replay draws what the next eager pass would.
fn replays_draw_anew(device: &Device) -> Outcome {
    let window = Window::new([3, 3]).stride([2, 2]).padding([1, 1]);
    let x = normal_tensor::<f32>(device, 1, &[2, 3, 31, 33]);
    let [mut eager, mut recorded] = [Random::new(device, 9)?, Random::new(device, 9)?];
    let (mut graph, drawn) = gpu(device).record(|| stochastic_pool::forward(&x, &window, &mut recorded))?;
    let mut last = Vec::new();
    for replay in 0..5 {
        let expected = stochastic_pool::forward(&x, &window, &mut eager)?;
        graph.replay()?;
        assert_same_bits(&format!("replay {replay}"), &drawn.y, &expected.y)?;
        let drawn = drawn.y.to_vec()?;
        assert!(drawn != last, "replay {replay} drew what the last one did");
        last = drawn;
    }
    Ok(())
}

fn kernels_get_new_arguments(device: &Device) -> Outcome {
    let x = normal_tensor::<f32>(device, 1, &[1000]);
    let [s, t] = [3.0, -2.0].map(|v| Tensor::full(device, &[1], v).unwrap());
    let mut dx = Tensor::zeros(device, &[1000])?;
    let (mut graph, y) = gpu(device).record(|| {
        let y = relu::forward(&x)?;
        scale_add::backward(&y, &s, Out::write(&mut dx))?;
        Ok(y)
    })?;
    assert_eq!(graph.kernels().collect::<Vec<_>>(), ["relu_forward_f32", "scale_add_backward_f32"]);
    graph.replay()?;
    let expected: Vec<f32> = x.to_vec()?.iter().map(|x| x.max(0.0) * 3.0).collect();
    assert_eq!(dx.to_vec()?, expected);
    // Another scale, and beta.
    graph.update(1, || scale_add::backward(&y, &t, Out { tensor: &mut dx, beta: 2.0 }))?;
    graph.replay()?;
    let expected: Vec<f32> = expected.iter().map(|v| v * 2.0 + v / 3.0 * -2.0).collect();
    for (got, expected) in dx.to_vec()?.iter().zip(&expected) {
        assert!((got - expected).abs() <= 1e-5 * expected.abs(), "{got} {expected}");
    }
    // A kernel that is not the recorded one is refused, and the graph works on.
    let error = graph.update(0, || scale_add::backward(&y, &t, Out::write(&mut dx))).unwrap_err().to_string();
    assert!(error.contains("a launch of scale_add_backward_f32, expected relu_forward_f32"), "{error}");
    let error = graph.update(2, || relu::forward(&x)).unwrap_err().to_string();
    assert!(error.contains("expected no more: the graph has 2 kernels"), "{error}");
    graph.replay()?;
    Ok(device.synchronize()?)
}

/// A tensor that an update makes is its own: no other kernel of the graph writes to its memory.
fn updates_share_no_memory_with_other_kernels(device: &Device) -> Outcome {
    let x = normal_tensor::<f32>(device, 1, &[4096]);
    let [one, two] = [1.0, 2.0].map(|v| Tensor::full(device, &[1], v).unwrap());
    let zero = Tensor::full(device, &[1], 0.0f32)?;
    // The second pass' result is dropped while the third is recorded: its memory is free, and written at each replay.
    let (mut graph, (first, _third)) = gpu(device).record(|| {
        let first = relu::forward(&x)?;
        let second = scale_add::forward(&x, &one, &one)?;
        drop(second);
        Ok((first, scale_add::forward(&x, &two, &one)?))
    })?;
    let rectified = graph.update(0, || relu::forward(&x))?;
    drop(graph.update(1, || scale_add::forward(&x, &one, &zero))?);
    let other = graph.update(1, || scale_add::forward(&x, &two, &zero))?;
    graph.replay()?;
    let expected = |f: fn(f32) -> f32| x.to_vec().map(|x| x.into_iter().map(f).collect::<Vec<_>>());
    assert_eq!(rectified.to_vec()?, expected(|x| x.max(0.0))?);
    assert_eq!(other.to_vec()?, expected(|x| x * 2.0)?);
    drop(first);
    Ok(())
}

fn outlive_the_tensors_they_use(device: &Device) -> Outcome {
    let record = || -> Result<(Graph, Tensor<f32>)> {
        let x = normal_tensor::<f32>(device, 2, &[1 << 16]);
        gpu(device).record(|| relu::forward(&relu::forward(&x)?))
    };
    let (mut graph, y) = record()?;
    // What the dropped input's memory would be given to.
    let others = (0..8).map(|seed| normal_tensor::<f32>(device, seed + 3, &[1 << 16])).collect::<Vec<_>>();
    graph.replay()?;
    let expected: Vec<f32> = normal::<f32>(2, 1 << 16).iter().map(|v| v.max(0.0)).collect();
    assert!(y.to_vec()? == expected);
    for (seed, other) in (0..).zip(&others) {
        assert!(other.to_vec()? == normal::<f32>(seed + 3, 1 << 16));
    }
    drop(y);
    graph.replay()?;
    drop(graph);
    Ok(device.synchronize()?)
}

fn refuse_what_they_cannot_hold(device: &Device) -> Outcome {
    let x = normal_tensor::<f32>(device, 1, &[10]);
    let refused = |result: Result<(Graph, ())>| matches!(result, Err(Error::Recording { .. }));
    assert!(refused(gpu(device).record(|| x.to_vec().map(drop))), "a copy to the host");
    assert!(refused(gpu(device).record(|| Tensor::full(device, &[3], 1.0f32).map(drop))), "a copy from the host");
    assert!(refused(gpu(device).record(|| device.synchronize())), "waiting");
    assert!(refused(gpu(device).record(|| gpu(device).record(|| Ok(())).map(drop))), "another recording");
    let mut shared = x.clone();
    assert!(refused(gpu(device).record(|| relu::forward_in_place(&mut shared))), "a copy of a shared tensor");
    drop(shared);
    // A tensor of a graph that is shared cannot be given new values either: the graph would not see them.
    let (mut graph, y) = gpu(device).record(|| relu::forward(&x))?;
    let mut other = x.clone();
    assert!(matches!(other.copy_from_slice(&[1.0; 10]), Err(Error::Recording { .. })));
    drop(other);
    let mut x = x;
    x.copy_from_slice(&[-1.0; 10])?;
    graph.replay()?;
    assert_eq!(y.to_vec()?, [0.0; 10]);
    Ok(())
}

fn a_failed_recording_leaves_the_stream_as_it_was(device: &Device) -> Outcome {
    let (x, three) = (normal_tensor::<f32>(device, 1, &[10]), Tensor::full(device, &[3], 1.0f32)?);
    let result = gpu(device).record(|| {
        relu::forward(&x)?;
        scale_add::forward(&x, &three, &three)
    });
    assert!(matches!(result, Err(Error::Shape { .. })));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        gpu(device).record(|| -> Result<()> { std::panic::resume_unwind(Box::new("on purpose")) })
    }));
    assert!(panicked.is_err());
    assert!(!gpu(device).is_recording());
    let expected: Vec<f32> = x.to_vec()?.iter().map(|x| x.max(0.0)).collect();
    assert_eq!(relu::forward(&x)?.to_vec()?, expected);
    Ok(())
}
