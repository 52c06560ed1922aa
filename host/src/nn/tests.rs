//! Layers together: gradients, state, optimisers, files.

mod files;

use super::*;
use crate::device::Cpu;
use crate::ops::Window;
use crate::ops::avg_pool::Divisor;
use crate::ops::gaussian_pool::Normalize;
use crate::testing::gradcheck_fn;
use crate::{Compute, Device, Error, Layout, Result, Tensor};

/// Poisoning: a layer that leaves an element unwritten gives NaN.
fn device() -> Device {
    Device::Cpu(Cpu::poisoning())
}

/// Numbers without a pattern, between -1 and 1.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

fn input(shape: &[usize], seed: u64) -> Tensor<f64> {
    Tensor::from_vec(&device(), shape, numbers(seed, shape.iter().product())).unwrap()
}

/// A model with every layer there is, from [N, 2, 9, 9] to 3 classes.
fn everything<T: Compute>(device: &Device) -> Result<Sequential<T>> {
    let window = Window::new([3, 3]).padding([1, 1]).stride([1, 1]);
    let learnt = Gaussians::scattered(device, [2, 2], &window, 0.7, true, 5)?;
    let fixed = Gaussians::scattered(device, [1, 1], &window, 0.4, false, 6)?;
    let around = Sequential::new().then(Dense::builder(6, 6).prelu(0.3).seed(7).build(device)?);
    Ok(Sequential::new()
        .then(ScaleAdd::new(device, T::of(1.5), T::of(0.1))?)
        .then(GaussianPool::learnt(learnt, window, Normalize::Window)?)
        .then(Prelu::new(device, 4, 0.25)?)
        .then(MaxPool::new(Window::new([2, 2]).stride([1, 1])))
        .then(GaussianPool::fixed(fixed, window, Normalize::Valid))
        .then(AvgPool::with_divisor(Window::new([3, 3]).stride([2, 2]).padding([1, 1]), Divisor::default()))
        .then(Flatten::new())
        .then(Dense::builder(64, 6).prelu_per_output(0.2).seed(8).build(device)?)
        .then(Residual::new(around))
        .then(Relu::new())
        .then(Dense::builder(6, 5).relu().seed(9).build(device)?)
        .then(Dense::builder(5, 3).no_bias().seed(10).build(device)?))
}

fn labels() -> Tensor<u32> {
    Tensor::from_slice(&device(), &[4], &[0, 2, 1, 2]).unwrap()
}

/// The gradients of a forward and backward, by name, and that of the input.
fn gradients(model: &mut Sequential<f64>, x: &Tensor<f64>) -> (Vec<f64>, Vec<(String, Vec<f64>)>) {
    let mut loss = SoftmaxCrossEntropy::new();
    model.zero_grad();
    let scores = model.forward(x, Mode::Train).unwrap();
    loss.forward(&scores, &labels(), Mode::Train).unwrap();
    let dx = model.backward(&loss.backward().unwrap()).unwrap().to_vec().unwrap();
    (dx, named_gradients(model))
}

fn named_gradients(model: &Sequential<f64>) -> Vec<(String, Vec<f64>)> {
    let gradients =
        model.parameters().into_iter().filter_map(|(name, p)| Some((name, p.gradient()?.to_vec().unwrap())));
    gradients.collect()
}

fn loss_of(model: &mut Sequential<f64>, x: &Tensor<f64>) -> f64 {
    let scores = model.forward(x, Mode::Eval).unwrap();
    SoftmaxCrossEntropy::new().forward(&scores, &labels(), Mode::Eval).unwrap().to_vec().unwrap()[0]
}

fn parameter<'a, T: Compute>(model: &'a mut Sequential<T>, name: &str) -> &'a mut Parameter<T> {
    model.parameters_mut().into_iter().find(|(n, _)| n == name).expect(name).1
}

