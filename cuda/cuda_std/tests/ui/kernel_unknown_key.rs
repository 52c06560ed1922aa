use cuda_std::prelude::*;

#[kernel(threads = 128)]
pub unsafe fn nothing() {}

fn main() {}
