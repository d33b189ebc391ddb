//! Hides known secrets in texts that the agent does not write: a journal, an error, the output of a program.
//!
//! The agent's own output about a node does not need this: there, the origin of a value decides whether it is shown
//! (`kops_agent_plan::shown`). Nothing here guesses. A value is hidden if it is a secret of the store, a credential in a variable, or free
//! text of the specification ([`crate::free_text`]). Two forms are also hidden because they are secret by definition: a private key in PEM,
//! and the user, password, query and fragment of a URL.

pub mod manifest;
mod pem;
mod urls;
mod variables;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::yaml;
pub use urls::without_credentials;
pub use variables::{LOGIN_VARIABLES, is_login};

/// The mark that replaces hidden text.
pub const MARK: &str = "[***]";
/// Minimum length of a hidden value, in bytes. A shorter value occurs by chance within many words.
const SHORTEST: usize = 4;
/// Minimum length, in bytes, of a line or word that is hidden on its own. A shorter part of a value is only hidden together with the whole
/// value.
const SHORTEST_PART: usize = 8;
/// Minimum length of a hidden value of a variable, in bytes. A shorter value may be a common word. For login variables the minimum is
/// `SHORTEST`.
const SHORTEST_VARIABLE: usize = 6;
/// Maximum number of replacement rounds. A mark and the text around it can form another secret, so replacements are repeated. If a secret
/// remains after the last round, the whole text is hidden.
const ROUNDS: usize = 16;
/// Fields of Kubernetes' EncryptionConfiguration whose values are names (k8s.io/apiserver/pkg/apis/apiserver/v1/types_encryption.go). The
/// values of all other fields of a secret are hidden.
const NAMES: [&str; 4] = ["kind", "apiVersion", "resources", "name"];

