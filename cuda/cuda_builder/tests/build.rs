//! Builds small crates of kernels with the compiler that this machine has; ignored where there is none.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cuda_builder::{Arch, BuildError, Built, Compiler, CudaBuilder, Head, source_hash};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// What every crate here begins with.
const START: &str = r#"
#![no_std]
#![allow(unused_imports)]
#![feature(abi_ptx, stdarch_nvptx)]
use core::arch::nvptx::{_syncthreads as sync_threads, _thread_idx_x as thread_idx_x, trap};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe { trap() }
}
"#;

/// Kernels that make the compiler leave functions, panics with the place in the source, and statics.
const KERNELS: &str = r#"
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Map([u64; 16]);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn scale(x: *const f32, y: *mut f32, map: Map, n: u32) {
    unsafe {
        sync_threads();
        let i = thread_idx_x() as usize;
        if (i as u32) < n {
            *y.add(i) = *x.add(i) * map.0[0] as f32;
        }
        stage(n, y);
    }
}
#[used]
#[unsafe(no_mangle)]
pub static __ferrolayer_kernel_scale: [u32; 10] = [256, 1, 1, 0, 4, 2, 1, 1, 0, 0];

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn pick(table: &[f32; 3], i: usize, y: *mut f32) {
    unsafe { *y = table[i] }
}
#[used]
#[unsafe(no_mangle)]
pub static __ferrolayer_kernel_pick: [u32; 10] = [0; 10];

#[inline(never)]
unsafe fn stage(n: u32, y: *mut f32) {
    unsafe {
        sync_threads();
        *y.add(n as usize) = 1.0;
    }
}
"#;

/// What a file may hold beside other code.
const FILE: &str = r#"
/// Kernels.
pub mod kernels {
    use cuda_std::prelude::*;

    /// # Safety
    /// `x` holds as many elements as the grid has threads.
    #[kernel(block = 64, instances(T = [f32, f16]))]
    pub unsafe fn twice<T: Storage>(x: GlobalMut<T>) {
        let i = thread::index_1d() as usize;
        unsafe { x.store(i, T::from_f32(2.0 * x.load(i).to_f32())) };
        thread::sync_threads();
    }
}
"#;

/// A loop that LLVM unrolls: eight barriers of one in the source.
const UNROLLED: &str = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn unrolled(y: *mut f32) {
    for i in 0..8 {
        unsafe {
            *y.add(i) = 1.0;
            sync_threads();
        }
    }
}
#[used]
#[unsafe(no_mangle)]
pub static __ferrolayer_kernel_unrolled: [u32; 10] = [0, 0, 0, 0, 0, 0, 0, 0, GIVEN, 8];
"#;

const EXTERN: &str = r#"
unsafe extern "C" {
    fn not_for_the_gpu(x: f32) -> f32;
}
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn calls(y: *mut f32) {
    unsafe { *y = not_for_the_gpu(*y) }
}
"#;

/// Where the crates are made, and the compiler's files, which all of them share: `core` is compiled once.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> std::io::Result<Self> {
        Ok(Self { folder: tempfile::tempdir()? })
    }

    fn make(&self, name: &str, code: &str) -> std::io::Result<PathBuf> {
        let root = self.folder.path().join(name);
        std::fs::create_dir_all(root.join("src"))?;
        std::fs::write(
            root.join("Cargo.toml"),
            "[package]\nname = \"fixture\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n",
        )?;
        std::fs::write(root.join("src/lib.rs"), format!("{START}{code}"))?;
        Ok(root)
    }

    fn build(&self, root: &Path, arch: Arch) -> Result<Built, BuildError> {
        // The fixtures lie outside the repository: the compiler it pins is looked for from here.
        let compiler = Compiler::find(Path::new(env!("CARGO_MANIFEST_DIR")))?;
        CudaBuilder::new(root)
            .arch(arch)
            .compiler(compiler)
            .copy_to(if root.is_file() { root.with_extension("ptx") } else { root.join(format!("{arch}.ptx")) })
            .target_dir(self.folder.path().join("target"))
            .build()
    }
}

fn main() -> ExitCode {
    let bench = Arc::new(Bench::new().expect("a folder for temporary files"));
    let trial = |name: &'static str, test: fn(&Bench) -> Result<(), Failed>| {
        let bench = Arc::clone(&bench);
        Trial::ignorable_test(name, move || {
            if let Err(missing) = Compiler::find(Path::new(env!("CARGO_MANIFEST_DIR"))) {
                return Ok(Completion::ignored_with(missing.to_string().replace('\n', " ")));
            }
            test(&bench)?;
            Ok(Completion::Completed)
        })
    };
    let trials = vec![
        trial("kernels_become_ptx", kernels_become_ptx),
        trial("a_file_s_kernels_become_ptx", a_file),
        trial("bad_kernels_are_refused", refusals),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn expect(condition: bool, what: &str, text: &str) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(format!("{what}:\n{text}").into()) }
}

