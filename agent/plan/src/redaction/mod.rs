//! What may leave a machine in a support bundle: any text without what is secret in it.
//!
//! Two ways, each without the other: values that are known to be secret are hidden wherever they are, in each spelling that
//! other programs give them; and what looks like a secret is hidden whether it is known or not: private keys, what lets one
//! in that is in a URL, the values of names such as `token`, tokens whose form tells them, and long runs of letters and digits that look random. Digests in hexadecimal
//! stay, since they tell one file from another: a secret of that form is hidden where it is known, or where its name says what it is.

mod files;
mod formats;
pub mod manifest;
mod mark;
mod named;
mod pem;
mod private;
mod random;
mod spellings;
mod urls;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::base64_text;
use manifest::Manifest;
pub use mark::MARK;
use mark::push_marks;
pub use named::is_secret_name;
pub use private::is_nothing_but_secret;
pub(crate) use urls::without_credentials;

/// What is shorter is part of half of all words.
const SHORTEST: usize = 4;
/// What is hidden may leave its neighbours side by side with the mark; more rounds than a secret has letters help nothing.
const ROUNDS: usize = 16;

/// Hides what is secret.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: BTreeSet<String>,
    /// What finds all of them in one pass, however many they are; once it was asked for. `None` where it cannot be made.
    finder: OnceLock<Option<AhoCorasick>>,
    public: BTreeSet<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// The same, which hides this value too: as it is, and in each spelling that other programs give it. Less than four bytes
    /// are not hidden.
    #[must_use]
    pub fn hiding(self, secret: &str) -> Redactor {
        // Those of a key are found by their looks, and are too many to look for each.
        self.hiding_lines(secret, |line| line.len() >= SHORTEST * 2 && !random::is_random(line))
    }

    /// The same, which hides this value, and each of its lines that is like this.
    fn hiding_lines(mut self, secret: &str, is_hidden: fn(&str) -> bool) -> Redactor {
        let whole = secret.trim();
        let lines = whole.lines().map(str::trim).filter(|line| !line.starts_with("-----") && is_hidden(line));
        for value in [whole].into_iter().chain(lines).filter(|value| value.len() >= SHORTEST) {
            if !self.secrets.contains(value) {
                self.secrets.extend(spellings::of(value).into_iter().filter(|text| text.len() >= SHORTEST));
            }
        }
        self.finder = OnceLock::new();
        self
    }

    /// The same, which hides all that is secret in the text of a file: the text as a whole, and the values of JSON, YAML, INI
    /// and CSV in it but those that only name something.
    #[must_use]
    pub fn hiding_file(self, text: &str) -> Redactor {
        files::values(text)
            .iter()
            .filter(|value| value.is_secret_in_file())
            .fold(self.hiding(text), hiding_value)
    }

    /// The same, which hides what is secret in the text of a file that has more than secrets: values whose names say that they
    /// are, and passwords in URLs.
    #[must_use]
    pub fn hiding_named(self, text: &str) -> Redactor {
        let redactor =
            files::values(text).iter().filter(|value| value.is_named_secret()).fold(self, hiding_value);
        redactor.hiding_logins(text)
    }

    /// The same, which hides what is secret in the variables of an environment: the values that their names say are secret,
    /// and passwords in URLs, a proxy's say.
    #[must_use]
    pub fn hiding_variable(self, name: &str, value: &str) -> Redactor {
        // Where a shell is, and whether something is switched on, is in half of all texts.
        let is_harmless = matches!(name, "PWD" | "OLDPWD") || matches!(value, "true" | "false");
        let redactor = if is_secret_name(name) && !is_harmless { self.hiding(value) } else { self };
        redactor.hiding_logins(value)
    }

    /// The same, which hides what is secret in the variables of a pod's containers, and in what else its manifest has in clear.
    #[must_use]
    pub fn hiding_manifest(self, manifest: &Manifest) -> Redactor {
        manifest.hidden().fold(self, |redactor, (name, value)| redactor.hiding_variable(name, value))
    }

    /// The same, which hides what is secret in the manifest of a pod. Of one that cannot be read it is all that is not a name.
    #[must_use]
    pub fn hiding_pod(self, text: &str) -> Redactor {
        match Manifest::read(text) {
            Some(manifest) => self.hiding_named(text).hiding_manifest(&manifest),
            None => self.hiding_file(text),
        }
    }

    /// The same, which hides the passwords of all URLs in a text, and of `user:password@host` without a scheme.
    fn hiding_logins(self, text: &str) -> Redactor {
        urls::passwords(text).into_iter().fold(self, |redactor, password| {
            redactor.hiding(password).hiding(&percent_decode_str(password).decode_utf8_lossy())
        })
    }

    /// The same, which shows this value though it looks random: the hash of a configuration.
    #[must_use]
    pub fn showing(mut self, public: &str) -> Redactor {
        self.public.insert(public.trim_end_matches('=').to_owned());
        self
    }

    /// A text without what is secret in it.
    pub fn text(&self, text: &str) -> String {
        let text = self.configuration(text);
        let text = random::without_runs(&text, &self.public);
        self.without_known(text)
    }

    /// A text of which none of the secrets stays that this program itself writes, reads or is given, and nothing that looks like
    /// one by its name or its form; what only looks random does, as digests and certificates. It has as many lines as the text.
    pub(crate) fn configuration(&self, text: &str) -> String {
        let text = self.without_known(text.to_owned());
        let text = pem::without_private_keys(&text);
        let text = urls::without_credentials(&text);
        let text = named::without_values(&text);
        let text = formats::without_tokens(&text);
        self.without_known(text)
    }

    /// A value without what is secret in its texts, keys of objects included.
    pub fn json(&self, value: &Value) -> Value {
        self.json_below(value, false, Redactor::text)
    }

    /// The same of a configuration, as [`Self::configuration`].
    pub(crate) fn json_of_configuration(&self, value: &Value) -> Value {
        self.json_below(value, false, Redactor::configuration)
    }

    /// The same of what stands below the name of a secret, or elsewhere.
    fn json_below(&self, value: &Value, is_below: bool, shown: Shown) -> Value {
        match value {
            Value::String(text) => Value::String(shown(self, text)),
            Value::Array(values) => {
                values.iter().map(|value| self.json_below(value, is_below, shown)).collect()
            }
            Value::Object(fields) => {
                // What a container's variable has is said by another field, and many names say nothing.
                let is_variable = is_below || fields.keys().any(|name| name.eq_ignore_ascii_case("name"));
                let of_field = |(name, value): (&String, &Value)| {
                    let lower = name.to_lowercase();
                    let is_value =
                        (is_variable && lower == "value") || (is_below && CONTENT.contains(&lower.as_str()));
                    let value = match is_value || is_secret_name(name) {
                        true if lower == "secrets" && is_of_names(value) => {
                            self.json_below(value, false, shown)
                        }
                        true => self.hidden(value, shown),
                        false => self.json_below(value, is_below, shown),
                    };
                    (shown(self, name), value)
                };
                fields.iter().map(of_field).collect()
            }
            other => other.clone(),
        }
    }

    /// What stands below the name of a secret: fields of objects have names of their own.
    fn hidden(&self, value: &Value, shown: Shown) -> Value {
        match value {
            Value::String(_) | Value::Number(_) => Value::String(MARK.to_owned()),
            Value::Array(values) => values.iter().map(|value| self.hidden(value, shown)).collect(),
            other => self.json_below(other, true, shown),
        }
    }

    fn finder(&self) -> Option<&AhoCorasick> {
        let make = || {
            let secrets = self.secrets.iter().filter(|secret| !MARK.contains(secret.as_str()));
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(secrets).ok()
        };
        self.finder.get_or_init(make).as_ref()
    }

    /// A text without the values that are known to be secret; what only looks like a secret stays. It has as many lines.
    fn without_known(&self, mut text: String) -> String {
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

/// How a redactor shows a text.
type Shown = fn(&Redactor, &str) -> String;

/// Fields of what has the name of a secret that have the secret itself.
const CONTENT: [&str; 6] = ["value", "data", "stringdata", "content", "text", "raw"];

/// Whether what is called `secrets` tells which there are, or where: names, or the URL of a folder.
fn is_of_names(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::String(text) => text.contains("://"),
        _ => false,
    }
}

/// A redactor that hides a value of a file, too, and what it is in base64.
fn hiding_value(redactor: Redactor, value: &files::Named) -> Redactor {
    let redactor = match value.is_named_secret() {
        // Its name tells more than its looks.
        true => redactor.hiding_lines(&value.text, |_| true),
        false => redactor.hiding(&value.text),
    };
    let redactor = redactor.hiding_logins(&value.text);
    // A header has its scheme before it.
    let header = value.text.split_once(' ').filter(|(scheme, _)| formats::is_scheme(scheme));
    let text = header.map_or(value.text.as_str(), |(_, text)| text.trim());
    let redactor = if header.is_some() { redactor.hiding(text) } else { redactor };
    let decoded = base64_text::decoded(text);
    // `auth` of a registry is `user:password`.
    let Some(decoded) = decoded else { return redactor };
    let password = decoded.split_once(':').map(|(_, password)| password.to_owned());
    redactor.hiding(&decoded).hiding(&password.unwrap_or_default())
}

#[cfg(test)]
mod tests;
