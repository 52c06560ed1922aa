//! What takes no PyTorch. Where there is no GPU, the kernels' source runs on an emulated one, with every index checked.

#[path = "../src/op.rs"]
mod op;

use ferrolayer::op::Inputs;
use ferrolayer::{Device, Tensor, bf16, testing};

use self::op::Swish;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[test]
fn gradients_are_those_of_differences() -> Outcome {
    let cpu = Device::cpu();
    let (x, beta) = (testing::normal(&cpu, 1, &[5, 13])?, Tensor::full(&cpu, &[1], 1.5)?);
    testing::gradcheck(&Swish, Inputs { data: &[&x], parameters: &[&beta] })?;
    Ok(())
}

#[test]
fn gpus_compute_what_the_cpu_does() -> Outcome {
    let cpu = Device::cpu();
    let (x, beta) = (testing::normal(&cpu, 1, &[5, 13])?, Tensor::full(&cpu, &[1], 1.5)?);
    let inputs = Inputs { data: &[&x], parameters: &[&beta] };
    for gpu in testing::gpus() {
        testing::compare_devices::<f32, _>(&Swish, inputs, [&cpu, &gpu])?;
        testing::compare_devices::<bf16, _>(&Swish, inputs, [&cpu, &gpu])?;
    }
    Ok(())
}
