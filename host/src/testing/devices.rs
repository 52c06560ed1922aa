//! One op on two devices.

use super::point::{NAN, Numbers, Point, SMALL, Wanted, bits};
use super::tolerance::Mismatch;
use super::{Failure, WEIGHTS_SEED, assert_close, summation_error};
use crate::device::Cpu;
use crate::op::{Inputs, Mode, Op};
use crate::{Device, Error, Real, Result, Tensor};

/// What gradients are multiplied by before others are added to them.
const BETA: f64 = 0.5;

/// The GPUs to check an op on: the emulated one, and the first real one where there is one. Both poison outputs. With the feature
/// `emulator`: `ferrolayer = { .., features = ["emulator"] }` among a crate's `dev-dependencies`.
#[cfg(feature = "emulator")]
pub fn gpus() -> Vec<Device> {
    use crate::device::GpuOptions;

    let real = GpuOptions::default().poison().open(0).ok();
    [Some(GpuOptions::default().poison().emulated()), real].into_iter().flatten().map(Device::Gpu).collect()
}

/// Runs an op on two devices, with data in `T`, and checks that it keeps the contract on both, and that both compute the
/// same.
///
/// On each device, to the bit: [`Op::output`] tells what forward gives; a second run gives what the first gave; gradients
/// do not depend on what they held when `beta` is 0; leaving one out changes no other; [`Op::forward_in_place`] gives what
/// [`Op::forward`] gives, backward after it too, and leaves clones of the input alone. What is added to a gradient
/// (`beta`) is the gradient that is written. Tensors elsewhere and of other shapes are errors.
///
/// Between the devices: outputs in both modes and gradients differ by no more than rounding, by [`assert_close`]. The
/// magnitudes and the number of terms that this takes are derived by `f64` on the CPU: each input in turn is made larger
/// and smaller by a hundred-thousandth; a result's magnitude is its own, and how far it moves with each input for a whole;
/// its terms are the inputs that move it. For a sum of products that is the sum of the products' magnitudes and their
/// number. This takes two passes for each element of inputs and output: give it some hundred elements.
///
/// Give it devices that poison outputs ([`gpus`], [`Cpu::poisoning`]), so that elements left out of an output are seen.
///
/// # Errors
/// [`Failure::Contract`] and [`Failure::Devices`]; the op's own errors.
pub fn compare_devices<T: Real, O: Op<T> + Op<f64>>(
    op: &O,
    inputs: Inputs<'_, f64>,
    devices: [&Device; 2],
) -> Result<(), Failure> {
    let name = Op::<T>::names(op).op;
    let cpu = Device::Cpu(Cpu::poisoning());
    // What all three compute with: the same numbers, those that `T` can hold.
    let point = Point::<T>::new(&cpu, inputs)?;
    let gradients = point.check_count::<O>(op)?;
    let dy: Tensor<T> = gradient_of_output(op, &point)?;
    let bounds = bounds(op, &Point::<f64>::new(&cpu, point.inputs().of())?, &gradient_in_f64(&dy)?)?;
    let run = |device| {
        let results = keeps_contract(op, &point, &dy, device)?;
        let (written, added) = results[OUTPUTS..].split_at(gradients);
        for ((written, added), bound) in written.iter().zip(added).zip(&bounds[OUTPUTS..]) {
            adds(written, added, bound).map_err(|what| Failure::Contract {
                op: name,
                device: device.to_string(),
                what,
            })?;
        }
        Ok::<_, Failure>(results)
    };
    let [first, second] = [run(devices[0])?, run(devices[1])?];
    for ((got, expected), bound) in second.iter().zip(&first).zip(&bounds) {
        let devices = || format!("{} after {}", devices[1], devices[0]);
        let close = got.values.close_to(&got.what, &expected.values, bound)?;
        close.map_err(|mismatch| Failure::Devices { op: name, devices: devices(), mismatch })?;
    }
    Ok(())
}

/// The results that come before the gradients: the output in both modes.
const OUTPUTS: usize = 2;

