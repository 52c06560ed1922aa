//! Reading PTX text as far as it is changed and checked here: its top-level items, and the barriers and calls in them.
//!
//! Positions are bytes of the text, so that what is not changed stays as the compiler wrote it.

pub mod checks;
pub mod directives;
pub mod names;

use std::ops::Range;

use crate::error::BuildError;

/// What an item declares or defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.entry`: what a launch starts.
    Entry,
    /// `.func`
    Function,
    /// A variable in the given state space, such as `.global`.
    Variable(Space),
}

/// Where a variable lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Global,
    Const,
    Shared,
    Local,
}

/// One top-level item.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    pub kind: Kind,
    pub name: &'a str,
    /// Declared here, defined elsewhere.
    pub external: bool,
    /// From its first directive to its end, `;` or `}` included.
    pub range: Range<usize>,
    /// The parameter list of an entry or a function, without its parentheses.
    pub parameters: Option<Range<usize>>,
    /// Between the braces of an entry or a function that has a body.
    pub body: Option<Range<usize>>,
    /// What stands after `=` in a variable.
    pub initializer: Option<Range<usize>>,
}

/// The items of a PTX text, in order.
///
/// # Errors
/// [`BuildError::Syntax`] for unbalanced brackets and for items without a name.
pub fn items(text: &str) -> Result<Vec<Item<'_>>, BuildError> {
    let clean = blank_comments(text);
    let mut items = Vec::new();
    let mut at = 0;
    while let Some(start) = clean[at..].find(|c: char| !c.is_whitespace()).map(|skipped| at + skipped) {
        let rest = &clean[start..];
        // These end with their line; all else with `;` or `}`.
        if [".version", ".target", ".address_size", ".file", ".loc"].iter().any(|word| rest.starts_with(word)) {
            at = start + rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let end = end_of_item(&clean, start)?;
        at = end;
        if let Some(item) = item(text, &clean, start..end)? {
            items.push(item);
        }
    }
    Ok(items)
}

/// The text with every comment and every quoted string's content replaced by as many spaces.
pub fn blank_comments(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['/', '"']) {
        let (before, from) = rest.split_at(start);
        clean.push_str(before);
        // How much of it stays, and where it ends: behind a comment, before a string's closing quote.
        let or_all = |end: Option<usize>| end.unwrap_or(from.len());
        let (kept, end) = if from.starts_with("//") {
            (0, or_all(from.find('\n')))
        } else if let Some(comment) = from.strip_prefix("/*") {
            (0, or_all(comment.find("*/").map(|end| end + 4)))
        } else if let Some(string) = from.strip_prefix('"') {
            (1, or_all(string.find('"').map(|end| end + 1)))
        } else {
            (1, 1)
        };
        clean.push_str(&from[..kept]);
        clean.extend(from[kept..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        rest = &from[end..];
        if from.starts_with('"') && rest.starts_with('"') {
            // The closing quote, which would else open another string.
            clean.push('"');
            rest = &rest[1..];
        }
    }
    clean.push_str(rest);
    clean
}

fn is_code(clean: &str, range: &Range<usize>) -> bool {
    words(&clean[range.clone()]).take_while(|word| *word != "=").any(|word| matches!(word, ".entry" | ".func"))
}

fn end_of_item(clean: &str, start: usize) -> Result<usize, BuildError> {
    let mut at = start;
    while let Some(found) = clean[at..].find([';', '{', '}']).map(|skipped| at + skipped) {
        match clean.as_bytes()[found] {
            b';' => return Ok(found + 1),
            b'{' => {
                let close = matching(clean, found)?;
                let header = start..found;
                if is_code(clean, &header) || clean[header].starts_with(".section") {
                    return Ok(close + 1);
                }
                at = close + 1;
            }
            _ => return Err(BuildError::Syntax { at: found, why: "a `}` without its `{`" }),
        }
    }
    Err(BuildError::Syntax { at: start, why: "an item that ends with `;` or a body" })
}

/// The bracket that closes the one at `open`.
fn matching(clean: &str, open: usize) -> Result<usize, BuildError> {
    let opening = clean.as_bytes()[open];
    let closing = if opening == b'{' { b'}' } else { b')' };
    let mut depth = 0usize;
    for (offset, byte) in clean.as_bytes()[open..].iter().enumerate() {
        if *byte == opening {
            depth += 1;
        } else if *byte == closing {
            depth -= 1;
            if depth == 0 {
                return Ok(open + offset);
            }
        }
    }
    Err(BuildError::Syntax { at: open, why: "the bracket that closes this one" })
}

fn item<'a>(text: &'a str, clean: &str, range: Range<usize>) -> Result<Option<Item<'a>>, BuildError> {
    let item = &clean[range.clone()];
    let external = words(item).take_while(|word| *word != "=").any(|word| word == ".extern");
    if is_code(clean, &range) {
        return code(text, clean, range, external).map(Some);
    }
    let declaration_end = item.find('=').unwrap_or(item.len() - 1);
    let declaration = &item[..declaration_end];
    let Some(space) = words(declaration).find_map(|word| match word {
        ".global" => Some(Space::Global),
        ".const" => Some(Space::Const),
        ".shared" => Some(Space::Shared),
        ".local" => Some(Space::Local),
        _ => None,
    }) else {
        return Ok(None);
    };
    // The name is what stands before the array's brackets, or last.
    let named = declaration.split('[').next().unwrap_or(declaration).trim_end();
    let name = named.rsplit(|c: char| !is_name(c)).next().unwrap_or_default();
    if name.is_empty() {
        return Err(BuildError::Syntax { at: range.start, why: "a variable's name" });
    }
    let name_start = range.start + named.len() - name.len();
    let initializer = item.contains('=').then(|| range.start + declaration_end + 1..range.end - 1);
    Ok(Some(Item {
        kind: Kind::Variable(space),
        name: &text[name_start..name_start + name.len()],
        external,
        range,
        parameters: None,
        body: None,
        initializer,
    }))
}

