//! Ampere's asynchronous copies: from global to shared memory, past the registers.
//!
//! A thread issues copies, closes a group with [`cp_async_commit`] and waits with [`cp_async_wait`] until at most so
//! many of its groups are under way. The data is then there for this thread; for the others after a barrier. The
//! emulated grid copies as late as is allowed, at the wait: a kernel that does not wait finds what was there before.

use crate::element::Element;
use crate::global::Global;
use crate::shared::Shared;

/// Copies 16 bytes from element `from` of `source` to element `to` of `target`, both aligned to 16 bytes.
/// PTX: `cp.async.cg.shared.global` (PTX ISA, Data Movement: Non-bulk copy).
///
/// # Safety
/// The elements are in their buffers and aligned, and nobody writes them, nor uses the target's, until the copy has
/// been waited for.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn cp_async16<T: Element>(target: Shared<T>, to: u32, source: Global<T>, from: usize) {
    // SAFETY: the caller's indices.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {source}; cp.async.cg.shared.global [{target}], [g], 16; }}",
            target = in(reg32) target.offset(to).address(),
            source = in(reg64) source.offset(from).as_raw(),
            options(nostack, preserves_flags));
    }
    // SAFETY: in bounds and aligned, as checked.
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe {
        cp_async16_zero_fill(target, to, source, from, const { 16 / size_of::<T>() as u32 });
    }
}

/// [`cp_async16`] of the first `valid` elements; the rest of the 16 bytes becomes zeros. `from` may be anything where
/// `valid` is 0. PTX: `cp.async.cg.shared.global` with a source size.
///
/// # Safety
/// As [`cp_async16`] for the valid elements; `valid` elements are at most 16 bytes.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn cp_async16_zero_fill<T: Element>(target: Shared<T>, to: u32, source: Global<T>, from: usize, valid: u32) {
    // SAFETY: the caller's indices.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {source}; cp.async.cg.shared.global [{target}], [g], 16, {bytes}; }}",
            target = in(reg32) target.offset(to).address(),
            source = in(reg64) source.as_raw().wrapping_add(from),
            bytes = in(reg32) valid.wrapping_mul(size_of::<T>() as u32),
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let elements = const { 16 / size_of::<T>() as u32 };
        if valid > elements {
            crate::emulator::fault::invalid(format_args!("a copy of {valid} elements: 16 bytes hold {elements}"));
        }
        let target = target.at(to, elements).cast();
        let source = if valid == 0 {
            core::ptr::null()
        } else {
            let address = source.at(from, valid as usize);
            crate::emulator::fault::check_alignment("the source of a copy", address as usize, from, 16);
            address.cast()
        };
        crate::emulator::copies::issue(target, source, valid as usize * size_of::<T>(), 16);
    }
}

/// Copies element `from` of `source`, of 4 bytes, to element `to` of `target`. PTX: `cp.async.ca.shared.global`.
///
/// # Safety
/// As [`cp_async16`], of one element, which no alignment but its own is asked of.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn cp_async4<T: Element>(target: Shared<T>, to: u32, source: Global<T>, from: usize) {
    const { assert!(size_of::<T>() == 4) };
    // SAFETY: the caller's indices.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {source}; cp.async.ca.shared.global [{target}], [g], 4; }}",
            target = in(reg32) target.offset(to).address(),
            source = in(reg64) source.offset(from).as_raw(),
            options(nostack, preserves_flags));
    }
    // SAFETY: in bounds, as checked.
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe {
        cp_async4_zero_fill(target, to, source, from, true);
    }
}

/// Copies element `from` of `source`, of 4 bytes, to element `to` of `target` if it is `valid`; if not, that becomes zero, and `from` may
/// be anything. PTX: `cp.async.ca.shared.global` with a source size.
///
/// # Safety
/// As [`cp_async16`], of one element, which no alignment but its own is asked of.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn cp_async4_zero_fill<T: Element>(target: Shared<T>, to: u32, source: Global<T>, from: usize, valid: bool) {
    const { assert!(size_of::<T>() == 4) };
    // SAFETY: the caller's indices.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {source}; cp.async.ca.shared.global [{target}], [g], 4, {bytes}; }}",
            target = in(reg32) target.offset(to).address(),
            source = in(reg64) source.as_raw().wrapping_add(from),
            bytes = in(reg32) 4 * u32::from(valid),
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let target = target.at(to, 1).cast();
        let source = if valid { source.at(from, 1).cast() } else { core::ptr::null() };
        crate::emulator::copies::issue(target, source, 4 * usize::from(valid), 4);
    }
}

/// Closes the group of this thread's copies so far. PTX: `cp.async.commit_group` (PTX ISA, Data Movement: Non-bulk
/// copy).
#[inline(always)]
pub fn cp_async_commit() {
    // SAFETY: no operands; the memory clobber keeps copies before it.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!("cp.async.commit_group;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::emulator::copies::commit();
}

/// Waits until at most `N` of this thread's groups are under way. PTX: `cp.async.wait_group N`.
#[inline(always)]
pub fn cp_async_wait<const N: u32>() {
    // SAFETY: no operands; the memory clobber keeps later loads behind it.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!("cp.async.wait_group {n};", n = const N, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::emulator::copies::wait(N as usize);
}

/// Waits for all of this thread's copies, also those in no group yet. PTX: `cp.async.wait_all`.
#[inline(always)]
pub fn cp_async_wait_all() {
    // SAFETY: as `cp_async_wait`.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        core::arch::asm!("cp.async.wait_all;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::emulator::copies::commit();
        crate::emulator::copies::wait(0);
    }
}
