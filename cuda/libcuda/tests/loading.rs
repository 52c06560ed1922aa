//! What happens before there is a GPU: which symbols there are, what the linker makes of them, and how a process fares
//! without a driver or with an old one. Runs on any machine: the driver's absence, or its age, is arranged by
//! `LD_LIBRARY_PATH` in a process of its own.

#[path = "loading/child.rs"]
mod child;
#[path = "loading/linking.rs"]
mod linking;
#[path = "loading/list.rs"]
mod list;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// `Ok(Completed)`, `Ok(ignored with a reason)`, or what is wrong.
type Outcome = Result<Completion, Failed>;

type Test = fn() -> Outcome;

fn main() {
    if let Ok(role) = std::env::var(child::ROLE) {
        child::play(&role);
        return;
    }
    let tests: &[(&str, Test)] = &[
        ("symbols_are_all_that_cust_raw_declares", list::complete),
        ("binary_neither_needs_nor_exports_the_driver", linking::this_binary),
        ("cdylib_neither_needs_nor_exports_the_driver", linking::shared_object),
        ("without_a_driver_calls_return_errors", || child::run("without", child::Driver::Broken, &[])),
        ("missing_calls_of_an_old_driver_return_not_found", || child::run("old", child::Driver::Fake, &[])),
        ("first_calls_keep_their_arguments", || child::run("arguments", child::Driver::Fake, &[])),
        ("first_calls_race_safely", || child::run("race", child::Driver::Fake, &[])),
        ("driver_too_old_is_said", || child::run("too_old", child::Driver::Fake, &[("FAKE_DRIVER_VERSION", "11020")])),
        ("driver_without_gpu_is_said", || child::run("no_device", child::Driver::Fake, &[("FAKE_DRIVER_INIT", "100")])),
    ];
    let trials = tests.iter().map(|&(name, test)| Trial::ignorable_test(name, test)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