/// Checks that what was added to a gradient of [`SMALL`] values is the gradient that was written: with the rounding of the
/// gradient that was stored in between, and of sums in another order.
fn adds<T: Real>(written: &Computed<T>, added: &Computed<T>, bound: &Bound) -> Result<(), String> {
    let read = |computed: &Computed<T>| computed.values.to_vec().map_err(|error| error.to_string());
    let (written, sums) = (read(written)?, read(added)?);
    let epsilon = match added.values {
        Numbers::Data(_) => T::EPSILON,
        Numbers::Parameter(_) => T::Compute::EPSILON,
    };
    for (i, ((new, old), sum)) in written.iter().zip(SMALL(sums.len())).zip(&sums).enumerate() {
        let expected = new + BETA * old;
        let summing = 2.0 * summation_error::<T::Compute>(bound.terms) * (bound.magnitudes[i] + BETA * old.abs());
        let close = (sum - expected).abs() <= summing + epsilon * (new.abs() + sum.abs());
        if !(close || expected.is_nan() && sum.is_nan()) {
            return Err(format!("{} is {sum:e} at {i}, expected {expected:e}", added.what));
        }
    }
    Ok(())
}

/// Normally distributed, of the output's shape and order in memory.
fn gradient_of_output<T: Real, O: Op<T>>(op: &O, point: &Point<T>) -> Result<Tensor<T>> {
    let y = op.output(point.inputs().of())?;
    super::normal(&Device::Cpu(Cpu::poisoning()), WEIGHTS_SEED, y.shape())?.in_order_of(&y)
}

fn gradient_in_f64<T: Real>(dy: &Tensor<T>) -> Result<Tensor<f64>> {
    Ok(Point::<f64>::new(dy.device(), Inputs { data: &[dy], parameters: &[] })?.data.swap_remove(0))
}

/// One result of an op.
struct Computed<T: Real> {
    what: String,
    values: Numbers<T>,
}

/// How far a result's elements may be off: as [`assert_close`] takes it.
struct Bound {
    terms: usize,
    magnitudes: Vec<f64>,
}

impl<T: Real> Numbers<T> {
    fn close_to(&self, what: &str, expected: &Self, bound: &Bound) -> Result<Result<(), Mismatch>> {
        let Bound { terms, magnitudes } = bound;
        Ok(match (self, expected) {
            (Self::Data(got), Self::Data(expected)) => {
                assert_close(what, &got.to_vec()?, &expected.to_vec()?, *terms, magnitudes)
            }
            (Self::Parameter(got), Self::Parameter(expected)) => {
                assert_close(what, &got.to_vec()?, &expected.to_vec()?, *terms, magnitudes)
            }
            _ => unreachable!("results of one op, in one order"),
        })
    }
}

