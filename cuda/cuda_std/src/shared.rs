//! Shared memory as typed handles, whose loads and stores are `ld.shared` and `st.shared`.
//!
//! Indices are `u32`: shared memory has 32-bit addresses. On the emulated grid every access is checked, and the whole
//! of it holds bytes 0xFF (NaN as a float) when a block starts.

use core::marker::PhantomData;
use core::ops::Deref;

use crate::element::{Element, Vector2, Vector4};
#[cfg(not(target_arch = "nvptx64"))]
pub use crate::emulator::shared::StaticArray;
use crate::vector::{Vec2, Vec4};

/// A place in the block's shared memory from which on there are elements of type `T`.
#[cfg(target_arch = "nvptx64")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Shared<T> {
    address: u32,
    element: PhantomData<*mut T>,
}

/// A place in the block's shared memory from which on there are elements of type `T`.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct Shared<T> {
    pointer: *mut T,
    length: u32,
    element: PhantomData<*mut T>,
}

/// An array in shared memory, made by [`shared_array!`](crate::shared_array). A [`Shared`] that knows its length.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(Debug))]
pub struct SharedArray<T, const N: usize>(Shared<T>);

impl<T: Element, const N: usize> SharedArray<T, N> {
    /// Its elements.
    pub const LEN: u32 = N as u32;

    /// The array at an address of the shared window.
    ///
    /// # Safety
    /// `N` elements of shared memory are there.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn from_address(address: u32) -> Self {
        Self(Shared { address, element: PhantomData })
    }

    /// The array of one place in the source, in the running block.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    #[track_caller]
    pub fn from_static(array: &'static StaticArray) -> Self {
        Self(Shared { pointer: array.address(N * size_of::<T>()).cast(), length: Self::LEN, element: PhantomData })
    }

    /// The handle without the length.
    #[inline(always)]
    pub fn handle(self) -> Shared<T> {
        self.0
    }
}

impl<T, const N: usize> Deref for SharedArray<T, N> {
    type Target = Shared<T>;

    #[inline(always)]
    fn deref(&self) -> &Shared<T> {
        &self.0
    }
}

/// The shared memory whose size the launch gives, from its start: each call gives the same place. Aligned to 1024
/// bytes. PTX: a variable `.extern .shared` (PTX ISA, State Spaces: Shared).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn dynamic_shared<T: Element>() -> Shared<T> {
    #[cfg(target_arch = "nvptx64")]
    {
        let address: u32;
        // SAFETY: the address of the variable declared below.
        unsafe {
            core::arch::asm!("mov.u32 {address}, __shared_dynamic;", address = out(reg32) address,
                options(pure, nomem, nostack, preserves_flags));
        }
        Shared { address, element: PhantomData }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (pointer, bytes) = crate::emulator::shared::dynamic();
        Shared { pointer: pointer.cast(), length: bytes / size_of::<T>() as u32, element: PhantomData }
    }
}

#[cfg(target_arch = "nvptx64")]
core::arch::global_asm!(".extern .shared .align 1024 .b8 __shared_dynamic[];");

#[cfg(target_arch = "nvptx64")]
impl<T: Element> Shared<T> {
    #[inline(always)]
    fn at(self, i: u32) -> u32 {
        self.address.wrapping_add(i.wrapping_mul(size_of::<T>() as u32))
    }

    /// The address in the shared window, for instructions that take one.
    #[inline(always)]
    pub fn address(self) -> u32 {
        self.address
    }

    /// The same place as an address that says nothing of its window, for intrinsics that take no other.
    #[inline(always)]
    pub(crate) fn generic(self) -> *const T {
        let generic: *const T;
        // SAFETY: arithmetic.
        unsafe {
            core::arch::asm!("{{ .reg .b64 a; cvt.u64.u32 a, {a}; cvta.shared.u64 {generic}, a; }}",
                a = in(reg32) self.address, generic = out(reg64) generic, options(pure, nomem, nostack, preserves_flags));
        }
        generic
    }

    /// The handle `i` elements on.
    ///
    /// # Safety
    /// The array has as many elements.
    #[inline(always)]
    pub unsafe fn offset(self, i: u32) -> Self {
        Self { address: self.at(i), element: PhantomData }
    }

