//! Fully connected layer.

mod edges;
mod ffma;
mod formula;
mod hopper;
mod huge;
mod launches;
mod registers;
mod rejects;
mod split;
mod tensor;
mod tf32;
mod tiles;
mod tune;

use ferrolayer::device::Gpu;
use ferrolayer::ops::dense::{self, Activation, Gradients, Saved};
use ferrolayer::testing::assert_close;
use ferrolayer::{Device, Out, Real, Tensor, bf16, f16};
use proptest::prelude::*;

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("dense::matches_the_formula", formula::matches_the_formula),
        on_cpu("dense::gradient_matches_finite_difference", formula::gradient_matches_finite_difference),
        on_cpu("dense::saves_what_backward_needs", edges::saves_what_backward_needs),
        on_cpu("dense::rejects_x_of_other_rank", rejects::x_of_other_rank),
        on_cpu("dense::rejects_no_inputs", rejects::no_inputs),
        on_cpu("dense::rejects_w_that_does_not_fit", rejects::w_that_does_not_fit),
        on_cpu("dense::rejects_b_that_does_not_fit", rejects::b_that_does_not_fit),
        on_cpu("dense::rejects_alpha_that_does_not_fit", rejects::alpha_that_does_not_fit),
        on_cpu("dense::rejects_dy_and_gradients_that_do_not_fit", rejects::dy_and_gradients_that_do_not_fit),
        on_cpu("dense::rejects_saved_of_another_activation", rejects::saved_of_another_activation),
        on_cpu("dense::rejects_saved_of_another_shape", rejects::saved_of_another_shape),
        on_cpu("dense::rejects_other_orders", rejects::other_orders),
        on_cpu("dense::rejects_dalpha_without_prelu", rejects::dalpha_without_prelu),
        on_cpu("dense::rejects_another_device", rejects::another_device),
        on_cpu("dense::rejects_f64_on_a_gpu", rejects::f64_on_a_gpu),
        on_cpu("dense::tune::refuses_what_cannot_be_tuned", tune::refuses_what_cannot_be_tuned),
        on_cpu("dense::tune::refuses_what_does_not_fit", tune::refuses_what_does_not_fit),
        on_cpu("dense::tune::refuses_what_is_no_table", tune::refuses_what_is_no_table),
        on_cpu("dense::tune::round_trips_and_never_panics", tune::round_trips_and_never_panics),
        on_cpu(tune::IN_THE_ENVIRONMENT, tune::what_a_child_does),
        on_cpu("dense::tune::environment", tune::environment),
    ];
    tests.extend(on_each_gpu("dense::tune::each_way_is_taken", tune::each_way_is_taken));
    tests.push(on_hopper("dense::tune::each_way_of_halves_is_taken", tune::each_way_of_halves_is_taken));
    tests.extend(on_each_gpu("dense::tune::tunes_and_keeps", tune::tunes_and_keeps));
    macro_rules! of_tiles {
        ($($side:literal)*) => {$(
            let name = |of: &str| format!("dense::tiles_of_{}_match_f64::{of}", $side);
            tests.extend(on_each_gpu(&name("f32"), tiles::match_f64::<f32, $side>));
            tests.extend(on_each_gpu(&name("f16"), tiles::match_f64::<f16, $side>));
            tests.extend(on_each_gpu(&name("bf16"), tiles::match_f64::<bf16, $side>));
            tests.extend(on_each_gpu(&format!("dense::tiles_of_{}_are_exact", $side), tiles::exact::<$side>));
        )*};
    }
    of_tiles!(32 64 128);
    of_type::<f32>(&mut tests, "f32");
    of_type::<f16>(&mut tests, "f16");
    of_type::<bf16>(&mut tests, "bf16");
    for (name, test) in
        [("f16", edges::rounds_once::<f16> as fn(&Device) -> Outcome), ("bf16", edges::rounds_once::<bf16>)]
    {
        tests.push(on_cpu(&format!("dense::rounds_once::{name}::cpu"), move || test(&Device::cpu())));
        tests.extend(on_each_gpu(&format!("dense::rounds_once::{name}"), test));
    }
    of_half::<f16>(&mut tests, "f16");
    of_half::<bf16>(&mut tests, "bf16");
    for (tile, [f16, bf16]) in [
        ("64", [tensor::exact::<f16, 64> as fn(&Device) -> Outcome, tensor::exact::<bf16, 64>]),
        ("128", [tensor::exact::<f16, 128>, tensor::exact::<bf16, 128>]),
        ("256", [tensor::exact::<f16, 256>, tensor::exact::<bf16, 256>]),
    ] {
        tests.extend(on_each_gpu(&format!("dense::tensor_cores_are_exact_{tile}::f16"), f16));
        tests.extend(on_each_gpu(&format!("dense::tensor_cores_are_exact_{tile}::bf16"), bf16));
    }
    for (tile, [f16, bf16]) in [
        ("64", [hopper::exact::<f16, 64, 2, 1> as fn(&Device) -> Outcome, hopper::exact::<bf16, 64, 2, 1>]),
        ("64_by_2", [hopper::exact::<f16, 64, 2, 2>, hopper::exact::<bf16, 64, 2, 2>]),
        ("64_by_4", [hopper::exact::<f16, 64, 2, 4>, hopper::exact::<bf16, 64, 2, 4>]),
        ("64_narrow", [hopper::exact::<f16, 64, 1, 1>, hopper::exact::<bf16, 64, 1, 1>]),
        ("64_narrow_by_2", [hopper::exact::<f16, 64, 1, 2>, hopper::exact::<bf16, 64, 1, 2>]),
        ("64_narrow_by_4", [hopper::exact::<f16, 64, 1, 4>, hopper::exact::<bf16, 64, 1, 4>]),
        ("96", [hopper::exact::<f16, 96, 2, 1>, hopper::exact::<bf16, 96, 2, 1>]),
        ("128", [hopper::exact::<f16, 128, 2, 1>, hopper::exact::<bf16, 128, 2, 1>]),
        ("128_by_2", [hopper::exact::<f16, 128, 2, 2>, hopper::exact::<bf16, 128, 2, 2>]),
        ("128_by_4", [hopper::exact::<f16, 128, 2, 4>, hopper::exact::<bf16, 128, 2, 4>]),
        ("144", [hopper::exact_without_dx::<f16, 144>, hopper::exact_without_dx::<bf16, 144>]),
        ("168", [hopper::exact_without_dx::<f16, 168>, hopper::exact_without_dx::<bf16, 168>]),
        ("192", [hopper::exact::<f16, 192, 2, 1>, hopper::exact::<bf16, 192, 2, 1>]),
        ("224", [hopper::exact::<f16, 224, 2, 1>, hopper::exact::<bf16, 224, 2, 1>]),
        ("256", [hopper::exact::<f16, 256, 2, 1>, hopper::exact::<bf16, 256, 2, 1>]),
        ("128_of_192_rows", [hopper::exact::<f16, 128, 3, 1>, hopper::exact::<bf16, 128, 3, 1>]),
        ("192_of_192_rows", [hopper::exact::<f16, 192, 3, 1>, hopper::exact::<bf16, 192, 3, 1>]),
        ("of_each_width", [hopper::widths_are_exact::<f16, 256, 2>, hopper::widths_are_exact::<bf16, 256, 2>]),
        (
            "of_each_width_of_192_rows",
            [hopper::widths_are_exact::<f16, 200, 3>, hopper::widths_are_exact::<bf16, 200, 3>],
        ),
    ] {
        tests.push(on_hopper(&format!("dense::hopper_is_exact_{tile}::f16"), f16));
        tests.push(on_hopper(&format!("dense::hopper_is_exact_{tile}::bf16"), bf16));
    }
    tests.extend(on_each_gpu("dense::parts_are_the_matrix", split::parts_are_the_matrix));
    tests.push(on_cpu("dense::precisions_are_one_on_a_cpu", || split::same_in_either(&Device::cpu())));
    tests.push(on_emulated_gpu("dense::precisions_are_one_without_hopper", split::same_in_either));
    tests.push(on_hopper("dense::products_of_parts_at_edges", split::edges));
    tests.push(on_hopper("dense::products_of_parts_in_registers_64", registers::edges::<64>));
    tests.push(on_hopper("dense::products_of_parts_in_registers_128", registers::edges::<128>));
    tests.push(on_hopper("dense::products_of_parts_are_as_accurate", split::accuracy));
    tests.push(on_hopper("dense::what_has_no_parts_is_as_in_f32", split::refusals));
    tests.push(on_hopper("dense::products_of_parts_repeat", split::repeats));
    tests.push(on_hopper("dense::ffma_is_exact", ffma::exact));
    tests.push(on_hopper("dense::ffma_layer_is_exact", ffma::layer_is_exact));
    tests.push(on_hopper("dense::ffma_repeats", ffma::repeats));
    tests.extend(on_each_gpu("dense::tf32_turned_is_the_matrix", tf32::turned_is_the_matrix));
    for (tile, test) in [
        ("64", tf32::exact::<64, 1> as fn(&Device) -> Outcome),
        ("64_by_2", tf32::exact::<64, 2>),
        ("64_by_4", tf32::exact::<64, 4>),
        ("128", tf32::exact::<128, 1>),
        ("128_by_2", tf32::exact::<128, 2>),
        ("128_by_4", tf32::exact::<128, 4>),
        ("192", tf32::exact::<192, 1>),
        ("256", tf32::exact::<256, 1>),
        ("left_64", tf32::turning_is_exact::<64, false, false>),
        ("left_128", tf32::turning_is_exact::<128, false, false>),
        ("left_192", tf32::turning_is_exact::<192, false, false>),
        ("left_256", tf32::turning_is_exact::<256, false, false>),
        ("right_64", tf32::turning_is_exact::<64, true, false>),
        ("right_128", tf32::turning_is_exact::<128, true, false>),
        ("right_192", tf32::turning_is_exact::<192, true, false>),
        ("right_256", tf32::turning_is_exact::<256, true, false>),
        ("left_within_64", tf32::turning_is_exact::<64, false, true>),
        ("left_within_128", tf32::turning_is_exact::<128, false, true>),
        ("right_within_64", tf32::turning_is_exact::<64, true, true>),
        ("right_within_128", tf32::turning_is_exact::<128, true, true>),
    ] {
        tests.push(on_hopper(&format!("dense::tf32_is_exact_{tile}"), test));
    }
    tests.extend(on_each_gpu("dense::tf32_layer_is_exact", tf32::layer_is_exact));
    tests.push(on_hopper("dense::tf32_is_as_accurate_as_its_digits", tf32::accuracy));
    tests.push(on_hopper("dense::tf32_passes_what_is_no_number", tf32::passes_what_is_no_number));
    tests.push(on_hopper("dense::tf32_repeats", tf32::repeats));
    for (n, i, o) in [(777, 1031, 901), (1024, 2048, 520), (130, 4100, 3001)] {
        tests.push(on_hopper(&format!("dense::products_of_parts_match_f64_at_size_{n}x{i}x{o}"), move |gpu| {
            Kind::ALL.iter().try_for_each(|&kind| compare::<f32>(gpu, [n, i, o], kind, 9))
        }));
    }
    tests.extend(on_each_gpu("dense::as_the_huge_ones", huge::in_small));
    tests.push(on_real_gpu("dense::huge_x_and_dx", huge::x_and_dx));
    tests.push(on_real_gpu("dense::huge_w", huge::w));
    tests
}

