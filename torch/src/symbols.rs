//! libtorch's C functions, found at run time in the libtorch that the process has loaded.
//!
//! Declared in torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h: names and arguments stay as they
//! are from version to version, and each returns 0 for success. No C++ exception leaves them. Versions before 2.8 have those
//! of tensors, but not those by which operators are registered.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use ferrolayer::DType;

/// A `torch::Tensor` on C++'s heap.
pub(crate) type RawTensor = *mut c_void;
/// A `torch::Library` on C++'s heap.
pub(crate) type RawLibrary = *mut c_void;
/// What libtorch calls for an operator: arguments in, results out, as 64 bits each.
pub(crate) type Kernel = unsafe extern "C-unwind" fn(stack: *mut u64, inputs: u64, outputs: u64);

type Read<T> = unsafe extern "C" fn(RawTensor, *mut T) -> i32;
type Code = unsafe extern "C" fn() -> i32;

/// The functions, and the numbers that this version gives to types and devices.
pub(crate) struct Symbols {
    pub delete_tensor: unsafe extern "C" fn(RawTensor) -> i32,
    pub data_ptr: Read<*mut c_void>,
    pub dim: Read<i64>,
    pub sizes: Read<*const i64>,
    pub strides: Read<*const i64>,
    pub dtype: Read<i32>,
    pub device_type: Read<i32>,
    pub device_index: Read<i32>,
    #[allow(clippy::type_complexity, reason = "C's declaration")]
    pub empty_strided: unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut RawTensor) -> i32,
    /// Sizes, strides, offset.
    pub view: unsafe extern "C" fn(RawTensor, i64, *const i64, *const i64, i64, *mut RawTensor) -> i32,
    /// To, from, non-blocking.
    pub copy: unsafe extern "C" fn(RawTensor, RawTensor, i32) -> i32,
    pub grad_mode: unsafe extern "C" fn() -> bool,
    pub set_grad_mode: unsafe extern "C" fn(bool),
    /// Since 2.8.
    pub stable: Option<Stable>,
    /// Since 2.13: what the last exception said.
    last_error: Option<unsafe extern "C" fn() -> *const c_char>,
    /// Absent from a torch without CUDA.
    pub cuda_stream: Option<unsafe extern "C" fn(i32, *mut *mut c_void) -> i32>,
    pub cpu: i32,
    pub cuda: i32,
    codes: Codes,
}

/// What operators are registered by, and called.
pub(crate) struct Stable {
    /// Namespace, file, line.
    pub library_fragment: unsafe extern "C" fn(*const c_char, *const c_char, u32, *mut RawLibrary) -> i32,
    /// Namespace, key, file, line.
    pub library_impl: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut RawLibrary) -> i32,
    pub define: unsafe extern "C" fn(RawLibrary, *const c_char) -> i32,
    pub implement: unsafe extern "C" fn(RawLibrary, *const c_char, Kernel) -> i32,
    /// Function, file, line, message: throws a C++ exception that becomes a RuntimeError.
    pub check_fail: unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char) -> !,
    /// Frees what holds an optional argument.
    pub free_cell: FreeCell,
}

/// How the memory of an optional argument is freed: by libtorch's own function since 2.13, before that by C++'s `delete`.
pub(crate) enum FreeCell {
    Torch(unsafe extern "C" fn(*mut u64) -> i32),
    Delete(unsafe extern "C" fn(*mut c_void)),
}

/// Types by libtorch's numbers, and back.
struct Codes {
    types: [Option<DType>; 64],
    codes: [i32; 8],
}

