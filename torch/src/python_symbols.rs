//! libtorch's functions that tell what a thread's dispatcher would do, and make tensors of Python's objects and back.
//!
//! They are C++'s but for the conversions since 2.14, found by their mangled names: where a version lacks one, or gives it
//! other arguments, which would change its name, [`PythonSymbols::get`] finds nothing and operators are called by the
//! dispatcher.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi::PyObject;

use crate::handle::Handle;
use crate::symbols::{Loaded, RawTensor};

/// Two sets of dispatch keys, one bit a key, that the thread has switched on and off; both are 0 by default.
///
/// `c10::impl::PODLocalDispatchKeySet` in c10/core/impl/LocalDispatchKeySet.h.
pub(crate) type Keys = [u64; 2];

pub(crate) struct PythonSymbols {
    /// `at::hasCallbacks()`: whether operators are observed, by the profiler say.
    pub has_callbacks: unsafe extern "C" fn() -> bool,
    /// `at::impl::torch_function_mode_enabled()`
    pub function_mode: unsafe extern "C" fn() -> bool,
    /// `at::native::is_neg(const Tensor&)`; a handle is a pointer to a tensor.
    pub is_negative: unsafe extern "C" fn(RawTensor) -> bool,
    /// Since 2.9. Before, tensors of other layouts are told by their having no strides, which is an error.
    pub layout: Option<unsafe extern "C" fn(RawTensor, *mut i32) -> i32>,
    /// The layout of dense tensors.
    pub strided: i32,
    pub elements: unsafe extern "C" fn(RawTensor, *mut i64) -> i32,
    /// `c10::TensorImpl::requires_grad() const`, of what an `at::Tensor` points to.
    pub requires_grad: unsafe extern "C" fn(*const c_void) -> bool,
    pub from_python: FromPython,
    pub to_python: ToPython,
    /// `at::NamesMode::set_enabled(bool)`, before 2.14: whether names of dimensions are looked at in this thread.
    set_names: Option<unsafe extern "C" fn(bool)>,
    core: Loaded,
}

/// How a tensor is had from its Python object.
pub(crate) enum FromPython {
    /// Since 2.14.
    Converted(unsafe extern "C" fn(*mut PyObject, *mut RawTensor) -> i32),
    /// By what pybind11 does for a function with a tensor as its argument: an empty tensor is made, and assigned to.
    Loaded {
        empty: unsafe extern "C" fn(*mut RawTensor) -> i32,
        /// `pybind11::detail::type_caster<at::Tensor>::load(handle, bool)`; the caster is no more than its tensor.
        load: unsafe extern "C" fn(RawTensor, *mut PyObject, bool) -> bool,
    },
}

/// How a tensor's Python object is had.
pub(crate) enum ToPython {
    /// `THPVariable_Wrap(at::TensorBase&&)`, or, before there was that, of `const at::TensorBase&`; in old versions
    /// `THPVariable_Wrap(at::TensorBase)`, which is passed by address as well, and taken from there.
    Wrapped(unsafe extern "C" fn(RawTensor) -> *mut PyObject),
    /// Since 2.14; with a type, or null.
    Converted(unsafe extern "C" fn(RawTensor, *mut c_void, *mut *mut PyObject) -> i32),
}

/// `c10::impl::raw_local_dispatch_key_set`, a variable of each thread's.
const KEYS: &CStr = c"_ZN3c104impl26raw_local_dispatch_key_setE";