/// Checks all that one device alone can show; the outputs in both modes, and the gradients.
fn keeps_contract<T: Real, O: Op<T>>(
    op: &O,
    point: &Point<T>,
    dy: &Tensor<T>,
    device: &Device,
) -> Result<Vec<Computed<T>>, Failure> {
    let broken = |what: String| Failure::Contract { op: op.names().op, device: device.to_string(), what };
    let names = op.names();
    let (point, dy) = (&point.to(device)?, &dy.to(device)?);

    let forward = |mode| -> Result<_> {
        let mut state = O::State::default();
        let (y, saved) = op.forward(&mut state, point.inputs().of(), mode)?;
        Ok((y, saved, state))
    };
    let (y, saved, _) = forward(Mode::Train)?;
    let (eval, nothing, _) = forward(Mode::Eval)?;
    if saved.is_none() || nothing.is_some() {
        return Err(broken("forward saves in Mode::Train, and only there".into()));
    }
    let told = op.output(point.inputs().of())?;
    if told.shape() != y.shape() || told.strides() != y.strides() {
        let [told, given] = [&told, &y].map(|tensor| format!("{:?} {:?}", tensor.shape(), tensor.strides()));
        return Err(broken(format!("Op::output tells shape and strides {told}, forward gives {given}")));
    }
    let same = |what: &str, got: &[u64], expected: &[u64]| match got.iter().zip(expected).position(|(a, b)| a != b) {
        None if got.len() == expected.len() => Ok(()),
        place => Err(broken(format!("{what} has other bits, first at {}", place.unwrap_or_default()))),
    };
    same("a second y", &bits(&forward(Mode::Train)?.0)?, &bits(&y)?)?;

    let gradients = point.gradients(op, dy, (NAN, 0.0), Wanted::All)?;
    let expected = gradients.iter().map(Numbers::bits).collect::<Result<Vec<_>>>()?;
    let untouched = point.gradients_like(op, SMALL)?.iter().map(Numbers::bits).collect::<Result<Vec<_>>>()?;
    for wanted in (0..expected.len()).flat_map(|number| [Wanted::All, Wanted::Only(number), Wanted::AllBut(number)]) {
        for (number, again) in point.gradients(op, dy, (SMALL, 0.0), wanted)?.iter().enumerate() {
            let asked = match wanted {
                Wanted::All => "a second time".into(),
                Wanted::Only(one) => format!("with that of {} alone asked for", names.name(one)),
                Wanted::AllBut(one) => format!("with all but that of {} asked for", names.name(one)),
            };
            let what = format!("the gradient of {} {asked}", names.name(number));
            let expected = if wanted.has(number) { &expected } else { &untouched };
            same(&what, &again.bits()?, &expected[number])?;
        }
    }

    for mode in [Mode::Train, Mode::Eval] {
        let x = point.data[0].clone();
        let mut overwritten = x.clone();
        let mut state = O::State::default();
        let all = point.inputs();
        let others = Inputs { data: &all.of().data[1..], ..all.of() };
        let saved = op.forward_in_place(&mut state, &mut overwritten, others, mode)?;
        let y = if mode == Mode::Train { &y } else { &eval };
        same("y in place", &bits(&overwritten)?, &bits(y)?)?;
        same("the input's clone after a forward in place", &bits(&x)?, &bits(&point.data[0])?)?;
        if let Some(saved) = saved {
            let mut outs = point.gradients_like(op, NAN)?;
            point.backward(op, (&mut state, &saved), dy, 0.0, Wanted::All, &mut outs)?;
            for (number, out) in outs.iter().enumerate() {
                let what = format!("the gradient of {} after a forward in place", names.name(number));
                same(&what, &out.bits()?, &expected[number])?;
            }
        }
    }
    refuses(op, point, dy, device)?;

    let added = point.gradients(op, dy, (SMALL, BETA), Wanted::All)?;
    let output = |what: &str, y| Computed { what: what.into(), values: Numbers::Data(y) };
    let computed = |what: &str| {
        let what = what.to_owned();
        move |(number, values)| Computed { what: format!("{what} of {}", names.name(number)), values }
    };
    Ok([output("y", y), output("y in Mode::Eval", eval)]
        .into_iter()
        .chain(gradients.into_iter().enumerate().map(computed("the gradient")))
        .chain(added.into_iter().enumerate().map(computed("the gradient added to half of another")))
        .collect())
}

/// Checks that tensors elsewhere and of other shapes are refused.
fn refuses<T: Real, O: Op<T>>(op: &O, point: &Point<T>, dy: &Tensor<T>, device: &Device) -> Result<(), Failure> {
    let expect = |what: String, result: Result<()>, right: fn(&Error) -> bool, expected: &str| match result {
        Err(error) if right(&error) => Ok(()),
        other => {
            let found = other.map_or_else(|error| format!("said: {error}"), |()| "succeeded".into());
            let what = format!("with {what} it should be {expected}, and it {found}");
            Err(Failure::Contract { op: op.names().op, device: device.to_string(), what })
        }
    };
    let names = op.names();
    let elsewhere: fn(&Error) -> bool = |error| matches!(error, Error::Device { .. });
    let misshapen: fn(&Error) -> bool = |error| matches!(error, Error::Shape { .. });

    let count = point.data.len() + point.parameters.len();
    for number in (0..count).filter(|_| count > 1) {
        let (mut moved, of_data) = (point.clone(), point.data.len());
        if number < of_data {
            moved.data[number] = moved.data[number].to(&Device::Shapes)?;
        } else {
            moved.parameters[number - of_data] = moved.parameters[number - of_data].to(&Device::Shapes)?;
        }
        let result = op.forward(&mut O::State::default(), moved.inputs().of(), Mode::Train).map(drop);
        let all: Vec<_> = names.data.iter().chain(names.parameters).chain(names.settings).collect();
        expect(format!("{} elsewhere", all[number]), result, elsewhere, "Error::Device")?;
    }

    let larger = |shape: &[usize]| match shape {
        [] => vec![2],
        [first, rest @ ..] => [&[first + 1], rest].concat(),
    };
    let backward = |dy: &Tensor<T>, change: &dyn Fn(&mut Vec<Numbers<T>>) -> Result<()>| -> Result<Result<()>> {
        let mut state = O::State::default();
        let (_, saved) = op.forward(&mut state, point.inputs().of(), Mode::Train)?;
        let Some(saved) = saved else { return Ok(Ok(())) };
        let mut outs = point.gradients_like(op, NAN)?;
        change(&mut outs)?;
        Ok(point.backward(op, (&mut state, &saved), dy, 0.0, Wanted::All, &mut outs))
    };
    let unchanged = |_: &mut Vec<Numbers<T>>| Ok(());
    let result = backward(&dy.to(&Device::Shapes)?, &unchanged)?;
    expect("dy elsewhere".into(), result, elsewhere, "Error::Device")?;
    let result = backward(&Tensor::empty(device, &larger(dy.shape()))?, &unchanged)?;
    expect("dy of another shape".into(), result, misshapen, "Error::Shape")?;
    for number in 0..point.check_count(op)? {
        let name = names.name(number);
        let result = backward(dy, &|outs| {
            outs[number] = match &outs[number] {
                Numbers::Data(out) => Numbers::Data(out.to(&Device::Shapes)?),
                Numbers::Parameter(out) => Numbers::Parameter(out.to(&Device::Shapes)?),
            };
            Ok(())
        })?;
        expect(format!("the gradient of {name} elsewhere"), result, elsewhere, "Error::Device")?;
        let result = backward(dy, &|outs| {
            outs[number] = match &outs[number] {
                Numbers::Data(out) => Numbers::Data(Tensor::empty(device, &larger(out.shape()))?),
                Numbers::Parameter(out) => Numbers::Parameter(Tensor::empty(device, &larger(out.shape()))?),
            };
            Ok(())
        })?;
        expect(format!("the gradient of {name} of another shape"), result, misshapen, "Error::Shape")?;
    }
    Ok(())
}

