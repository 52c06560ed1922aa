use cuda_std::prelude::*;

#[kernel(block = 128)]
pub unsafe fn scale(x: Global<f32>, y: GlobalMut<f32>, by: f32, n: u64) {
    let i = thread::index_1d() as usize;
    if (i as u64) < n {
        unsafe { y.store(i, by * x.load(i)) }
    }
}

fn main() {
    let mut y = [0.0f32; 4];
    let launch = Scale { x: &y, y: &mut y, by: 2.0, n: 4 };
    let dims = cuda_std::launch::LaunchDims::new(1, 128);
    unsafe { cuda_std::launch::Launch::emulate(launch, dims) }.unwrap();
}
