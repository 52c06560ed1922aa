//! Builds and runs outside the workspace, with no CUDA toolkit and no driver.

use ferrolayer::{Device, Tensor, ops::prelu};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::auto();
    let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32, -2.0, 3.0, -4.0])?;
    let alpha = Tensor::from_slice(&device, &[1], &[0.5f32])?;
    let y = prelu::forward(&x, &alpha)?.to_vec()?;
    assert_eq!(y, [1.0, -1.0, 3.0, -2.0]);
    println!("prelu on {device}: {y:?}");
    Ok(())
}
