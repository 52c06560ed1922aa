//! Gaussian pooling.

use cuda_std::emulator::SANITIZED;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Layout, Out, Real, Tensor, bf16, f16};
use proptest::prelude::*;

use crate::support::*;

mod along_y;
mod apiece;
mod bands_along_y;
mod correlate;
mod direct;
mod elements;
mod errors;
mod falling_packs;
mod few;
mod flat;
mod global;
mod huge;
mod lanes;
mod large;
mod lines;
mod matrices;
mod meshes;
mod nan;
mod oracle;
mod packs;
mod packs_apiece;
mod patches;
mod ramp;
mod row_major;
mod shares;
mod slide;
mod spans;
mod staged;
mod strips;
mod taps;
mod vectors;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("gaussian_pool::matches_the_formula::f64", || matches_the_formula::<f64>(small_cases())),
        on_cpu("gaussian_pool::matches_the_formula::f32", || {
            matches_the_formula::<f32>([small_cases(), narrow_cases(), lines::cases(), global::large_cases()].concat())
        }),
        on_cpu("gaussian_pool::matches_the_formula::f16", || {
            matches_the_formula::<f16>([small_cases(), lines::cases()].concat())
        }),
        on_cpu("gaussian_pool::matches_the_formula::bf16", || {
            matches_the_formula::<bf16>([small_cases(), lines::cases(), global::large_cases()].concat())
        }),
        on_cpu("gaussian_pool::gradients_match_finite_differences", gradients_match_finite_differences),
        on_cpu("gaussian_pool::wide_is_average_narrow_is_nearest", || {
            ramp::wide_is_average_narrow_is_nearest(&Device::cpu())
        }),
        on_cpu(
            "gaussian_pool::extreme_parameters_stay_finite",
            || ramp::extreme_parameters_stay_finite(&Device::cpu()),
        ),
        on_cpu("gaussian_pool::nan_stays_in_its_windows", || nan::stays_in_its_windows(&Device::cpu())),
        on_cpu("gaussian_pool::nan_that_no_window_covers_is_no_term", nan::uncovered_is_no_term),
        on_cpu("gaussian_pool::empty_batch", || empty_batch(&Device::cpu())),
    ];
    tests.extend(errors::tests());
    tests.extend(packs::tests());
    tests.extend(flat::tests());
    tests.extend(packs_apiece::tests());
    tests.extend(taps::tests());
    tests.extend(spans::tests());
    tests.extend(falling_packs::tests());
    for (i, case) in gpu_cases().into_iter().enumerate() {
        // What general kernels do for each Gaussian in turn takes a sanitizer minutes.
        if SANITIZED && case.sets() * case.kernels > 16 {
            continue;
        }
        // Each case in one type on the emulated grid, which is slow, and in all on a GPU.
        type Compare = fn(&Device, &Case, u64) -> Outcome;
        let passes: [(&str, Compare); 3] =
            [("f32", compare::<f32>), ("f16", compare::<f16>), ("bf16", compare::<bf16>)];
        let (of, pass) = passes[(i / 4 + i) % passes.len()];
        let name = format!("gaussian_pool::matches_cpu::{i}::{:?}", case.normalize);
        tests.push(on_emulated_gpu(&format!("{name}::{of}"), move |gpu| pass(gpu, &case, 10)));
        tests.push(on_real_gpu(&name, move |gpu| passes.into_iter().try_for_each(|(_, pass)| pass(gpu, &case, 10))));
    }
    let name = |of: &str| format!("gaussian_pool::matches_cpu_on_random_shapes::{of}");
    tests.extend(on_each_gpu(&name("f32"), matches_cpu_on_random_shapes::<f32>));
    tests.extend(on_each_gpu(&name("f16"), matches_cpu_on_random_shapes::<f16>));
    tests.extend(on_each_gpu(&name("bf16"), matches_cpu_on_random_shapes::<bf16>));
    let name = |of: &str| format!("gaussian_pool::many_windows_are_as_few::{of}");
    tests.extend(on_each_gpu(&name("f32"), direct::many_windows_are_as_few::<f32>));
    tests.extend(on_each_gpu(&name("f16"), direct::many_windows_are_as_few::<f16>));
    tests.extend(on_each_gpu(
        "gaussian_pool::wide_is_average_narrow_is_nearest",
        ramp::wide_is_average_narrow_is_nearest,
    ));
    tests.extend(on_each_gpu("gaussian_pool::extreme_parameters_stay_finite", ramp::extreme_parameters_stay_finite));
    tests.extend(on_each_gpu("gaussian_pool::nan_stays_in_its_windows", nan::stays_in_its_windows));
    tests.extend(on_each_gpu("gaussian_pool::invalid_parameters_give_nan", invalid_parameters_give_nan));
    tests.extend(on_each_gpu("gaussian_pool::empty_batch", empty_batch));
    // Of each shape one normalisation in each layout: the oracle takes its time.
    let chosen = |case: &Case| (case.normalize == Normalize::Valid) == (case.layout == Layout::ChannelsLast);
    for (i, case) in full_size_cases().into_iter().filter(chosen).enumerate() {
        let name = format!("gaussian_pool::matches_cpu_at_full_size::{i}");
        tests.push(on_real_gpu(&name, move |gpu| compare::<f32>(gpu, &case, 20)));
    }
    tests.extend(row_major::many_elements());
    tests.extend(on_each_gpu("gaussian_pool::several_runs_match_cpu", shares::several_runs));
    tests.push(on_real_gpu("gaussian_pool::many_runs_match_cpu", shares::many_runs));
    tests.push(on_real_gpu("gaussian_pool::correlation_matches_cpu::f16", correlate::matches_cpu_at_full_size::<f16>));
    tests
        .push(on_real_gpu("gaussian_pool::correlation_matches_cpu::bf16", correlate::matches_cpu_at_full_size::<bf16>));
    tests.push(on_real_gpu("gaussian_pool::huge_tensors_match_cpu", huge::match_cpu));
    tests.extend(on_each_gpu("gaussian_pool::parts_of_tensors_match_cpu", huge::small_match_cpu));
    tests
}

