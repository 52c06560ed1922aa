//! Symbol names without the compiler's hashes.
//!
//! A mangled name holds a hash of each crate it mentions (`Cs` .. `_` before the crate's name), which for `core`
//! depends on the folder the compiler is installed in. Without them the same sources give the same PTX on every machine.

use std::collections::HashMap;

/// The text with the crate hashes taken out of all mangled names; as it was, if two names would become one.
pub fn without_hashes(text: &str) -> String {
    let mut renamed = String::with_capacity(text.len());
    let mut originals = HashMap::<String, &str>::new();
    let mut rest = text;
    while let Some(start) = rest.find("_R") {
        let from = &rest[start..];
        let end = from.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$')).unwrap_or(from.len());
        renamed.push_str(&rest[..start]);
        // Parameters are named after their function: what follows a name does not make it another.
        let name = plain(&from[..end]);
        if *originals.entry(name.clone()).or_insert(&from[..end]) != &from[..end] {
            return text.to_owned();
        }
        renamed.push_str(&name);
        rest = &from[end..];
    }
    renamed.push_str(rest);
    renamed
}

/// A mangled name without crate hashes: `NvCs1a2B3c4D5e6_4core` becomes `NvC4core`.
fn plain(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("Cs") {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        let hash = from[2..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(from.len() - 2);
        let after = &from[2 + hash..];
        // A crate's hash fills 64 bits: about eleven digits to the base 62, then the crate's name with its length first.
        let is_hash = hash >= 7 && after.starts_with('_') && after[1..].starts_with(|c: char| c.is_ascii_digit());
        plain.push('C');
        rest = if is_hash { &after[1..] } else { &from[1..] };
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_go_and_names_stay() {
        assert_eq!(
            without_hashes(
                "call.uni _RNvNtCsanIojcP8aaR_4core9panicking9panic_fmt, ();\n.func _RNvCsikpGzoITj5y_1k6helper("
            ),
            "call.uni _RNvNtC4core9panicking9panic_fmt, ();\n.func _RNvC1k6helper("
        );
        assert_eq!(
            without_hashes("_RINvNtCsanIojcP8aaR_4core3ptr4readNtCsikpGzoITj5y_1k3MapECsikpGzoITj5y_1k_param_0"),
            "_RINvNtC4core3ptr4readNtC1k3MapEC1k_param_0"
        );
    }

    #[test]
    fn names_that_would_collide_keep_their_hashes() {
        let text = ".func _RNvCsaaaaaaaaaaa_4half1f(); .func _RNvCsbbbbbbbbbbb_4half1f();";
        assert_eq!(without_hashes(text), text);
    }

    #[test]
    fn ordinary_names_are_left_alone() {
        for text in ["_RelCs_1", "block_Reduce", "_RNvC4core1f", "no names"] {
            assert_eq!(without_hashes(text), text);
        }
    }
}
