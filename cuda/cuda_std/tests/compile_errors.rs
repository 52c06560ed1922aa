//! A launch that does not fit its kernel, or a kernel that is none, is a compile error: pins the texts.

#[test]
#[cfg_attr(sanitizer, ignore = "says nothing more under a sanitizer")]
fn wrong_launches_and_wrong_kernels_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/right.rs");
    cases.compile_fail("tests/ui/launch_*.rs");
    cases.compile_fail("tests/ui/kernel_*.rs");
    cases.compile_fail("tests/ui/device_inline_*.rs");
}
