//! What a PTX must be before anybody loads it.

use std::collections::{BTreeMap, HashMap};

use super::{Instruction, Item, Kind, Space, blank_comments, instructions, is_name, items};
use crate::error::BuildError;

/// Fails if the text declares something that it does not define.
///
/// `.extern .shared` is a block's dynamic shared memory, which the launch provides.
///
/// # Errors
/// [`BuildError::UnresolvedExterns`] with all of them.
pub fn no_unresolved_externs(text: &str) -> Result<(), BuildError> {
    let items = items(text)?;
    let mut unresolved: Vec<_> = items
        .iter()
        .filter(|item| item.external && item.kind != Kind::Variable(Space::Shared))
        .filter(|item| !items.iter().any(|other| !other.external && other.name == item.name))
        .map(|item| item.name.to_owned())
        .collect();
    unresolved.sort_unstable();
    unresolved.dedup();
    if unresolved.is_empty() { Ok(()) } else { Err(BuildError::UnresolvedExterns(unresolved)) }
}

/// Whether an instruction waits for other threads of the block or cluster, or tells them not to wait for it.
/// Barriers of a warp are none: they are often in branches that the whole warp takes.
pub fn is_barrier(opcode: &str) -> bool {
    let mut parts = opcode.split('.');
    match (parts.next(), parts.next()) {
        (Some("bar"), Some(kind)) => matches!(kind, "sync" | "red" | "arrive" | "cta"),
        (Some("barrier"), Some(kind)) => matches!(kind, "sync" | "red" | "arrive" | "cta" | "cluster"),
        _ => false,
    }
}

/// What keeps a file's kernels from being launched early, in words: an entry that does not wait for the grid before it
/// (`griddepcontrol.wait`), whatever way a thread takes, before it touches memory but its parameters and the block's own. `None`
/// where all do.
///
/// # Errors
/// [`BuildError::Syntax`] if the text cannot be read.
pub fn touches_before_waiting(text: &str) -> Result<Option<String>, BuildError> {
    let clean = blank_comments(text);
    let items = items(text)?;
    let mut entries = items.iter().filter(|item| item.kind == Kind::Entry && !item.external);
    Ok(entries.find_map(|item| {
        let touched = before_a_wait(item.body.clone().map_or("", |body| &clean[body])).err()?;
        Some(format!("{} has `{touched}` before it waits", item.name))
    }))
}

/// Whether all ways from a body's start come to a wait, past nothing but what may stand before it; else the first thing that may not.
fn before_a_wait(body: &str) -> Result<(), &str> {
    let (mut statements, mut labels) = (Vec::new(), HashMap::new());
    for mut statement in body.split([';', '{', '}', '\n']).map(str::trim) {
        while let Some((label, rest)) = statement.split_once(':').filter(|(label, _)| is_label(label)) {
            labels.insert(label, statements.len());
            statement = rest.trim_start();
        }
        if statement.starts_with(|c: char| c == '@' || c.is_ascii_lowercase()) {
            statements.push(statement);
        }
    }
    let mut seen = vec![false; statements.len()];
    let mut ways = vec![0];
    while let Some(mut at) = ways.pop() {
        loop {
            let Some(&statement) = statements.get(at) else { return Err("the end") };
            if std::mem::replace(&mut seen[at], true) {
                break;
            }
            let Some(Instruction { opcode, operands }) = instructions(statement).next() else { return Err(statement) };
            let always = !statement.starts_with('@');
            match opcode {
                "griddepcontrol.wait" if always => break,
                "bra" | "bra.uni" => {
                    let Some(&target) = labels.get(operands) else { return Err(statement) };
                    ways.push(target);
                    if always {
                        break;
                    }
                }
                _ if touches_nothing(opcode) || touches_own(opcode) => {}
                _ => return Err(statement),
            }
            at += 1;
        }
    }
    Ok(())
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name)
}

/// Of what stands before a wait: moves, arithmetic, conversions of addresses, and parameters.
fn touches_nothing(opcode: &str) -> bool {
    let (name, suffixes) = opcode.split_once('.').unwrap_or((opcode, ""));
    match name {
        "ld" => suffixes.split('.').next() == Some("param"),
        "mov" | "cvt" | "cvta" | "div" | "rem" | "add" | "sub" | "mul" | "mad" | "shl" | "shr" | "and" | "or"
        | "xor" | "not" | "setp" | "selp" | "min" | "max" | "prmt" | "bfe" | "shf" | "lop3" | "neg" | "brev"
        | "clz" | "bfind" | "popc" => true,
        _ => false,
    }
}

/// Of what stands before a wait: shared memory and its barriers, hints, registers, the block's and the cluster's barriers.
fn touches_own(opcode: &str) -> bool {
    let mut parts = opcode.split('.');
    match parts.next() {
        Some("ld" | "st") => parts.next() == Some("shared"),
        Some("mbarrier" | "setmaxnreg") => true,
        Some("fence") => parts.next() == Some("mbarrier_init"),
        Some("prefetch") => parts.next() == Some("tensormap"),
        _ => is_barrier(opcode),
    }
}

/// How many barriers each entry has, those of the functions it calls included, once for each call.
///
/// # Errors
/// [`BuildError::Syntax`] if the text cannot be read.
pub fn barriers(text: &str) -> Result<BTreeMap<String, u32>, BuildError> {
    let clean = blank_comments(text);
    let items = items(text)?;
    let mut bodies = HashMap::new();
    for Item { name, body, .. } in &items {
        if let Some(body) = body {
            bodies.insert(*name, &clean[body.clone()]);
        }
    }
    let entries = items.iter().filter(|item| item.kind == Kind::Entry);
    Ok(entries.map(|entry| (entry.name.to_owned(), count(entry.name, &bodies, &mut Vec::new()))).collect())
}

fn count<'a>(name: &'a str, bodies: &HashMap<&'a str, &'a str>, callers: &mut Vec<&'a str>) -> u32 {
    // A function that calls itself is counted once: how deep it goes is known to nobody here.
    let Some(body) = bodies.get(name).filter(|_| !callers.contains(&name)) else { return 0 };
    callers.push(name);
    let total = instructions(body)
        .map(|instruction| {
            if is_barrier(instruction.opcode) {
                1
            } else if instruction.opcode.split('.').next() == Some("call") {
                callee(instruction.operands).map_or(0, |callee| count(callee, bodies, callers))
            } else {
                0
            }
        })
        .sum();
    callers.pop();
    total
}

/// The function of `call (results), name, (arguments)` or `call name, (arguments)`.
fn callee(operands: &str) -> Option<&str> {
    let operands = match operands.strip_prefix('(') {
        Some(results) => results.split_once(')')?.1.trim_start().trim_start_matches(','),
        None => operands,
    };
    operands.split([',', '(']).next().map(str::trim)
}