#[test]
fn gradients_match_finite_differences_through_every_layer() {
    let mut model = everything::<f64>(&device()).unwrap();
    let x = input(&[4, 2, 9, 9], 1);
    let (dx, gradients) = gradients(&mut model, &x);
    gradcheck_fn("x", &x.to_vec().unwrap(), &dx, |values| {
        let x = Tensor::from_slice(&device(), x.shape(), values).unwrap();
        loss_of(&mut model, &x)
    })
    .unwrap();
    let names: Vec<&str> = gradients.iter().map(|(name, _)| name.as_str()).collect();
    // The fixed parameters, those of layers 0 and 4, have none.
    let expected =
        "1.mean 1.log_var 2.weight 7.weight 7.bias 7.alpha 8.0.weight 8.0.bias 8.0.alpha 10.weight 10.bias 11.weight";
    assert_eq!(names.join(" "), expected);
    for (name, gradient) in &gradients {
        assert!(gradient.iter().any(|g| g.abs() > 1e-6), "{name} is not reached");
        let value = parameter(&mut model, name).value().to_vec().unwrap();
        gradcheck_fn(name, &value, gradient, |values| {
            parameter(&mut model, name).set(values).unwrap();
            loss_of(&mut model, &x)
        })
        .unwrap();
        parameter(&mut model, name).set(&value).unwrap();
    }
}

#[test]
fn backward_parameters_gives_what_backward_gives() {
    for skipped in 0..12 {
        let mut whole = everything::<f64>(&device()).unwrap();
        let mut x = input(&[4, 2, 9, 9], 1);
        let mut layers: Vec<_> = std::mem::take(&mut whole).into_layers();
        for layer in &mut layers[..skipped] {
            x = layer.forward(&x, Mode::Eval).unwrap();
        }
        let mut rest = Sequential::new();
        layers.drain(skipped..).for_each(|layer| rest.push(layer));
        let (_, expected) = gradients(&mut rest, &x);
        rest.zero_grad();
        let mut loss = SoftmaxCrossEntropy::new();
        let scores = rest.forward(&x, Mode::Train).unwrap();
        loss.forward(&scores, &labels(), Mode::Train).unwrap();
        rest.backward_parameters(&loss.backward().unwrap()).unwrap();
        assert_eq!(named_gradients(&rest), expected, "from layer {skipped} on");
    }
}

#[test]
fn gradients_accumulate_until_they_are_forgotten() {
    let mut model = everything::<f64>(&device()).unwrap();
    let x = input(&[4, 2, 9, 9], 1);
    let (_, once) = gradients(&mut model, &x);
    let mut loss = SoftmaxCrossEntropy::new();
    let scores = model.forward(&x, Mode::Train).unwrap();
    loss.forward(&scores, &labels(), Mode::Train).unwrap();
    model.backward(&loss.backward().unwrap()).unwrap();
    for ((name, twice), (_, once)) in named_gradients(&model).iter().zip(&once) {
        for (twice, once) in twice.iter().zip(once) {
            assert!((twice - 2.0 * once).abs() <= 1e-12 * once.abs().max(1e-3), "{name}: {twice} {once}");
        }
    }
    model.zero_grad();
    assert_eq!(named_gradients(&model), []);
    assert_eq!(gradients(&mut model, &x).1, once);
}

