//! What a PTX must be before anybody loads it.

use std::collections::{BTreeMap, HashMap};

use super::{Item, Kind, Space, blank_comments, instructions, items};
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

/// Whether every entry waits for the grid before it (`griddepcontrol.wait`) before it branches, and before it touches memory but
/// its parameters.
///
/// # Errors
/// [`BuildError::Syntax`] if the text cannot be read.
pub fn all_wait(text: &str) -> Result<bool, BuildError> {
    let clean = blank_comments(text);
    let waits = |item: &Item<'_>| {
        let body = item.body.clone().map_or("", |body| &clean[body]);
        let first = instructions(body).map(|instruction| instruction.opcode).find(|opcode| !touches_nothing(opcode));
        first == Some("griddepcontrol.wait")
    };
    Ok(items(text)?.iter().filter(|item| item.kind == Kind::Entry && !item.external).all(waits))
}

/// Of what stands before a wait: moves, arithmetic, conversions of addresses, and parameters.
fn touches_nothing(opcode: &str) -> bool {
    let (name, suffixes) = opcode.split_once('.').unwrap_or((opcode, ""));
    match name {
        "ld" => suffixes.split('.').next() == Some("param"),
        "mov" | "cvt" | "cvta" | "add" | "sub" | "mul" | "mad" | "shl" | "shr" | "and" | "or" | "xor" | "not"
        | "setp" | "selp" | "min" | "max" | "prmt" | "bfe" | "shf" | "lop3" | "neg" => true,
        _ => false,
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
