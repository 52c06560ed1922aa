use cuda_std::prelude::*;

#[kernel]
pub unsafe fn first(x: Global<f32>) -> f32 {
    unsafe { x.load(0) }
}

fn main() {}
