//! Fully connected layer.

mod edges;
mod formula;
mod rejects;
mod tiles;

use ferrolayer::device::Gpu;
use ferrolayer::ops::dense::{self, Activation, Gradients, Saved};
use ferrolayer::testing::assert_close;
use ferrolayer::{Compute, Device, Out, Tensor};
use proptest::prelude::*;

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("dense::matches_the_formula", formula::matches_the_formula),
        on_cpu("dense::gradient_matches_finite_difference", formula::gradient_matches_finite_difference),
        on_cpu("dense::cpu_f32_matches_f64", || cases(&Device::cpu())),
        on_cpu("dense::cpu_f32_matches_f64_at_size", || compare(&Device::cpu(), [130, 515, 259], Kind::PreluEach, 5)),
        on_cpu("dense::edge_values", || edges::edge_values(&Device::cpu())),
        on_cpu("dense::empty_batch", || edges::empty_batch(&Device::cpu())),
        on_cpu("dense::saves_what_backward_needs", edges::saves_what_backward_needs),
        on_cpu("dense::rejects_x_of_other_rank", rejects::x_of_other_rank),
        on_cpu("dense::rejects_no_inputs", rejects::no_inputs),
        on_cpu("dense::rejects_w_that_does_not_fit", rejects::w_that_does_not_fit),
        on_cpu("dense::rejects_b_that_does_not_fit", rejects::b_that_does_not_fit),
        on_cpu("dense::rejects_alpha_that_does_not_fit", rejects::alpha_that_does_not_fit),
        on_cpu("dense::rejects_dy_and_gradients_that_do_not_fit", rejects::dy_and_gradients_that_do_not_fit),
        on_cpu("dense::rejects_saved_of_another_activation", rejects::saved_of_another_activation),
        on_cpu("dense::rejects_saved_of_another_shape", rejects::saved_of_another_shape),
        on_cpu("dense::rejects_dalpha_without_prelu", rejects::dalpha_without_prelu),
        on_cpu("dense::rejects_another_device", rejects::another_device),
        on_cpu("dense::rejects_f64_on_a_gpu", rejects::f64_on_a_gpu),
    ];
    tests.extend(on_each_gpu("dense::matches_f64", cases));
    tests.extend(on_each_gpu("dense::matches_f64_on_random_shapes", random_cases));
    tests.extend(on_each_gpu("dense::edge_values", edges::edge_values));
    tests.extend(on_each_gpu("dense::empty_batch", edges::empty_batch));
    tests.extend(on_each_gpu("dense::large_tiles_match_f64", tiles::large_tiles));
    // Large tiles, split and not; small tiles, split; rows that are not multiples of 16 bytes; a batch of one.
    for (n, i, o) in
        [(1024, 1024, 1024), (1537, 1537, 1410), (128, 2049, 1031), (64, 784, 128), (1, 4096, 1000), (30_000, 33, 10)]
    {
        let name = format!("dense::matches_f64_at_size_{n}x{i}x{o}");
        tests.push(on_real_gpu(&name, move |gpu| {
            Kind::ALL.iter().try_for_each(|&kind| compare(gpu, [n, i, o], kind, 7))
        }));
    }
    tests
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Identity,
    Relu,
    PreluShared,
    PreluEach,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Identity, Self::Relu, Self::PreluShared, Self::PreluEach];

    fn slopes(self, outputs: usize) -> usize {
        if self == Self::PreluEach { outputs } else { 1 }
    }

    fn activation<T: Compute>(self, alpha: &Tensor<T>) -> Activation<'_, T> {
        match self {
            Self::Identity => Activation::Identity,
            Self::Relu => Activation::Relu,
            Self::PreluShared | Self::PreluEach => Activation::Prelu(alpha),
        }
    }

    fn is_prelu(self) -> bool {
        matches!(self, Self::PreluShared | Self::PreluEach)
    }

    /// `y` for `z`, and `y`'s derivative.
    fn apply(self, z: f64, alpha: f64) -> (f64, f64) {
        match self {
            Self::Identity => (z, 1.0),
            _ if z > 0.0 => (z, 1.0),
            Self::Relu => (0.0, 0.0),
            Self::PreluShared | Self::PreluEach => (alpha * z, alpha),
        }
    }

    /// What a forward pass would have saved, given `z`.
    fn saved<T: Compute>(self, z: &Tensor<T>) -> Result<Saved<T>, Failed> {
        Ok(match self {
            Self::Identity => Saved::Identity,
            Self::Relu => {
                let y = z.to_vec()?.into_iter().map(|z| z.max(T::zero())).collect();
                Saved::Relu { y: Tensor::from_vec(z.device(), z.shape(), y)? }
            }
            Self::PreluShared | Self::PreluEach => Saved::Prelu { z: z.clone() },
        })
    }
}

/// Everything a backward pass gives, one call for all.
struct Given<T: Compute> {
    dx: Tensor<T>,
    dw: Tensor<T>,
    db: Tensor<T>,
    dalpha: Option<Tensor<T>>,
}

