//! The GPU: special registers and convergent operations, as LLVM intrinsics.
//!
//! Never as inline assembly: LLVM does not take that for convergent and copies it into divergent branches.

pub mod memory;

use core::arch::nvptx;

use crate::warp::Shuffle;

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    fn read_lane_id() -> u32;
    #[link_name = "llvm.nvvm.activemask"]
    fn read_activemask() -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn shfl_up(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn shfl_down(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_xor(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn vote_all(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    fn match_any(mask: u32, value: u32) -> u32;
    #[link_name = "llvm.nvvm.membar.cta"]
    fn membar_cta();
    #[link_name = "llvm.nvvm.membar.gl"]
    fn membar_gl();
    #[link_name = "llvm.nvvm.membar.sys"]
    fn membar_sys();
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.all"]
    fn barrier_popc(id: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.barrier.cta.red.and.aligned.all"]
    fn barrier_and(id: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.all"]
    fn barrier_or(id: u32, predicate: bool) -> bool;
}

macro_rules! sreg3 {
    ($($name:ident: $x:ident $y:ident $z:ident;)*) => {$(
        #[inline(always)]
        pub fn $name() -> [u32; 3] {
            // SAFETY: reads special registers.
            unsafe { [nvptx::$x(), nvptx::$y(), nvptx::$z()] }
        }
    )*};
}
sreg3! {
    thread_idx: _thread_idx_x _thread_idx_y _thread_idx_z;
    block_idx: _block_idx_x _block_idx_y _block_idx_z;
    block_dim: _block_dim_x _block_dim_y _block_dim_z;
    grid_dim: _grid_dim_x _grid_dim_y _grid_dim_z;
}

// The functions below are safe like their public faces in `thread` and `warp`, which state the rules.
macro_rules! calls {
    ($($name:ident($($argument:ident: $t:ty),*) $(-> $r:ty)? = $call:path;)*) => {$(
        #[inline(always)]
        pub fn $name($($argument: $t),*) $(-> $r)? {
            // SAFETY: an instruction without requirements beyond the public function's.
            unsafe { $call($($argument),*) }
        }
    )*};
}
calls! {
    sync_threads() = nvptx::_syncthreads;
    lane_id() -> u32 = read_lane_id;
    activemask() -> u32 = read_activemask;
    sync_warp(mask: u32) = bar_warp_sync;
    ballot(mask: u32, predicate: bool) -> u32 = vote_ballot;
    any(mask: u32, predicate: bool) -> bool = vote_any;
    all(mask: u32, predicate: bool) -> bool = vote_all;
    matching(mask: u32, value: u32) -> u32 = match_any;
    fence_block() = membar_cta;
    fence_device() = membar_gl;
    fence_system() = membar_sys;
}

#[inline(always)]
pub fn sync_threads_count(predicate: bool) -> u32 {
    // SAFETY: barrier 0, as `sync_threads`.
    unsafe { barrier_popc(0, predicate) }
}

#[inline(always)]
pub fn sync_threads_and(predicate: bool) -> bool {
    // SAFETY: barrier 0, as `sync_threads`.
    unsafe { barrier_and(0, predicate) }
}

#[inline(always)]
pub fn sync_threads_or(predicate: bool) -> bool {
    // SAFETY: barrier 0, as `sync_threads`.
    unsafe { barrier_or(0, predicate) }
}

/// `b` and `c` are the instruction's operands.
#[inline(always)]
pub fn shuffle(kind: Shuffle, mask: u32, value: u32, b: u32, c: u32) -> u32 {
    // SAFETY: an instruction without requirements beyond the public function's.
    unsafe {
        match kind {
            Shuffle::Index => shfl_idx(mask, value, b, c),
            Shuffle::Up => shfl_up(mask, value, b, c),
            Shuffle::Down => shfl_down(mask, value, b, c),
            Shuffle::Xor => shfl_xor(mask, value, b, c),
        }
    }
}