/// The tests of a type that goes by tensor cores.
fn of_half<T: Real>(tests: &mut Vec<Trial>, name: &str) {
    tests.extend(on_each_gpu(&format!("dense::tensor_cores_match_f64::{name}"), tensor::around_tiles::<T>));
    tests.extend(on_each_gpu(
        &format!("dense::tensor_cores_match_f64_on_random_shapes::{name}"),
        tensor::random_pieces::<T>,
    ));
    tests.push(on_real_gpu(&format!("dense::tensor_cores_repeat::{name}"), hopper::repeats::<T>));
    tests.extend(on_each_gpu(
        &format!("dense::tensor_cores_pass_what_is_no_number::{name}"),
        hopper::passes_what_is_no_number::<T>,
    ));
    // A part and more of each tile; parts of the depth; a long depth.
    for (n, i, o) in [(1000, 1000, 1000), (72, 4104, 200), (128, 4096, 4096), (20_000, 40, 72), (8, 40_000, 16)] {
        tests.push(on_real_gpu(&format!("dense::tensor_cores_match_f64_at_size_{n}x{i}x{o}::{name}"), move |gpu| {
            Kind::ALL.iter().try_for_each(|&kind| compare::<T>(gpu, [n, i, o], kind, 8))
        }));
    }
}

