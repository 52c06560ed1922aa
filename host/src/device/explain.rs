//! `FERROLAYER_EXPLAIN=1`: each launch, once, with why its kernel was chosen, on standard error.
//!
//! An op that chooses among kernels says why while it launches: `let _why = explain::because(|| ..)`. Where nobody asked,
//! that is one read of a flag.

use std::cell::RefCell;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::{Mutex, OnceLock, PoisonError};

use cuda_std::launch::LaunchDims;

thread_local! {
    /// Why what this thread launches now was chosen.
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whether launches are explained: as the environment said when the first was made.
fn on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("FERROLAYER_EXPLAIN").is_some_and(|value| value == "1"))
}

/// Until it is dropped, this thread's launches have a reason.
#[must_use = "the reason holds until this is dropped: `let _why = ..`"]
pub(crate) struct Because {
    /// What the reason took the place of.
    before: Option<String>,
    /// The reason is its thread's.
    of_thread: PhantomData<*const ()>,
}

/// Gives this thread's launches a reason: which case this is, what was chosen for it, and why not the others. Not asked
/// for where launches are not explained.
pub(crate) fn because(reason: impl FnOnce() -> String) -> Because {
    let before = if on() { REASON.replace(Some(reason())) } else { None };
    Because { before, of_thread: PhantomData }
}

impl Drop for Because {
    fn drop(&mut self) {
        if on() {
            REASON.set(self.before.take());
        }
    }
}

/// Tells of a launch, unless one like it was told of.
#[inline]
pub(super) fn launch(name: &str, dims: LaunchDims) {
    if on() {
        tell(name, dims);
    }
}

#[cold]
fn tell(name: &str, dims: LaunchDims) {
    static TOLD: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let line = REASON.with_borrow(|reason| describe(name, dims, reason.as_deref()));
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let told = told.get_or_insert_default();
    if !told.contains(&line) {
        eprintln!("ferrolayer: {line}");
        told.insert(line);
    }
}

fn describe(name: &str, dims: LaunchDims, reason: Option<&str>) -> String {
    let product = |sizes: [u32; 3]| {
        let used = sizes.iter().rposition(|&size| size != 1).map_or(1, |last| last + 1);
        sizes[..used].iter().map(u32::to_string).collect::<Vec<_>>().join("x")
    };
    let mut line = format!("{name} grid {} block {}", product(dims.grid), product(dims.block));
    if dims.shared_bytes > 0 {
        line += &format!(" shared {} bytes", dims.shared_bytes);
    }
    if dims.cluster != [1; 3] {
        line += &format!(" clusters of {}", product(dims.cluster));
    }
    match reason {
        Some(reason) => line + ": " + reason,
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_launch_and_the_reason() {
        let mut dims = LaunchDims::new([7, 1, 3], 256);
        assert_eq!(describe("relu_forward_f32", dims, None), "relu_forward_f32 grid 7x1x3 block 256");
        dims.shared_bytes = 49152;
        dims.grid = [1, 1, 1];
        let line = describe("dense_dx_f32", dims, Some("it is small"));
        assert_eq!(line, "dense_dx_f32 grid 1 block 256 shared 49152 bytes: it is small");
        let line = describe("dense_dw_wgmma", LaunchDims::new((4, 2), 384).with_cluster((2, 2)), None);
        assert_eq!(line, "dense_dw_wgmma grid 4x2 block 384 clusters of 2x2");
    }

    /// What is not asked for costs nothing: not even the words are made.
    #[test]
    fn no_reason_is_made_where_nobody_asks() {
        if on() {
            return;
        }
        let _why = because(|| panic!("nobody asked"));
        assert!(REASON.take().is_none());
    }
}
