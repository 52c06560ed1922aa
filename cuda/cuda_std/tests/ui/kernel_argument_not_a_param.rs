use cuda_std::prelude::*;

#[derive(Clone, Copy)]
pub struct Steps {
    rows: u32,
}

#[kernel]
pub unsafe fn show(y: GlobalMut<f32>, steps: Steps) {
    unsafe { y.store(0, steps.rows as f32) }
}

fn main() {}
