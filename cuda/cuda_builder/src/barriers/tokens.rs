//! Functions, macros and calls of a source file, read from its tokens.

use std::path::Path;
use std::str::FromStr;

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

use crate::ptx::checks::is_barrier;

/// A source file.
#[derive(Debug, Default)]
pub struct File {
    /// Its name in messages.
    pub shown: String,
    /// The modules it stands for, outermost first.
    pub module: Vec<String>,
    pub functions: Vec<Function>,
    pub macros: Vec<Macro>,
    /// Macro calls outside functions.
    pub item_macros: Vec<ItemMacro>,
    /// Modules that it declares for the host only.
    pub host_modules: Vec<String>,
}

/// A function, or an arm of a macro.
#[derive(Debug, Default)]
pub struct Function {
    /// With its `$` if it is a macro's variable; empty for an arm of a macro.
    pub name: String,
    pub line: usize,
    /// The inline module it is in, if any.
    pub module: Option<String>,
    /// The type whose `impl` it is in.
    pub of_type: Option<String>,
    /// The macro, of the same file, whose definition it is in.
    pub macro_index: Option<usize>,
    pub calls: Vec<Call>,
    /// Barrier instructions in strings, or 1 if it is itself one that LLVM provides.
    pub instructions: u32,
}

/// A call of a function, a method or a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// The last part of the path before the name.
    pub qualifier: Option<String>,
    /// Whether it is the end of a path, whose part before it may be no name: `Tile::<4>::new`.
    pub ends_path: bool,
    pub is_method: bool,
    pub is_macro: bool,
}

impl Call {
    /// Whether a function of a type or trait, or one of none, can be what is called.
    pub fn may_be(&self, of_type: bool) -> bool {
        self.ends_path || self.is_method == of_type
    }
}

/// A `macro_rules!`.
#[derive(Debug)]
pub struct Macro {
    pub name: String,
    /// Its arms, as functions of the same file.
    pub arms: Vec<usize>,
}

/// A macro call outside functions.
#[derive(Debug)]
pub struct ItemMacro {
    pub name: String,
    pub line: usize,
    /// All identifiers in its parentheses.
    pub words: Vec<String>,
}

/// Where the reader is.
#[derive(Clone, Default)]
struct Scope {
    module: Option<String>,
    of_type: Option<String>,
    macro_index: Option<usize>,
    /// The function whose body is read.
    function: Option<usize>,
}

