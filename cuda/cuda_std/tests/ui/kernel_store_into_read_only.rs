use cuda_std::prelude::*;

#[kernel]
pub unsafe fn first(x: Global<f32>) {
    unsafe { x.store(0, 1.0) }
}

fn main() {}
