//! Buffers in the device's memory, as a kernel's parameters.
//!
//! On the device a [`Global`] is a pointer and nothing is checked. On the emulated grid it knows its length and its
//! parameter's name: an index outside, or a vector access that is not aligned, ends the launch with an error that
//! names the file and line of the access.

use crate::element::{Element, Vector2, Vector4};
#[cfg(not(target_arch = "nvptx64"))]
use crate::emulator::fault;
#[cfg(not(target_arch = "nvptx64"))]
use crate::launch::DeviceMemory;
use crate::vector::{Vec2, Vec4};

macro_rules! handle {
    ($name:ident, $pointer:ty, $what:literal) => {
        #[doc = $what]
        // Not null, so that an `Option` of it is the pointer itself: else making one at a kernel's start would be a branch,
        // along whose sides LLVM splits the call of the kernel's body, barriers and all.
        #[cfg(target_arch = "nvptx64")]
        #[repr(transparent)]
        pub struct $name<T>(core::ptr::NonNull<T>);

        #[doc = $what]
        #[cfg(not(target_arch = "nvptx64"))]
        #[derive(Debug)]
        pub struct $name<T> {
            pointer: $pointer,
            length: usize,
            name: &'static str,
        }

        // Not derived: a copy of the handle asks nothing of `T`.
        impl<T> Clone for $name<T> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        // SAFETY: the handle is an address; each use of it is unsafe.
        unsafe impl<T: Send + Sync> Send for $name<T> {}
        // SAFETY: as above.
        unsafe impl<T: Send + Sync> Sync for $name<T> {}

        #[cfg(target_arch = "nvptx64")]
        impl<T> $name<T> {
            /// The handle of a pointer to global memory.
            #[inline(always)]
            pub const fn from_raw(pointer: $pointer) -> Self {
                // SAFETY: no buffer is at address 0, and the handle of no buffer is not used.
                Self(unsafe { core::ptr::NonNull::new_unchecked(pointer as *mut T) })
            }

            #[doc(hidden)]
            #[inline(always)]
            pub fn from_nullable(pointer: $pointer) -> Option<Self> {
                core::ptr::NonNull::new(pointer as *mut T).map(Self)
            }

            /// The pointer, for instructions that take an address.
            #[inline(always)]
            pub const fn as_raw(self) -> $pointer {
                self.0.as_ptr()
            }

            /// The handle `i` elements on.
            ///
            /// # Safety
            /// The buffer has as many elements.
            #[inline(always)]
            pub unsafe fn offset(self, i: usize) -> Self {
                // SAFETY: as the caller says.
                Self(unsafe { self.0.add(i) })
            }

            /// The same memory as elements of another type.
            ///
            /// # Safety
            /// Those that are used are aligned as such, and what is loaded is of that type.
            #[inline(always)]
            pub unsafe fn cast<U>(self) -> $name<U> {
                $name(self.0.cast())
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl<T> $name<T> {
            /// How many elements there are from here on.
            pub fn len(self) -> usize {
                self.length
            }

            /// Whether there are none.
            pub fn is_empty(self) -> bool {
                self.length == 0
            }

            /// The handle `i` elements on.
            ///
            /// # Safety
            /// The buffer has as many elements.
            #[track_caller]
            pub unsafe fn offset(self, i: usize) -> Self {
                if i > self.length {
                    fault::offset_out_of_bounds(self.name, i, self.length);
                }
                Self { pointer: self.pointer.wrapping_add(i), length: self.length - i, name: self.name }
            }

            /// The same memory as elements of another type.
            ///
            /// # Safety
            /// Those that are used are aligned as such, and what is loaded is of that type.
            pub unsafe fn cast<U>(self) -> $name<U> {
                let length = self.length * size_of::<T>() / size_of::<U>();
                $name { pointer: self.pointer.cast(), length, name: self.name }
            }

            /// The address of `count` elements from element `i` on, checked.
            #[track_caller]
            pub(crate) fn at(self, i: usize, count: usize) -> $pointer {
                if i >= self.length || count > self.length - i {
                    fault::out_of_bounds(self.name, i, count, self.length);
                }
                self.pointer.wrapping_add(i)
            }

            /// The same for a vector of elements, which is aligned to all of them.
            #[track_caller]
            fn vector_at(self, i: usize, count: usize) -> $pointer {
                let pointer = self.at(i, count);
                let bytes = count * size_of::<T>();
                fault::check_alignment(self.name, pointer as usize, i, bytes);
                pointer
            }
        }
    };
}
handle!(Global, *const T, "A buffer that the kernel reads.");
handle!(GlobalMut, *mut T, "A buffer that the kernel writes, and may read.");

#[cfg(not(target_arch = "nvptx64"))]
impl<T> Global<T> {
    /// The handle of a slice, to call a kernel's helper functions from host code.
    pub fn from_slice(slice: &[T]) -> Self {
        Self { pointer: slice.as_ptr(), length: slice.len(), name: "slice" }
    }

    /// # Safety
    /// The memory is the host's and outlives the handle.
    #[doc(hidden)]
    pub unsafe fn from_memory(name: &'static str, memory: &dyn DeviceMemory<T>) -> Self {
        Self { pointer: memory.address() as usize as *const T, length: memory.len(), name }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<T> GlobalMut<T> {
    /// The handle of a slice, to call a kernel's helper functions from host code.
    pub fn from_slice(slice: &mut [T]) -> Self {
        Self { pointer: slice.as_mut_ptr(), length: slice.len(), name: "slice" }
    }

    /// # Safety
    /// The memory is the host's, outlives the handle and is borrowed by nobody else.
    #[doc(hidden)]
    pub unsafe fn from_memory(name: &'static str, memory: &mut dyn DeviceMemory<T>) -> Self {
        Self { pointer: memory.address() as usize as *mut T, length: memory.len(), name }
    }
}

impl<T> GlobalMut<T> {
    /// The same buffer for a function that reads.
    #[inline(always)]
    pub fn as_global(self) -> Global<T> {
        #[cfg(target_arch = "nvptx64")]
        {
            Global(self.0)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            Global { pointer: self.pointer, length: self.length, name: self.name }
        }
    }
}

macro_rules! loads {
    ($handle:ident) => {
        impl<T: Copy> $handle<T> {
            /// Loads element `i`. PTX: `ld.global` (PTX ISA, Data Movement: `ld`).
            ///
            /// # Safety
            /// The buffer has more than `i` elements, and no thread writes this one meanwhile.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn load(self, i: usize) -> T {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    self.as_raw().add(i).read()
                }
                // SAFETY: in bounds, as checked.
                #[cfg(not(target_arch = "nvptx64"))]
                unsafe {
                    self.at(i, 1).read()
                }
            }
        }

        impl<T: Element> $handle<T> {
            /// Loads element `i` if the predicate is true, else gives `otherwise`: one predicated instruction and no
            /// branch. `i` may be anything where the predicate is false. PTX: `@p ld.global`.
            ///
            /// # Safety
            /// As [`load`](Self::load) where the predicate is true.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn load_if(self, predicate: bool, i: usize, otherwise: T) -> T {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::load_global_if(predicate, self.as_raw().wrapping_add(i), otherwise)
                }
                #[cfg(not(target_arch = "nvptx64"))]
                if predicate {
                    // SAFETY: in bounds, as checked.
                    unsafe { self.at(i, 1).read() }
                } else {
                    otherwise
                }
            }
        }

        impl<T: Vector2> $handle<T> {
            /// Loads elements `i` and `i + 1`, aligned to both together. PTX: `ld.global.v2`.
            ///
            /// # Safety
            /// As [`load`](Self::load) for both; element `i` is aligned to twice its size.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn load2(self, i: usize) -> Vec2<T> {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::load2_global(self.as_raw().add(i))
                }
                // SAFETY: in bounds and aligned, as checked.
                #[cfg(not(target_arch = "nvptx64"))]
                unsafe {
                    self.vector_at(i, 2).cast::<Vec2<T>>().read()
                }
            }

            /// [`load2`](Self::load2) if the predicate is true, else `otherwise`. PTX: `@p ld.global.v2`.
            ///
            /// # Safety
            /// As [`load2`](Self::load2) where the predicate is true.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn load2_if(self, predicate: bool, i: usize, otherwise: Vec2<T>) -> Vec2<T> {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::load2_global_if(predicate, self.as_raw().wrapping_add(i), otherwise)
                }
                #[cfg(not(target_arch = "nvptx64"))]
                if predicate {
                    // SAFETY: in bounds and aligned, as checked.
                    unsafe { self.vector_at(i, 2).cast::<Vec2<T>>().read() }
                } else {
                    otherwise
                }
            }
        }

        impl<T: Vector4> $handle<T> {
            /// Loads elements `i` to `i + 3`, aligned to the four together: 16 bytes of 32-bit elements.
            /// PTX: `ld.global.v4`.
            ///
            /// # Safety
            /// As [`load`](Self::load) for all four; element `i` is aligned to four times its size.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn load4(self, i: usize) -> Vec4<T> {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::load4_global(self.as_raw().add(i))
                }
                // SAFETY: in bounds and aligned, as checked.
                #[cfg(not(target_arch = "nvptx64"))]
                unsafe {
                    self.vector_at(i, 4).cast::<Vec4<T>>().read()
                }
            }

            /// [`load4`](Self::load4) if the predicate is true, else `otherwise`. PTX: `@p ld.global.v4`.
            ///
            /// # Safety
            /// As [`load4`](Self::load4) where the predicate is true.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn load4_if(self, predicate: bool, i: usize, otherwise: Vec4<T>) -> Vec4<T> {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::load4_global_if(predicate, self.as_raw().wrapping_add(i), otherwise)
                }
                #[cfg(not(target_arch = "nvptx64"))]
                if predicate {
                    // SAFETY: in bounds and aligned, as checked.
                    unsafe { self.vector_at(i, 4).cast::<Vec4<T>>().read() }
                } else {
                    otherwise
                }
            }
        }
    };
}
loads!(Global);
loads!(GlobalMut);

