//! Ops that break the contract, each in one way: the tools must find it, and name it.

use std::sync::atomic::{AtomicU32, Ordering};

use ferrolayer::device::GpuOptions;
use ferrolayer::op::{self, Backward, Inputs, Mode, Names};
use ferrolayer::ops::scale_add;
use ferrolayer::testing::{Failure, compare_devices, gradcheck};
use ferrolayer::{Device, Out, Real, Result, Tensor, check};

use super::inputs;
use crate::support::{Outcome, Trial, on_cpu};

pub fn tests() -> Vec<Trial> {
    vec![
        on_cpu("contract::faults::gradcheck_names_the_worst_element", gradcheck_names_the_worst_element),
        on_cpu("contract::faults::gradcheck_moves_off_kinks", gradcheck_moves_off_kinks),
        on_cpu("contract::faults::compare_devices_finds_each", compare_devices_finds_each),
    ]
}

/// What an op does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// A gradient that is off by 1 in 10,000.
    Gradient,
    /// A zigzag, with a kink at each multiple of 0.001.
    Kinks,
    /// What the gradient held is overwritten.
    Beta,
    /// An element of the gradient is not written.
    LeftOut,
    /// Another result each time.
    Unsteady,
    /// Memory is kept for a backward that will not come.
    SavesInEval,
    /// The GPU computes something else.
    Gpu,
    /// In place it computes something else.
    InPlace,
    /// The parameter may be anywhere.
    Unchecked,
    /// A gradient that is not asked for changes another.
    Skipped,
}

/// `y = 2 x + p`.
#[derive(Clone, Copy, Debug)]
struct Twice(Fault);

/// One number.
fn number<T: Real>(device: &Device, value: f64) -> Result<Tensor<T>> {
    Tensor::full(device, &[1], T::of(value))
}

impl<T: Real> op::Op<T> for Twice {
    type State = ();
    type Saved = ();

    fn names(&self) -> Names {
        Names::new("twice", &["x"], &["p"])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<()>)> {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let ([x], [p]) = inputs.exactly("twice.forward")?;
        let factor = match self.0 {
            Fault::Unsteady => 2.0 + f64::from(CALLS.fetch_add(1, Ordering::Relaxed)) * 0.01,
            Fault::Gpu if matches!(x.device(), Device::Gpu(_)) => 2.0001,
            _ => 2.0,
        };
        let p = if self.0 == Fault::Unchecked { &number(x.device(), 0.0)? } else { p };
        let mut y = scale_add::forward(x, &number(x.device(), factor)?, p)?;
        if self.0 == Fault::Kinks && y.device() != &Device::Shapes {
            let zigzag = |x: &T| T::of(((x.f64() * 1e3).rem_euclid(2.0) - 1.0).abs());
            y.copy_from_slice(&x.to_vec()?.iter().map(zigzag).collect::<Vec<_>>())?;
        }
        let saved = if self.0 == Fault::SavesInEval { Some(()) } else { mode.keep(|| ()) };
        Ok((y, saved))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, ()>) -> Result<()> {
        let dy = call.dy;
        let ([_], [dx], [dp]) = call.exactly("twice.backward")?;
        let device = dy.device();
        if let Some(dp) = dp {
            check::device("twice.backward", "dp", dp.tensor, dy)?;
            check::shape("twice.backward", "dp", dp.tensor, &[1])?;
            if device != &Device::Shapes {
                let sum = dy.to_vec()?.iter().map(|dy| dy.f64()).sum::<f64>();
                let sum = if self.0 == Fault::Skipped && dx.is_none() { sum + 1.0 } else { sum };
                scale_add::backward(&number(device, sum)?, &number(device, 1.0)?, dp)?;
            }
        }
        let Some(Out { tensor, beta }) = dx else { return Ok(()) };
        let beta = if self.0 == Fault::Beta { 0.0 } else { beta };
        let factor = number(device, if self.0 == Fault::Gradient { 2.0002 } else { 2.0 })?;
        let old = tensor.clone();
        scale_add::backward(dy, &factor, Out { tensor, beta })?;
        if self.0 == Fault::LeftOut {
            let mut values = tensor.to_vec()?;
            values[0] = old.to_vec()?[0];
            tensor.copy_from_slice(&values)?;
        }
        Ok(())
    }

