use cuda_std::prelude::*;

#[kernel(block = (64, 32))]
pub unsafe fn nothing() {}

fn main() {}
