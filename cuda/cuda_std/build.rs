//! Tells the crate and its tests under which sanitizer they are built: rustc's own `cfg(sanitize)` is unstable.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(sanitizer)");
    println!("cargo::rustc-check-cfg=cfg(thread_sanitizer)");
    println!("cargo::rustc-check-cfg=cfg(address_sanitizer)");
    let sanitizers = std::env::var("CARGO_CFG_SANITIZE").unwrap_or_default();
    if !sanitizers.is_empty() {
        println!("cargo::rustc-cfg=sanitizer");
    }
    for sanitizer in sanitizers.split(',').filter(|&name| name == "thread" || name == "address") {
        println!("cargo::rustc-cfg={sanitizer}_sanitizer");
    }
}
