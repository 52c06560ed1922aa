use cuda_std::prelude::*;

#[kernel(begins = "later")]
pub unsafe fn nothing() {}

fn main() {}