impl File {
    /// Reads a file that lies at `inside` its crate's `src`.
    pub fn parse(inside: &Path, text: &str) -> Result<Self, LexError> {
        let mut module: Vec<String> =
            inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| last == "mod" || last == "lib") {
            module.pop();
        }
        let mut file = Self { module, ..Self::default() };
        file.walk(TokenStream::from_str(text)?, &Scope::default());
        Ok(file)
    }

    fn walk(&mut self, tokens: TokenStream, scope: &Scope) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut host_only = false;
        let mut link_name = None;
        while at < tokens.len() {
            if let Some(attribute) = attribute(&tokens[at..]) {
                host_only |= is_host_only(&attribute);
                link_name = literal_of("link_name", &attribute).or(link_name);
                // Only what it stands before: `#`, perhaps `!`, and the brackets.
                at += if is_punct(tokens.get(at + 1), '!') { 3 } else { 2 };
                continue;
            }
            let (next, item) = self.step(&tokens, at, scope, host_only, link_name.as_deref());
            if item {
                (host_only, link_name) = (false, None);
            }
            at = next;
        }
    }

    /// Reads what begins at `at`: where to go on, and whether it ended an item or a statement, with its attributes.
    fn step(
        &mut self,
        tokens: &[TokenTree],
        at: usize,
        scope: &Scope,
        host_only: bool,
        link_name: Option<&str>,
    ) -> (usize, bool) {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "fn" => {
                if let Some((name, after)) = name_at(tokens, at + 1) {
                    let line = word.span().start().line;
                    return (self.function(tokens, name, line, after, scope, host_only, link_name), true);
                }
            }
            TokenTree::Ident(word) if word == "mod" || word == "impl" || word == "trait" => {
                if let Some(open) = body(tokens, at + 1) {
                    let mut inner = Scope { function: None, ..scope.clone() };
                    if word == "mod" {
                        inner.module = name_at(tokens, at + 1).map(|(name, _)| name);
                    } else {
                        inner.of_type = type_of(&tokens[at + 1..open]);
                    }
                    if let (TokenTree::Group(group), false) = (&tokens[open], host_only) {
                        self.walk(group.stream(), &inner);
                    }
                    return (open + 1, true);
                }
                if let (true, true, Some((name, after))) = (host_only, word == "mod", name_at(tokens, at + 1)) {
                    self.host_modules.push(name);
                    return (after, false);
                }
            }
            TokenTree::Ident(word) if word == "macro_rules" && is_punct(tokens.get(at + 1), '!') => {
                if let (Some((name, after)), false) = (name_at(tokens, at + 2), host_only)
                    && let Some(TokenTree::Group(group)) = tokens.get(after)
                {
                    self.definition(name, group.stream(), scope);
                    return (after + 1, true);
                }
            }
            TokenTree::Ident(word) if !host_only => {
                self.call(tokens, at, word.to_string(), word.span().start().line, scope);
            }
            TokenTree::Literal(literal) => {
                if let Some(function) = scope.function {
                    self.functions[function].instructions += barrier_instructions(&literal.to_string());
                }
            }
            TokenTree::Group(group) => {
                if !host_only {
                    self.walk(group.stream(), scope);
                }
                return (at + 1, group.delimiter() == Delimiter::Brace);
            }
            TokenTree::Punct(punct) => return (at + 1, punct.as_char() == ';'),
            TokenTree::Ident(_) => {}
        }
        (at + 1, false)
    }

    /// Reads a function from behind its name; where to go on.
    #[allow(clippy::too_many_arguments)]
    fn function(
        &mut self,
        tokens: &[TokenTree],
        name: String,
        line: usize,
        after: usize,
        scope: &Scope,
        host_only: bool,
        link_name: Option<&str>,
    ) -> usize {
        let end = (after..tokens.len()).find(|&at| is_brace(&tokens[at]) || is_punct(tokens.get(at), ';'));
        let Some(end) = end else { return tokens.len() };
        if !host_only {
            let index = self.functions.len();
            self.functions.push(Function {
                name,
                line,
                module: scope.module.clone(),
                of_type: scope.of_type.clone(),
                macro_index: scope.macro_index,
                instructions: link_name.is_some_and(is_llvm_barrier).into(),
                ..Function::default()
            });
            if let TokenTree::Group(body) = &tokens[end] {
                self.walk(body.stream(), &Scope { function: Some(index), ..scope.clone() });
            }
        }
        end + 1
    }

    /// Reads a `macro_rules!`: each arm becomes a function without a name.
    fn definition(&mut self, name: String, tokens: TokenStream, scope: &Scope) {
        let macro_index = self.macros.len();
        self.macros.push(Macro { name, arms: Vec::new() });
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            let follows_arrow = at >= 2 && is_punct(tokens.get(at - 1), '>') && is_punct(tokens.get(at - 2), '=');
            if let (TokenTree::Group(arm), true) = (token, follows_arrow) {
                let index = self.functions.len();
                let line = arm.span_open().start().line;
                self.functions.push(Function { line, macro_index: Some(macro_index), ..Function::default() });
                self.macros[macro_index].arms.push(index);
                let inner = Scope { function: Some(index), macro_index: Some(macro_index), ..scope.clone() };
                self.walk(arm.stream(), &inner);
            }
        }
    }

    /// Notes the call that the word at `at` begins, if it begins one.
    fn call(&mut self, tokens: &[TokenTree], at: usize, word: String, line: usize, scope: &Scope) {
        let mut after = at + 1;
        let is_macro = is_punct(tokens.get(after), '!') && matches!(tokens.get(after + 1), Some(TokenTree::Group(_)));
        if is_macro {
            after += 1;
        } else if is_path_separator(tokens, after) && is_punct(tokens.get(after + 2), '<') {
            after = behind_angles(tokens, after + 2);
        }
        let Some(TokenTree::Group(group)) = tokens.get(after) else { return };
        if !is_macro && group.delimiter() != Delimiter::Parenthesis {
            return;
        }
        let before = |distance: usize| at.checked_sub(distance).and_then(|at| tokens.get(at));
        let name = if is_punct(before(1), '$') { format!("${word}") } else { word };
        match scope.function {
            None if is_macro => {
                let mut words = Vec::new();
                identifiers(group.stream(), &mut words);
                self.item_macros.push(ItemMacro { name, line, words });
            }
            None => {}
            Some(function) => {
                let qualifier = match (before(1), before(2), before(3)) {
                    (Some(second), Some(first), Some(TokenTree::Ident(qualifier)))
                        if is_punct(Some(first), ':') && is_punct(Some(second), ':') =>
                    {
                        Some(qualifier.to_string())
                    }
                    _ => None,
                };
                let ends_path = is_punct(before(1), ':') && is_punct(before(2), ':');
                let is_method = is_punct(before(1), '.');
                self.functions[function].calls.push(Call { name, qualifier, ends_path, is_method, is_macro });
            }
        }
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_brace(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

/// The name at `at`, with `$` if it is a macro's variable, and where it ends.
fn name_at(tokens: &[TokenTree], at: usize) -> Option<(String, usize)> {
    match (tokens.get(at)?, tokens.get(at + 1)) {
        (TokenTree::Ident(name), _) => Some((name.to_string(), at + 1)),
        (TokenTree::Punct(dollar), Some(TokenTree::Ident(name))) if dollar.as_char() == '$' => {
            Some((format!("${name}"), at + 2))
        }
        _ => None,
    }
}

/// The braces of an item that begins before `at`; none if it ends with `;` first.
fn body(tokens: &[TokenTree], at: usize) -> Option<usize> {
    let end = (at..tokens.len()).find(|&at| is_brace(&tokens[at]) || is_punct(tokens.get(at), ';'))?;
    is_brace(&tokens[end]).then_some(end)
}

/// The type of `impl<..> Trait for path::Type<..>`, or the trait's name: the last plain word before generics.
fn type_of(header: &[TokenTree]) -> Option<String> {
    let start = header.iter().position(|token| matches!(token, TokenTree::Ident(word) if word == "for"));
    let mut at = match start {
        Some(position) => position + 1,
        None if is_punct(header.first(), '<') => behind_angles(header, 0),
        None => 0,
    };
    let mut name = None;
    while let Some(token) = header.get(at) {
        match token {
            TokenTree::Ident(word) if word == "where" => break,
            TokenTree::Ident(word) => name = Some(word.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '<' => break,
            _ => {}
        }
        at += 1;
    }
    name
}

/// Behind the `>` that closes the `<` at `at`.
fn behind_angles(tokens: &[TokenTree], at: usize) -> usize {
    let mut depth = 0usize;
    for (offset, token) in tokens[at..].iter().enumerate() {
        let arrow = at + offset > 0 && is_punct(tokens.get(at + offset - 1), '-');
        if is_punct(Some(token), '<') {
            depth += 1;
        } else if is_punct(Some(token), '>') && !arrow {
            depth -= 1;
            if depth == 0 {
                return at + offset + 1;
            }
        }
    }
    tokens.len()
}

/// The content of `#[..]` or `#![..]` at the start of these tokens.
fn attribute(tokens: &[TokenTree]) -> Option<TokenStream> {
    if !is_punct(tokens.first(), '#') {
        return None;
    }
    let at = if is_punct(tokens.get(1), '!') { 2 } else { 1 };
    match tokens.get(at)? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => Some(group.stream()),
        _ => None,
    }
}

/// `cfg(not(target_arch = "nvptx64"))`, alone or as part of an `all(..)`, and `cfg(test)`.
fn is_host_only(attribute: &TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "cfg(test)" || (text.starts_with("cfg(") && text.contains("not(target_arch=\"nvptx64\")"))
}

/// The string of `name = ".."`, also inside `unsafe(..)`.
fn literal_of(name: &str, attribute: &TokenStream) -> Option<String> {
    let text: String = attribute.to_string().split_whitespace().collect();
    let from = text.strip_prefix(name)?.strip_prefix("=\"")?;
    Some(from.split('"').next().unwrap_or_default().to_owned())
}

fn is_llvm_barrier(link_name: &str) -> bool {
    link_name.starts_with("llvm.nvvm.barrier") && !link_name.contains("mbarrier")
}

/// How many barrier instructions the text of a string has.
fn barrier_instructions(literal: &str) -> u32 {
    let separated = literal.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
    separated.map(|word| u32::from(is_barrier(word))).sum()
}

fn identifiers(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => found.push(word.to_string()),
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
