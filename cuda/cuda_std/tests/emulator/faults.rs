//! What a kernel does wrong on its own: an error with the file and the line, on every kind of access.

use cuda_std::launch::{EmulationError, LaunchDims};
use cuda_std::prelude::*;

use crate::run;

/// Does what `fault` says in thread (1, 2, 0) of block (1, 0, 0).
#[kernel]
pub unsafe fn faulty(x: Global<f32>, y: GlobalMut<f32>, what: u32, big: u32) {
    if thread::block_idx_x() == 0 || thread::thread_idx_x() != 1 || thread::thread_idx_y() != 2 {
        // The others wait for it, and must be let go.
        thread::sync_threads();
        return;
    }
    let tile = shared_array![f32; 8];
    // SAFETY: on the emulated grid a wrong access is reported.
    unsafe {
        match what {
            0 => drop(x.load(10)),
            1 => y.store(9, x.load(0)),
            2 => drop(x.load4(7)),
            3 => drop(x.load4(2)),
            4 => y.store2(1, Vec2::splat(0.0)),
            5 => drop(tile.load(8)),
            6 => tile.store4(6, Vec4::splat(0.0)),
            7 => drop(tile.load4(2)),
            8 => drop(x.offset(11)),
            9 => drop(tile.handle().offset(9)),
            10 => drop(dynamic_shared::<f32>().load(4)),
            11 => y.store(0, (u32::MAX - 5 + big) as f32),
            12 => y.store(0, [1.0, 2.0][big as usize]),
            13 => panic!("no {big}"),
            14 => arch::sm_80::cp_async16(tile.handle(), 6, x, 0),
            15 => arch::sm_80::cp_async16(tile.handle(), 0, x, 1),
            16 => arch::sm_80::cp_async16_zero_fill(tile.handle(), 0, x, 0, 5),
            17 => drop(shared_array![f64; 40_000]),
            18 => y.store_if(big == 10, 9, 0.0),
            19 => drop(warp::warp_vote_ballot(1, true)),
            20 => x.prefetch_if(big == 10, 10),
            _ => y.store(0, 1.0),
        }
    }
    thread::sync_threads();
}

fn error(what: u32) -> EmulationError {
    let x: Vec<f32> = (0..10).map(|i| i as f32).collect();
    let mut y = vec![0.0; 9];
    let launch = Faulty { x: &x, y: &mut y, what, big: 10 };
    run(launch, LaunchDims::new(2, (4, 8)).with_shared(16)).unwrap_err()
}

#[test]
fn a_fault_names_its_line() {
    let source = include_str!("faults.rs");
    let elements = |n: u32| format!("out of bounds, it has {n} elements");
    let aligned = |bytes: u32| format!("an access of {bytes} bytes");
    let cases = [
        (0, "0 => drop(x.load(10))", format!("`x`: index 10 is {}", elements(10))),
        (1, "1 => y.store(9", format!("`y`: index 9 is {}", elements(9))),
        (2, "2 => drop(x.load4(7))", format!("`x`: 4 elements from index 7 on are {}", elements(10))),
        (3, "3 => drop(x.load4(2))", aligned(16)),
        (4, "4 => y.store2(1", aligned(8)),
        (5, "5 => drop(tile.load(8))", elements(8)),
        (6, "6 => tile.store4(6", elements(8)),
        (7, "7 => drop(tile.load4(2))", aligned(16)),
        (8, "8 => drop(x.offset(11))", format!("`x`: offset 11 is {}", elements(10))),
        (9, "9 => drop(tile.handle().offset(9))", elements(8)),
        (10, "10 => drop(dynamic_shared", elements(4)),
        (11, "11 => y.store(0, (u32::MAX", String::from("attempt to add with overflow")),
        (12, "12 => y.store(0, [1.0", String::from("index out of bounds: the len is 2 but the index is 10")),
        (13, "13 => panic!", String::from("no 10")),
        (14, "14 => arch::sm_80::cp_async16(", elements(8)),
        (15, "15 => arch::sm_80::cp_async16(", aligned(16)),
        (16, "16 => arch::sm_80::cp_async16_zero", String::from("a copy of 5 elements: 16 bytes hold 4")),
        (17, "17 => drop(shared_array!", String::from("of which there are 232448")),
        (18, "18 => y.store_if(", format!("`y`: index 9 is {}", elements(9))),
        (19, "19 => drop(warp::warp_vote_ballot", String::from("mask 0x00000001, which leaves it out")),
        (20, "20 => x.prefetch_if(", format!("`x`: index 10 is {}", elements(10))),
    ];
    for (what, line, text) in cases {
        let error = error(what);
        let EmulationError::Fault { kernel, block, thread, message, site } = &error else { panic!("{what}: {error}") };
        assert_eq!((*kernel, *block, *thread), ("faulty", [1, 0, 0], [1, 2, 0]));
        assert!(message.contains(&text), "{what}: {message}");
        let site = site.as_ref().unwrap();
        let expected = 1 + source.lines().position(|text| text.contains(line)).unwrap();
        assert!(site.file.ends_with("faults.rs"), "{what}: {site}");
        assert_eq!(site.line as usize, expected, "{what}: {site}");
        let shown = error.to_string();
        assert!(shown.contains(&format!("{site}: {message}")), "{shown}");
    }
}

#[test]
fn a_panic_outside_of_kernels_is_none_of_ours() {
    // The hook of the first launch stands by now.
    error(13);
    let payload = std::panic::catch_unwind(|| panic!("ours")).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"ours"));
}

#[test]
fn a_kernels_functions_refuse_to_run_elsewhere() {
    let payload = std::panic::catch_unwind(thread::thread_idx_x).unwrap_err();
    let message = payload.downcast_ref::<&str>().unwrap();
    assert!(message.contains("Launch::emulate"), "{message}");
}

#[test]
fn helpers_run_on_slices() {
    let x = [1.0f32, 2.0];
    let mut y = [0.0f32; 2];
    let (from, to) = (Global::from_slice(&x), GlobalMut::from_slice(&mut y));
    // SAFETY: within the slices.
    unsafe { to.store2(0, Vec2::new(from.load(1), from.load(0))) };
    assert_eq!(y, [2.0, 1.0]);
    let payload = std::panic::catch_unwind(|| {
        // SAFETY: reported.
        unsafe { from.load(2) }
    });
    let message = payload.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(message.contains("index 2 is out of bounds"), "{message}");
}
