//! Checks the cost of a YAML text before the text is parsed: a state store, a cloud or an add-on may deliver any text.
//!
//! The time of the reader (libyaml behind `serde_yaml`) grows with the square of two numbers. These are the depth of nested flow
//! collections (`[`, `{`), and the number of directives. The reader's memory grows with the size of expanded aliases. The size of a
//! text limits neither.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::scanner::Scanner;

/// The maximum length of a text, in bytes. etcd accepts objects of at most 1.5 MiB, and kOps' files have about ten thousand bytes.
const LONGEST: usize = 8 << 20;
/// The maximum nesting depth of lists and mappings. The schemas of Kubernetes' largest resources have about fifty levels in JSON.
pub(super) const DEEPEST: usize = 100;
/// The maximum number of directives (`%YAML`, `%TAG`). A document of kOps or Kubernetes has at most one.
pub(super) const MOST_DIRECTIVES: usize = 16;
/// The memory that the parser needs for a YAML node, in bytes, without the bytes of its scalar.
const NODE: usize = 16;
/// The maximum memory of a value, as a multiple of the length of its text. Without aliases, a value needs at most nine times the length of
/// its text. A node needs 16 bytes ([`NODE`]) and has at least two bytes of text, which makes eight. A scalar needs its own length, too.
const MOST_TIMES: usize = 16;
/// The memory that every value may take, in bytes, even if its text is very short.
const SMALL: usize = 256 << 10;

/// The reason why a text costs too much to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooCostly {
    Long,
    Deep,
    /// The text has too many directives.
    Directives,
    /// The text is too large after the expansion of its aliases.
    Large,
}

impl fmt::Display for TooCostly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooCostly::Long => write!(f, "it is longer than {} MiB", LONGEST >> 20),
            TooCostly::Deep => write!(f, "its lists and mappings nest deeper than {DEEPEST} levels"),
            TooCostly::Directives => {
                write!(f, "it has more than {MOST_DIRECTIVES} directives (lines that begin with %)")
            }
            TooCostly::Large => f.write_str("its aliases expand to many times its size"),
        }
    }
}

/// Rejects a text that costs more to read than any file of kOps or Kubernetes.
pub(super) fn check(text: &[u8]) -> Result<(), TooCostly> {
    counted(text).0
}

/// The result of [`check`], and the number of keys and values that the check counted. The check counts only if the text may have aliases.
pub(super) fn counted(text: &[u8]) -> (Result<(), TooCostly>, usize) {
    if text.len() > LONGEST {
        return (Err(TooCostly::Long), 0);
    }
    if let Err(problem) = Scanner::new(text).scan() {
        return (Err(problem), 0);
    }
    // A text without `*` has no aliases, so it cannot expand.
    if !text.contains(&b'*') {
        return (Ok(()), 0);
    }
    let (left, values) = (Cell::new((text.len() * MOST_TIMES).max(SMALL)), Cell::new(0));
    for document in serde_yaml::Deserializer::from_slice(text) {
        // Only the memory limit matters here. Other errors are reported later, when the text is read.
        let counted = Counted { left: &left, values: &values }.deserialize(document);
        if counted.is_err() {
            break;
        }
    }
    (if left.get() == 0 { Err(TooCostly::Large) } else { Ok(()) }, values.get())
}

/// A deserializer that counts values, and subtracts their memory from the remaining memory. It does not store the values.
#[derive(Clone, Copy)]
struct Counted<'a> {
    left: &'a Cell<usize>,
    values: &'a Cell<usize>,
}