/// Replaces known secrets in texts with [`MARK`].
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: BTreeSet<String>,
    /// Texts that are hidden like free text ([`crate::free_text`]), except for values that are also in `public`.
    free_text: BTreeSet<String>,
    public: BTreeSet<String>,
    /// Finds all hidden values in one pass. It is built at its first use. The inner `None` means that it could not be built.
    finder: OnceLock<Option<AhoCorasick>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Also hides this value, and each line of it that has at least `SHORTEST_PART` bytes. Also hides the JSON-escaped form of these texts,
    /// and the base64 form of the whole value.
    #[must_use]
    pub fn hiding(mut self, value: &str) -> Redactor {
        self.secrets.extend(spellings(value));
        self.finder = OnceLock::new();
        self
    }

    /// Also hides a secret of the store: the whole secret and, if it is a document, each value in the document. If a value is base64, hides
    /// its decoded text, too. For example, `auth` of a registry is `user:password` in base64.
    #[must_use]
    pub fn hiding_secret(self, secret: &str) -> Redactor {
        let redactor = self.hiding(secret);
        match yaml::from_str::<Value>(secret) {
            Ok(document @ (Value::Object(_) | Value::Array(_))) => redactor.hiding_values(&document),
            _ => redactor,
        }
    }

    fn hiding_values(self, value: &Value) -> Redactor {
        match value {
            Value::String(text) => {
                let decoded = decoded_base64(text).unwrap_or_default();
                let password = decoded.split_once(':').map(|(_, password)| password).unwrap_or_default();
                self.hiding(text).hiding(&decoded).hiding(password)
            }
            Value::Number(number) => self.hiding(&number.to_string()),
            Value::Array(items) => items.iter().fold(self, Redactor::hiding_values),
            Value::Object(fields) => {
                let is_name = |name: &str, value: &Value| NAMES.contains(&name) && is_of_words(value);
                let fields = fields.iter().filter(|(name, value)| !is_name(name, value));
                fields.fold(self, |redactor, (_, value)| redactor.hiding_values(value))
            }
            Value::Bool(_) | Value::Null => self,
        }
    }

    /// Also hides the value of a program's environment variable. The value of a login variable is hidden as a secret. Any other value may
    /// be from the operator, so it is hidden as free text. [`Redactor::showing`] can make parts of free text visible, but not of a secret.
    #[must_use]
    pub fn hiding_variable(self, name: &str, value: &str) -> Redactor {
        let redactor = self.hiding_passwords(&variables::as_url(name, value));
        match LOGIN_VARIABLES.contains(&name) {
            true => redactor.hiding(value),
            false if value.len() < SHORTEST_VARIABLE => redactor,
            false => redactor.hiding_free_text(value),
        }
    }

    /// Also hides the passwords of the URLs in a text.
    #[must_use]
    pub fn hiding_passwords(self, text: &str) -> Redactor {
        urls::passwords(text).into_iter().fold(self, |redactor, password| {
            redactor.hiding(password).hiding(&percent_decode_str(password).decode_utf8_lossy())
        })
    }

    /// Also hides free text: the whole text, and each line that has at least `SHORTEST_PART` bytes. Texts that [`Redactor::showing`] makes
    /// public stay visible.
    #[must_use]
    pub fn hiding_free_text(mut self, text: &str) -> Redactor {
        let decoded = decoded_base64(text);
        self.free_text.extend(decoded.iter().map(String::as_str).chain([text]).flat_map(spellings));
        self.finder = OnceLock::new();
        self
    }

    /// Also hides free text and each of its words that has at least `SHORTEST_PART` bytes. Single words are hidden because a program may
    /// print parts of a file that it has read.
    #[must_use]
    pub fn hiding_words(mut self, text: &str) -> Redactor {
        let decoded = decoded_base64(text);
        let words = decoded.iter().map(String::as_str).chain([text]).flat_map(words);
        self.free_text.extend(words.filter(|word| word.len() >= SHORTEST_PART).map(str::to_owned));
        self.hiding_free_text(text)
    }

    /// Shows the words and lines of this text even if hidden free text contains them.
    #[must_use]
    pub fn showing(mut self, public: &str) -> Redactor {
        let lines = public.lines().map(str::trim);
        self.public.extend(words(public).chain(lines).map(str::to_owned));
        self.finder = OnceLock::new();
        self
    }

    /// Returns a redactor that hides only the secrets, and shows free text.
    #[must_use]
    pub fn of_secrets(&self) -> Redactor {
        Redactor { secrets: self.secrets.clone(), ..Redactor::default() }
    }

    /// Hides the secrets in a text. Keeps the number of lines, unless it must hide the whole text.
    pub fn text(&self, text: &str) -> String {
        // Private keys come first: the redactor finds a key by its first line, and replacing a known secret could change this line.
        let text = pem::without_private_keys(text);
        let text = self.without_known(text);
        let text = urls::without_credentials(&text);
        self.without_known(text)
    }

    /// Hides the secrets in the strings of a JSON value, including the keys of objects.
    pub fn json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(values) => values.iter().map(|value| self.json(value)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (self.text(name), self.json(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// Removes the beginning of a hidden value from the end of a text that was cut. Functions that only hide whole values would show this
    /// part.
    pub fn before_cut<'a>(&self, text: &'a str) -> &'a str {
        let begins_hidden = |end: &str| {
            [&self.secrets, &self.free_text].into_iter().any(|hidden| {
                let next = hidden.range::<str, _>((Bound::Included(end), Bound::Unbounded)).next();
                next.is_some_and(|value| value.starts_with(end))
            })
        };
        let cut = text.char_indices().find(|(at, _)| begins_hidden(&text[*at..]));
        cut.map_or(text, |(at, _)| &text[..at])
    }

    fn finder(&self) -> Option<&AhoCorasick> {
        let make = || {
            let free_text = self.free_text.difference(&self.public);
            let hidden = self.secrets.iter().chain(free_text).filter(|value| !MARK.contains(value.as_str()));
            // For a long value, the default kind of automaton would be a DFA. Its build takes seconds, and it needs hundreds of times the
            // memory.
            let kind = Some(AhoCorasickKind::ContiguousNFA);
            AhoCorasick::builder().kind(kind).match_kind(MatchKind::LeftmostLongest).build(hidden).ok()
        };
        self.finder.get_or_init(make).as_ref()
    }

    /// Hides the values that this redactor knows. Keeps the number of lines, unless it must hide the whole text.
    pub fn without_known(&self, mut text: String) -> String {
        for _ in 0..ROUNDS {
            // Without a finder, no secret can be found. So the whole text is hidden.
            let Some(finder) = self.finder() else { return MARK.to_owned() };
            if !finder.is_match(&text) {
                return text;
            }
            let mut shown = String::with_capacity(text.len());
            finder.replace_all_with(&text, &mut shown, |_, hidden, shown| {
                push_marks(hidden, shown);
                true
            });
            text = shown;
        }
        // After the last round of replacements, the text may still contain a secret. So the whole text is hidden.
        MARK.to_owned()
    }
}

/// Returns the forms in which a value can occur in a text. The whole value, and each line that has at least `SHORTEST_PART` bytes, can
/// occur unchanged or escaped for JSON. The whole value can also occur in base64.
fn spellings(value: &str) -> Vec<String> {
    let whole = value.trim();
    let lines = whole.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_PART);
    let texts = [whole].into_iter().chain(lines).filter(|text| is_hidden(text));
    let mut spellings: Vec<String> = texts.flat_map(|text| [text.to_owned(), json_escaped(text)]).collect();
    if is_hidden(whole) {
        spellings.extend([STANDARD.encode(value), STANDARD.encode(whole)]);
    }
    spellings
}

/// Whether a value is a string or a list of strings.
fn is_of_words(value: &Value) -> bool {
    value.is_string() || value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

/// Whether the redactor hides a value. Short values, `true` and `false` stay visible, because too many texts contain them by chance.
fn is_hidden(value: &str) -> bool {
    value.len() >= SHORTEST && !matches!(value, "true" | "false")
}

/// The words of a text, separated by whitespace, quotes, brackets and the punctuation after a name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "\"'`,;=:(){}[]<>".contains(c);
    text.split(ends).filter(|word| !word.is_empty())
}

/// Escapes a text for use between the quotes of a JSON string.
fn json_escaped(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Decodes base64 into text. Returns `None` if `encoded` is not base64 or the bytes are not UTF-8.
pub fn decoded_base64(encoded: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

/// Appends one mark for each line of the hidden text to `shown`.
fn push_marks(hidden: &str, shown: &mut String) {
    shown.push_str(MARK);
    hidden.matches('\n').for_each(|_| shown.extend(["\n", MARK]));
}

#[cfg(test)]
mod tests;