/// A pass's shapes and options.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// `[N, C, H, W]`.
    x: [usize; 4],
    layout: Layout,
    window: Window,
    normalize: Normalize,
    kernels: usize,
    /// Whether all channels share one set of parameters.
    shared: bool,
    per_axis: bool,
}

impl Case {
    fn sets(&self) -> usize {
        if self.shared { 1 } else { self.x[1] }
    }

    fn y(&self) -> [usize; 4] {
        let [n, c, h, w] = self.x;
        let [ho, wo] = self.window.output_size("test", [h, w]).unwrap();
        [n, c * self.kernels, ho, wo]
    }

    fn mean(&self) -> [usize; 3] {
        [self.sets(), self.kernels, 2]
    }

    fn var(&self) -> [usize; 3] {
        [self.sets(), self.kernels, if self.per_axis { 2 } else { 1 }]
    }
}

const LAYOUTS: [Layout; 2] = [Layout::RowMajor, Layout::ChannelsLast];

/// Both normalisations of a window on an image in both layouts, with parameters of all kinds over the list.
fn cases(list: &[([usize; 4], Window)]) -> Vec<Case> {
    let mut cases = vec![];
    for (i, &(x, window)) in list.iter().enumerate() {
        for (j, normalize) in [Normalize::Window, Normalize::Valid].into_iter().enumerate() {
            let (kernels, shared, per_axis) = ([1, 3, 2][(i + 2 * j) % 3], (i / 2 + j) % 2 == 0, (i + j) % 2 == 0);
            cases.extend(LAYOUTS.map(|layout| Case { x, layout, window, normalize, kernels, shared, per_axis }));
        }
    }
    cases
}

fn small_cases() -> Vec<Case> {
    let window = |size| Window::new(size).stride([1, 1]);
    cases(&[
        ([1, 1, 1, 1], window([1, 1])),
        ([2, 3, 5, 6], window([3, 3]).stride([2, 2]).padding([1, 1])),
        ([2, 2, 6, 5], window([2, 4]).padding([1, 2])),
        ([1, 2, 4, 4], window([7, 7]).padding([3, 3])),
        ([1, 3, 9, 7], window([2, 2]).stride([3, 4])),
        ([1, 2, 6, 7], window([3, 2]).stride([2, 2]).padding([1, 0]).ceil_mode(true)),
        ([1, 1, 3, 8], window([4, 5]).stride([3, 3]).padding([2, 2]).ceil_mode(true)),
        // Global, and pixels of more lanes than a vector has.
        ([2, 2, 4, 3], window([4, 3])),
        ([1, 18, 3, 2], window([2, 2])),
    ])
}

