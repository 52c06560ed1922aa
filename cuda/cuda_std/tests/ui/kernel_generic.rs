use cuda_std::prelude::*;

#[kernel]
pub unsafe fn fill<T: Element>(y: GlobalMut<T>, value: T) {
    unsafe { y.store(0, value) }
}

fn main() {}
