//! Tensors that an operator has for the time of its call, of which it counts no reference.
//!
//! A reference to a tensor that Python has costs more than a small operator computes: since 2.10 it makes the tensor hold its
//! Python object in turn, for which Python's lock is asked for, and again when the reference goes. An argument of a call from
//! Python is held by the caller until that is over, so that none is needed while no other Python runs. Where others do, the
//! call has references, and lets them go when it has the lock again.
//!
//! An operator may keep a tensor nonetheless: then the loan has references for as long, and until the next call from Python,
//! whose thread has the lock that letting them go takes.

use std::any::Any;
use std::cell::Cell;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::handle::Handle;
use crate::python_symbols::FromPython;
use crate::symbols::RawTensor;

/// Where in an object of `torch.Tensor` or a subclass the `at::Tensor` is, in bytes from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

impl Place {
    /// The place where PyTorch's objects have the tensor that PyTorch itself gives for them; `None` unless there is one such
    /// place, of tensors and of parameters.
    pub fn get(py: Python<'_>, from_python: &FromPython) -> PyResult<Option<Self>> {
        static PLACE: PyOnceLock<Option<Place>> = PyOnceLock::new();
        PLACE.get_or_try_init(py, || Self::find(py, from_python)).copied()
    }

    fn find(py: Python<'_>, from_python: &FromPython) -> PyResult<Option<Self>> {
        let torch = py.import("torch")?;
        let keywords = PyDict::new(py);
        keywords.set_item("device", "cpu")?;
        let new = |size: usize| torch.getattr("empty")?.call((size,), Some(&keywords));
        let parameter = torch.getattr("nn")?.getattr("Parameter")?.call1((new(1)?,))?;
        // What all of these objects have, subclasses too.
        let size: usize = torch.getattr("_C")?.getattr("TensorBase")?.getattr("__basicsize__")?.extract()?;
        let words = size_of::<ffi::PyObject>() / size_of::<usize>()..size / size_of::<usize>();
        let mut found = None;
        for object in [new(1)?, new(2)?, parameter] {
            // SAFETY: Python is attached, and this is a tensor.
            let Some(handle) = (unsafe { from_python.tensor(object.as_ptr()) }) else { return Ok(None) };
            // An `at::Tensor` is no more than a pointer to what it is of.
            // SAFETY: a handle is a pointer to an `at::Tensor`.
            let tensor = unsafe { *handle.as_raw().cast::<usize>() };
            // SAFETY: within the object, whose size this is.
            let is_there = |word: &usize| unsafe { *object.as_ptr().cast::<usize>().add(*word) == tensor };
            let mut places = words.clone().filter(is_there).map(|word| Self(word * size_of::<usize>()));
            let (first, second) = (places.next(), places.next());
            if first.is_none() || second.is_some() || found.is_some_and(|found| Some(found) != first) {
                return Ok(None);
            }
            found = first;
        }
        Ok(found)
    }

    /// The tensor in an object, which is not to be deleted.
    ///
    /// # Safety
    /// It is an object of `torch.Tensor` or a subclass.
    #[inline]
    pub unsafe fn tensor(self, object: *mut ffi::PyObject) -> RawTensor {
        // SAFETY: the caller's; objects of a class have all one layout.
        unsafe { object.byte_add(self.0).cast() }
    }
}

/// What is lent in a call.
#[derive(Debug)]
pub(crate) struct Loan {
    /// Tensors that were lent. Only who has the call's arguments lends: no one else counts here at the same time.
    lent: AtomicUsize,
    /// How many are out, once the call is over; until then [`AHEAD`] less those that were given back.
    out: AtomicUsize,
    /// References to the tensors, where some were not given back in time.
    kept: OnceLock<Vec<Handle>>,
}

/// More than are given back in a call.
const AHEAD: usize = usize::MAX / 2;