fn kernels_become_ptx(bench: &Bench) -> Result<(), Failed> {
    let root = bench.make("here", KERNELS)?;
    for arch in Arch::ALL {
        let Built { path, text, head, entries, not_early } = bench.build(&root, arch)?;
        expect(std::fs::read_to_string(&path)? == text, "the file has another text", &text)?;
        expect(Head::of(&text)? == head && head.arch == arch, "another head", &text)?;
        expect(head.sources == source_hash(&root)?, "another hash in the head", &text)?;
        expect(
            !head.waits && not_early.is_some_and(|why| why.ends_with(" before it waits")),
            "kernels that wait",
            &text,
        )?;
        expect(text.contains(&format!(".target {arch}")), "another target", &text)?;
        expect(entries.keys().eq(["pick", "scale"]), "other entries", &text)?;
        expect(!text.contains("__ferrolayer_kernel"), "a static is left", &text)?;
        let directives = ")\n.reqntid 256, 1, 1\n.minnctapersm 4\n.reqnctapercluster 2, 1, 1\n{";
        expect(text.contains(directives), "no directives", &text)?;
        expect(text.contains(".param .align 64 .b8 scale_param_2[128]"), "the tensor map is not aligned", &text)?;
        expect(text.contains("stage") && text.contains("C4core9panicking"), "other functions than expected", &text)?;
        let somewhere = bench.folder.path().to_string_lossy().into_owned();
        expect(!text.contains(&somewhere) && !text.contains("/rustlib/"), "a path of this machine", &text)?;

        let copy = bench.make("somewhere/else", KERNELS)?;
        let built = bench.build(&copy, arch)?;
        expect(built.text == text, "another text from another folder", &built.text)?;
    }
    Ok(())
}

/// A file of a project elsewhere, which depends on `cuda_std` by a path.
fn a_file(bench: &Bench) -> Result<(), Failed> {
    let cuda_std = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("cuda_std");
    let mut first = None;
    for place in ["file", "another/place"] {
        let root = bench.make(place, "")?;
        let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
        let dependency = format!("package = \"ferrolayer-cuda-std\", path = {:?}", cuda_std.display().to_string());
        std::fs::write(root.join("Cargo.toml"), format!("{manifest}[dependencies]\ncuda_std = {{ {dependency} }}\n"))?;
        let file = root.join("src/my-op.rs");
        std::fs::write(&file, format!("use std::fs;\n{FILE}\nfn main() {{ {place:?}; }}\n"))?;
        let Built { text, head, entries, .. } = bench.build(&file, Arch::Sm80)?;
        expect(entries.keys().eq(["twice_f32", "twice_f16"].iter().rev()), "other entries", &text)?;
        expect(head.sources == source_hash(&file)?, "another hash in the head", &text)?;
        expect(text.contains(".reqntid 64, 1, 1"), "no directives", &text)?;
        let somewhere = bench.folder.path().to_string_lossy().into_owned();
        expect(!text.contains(&somewhere) && !text.contains("/cuda/"), "a path of this machine", &text)?;
        match &first {
            None => first = Some(text),
            Some(first) => expect(*first == text, "another text from another folder", &text)?,
        }
    }
    Ok(())
}

fn refusals(bench: &Bench) -> Result<(), Failed> {
    let root = bench.make("unrolled", &UNROLLED.replace("GIVEN", "0"))?;
    match bench.build(&root, Arch::Sm80) {
        Err(BuildError::CopiedBarriers { kernel, found: 8, counted: 1, .. }) if kernel == "unrolled" => {}
        other => return Err(format!("eight barriers of one: {other:?}").into()),
    }
    expect(!root.join("sm_80.ptx").exists(), "refused PTX was written", "")?;
    let root = bench.make("given", &UNROLLED.replace("GIVEN", "1"))?;
    expect(bench.build(&root, Arch::Sm80)?.entries["unrolled"].barriers == Some(8), "barriers given", "")?;
    match bench.build(&bench.make("extern", EXTERN)?, Arch::Sm80) {
        Err(BuildError::UnresolvedExterns(names)) => expect(names == ["not_for_the_gpu"], "names", &names.join(" "))?,
        other => return Err(format!("an extern: {other:?}").into()),
    }
    match bench.build(&bench.make("wrong", "fn wrong() -> u32 { \"text\" }")?, Arch::Sm80) {
        Err(BuildError::Compile { package, .. }) => expect(package == "fixture", "another package", &package)?,
        other => return Err(format!("wrong code: {other:?}").into()),
    }
    Ok(())
}
