use cuda_std::prelude::*;

#[kernel]
pub unsafe fn first(y: GlobalMut<f32>, x: &[f32]) {
    unsafe { y.store(0, x[0]) }
}

fn main() {}
