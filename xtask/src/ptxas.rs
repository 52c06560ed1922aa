//! Assembling PTX with `ptxas`, and what each kernel takes.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_builder::Arch;

use crate::error::{Error, Result};
use crate::workspace::{Ptx, committed, kernels, shown, target_dir};
use crate::{packed, spills, tools};

/// The GPUs that a file is for: assembled for each that this ptxas knows, and at least for the first.
const fn targets(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::Sm80 => &["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"],
        Arch::Sm90a => &["sm_90a"],
    }
}

/// What a kernel takes of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub kernel: String,
    pub target: String,
    pub registers: u64,
    /// Bytes of shared memory, without what a launch adds.
    pub shared: u64,
    /// Bytes of spills, stores and loads together, in functions that it calls too.
    pub spills: u64,
    /// Bytes of local memory of a thread.
    pub stack: u64,
}

/// Assembles all files for all their targets, prints a table, and fails on spills that are not listed.
///
/// # Errors
/// If there is no ptxas, if it refuses a file or makes tensor cores wait after each product, or if a kernel spills.
pub fn run() -> Result<()> {
    let tool = tools::ptxas().ok_or_else(|| Error::NoPtxas(tools::folder()))?;
    let known = known_targets(&tool)?;
    let all = committed();
    let jobs: Vec<(&Ptx, &str)> = all
        .iter()
        .flat_map(|ptx| targets(ptx.arch).iter().map(move |target| (ptx, *target)))
        .filter(|(ptx, target)| known.contains(*target) || *target == targets(ptx.arch)[0])
        .collect();
    for ptx in all.iter().filter(|ptx| packed::is_packed(&ptx.path)) {
        let (path, text) = (ptx.text_path(), packed::read(&ptx.path)?);
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(Error::io("make the folder of", &path))?;
        std::fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    println!("ptxas {}", tools::version(&tool).unwrap_or_else(|| "of unknown version".into()));
    let mut used = Vec::new();
    for (job, result) in jobs.iter().zip(assemble_all(&tool, &jobs)) {
        let Assembled { usages, warnings } = result?;
        print!("\n{}", table(&format!("{} for {}", shown(&job.0.path), job.1), &usages));
        for warning in warnings {
            println!("{warning}");
        }
        used.extend(usages);
    }
    let wrong = spills::unknown(&spills::read(&kernels().join("spills.toml"))?, &used);
    if wrong.is_empty() { Ok(()) } else { Err(Error::Spills(wrong)) }
}

/// What ptxas said of one file.
struct Assembled {
    usages: Vec<Usage>,
    warnings: Vec<String>,
}

/// One result for each job, in order; as many jobs at once as there are cores.
fn assemble_all(tool: &Path, jobs: &[(&Ptx, &str)]) -> Vec<Result<Assembled>> {
    let results: Vec<Mutex<Option<Result<Assembled>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let taken = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(taken) else { break };
                    let result = assemble(tool, &job.0.text_path(), job.1);
                    *results[taken].lock().expect("no worker panics while it holds the lock") = Some(result);
                }
            });
        }
    });
    let results = results.into_iter().map(|result| result.into_inner().expect("no worker panics"));
    results.map(|result| result.expect("every job was taken")).collect()
}

fn assemble(tool: &Path, file: &Path, target: &str) -> Result<Assembled> {
    // ptxas writes its output through temporary files: not to /dev/null.
    let cubin = target_dir().join(format!("{}.{target}.cubin", file.file_stem().unwrap_or_default().to_string_lossy()));
    let mut ptxas = Command::new(tool);
    ptxas.arg("--verbose").arg(format!("--gpu-name={target}")).arg("--output-file").arg(&cubin).arg(file);
    let output = ptxas.output().map_err(|source| Error::Start { command: tool.display().to_string(), source })?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if !output.status.success() {
        return Err(Error::Ptxas { file: shown(file), target: target.to_owned(), said });
    }
    std::fs::remove_file(&cubin).map_err(Error::io("remove", &cubin))?;
    let serialised = serialised(&said);
    if !serialised.is_empty() {
        return Err(Error::Serialised { file: shown(file), target: target.to_owned(), said: serialised });
    }
    let warnings = said.lines().filter(|line| line.contains("warning")).map(str::to_owned).collect();
    Ok(Assembled { usages: usages(&said, target), warnings })
}