/// Tiles that are full, cut off and more than one; windows of one part of shared memory and of several; strides above
/// the window and above what columns are regrouped by; channels of one group of lanes, of several and of less than one.
fn gpu_cases() -> Vec<Case> {
    let window = |size| Window::new(size).stride([1, 1]);
    let general = [
        ([1, 1, 1, 1], window([1, 1])),
        ([2, 3, 7, 9], window([3, 3]).stride([2, 2]).padding([1, 1])),
        ([2, 2, 20, 37], window([11, 11]).stride([2, 2]).padding([5, 5])),
        ([1, 2, 18, 70], window([2, 3]).stride([3, 1]).ceil_mode(true)),
        ([1, 1, 35, 150], window([5, 7]).padding([2, 3])),
        ([1, 1, 5, 300], window([3, 200]).stride([1, 3]).padding([1, 100])),
        ([1, 1, 9, 20], window([64, 64]).padding([32, 32])),
        ([1, 2, 50, 60], window([4, 4]).stride([9, 12])),
        ([1, 1, 6, 90], window([2, 13]).stride([2, 5]).padding([0, 6]).ceil_mode(true)),
        ([1, 33, 10, 11], window([3, 5]).stride([2, 2]).padding([1, 2])),
        ([2, 5, 9, 19], window([3, 3]).padding([1, 1])),
        ([2, 9, 5, 4], window([5, 4])),
        ([3, 1, 6, 7], window([2, 3]).stride([2, 2])),
        ([1, 48, 5, 4], window([2, 2])),
    ];
    let listed = cases(&[&general[..], &strips::cases(), &slide::apart(), &lanes::small()].concat());
    let of_kernels = [
        slide::cases(),
        lanes::cases(),
        staged::cases(),
        patches::cases(),
        vectors::cases(),
        correlate::cases(),
        meshes::cases(),
        few::cases(),
        direct::cases(),
        global::cases(),
        large::cases(),
        elements::cases(),
        if SANITIZED { vec![] } else { global::large_cases() },
        lanes::maps(),
        packs::halves(),
        packs::sevens(),
        row_major::cases(),
        row_major::several(),
        matrices::cases(),
        packs::cases(),
        shares::cases(),
        along_y::cases(),
        elements::several(),
        apiece::cases(),
        packs_apiece::cases(),
        spans::cases(),
        bands_along_y::cases(),
        falling_packs::cases(),
        taps::cases(),
    ];
    [vec![listed], of_kernels.into()].concat().concat()
}

fn full_size_cases() -> Vec<Case> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    cases(&[
        ([8, 16, 112, 112], window(11, 2).padding([5, 5])),
        ([4, 8, 111, 113], window(3, 2).padding([1, 1])),
        ([2, 3, 224, 224], window(64, 16).padding([32, 32])),
        ([1, 2, 1024, 1000], window(5, 3).padding([2, 2])),
        ([64, 32, 7, 7], window(7, 7)),
        ([2, 200, 33, 35], window(5, 1).padding([2, 2])),
    ])
}

/// Inputs of a case, and what was in the outputs before.
#[derive(Clone)]
struct Inputs<T: Real> {
    x: Tensor<T>,
    mean: Tensor<T::Compute>,
    var: Tensor<T::Compute>,
    dy: Tensor<T>,
    old: Gradients<T>,
}

/// Of `x`, `mean` and `var`.
#[derive(Clone)]
struct Gradients<T: Real> {
    dx: Tensor<T>,
    dmean: Tensor<T::Compute>,
    dvar: Tensor<T::Compute>,
}

