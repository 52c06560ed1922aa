//! Ferrolayer's integration tests: every pass on every device this machine has, against its oracle.
//!
//! A GPU's tests are listed as ignored, with the reason, where there is none; `FERROLAYER_REQUIRE_GPU=1` makes a missing
//! GPU a failure. Kernels are always tested on the emulated grid, at small sizes.

mod support;

mod adam;
mod add2;
mod avg_pool;
mod contract;
/// The example of a user's own op.
#[path = "../../host/examples/custom_op.rs"]
mod custom_op;
mod dense;
mod device;
mod exp;
mod explain;
mod faults;
mod foreign;
mod gaussian_pool;
mod graphs;
mod huge;
mod max_pool;
mod oblong;
mod oracle;
mod own_op;
mod permute;
mod prelu;
mod relu;
mod route;
mod scale_add;
mod sgd;
mod softmax_cross_entropy;
mod stochastic_pool;
mod swish;
mod training;

use std::process::ExitCode;

fn main() -> ExitCode {
    device::run_child_if_asked();
    let arguments = libtest_mimic::Arguments::from_args();
    let tests = [
        adam::tests(),
        add2::tests(),
        avg_pool::tests(),
        contract::tests(),
        dense::tests(),
        device::tests(),
        exp::tests(),
        explain::tests(),
        faults::tests(),
        foreign::tests(),
        gaussian_pool::tests(),
        graphs::tests(),
        max_pool::tests(),
        oracle::tests(),
        own_op::tests(),
        permute::tests(),
        prelu::tests(),
        relu::tests(),
        route::tests(),
        scale_add::tests(),
        sgd::tests(),
        softmax_cross_entropy::tests(),
        stochastic_pool::tests(),
        swish::tests(),
        training::tests(),
    ];
    libtest_mimic::run(&arguments, tests.into_iter().flatten().collect()).exit_code()
}