impl Counted<'_> {
    fn spend<E: de::Error>(self, bytes: usize) -> Result<(), E> {
        self.values.set(self.values.get() + 1);
        self.left.set(self.left.get().saturating_sub(bytes.saturating_add(NODE)));
        if self.left.get() == 0 { Err(E::custom(TooCostly::Large)) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_i128<E: de::Error>(self, _: i128) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_u128<E: de::Error>(self, _: u128) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.spend(0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.spend(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.spend(0)?;
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.spend(0)?;
        while entries.next_key_seed(self)?.is_some() {
            entries.next_value_seed(self)?;
        }
        Ok(())
    }

    /// Reads a value with a custom tag.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let (IgnoredAny, value) = tagged.variant()?;
        value.newtype_variant_seed(self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn checked(text: &str) -> Result<(), TooCostly> {
        check(text.as_bytes())
    }

    #[test]
    fn expensive_texts_are_rejected() {
        let (times, many) = (20_000, 33_000);
        for deep in ["{a: ", "{a:\n", "[", "[a: ", "- ", "? ", "{\"", "{? "] {
            assert_eq!(checked(&deep.repeat(times)), Err(TooCostly::Deep), "{deep:?}");
            assert_eq!(
                checked(&format!("a: x\nb:\n - {}", deep.repeat(times))),
                Err(TooCostly::Deep),
                "{deep:?}"
            );
        }
        let indented: String = (0..2000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert_eq!(checked(&indented), Err(TooCostly::Deep));
        let directives: String = (0..times).map(|number| format!("%TAG !a{number}! x\n")).collect();
        assert_eq!(checked(&format!("{directives}---\na: 1")), Err(TooCostly::Directives));
        let scalar = format!("a: &a {}\nb: [{}]", "x".repeat(100_000), "*a,".repeat(many));
        assert_eq!(checked(&scalar), Err(TooCostly::Large));
        let list = format!("a: &a [{}]\nb: [{}]", "x,".repeat(times), "*a,".repeat(many));
        assert_eq!(checked(&list), Err(TooCostly::Large));
        let laughs = |(text, last): (String, usize), _: usize| {
            let next = last + 1;
            (format!("{text}a{next}: &a{next} [{}]\n", format!("*a{last},").repeat(10)), next)
        };
        let (laughs, _) = (0..50).fold(("a0: &a0 x\n".to_owned(), 0), laughs);
        assert_eq!(checked(&laughs), Err(TooCostly::Large));
        assert_eq!(checked(&"x".repeat(LONGEST + 1)), Err(TooCostly::Long));
    }

    #[test]
    fn large_plain_texts_are_accepted() {
        let flat = format!("a: [{}]\n# *", "1,".repeat(1 << 20));
        let entries: String =
            (0..20_000).map(|number| format!("  - {{name: n{number}, value: '*'}}\n")).collect();
        let script = "{[(\n".repeat(5000);
        let literal =
            format!("- a: |\n{}", script.lines().map(|line| format!("   {line}\n")).collect::<String>());
        let quoted = serde_json::json!({ "script": script, "plain": vec!["a{[b"; 2000] }).to_string();
        let plain = format!("a: x\n  {}", "y {[ ".repeat(5000));
        let aliases = format!("a: &a {{b: c, d: [e, f]}}\ng: [{}]", "*a, ".repeat(1000));
        for text in [&flat, &format!("a:\n{entries}"), &literal, &quoted, &plain, &aliases] {
            assert_eq!(checked(text), Ok(()), "{:.60}", text);
            serde_yaml::from_str::<serde_json::Value>(text).unwrap();
        }
    }

    /// Pieces with a meaning in YAML. The test combines them into texts.
    const PIECES: [&str; 50] = [
        "{", "}", "[", "]", ":", ": ", "- ", "? ", ",", ", ", "'", "\"", "|\n", ">\n", "|2\n", "|-\n", "\n",
        "\n ", "\n  ", "\n   ", "a", "b: ", "a: ", " ", "\t", "#", " # x", "!t ", "!<x> ", "!<]> ", "%",
        "---\n", "...\n", "\n---\n", "\n...\n", "\\", "''", "é", "\u{85}", "\r\n", "\u{2028}", "-", "?",
        "a b", "x: |\n", "x: \"", "x: '", "y:\n", "- - ", "\n- ",
    ];

    proptest! {
        /// Whatever the text begins with, the scanner rejects nesting that is too deep for libyaml. It accepts every text that libyaml can
        /// read.
        #[test]
        fn the_scanner_finds_the_depth_that_libyaml_finds(
            pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..14),
            opening in proptest::sample::select(&["[", "{a: ", "[a: ", "{", "[\n"][..]),
        ) {
            let text = pieces.concat() + &opening.repeat(140);
            match serde_yaml::from_str::<serde_json::Value>(&text) {
                Ok(_) => prop_assert_eq!(checked(&text), Ok(())),
                Err(error) if error.to_string().contains("recursion limit") => {
                    prop_assert_eq!(checked(&text), Err(TooCostly::Deep));
                }
                Err(_) => {}
            }
        }
    }
}
