use cuda_std::prelude::*;

#[kernel]
pub fn nothing() {}

fn main() {}
