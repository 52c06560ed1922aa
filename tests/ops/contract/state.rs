//! State that lives between calls.

use ferrolayer::device::{Cpu, Gpu, OnCpu, OnGpu};
use ferrolayer::nn::{Apply, Layer, Sequential};
use ferrolayer::op::{Backward, Inputs, Mode, Names, Op};
use ferrolayer::testing::{compare_devices, gradcheck, normal};
use ferrolayer::{Device, Error, Out, Real, Result, Tensor, check};

use crate::support::{Outcome, Trial, assert_same_bits, on_cpu};

pub fn tests() -> Vec<Trial> {
    vec![
        on_cpu("contract::state::draws_go_on_and_repeat", draws_go_on_and_repeat),
        on_cpu("contract::state::tools_begin_anew", tools_begin_anew),
        on_cpu("contract::state::apply_keeps_it", apply_keeps_it),
    ]
}

/// Each element is kept or dropped, another half at each call (Srivastava et al., JMLR 15, 2014).
#[derive(Clone, Copy, Debug)]
struct Dropout {
    seed: u64,
}

/// How many there were.
#[derive(Debug, Default)]
struct Draws(u64);

/// `y = x * mask`, and `dx = dy * mask`.
struct Masked<'a, T: Real> {
    x: &'a Tensor<T>,
    mask: &'a Tensor<T>,
    y: Out<'a, T>,
}

impl<T: Real> OnCpu for Masked<'_, T> {
    fn on_cpu(self, cpu: &Cpu) -> Result<()> {
        cpu.map(self.y.tensor.host_mut()?, self.y.beta, [self.x.host()?, self.mask.host()?], |[x, mask]| x * mask);
        Ok(())
    }
}

impl<T: Real> OnGpu for Masked<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        let (got, expected) = (gpu.to_string(), "the CPU".into());
        Err(Error::Device { op: "dropout", argument: "x", got, expected })
    }
}

impl<T: Real> Op<T> for Dropout {
    type State = Draws;
    /// The mask.
    type Saved = Tensor<T>;

    fn names(&self) -> Names {
        Names::new("dropout", &["x"], &[])
    }

    fn forward(&self, state: &mut Draws, inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        let ([x], []) = inputs.exactly("dropout.forward")?;
        if mode == Mode::Eval {
            return Ok((x.clone(), None));
        }
        let mask = normal::<f64>(&Device::cpu(), self.seed + state.0, x.shape())?.to_vec()?;
        let mask: Vec<_> = mask.into_iter().map(|v| T::of(if v > 0.0 { 2.0 } else { 0.0 })).collect();
        let mask = Tensor::from_vec(x.device(), x.shape(), mask)?;
        let mut y = x.empty_like()?;
        x.device().run(Masked { x, mask: &mask, y: Out::write(&mut y) })?;
        state.0 += 1;
        Ok((y, Some(mask)))
    }

    fn backward(&self, _: &mut Draws, call: Backward<'_, T, Tensor<T>>) -> Result<()> {
        const OP: &str = "dropout.backward";
        let (mask, dy) = (call.saved, call.dy);
        let ([], [dx], []) = call.exactly(OP)?;
        check::like(OP, "dy", dy, mask)?;
        let Some(dx) = dx else { return Ok(()) };
        check::like(OP, "dx", dx.tensor, mask)?;
        dy.device().run(Masked { x: dy, mask, y: dx })
    }
}

fn draws_go_on_and_repeat() -> Outcome {
    let device = Device::cpu();
    let x = Tensor::full(&device, &[64], 1.0f32)?;
    let op = Dropout { seed: 7 };
    let run = |state: &mut Draws| op.forward(state, Inputs { data: &[&x], parameters: &[] }, Mode::Train);
    let (mut one, mut other) = (Draws::default(), Draws::default());
    let (first, second) = (run(&mut one)?.0, run(&mut one)?.0);
    assert_ne!(first.to_vec()?, second.to_vec()?);
    assert_same_bits("the first of another state", &run(&mut other)?.0, &first)?;
    assert_same_bits("the second of another state", &run(&mut other)?.0, &second)
}

/// An op that draws can be checked: each run has a new state.
fn tools_begin_anew() -> Outcome {
    let x = normal(&Device::cpu(), 1, &[20])?;
    let inputs = Inputs { data: &[&x], parameters: &[] };
    gradcheck(&Dropout { seed: 3 }, inputs)?;
    compare_devices::<f32, _>(&Dropout { seed: 3 }, inputs, [&Device::cpu(), &Device::cpu()])?;
    Ok(())
}

fn apply_keeps_it() -> Outcome {
    let x = Tensor::full(&Device::cpu(), &[64], 1.0f32)?;
    let mut model = Sequential::new().then(Apply::new(Dropout { seed: 7 }, vec![])?);
    let (first, _, second) = (
        model.forward(&x, Mode::Train)?,
        // Draws nothing, and changes no draw.
        model.forward(&x, Mode::Eval)?,
        model.forward(&x, Mode::Train)?,
    );
    assert_ne!(first.to_vec()?, second.to_vec()?);
    assert_same_bits("dx of ones", &model.backward(&x)?, &second)
}
