//! Secrets: `secrets/<id>`, a token or a file with restricted access.

use std::fmt;

use serde::Deserialize;

use super::error::SpecError;
use super::keyset::Base64;
use super::yaml::parse_yaml;

/// A secret. Debug output does not show its content, and it cannot be serialized.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

#[derive(Deserialize)]
struct File {
    #[serde(rename = "Data")]
    data: Base64,
}

impl Secret {
    /// Reads a file in `secrets/`, which is JSON of the form `{"Data": base64}` (upstream: `upup/pkg/fi/secrets.go`). Errors contain `url`,
    /// but never the content.
    pub fn parse(text: &[u8], url: &str) -> Result<Secret, SpecError> {
        let File { data: Base64(data) } = parse_yaml(text, url)?;
        Ok(Secret(data))
    }

    /// Makes a secret from bytes that are not from the store, such as a secret that kops-controller sends.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(bytes)
    }

    /// The bytes of the secret. Call this function only to write the bytes to their destination.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const URL: &str = "s3://clusters/c.example.com/secrets/admin";

    #[test]
    fn a_secret_is_decoded_and_hidden() {
        let secret = Secret::parse(br#"{"Data":"aHVzaA=="}"#, URL).unwrap();
        assert_eq!(secret.expose(), b"hush");
        assert_eq!(format!("{secret:?}"), "Secret(redacted)");
    }

    #[test]
    fn errors_do_not_show_the_secret() {
        for text in
            [r#"{"Data":"hush!"}"#, r#"{"Data":["hush"]}"#, r#"["hush"]"#, r#"{"data":"hush"}"#, "hush"]
        {
            let error = Secret::parse(text.as_bytes(), URL).unwrap_err().to_string();
            assert!(error.contains(URL) && !error.contains("hush"), "{error}");
        }
    }
}