/// What ptxas says of `wgmma` that it cannot leave asynchronous: remarks numbered C75.., which are no warnings to it.
fn serialised(said: &str) -> Vec<String> {
    said.lines().filter(|line| line.contains("(C75")).map(str::to_owned).collect()
}

/// The GPUs that this ptxas assembles for, from its help.
fn known_targets(tool: &Path) -> Result<HashSet<String>> {
    let output = Command::new(tool).arg("--help").output();
    let output = output.map_err(|source| Error::Start { command: tool.display().to_string(), source })?;
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    Ok(words.filter(|word| word.starts_with("sm_")).map(str::to_owned).collect())
}

/// Reads what `ptxas --verbose` says: after each entry the functions that it calls, without a line of their own registers.
fn usages(said: &str, target: &str) -> Vec<Usage> {
    let mut usages = Vec::<Usage>::new();
    let mut function = "";
    for line in said.lines() {
        let line = line.trim_start_matches("ptxas info").trim_start_matches([' ', ':']);
        if let Some(rest) = line.strip_prefix("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            usages.push(Usage { kernel, target: target.to_owned(), ..Usage::default() });
        } else if let Some(name) = line.strip_prefix("Function properties for ") {
            function = name.trim();
        }
        let Some(usage) = usages.last_mut() else { continue };
        for part in line.split(',').map(str::trim) {
            let mut words = part.trim_start_matches("Used ").splitn(2, ' ');
            let (Some(Ok(number)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else { continue };
            match what {
                "registers" => usage.registers = number,
                "bytes smem" => usage.shared = number,
                "bytes spill stores" | "bytes spill loads" => usage.spills += number,
                "bytes stack frame" if function == usage.kernel => usage.stack = usage.stack.max(number),
                "bytes cumulative stack size" => usage.stack = usage.stack.max(number),
                _ => {}
            }
        }
    }
    usages.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    usages
}

fn table(title: &str, usages: &[Usage]) -> String {
    let width = usages.iter().map(|usage| usage.kernel.len()).max().unwrap_or(0).max(title.len());
    let mut text = format!("{title:width$}  registers  shared  spills  stack\n");
    for Usage { kernel, registers, shared, spills, stack, .. } in usages {
        text += &format!("{kernel:width$}  {registers:9}  {shared:6}  {spills:6}  {stack:5}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem, 376 bytes cmem[0]
ptxas info    : Compile time = 30.782 ms
ptxas info    : Function properties for _RNvC1k6helper
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    128 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 160 bytes cumulative stack size
";

    #[test]
    fn what_ptxas_says_is_read() {
        let usage = |kernel: &str, registers, shared, spills, stack| Usage {
            kernel: kernel.into(),
            target: "sm_80".into(),
            registers,
            shared,
            spills,
            stack,
        };
        assert_eq!(usages(SAID, "sm_80"), [usage("first", 255, 0, 28, 160), usage("second", 10, 1024, 12, 0)]);
    }

    #[test]
    fn products_one_after_another_are_found() {
        let remark = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due \
                      to the presence of Extern calls in the function 'first'";
        assert_eq!(serialised(&format!("{SAID}{remark}\n{SAID}")), [remark]);
        assert!(serialised(SAID).is_empty());
    }

    #[test]
    fn the_table_has_a_row_for_each_kernel() {
        let text = table("a.ptx for sm_80", &usages(SAID, "sm_80"));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["a.ptx", "for", "sm_80", "registers", "shared", "spills", "stack"]);
        assert_eq!(rows[1], ["first", "255", "0", "28", "160"]);
        assert_eq!(rows[2], ["second", "10", "1024", "12", "0"]);
    }
}
