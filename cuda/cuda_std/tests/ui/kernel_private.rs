use cuda_std::prelude::*;

#[kernel]
unsafe fn nothing() {}

fn main() {}