impl<T: Copy> Global<T> {
    /// Brings what element `i` is in from memory into the L2 cache if the predicate is true, and waits for nothing: a load that comes
    /// when that is done waits less. `i` may be anything where the predicate is false. PTX: `@p prefetch.global.L2` (PTX ISA, Data
    /// Movement: `prefetch`).
    ///
    /// # Safety
    /// As [`load`](Self::load) where the predicate is true.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn prefetch_if(self, predicate: bool, i: usize) {
        // SAFETY: the caller's index. What is in memory is as it was.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            core::arch::asm!(
                "{{ .reg .pred p; .reg .b64 g; setp.ne.u32 p, {predicate}, 0; cvta.to.global.u64 g, {address}; \
                 @p prefetch.global.L2 [g]; }}",
                predicate = in(reg32) u32::from(predicate),
                address = in(reg64) self.as_raw().wrapping_add(i),
                options(nostack, nomem, preserves_flags));
        }
        #[cfg(not(target_arch = "nvptx64"))]
        if predicate {
            self.at(i, 1);
        }
    }
}

impl<T: Copy> GlobalMut<T> {
    /// Stores to element `i`. PTX: `st.global` (PTX ISA, Data Movement: `st`).
    ///
    /// # Safety
    /// The buffer has more than `i` elements, and no other thread uses this one meanwhile.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store(self, i: usize, value: T) {
        // SAFETY: the caller's index.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            self.as_raw().add(i).write(value);
        }
        // SAFETY: in bounds, as checked.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe {
            self.at(i, 1).write(value);
        }
    }
}