    /// The same place as elements of another type.
    #[inline(always)]
    pub fn cast<U: Element>(self) -> Shared<U> {
        Shared { address: self.address, element: PhantomData }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<T: Element> Shared<T> {
    /// The address of `count` elements from element `i` on, checked.
    #[track_caller]
    pub(crate) fn at(self, i: u32, count: u32) -> *mut T {
        if u64::from(i) + u64::from(count) > u64::from(self.length) {
            crate::emulator::fault::out_of_bounds("shared memory", i as usize, count as usize, self.length as usize);
        }
        let pointer = self.pointer.wrapping_add(i as usize);
        crate::emulator::fault::check_alignment(
            "shared memory",
            pointer as usize,
            i as usize,
            count as usize * size_of::<T>(),
        );
        pointer
    }

    /// How many elements there are from here on.
    pub fn len(self) -> u32 {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The handle `i` elements on.
    ///
    /// # Safety
    /// The array has as many elements.
    #[track_caller]
    pub unsafe fn offset(self, i: u32) -> Self {
        if i > self.length {
            crate::emulator::fault::offset_out_of_bounds("shared memory", i as usize, self.length as usize);
        }
        Self { pointer: self.pointer.wrapping_add(i as usize), length: self.length - i, element: PhantomData }
    }

    /// The same place as elements of another type.
    pub fn cast<U: Element>(self) -> Shared<U> {
        Shared {
            pointer: self.pointer.cast(),
            length: (u64::from(self.length) * size_of::<T>() as u64 / size_of::<U>() as u64) as u32,
            element: PhantomData,
        }
    }
}

// The accesses, documented once: what each does on the device and on the emulated grid.
macro_rules! accesses {
    ($(
        $bound:ident $count:literal $value:ty: $load:ident $store:ident
        $device_load:ident $device_store:ident $ptx:literal $alignment:literal;
    )*) => {$(
        impl<T: $bound> Shared<T> {
            #[doc = concat!("Loads from element `i` on", $alignment, " PTX: `ld.shared", $ptx, "` (PTX ISA, Data Movement: `ld`).")]
            ///
            /// # Safety
            /// The elements are in the array, and no thread writes them meanwhile.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn $load(self, i: u32) -> $value {
                // SAFETY: the caller's index; on the host checked.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::$device_load(self.at(i))
                }
                // SAFETY: in bounds and aligned, as checked.
                #[cfg(not(target_arch = "nvptx64"))]
                unsafe {
                    self.at(i, $count).cast::<$value>().read()
                }
            }

            #[doc = concat!("Stores to element `i` and on", $alignment, " PTX: `st.shared", $ptx, "` (PTX ISA, Data Movement: `st`).")]
            ///
            /// # Safety
            /// The elements are in the array, and no other thread uses them meanwhile.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn $store(self, i: u32, value: $value) {
                // SAFETY: the caller's index; on the host checked.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::$device_store(self.at(i), value);
                }
                // SAFETY: in bounds and aligned, as checked.
                #[cfg(not(target_arch = "nvptx64"))]
                unsafe {
                    self.at(i, $count).cast::<$value>().write(value);
                }
            }
        }
    )*};
}
accesses! {
    Element 1 T: load store load_shared store_shared "" ".";
    Vector2 2 Vec2<T>: load2 store2 load2_shared store2_shared ".v2" " two elements, aligned to both together.";
    Vector4 4 Vec4<T>: load4 store4 load4_shared store4_shared ".v4" " four elements, aligned to all together.";
}

impl<T: Vector4> Shared<T> {
    /// Loads the four elements from element `i` on, aligned to all together, if the predicate is true, else gives
    /// `otherwise`: one predicated instruction and no branch. PTX: `@p ld.shared.v4`.
    ///
    /// # Safety
    /// As [`load4`](Self::load4) where the predicate is true.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load4_if(self, predicate: bool, i: u32, otherwise: Vec4<T>) -> Vec4<T> {
        // SAFETY: the caller's index.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            T::load4_shared_if(predicate, self.at(i), otherwise)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        if predicate {
            // SAFETY: in bounds and aligned, as checked.
            unsafe { self.at(i, 4).cast::<Vec4<T>>().read() }
        } else {
            otherwise
        }
    }
}

impl<T: Element> Shared<T> {
    /// Loads element `i` if the predicate is true, else gives `otherwise`: one predicated instruction and no branch.
    /// PTX: `@p ld.shared`.
    ///
    /// # Safety
    /// As [`load`](Self::load) where the predicate is true.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load_if(self, predicate: bool, i: u32, otherwise: T) -> T {
        // SAFETY: the caller's index.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            T::load_shared_if(predicate, self.at(i), otherwise)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        if predicate {
            // SAFETY: in bounds and aligned, as checked.
            unsafe { self.at(i, 1).read() }
        } else {
            otherwise
        }
    }

    /// Stores to element `i` if the predicate is true: one predicated instruction and no branch. PTX: `@p st.shared`.
    ///
    /// # Safety
    /// As [`store`](Self::store) where the predicate is true.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store_if(self, predicate: bool, i: u32, value: T) {
        // SAFETY: the caller's index.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            T::store_shared_if(predicate, self.at(i), value);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        if predicate {
            // SAFETY: in bounds and aligned, as checked.
            unsafe { self.at(i, 1).write(value) }
        }
    }
}