/// A backward pass that adds `beta` times what `old` holds; with `beta = 0` that is NaN.
fn backward<T: Compute>(
    [x, w, alpha, dy]: [&Tensor<T>; 4],
    kind: Kind,
    saved: &Saved<T>,
    old: &[Tensor<T>; 4],
    beta: f64,
) -> Result<Given<T>, Failed> {
    let target = |old: &Tensor<T>| -> Result<Tensor<T>, Failed> {
        if beta == 0.0 {
            return Ok(Tensor::full(x.device(), old.shape(), T::nan())?);
        }
        Ok(old.to(x.device())?)
    };
    let [mut dx, mut dw, mut db, mut dalpha] = [target(&old[0])?, target(&old[1])?, target(&old[2])?, target(&old[3])?];
    fn out<T: Compute>(tensor: &mut Tensor<T>, beta: f64) -> Option<Out<'_, T>> {
        Some(Out { tensor, beta })
    }
    let gradients = Gradients {
        dx: out(&mut dx, beta),
        dw: out(&mut dw, beta),
        db: out(&mut db, beta),
        dalpha: if kind.is_prelu() { out(&mut dalpha, beta) } else { None },
    };
    dense::backward(x, w, kind.activation(alpha), saved, dy, gradients)?;

    // Alone, each is the same.
    let (mut alone, none) = (target(&old[0])?, Gradients::default);
    dense::backward(x, w, kind.activation(alpha), saved, dy, Gradients { dx: out(&mut alone, beta), ..none() })?;
    assert_same_bits("dx alone", &alone, &dx)?;
    alone = target(&old[1])?;
    dense::backward(x, w, kind.activation(alpha), saved, dy, Gradients { dw: out(&mut alone, beta), ..none() })?;
    assert_same_bits("dw alone", &alone, &dw)?;
    alone = target(&old[2])?;
    dense::backward(x, w, kind.activation(alpha), saved, dy, Gradients { db: out(&mut alone, beta), ..none() })?;
    assert_same_bits("db alone", &alone, &db)?;
    if kind.is_prelu() {
        alone = target(&old[3])?;
        dense::backward(
            x,
            w,
            kind.activation(alpha),
            saved,
            dy,
            Gradients { dalpha: out(&mut alone, beta), ..none() },
        )?;
        assert_same_bits("dalpha alone", &alone, &dalpha)?;
    }
    dense::backward(x, w, kind.activation(alpha), saved, dy, none())?;
    Ok(Given { dx, dw, db, dalpha: kind.is_prelu().then_some(dalpha) })
}

fn values(tensor: &Tensor<f32>) -> Result<Vec<f64>, Failed> {
    Ok(tensor.to_vec()?.into_iter().map(f64::from).collect())
}

/// As f64 on the CPU, each value passed through `f`.
fn wide(tensor: &Tensor<f32>, f: fn(f64) -> f64) -> Result<Tensor<f64>, Failed> {
    let wide = values(tensor)?.into_iter().map(f).collect();
    Ok(Tensor::from_vec(&Device::cpu(), tensor.shape(), wide)?)
}

fn same(v: f64) -> f64 {
    v
}

/// `got` against an f64 result with the magnitudes of its terms, and `beta` times what was there before.
fn check(
    what: &str,
    got: &Tensor<f32>,
    terms: usize,
    exact: &Tensor<f64>,
    sizes: &Tensor<f64>,
    added: Option<(&Tensor<f32>, f64)>,
) -> Outcome {
    let (mut exact, mut sizes) = (exact.to_vec()?, sizes.to_vec()?);
    if let Some((old, beta)) = added {
        for ((exact, size), old) in exact.iter_mut().zip(&mut sizes).zip(values(old)?) {
            *exact += beta * old;
            *size += (beta * old).abs();
        }
    }
    let exact: Vec<f32> = exact.into_iter().map(|v| v as f32).collect();
    assert_close(what, &got.to_vec()?, &exact, terms, &sizes)?;
    Ok(())
}