impl PythonSymbols {
    pub fn get() -> Option<&'static Self> {
        static SYMBOLS: OnceLock<Option<PythonSymbols>> = OnceLock::new();
        SYMBOLS.get_or_init(Self::load).as_ref()
    }

    /// Asked for once torch is imported.
    fn load() -> Option<Self> {
        let (torch, python) = (Loaded::find(c"libtorch_cpu.so")?, Loaded::find(c"libtorch_python.so")?);
        let core = Loaded::find(c"libc10.so")?;
        // SAFETY: each name's declaration, C's or mangled, is the field's type.
        unsafe {
            core.symbol::<*const Keys>(KEYS)?;
            let strided: unsafe extern "C" fn() -> i32 = torch.symbol(c"aoti_torch_layout_strided")?;
            Some(Self {
                has_callbacks: torch.symbol(c"_ZN2at12hasCallbacksEv")?,
                function_mode: torch.symbol(c"_ZN2at4impl27torch_function_mode_enabledEv")?,
                is_negative: torch.symbol(c"_ZN2at6native6is_negERKNS_6TensorE")?,
                layout: torch.symbol(c"aoti_torch_get_layout"),
                strided: strided(),
                elements: torch.symbol(c"aoti_torch_get_numel")?,
                requires_grad: core.symbol(c"_ZNK3c1010TensorImpl13requires_gradEv")?,
                from_python: match torch.symbol(c"torch_tensor_from_pyobject") {
                    Some(convert) => FromPython::Converted(convert),
                    None => FromPython::Loaded {
                        empty: torch.symbol(c"aoti_torch_new_uninitialized_tensor")?,
                        load: python.symbol(c"_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb")?,
                    },
                },
                // A tensor that is moved has one reference at all times, and need not hold its object for a second's sake.
                to_python: match (
                    python.symbol(c"_Z16THPVariable_WrapON2at10TensorBaseE"),
                    torch.symbol(c"torch_tensor_to_pyobject"),
                ) {
                    (Some(wrap), _) => ToPython::Wrapped(wrap),
                    (None, Some(convert)) => ToPython::Converted(convert),
                    (None, None) => ToPython::Wrapped(
                        python
                            .symbol(c"_Z16THPVariable_WrapRKN2at10TensorBaseE")
                            .or_else(|| python.symbol(c"_Z16THPVariable_WrapN2at10TensorBaseE"))?,
                    ),
                },
                set_names: torch.symbol(c"_ZN2at9NamesMode11set_enabledEb"),
                core,
            })
        }
    }

    /// What this thread has switched on and off.
    #[inline]
    pub fn keys(&self) -> Keys {
        // Looking a name up takes longer than an operator.
        thread_local! {
            static PLACE: Cell<*const Keys> = const { Cell::new(ptr::null()) };
        }
        let mut place = PLACE.get();
        if place.is_null() {
            // SAFETY: the name's type. The linker gives this thread's own variable, which lives as long as the thread.
            place = unsafe { self.core.symbol(KEYS) }.expect("it was found before");
            PLACE.set(place);
        }
        // SAFETY: this thread's own; no one else writes to it.
        unsafe { *place }
    }
}

impl PythonSymbols {
    /// The key that is off while names of dimensions are not looked at, as in a backward pass; 0 where there are none, or they
    /// are not looked at now.
    pub fn key_of_names(&self) -> u64 {
        let Some(set) = self.set_names else { return 0 };
        let [_, before] = self.keys();
        // SAFETY: a function of this thread's state alone, which is left as it was unless names were off before.
        unsafe {
            set(false);
            let [_, without] = self.keys();
            set(true);
            if self.keys()[1] == before { without & !before } else { 0 }
        }
    }
}

impl FromPython {
    /// The tensor of an object that is one.
    ///
    /// # Safety
    /// Python is attached, and `object` is a `torch.Tensor`.
    #[inline]
    pub unsafe fn tensor(&self, object: *mut PyObject) -> Option<Handle> {
        let mut raw = ptr::null_mut();
        // SAFETY: the caller's; the result may be written, and is a new owned handle where there is one.
        unsafe {
            match *self {
                Self::Converted(convert) => {
                    let done = convert(object, &mut raw) == 0;
                    Handle::from_raw(raw).filter(|_| done)
                }
                Self::Loaded { empty, load } => {
                    empty(&mut raw);
                    Handle::from_raw(raw).filter(|handle| load(handle.as_raw(), object, false))
                }
            }
        }
    }
}

impl ToPython {
    /// A new object of the tensor, or null, perhaps with an exception set.
    ///
    /// # Safety
    /// Python is attached. The tensor is not used again.
    #[inline]
    pub unsafe fn object(&self, tensor: &Handle) -> *mut PyObject {
        // SAFETY: the caller's; the result may be written.
        unsafe {
            match *self {
                Self::Converted(convert) => {
                    let mut object = ptr::null_mut();
                    if convert(tensor.as_raw(), ptr::null_mut(), &mut object) == 0 { object } else { ptr::null_mut() }
                }
                Self::Wrapped(wrap) => wrap(tensor.as_raw()),
            }
        }
    }
}

// SAFETY: functions, a number, and a library's handle, which any thread may look names up in.
unsafe impl Send for PythonSymbols {}
// SAFETY: as above.
unsafe impl Sync for PythonSymbols {}
