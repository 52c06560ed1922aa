use cuda_std::prelude::*;

#[device_inline(always)]
fn square(x: f32) -> f32 {
    x * x
}

fn main() {}
