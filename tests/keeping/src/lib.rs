//! `torch.ops.keeping`: operators that keep what they were given, or give it back.

use std::sync::Mutex;
use std::thread;

use ferrolayer::Tensor;
use ferrolayer::ops::relu;
use ferrolayer_torch::{Arguments, Operator, Outputs, Result, operators};
use pyo3::prelude::*;

/// What [`Keep`] was given.
static KEPT: Mutex<Vec<Tensor<f32>>> = Mutex::new(Vec::new());

/// `max(x, 0)`, and `x` is kept.
struct Keep;

impl Operator for Keep {
    const SCHEMA: &'static str = "keep(Tensor x) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.tensor::<f32>()?;
        let y = relu::forward(&x)?;
        KEPT.lock().expect("no one panicked").push(x);
        Ok(y.into())
    }
}

/// `max(x, 0)` of what was kept last, which another thread lets go while this one waits.
struct Kept;

impl Operator for Kept {
    const SCHEMA: &'static str = "kept(Tensor like) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        drop(arguments.any()?);
        let x = KEPT.lock().expect("no one panicked").pop().expect("something was kept");
        let y = relu::forward(&x)?;
        thread::spawn(|| drop(x)).join().expect("nothing panics there");
        Ok(y.into())
    }
}

/// `x` itself.
struct Same;

impl Operator for Same {
    const SCHEMA: &'static str = "same(Tensor x) -> Tensor";

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        Ok(arguments.any()?.into())
    }
}

#[pymodule]
fn keeping(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ferrolayer_torch::register(module.py(), "keeping", &operators![Keep, Kept, Same]).map(drop)
}
