use cuda_std::prelude::*;

#[kernel]
pub unsafe fn fill<T: Element>(y: GlobalMut<T>, value: T) {
    unsafe { y.store(0, value) }
}

#[kernel(instances(T = [f32], N = [1]))]
pub unsafe fn copy<T: Element>(x: Global<T>, y: GlobalMut<T>) {
    unsafe { y.store(0, x.load(0)) }
}

#[kernel(instances(T = f32))]
pub unsafe fn one<T: Element>(y: GlobalMut<T>, value: T) {
    unsafe { y.store(0, value) }
}

#[kernel(instances((T, U) = [(f32, f32), f32]))]
pub unsafe fn two<T: Element, U: Element>(x: Global<T>, y: GlobalMut<U>) {}

fn main() {}
