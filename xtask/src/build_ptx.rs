//! `cargo xtask build-ptx`: the kernels as PTX, built or checked.

use std::path::Path;

use cuda_builder::{Arch, Built, Compiler, CudaBuilder, Head, source_hash};

use crate::error::{Error, Result};
use crate::workspace::{Ptx, committed, lock_example, root, shown, target_dir};
use crate::{packed, ptxas};

#[derive(clap::Args)]
pub struct Options {
    /// Build nothing: fail if the committed PTX is not what the sources give
    #[arg(long)]
    check: bool,
    /// Assemble every file with ptxas for its targets, show what each kernel takes, fail on spills
    #[arg(long)]
    ptxas: bool,
}

pub fn run(options: &Options) -> Result<()> {
    lock_example()?;
    if options.check {
        check()?;
    } else {
        build()?;
    }
    if options.ptxas { ptxas::run() } else { Ok(()) }
}

fn build() -> Result<()> {
    let compiler = Compiler::find(&root()).map_err(cuda_builder::BuildError::from)?;
    let all = committed();
    let built = for_each(&all, |ptx| {
        let Ptx { source, arch, path } = ptx;
        let built = CudaBuilder::new(source).arch(*arch).compiler(compiler.clone()).copy_to(ptx.text_path()).build()?;
        if packed::is_packed(path) {
            packed::write(path, &built.text)?;
        }
        Ok(built)
    });
    for (ptx, built) in all.iter().zip(built) {
        let built = built?;
        say_built(&ptx.path, &built);
        if ptx.arch == Arch::Sm90a
            && let Some(why) = built.not_early
        {
            return Err(Error::Early(shown(&ptx.path), why));
        }
    }
    Ok(())
}

/// All at once: most of a build is one unit, which keeps one core busy.
fn for_each<T: Send>(all: &[Ptx], work: impl Fn(&Ptx) -> Result<T> + Sync) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = all.iter().map(|ptx| scope.spawn(move || work(ptx))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn say_built(path: &Path, built: &Built) {
    let (path, kernels) = (shown(path), built.entries.len());
    println!("{path}: {kernels} kernels, {} KiB, by {}", built.text.len().div_ceil(1024), built.head.compiler);
}

fn check() -> Result<()> {
    let compilers = Compiler::find_all(&root());
    let mut stale = Vec::new();
    let compilers = compilers.as_deref().unwrap_or_default();
    let all = committed();
    let checked = for_each(&all, |ptx| check_one(ptx, &source_hash(&ptx.source)?, compilers));
    for (Ptx { path, .. }, checked) in all.iter().zip(checked) {
        match checked {
            Ok(checked) => println!("{}: {checked}", shown(path)),
            Err(Error::Stale(why)) => stale.extend(why.into_iter().map(|why| format!("{}: {why}", shown(path)))),
            Err(error) => return Err(error),
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    stale.push("Build it again with: cargo xtask build-ptx".to_owned());
    Err(Error::Stale(stale))
}

/// What was found to be right, in words.
fn check_one(ptx: &Ptx, sources: &str, compilers: &[Compiler]) -> Result<String> {
    let Ptx { source, arch, path } = ptx;
    let committed = packed::read(path)?;
    let head = Head::of(&committed).map_err(|error| Error::Stale(vec![error.to_string()]))?;
    compare_heads(&head, *arch, sources)?;
    let Some(compiler) = compilers.iter().find(|compiler| compiler.version() == head.compiler) else {
        return Ok(format!(
            "its hash is that of the sources; its bytes were not compared, for there is no {} here that can build PTX",
            head.compiler
        ));
    };
    let copy = target_dir().join("cuda-builder/check").join(ptx.text_path().file_name().unwrap_or_default());
    let built = CudaBuilder::new(source).arch(*arch).compiler(compiler.clone()).copy_to(copy).build()?;
    match first_difference(&committed, &built.text) {
        None => Ok(format!("byte for byte what {} makes of the sources", head.compiler)),
        Some(line) => Err(Error::Stale(vec![format!(
            "line {line} is not what {} makes of the sources (that is in {})",
            head.compiler,
            shown(&built.path)
        )])),
    }
}

fn compare_heads(head: &Head, arch: Arch, sources: &str) -> Result<()> {
    if head.arch != arch {
        return Err(Error::Stale(vec![format!("its head says {}, expected {arch}", head.arch)]));
    }
    if arch == Arch::Sm90a && !head.waits {
        return Err(Error::Stale(vec![
            "its kernels do not all wait for the grid before them by themselves".to_owned(),
        ]));
    }
    if head.sources != sources {
        return Err(Error::Stale(vec![format!(
            "it was built from other sources: their hash was {}, now it is {sources}",
            head.sources
        )]));
    }
    Ok(())
}

/// The first line, counted from 1, in which two texts differ.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    if a == b {
        return None;
    }
    let (a, b) = (a.split('\n'), b.split('\n'));
    let same = a.zip(b).take_while(|(a, b)| a == b).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_with_another_hash_or_architecture_is_stale() {
        let head = Head { arch: Arch::Sm80, waits: false, sources: "a".repeat(64), compiler: "rustc 1.96.0".into() };
        compare_heads(&head, Arch::Sm80, &"a".repeat(64)).unwrap();
        let text = compare_heads(&head, Arch::Sm80, &"b".repeat(64)).unwrap_err().to_string();
        assert!(text.contains("other sources"), "{text}");
        let text = compare_heads(&head, Arch::Sm90a, &"a".repeat(64)).unwrap_err().to_string();
        assert_eq!(text, "its head says sm_80, expected sm_90a");
        // Where none is launched early, each launch takes a microsecond more.
        let head = Head { arch: Arch::Sm90a, ..head };
        let text = compare_heads(&head, Arch::Sm90a, &"a".repeat(64)).unwrap_err().to_string();
        assert_eq!(text, "its kernels do not all wait for the grid before them by themselves");
        compare_heads(&Head { waits: true, ..head }, Arch::Sm90a, &"a".repeat(64)).unwrap();
    }

    #[test]
    fn without_the_compiler_the_hash_alone_is_compared_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ptx");
        let head = Head { arch: Arch::Sm80, waits: false, sources: "a".repeat(64), compiler: "rustc 1.2.3 (x)".into() };
        std::fs::write(&path, format!("{head}\n.version 7.0\n")).unwrap();
        let ptx = Ptx { source: folder.path().to_owned(), arch: Arch::Sm80, path };
        let said = check_one(&ptx, &head.sources, &[]).unwrap();
        assert!(said.contains("its bytes were not compared, for there is no rustc 1.2.3 (x) here"), "{said}");
    }

    #[test]
    fn the_first_line_that_differs_is_found() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
        assert_eq!(first_difference("a\n", "a"), Some(2));
    }
}