/// Both passes on `device` in f32 against the CPU in f64, which `matches_the_formula` checks; each pass twice.
fn compare(device: &Device, [n, i, o]: [usize; 3], kind: Kind, seed: u64) -> Outcome {
    let cpu = Device::cpu();
    let tensor = |salt: u64, shape: &[usize]| normal_tensor::<f32>(&cpu, 100 * seed + salt, shape);
    let slopes = kind.slopes(o);
    let (x, w, b, alpha) = (tensor(0, &[n, i]), tensor(1, &[o, i]), tensor(2, &[o]), tensor(3, &[slopes]));
    let dy = tensor(4, &[n, o]);
    let old = [tensor(5, &[n, i]), tensor(6, &[o, i]), tensor(7, &[o]), tensor(8, &[slopes])];
    let what = |name: &str| format!("{name} of {n}x{i}x{o}, {kind:?}");

    // Forward, with and without a bias.
    let (xd, wd, bd, alphad, dyd) = (x.to(device)?, w.to(device)?, b.to(device)?, alpha.to(device)?, dy.to(device)?);
    let (x64, w64, b64, alpha64) = (wide(&x, same)?, wide(&w, same)?, wide(&b, same)?, wide(&alpha, same)?);
    let (x_abs, w_abs, b_abs) = (wide(&x, f64::abs)?, wide(&w, f64::abs)?, wide(&b, f64::abs)?);
    let steepest = values(&alpha)?.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    let mut z = None;
    for (bias, bias64, bias_abs) in [(None, None, None), (Some(&bd), Some(&b64), Some(&b_abs))] {
        let got = dense::forward(&xd, &wd, bias, kind.activation(&alphad))?;
        let again = dense::forward_inference(&xd, &wd, bias, kind.activation(&alphad))?;
        assert_same_bits(&what("y again"), &again, &got.y)?;
        let exact = dense::forward(&x64, &w64, bias64, kind.activation(&alpha64))?;
        let sizes = dense::forward_inference(&x_abs, &w_abs, bias_abs, Activation::Identity)?;
        let sizes = Tensor::from_vec(&cpu, &[n, o], sizes.to_vec()?.into_iter().map(|s| s * steepest).collect())?;
        check(&what("y"), &got.y, i + 1, &exact.y, &sizes, None)?;
        if let (Saved::Prelu { z: got }, Saved::Prelu { z: exact }) = (&got.saved, &exact.saved) {
            check(&what("z"), got, i + 1, exact, &sizes, None)?;
        }
        z = Some(dense::forward_inference(&x64, &w64, bias64, Activation::Identity)?);
    }

    // Backward, of one z for both: where z is almost zero, rounding decides which side it is on.
    let z: Vec<f32> = z.expect("two forwards").to_vec()?.into_iter().map(|z| z as f32).collect();
    let z = Tensor::from_vec(&cpu, &[n, o], z)?;
    let saved = kind.saved(&z.to(device)?)?;
    let (z64, dy64) = (wide(&z, same)?, wide(&dy, same)?);
    let slope = |at: usize, z: f64, alpha: &[f64]| kind.apply(z, alpha[at % o % slopes]).1;
    let alphas = values(&alpha)?;
    let both = z64.to_vec()?.into_iter().zip(dy64.to_vec()?).enumerate();
    let dz = both.map(|(at, (z, dy))| (slope(at, z, &alphas) * dy).abs());
    let dz_abs = Tensor::from_vec(&cpu, &[n, o], dz.collect())?;
    let old64 = [wide(&old[0], same)?, wide(&old[1], same)?, wide(&old[2], same)?, wide(&old[3], same)?];
    let exact = backward([&x64, &w64, &alpha64, &dy64], kind, &kind.saved(&z64)?, &old64, 0.0)?;
    let one = Tensor::full(&cpu, &[1], 1.0)?;
    let sizes = backward([&x_abs, &w_abs, &one, &dz_abs], Kind::Identity, &Saved::Identity, &old64, 0.0)?;
    let mut dalpha_sizes = vec![0.0; slopes];
    for (at, (z, dy)) in values(&z)?.into_iter().zip(values(&dy)?).enumerate() {
        dalpha_sizes[at % o % slopes] += if z <= 0.0 { (z * dy).abs() } else { 0.0 };
    }
    let dalpha_sizes = Tensor::from_vec(&cpu, &[slopes], dalpha_sizes)?;
    for beta in [0.0, 0.5] {
        let added = |k: usize| (beta != 0.0).then_some((&old[k], beta));
        let got = backward([&xd, &wd, &alphad, &dyd], kind, &saved, &old, beta)?;
        check(&what("dx"), &got.dx, o + 1, &exact.dx, &sizes.dx, added(0))?;
        check(&what("dw"), &got.dw, n + 1, &exact.dw, &sizes.dw, added(1))?;
        check(&what("db"), &got.db, n + 1, &exact.db, &sizes.db, added(2))?;
        if let (Some(got), Some(exact)) = (&got.dalpha, &exact.dalpha) {
            check(&what("dalpha"), got, n * o / slopes + 1, exact, &dalpha_sizes, added(3))?;
        }
    }
    Ok(())
}

fn cases(device: &Device) -> Outcome {
    use Kind::{Identity, PreluEach, PreluShared, Relu};
    // One of everything; odd; rows of multiples of 16 bytes; more than a tile; a depth that is split, of each product.
    for (seed, (sizes, kind)) in [
        ([1, 1, 1], PreluShared),
        ([3, 5, 7], PreluEach),
        ([8, 12, 4], Relu),
        ([65, 9, 66], Identity),
        ([5, 300, 7], PreluEach),
        ([4, 6, 260], Relu),
        ([261, 4, 8], PreluShared),
    ]
    .into_iter()
    .enumerate()
    {
        compare(device, sizes, kind, seed as u64)?;
    }
    Ok(())
}

fn random_cases(device: &Device) -> Outcome {
    let kind = prop::sample::select(&Kind::ALL[..]);
    for_random(6, (1usize..40, 1usize..40, 1usize..40, kind), |(n, i, o, kind)| compare(device, [n, i, o], kind, 50))
}