impl<T: Real> Inputs<T> {
    fn new(case: &Case, seed: u64) -> Self {
        let image = |seed, shape: &[usize]| normal_tensor(&Device::cpu(), seed, shape).to_layout(case.layout).unwrap();
        let parameter = |seed, shape: &[usize]| normal_tensor(&Device::cpu(), seed, shape);
        let seed = 100 * seed;
        let var: Vec<f64> = normal(seed + 2, case.var().iter().product());
        let var = var.into_iter().map(|v| T::Compute::of(v.exp())).collect();
        Self {
            x: image(seed, &case.x),
            mean: parameter(seed + 1, &case.mean()),
            var: Tensor::from_vec(&Device::cpu(), &case.var(), var).unwrap(),
            dy: image(seed + 3, &case.y()),
            old: Gradients {
                dx: image(seed + 4, &case.x),
                dmean: parameter(seed + 5, &case.mean()),
                dvar: parameter(seed + 6, &case.var()),
            },
        }
    }

    fn to(&self, device: &Device) -> Result<Self, Failed> {
        let Gradients { dx, dmean, dvar } = &self.old;
        Ok(Self {
            x: self.x.to(device)?,
            mean: self.mean.to(device)?,
            var: self.var.to(device)?,
            dy: self.dy.to(device)?,
            old: Gradients { dx: dx.to(device)?, dmean: dmean.to(device)?, dvar: dvar.to(device)? },
        })
    }
}

/// What the passes give: `y`, all gradients at once, that of `x` by itself, and each by itself added to half of what was there.
struct Results<T: Real> {
    y: Tensor<T>,
    gradients: Gradients<T>,
    dx: Tensor<T>,
    added: Gradients<T>,
}

fn run<T: Real>(case: &Case, inputs: &Inputs<T>) -> Result<Results<T>, Failed> {
    let Inputs { x, mean, var, dy, old } = inputs;
    let (window, normalize) = (&case.window, case.normalize);
    let y = gaussian_pool::forward(x, mean, var, window, normalize)?;
    assert_eq!((y.shape(), y.layout()), (&case.y()[..], x.layout()));
    let backward = |dx: Option<Out<'_, T>>, dmean: Option<Out<'_, T::Compute>>, dvar: Option<Out<'_, T::Compute>>| {
        gaussian_pool::backward(x, mean, var, window, normalize, dy, dx, dmean, dvar)
    };
    let mut gradients = Gradients { dx: x.empty_like()?, dmean: mean.empty_like()?, dvar: var.empty_like()? };
    let Gradients { dx, dmean, dvar } = &mut gradients;
    backward(Some(Out::write(dx)), Some(Out::write(dmean)), Some(Out::write(dvar)))?;
    let mut alone = x.empty_like()?;
    backward(Some(Out::write(&mut alone)), None, None)?;
    let (mut added, beta) = (old.clone(), 0.5);
    let Gradients { dx, dmean, dvar } = &mut added;
    backward(Some(Out { tensor: dx, beta }), None, None)?;
    let (dmean, dvar) = (Some(Out { tensor: dmean, beta }), Some(Out { tensor: dvar, beta }));
    if SANITIZED {
        // One launch: a parameter's gradient that is not asked for is worked out beside the other.
        backward(None, dmean, dvar)?;
    } else {
        backward(None, dmean, None)?;
        backward(None, None, dvar)?;
        backward(None, None, None)?;
    }
    Ok(Results { y, gradients, dx: alone, added })
}

/// Compares with results of which each element was computed from terms of known magnitudes.
fn check<T: Real>(case: &Case, inputs: &Inputs<T>, got: &Results<T>, expected: &Results<T>) -> Outcome {
    fn close<E: Real>(
        what: String,
        [got, expected]: [&Tensor<E>; 2],
        (terms, magnitudes): &(usize, Vec<f64>),
        old: Option<&Tensor<E>>,
    ) -> Outcome {
        let mut magnitudes = magnitudes.clone();
        if let Some(old) = old {
            magnitudes.iter_mut().zip(sizes(old)).for_each(|(size, old)| *size += old);
        }
        Ok(assert_close(&what, &got.to_vec()?, &expected.to_vec()?, terms + 1, &magnitudes)?)
    }
    let [y, dx, dmean, dvar] = &oracle::sizes(case, inputs);
    let what = |name: &str| format!("{name} of {case:?}, {}", T::DTYPE);
    close(what("y"), [&got.y, &expected.y], y, None)?;
    let (new, right) = (&got.gradients, &expected.gradients);
    close(what("dx"), [&new.dx, &right.dx], dx, None)?;
    close(what("dx alone"), [&got.dx, &expected.dx], dx, None)?;
    close(what("dmean"), [&new.dmean, &right.dmean], dmean, None)?;
    close(what("dvar"), [&new.dvar, &right.dvar], dvar, None)?;
    let (new, right, old) = (&got.added, &expected.added, &inputs.old);
    close(what("dx added"), [&new.dx, &right.dx], dx, Some(&old.dx))?;
    close(what("dmean added"), [&new.dmean, &right.dmean], dmean, Some(&old.dmean))?;
    close(what("dvar added"), [&new.dvar, &right.dvar], dvar, Some(&old.dvar))
}

