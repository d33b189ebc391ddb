//! The manifest of a pod without the values of its variables, and without what else in it lets one in.
//!
//! A static pod cannot refer to a Secret, so kOps writes tokens of clouds and keys of stores into its file as they are
//! (pkg/model/components/channels/model.go, util/pkg/env/standard.go). The text is parsed, and what is shown is written anew from
//! that: quotes, blocks, anchors and comments of YAML hide no value from it.

use serde_json::Value;

use super::formats::is_login_program;
use super::named::{is_of_name, is_secret_name, without_values};
use super::urls;
use crate::digest::sha256_hex;
use kops_agent_spec::{go_yaml, yaml};

/// A manifest of which nothing secret is shown.
pub struct Manifest {
    /// With placeholders where values were.
    documents: Vec<Value>,
    hidden: Vec<Hidden>,
}

/// A value that is not shown.
struct Hidden {
    /// What it is called; empty where nothing says it.
    name: String,
    value: String,
}

impl Manifest {
    /// Reads the text of a manifest, YAML or JSON; `None` where it is none, and where it cannot be told what is in it.
    pub fn read(text: &str) -> Option<Manifest> {
        let mut documents = Vec::new();
        for document in yaml::documents::<Value>(text) {
            match document.ok()? {
                Value::Null => {}
                document @ Value::Object(_) => documents.push(document),
                _ => return None,
            }
        }
        Some(Manifest::of(documents))
    }

    /// The manifest of these objects.
    pub fn of(mut documents: Vec<Value>) -> Manifest {
        let mut manifest = Manifest { documents: Vec::new(), hidden: Vec::new() };
        documents.iter_mut().for_each(|document| manifest.hide_in(document));
        Manifest { documents, ..manifest }
    }

    /// Whether it has anything that is not shown.
    pub fn hides(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether it has what lets one in: a value whose name says so, or a URL with a password.
    pub fn has_credentials(&self) -> bool {
        let is_login = |value: &str| value.contains("://") && !urls::passwords(value).is_empty();
        let is_said = |value: &str| !matches!(value, "true" | "false");
        self.hidden
            .iter()
            .any(|Hidden { name, value }| (is_secret_name(name) && is_said(value)) || is_login(value))
    }

    /// What is not shown: each value with its name, which may be empty.
    pub fn hidden(&self) -> impl Iterator<Item = (&str, &str)> {
        self.hidden.iter().map(|Hidden { name, value }| (name.as_str(), value.as_str()))
    }

    /// The manifest with a placeholder for each value. Those of different values differ, so that texts can be compared line by
    /// line; before anything is shown they become marks by [`without_placeholders`], for a digest tells a short value.
    pub(crate) fn with_placeholders(&self) -> String {
        self.documents.iter().map(go_yaml::value_to_string).collect::<Vec<_>>().join("---\n")
    }

    /// The manifest with a mark for each value; `null` where nothing is in it.
    pub(crate) fn shown(&self) -> Value {
        self.documents.first().map_or(Value::Null, |document| {
            let json = without_placeholders(&document.to_string());
            serde_json::from_str(&json).unwrap_or_default()
        })
    }

    fn hide_in(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let variable = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                for (name, field) in fields.iter_mut() {
                    // Variables and headers of probes; tolerations have one, too, which costs nothing.
                    if name.eq_ignore_ascii_case("value") {
                        self.hide(field, &variable);
                    } else if is_named_secret(name, field) {
                        self.hide(field, name);
                    } else {
                        self.hide_in(field);
                    }
                }
            }
            Value::Array(items) => self.hide_in_list(items),
            Value::String(text) => self.hide_in_text(text),
            _ => {}
        }
    }

    /// In a list the value of a flag may follow it.
    fn hide_in_list(&mut self, items: &mut [Value]) {
        let mut flag: Option<String> = None;
        let mut is_login = false;
        for item in items {
            if let Some(text) = item.as_str() {
                is_login |= is_login_program(text);
                if let Some((before, password)) = password(text, flag.as_deref(), is_login) {
                    *item = Value::String(format!("{before}{}", self.placeholder("password", password)));
                    flag = None;
                    continue;
                }
            }
            let named = flag.take().filter(|flag| is_named_secret(flag, item));
            if let Some(flag) = named.filter(|_| item.as_str().is_some_and(|text| !text.starts_with('-'))) {
                self.hide(item, &flag);
                continue;
            }
            flag =
                item.as_str().filter(|text| text.starts_with('-') && !text.contains('=')).map(str::to_owned);
            self.hide_in(item);
        }
    }

    fn hide_in_text(&mut self, text: &mut String) {
        let is_json = text.trim_start().starts_with(['{', '[']);
        // An object within an annotation, say what kubectl last applied, has values of its own.
        if is_json
            && serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object() || value.is_array())
        {
            *text = self.placeholder("", text);
            return;
        }
        if let Some((before, name, value)) = assignment(text) {
            *text = format!("{before}={}", self.placeholder(name, value));
            return;
        }
        let shown = urls::without_credentials(text);
        let is_script = text.contains(char::is_whitespace);
        let shown = if is_script { without_values(&shown) } else { shown };
        if shown != *text {
            self.hidden.push(Hidden { name: String::new(), value: std::mem::replace(text, shown) });
        }
    }

    /// Puts a placeholder for a value, whatever it is, but for one that is empty.
    fn hide(&mut self, value: &mut Value, name: &str) {
        let text = match value {
            Value::Null => return,
            Value::String(text) if text.is_empty() => return,
            Value::String(text) => std::mem::take(text),
            ref other => other.to_string(),
        };
        *value = Value::String(self.placeholder(name, &text));
    }

    fn placeholder(&mut self, name: &str, value: &str) -> String {
        self.hidden.push(Hidden { name: name.to_owned(), value: value.to_owned() });
        format!("{BEGIN}{}{END}", sha256_hex(value.as_bytes()))
    }
}

