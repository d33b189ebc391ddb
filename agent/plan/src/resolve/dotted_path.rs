//! Paths of keys, separated by dots. A key that contains dots is quoted:
//! `plugins."io.containerd.grpc.v1.cri".sandbox_image`.

use kops_agent_spec::invalid::Invalid;

/// Maximum number of keys in a path. The TOML parser does not read longer paths.
const MOST_KEYS: usize = 80;

/// Splits a path into its keys. Quotes must enclose a whole key, and a quote inside the quotes is doubled, as
/// in kOps (`applyConfigAdditions` in nodeup/pkg/model/containerd.go). Fails if the path is empty or has too many keys.
pub(super) fn read(path: &str) -> Result<Vec<String>, Invalid> {
    if path.is_empty() {
        return Err(Invalid::new("is empty; name a setting"));
    }
    let mut keys = Vec::new();
    let mut rest = path;
    loop {
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_key(quoted)?,
            None => bare_key(rest)?,
        };
        if keys.len() == MOST_KEYS {
            return Err(Invalid::new(format!(
                "has more than {MOST_KEYS} keys; no containerd setting has such a long path"
            )));
        }
        keys.push(key);
        match after {
            Some(after) => rest = after,
            None => return Ok(keys),
        }
    }
}

/// Reads a key up to its closing quote. Returns the key, and the text after the dot that follows the quote.
fn quoted_key(text: &str) -> Result<(String, Option<&str>), Invalid> {
    let mut key = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"').ok_or_else(|| Invalid::new("a quote is not closed"))?;
        key.push_str(before);
        rest = match after.strip_prefix('"') {
            Some(after) => {
                key.push('"');
                after
            }
            None if after.is_empty() => return Ok((key, None)),
            None => {
                let after = after.strip_prefix('.').ok_or_else(|| {
                    Invalid::new("a closing quote is followed by text; write a dot after the quote")
                })?;
                return Ok((key, Some(after)));
            }
        };
    }
}

fn bare_key(text: &str) -> Result<(String, Option<&str>), Invalid> {
    let (key, after) = match text.split_once('.') {
        Some((key, after)) => (key, Some(after)),
        None => (text, None),
    };
    if key.contains('"') {
        Err(Invalid::new("quotes must enclose a whole key"))
    } else {
        Ok((key.to_owned(), after))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dots_in_quotes_do_not_separate_keys() {
        assert_eq!(read("version").unwrap(), ["version"]);
        assert_eq!(
            read(r#"plugins."io.containerd.grpc.v1.cri".sandbox_image"#).unwrap(),
            ["plugins", "io.containerd.grpc.v1.cri", "sandbox_image"]
        );
        assert_eq!(read(r#"a."b""c""#).unwrap(), ["a", "b\"c"]);
        assert_eq!(read("a.").unwrap(), ["a", ""]);
    }

    #[test]
    fn misplaced_quotes_are_rejected() {
        for path in ["", r#"a."b"#, r#"a."b"c"#, r#"a.b"c"#] {
            assert!(read(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_path_has_few_keys() {
        let path = |keys: usize| vec!["a"; keys].join(".");
        assert_eq!(read(&path(80)).unwrap().len(), 80);
        let problem = read(&path(100_000)).unwrap_err();
        assert_eq!(problem.to_string(), "has more than 80 keys; no containerd setting has such a long path");
    }

    proptest! {
        #[test]
        fn any_keys_survive_being_quoted(keys in prop::collection::vec("[a-z.\" ]{0,8}", 1..5)) {
            let quoted: Vec<String> =
                keys.iter().map(|key| format!("\"{}\"", key.replace('"', "\"\""))).collect();
            prop_assert_eq!(read(&quoted.join(".")), Ok(keys));
        }
    }
}