fn compare<T: Real>(gpu: &Device, case: &Case, seed: u64) -> Outcome {
    let inputs = Inputs::<T>::new(case, seed);
    let on_gpu = inputs.to(gpu)?;
    let got = run(case, &on_gpu)?;
    // A sanitizer would take most of its time for what results may differ by: that they do not is found without one.
    if SANITIZED {
        return Ok(());
    }
    check(case, &inputs, &got, &run(case, &inputs)?)?;
    let again = run(case, &on_gpu)?;
    let what = |name: &str| format!("{name} again, of {case:?}, {}", T::DTYPE);
    assert_same_bits(&what("y"), &again.y, &got.y)?;
    assert_same_bits(&what("dx alone"), &again.dx, &got.dx)?;
    for (new, old) in [(&again.gradients, &got.gradients), (&again.added, &got.added)] {
        assert_same_bits(&what("dx"), &new.dx, &old.dx)?;
        assert_same_bits(&what("dmean"), &new.dmean, &old.dmean)?;
        assert_same_bits(&what("dvar"), &new.dvar, &old.dvar)?;
    }
    Ok(())
}

fn matches_cpu_on_random_shapes<T: Real>(gpu: &Device) -> Outcome {
    let images = (1usize..3, 1usize..6, 1usize..30, 1usize..40);
    let windows = ((1usize..7, 1usize..12), (1usize..5, 1usize..5), (0usize..7, 0usize..12), any::<bool>());
    let parameters = (any::<bool>(), 1usize..4, any::<bool>(), any::<bool>(), any::<bool>());
    for_random(6, (images, windows, parameters), |((n, c, h, w), (size, stride, padding, ceil_mode), parameters)| {
        let (valid, kernels, shared, per_axis, channels_last) = parameters;
        let size = [size.0.min(h), size.1.min(w)];
        let padding = [padding.0 % (size[0] / 2 + 1), padding.1 % (size[1] / 2 + 1)];
        let window = Window::new(size).stride([stride.0, stride.1]).padding(padding).ceil_mode(ceil_mode);
        let normalize = if valid { Normalize::Valid } else { Normalize::Window };
        let layout = LAYOUTS[usize::from(channels_last)];
        compare::<T>(gpu, &Case { x: [n, c, h, w], layout, window, normalize, kernels, shared, per_axis }, 77)
    })
}

/// Those of several tasks on the CPU too, without those for which the oracle takes its time.
fn narrow_cases() -> Vec<Case> {
    gpu_cases().into_iter().filter(|case| case.window.positions() < 40).collect()
}

fn matches_the_formula<T: Real>(cases: Vec<Case>) -> Outcome {
    for case in cases {
        let inputs = Inputs::<T>::new(&case, 2);
        check(&case, &inputs, &run(&case, &inputs)?, &oracle::results(&case, &inputs))?;
    }
    Ok(())
}

