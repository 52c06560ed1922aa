//! Barriers of a kernel's source, to compare with those of its PTX.
//!
//! A compiler must not copy a barrier into a divergent branch, where the threads of a block wait for each other at
//! different places for ever; some do (see [`crate`]). More barriers in the PTX than in the source shows it.
//!
//! # What counts
//! The sources are read as tokens, so that the bodies of macros count like any other code.
//! * A call of `sync_threads`, or one of its kin, counts 1. So does a call of a function declared `extern` whose
//!   `link_name` is an LLVM barrier, and a barrier instruction in a string (inline assembly).
//! * A call of a function of the crate, or of `cuda_std`, counts what that function counts. It is looked for in the same
//!   file first, then by the module or type it is qualified with, then everywhere: a method among functions of types and
//!   traits, what is called by its name alone among the others. If several are left, as with methods, the one with the most
//!   barriers counts.
//! * A macro call counts what is in its parentheses, and the arm of its definition with the most barriers.
//! * A loop's body counts once. Loops that the compiler unrolls, and macros that repeat their argument, give more: then
//!   the kernel says how many with `#[kernel(barriers = ..)]`, which is taken instead of counting.
//! * An entry whose own name is not found is an instance of a generic kernel, whose name it begins with.
//! * What is only for the host (`#[cfg(not(target_arch = "nvptx64"))]`) does not count.
//! * An entry that a macro defines, with a name that is one of the macro's arguments, counts as the macro's function
//!   whose name is a variable; if that calls a variable, as the function that the macro's call gives for it.

mod tokens;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use self::tokens::{Call, File, Function};
use crate::error::BuildError;

/// Calls that are one barrier each.
const BARRIERS: [&str; 5] =
    ["sync_threads", "sync_threads_count", "sync_threads_and", "sync_threads_or", "_syncthreads"];

/// The sources of a crate of kernels and of the crates it may call barriers in.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<File>,
    /// Places of functions, by name.
    functions: HashMap<String, Vec<(usize, usize)>>,
    /// Places of macros, by name.
    macros: HashMap<String, Vec<(usize, usize)>>,
    /// Functions from which a barrier may be reached, going by names alone. Others count 0, and nobody goes through what
    /// they call: methods that many types have would make the ways through them countless.
    reaching: HashSet<(usize, usize)>,
}

/// The way through an entry's calls.
#[derive(Default)]
struct Walk {
    /// The functions that are gone through now: a call of one of them counts 0.
    callers: Vec<(usize, usize)>,
    /// What functions counted, with what a macro call gave for their variables: each is gone through once. Of functions that
    /// call each other one may count too little here, and then the PTX is refused; never too much.
    known: HashMap<((usize, usize), Vec<String>), u32>,
}

/// What an entry's source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its barriers.
    pub barriers: u32,
    /// File and line.
    pub place: String,
}

