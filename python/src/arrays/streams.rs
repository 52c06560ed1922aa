//! The order of work on GPUs between this library's streams, one for each GPU, and those of the arrays' libraries.
//!
//! An argument's library was told our stream when it handed the array over, and had it wait for the array's own work. What is
//! left to see to is that it does not use the memory for something else while our work is queued: DLPack says nothing of
//! when a deleter may be called, and PyTorch's and CuPy's memory goes back to their pools at once when it is. These pools
//! are of their streams: once the stream waits for ours, all is in order, and what the caller does to the array on that stream
//! afterwards, such as overwriting it, too. Other libraries' streams are not known: their arrays are kept until our work is
//! done, which is looked up at later calls. No one waits on the CPU.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use ferrolayer::Device;
use ferrolayer::device::{Gpu, Mark};
use ferrolayer_torch::AnyTensor;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;

use super::capsule::Capsule;
use super::error::raised;
use super::take::Place;

/// The GPU with this number, on this library's stream there.
pub fn device(py: Python<'_>, ordinal: u32) -> PyResult<Device> {
    static GPUS: Mutex<Vec<(u32, Device)>> = Mutex::new(Vec::new());
    // Opening a GPU takes seconds. Who waits for the lock must not have Python's.
    py.detach(|| {
        let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, device)) = gpus.iter().find(|(known, _)| *known == ordinal) {
            return Ok(device.clone());
        }
        let device = Device::gpu(ordinal)?;
        gpus.push((ordinal, device.clone()));
        Ok(device)
    })
    .map_err(|error: ferrolayer::Error| raised("ferrolayer", error.into()))
}

/// The module of this name, if the program has imported it.
pub fn loaded<'py>(py: Python<'py>, name: &str) -> Option<Bound<'py, PyAny>> {
    let modules = py.import(intern!(py, "sys")).ok()?.getattr(intern!(py, "modules")).ok()?;
    modules.get_item(name).ok().filter(|module| !module.is_none())
}

/// Whether an object is of this class of a module that is imported.
pub fn is_of(object: &Bound<'_, PyAny>, module: &Bound<'_, PyAny>, class: &str) -> bool {
    module.getattr(class).and_then(|class| object.is_instance(&class)).unwrap_or(false)
}

/// An array that is used by work on a GPU.
pub struct Lent {
    capsule: Arc<Capsule>,
    /// The stream in whose order its library uses memory again.
    stream: Option<usize>,
}

impl Lent {
    pub fn new(capsule: Arc<Capsule>, stream: Option<usize>) -> Self {
        Self { capsule, stream }
    }
}

/// The stream in whose order the library of an array on this GPU uses memory again, where it is known. It is not one that is
/// captured: our stream, which waits for it, would be, too.
pub fn stream_of(at: Place<'_>, array: &Bound<'_, PyAny>, gpu: &Gpu, ordinal: u32) -> PyResult<Option<usize>> {
    let stream = current_stream(array, ordinal);
    let captures = stream.is_some_and(|stream| {
        // SAFETY: the library says that it is its current stream of this GPU, and the libraries use the primary context.
        unsafe { gpu.captures(std::ptr::without_provenance_mut(stream)) }.unwrap_or(false)
    });
    if captures {
        return Err(PyRuntimeError::new_err(format!(
            "{}: {} is on a stream that is captured as a CUDA graph, where functions of arrays cannot be called; \
             ferrolayer.torch's can",
            at.operator, at.argument
        )));
    }
    Ok(stream)
}

/// The current stream of an array's library, where it is known.
fn current_stream(array: &Bound<'_, PyAny>, ordinal: u32) -> Option<usize> {
    let py = array.py();
    if loaded(py, "torch").is_some_and(|torch| is_of(array, &torch, "Tensor")) {
        return torch_stream(py, ordinal);
    }
    if loaded(py, "cupy").is_some_and(|cupy| is_of(array, &cupy, "ndarray")) {
        return Some(cupy_stream(py, ordinal)?.0);
    }
    None
}

/// PyTorch's current stream.
fn torch_stream(py: Python<'_>, ordinal: u32) -> Option<usize> {
    let current = loaded(py, "torch")?.getattr("cuda").ok()?.call_method1("current_stream", (ordinal,)).ok()?;
    current.getattr("cuda_stream").ok()?.extract().ok()
}

/// CuPy's current stream, and its object.
fn cupy_stream(py: Python<'_>, ordinal: u32) -> Option<(usize, Bound<'_, PyAny>)> {
    let current = loaded(py, "cupy")?.getattr("cuda").ok()?.call_method1("get_current_stream", (ordinal,)).ok()?;
    Some((current.getattr("ptr").ok()?.extract().ok()?, current))
}

/// Arrays that are kept until the work before a mark is done.
static KEPT: Mutex<Vec<(Mark, Vec<Arc<Capsule>>)>> = Mutex::new(Vec::new());

/// Memory of ours whose last reader may have been JAX: see [`Reader::finish`].
static READ_BY_JAX: Mutex<Vec<(Gpu, u32, AnyTensor)>> = Mutex::new(Vec::new());

/// Lets go of what work used that is done by now, or comes before what is queued from now on.
pub fn release(py: Python<'_>) {
    release_arguments();
    let mut read = std::mem::take(&mut *READ_BY_JAX.lock().unwrap_or_else(PoisonError::into_inner));
    let mut fenced: Vec<(u32, bool)> = Vec::new();
    read.retain(|(gpu, ordinal, _)| {
        let known = fenced.iter().find(|(known, _)| known == ordinal).map(|(_, done)| *done);
        let done = known.unwrap_or_else(|| {
            let stream = gpu.raw_stream().addr();
            let fence = py.import("ferrolayer.functional._jax").and_then(|module| module.getattr("fence"));
            let done = fence.and_then(|fence| fence.call1((*ordinal, stream))).is_ok();
            fenced.push((*ordinal, done));
            done
        });
        !done
    });
    // What could not be ordered is tried again.
    READ_BY_JAX.lock().unwrap_or_else(PoisonError::into_inner).append(&mut read);
}