fn gradients_match_finite_differences() -> Outcome {
    let device = Device::cpu();
    for case in small_cases() {
        let inputs = Inputs::<f64>::new(&case, 3);
        let [x, mean, var, dy] =
            [&inputs.x, &inputs.mean, &inputs.var, &inputs.dy].map(|tensor| tensor.to_vec().unwrap());
        let loss = |x: &[f64], mean: &[f64], var: &[f64]| -> f64 {
            let tensor = |shape: &[usize], values: &[f64]| Tensor::from_slice(&device, shape, values).unwrap();
            let (x, mean, var) = (tensor(&case.x, x), tensor(&case.mean(), mean), tensor(&case.var(), var));
            let x = x.to_layout(case.layout).unwrap();
            let y = gaussian_pool::forward(&x, &mean, &var, &case.window, case.normalize).unwrap();
            y.to_vec().unwrap().iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        };
        let Gradients { dx, dmean, dvar } = run(&case, &inputs)?.gradients;
        gradcheck_fn(&format!("x, {case:?}"), &x, &dx.to_vec()?, |x| loss(x, &mean, &var))?;
        gradcheck_fn(&format!("mean, {case:?}"), &mean, &dmean.to_vec()?, |mean| loss(&x, mean, &var))?;
        gradcheck_fn(&format!("var, {case:?}"), &var, &dvar.to_vec()?, |var| loss(&x, &mean, var))?;
    }
    Ok(())
}

/// On a GPU nobody reads the parameters before the kernel: the Gaussian that is none gives NaN, the others are right.
fn invalid_parameters_give_nan(gpu: &Device) -> Outcome {
    LAYOUTS.into_iter().try_for_each(|layout| invalid_parameters_give_nan_in(gpu, layout))
}

fn invalid_parameters_give_nan_in(gpu: &Device, layout: Layout) -> Outcome {
    let window = Window::new([3, 3]).padding([1, 1]);
    let (kernels, normalize) = (2, Normalize::Valid);
    let case = Case { x: [1, 1, 5, 5], layout, window, normalize, kernels, shared: true, per_axis: false };
    let good = Inputs::<f32>::new(&case, 6).to(gpu)?;
    let expected = run(&case, &good)?;
    let half = expected.y.len() / 2;
    for (mean, var) in
        [(0.0, 0.0), (0.0, -1.0), (0.0, f32::NAN), (0.0, f32::INFINITY), (f32::NAN, 1.0), (f32::INFINITY, 1.0)]
    {
        let (means, vars) = (good.mean.to_vec()?, good.var.to_vec()?);
        let inputs = Inputs {
            mean: Tensor::from_slice(gpu, &case.mean(), &[means[0], means[1], mean, means[3]])?,
            var: Tensor::from_slice(gpu, &case.var(), &[vars[0], var])?,
            ..good.to(gpu)?
        };
        let got = run(&case, &inputs)?;
        let (y, right) = (got.y.to_vec()?, expected.y.to_vec()?);
        assert_eq!(y[..half], right[..half]);
        assert!(y[half..].iter().all(|y| y.is_nan()), "mean {mean}, var {var}: {y:?}");
        let Gradients { dx, dmean, dvar } = got.gradients;
        let [dx, dmean, dvar] = [dx, dmean, dvar].map(|tensor| tensor.to_vec().unwrap());
        assert!(dx.iter().all(|v| v.is_nan()));
        assert_eq!(dmean[..2], expected.gradients.dmean.to_vec()?[..2]);
        assert!(dmean[2].is_nan() && dvar[1].is_nan(), "mean {mean}, var {var}: {dmean:?} {dvar:?}");
    }
    Ok(())
}

fn empty_batch(device: &Device) -> Outcome {
    LAYOUTS.into_iter().try_for_each(|layout| empty_batch_in(device, layout))
}

fn empty_batch_in(device: &Device, layout: Layout) -> Outcome {
    let window = Window::new([2, 2]);
    let normalize = Normalize::Valid;
    let case = Case { x: [0, 3, 4, 4], layout, window, normalize, kernels: 2, shared: false, per_axis: true };
    let results = run(&case, &Inputs::<f32>::new(&case, 7).to(device)?)?;
    assert_eq!(results.y.shape(), [0, 6, 2, 2]);
    let (new, added, old) = (results.gradients, results.added, Inputs::<f32>::new(&case, 7).old);
    for (new, added, old) in [(new.dmean, added.dmean, old.dmean), (new.dvar, added.dvar, old.dvar)] {
        assert!(new.to_vec()?.iter().all(|&v| v == 0.0));
        let halves: Vec<f32> = old.to_vec()?.iter().map(|v| 0.5 * v).collect();
        assert_eq!(added.to_vec()?, halves);
    }
    Ok(())
}
