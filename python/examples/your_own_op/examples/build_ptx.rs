//! Builds `src/op.sm_80.ptx` of the kernels in `src/op.rs`: `cargo run --example build_ptx`.

use std::path::Path;

use cuda_builder::{BuildError, CudaBuilder};

fn main() -> Result<(), BuildError> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let built = CudaBuilder::new(src.join("op.rs")).copy_to(src.join("op.sm_80.ptx")).build()?;
    println!("{}: {} kernels", built.path.display(), built.entries.len());
    Ok(())
}