/// The tests of one element type.
fn of_type<T: Real>(tests: &mut Vec<Trial>, name: &str) {
    tests.extend([
        on_cpu(&format!("dense::matches_f64::{name}::cpu"), || cases::<T>(&Device::cpu())),
        on_cpu(&format!("dense::matches_f64_at_size::{name}::cpu"), || {
            compare::<T>(&Device::cpu(), [130, 515, 259], Kind::PreluEach, 5)
        }),
        on_cpu(&format!("dense::edge_values::{name}::cpu"), || edges::edge_values::<T>(&Device::cpu())),
        on_cpu(&format!("dense::empty_batch::{name}::cpu"), || edges::empty_batch::<T>(&Device::cpu())),
    ]);
    tests.extend(on_each_gpu(&format!("dense::matches_f64::{name}"), cases::<T>));
    tests.extend(on_each_gpu(&format!("dense::matches_f64_on_random_shapes::{name}"), random_cases::<T>));
    tests.extend(on_each_gpu(&format!("dense::edge_values::{name}"), edges::edge_values::<T>));
    tests.extend(on_each_gpu(&format!("dense::empty_batch::{name}"), edges::empty_batch::<T>));
    // Large tiles, split and not; small tiles, split; rows that are not multiples of four elements; a batch of one.
    for (n, i, o) in
        [(1024, 1024, 1024), (1537, 1537, 1410), (128, 2049, 1031), (64, 784, 128), (1, 4096, 1000), (30_000, 33, 10)]
    {
        tests.push(on_real_gpu(&format!("dense::matches_f64_at_size_{n}x{i}x{o}::{name}"), move |gpu| {
            Kind::ALL.iter().try_for_each(|&kind| compare::<T>(gpu, [n, i, o], kind, 7))
        }));
    }
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

    fn activation<T: Real>(self, alpha: &Tensor<T::Compute>) -> Activation<'_, T> {
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
    fn saved<T: Real>(self, device: &Device, shape: &[usize], z: &[f64]) -> Result<Saved<T>, Failed> {
        Ok(match self {
            Self::Identity => Saved::Identity,
            Self::Relu => Saved::Relu { y: narrow(device, shape, &z.iter().map(|z| z.max(0.0)).collect::<Vec<_>>())? },
            Self::PreluShared | Self::PreluEach => Saved::Prelu { z: narrow(device, shape, z)? },
        })
    }
}

