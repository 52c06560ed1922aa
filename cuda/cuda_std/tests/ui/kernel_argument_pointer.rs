use cuda_std::prelude::*;

#[kernel]
pub unsafe fn first(y: GlobalMut<f32>, x: *const f32) {
    unsafe { y.store(0, *x) }
}

fn main() {}