fn release_arguments() {
    let mut done = Vec::new();
    {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        // After a kernel's fault no more work runs there.
        done.extend(kept.extract_if(.., |(mark, _)| mark.is_done().unwrap_or(true)));
    }
    // Without the lock: deleters run anything.
    drop(done);
}

/// The arrays that a call uses. They go back at its end, however it ends, and on a GPU in the order of the work.
#[derive(Default)]
pub struct Loans {
    on_cpu: Vec<Arc<Capsule>>,
    on_gpus: Vec<(Gpu, Vec<Lent>)>,
}

impl Loans {
    pub fn on_cpu(&mut self, capsule: Arc<Capsule>) {
        self.on_cpu.push(capsule);
    }

    pub fn on_gpu(&mut self, gpu: &Gpu, lent: Lent) {
        match self.on_gpus.iter_mut().find(|(known, _)| known == gpu) {
            Some((_, arrays)) => arrays.push(lent),
            None => self.on_gpus.push((gpu.clone(), vec![lent])),
        }
    }
}

impl Drop for Loans {
    fn drop(&mut self) {
        for (gpu, arrays) in self.on_gpus.drain(..) {
            give_back(&gpu, arrays);
        }
    }
}

/// Gives arrays back that work uses which is queued on this GPU's stream now.
fn give_back(gpu: &Gpu, arrays: Vec<Lent>) {
    let mut ordered = Vec::new();
    let mut kept = Vec::new();
    for Lent { capsule, stream } in arrays {
        let in_order = stream.is_some_and(|stream| {
            ordered.contains(&stream) || {
                let handle: *mut c_void = std::ptr::without_provenance_mut(stream);
                // SAFETY: the library says that it is its current stream of this GPU, and the libraries use the primary context.
                let result = unsafe { gpu.hold_back(handle) };
                ordered.extend(result.is_ok().then_some(stream));
                result.is_ok()
            }
        });
        if !in_order {
            kept.push(capsule);
        }
    }
    if kept.is_empty() {
        return;
    }
    match gpu.mark() {
        Ok(mark) => KEPT.lock().unwrap_or_else(PoisonError::into_inner).push((mark, kept)),
        // When our work is done cannot be told: the memory is never used again.
        Err(_) => std::mem::forget(kept),
    }
}

/// Who uses memory of ours, on a stream of this GPU.
pub struct Reader {
    gpu: Gpu,
    ordinal: u32,
    stream: usize,
    /// CuPy's object of the stream, which destroys it at its end.
    _keeper: Option<Py<PyAny>>,
    /// The stream is neither PyTorch's nor CuPy's, and JAX is there.
    may_be_jax: bool,
}

/// `cuda.h`'s handle of the legacy default stream that works in every call.
const LEGACY: usize = 1;

impl Reader {
    /// Has the stream that was given to `__dlpack__` wait for ours. Its values are the protocol's: `None` and 1 the legacy
    /// default stream, 2 that of the thread, a larger one a handle, -1 for a reader who sees to the order without us.
    pub fn new(py: Python<'_>, gpu: &Gpu, ordinal: u32, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Self>> {
        let stream = match stream.map_or(Ok(LEGACY as isize), |stream| stream.extract())? {
            -1 => return Ok(None),
            number @ 1.. => number as usize,
            number => {
                let text = format!("stream is {number}, expected None, -1, 1, 2 or a CUDA stream's handle");
                return Err(PyValueError::new_err(text));
            }
        };
        let handle: *mut c_void = std::ptr::without_provenance_mut(stream);
        // SAFETY: by the protocol it is a stream of the array's GPU, whose primary context everyone uses.
        unsafe { gpu.hold_back(handle) }.map_err(|error| raised("__dlpack__", error.into()))?;
        let is_it = |handle: usize| handle == stream || handle == 0 && stream == LEGACY;
        let keeper = cupy_stream(py, ordinal).filter(|(handle, _)| is_it(*handle)).map(|(_, object)| object.unbind());
        let known = keeper.is_some() || torch_stream(py, ordinal).is_some_and(is_it);
        let may_be_jax = !known && loaded(py, "jax").is_some();
        Ok(Some(Self { gpu: gpu.clone(), ordinal, stream, _keeper: keeper, may_be_jax }))
    }

    /// The end of the memory for this reader: it is freed, or used again, in our stream's order, which has the reader's work
    /// before it from here on.
    ///
    /// PyTorch and CuPy call deleters when the last use is queued on the stream that they gave, so that ours waits for that.
    /// JAX does so, too, but the stream that it gives is not the one on which it computes: memory that it may have had waits
    /// until JAX can be asked, which it cannot in a deleter.
    pub fn finish(&self, tensor: AnyTensor) {
        let handle: *mut c_void = std::ptr::without_provenance_mut(self.stream);
        // SAFETY: as in `new`; that the stream still lives is known of PyTorch's and JAX's, which are never destroyed, and of
        // CuPy's, which is kept. Of others the protocol does not say it: `Array.__dlpack__` asks for it.
        let ordered = unsafe { self.gpu.wait_for(handle) };
        if ordered.is_err() {
            // A graph is being captured there, or the driver has failed: the memory is never used again.
            std::mem::forget(tensor);
        } else if self.may_be_jax {
            let mut read = READ_BY_JAX.lock().unwrap_or_else(PoisonError::into_inner);
            read.push((self.gpu.clone(), self.ordinal, tensor));
        }
    }
}
