//! Annotations of Nodes with JSON in a versioned form.
//!
//! Root on a node can write any value into the annotations of its own Node. So reading is strict and bounded, and a writer never
//! writes a value that readers reject.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The schema version of all annotation values. Readers reject other versions.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The value of an annotation. Each implementing type has `#[serde(deny_unknown_fields)]`, so that readers reject unknown fields.
pub(crate) trait Annotation: Serialize + DeserializeOwned {
    const NAME: &'static str;
    /// Maximum length of the value, in bytes.
    const LONGEST: usize;

    fn schema_version(&self) -> u32;

    /// Whether each field of the value is within its limits.
    fn is_bounded(&self) -> bool;

    /// The annotation's value. `None` if readers would reject the value.
    fn written(&self) -> Option<String> {
        let value = serde_json::to_string(self).ok()?;
        Self::parsed(&value).is_ok().then_some(value)
    }

    /// Reads only the form that [`Annotation::written`] writes, and at most [`Annotation::LONGEST`] bytes.
    fn parsed(value: &str) -> Result<Self, Unread> {
        if value.len() > Self::LONGEST {
            return Err(Unread::TooLong { name: Self::NAME, longest: Self::LONGEST });
        }
        let parsed: Option<Self> = serde_json::from_str(value).ok();
        let is_whole = |parsed: &Self| parsed.schema_version() == SCHEMA_VERSION && parsed.is_bounded();
        parsed.filter(is_whole).ok_or(Unread::OtherForm { name: Self::NAME })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unread {
    #[error("the annotation {name} has more than {longest} bytes")]
    TooLong { name: &'static str, longest: usize },
    #[error("the annotation {name} has a format that this version of kops-agent does not know")]
    OtherForm { name: &'static str },
}

/// Whether a text is graphic ASCII of 1 to `longest` bytes: no spaces, and nothing that controls a terminal.
pub(crate) fn is_name(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        schema_version: u32,
        text: String,
    }

    impl Annotation for Note {
        const NAME: &'static str = "kops-agent/note";
        const LONGEST: usize = 64;

        fn schema_version(&self) -> u32 {
            self.schema_version
        }

        fn is_bounded(&self) -> bool {
            is_name(&self.text, 8)
        }
    }

    #[test]
    fn only_a_value_that_is_read_is_written() {
        let note = |schema_version, text: &str| Note { schema_version, text: text.into() };
        let value = note(SCHEMA_VERSION, "a").written().unwrap();
        assert_eq!(Note::parsed(&value), Ok(note(SCHEMA_VERSION, "a")));
        for wrong in [note(2, "a"), note(SCHEMA_VERSION, ""), note(SCHEMA_VERSION, "123456789")] {
            assert_eq!(wrong.written(), None, "{wrong:?}");
        }
        let other = Unread::OtherForm { name: "kops-agent/note" };
        assert_eq!(Note::parsed(&value.replace("text", "more")), Err(other));
        let long = format!("{value}{}", " ".repeat(64));
        assert_eq!(Note::parsed(&long), Err(Unread::TooLong { name: "kops-agent/note", longest: 64 }));
        assert!(["a b", "a\u{1b}", "ä", "a\n"].iter().all(|text| !is_name(text, 8)));
    }
}