/// Everything a backward pass gives, or adds to.
struct Given<T: Real> {
    dx: Tensor<T>,
    dw: Tensor<T>,
    db: Tensor<T>,
    dalpha: Tensor<T::Compute>,
}

impl<T: Real> Given<T> {
    fn draw(device: &Device, seed: u64, [n, i, o]: [usize; 3], slopes: usize) -> Self {
        let draw = |salt, shape: &[usize]| normal_tensor(device, seed + salt, shape);
        let dalpha = normal_tensor(device, seed + 3, &[slopes]);
        Self { dx: draw(0, &[n, i]), dw: draw(1, &[o, i]), db: draw(2, &[o]), dalpha }
    }
}

/// A copy on `device` to be added to; with `beta = 0` of NaN, which is not to be read.
fn target<E: Real>(device: &Device, old: &Tensor<E>, beta: f64) -> Result<Tensor<E>, Failed> {
    if beta == 0.0 {
        return Ok(Tensor::full(device, old.shape(), E::of(f64::NAN))?);
    }
    Ok(old.to(device)?)
}

fn out<E: Real>(tensor: &mut Tensor<E>, beta: f64) -> Option<Out<'_, E>> {
    Some(Out { tensor, beta })
}

/// A backward pass that adds `beta` times what `old` holds; with `beta = 0` that is NaN. `dalpha` is that only with PReLU.
fn backward<T: Real>(
    [x, w, dy]: [&Tensor<T>; 3],
    alpha: &Tensor<T::Compute>,
    kind: Kind,
    saved: &Saved<T>,
    old: &Given<T>,
    beta: f64,
) -> Result<Given<T>, Failed> {
    let run = |gradients: Gradients<'_, T>| dense::backward(x, w, kind.activation(alpha), saved, dy, gradients);
    let fresh = |old: &Tensor<T>| target(x.device(), old, beta);
    let [mut dx, mut dw, mut db] = [fresh(&old.dx)?, fresh(&old.dw)?, fresh(&old.db)?];
    let mut dalpha = target(x.device(), &old.dalpha, beta)?;
    run(Gradients {
        dx: out(&mut dx, beta),
        dw: out(&mut dw, beta),
        db: out(&mut db, beta),
        dalpha: if kind.is_prelu() { out(&mut dalpha, beta) } else { None },
    })?;

    // Alone, each is the same.
    let none = Gradients::default;
    let mut alone = fresh(&old.dx)?;
    run(Gradients { dx: out(&mut alone, beta), ..none() })?;
    assert_same_bits("dx alone", &alone, &dx)?;
    alone = fresh(&old.dw)?;
    run(Gradients { dw: out(&mut alone, beta), ..none() })?;
    assert_same_bits("dw alone", &alone, &dw)?;
    alone = fresh(&old.db)?;
    run(Gradients { db: out(&mut alone, beta), ..none() })?;
    assert_same_bits("db alone", &alone, &db)?;
    if kind.is_prelu() {
        let mut alone = target(x.device(), &old.dalpha, beta)?;
        run(Gradients { dalpha: out(&mut alone, beta), ..none() })?;
        assert_same_bits("dalpha alone", &alone, &dalpha)?;
    }
    run(none())?;
    Ok(Given { dx, dw, db, dalpha })
}

