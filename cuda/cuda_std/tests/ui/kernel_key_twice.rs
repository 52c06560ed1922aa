use cuda_std::prelude::*;

#[kernel(block = 128, block = 64)]
pub unsafe fn nothing() {}

fn main() {}
