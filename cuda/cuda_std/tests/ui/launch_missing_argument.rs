use cuda_std::prelude::*;

#[kernel(block = 128)]
pub unsafe fn scale(x: Global<f32>, y: GlobalMut<f32>, by: f32, n: u64) {
    let i = thread::index_1d() as usize;
    if (i as u64) < n {
        unsafe { y.store(i, by * x.load(i)) }
    }
}

fn main() {
    let (x, mut y) = ([1.0f32; 4], [0.0f32; 4]);
    let _ = Scale { x: &x, y: &mut y, by: 2.0 };
}