impl Symbols {
    /// The functions of the libtorch in this process; `None` where there is none, or it lacks one that is needed.
    pub fn get() -> Option<&'static Self> {
        static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
        if let Some(symbols) = SYMBOLS.get() {
            return Some(symbols);
        }
        // Nothing is kept where there is none: torch may be imported later.
        Some(SYMBOLS.get_or_init({
            let symbols = Self::load()?;
            || symbols
        }))
    }

    fn load() -> Option<Self> {
        let torch = Loaded::find(c"libtorch_cpu.so")?;
        let cuda = Loaded::find(c"libtorch_cuda.so");
        // SAFETY: each name's declaration is the field's type (see the headers above).
        unsafe {
            let device_code = |name| Some(torch.symbol::<Code>(name)?());
            Some(Self {
                delete_tensor: torch.symbol(c"aoti_torch_delete_tensor_object")?,
                data_ptr: torch.symbol(c"aoti_torch_get_data_ptr")?,
                dim: torch.symbol(c"aoti_torch_get_dim")?,
                sizes: torch.symbol(c"aoti_torch_get_sizes")?,
                strides: torch.symbol(c"aoti_torch_get_strides")?,
                dtype: torch.symbol(c"aoti_torch_get_dtype")?,
                device_type: torch.symbol(c"aoti_torch_get_device_type")?,
                device_index: torch.symbol(c"aoti_torch_get_device_index")?,
                empty_strided: torch.symbol(c"aoti_torch_empty_strided")?,
                view: torch.symbol(c"aoti_torch__reinterpret_tensor")?,
                copy: torch.symbol(c"aoti_torch_copy_")?,
                grad_mode: torch.symbol(c"aoti_torch_grad_mode_is_enabled")?,
                set_grad_mode: torch.symbol(c"aoti_torch_grad_mode_set_enabled")?,
                stable: Stable::load(&torch),
                last_error: torch.symbol(c"torch_exception_get_what_without_backtrace"),
                cuda_stream: cuda.and_then(|cuda| cuda.symbol(c"aoti_torch_get_current_cuda_stream")),
                cpu: device_code(c"aoti_torch_device_type_cpu")?,
                cuda: device_code(c"aoti_torch_device_type_cuda")?,
                codes: Codes::load(&torch)?,
            })
        }
    }

    /// The element type of this number. Signed integers are unsigned ones of as many bits, which ops use for indices.
    #[inline]
    pub fn type_of(&self, code: i32) -> Option<DType> {
        usize::try_from(code).ok().and_then(|code| *self.codes.types.get(code)?)
    }

    /// The number of the type that a result of this type has.
    #[inline]
    pub fn code_of(&self, dtype: DType) -> i32 {
        self.codes.codes[place(dtype)]
    }

    /// What the call that failed just now in this thread said, where libtorch tells.
    pub fn last_error(&self) -> String {
        let Some(last_error) = self.last_error else { return "see what PyTorch printed above".into() };
        // SAFETY: the text lives until this thread's next exception.
        unsafe {
            let text = last_error();
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    }
}

impl Stable {
    /// # Safety
    /// `torch` is libtorch.
    unsafe fn load(torch: &Loaded) -> Option<Self> {
        // SAFETY: each name's declaration is the field's type.
        unsafe {
            Some(Self {
                library_fragment: torch.symbol(c"aoti_torch_library_init_fragment")?,
                library_impl: torch.symbol(c"aoti_torch_library_init_impl")?,
                define: torch.symbol(c"aoti_torch_library_def")?,
                implement: torch.symbol(c"aoti_torch_library_impl")?,
                check_fail: Loaded::find(c"libc10.so")?.symbol(c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_")?,
                free_cell: match torch.symbol(c"torch_delete_stable_ivalue") {
                    Some(delete) => FreeCell::Torch(delete),
                    None => FreeCell::Delete(Loaded::find(c"libstdc++.so.6")?.symbol(c"_ZdlPv")?),
                },
            })
        }
    }
}

impl Codes {
    /// # Safety
    /// `torch` is libtorch.
    unsafe fn load(torch: &Loaded) -> Option<Self> {
        // The first of a type is what results have. libtorch has had the unsigned ones' numbers for less long.
        let names: [(&CStr, DType, bool); 11] = [
            (c"aoti_torch_dtype_float16", DType::F16, true),
            (c"aoti_torch_dtype_bfloat16", DType::Bf16, true),
            (c"aoti_torch_dtype_float32", DType::F32, true),
            (c"aoti_torch_dtype_float64", DType::F64, true),
            (c"aoti_torch_dtype_uint8", DType::U8, true),
            (c"aoti_torch_dtype_int16", DType::U16, true),
            (c"aoti_torch_dtype_int32", DType::U32, true),
            (c"aoti_torch_dtype_int64", DType::U64, true),
            (c"aoti_torch_dtype_uint16", DType::U16, false),
            (c"aoti_torch_dtype_uint32", DType::U32, false),
            (c"aoti_torch_dtype_uint64", DType::U64, false),
        ];
        let mut table = Self { types: [None; 64], codes: [0; 8] };
        for (name, dtype, is_result) in names {
            // SAFETY: the caller's; the declarations are of that type.
            let Some(code) = (unsafe { torch.symbol::<Code>(name).map(|code| code()) }) else {
                if is_result { return None } else { continue }
            };
            *table.types.get_mut(usize::try_from(code).ok()?)? = Some(dtype);
            if is_result {
                table.codes[place(dtype)] = code;
            }
        }
        Some(table)
    }
}

/// A row of the table of types.
fn place(dtype: DType) -> usize {
    match dtype {
        DType::F16 => 0,
        DType::Bf16 => 1,
        DType::F32 => 2,
        DType::F64 => 3,
        DType::U8 => 4,
        DType::U16 => 5,
        DType::U32 => 6,
        DType::U64 => 7,
        other => unreachable!("{other}: `AnyTensor` lists all types"),
    }
}

/// A library that the process has loaded.
pub(crate) struct Loaded(*mut c_void);

impl Loaded {
    /// By the name that it was built with; it is not loaded if it is not.
    pub fn find(name: &CStr) -> Option<Self> {
        // SAFETY: no code runs, since nothing is loaded. The handle is never closed, so that the symbols stay.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// # Safety
    /// `F` is a function pointer of the type that the library declares for this name.
    pub unsafe fn symbol<F>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer") };
        // SAFETY: the handle came from `dlopen`.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        // SAFETY: the caller's; a function pointer is as large.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy(&symbol) })
    }
}
