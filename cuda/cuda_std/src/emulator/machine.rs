//! The emulated machine: the functions that `device` has on a GPU.

use std::panic::Location;
use std::sync::atomic::{Ordering, fence};

use super::block::Block;
use super::warp::Operation;
use super::{context, matrix};
use crate::warp::Shuffle;

type Site = &'static Location<'static>;

pub fn thread_idx() -> [u32; 3] {
    context::with(|context| context.thread_idx())
}

pub fn block_idx() -> [u32; 3] {
    context::with(|context| context.block_idx())
}

pub fn block_dim() -> [u32; 3] {
    context::with(|context| context.block().dims().block)
}

pub fn grid_dim() -> [u32; 3] {
    context::with(|context| context.block().dims().grid)
}

pub fn lane_id() -> u32 {
    context::with(|context| context.thread() % 32)
}

pub fn activemask() -> u32 {
    context::with(|context| context.block().active_lanes(context.thread() / 32))
}

#[track_caller]
pub fn sync_threads() {
    sync_threads_count(false);
}

#[track_caller]
pub fn sync_threads_count(predicate: bool) -> u32 {
    let site = Location::caller();
    context::with(|context| context.block().barrier(context.thread(), site, predicate))
}

#[track_caller]
pub fn sync_threads_and(predicate: bool) -> bool {
    let threads = context::with(|context| context.block().dims().threads());
    sync_threads_count(predicate) == threads
}

#[track_caller]
pub fn sync_threads_or(predicate: bool) -> bool {
    sync_threads_count(predicate) > 0
}

fn collective(operation: Operation, mask: u32, value: u32, operands: [u32; 2], site: Site) -> u32 {
    context::with(|context| {
        let block: &Block<'_> = context.block();
        block.collective(context.thread(), operation, mask, value, operands, site)
    })
}

#[track_caller]
pub fn sync_warp(mask: u32) {
    collective(Operation::Sync, mask, 0, [0; 2], Location::caller());
}

pub fn shuffle(kind: Shuffle, mask: u32, value: u32, b: u32, c: u32, site: Site) -> u32 {
    collective(Operation::Shuffle(kind), mask, value, [b, c], site)
}

#[track_caller]
pub fn ballot(mask: u32, predicate: bool) -> u32 {
    collective(Operation::Ballot, mask, predicate.into(), [0; 2], Location::caller())
}

#[track_caller]
pub fn any(mask: u32, predicate: bool) -> bool {
    collective(Operation::Any, mask, predicate.into(), [0; 2], Location::caller()) != 0
}

#[track_caller]
pub fn all(mask: u32, predicate: bool) -> bool {
    collective(Operation::All, mask, predicate.into(), [0; 2], Location::caller()) != 0
}

#[track_caller]
pub fn matching(mask: u32, value: u32) -> u32 {
    collective(Operation::Match, mask, value, [0; 2], Location::caller())
}

#[track_caller]
pub fn matrix(operation: matrix::Operation, given: &[u32]) -> [u32; 4] {
    let site = Location::caller();
    context::with(|context| context.block().matrix(context.thread(), operation, given, site))
}

// A fence orders only together with an atomic of its own, which kernels here do not have.
pub fn fence_block() {
    fence(Ordering::SeqCst);
}

pub fn fence_device() {
    fence(Ordering::SeqCst);
}

pub fn fence_system() {
    fence(Ordering::SeqCst);
}
