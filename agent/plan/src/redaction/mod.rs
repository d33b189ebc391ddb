//! What may leave a machine in a support bundle: any text without what is secret in it.
//!
//! Two ways, each without the other: values that are known to be secret are hidden wherever they are, in each spelling that
//! other programs give them; and what looks like a secret is hidden whether it is known or not: private keys, what lets one
//! in that is in a URL, the values of names such as `token`, tokens whose form tells them, and long runs of letters and digits that look random. Digests in hexadecimal
//! stay, since they tell one file from another: a secret of that form is hidden where it is known, or where its name says what it is.

mod formats;
mod named;
mod pem;
mod random;
mod urls;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

pub use named::is_secret_name;

/// Stands in the place of what is hidden.
pub const MARK: &str = "[***]";

/// What is shorter is part of half of all words.
const SHORTEST: usize = 4;
/// What is hidden may leave its neighbours side by side with the mark; more rounds than a secret has letters help nothing.
const ROUNDS: usize = 16;

/// Hides what is secret.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The longest first: a part of one that is hidden before it would leave the rest.
    secrets: Vec<String>,
    public: BTreeSet<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// The same, which hides this value too: as it is, and as JSON, URLs and base64 have it. Less than four bytes are not
    /// hidden.
    #[must_use]
    pub fn hiding(mut self, secret: &str) -> Redactor {
        let whole = secret.trim();
        let lines = whole.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
        // Those of a key are found by their looks, and are too many to look for each.
        let lines = lines.filter(|line| line.len() >= SHORTEST * 2 && !random::is_random(line));
        for value in [whole].into_iter().chain(lines) {
            self.add(value.to_owned());
            self.add(json_escaped(value));
            self.add(utf8_percent_encode(value, NON_ALPHANUMERIC).to_string());
        }
        for bytes in [secret.as_bytes(), whole.as_bytes()] {
            for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                self.add(engine.encode(bytes));
            }
        }
        self
    }

    /// The same, which hides all that is secret in the text of a file: the values of JSON but those that are only a name, and
    /// the text as a whole.
    #[must_use]
    pub fn hiding_file(self, text: &str) -> Redactor {
        let mut redactor = self.hiding(text);
        let Ok(value) = serde_json::from_str::<Value>(text) else { return redactor };
        let mut values = Vec::new();
        collect(&value, "", &mut values);
        for value in values {
            redactor = redactor.hiding(&value);
            let decoded = STANDARD.decode(&value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            // `auth` of a registry is `user:password`.
            if let Some(decoded) = decoded {
                let password = decoded.split_once(':').map(|(_, password)| password.to_owned());
                redactor = redactor.hiding(&decoded).hiding(&password.unwrap_or_default());
            }
        }
        redactor
    }

    /// The same, which hides what is secret in the variables of an environment: the values that their names say are secret,
    /// and passwords in URLs, a proxy's say.
    #[must_use]
    pub fn hiding_variable(self, name: &str, value: &str) -> Redactor {
        // Where a shell is, and whether something is switched on, is in half of all texts.
        let is_harmless = matches!(name, "PWD" | "OLDPWD") || matches!(value, "true" | "false");
        let redactor = if is_secret_name(name) && !is_harmless { self.hiding(value) } else { self };
        match urls::password(value) {
            Some(password) => {
                redactor.hiding(password).hiding(&percent_decode_str(password).decode_utf8_lossy())
            }
            None => redactor,
        }
    }

    /// The same, which shows this value though it looks random: the hash of a configuration.
    #[must_use]
    pub fn showing(mut self, public: &str) -> Redactor {
        self.public.insert(public.trim_end_matches('=').to_owned());
        self
    }

    /// A text without what is secret in it.
    pub fn text(&self, text: &str) -> String {
        let text = self.without_known(text.to_owned());
        let text = pem::without_private_keys(&text);
        let text = urls::without_credentials(&text);
        let text = named::without_values(&text);
        let text = formats::without_tokens(&text);
        let text = random::without_runs(&text, &self.public);
        self.without_known(text)
    }

    /// A value without what is secret in its texts, keys of objects included.
    pub fn json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(values) => values.iter().map(|value| self.json(value)).collect(),
            Value::Object(fields) => {
                // What a container's variable has is said by another field, and many names say nothing.
                let is_variable = fields.keys().any(|name| name.eq_ignore_ascii_case("name"));
                fields
                    .iter()
                    .map(|(name, value)| {
                        let is_value = is_variable && name.eq_ignore_ascii_case("value");
                        let shown = match is_value || is_secret_name(name) {
                            // These are names of secrets.
                            true if name != "secrets" => self.hidden(value),
                            _ => self.json(value),
                        };
                        (self.text(name), shown)
                    })
                    .collect()
            }
            other => other.clone(),
        }
    }

    /// What stands below the name of a secret: fields of objects have names of their own.
    fn hidden(&self, value: &Value) -> Value {
        match value {
            Value::String(_) | Value::Number(_) => Value::String(MARK.to_owned()),
            Value::Array(values) => values.iter().map(|value| self.hidden(value)).collect(),
            other => self.json(other),
        }
    }

    fn add(&mut self, secret: String) {
        if secret.len() < SHORTEST || self.secrets.contains(&secret) {
            return;
        }
        let at = self.secrets.partition_point(|other| other.len() >= secret.len());
        self.secrets.insert(at, secret);
    }

    fn without_known(&self, mut text: String) -> String {
        for _ in 0..ROUNDS {
            let mut is_changed = false;
            for secret in self.secrets.iter().filter(|secret| !MARK.contains(secret.as_str())) {
                if text.contains(secret.as_str()) {
                    text = text.replace(secret.as_str(), MARK);
                    is_changed = true;
                }
            }
            if !is_changed {
                return text;
            }
        }
        // A secret that is made of the mark itself: nothing of the text is worth that.
        MARK.to_owned()
    }
}

/// As it stands between the quotes of JSON.
fn json_escaped(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Names of fields that tell who logs in and not by what, as in the configuration of a registry's credentials.
const NAMING: [&str; 5] = ["username", "email", "serveraddress", "kind", "apiversion"];

fn collect(value: &Value, name: &str, values: &mut Vec<String>) {
    match value {
        Value::String(text) if !NAMING.contains(&name.to_lowercase().as_str()) => values.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|value| collect(value, name, values)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| collect(value, name, values)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
