//! The symbols themselves: one trampoline for each function that `cust_raw` declares.
//!
//! A trampoline jumps through its slot. While the slot is empty it goes to [`resolve_and_jump`] instead, which keeps
//! every register that may hold an argument, has [`resolve`] fill the slot, and then makes the jump. The stack is left
//! as the caller made it, so that arguments on the stack need no care.
//!
//! The symbols are hidden: they serve the binary that this crate is linked into, and are not exported from it, so that
//! neither a program nor a Python module built with this crate stands in the way of a real `libcuda` in the same
//! process. `#[no_mangle]` functions would be exported from a `cdylib`, which is why the symbols are defined by
//! `global_asm!`.

use std::arch::{global_asm, naked_asm};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::library;
use crate::symbols::driver_symbols;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("ferrolayer-libcuda is written for Linux on x86-64 and aarch64");

#[cfg(target_arch = "x86_64")]
macro_rules! trampoline {
    ($name:ident) => {
        global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            ".p2align 4",
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            // r11 is the one register that the calling convention leaves to such code.
            "mov r11, qword ptr [rip + {slots}@GOTPCREL]",
            "mov r11, qword ptr [r11 + {offset}]",
            "test r11, r11",
            "jz 2f",
            "jmp r11",
            "2:",
            "mov r11d, {index}",
            "jmp {resolve_and_jump}",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            ".popsection",
            slots = sym SLOTS,
            offset = const Index::$name as usize * size_of::<AtomicPtr<()>>(),
            index = const Index::$name as usize,
            resolve_and_jump = sym resolve_and_jump,
        );
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! trampoline {
    ($name:ident) => {
        global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            ".p2align 4",
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            // x16 and x17 are the registers that the calling convention leaves to such code. The load acquires: the
            // thread that stored the address had mapped the driver's data before.
            "adrp x17, :got:{slots}",
            "ldr x17, [x17, :got_lo12:{slots}]",
            "mov x16, #{offset}",
            "add x17, x17, x16",
            "ldar x16, [x17]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mov w16, #{index}",
            "b {resolve_and_jump}",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            ".popsection",
            slots = sym SLOTS,
            offset = const Index::$name as usize * size_of::<AtomicPtr<()>>(),
            index = const Index::$name as usize,
            resolve_and_jump = sym resolve_and_jump,
        );
    };
}

/// Where a trampoline comes on its first call, with its number in r11.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn resolve_and_jump() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        // Seven pushes and the return address leave the stack aligned to 16 bytes, and so does this.
        "sub rsp, 128",
        "movups xmmword ptr [rsp], xmm0",
        "movups xmmword ptr [rsp + 16], xmm1",
        "movups xmmword ptr [rsp + 32], xmm2",
        "movups xmmword ptr [rsp + 48], xmm3",
        "movups xmmword ptr [rsp + 64], xmm4",
        "movups xmmword ptr [rsp + 80], xmm5",
        "movups xmmword ptr [rsp + 96], xmm6",
        "movups xmmword ptr [rsp + 112], xmm7",
        "mov edi, r11d",
        "call {resolve}",
        "mov r11, rax",
        "movups xmm0, xmmword ptr [rsp]",
        "movups xmm1, xmmword ptr [rsp + 16]",
        "movups xmm2, xmmword ptr [rsp + 32]",
        "movups xmm3, xmmword ptr [rsp + 48]",
        "movups xmm4, xmmword ptr [rsp + 64]",
        "movups xmm5, xmmword ptr [rsp + 80]",
        "movups xmm6, xmmword ptr [rsp + 96]",
        "movups xmm7, xmmword ptr [rsp + 112]",
        "add rsp, 128",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "jmp r11",
        resolve = sym resolve,
    )
}

/// Where a trampoline comes on its first call, with its number in w16.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn resolve_and_jump() {
    naked_asm!(
        "stp x29, x30, [sp, #-224]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        // x8 is where a caller would have the result of a large struct written; no such function here, but it costs
        // nothing.
        "str x8, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov w0, w16",
        "bl {resolve}",
        "mov x16, x0",
        "ldp q0, q1, [sp, #96]",
        "ldp q2, q3, [sp, #128]",
        "ldp q4, q5, [sp, #160]",
        "ldp q6, q7, [sp, #192]",
        "ldr x8, [sp, #80]",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldp x29, x30, [sp], #224",
        "br x16",
        resolve = sym resolve,
    )
}

/// Fills a trampoline's slot. Threads that race here store the same address.
extern "C" fn resolve(index: usize) -> *mut () {
    let address = library::entry_point(NAMES[index]);
    SLOTS[index].store(address, Ordering::Release);
    address
}

macro_rules! define {
    ($($name:ident)*) => {
        #[allow(non_camel_case_types, reason = "the variants are the driver's function names")]
        enum Index {
            $($name),*
        }

        const COUNT: usize = [$(stringify!($name)),*].len();

        static NAMES: [&CStr; COUNT] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            }
        ),*];

        $(trampoline!($name);)*

        /// The linker takes an object out of a library only for a symbol that it has already missed, and it meets this
        /// crate before cust. `#[used]` has rustc ask for this table, and the table asks for the trampolines. That cust
        /// declares each name is checked on the way.
        #[used]
        static TRAMPOLINES: [Trampoline; COUNT] = [$(Trampoline(cust::sys::$name as *const ())),*];
    };
}

struct Trampoline(#[allow(dead_code, reason = "read by the linker")] *const ());

// SAFETY: the address of a function, which nobody reads.
unsafe impl Sync for Trampoline {}

/// The driver's addresses; null until the first call.
static SLOTS: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

driver_symbols!(define);

/// The functions that this crate defines for `cust`, in alphabetical order.
pub fn symbols() -> impl ExactSizeIterator<Item = &'static str> {
    NAMES.iter().map(|name| name.to_str().unwrap_or_default())
}
