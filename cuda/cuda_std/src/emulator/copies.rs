//! Asynchronous copies, carried out when they are waited for.

use std::collections::VecDeque;

use super::context;

/// What a thread has issued and not waited for.
#[derive(Default)]
pub struct Copies {
    open: Vec<Pending>,
    groups: VecDeque<Vec<Pending>>,
}

struct Pending {
    target: *mut u8,
    source: *const u8,
    valid: usize,
    bytes: usize,
}

/// Of `valid` of these `bytes`; the rest becomes zeros. The pointers are checked.
pub fn issue(target: *mut u8, source: *const u8, valid: usize, bytes: usize) {
    context::with(|context| {
        context.copies.borrow_mut().open.push(Pending { target, source, valid, bytes });
    });
}

pub fn commit() {
    context::with(|context| {
        let mut copies = context.copies.borrow_mut();
        let group = std::mem::take(&mut copies.open);
        copies.groups.push_back(group);
    });
}

/// Carries out all groups but the newest `pending`.
pub fn wait(pending: usize) {
    context::with(|context| {
        let mut copies = context.copies.borrow_mut();
        while copies.groups.len() > pending {
            for copy in copies.groups.pop_front().into_iter().flatten() {
                // SAFETY: so many bytes of shared memory, checked when issued, as were the `valid` bytes of the source,
                // which may be null where there are none; both outlive the block.
                unsafe {
                    if copy.valid > 0 {
                        copy.target.copy_from_nonoverlapping(copy.source, copy.valid);
                    }
                    copy.target.add(copy.valid).write_bytes(0, copy.bytes - copy.valid);
                }
            }
        }
    });
}
