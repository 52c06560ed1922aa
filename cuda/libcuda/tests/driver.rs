//! The wrappers on a real GPU. Where there is none the tests show as ignored, with the reason;
//! `FERROLAYER_REQUIRE_GPU=1` makes a missing GPU a failure.

#[path = "driver/faults.rs"]
mod faults;
#[path = "driver/gpu.rs"]
mod gpu;
#[path = "driver/graphs.rs"]
mod graphs;
#[path = "driver/launches.rs"]
mod launches;
#[path = "driver/memory.rs"]
mod memory;
#[path = "driver/streams.rs"]
mod streams;
#[path = "driver/tensor_maps.rs"]
mod tensor_maps;

use libtest_mimic::{Arguments, Trial};

fn main() {
    if faults::is_child() {
        return faults::fault();
    }
    let tests: &[(&str, gpu::Test)] = &[
        ("presence", gpu::presence),
        ("streams_and_events", streams::streams_and_events),
        ("streams_wait_for_events", streams::wait_for_events),
        ("streams_from_elsewhere", streams::from_elsewhere),
        ("streams_work_from_any_thread", streams::any_thread),
        ("memory_copies_and_fills", memory::copies_and_fills),
        ("memory_pool_and_info", memory::pool_and_info),
        ("memory_errors", memory::errors),
        ("launch_plain", launches::plain),
        ("launch_with_much_shared_memory", launches::much_shared_memory),
        ("launch_in_clusters", launches::clusters),
        ("launch_programmatic", launches::programmatic),
        ("graph_replay_and_update", graphs::replay_and_update),
        ("graph_of_programmatic_launches", graphs::programmatic),
        ("graph_errors", graphs::errors),
        ("tensor_map_loads_a_box", tensor_maps::loads_a_box),
        ("fault_comes_out_as_an_error", faults::comes_out_as_an_error),
    ];
    let trials = tests.iter().map(|&(name, test)| Trial::ignorable_test(name, move || gpu::run(test))).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
