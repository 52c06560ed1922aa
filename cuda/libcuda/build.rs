//! Puts `toolkit/lib64`, where the empty `libcuda.so` lies, on the linker's search path of whoever links this crate, so
//! that the `-lcuda` that `cust_raw` asks for is found on a machine with neither driver nor toolkit.

use std::path::PathBuf;

fn main() {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets CARGO_MANIFEST_DIR for build scripts");
    let directory = PathBuf::from(manifest).join("toolkit").join("lib64");
    println!("cargo::rustc-link-search=native={}", directory.display());
    println!("cargo::rerun-if-changed=build.rs");
}
