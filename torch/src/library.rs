//! Registering operators with libtorch.

use std::collections::HashSet;
use std::ffi::CString;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::operator::Entry;
use crate::symbols::{RawLibrary, Stable, Symbols};
use crate::{direct, floor, python, recorded, threads};

/// The dispatch keys that the kernels are for.
pub(crate) const KEYS: [&str; 2] = ["CPU", "CUDA"];

/// By which way PyTorch calls the operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// libtorch calls Rust.
    C,
    /// libtorch calls Python, which calls Rust: slower. For a torch that lacks the C functions, and where the environment
    /// says `FERROLAYER_TORCH_FALLBACK=1`.
    Python,
}

impl Door {
    /// `c` or `fallback`.
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Python => "fallback",
        }
    }
}

/// Makes operators known to PyTorch as `torch.ops.<namespace>.<name>`, on the CPU and on CUDA.
///
/// It imports torch. Call it from a function of your module, or from `#[pymodule]` itself if the module is of no use without
/// torch. Operators that were registered before, by this library, are left as they are.
///
/// ```ignore
/// #[pymodule]
/// fn my_ops(module: &Bound<'_, PyModule>) -> PyResult<()> {
///     ferrolayer_torch::register(module.py(), "my_ops", &ferrolayer_torch::operators![Swish, SwishBackward])?;
///     Ok(())
/// }
/// ```
///
/// Where this PyTorch has what it takes, `torch.ops.<namespace>.<name>.default` has more attributes, functions for code that
/// calls small operators often: `run` is the operator, round the dispatcher where that has nothing to add; `direct` gives
/// `None` where it has, or the operator fails, which is then called a second time by `run`, and by who calls `direct`. Neither
/// knows of gradients. `eager` and `forward` make functions that do, with an `autograd.Function`: `ferrolayer.torch.define`
/// makes use of them. `least` and `least_keeping` compute nothing: they are what a call costs at least, for benches.
///
/// An operator computes, and no more: shapes for `torch.compile` and gradients are told in Python, by
/// `torch.library.register_fake` and `register_autograd`.
///
/// # Errors
/// `ImportError` without torch; `RuntimeError` for a name that someone else has defined.
pub fn register(py: Python<'_>, namespace: &str, operators: &[Entry]) -> PyResult<Door> {
    static REGISTERED: Mutex<Option<HashSet<(String, &'static str)>>> = Mutex::new(None);
    py.import("torch")?;
    threads::install();
    let door = door();
    // The lock is not waited for with Python's own in hand.
    let fresh: Vec<Entry> = py.detach(|| {
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let registered = registered.get_or_insert_default();
        operators.iter().filter(|entry| registered.insert((namespace.into(), entry.name()))).copied().collect()
    });
    if !fresh.is_empty() {
        match door {
            Some((symbols, stable)) => {
                py.detach(|| through_c(symbols, stable, namespace, &fresh)).map_err(PyRuntimeError::new_err)?;
            }
            None => python::register(py, namespace, &fresh)?,
        }
        let registered = py.import("torch")?.getattr("ops")?.getattr(namespace)?;
        for entry in fresh {
            let operator = registered.getattr(entry.name())?.getattr("default")?;
            // What stands behind the object, which looks at its arguments in Python first.
            let bare = operator.getattr_opt("_op")?.unwrap_or_else(|| operator.clone());
            if let Some((state, [direct, run])) = direct::functions(py, entry, &bare)? {
                operator.setattr("direct", direct)?;
                operator.setattr("run", run)?;
                if state.lends() {
                    operator.setattr("least", floor::function(py, state)?)?;
                    operator.setattr("least_keeping", floor::keeping(py, state)?)?;
                }
                recorded::attach(&operator, state)?;
            }
        }
    }
    Ok(if door.is_some() { Door::C } else { Door::Python })
}

/// libtorch's C functions, where those that operators are registered by are there and are to be used.
fn door() -> Option<(&'static Symbols, &'static Stable)> {
    let refused = std::env::var("FERROLAYER_TORCH_FALLBACK").is_ok_and(|value| value == "1");
    let symbols = Symbols::get().filter(|_| !refused)?;
    Some((symbols, symbols.stable.as_ref()?))
}

fn through_c(symbols: &Symbols, stable: &Stable, namespace: &str, operators: &[Entry]) -> Result<(), String> {
    let text = |text: &str| CString::new(text).map_err(|_| format!("{text:?} has a zero byte"));
    let failed = |what: String| format!("{what}: {}", symbols.last_error());
    // libtorch keeps the pointer to the file's name.
    const FILE: &std::ffi::CStr = c"ferrolayer-torch";
    let name = text(namespace)?;
    // Libraries are never deleted: what torch.ops has kept of an operator would be left without its kernel.
    let mut library: RawLibrary = ptr::null_mut();
    // SAFETY: the texts end with zeros, and the result may be written.
    if unsafe { (stable.library_fragment)(name.as_ptr(), FILE.as_ptr(), 0, &mut library) } != 0 {
        return Err(failed(format!("making the namespace {namespace}")));
    }
    for entry in operators {
        let schema = text(entry.signature.schema())?;
        // SAFETY: the library lives, and the text ends with zero.
        if unsafe { (stable.define)(library, schema.as_ptr()) } != 0 {
            return Err(failed(format!("defining {namespace}::{}", entry.name())));
        }
    }
    for key in KEYS {
        let key = text(key)?;
        // SAFETY: as above.
        if unsafe { (stable.library_impl)(name.as_ptr(), key.as_ptr(), FILE.as_ptr(), 0, &mut library) } != 0 {
            return Err(failed(format!("implementing {namespace}")));
        }
        for entry in operators {
            let operator = text(entry.name())?;
            // SAFETY: the kernel reads and writes what the schema, which this operator was defined by, says.
            if unsafe { (stable.implement)(library, operator.as_ptr(), entry.kernel) } != 0 {
                return Err(failed(format!("implementing {namespace}::{}", entry.name())));
            }
        }
    }
    Ok(())
}