fn values<E: Real>(tensor: &Tensor<E>) -> Result<Vec<f64>, Failed> {
    Ok(tensor.to_vec()?.into_iter().map(E::f64).collect())
}

/// As f64 on the CPU, each value passed through `f`.
fn wide<E: Real>(tensor: &Tensor<E>, f: fn(f64) -> f64) -> Result<Tensor<f64>, Failed> {
    let wide = values(tensor)?.into_iter().map(f).collect();
    Ok(Tensor::from_vec(&Device::cpu(), tensor.shape(), wide)?)
}

fn same(v: f64) -> f64 {
    v
}

/// The nearest values of the type.
fn narrow<E: Real>(device: &Device, shape: &[usize], values: &[f64]) -> Result<Tensor<E>, Failed> {
    Ok(Tensor::from_vec(device, shape, values.iter().map(|&v| E::of(v)).collect())?)
}

/// `got` against an f64 result with the magnitudes of its terms, and `beta` times what was there before.
fn check<E: Real>(
    what: &str,
    got: &Tensor<E>,
    terms: usize,
    exact: &Tensor<f64>,
    sizes: &Tensor<f64>,
    added: Option<(&Tensor<E>, f64)>,
) -> Outcome {
    let (mut exact, mut sizes) = (exact.to_vec()?, sizes.to_vec()?);
    if let Some((old, beta)) = added {
        for ((exact, size), old) in exact.iter_mut().zip(&mut sizes).zip(values(old)?) {
            *exact += beta * old;
            *size += (beta * old).abs();
        }
    }
    let exact: Vec<E> = exact.into_iter().map(E::of).collect();
    assert_close(what, &got.to_vec()?, &exact, terms, &sizes)?;
    Ok(())
}