/// What of an item of a list is a password that no name says: what stands before it, and it. `flag` is the item before it,
/// `is_login` whether a program that takes logins is.
fn password<'a>(text: &'a str, flag: Option<&str>, is_login: bool) -> Option<(&'a str, &'a str)> {
    let at = match flag {
        // The numbers of a user and a group are no login.
        Some("-u" | "--user") if text.contains(|c: char| !(c.is_ascii_digit() || c == ':')) => {
            text.find(':')? + 1
        }
        Some("-p") if is_login => 0,
        _ if is_login && text.starts_with("-p") => 2,
        _ => return None,
    };
    Some(text.split_at(at)).filter(|(_, password)| !password.is_empty())
}

/// A text that gives something of a secret name a value: what stands before the `=`, the name and the value. Of a URL all that
/// lets one in is hidden otherwise.
fn assignment(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices('=').find_map(|(at, _)| {
        let (before, value) = (&text[..at], &text[at + 1..]);
        let name = before.rsplit(|c| !is_of_name(c)).next().unwrap_or_default();
        let is_word = !before.contains(char::is_whitespace) && !before.contains("://");
        (is_word && is_named_secret(name, &Value::from(value))).then_some((before, name, value))
    })
}

/// Whether the name of a scalar says that it is secret, and it is neither a switch nor the path of a file that has it.
fn is_named_secret(name: &str, value: &Value) -> bool {
    let may_be_secret = match value {
        Value::String(text) => !(matches!(text.as_str(), "true" | "false") || text.starts_with('/')),
        value => value.is_number(),
    };
    may_be_secret && is_secret_name(name)
}

/// What is about the digest of a placeholder; together they are [`super::MARK`].
const BEGIN: &str = "[***";
const END: &str = "]";
const DIGEST: usize = 64;

/// A text with marks in the place of the placeholders.
pub(crate) fn without_placeholders(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, after) = rest.split_at(at + BEGIN.len());
        shown.push_str(before);
        let digest = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        rest = if digest == DIGEST { &after[DIGEST..] } else { after };
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests;
