//! Values that are known to be secret, hidden wherever another's text has them: a journal, an error, what a program says.
//!
//! What the agent itself prints of a node needs none of this: there the origin of each value decides ([`crate::shown`]). Nothing
//! here guesses. A value is hidden because it is a secret of the store or a variable that lets one in, or because it is free text of the
//! specification ([`kops_agent_spec::free_text`]). Beside that only two forms are hidden that are secret by their definition: a
//! private key in PEM, and what a URL has of a user, a password and a query.

pub mod manifest;
mod mark;
mod pem;
mod urls;
mod variables;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::base64_text;
use kops_agent_spec::yaml;
pub use mark::MARK;
use mark::push_marks;
pub(crate) use urls::without_credentials;
pub use variables::LOGIN_VARIABLES;

/// In bytes. A shorter value is part of half of all words.
const SHORTEST: usize = 4;
/// In bytes. A shorter line or word of a longer text is hidden only within it.
const SHORTEST_PART: usize = 8;
/// In bytes. A shorter value of a variable is a word of many texts, unless the variable is a login.
const SHORTEST_VARIABLE: usize = 6;
/// What is hidden may leave its neighbours side by side with the mark; more rounds than a secret has letters help nothing.
const ROUNDS: usize = 16;
/// Fields of Kubernetes' EncryptionConfiguration that name something
/// (k8s.io/apiserver/pkg/apis/apiserver/v1/types_encryption.go): all other values of a secret are secret.
const NAMES: [&str; 4] = ["kind", "apiVersion", "resources", "name"];

/// Hides what is known to be secret.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: BTreeSet<String>,
    /// What is hidden unless it is public, too.
    free_text: BTreeSet<String>,
    public: BTreeSet<String>,
    /// What finds all of them in one pass, however many they are; once it was asked for. `None` where it cannot be made.
    finder: OnceLock<Option<AhoCorasick>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// The same, which hides this value and each of its longer lines: as they are, in JSON, and the value in base64.
    #[must_use]
    pub fn hiding(mut self, value: &str) -> Redactor {
        self.secrets.extend(spellings(value));
        self.finder = OnceLock::new();
        self
    }

    /// The same, which hides a secret of the store: the whole, and where it is a document, each value in it. `auth` of a registry
    /// is `user:password` in base64.
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
                let decoded = base64_text::decoded(text).unwrap_or_default();
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

    /// The same, which hides what a program is given in a variable: a login as a secret, and anything else as free text, for an
    /// operator may have named it.
    #[must_use]
    pub fn hiding_variable(self, name: &str, value: &str) -> Redactor {
        let redactor = self.hiding_passwords(value);
        match LOGIN_VARIABLES.contains(&name) {
            true => redactor.hiding(value),
            false if value.len() < SHORTEST_VARIABLE => redactor,
            false => redactor.hiding_free_text(value),
        }
    }

    /// The same, which hides the passwords of the URLs in a text.
    #[must_use]
    pub fn hiding_passwords(self, text: &str) -> Redactor {
        urls::passwords(text).into_iter().fold(self, |redactor, password| {
            redactor.hiding(password).hiding(&percent_decode_str(password).decode_utf8_lossy())
        })
    }

    /// The same, which hides free text as a whole and by its lines, unless it is public, too.
    #[must_use]
    pub fn hiding_free_text(mut self, text: &str) -> Redactor {
        let decoded = base64_text::decoded(text);
        self.free_text.extend(decoded.iter().map(String::as_str).chain([text]).flat_map(spellings));
        self.finder = OnceLock::new();
        self
    }

    /// The same, which hides each longer word of free text as well: who has read a file says some of what is in it.
    #[must_use]
    pub fn hiding_words(mut self, text: &str) -> Redactor {
        let decoded = base64_text::decoded(text);
        let words = decoded.iter().map(String::as_str).chain([text]).flat_map(words);
        self.free_text.extend(words.filter(|word| word.len() >= SHORTEST_PART).map(str::to_owned));
        self.hiding_free_text(text)
    }

    /// The same, which shows what this text says although free text says it, too.
    #[must_use]
    pub fn showing(mut self, public: &str) -> Redactor {
        let lines = public.lines().map(str::trim);
        self.public.extend(words(public).chain(lines).map(str::to_owned));
        self.finder = OnceLock::new();
        self
    }

    /// The same, which hides secrets only.
    #[must_use]
    pub fn of_secrets(&self) -> Redactor {
        Redactor { secrets: self.secrets.clone(), ..Redactor::default() }
    }

    /// A text without what is secret in it. It has as many lines.
    pub fn text(&self, text: &str) -> String {
        // First, for the line that a key begins with is part of a known secret, too.
        let text = pem::without_private_keys(text);
        let text = self.without_known(text);
        let text = urls::without_credentials(&text);
        self.without_known(text)
    }

    /// A value without what is secret in its texts, keys of objects included.
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

    fn finder(&self) -> Option<&AhoCorasick> {
        let make = || {
            let free_text = self.free_text.difference(&self.public);
            let hidden = self.secrets.iter().chain(free_text).filter(|value| !MARK.contains(value.as_str()));
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(hidden).ok()
        };
        self.finder.get_or_init(make).as_ref()
    }

    /// A text without the values that are known. It has as many lines.
    pub fn without_known(&self, mut text: String) -> String {
        for _ in 0..ROUNDS {
            // Where nothing can find them nothing can be shown.
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
        // A secret that is made of the mark itself: nothing of the text is worth that.
        MARK.to_owned()
    }
}

/// A value and its longer lines: as they are, in JSON, and the value in base64.
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

/// Whether a value is a text or a list of texts, with no field in it.
fn is_of_words(value: &Value) -> bool {
    value.is_string() || value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

/// Whether a value can be hidden wherever it is: a short one and a switch are in half of all texts.
fn is_hidden(value: &str) -> bool {
    value.len() >= SHORTEST && !matches!(value, "true" | "false")
}

/// The words of a text: what stands between spaces, quotes, brackets and the signs that follow a name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "\"'`,;=:(){}[]<>".contains(c);
    text.split(ends).filter(|word| !word.is_empty())
}

/// As it stands between the quotes of JSON.
fn json_escaped(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests;