/// For each result of [`keeps_contract`], how far it may be off.
fn bounds<O: Op<f64>>(op: &O, point: &Point<f64>, dy: &Tensor<f64>) -> Result<Vec<Bound>> {
    const RELATIVE: f64 = 1e-5;
    let results = |point: &Point<f64>, dy: &Tensor<f64>| -> Result<Vec<Vec<f64>>> {
        let forward = |mode| op.forward(&mut O::State::default(), point.inputs().of(), mode)?.0.to_vec();
        let mut all = vec![forward(Mode::Train)?, forward(Mode::Eval)?];
        for gradient in point.gradients(op, dy, (NAN, 0.0), Wanted::All)? {
            all.push(gradient.to_vec()?);
        }
        Ok(all)
    };
    let mut magnitudes = results(point, dy)?;
    magnitudes.iter_mut().flatten().for_each(|value| *value = value.abs());
    let mut terms: Vec<Vec<usize>> = magnitudes.iter().map(|values| vec![0; values.len()]).collect();
    let (mut moved, mut moved_dy) = (point.clone(), dy.clone());
    let inputs = point.data.len() + point.parameters.len();
    for number in 0..=inputs {
        let values = if number < inputs { moved.values(number)? } else { dy.to_vec()? };
        for i in 0..values.len() {
            let mut at = |factor: f64| -> Result<Vec<Vec<f64>>> {
                let mut values = values.clone();
                values[i] *= factor;
                if number < inputs {
                    moved.set(number, &values)?
                } else {
                    moved_dy.copy_from_slice(&values)?
                }
                results(&moved, &moved_dy)
            };
            let (high, low) = (at(1.0 + RELATIVE)?, at(1.0 - RELATIVE)?);
            at(1.0)?;
            for (k, (high, low)) in high.iter().zip(&low).enumerate() {
                for (j, (high, low)) in high.iter().zip(low).enumerate() {
                    let moves = (high - low).abs() / (2.0 * RELATIVE);
                    magnitudes[k][j] += moves;
                    terms[k][j] += usize::from(moves > 0.0);
                }
            }
        }
    }
    let bound = |(magnitudes, terms): (&Vec<f64>, &Vec<usize>), half_of_another: bool| {
        let add = |(magnitude, old): (&f64, f64)| magnitude + if half_of_another { BETA * old.abs() } else { 0.0 };
        let magnitudes: Vec<f64> = magnitudes.iter().zip(SMALL(magnitudes.len())).map(add).collect();
        Bound { terms: terms.iter().max().copied().unwrap_or_default(), magnitudes }
    };
    let all = magnitudes.iter().zip(&terms);
    let written = all.clone().map(|result| bound(result, false));
    Ok(written.chain(all.skip(OUTPUTS).map(|result| bound(result, true))).collect())
}