impl<T: Element> GlobalMut<T> {
    /// Stores to element `i` if the predicate is true: one predicated instruction and no branch. PTX: `@p st.global`.
    ///
    /// # Safety
    /// As [`store`](Self::store) where the predicate is true.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store_if(self, predicate: bool, i: usize, value: T) {
        // SAFETY: the caller's index.
        #[cfg(target_arch = "nvptx64")]
        unsafe {
            T::store_global_if(predicate, self.as_raw().wrapping_add(i), value);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        if predicate {
            // SAFETY: in bounds, as checked.
            unsafe { self.at(i, 1).write(value) }
        }
    }
}

macro_rules! vector_stores {
    ($($bound:ident $count:literal $vector:ident: $store:ident $store_if:ident $device:ident $device_if:ident $what:literal;)*) => {$(
        impl<T: $bound> GlobalMut<T> {
            #[doc = concat!("Stores ", $what, ", aligned to them together. PTX: `st.global.v", $count, "`.")]
            ///
            /// # Safety
            /// As [`store`](Self::store) for all of them; element `i` is aligned to all together.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn $store(self, i: usize, value: $vector<T>) {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::$device(self.as_raw().add(i), value);
                }
                // SAFETY: in bounds and aligned, as checked.
                #[cfg(not(target_arch = "nvptx64"))]
                unsafe {
                    self.vector_at(i, $count).cast::<$vector<T>>().write(value);
                }
            }

            #[doc = concat!("Stores ", $what, " if the predicate is true. PTX: `@p st.global.v", $count, "`.")]
            ///
            /// # Safety
            /// As the store without a predicate, where the predicate is true.
            #[inline(always)]
            #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
            pub unsafe fn $store_if(self, predicate: bool, i: usize, value: $vector<T>) {
                // SAFETY: the caller's index.
                #[cfg(target_arch = "nvptx64")]
                unsafe {
                    T::$device_if(predicate, self.as_raw().wrapping_add(i), value);
                }
                #[cfg(not(target_arch = "nvptx64"))]
                if predicate {
                    // SAFETY: in bounds and aligned, as checked.
                    unsafe { self.vector_at(i, $count).cast::<$vector<T>>().write(value) }
                }
            }
        }
    )*};
}
vector_stores! {
    Vector2 2 Vec2: store2 store2_if store2_global store2_global_if "elements `i` and `i + 1`";
    Vector4 4 Vec4: store4 store4_if store4_global store4_global_if "elements `i` to `i + 3`";
}
