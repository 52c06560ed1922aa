//! That ThreadSanitizer sees a missing barrier, and no race where there is none.
//!
//! The racing kernels run in processes of their own, because a report makes a process fail. How to run this, from the
//! repository's root (the toolchain is the pinned one; the sanitizer needs a target that is named):
//! ```text
//! RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
//!     cargo test -p ferrolayer-cuda-std --tests --target x86_64-unknown-linux-gnu
//! ```

use std::process::Command;

use cuda_std::launch::{Launch, LaunchDims};
use kernels::{BLOCK, NOTHING, Neighbour, OTHER_HALF, SHUFFLES, SameElement, SecondRound, WARP};

mod kernels {
    //! Kernels that race, or do not, as they are told.

    use cuda_std::prelude::*;

    /// Reads the neighbour's element, with what `order` says in between.
    #[kernel(block = 32)]
    pub unsafe fn neighbour(y: GlobalMut<f32>, order: u32) {
        let tile = shared_array![f32; 32];
        let t = thread::thread_idx_x();
        // SAFETY: in bounds; ordered or not, as the tests say.
        unsafe {
            tile.store(t, t as f32);
            match order {
                NOTHING => {}
                SHUFFLES => drop((warp::shuffle_xor(t, 1), warp::ballot(true))),
                OTHER_HALF => {
                    warp::sync_warp(if t < 16 { 0xffff } else { 0xffff_0000 });
                    // The other half's elements are not ordered by that.
                    y.store(t as usize, tile.load(t ^ 16));
                    return;
                }
                WARP => warp::sync_warp(warp::FULL_MASK),
                _ => thread::sync_threads(),
            }
            y.store(t as usize, tile.load(t ^ 1));
        }
    }

    pub const NOTHING: u32 = 0;
    pub const SHUFFLES: u32 = 1;
    pub const OTHER_HALF: u32 = 2;
    pub const WARP: u32 = 3;
    pub const BLOCK: u32 = 4;

    /// Reads before a barrier what another thread writes after it, without a second barrier.
    #[kernel(block = 64)]
    pub unsafe fn second_round(y: GlobalMut<f32>, both: u32) {
        let tile = shared_array![f32; 64];
        let t = thread::thread_idx_x();
        // SAFETY: in bounds; ordered or not, as the tests say.
        unsafe {
            for round in 0..2 {
                tile.store(t, (t + round) as f32);
                thread::sync_threads();
                y.store(t as usize, tile.load(t ^ 33));
                if both != 0 {
                    thread::sync_threads();
                }
            }
        }
    }

    /// Two threads write one element of global memory.
    #[kernel(block = 32)]
    pub unsafe fn same_element(y: GlobalMut<f32>) {
        // SAFETY: in bounds.
        unsafe { y.store(thread::thread_idx_x() as usize / 2, 1.0) };
    }
}

fn run(launch: impl Launch, block: u32) {
    // SAFETY: in bounds; where the threads race, that is what is tested.
    unsafe { launch.emulate(LaunchDims::new(2, block)) }.unwrap();
}

fn run_neighbour(order: u32) -> [f32; 32] {
    let mut y = [0.0; 32];
    run(Neighbour { y: &mut y, order }, 32);
    y
}

#[test]
fn barriers_order() {
    let expected: [f32; 32] = std::array::from_fn(|t| (t ^ 1) as f32);
    assert_eq!(run_neighbour(WARP), expected);
    assert_eq!(run_neighbour(BLOCK), expected);
    let mut y = [0.0; 64];
    run(SecondRound { y: &mut y, both: 1 }, 64);
    assert_eq!(y, std::array::from_fn(|t| ((t ^ 33) + 1) as f32));
}

macro_rules! racing {
    ($($name:ident: $run:expr;)*) => {
        $(
            #[test]
            #[ignore = "races: run by `races_are_reported`, in a process of its own"]
            fn $name() {
                $run;
            }
        )*

        const RACING: &[&str] = &[$(stringify!($name)),*];
    };
}
racing! {
    no_barrier: run_neighbour(NOTHING);
    shuffles_are_no_barrier: run_neighbour(SHUFFLES);
    barrier_of_the_other_half: run_neighbour(OTHER_HALF);
    one_barrier_of_two: run(SecondRound { y: &mut [0.0; 64], both: 0 }, 64);
    two_threads_one_element: run(SameElement { y: &mut [0.0; 16] }, 32);
}

#[test]
#[cfg_attr(not(thread_sanitizer), ignore = "needs ThreadSanitizer: see the head of this file")]
fn races_are_reported() {
    for name in RACING {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--test-threads=1", "--nocapture"])
            .env("TSAN_OPTIONS", "exitcode=66")
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(report.contains("ThreadSanitizer: data race"), "{name}: {report}");
        // A frame of the kernel: the report is of its accesses.
        assert!(report.contains("tests/races.rs"), "{name}: {report}");
        assert_eq!(output.status.code(), Some(66), "{name}");
    }
}