impl Sources {
    /// Reads the `src` folders of these crates.
    ///
    /// # Errors
    /// If a file cannot be read, or is not Rust.
    pub fn read(crates: &[PathBuf]) -> Result<Self, BuildError> {
        let mut sources = Self::default();
        for folder in crates {
            let src = folder.join("src");
            for path in crate::sources::files_under(&src)? {
                if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).map_err(BuildError::read(&path))?;
                    sources.add(&path, path.strip_prefix(&src).unwrap_or(&path), &text)?;
                }
            }
        }
        sources.drop_host_files();
        sources.index();
        Ok(sources)
    }

    fn add(&mut self, path: &Path, inside: &Path, text: &str) -> Result<(), BuildError> {
        let file = File::parse(inside, text)
            .map_err(|error| BuildError::Source { path: path.to_owned(), why: error.to_string() })?;
        self.files.push(File { shown: path.display().to_string(), ..file });
        Ok(())
    }

    /// Leaves out files of modules that are declared for the host only.
    fn drop_host_files(&mut self) {
        let host: Vec<String> = self.files.iter().flat_map(|file| file.host_modules.iter().cloned()).collect();
        self.files.retain(|file| !file.module.iter().any(|module| host.contains(module)));
    }

    fn index(&mut self) {
        for (f, file) in self.files.iter().enumerate() {
            for (i, function) in file.functions.iter().enumerate() {
                self.functions.entry(function.name.clone()).or_default().push((f, i));
            }
            for (i, definition) in file.macros.iter().enumerate() {
                self.macros.entry(definition.name.clone()).or_default().push((f, i));
            }
        }
        self.reaching = self.find_reaching();
    }

    fn find_reaching(&self) -> HashSet<(usize, usize)> {
        let mut reaching = HashSet::new();
        // Names of free functions, of those of types and traits, and of macros, that reach one.
        let mut names: [HashSet<&str>; 3] = [BARRIERS.into(), HashSet::new(), HashSet::new()];
        const MACROS: usize = 2;
        loop {
            let before = reaching.len();
            for (f, file) in self.files.iter().enumerate() {
                for (i, function) in file.functions.iter().enumerate() {
                    let reaches = |call: &Call| {
                        // What a macro's variable stands for is not known here.
                        let among = |sort: usize| names[sort].contains(call.name.as_str());
                        call.name.starts_with('$')
                            || if call.is_macro {
                                among(MACROS)
                            } else {
                                (0..2).any(|sort| call.may_be(sort == 1) && among(sort))
                            }
                    };
                    if (function.instructions > 0 || function.calls.iter().any(reaches)) && reaching.insert((f, i)) {
                        names[usize::from(function.of_type.is_some())].insert(&function.name);
                        let arms_of = file.macros.iter().filter(|definition| definition.arms.contains(&i));
                        names[MACROS].extend(arms_of.map(|definition| definition.name.as_str()));
                    }
                }
            }
            if reaching.len() == before {
                return reaching;
            }
        }
    }

    /// The barriers in the source of each entry; entries whose source is not found are left out.
    pub fn count(&self, entries: impl IntoIterator<Item = impl AsRef<str>>) -> BTreeMap<String, Counted> {
        let entries = entries.into_iter();
        entries.filter_map(|entry| Some((entry.as_ref().to_owned(), self.count_entry(entry.as_ref())?))).collect()
    }

    /// An instance of a generic kernel is found by the kernel's name, which its own begins with.
    fn count_entry(&self, entry: &str) -> Option<Counted> {
        let shorter = entry.rmatch_indices('_').map(|(end, _)| &entry[..end]);
        std::iter::once(entry).chain(shorter).find_map(|name| self.count_named(name))
    }

    fn count_named(&self, entry: &str) -> Option<Counted> {
        let direct = self.functions.get(entry).into_iter().flatten().map(|&place| {
            let function = self.function(place);
            (self.of_function(place, &[], &mut Walk::default()), place.0, function.line)
        });
        // A macro call outside functions that names the entry, and what its macro defines under variable names.
        let made = self.files.iter().enumerate().flat_map(|(f, file)| {
            let calls = file.item_macros.iter().filter(|call| call.words.iter().any(|word| word == entry));
            calls.flat_map(move |call| {
                let definitions = self.macros.get(&call.name).into_iter().flatten();
                definitions.flat_map(move |&(definition_file, definition)| {
                    let functions = self.files[definition_file].functions.iter().enumerate();
                    let own = functions.filter(move |(_, function)| {
                        function.macro_index == Some(definition) && function.name.starts_with('$')
                    });
                    own.map(move |(i, _)| {
                        let barriers = self.of_function((definition_file, i), &call.words, &mut Walk::default());
                        (barriers, f, call.line)
                    })
                })
            })
        });
        let (barriers, file, line) = direct.chain(made).max_by_key(|&(barriers, ..)| barriers)?;
        Some(Counted { barriers, place: format!("{}:{line}", self.files[file].shown) })
    }

    fn function(&self, (file, index): (usize, usize)) -> &Function {
        &self.files[file].functions[index]
    }

    /// The barriers of a function's body. `words` are what a macro call gives for the variables in it.
    fn of_function(&self, place: (usize, usize), words: &[String], walk: &mut Walk) -> u32 {
        if !self.reaching.contains(&place) || walk.callers.contains(&place) {
            return 0;
        }
        let known = (place, words.to_vec());
        if let Some(&barriers) = walk.known.get(&known) {
            return barriers;
        }
        walk.callers.push(place);
        let function = self.function(place);
        let calls = function.calls.iter();
        let calls = calls.fold(0, |sum: u32, call| sum.saturating_add(self.of_call(call, place, words, walk)));
        walk.callers.pop();
        walk.known.insert(known, function.instructions.saturating_add(calls));
        function.instructions.saturating_add(calls)
    }

    fn of_call(&self, call: &Call, (file, index): (usize, usize), words: &[String], walk: &mut Walk) -> u32 {
        if call.is_macro {
            let definitions = self.macros.get(&call.name).into_iter().flatten();
            return definitions.map(|&place| self.of_macro(place, words, walk)).max().unwrap_or(0);
        }
        if BARRIERS.contains(&call.name.as_str()) {
            return 1;
        }
        if call.name.starts_with('$') {
            // Which of the words stands for the variable is not known: the one with the most barriers.
            let named = words.iter().flat_map(|word| self.functions.get(word).into_iter().flatten());
            return named.map(|&place| self.of_function(place, &[], walk)).max().unwrap_or(0);
        }
        let Some(all) = self.functions.get(&call.name) else { return 0 };
        let own_type = self.function((file, index)).of_type.as_deref();
        let candidates = self.resolve(call, all, file, own_type);
        candidates.into_iter().map(|place| self.of_function(place, words, walk)).max().unwrap_or(0)
    }

    /// The functions that a call may mean: those of the first rule that finds any.
    fn resolve(&self, call: &Call, all: &[(usize, usize)], file: usize, own_type: Option<&str>) -> Vec<(usize, usize)> {
        let filtered = |rule: &dyn Fn((usize, usize)) -> bool| -> Vec<_> {
            let may_be = |&place: &(usize, usize)| call.may_be(self.function(place).of_type.is_some());
            all.iter().copied().filter(may_be).filter(|&place| rule(place)).collect()
        };
        let qualifier = match call.qualifier.as_deref() {
            Some("Self") => own_type,
            Some("self" | "super" | "crate") | None => None,
            qualifier => qualifier,
        };
        let qualified = |place: (usize, usize)| {
            let function = self.function(place);
            let module = self.files[place.0].module.last().map(String::as_str);
            qualifier.is_some_and(|name| {
                function.of_type.as_deref() == Some(name) || function.module.as_deref().or(module) == Some(name)
            })
        };
        let rules: [&dyn Fn((usize, usize)) -> bool; 4] = [
            &|place| place.0 == file && qualified(place),
            &qualified,
            // A method may be any type's, wherever that is.
            &|place| !call.is_method && qualifier.is_none() && place.0 == file,
            &|_| true,
        ];
        rules.into_iter().map(filtered).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The arm of a macro's definition that has the most barriers.
    fn of_macro(&self, (file, index): (usize, usize), words: &[String], walk: &mut Walk) -> u32 {
        let definition = &self.files[file].macros[index];
        definition.arms.iter().map(|&arm| self.of_function((file, arm), words, walk)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