fn code<'a>(text: &'a str, clean: &str, range: Range<usize>, external: bool) -> Result<Item<'a>, BuildError> {
    let item = &clean[range.clone()];
    let (kind, keyword) = match (item.find(".entry"), item.find(".func")) {
        (Some(at), None) => (Kind::Entry, at + ".entry".len()),
        (None, Some(at)) => (Kind::Function, at + ".func".len()),
        (Some(entry), Some(func)) if entry < func => (Kind::Entry, entry + ".entry".len()),
        (_, Some(func)) => (Kind::Function, func + ".func".len()),
        (None, None) => return Err(BuildError::Syntax { at: range.start, why: "`.entry` or `.func`" }),
    };
    let skip_space = |at: usize| at + clean[at..].len() - clean[at..].trim_start().len();
    let mut at = skip_space(range.start + keyword);
    if clean[at..].starts_with('(') {
        // What a function returns.
        at = skip_space(matching(clean, at)? + 1);
    }
    let length = clean[at..].find(|c: char| !is_name(c)).unwrap_or(clean.len() - at);
    if length == 0 {
        return Err(BuildError::Syntax { at, why: "a function's name" });
    }
    let name = &text[at..at + length];
    at = skip_space(at + length);
    let mut parameters = None;
    if clean[at..].starts_with('(') {
        let close = matching(clean, at)?;
        parameters = Some(at + 1..close);
        at = close + 1;
    }
    let body = clean[at..range.end].find('{').map(|open| at + open + 1..range.end - 1);
    Ok(Item { kind, name, external, range, parameters, body, initializer: None })
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// Directives and names: runs of characters that belong to either.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(is_name(c) || c == '.' || c == '=')).filter(|word| !word.is_empty())
}

/// An instruction of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// `bar.sync`, with all its suffixes.
    pub opcode: &'a str,
    /// What follows it.
    pub operands: &'a str,
}

/// The instructions of a body in which comments are blanked: labels, predicates and declarations are left out.
pub fn instructions(clean: &str) -> impl Iterator<Item = Instruction<'_>> {
    clean.split([';', '{', '}', '\n']).filter_map(|statement| {
        let mut statement = statement.trim();
        while let Some((label, rest)) = statement.split_once(':') {
            if label.is_empty() || !label.chars().all(is_name) {
                break;
            }
            statement = rest.trim_start();
        }
        if statement.starts_with('@') {
            statement = statement.split_once(char::is_whitespace)?.1.trim_start();
        }
        let (opcode, operands) = statement.split_once(char::is_whitespace).unwrap_or((statement, ""));
        let instruction = opcode.starts_with(|c: char| c.is_ascii_lowercase());
        instruction.then(|| Instruction { opcode, operands: operands.trim() })
    })
}

#[cfg(test)]
mod tests;
