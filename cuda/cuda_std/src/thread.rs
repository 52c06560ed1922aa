//! Where a thread is, and what the threads of a block do together.

use crate::machine;
use crate::vector::{Vec2, Vec3};

macro_rules! registers {
    ($($all:ident $x:ident $y:ident $z:ident: $what:literal, $register:literal;)*) => {$(
        #[doc = concat!($what, " PTX: `", $register, "` (PTX ISA, Special Registers).")]
        #[inline(always)]
        pub fn $all() -> Vec3<u32> {
            let [x, y, z] = machine::$all();
            Vec3::new(x, y, z)
        }

        #[doc = concat!("x of [`", stringify!($all), "`]. PTX: `", $register, ".x`.")]
        #[inline(always)]
        pub fn $x() -> u32 {
            $all().x
        }

        #[doc = concat!("y of [`", stringify!($all), "`]. PTX: `", $register, ".y`.")]
        #[inline(always)]
        pub fn $y() -> u32 {
            $all().y
        }

        #[doc = concat!("z of [`", stringify!($all), "`]. PTX: `", $register, ".z`.")]
        #[inline(always)]
        pub fn $z() -> u32 {
            $all().z
        }
    )*};
}
registers! {
    thread_idx thread_idx_x thread_idx_y thread_idx_z: "The thread's place in its block.", "%tid";
    block_idx block_idx_x block_idx_y block_idx_z: "The block's place in the grid.", "%ctaid";
    block_dim block_dim_x block_dim_y block_dim_z: "Threads of a block along each axis.", "%ntid";
    grid_dim grid_dim_x grid_dim_y grid_dim_z: "Blocks of the grid along each axis.", "%nctaid";
}

/// The thread's number along x in the whole grid: `block_idx_x · block_dim_x + thread_idx_x`.
#[inline(always)]
pub fn index_1d() -> u32 {
    block_idx_x().wrapping_mul(block_dim_x()).wrapping_add(thread_idx_x())
}

/// The thread's numbers along x and y in the whole grid.
#[inline(always)]
pub fn index_2d() -> Vec2<u32> {
    Vec2::new(index_1d(), block_idx_y().wrapping_mul(block_dim_y()).wrapping_add(thread_idx_y()))
}

/// The thread's numbers along x, y and z in the whole grid.
#[inline(always)]
pub fn index_3d() -> Vec3<u32> {
    let Vec2 { x, y } = index_2d();
    Vec3::new(x, y, block_idx_z().wrapping_mul(block_dim_z()).wrapping_add(thread_idx_z()))
}

/// The thread's number in its block, x fastest: what its warp and lane come from.
#[inline(always)]
pub fn index_in_block() -> u32 {
    let (i, n) = (thread_idx(), block_dim());
    i.z.wrapping_mul(n.y).wrapping_add(i.y).wrapping_mul(n.x).wrapping_add(i.x)
}

/// Waits for all threads of the block; what each wrote before, all see after.
///
/// All threads of the block must reach it, and reach the same call. The emulated grid reports the threads that do not.
/// PTX: `bar.sync 0` (PTX ISA, Parallel Synchronization and Communication: `bar`).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync_threads() {
    machine::sync_threads();
}

/// [`sync_threads`], and of how many threads the predicate was true. PTX: `bar.red.popc.u32`.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync_threads_count(predicate: bool) -> u32 {
    machine::sync_threads_count(predicate)
}

/// [`sync_threads`], and whether the predicate was true of every thread. PTX: `bar.red.and.pred`.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync_threads_and(predicate: bool) -> bool {
    machine::sync_threads_and(predicate)
}

/// [`sync_threads`], and whether the predicate was true of any thread. PTX: `bar.red.or.pred`.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync_threads_or(predicate: bool) -> bool {
    machine::sync_threads_or(predicate)
}

/// Orders this thread's accesses to memory for the threads of its block. Waits for nobody.
/// PTX: `membar.cta` (PTX ISA, Parallel Synchronization and Communication: `membar`).
#[inline(always)]
pub fn block_fence() {
    machine::fence_block();
}

/// Orders this thread's accesses to memory for all threads of the device. PTX: `membar.gl`.
#[inline(always)]
pub fn device_fence() {
    machine::fence_device();
}

/// Orders this thread's accesses to memory for all devices and the host. PTX: `membar.sys`.
#[inline(always)]
pub fn system_fence() {
    machine::fence_system();
}