    fn forward_in_place(
        &self,
        state: &mut (),
        x: &mut Tensor<T>,
        others: Inputs<'_, T>,
        mode: Mode,
    ) -> Result<Option<()>> {
        let before = x.clone();
        let (y, saved) = self.forward(state, Inputs { data: &[x], ..others }, mode)?;
        *x = if self.0 == Fault::InPlace { before } else { y };
        Ok(saved)
    }
}

fn gradcheck_names_the_worst_element() -> Outcome {
    let [data, parameters] = inputs(&[&[5]], &[&[1]])?;
    let inputs = Inputs { data: &[&data[0]], parameters: &[&parameters[0]] };
    gradcheck(&Twice(Fault::None), inputs)?;
    let error = gradcheck(&Twice(Fault::Gradient), inputs).expect_err("a wrong factor");
    let text = error.to_string();
    assert!(text.starts_with("twice: gradient of x at ") && text.contains("central difference"), "{text}");
    let Failure::Gradient { mismatch, .. } = error else { return Err(text.into()) };
    assert!((mismatch.analytic / mismatch.numeric - 1.0001).abs() < 1e-6, "{mismatch}");
    // An element that is not written.
    assert!(
        matches!(gradcheck(&Twice(Fault::LeftOut), inputs), Err(Failure::Gradient { mismatch, .. }) if mismatch.index == 0)
    );
    Ok(())
}

fn gradcheck_moves_off_kinks() -> Outcome {
    let device = Device::cpu();
    let x = Tensor::from_slice(&device, &[4], &[0.0, 1.0, 0.0, 3e-6])?;
    gradcheck(&ferrolayer::ops::relu::Op, Inputs { data: &[&x], parameters: &[] })?;
    // Ties of a maximum.
    let ties = Tensor::full(&device, &[1, 1, 4, 4], 1.0)?;
    let pool = ferrolayer::ops::max_pool::Op { window: ferrolayer::ops::Window::new([2, 2]) };
    gradcheck(&pool, Inputs { data: &[&ties], parameters: &[] })?;
    // Kinks wherever it is moved.
    let (x, p) = (Tensor::zeros(&device, &[1])?, Tensor::zeros(&device, &[1])?);
    let error = gradcheck(&Twice(Fault::Kinks), Inputs { data: &[&x], parameters: &[&p] }).expect_err("no derivative");
    assert!(matches!(error, Failure::Kink { op: "twice", input: "x", index: 0 }), "{error}");
    Ok(())
}

fn compare_devices_finds_each() -> Outcome {
    let [data, parameters] = inputs(&[&[5]], &[&[1]])?;
    let inputs = Inputs { data: &[&data[0]], parameters: &[&parameters[0]] };
    let (cpu, gpu) = (Device::cpu(), Device::Gpu(GpuOptions::default().poison().emulated()));
    let run = |fault| compare_devices::<f32, _>(&Twice(fault), inputs, [&cpu, &gpu]);
    run(Fault::None)?;
    for (fault, said) in [
        (Fault::LeftOut, "the gradient of x a second time has other bits, first at 0"),
        (Fault::Beta, "the gradient added to half of another of x is"),
        (Fault::Unsteady, "a second y has other bits"),
        (Fault::SavesInEval, "forward saves in Mode::Train, and only there"),
        (Fault::InPlace, "y in place has other bits"),
        (Fault::Unchecked, "with x elsewhere it should be Error::Device, and it succeeded"),
        (Fault::Skipped, "the gradient of p with all but that of x asked for has other bits"),
        (Fault::Gpu, "twice, the emulated GPU after the CPU: y: 5 of 5 elements differ"),
    ] {
        let Err(error) = run(fault) else { return Err(format!("{fault:?} was not found").into()) };
        assert!(error.to_string().contains(said), "{fault:?}: {error}");
    }
    Ok(())
}