/// Both passes on `device` against the CPU in f64, which `matches_the_formula` checks; each pass twice.
fn compare<T: Real>(device: &Device, [n, i, o]: [usize; 3], kind: Kind, seed: u64) -> Outcome {
    let cpu = Device::cpu();
    let tensor = |salt: u64, shape: &[usize]| normal_tensor::<T>(&cpu, 100 * seed + salt, shape);
    let slopes = kind.slopes(o);
    let (x, w, b, dy) = (tensor(0, &[n, i]), tensor(1, &[o, i]), tensor(2, &[o]), tensor(4, &[n, o]));
    let alpha = normal_tensor::<T::Compute>(&cpu, 100 * seed + 3, &[slopes]);
    let old = Given::<T>::draw(&cpu, 100 * seed + 5, [n, i, o], slopes);
    let what = |name: &str| format!("{name} of {n}x{i}x{o}, {kind:?}");

    // Forward, with and without a bias.
    let (xd, wd, bd, alphad, dyd) = (x.to(device)?, w.to(device)?, b.to(device)?, alpha.to(device)?, dy.to(device)?);
    let (x64, w64, b64, alpha64) = (wide(&x, same)?, wide(&w, same)?, wide(&b, same)?, wide(&alpha, same)?);
    let (x_abs, w_abs, b_abs) = (wide(&x, f64::abs)?, wide(&w, f64::abs)?, wide(&b, f64::abs)?);
    let steepest = values(&alpha)?.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    let mut z = Vec::new();
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
        z = dense::forward_inference(&x64, &w64, bias64, Activation::Identity)?.to_vec()?;
    }

    // Backward, of one z for both: where z is almost zero, rounding decides which side it is on.
    z.iter_mut().for_each(|z| *z = T::of(*z).f64());
    let saved = kind.saved(device, &[n, o], &z)?;
    let dy64 = wide(&dy, same)?;
    let alphas = values(&alpha)?;
    let each = z.iter().zip(values(&dy)?).enumerate();
    let dz: Vec<f64> = each.map(|(at, (&z, dy))| kind.apply(z, alphas[at % o % slopes]).1 * dy).collect();
    // Arithmetic's, then rounded once more: the products take it as the type stores it.
    let stored = dz.iter().map(|&dz| T::narrow(T::Compute::of(dz)).f64()).collect();
    let stored = Tensor::from_vec(&cpu, &[n, o], stored)?;
    let dz_abs = Tensor::from_vec(&cpu, &[n, o], dz.into_iter().map(f64::abs).collect())?;
    let none = Given::draw(&cpu, 0, [n, i, o], slopes);
    let one = Tensor::full(&cpu, &[1], 1.0)?;
    let of_products = |operands| backward(operands, &one, Kind::Identity, &Saved::Identity, &none, 0.0);
    let (products, sizes) = (of_products([&x64, &w64, &stored])?, of_products([&x_abs, &w_abs, &dz_abs])?);
    let exact = backward([&x64, &w64, &dy64], &alpha64, kind, &kind.saved(&cpu, &[n, o], &z)?, &none, 0.0)?;
    let mut dalpha_sizes = vec![0.0; slopes];
    for (at, (&z, dy)) in z.iter().zip(values(&dy)?).enumerate() {
        dalpha_sizes[at % o % slopes] += if z <= 0.0 { (z * dy).abs() } else { 0.0 };
    }
    let dalpha_sizes = Tensor::from_vec(&cpu, &[slopes], dalpha_sizes)?;
    for beta in [0.0, 0.5] {
        let got = backward([&xd, &wd, &dyd], &alphad, kind, &saved, &old, beta)?;
        fn added<E: Real>(old: &Tensor<E>, beta: f64) -> Option<(&Tensor<E>, f64)> {
            (beta != 0.0).then_some((old, beta))
        }
        check(&what("dx"), &got.dx, o + 1, &products.dx, &sizes.dx, added(&old.dx, beta))?;
        check(&what("dw"), &got.dw, n + 1, &products.dw, &sizes.dw, added(&old.dw, beta))?;
        check(&what("db"), &got.db, n + 1, &exact.db, &sizes.db, added(&old.db, beta))?;
        if kind.is_prelu() {
            let terms = n * o / slopes + 1;
            check(&what("dalpha"), &got.dalpha, terms, &exact.dalpha, &dalpha_sizes, added(&old.dalpha, beta))?;
        }
    }
    Ok(())
}

fn cases<T: Real>(device: &Device) -> Outcome {
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
        compare::<T>(device, sizes, kind, seed as u64)?;
    }
    Ok(())
}

fn random_cases<T: Real>(device: &Device) -> Outcome {
    let kind = prop::sample::select(&Kind::ALL[..]);
    for_random(6, (1usize..40, 1usize..40, 1usize..40, kind), |(n, i, o, kind)| {
        compare::<T>(device, [n, i, o], kind, 50)
    })
}