/// A layer by its name, and an input for it.
type Case = (&'static str, Box<dyn Layer<f64>>, Tensor<f64>);

/// One layer of each kind with an input that it takes.
fn each_layer() -> Vec<Case> {
    let device = device();
    let image = input(&[2, 2, 4, 4], 3);
    let row = input(&[2, 6], 4);
    let window = Window::new([2, 2]);
    let gaussians = || Gaussians::scattered(&device, [1, 2], &window, 0.5, false, 1).unwrap();
    let dense = || Dense::builder(6, 6).build(&device).unwrap();
    vec![
        ("Relu", Box::new(Relu::new()), image.clone()),
        ("Prelu", Box::new(Prelu::new(&device, 2, 0.25).unwrap()), image.clone()),
        ("MaxPool", Box::new(MaxPool::new(window)), image.clone()),
        ("AvgPool", Box::new(AvgPool::new(window)), image.clone()),
        ("GaussianPool", Box::new(GaussianPool::fixed(gaussians(), window, Normalize::Valid)), image.clone()),
        (
            "GaussianPool",
            Box::new(GaussianPool::learnt(gaussians(), window, Normalize::Window).unwrap()),
            image.clone(),
        ),
        ("Flatten", Box::new(Flatten::new()), image.clone()),
        ("ScaleAdd", Box::new(ScaleAdd::new(&device, 2.0, 1.0).unwrap()), image.clone()),
        ("Dense", Box::new(dense()), row.clone()),
        ("Dense", Box::new(Dense::builder(6, 3).relu().build(&device).unwrap()), row.clone()),
        ("Dense", Box::new(Dense::builder(6, 3).prelu(0.1).build(&device).unwrap()), row.clone()),
        ("Residual", Box::new(Residual::new(dense())), row.clone()),
        ("Sequential", Box::new(Sequential::new().then(dense())), row),
    ]
}

#[test]
fn backward_without_its_forward_is_an_error() {
    for (name, mut layer, x) in each_layer() {
        let refuses = |layer: &mut Box<dyn Layer<f64>>, dy: &Tensor<f64>| {
            let expected = format!("{name}: backward needs a forward in training mode before it");
            for error in [layer.backward(dy).unwrap_err(), layer.backward_parameters(dy).unwrap_err()] {
                assert!(matches!(error, Error::NoForward { .. }), "{error:?}");
                assert_eq!(error.to_string(), expected);
            }
        };
        refuses(&mut layer, &x);
        let y = layer.forward(&x, Mode::Train).unwrap();
        assert_eq!(layer.backward(&y).unwrap().shape(), x.shape(), "{name}");
        // What forward saved is used up.
        refuses(&mut layer, &y);
        layer.forward(&x, Mode::Train).unwrap();
        layer.backward_parameters(&y).unwrap();
        refuses(&mut layer, &y);
    }
}

#[test]
fn inference_computes_the_same_and_saves_nothing() {
    for (name, mut layer, x) in each_layer() {
        let trained = layer.forward(&x, Mode::Train).unwrap();
        let y = layer.forward(&x, Mode::Eval).unwrap();
        assert_eq!(y.to_vec().unwrap(), trained.to_vec().unwrap(), "{name}");
        assert!(matches!(layer.backward(&y), Err(Error::NoForward { .. })), "{name}");
    }
    let mut loss = SoftmaxCrossEntropy::new();
    let scores = input(&[4, 3], 1);
    loss.forward(&scores, &labels(), Mode::Train).unwrap();
    loss.forward(&scores, &labels(), Mode::Eval).unwrap();
    assert!(matches!(loss.backward(), Err(Error::NoForward { .. })));
}

#[test]
fn a_backward_that_fails_its_checks_leaves_no_gradient() {
    for (name, mut layer, x) in each_layer() {
        if layer.parameters().is_empty() || name == "ScaleAdd" {
            continue;
        }
        layer.forward(&x, Mode::Train).unwrap();
        let wrong = input(&[7, 1, 1, 1], 2);
        assert!(matches!(layer.backward(&wrong), Err(Error::Shape { .. })), "{name}");
        assert!(layer.parameters().iter().all(|(_, p)| p.gradient().is_none()), "{name}");
    }
}

#[test]
fn learnt_variances_stay_positive_and_finite_wherever_training_takes_them() {
    let device = device();
    let window = Window::new([3, 3]);
    let gaussians = Gaussians::<f32>::scattered(&device, [1, 2], &window, 0.25, true, 1).unwrap();
    let mut layer = GaussianPool::learnt(gaussians, window, Normalize::Window).unwrap();
    for var in layer.gaussians().unwrap().var.to_vec().unwrap() {
        assert!((var - 0.25f32).abs() < 1e-6, "{var}");
    }
    for extreme in [-1e30f32, -41.0, 41.0, 1e30] {
        layer.parameters_mut()[1].1.set(&[extreme; 4]).unwrap();
        let x = Tensor::from_vec(&device, &[1, 1, 3, 3], (0..9).map(|i| i as f32).collect()).unwrap();
        let y = layer.forward(&x, Mode::Train).unwrap();
        let dx = layer.backward(&y).unwrap();
        let gradients: Vec<f32> =
            layer.parameters().iter().flat_map(|(_, p)| p.gradient().unwrap().to_vec().unwrap()).collect();
        for values in [y.to_vec().unwrap(), dx.to_vec().unwrap(), gradients] {
            assert!(values.iter().all(|v| v.is_finite()), "{extreme}: {values:?}");
        }
    }
}

#[test]
fn refuses_variances_that_are_none() {
    let device = device();
    for (var, text) in [(0.0, "0"), (-1.0, "-1"), (f64::INFINITY, "inf"), (f64::NAN, "NaN")] {
        let error = Gaussians::<f32>::scattered(&device, [1, 1], &Window::new([3, 3]), var, false, 1).unwrap_err();
        assert_eq!(error.to_string(), format!("Gaussians::scattered: var is {text}, expected finite and above 0"));
        let gaussians = Gaussians {
            mean: Tensor::zeros(&device, &[1, 1, 2]).unwrap(),
            var: Tensor::full(&device, &[1, 1, 1], var as f32).unwrap(),
        };
        let error = GaussianPool::learnt(gaussians, Window::new([3, 3]), Normalize::Valid).unwrap_err();
        assert_eq!(error.to_string(), format!("GaussianPool::learnt: var is {text}, expected finite and above 0"));
    }
}

#[test]
fn refuses_layers_of_nothing() {
    let error = Dense::<f32>::builder(0, 3).build(&device()).unwrap_err();
    assert_eq!(error.to_string(), "Dense::builder: inputs is 0, expected at least 1");
    let error = Dense::<f32>::builder(3, 0).build(&device()).unwrap_err();
    assert_eq!(error.to_string(), "Dense::builder: outputs is 0, expected at least 1");
    let error = Prelu::<f32>::new(&device(), 0, 0.25).unwrap_err();
    assert_eq!(error.to_string(), "Prelu::new: slopes is 0, expected at least 1");
    let error = Flatten::new().forward(&Tensor::<f32>::zeros(&device(), &[]).unwrap(), Mode::Eval).unwrap_err();
    assert_eq!(error.to_string(), "flatten.forward: x has shape [], expected [N, ..]");
}

#[test]
fn says_what_it_is() {
    let model = everything::<f32>(&device()).unwrap();
    let expected = "\
0: ScaleAdd
1: GaussianPool(2 learnt for each map, [3, 3], stride [1, 1], padding [1, 1])
2: Prelu(4)
3: MaxPool([2, 2], stride [1, 1])
4: GaussianPool(1 fixed for all maps, [3, 3], stride [1, 1], padding [1, 1])
5: AvgPool([3, 3], stride [2, 2], padding [1, 1])
6: Flatten
7: Dense(64 -> 6, prelu(6))
8: Residual(Sequential(Dense(6 -> 6, prelu(1))))
9: Relu
10: Dense(6 -> 5, relu)
11: Dense(5 -> 3, no bias)
";
    assert_eq!(model.to_string(), expected);
    let window = Window::new([3, 3]).dilation([2, 1]).ceil_mode(true);
    assert_eq!(Layer::<f32>::describe(&MaxPool::new(window)), "MaxPool([3, 3], dilation [2, 1], ceil_mode)");
}

#[test]
fn layers_losses_and_optimisers_are_send() {
    fn is_send<S: Send>() {}
    is_send::<Sequential<f32>>();
    is_send::<Box<dyn Layer<f32>>>();
    is_send::<SoftmaxCrossEntropy<f32>>();
    is_send::<Sgd<f32>>();
    is_send::<Adam<f32>>();
}

/// A model of one dense layer whose gradients are set by its input: `dw = dy * x`.
fn one_weight(value: f64) -> Sequential<f64> {
    let init = crate::ops::dense::Init::Constant(value);
    Sequential::new().then(Dense::builder(1, 1).init(init).no_bias().build(&device()).unwrap())
}

fn step(model: &mut Sequential<f64>, optimiser: &mut dyn Optimiser<f64>, gradient: f64) -> f64 {
    let one = Tensor::full(&device(), &[1, 1], 1.0).unwrap();
    model.zero_grad();
    model.forward(&one, Mode::Train).unwrap();
    model.backward(&Tensor::full(&device(), &[1, 1], gradient).unwrap()).unwrap();
    optimiser.step(model).unwrap();
    model.parameters()[0].1.value().to_vec().unwrap()[0]
}

/// The formula of `torch.optim.SGD`'s documentation, written out for one number.
#[test]
fn sgd_is_pytorchs() {
    for (momentum, weight_decay, nesterov) in
        [(0.0, 0.0, false), (0.9, 0.0, false), (0.9, 0.1, false), (0.8, 0.1, true)]
    {
        let mut model = one_weight(2.0);
        let mut optimiser = Sgd::new(0.1).momentum(momentum).weight_decay(weight_decay);
        if nesterov {
            optimiser = optimiser.nesterov();
        }
        let (mut theta, mut buffer) = (2.0, None);
        for (t, gradient) in [0.5, -1.0, 0.25, 3.0].into_iter().enumerate() {
            let rate = if t < 2 { 0.1 } else { 0.01 };
            optimiser.set_learning_rate(rate);
            let mut g = gradient + weight_decay * theta;
            if momentum != 0.0 {
                let b = buffer.map_or(g, |b: f64| momentum * b + g);
                buffer = Some(b);
                g = if nesterov { g + momentum * b } else { b };
            }
            theta -= rate * g;
            let got = step(&mut model, &mut optimiser, gradient);
            assert!((got - theta).abs() < 1e-14, "{momentum} {weight_decay} {nesterov} {t}: {got} {theta}");
        }
    }
}

/// The formula of `torch.optim.Adam`'s documentation, written out for one number.
#[test]
fn adam_is_pytorchs() {
    for (betas, epsilon, weight_decay) in [([0.9, 0.999], 1e-8, 0.0), ([0.5, 0.9], 1e-3, 0.2), ([0.0, 0.99], 1e-8, 0.0)]
    {
        let mut model = one_weight(2.0);
        let settings = crate::ops::adam::Settings { learning_rate: 0.1, betas, epsilon, weight_decay };
        let mut optimiser = Adam::with_settings(settings);
        let (mut theta, mut m, mut v) = (2.0, 0.0, 0.0);
        for (t, gradient) in [0.5, -1.0, 0.25, 3.0].into_iter().enumerate() {
            let rate = if t < 2 { 0.1 } else { 0.01 };
            Optimiser::<f64>::set_learning_rate(&mut optimiser, rate);
            let g = gradient + weight_decay * theta;
            m = betas[0] * m + (1.0 - betas[0]) * g;
            v = betas[1] * v + (1.0 - betas[1]) * g * g;
            let m_hat: f64 = m / (1.0 - betas[0].powi(t as i32 + 1));
            let v_hat: f64 = v / (1.0 - betas[1].powi(t as i32 + 1));
            theta -= rate * m_hat / (v_hat.sqrt() + epsilon);
            let got = step(&mut model, &mut optimiser, gradient);
            assert!((got - theta).abs() < 1e-13, "{betas:?} {t}: {got} {theta}");
        }
    }
}

#[test]
fn optimisers_leave_alone_what_is_fixed_or_has_no_gradient() {
    let x = input(&[4, 2, 9, 9], 1);
    let optimisers: [Box<dyn Optimiser<f64>>; 3] =
        [Box::new(Sgd::new(0.1)), Box::new(Sgd::new(0.1).momentum(0.9)), Box::new(Adam::new(0.1))];
    for mut optimiser in optimisers {
        let mut model = everything::<f64>(&device()).unwrap();
        let values = |model: &Sequential<f64>| -> Vec<(String, Vec<f64>)> {
            model.parameters().into_iter().map(|(name, p)| (name, p.value().to_vec().unwrap())).collect()
        };
        let before = values(&model);
        optimiser.step(&mut model).unwrap();
        assert_eq!(values(&model), before);
        gradients(&mut model, &x);
        optimiser.step(&mut model).unwrap();
        for ((name, now), (_, before)) in values(&model).iter().zip(&before) {
            assert_eq!(now == before, name.starts_with("0.") || name.starts_with("4."), "{name}");
        }
    }
}

/// Draws in training, anew each time, and means in inference, which nothing goes back from.
#[test]
fn stochastic_pooling_draws_in_training_only() {
    let mut layer = StochasticPool::new(&device(), Window::new([1, 8]), 1).unwrap();
    assert_eq!(Layer::<f64>::describe(&layer), "StochasticPool([1, 8])");
    let x = Tensor::from_vec(&device(), &[1, 1, 8, 8], (0..64).map(|i| f64::from(i % 8)).collect()).unwrap();
    let dy = Tensor::full(&device(), &[1, 1, 8, 1], 1.0).unwrap();
    let mut drawn = Vec::new();
    for pass in 0..2 {
        let y = layer.forward(&x, Mode::Train).unwrap().to_vec().unwrap();
        let dx = layer.backward(&dy).unwrap().to_vec().unwrap();
        for (row, (dx, y)) in dx.chunks(8).zip(&y).enumerate() {
            // Elements are their positions in the window.
            assert!(dx.iter().enumerate().all(|(i, dx)| *dx == f64::from(u8::from(i as f64 == *y))), "{row}: {dx:?}");
        }
        assert_eq!(layer.random().offset().unwrap(), pass + 1);
        drawn.push(y);
    }
    assert_ne!(drawn[0], drawn[1]);
    let means = layer.forward(&x, Mode::Eval).unwrap().to_vec().unwrap();
    // (0 + 1 + 4 + .. + 49) / (0 + 1 + .. + 7).
    assert!(means.iter().all(|mean| (mean - 5.0).abs() < 1e-12), "{means:?}");
    assert!(matches!(layer.backward(&dy), Err(Error::NoForward { .. })));
}

/// Gradients come in the input's layout, also where the output has one pixel and any layout.
#[test]
fn pooling_layers_keep_the_channels_last() {
    let x = input(&[2, 3, 4, 6], 1).to_layout(Layout::ChannelsLast).unwrap();
    let whole = Window::new([4, 6]);
    let layers: [Box<dyn Layer<f64>>; 3] = [
        Box::new(MaxPool::new(whole)),
        Box::new(AvgPool::new(whole)),
        Box::new(StochasticPool::new(&device(), whole, 1).unwrap()),
    ];
    for mut layer in layers {
        layer.forward(&x, Mode::Train).unwrap();
        let dx = layer.backward(&input(&[2, 3, 1, 1], 2)).unwrap();
        assert_eq!(dx.layout(), Some(Layout::ChannelsLast), "{}", layer.describe());
    }
}

#[test]
fn optimisers_refuse_settings_out_of_range() {
    let mut model = one_weight(1.0);
    let error = |optimiser: &mut dyn Optimiser<f64>, model: &mut Sequential<f64>| {
        let one = Tensor::full(&device(), &[1, 1], 1.0).unwrap();
        model.forward(&one, Mode::Train).unwrap();
        model.backward(&one).unwrap();
        optimiser.step(model).unwrap_err().to_string()
    };
    let mut sgd = Sgd::new(-0.1);
    assert_eq!(
        error(&mut sgd, &mut model),
        "sgd.settings: learning_rate is -0.1, expected a finite number of at least 0"
    );
    let mut adam = Adam::new(f64::NAN);
    assert_eq!(
        error(&mut adam, &mut model),
        "adam.settings: learning_rate is NaN, expected a finite number of at least 0"
    );
    let betas = crate::ops::adam::Settings { betas: [0.9, 1.0], ..Default::default() };
    let mut adam = Adam::with_settings(betas);
    assert_eq!(error(&mut adam, &mut model), "adam.settings: betas is 1, expected at least 0 and less than 1");
}
