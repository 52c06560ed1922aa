//! A kernel's thread that cannot go on: how it ends, and how what it said gets out.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Arguments;
use std::panic::{self, Location, PanicHookInfo};
use std::sync::Once;

use super::context;
use super::error::Site;

/// Why a thread ended.
pub struct Fault {
    pub message: String,
    /// Unknown only when another panic hook has replaced this module's.
    pub site: Option<Site>,
}

/// The payload with which a thread unwinds because the launch has already failed.
struct Stopped;

thread_local! {
    /// What the panic hook saw: the payload alone does not say where.
    static LAST_PANIC: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

/// Keeps panics of the emulated grid's threads, which become errors, off standard error; all others go on to the hook
/// that was there before.
pub fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if context::is_running() {
                let fault = Fault {
                    message: info.payload_as_str().unwrap_or("a panic without a message").to_owned(),
                    site: info.location().map(Site::from),
                };
                LAST_PANIC.set(Some(fault));
            } else {
                before(info);
            }
        }));
    });
}

/// What the payload of an unwound thread says; `None` when the thread was only stopped.
pub fn take(payload: Box<dyn Any + Send>) -> Option<Fault> {
    if payload.is::<Stopped>() {
        return None;
    }
    match payload.downcast::<Fault>() {
        Ok(fault) => Some(*fault),
        Err(payload) => Some(LAST_PANIC.take().unwrap_or_else(|| {
            Fault {
                message: payload
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string))
                    .unwrap_or_else(|| String::from("a panic without a message")),
                site: None,
            }
        })),
    }
}

/// Ends a thread of a launch that has failed.
pub fn stop() -> ! {
    panic::resume_unwind(Box::new(Stopped))
}

/// Ends the thread, and with it the launch, for what the caller did. Outside of the grid an ordinary panic.
#[track_caller]
#[cold]
pub fn invalid(message: Arguments<'_>) -> ! {
    if context::is_running() {
        raise(message.to_string(), Location::caller())
    }
    panic!("{message}")
}

/// [`invalid`] for what happened elsewhere in the source.
pub fn raise(message: String, location: &Location<'_>) -> ! {
    // Not a panic: it needs no hook to keep its location.
    panic::resume_unwind(Box::new(Fault { message, site: Some(Site::from(location)) }))
}

#[track_caller]
#[cold]
pub fn out_of_bounds(name: &str, i: usize, count: usize, length: usize) -> ! {
    if count == 1 {
        invalid(format_args!("`{name}`: index {i} is out of bounds, it has {length} elements"))
    }
    invalid(format_args!("`{name}`: {count} elements from index {i} on are out of bounds, it has {length} elements"))
}

#[track_caller]
#[cold]
pub fn offset_out_of_bounds(name: &str, i: usize, length: usize) -> ! {
    invalid(format_args!("`{name}`: offset {i} is out of bounds, it has {length} elements"))
}

/// That an access of `bytes` is aligned to them, as an instruction needs.
#[track_caller]
#[inline]
pub fn check_alignment(name: &str, address: usize, i: usize, bytes: usize) {
    if !address.is_multiple_of(bytes) {
        invalid(format_args!(
            "`{name}`: an access of {bytes} bytes at index {i} is not aligned to them: the address is {} bytes off",
            address % bytes
        ));
    }
}