impl Default for Loan {
    fn default() -> Self {
        Self { lent: AtomicUsize::new(0), out: AtomicUsize::new(AHEAD), kept: OnceLock::new() }
    }
}

thread_local! {
    /// One that a call of this thread's has done with, for the next.
    static SPARE: Cell<Option<Box<Loan>>> = const { Cell::new(None) };
}

impl Loan {
    /// Lends in a call, and looks afterwards whether all was given back; if not it has `keep` make references.
    ///
    /// # Safety
    /// What is lent lives until this returns, and as long as what `keep` gives. Python is attached when this is called, and
    /// when `call` returns.
    #[inline]
    pub unsafe fn during<R>(keep: impl FnOnce() -> Vec<Handle>, call: impl FnOnce(&Self) -> R) -> R {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let loan = NonNull::from(Box::leak(spare.unwrap_or_default()));
        // For `Lent`, which has no more than the address.
        _ = loan.as_ptr().expose_provenance();
        // SAFETY: it lives until all is given back and this call is over.
        let lender = unsafe { loan.as_ref() };
        let result = call(lender);
        let lent = lender.lent.load(Ordering::Relaxed);
        if lender.out.load(Ordering::Acquire) == AHEAD - lent {
            // SAFETY: made by a box, and used by no one else any more.
            let mut spare = unsafe { Box::from_raw(loan.as_ptr()) };
            *spare.lent.get_mut() = 0;
            *spare.out.get_mut() = AHEAD;
            // Where the thread is about to end it is dropped.
            _ = SPARE.try_with(|place| place.set(Some(spare)));
        } else {
            lender.kept.get_or_init(keep);
            // SAFETY: by this the call is over.
            unsafe { Self::give_back(loan, AHEAD - lent) };
        }
        if ANY_LEFT.load(Ordering::Relaxed) {
            let_go();
        }
        result
    }

    /// The owner of memory that a tensor of this call's arguments has.
    #[inline]
    pub fn lend(&self) -> Box<dyn Any + Send + Sync> {
        self.lent.store(self.lent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let address = ptr::from_ref(self).addr();
        // SAFETY: a box of a type of no size may be at any address that is not null.
        unsafe { Box::from_raw(ptr::without_provenance_mut::<Lent>(address)) }
    }

    /// # Safety
    /// A tensor that was lent, and is given back once; or what the count is ahead by, once.
    #[inline]
    unsafe fn give_back(loan: NonNull<Self>, count: usize) {
        // SAFETY: it lives until all is given back and the call is over.
        if unsafe { loan.as_ref() }.out.fetch_sub(count, Ordering::AcqRel) == count {
            // SAFETY: made by a box, and used by no one any more.
            let mut loan = unsafe { Box::from_raw(loan.as_ptr()) };
            left().extend(loan.kept.take().into_iter().flatten());
            ANY_LEFT.store(true, Ordering::Relaxed);
        }
    }
}

/// References that are not needed any more. Who has done with the last may be waited for by a thread that has Python's lock.
static LEFT: Mutex<Vec<Handle>> = Mutex::new(Vec::new());
/// Whether there may be some.
static ANY_LEFT: AtomicBool = AtomicBool::new(false);

fn left() -> MutexGuard<'static, Vec<Handle>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets go what is left. Python is attached.
#[cold]
fn let_go() {
    ANY_LEFT.store(false, Ordering::Relaxed);
    let handles = mem::take(&mut *left());
    drop(handles);
}

/// A tensor's share in a [`Loan`]. Of no size: a box of it is at the loan's own address.
#[derive(Debug)]
struct Lent;

impl Drop for Lent {
    fn drop(&mut self) {
        let loan: *mut Loan = ptr::with_exposed_provenance_mut(ptr::from_mut(self).addr());
        if let Some(loan) = NonNull::new(loan) {
            // SAFETY: the tensor that this was made for.
            unsafe { Loan::give_back(loan, 1) };
        }
    }
}
