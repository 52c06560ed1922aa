//! A barrier, or an operation of a warp, that not all threads reach: an error that says who is missing where.

use cuda_std::launch::{Collective, EmulationError, LaunchDims, Waiting};
use cuda_std::prelude::*;

use crate::run;

/// Goes wrong as `what` says.
#[kernel(block = 64)]
pub unsafe fn divergent(what: u32) {
    let t = thread::thread_idx_x();
    match what {
        // Half of the block never comes.
        0 if t < 32 => thread::sync_threads(),
        0 => {}
        // One thread leaves early.
        1 if t == 40 => {}
        1 => thread::sync_threads(),
        // Two barriers, not one.
        2 if t.is_multiple_of(2) => thread::sync_threads(),
        2 => thread::sync_threads(),
        // A lane of the mask waits in the block's barrier.
        3 if t == 33 => thread::sync_threads(),
        3 => {
            warp::ballot(true);
            thread::sync_threads();
        }
        // Two operations in one warp.
        4 if t < 5 => drop(warp::shuffle_xor(t, 1)),
        4 if t < 32 => drop(warp::any(true)),
        4 => {}
        // One operation with two masks.
        5 if t < 8 => warp::sync_warp(0xffff),
        5 if t < 16 => warp::sync_warp(0xffff_ffff),
        5 if t < 32 => warp::sync_warp(0xffff_ffff),
        // One barrier fewer in a loop.
        _ => {
            let mut left = if t == 7 { 2 } else { 3 };
            while left > 0 {
                left -= 1;
                thread::sync_threads();
            }
        }
    }
}

fn diverge(what: u32) -> (Vec<Waiting>, Vec<u32>, String) {
    let error = run(Divergent { what }, LaunchDims::new(2, 64)).unwrap_err();
    let shown = error.to_string();
    let EmulationError::Divergence { kernel, block, waiting, ended } = error else { panic!("{shown}") };
    assert_eq!((kernel, block), ("divergent", [0; 3]));
    (waiting, ended, shown)
}

fn line_of(text: &str) -> u32 {
    let source = include_str!("divergence.rs");
    1 + source.lines().position(|line| line.contains(text)).unwrap() as u32
}

fn threads(range: impl IntoIterator<Item = u32>) -> Vec<u32> {
    range.into_iter().collect()
}

#[test]
fn half_of_the_block_never_comes() {
    let (waiting, ended, shown) = diverge(0);
    let [group] = waiting.as_slice() else { panic!("{shown}") };
    assert_eq!(group.collective, Collective::SyncThreads);
    assert!(group.site.file.ends_with("divergence.rs"));
    assert_eq!(group.site.line, line_of("0 if t < 32 =>"));
    assert_eq!(group.threads, threads(0..32));
    assert_eq!(group.missing, threads(32..64));
    assert_eq!(ended, threads(32..64));
    let place = group.site.to_string();
    assert!(
        shown.ends_with(&format!(
            "block [0, 0, 0]: sync_threads at {place} was reached by threads 0 to 31 and not by threads 32 to 63; \
             threads 32 to 63 ended"
        )),
        "{shown}"
    );
}

#[test]
fn one_thread_leaves_early() {
    let (waiting, ended, shown) = diverge(1);
    assert_eq!(waiting.len(), 1, "{shown}");
    assert_eq!(waiting[0].site.line, line_of("1 => thread::sync_threads()"));
    assert_eq!(waiting[0].missing, [40]);
    assert_eq!(ended, [40]);
    assert!(shown.contains("not by thread 40; thread 40 ended"), "{shown}");
}

#[test]
fn two_barriers_are_not_one() {
    let (waiting, ended, shown) = diverge(2);
    assert_eq!(waiting.len(), 2, "{shown}");
    let lines = [line_of("        2 if t.is"), line_of("        2 => thread::sync")];
    assert_eq!(waiting.iter().map(|w| w.site.line).collect::<Vec<_>>(), lines);
    assert_eq!(waiting[0].threads, threads((0..64).step_by(2)));
    assert_eq!(waiting[0].missing, waiting[1].threads);
    assert_eq!(ended, []);
}

#[test]
fn a_lane_waits_elsewhere() {
    let (waiting, _, shown) = diverge(3);
    let vote = waiting.iter().find(|group| group.collective != Collective::SyncThreads).unwrap();
    assert_eq!(vote.threads, threads((32..64).filter(|&t| t != 33)), "{shown}");
    assert_eq!(vote.missing, [33]);
    assert!(shown.contains("ballot (mask 0xffffffff) at"), "{shown}");
}

#[test]
fn two_operations_in_one_warp() {
    let (waiting, ended, shown) = diverge(4);
    assert_eq!(waiting.len(), 2, "{shown}");
    assert_eq!(waiting[0].threads, threads(0..5));
    assert_eq!(waiting[0].missing, threads(5..32));
    assert_eq!(waiting[1].threads, threads(5..32));
    assert_eq!(ended, threads(32..64));
}

#[test]
fn two_masks_in_one_warp() {
    let (waiting, _, shown) = diverge(5);
    let full: Vec<_> =
        waiting.iter().filter(|group| matches!(group.collective, Collective::Warp { mask: u32::MAX, .. })).collect();
    assert_eq!(full.len(), 2, "{shown}");
    assert_eq!(full[0].threads, threads(8..16));
}

#[test]
fn one_barrier_fewer_in_a_loop() {
    let (waiting, ended, _) = diverge(6);
    assert_eq!(waiting[0].missing, [7]);
    assert_eq!(ended, [7]);
}
