//! The code and message of an error in a server's response. They distinguish different reasons for the same HTTP
//! status.

use aws_smithy_xml::decode::{Document, XmlDecodeError, try_data};
use kops_agent_spec::terminal::one_line;
use reqwest::Response;
use serde_json::Value;

use crate::http;

/// Maximum length of a code and of a message, in characters. Both are written to logs and to the record.
const LONGEST_WORDS: usize = 300;
/// Maximum number of bytes that are read of an error response.
const LONGEST_ERROR: usize = 64 * 1024;

/// The code and the message in a server's error response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The error code, such as `AccessDenied`. May be empty.
    pub code: String,
    /// The error message. May be empty.
    pub message: String,
}

impl Said {
    /// Shortens code and message, and makes each a single line.
    pub fn new(code: &str, message: &str) -> Said {
        let [code, message] = [code, message]
            .map(|words| one_line(&words.lines().collect::<Vec<_>>().join(" "), LONGEST_WORDS));
        Said { code: code.trim().to_owned(), message: message.trim().to_owned() }
    }

    pub async fn from_answer(answer: Response) -> Said {
        Said::of_body(&http::beginning(answer, LONGEST_ERROR, |_| false).await)
    }

    /// Reads the code and the message from a body in XML (`<Error><Code/><Message/></Error>`) or JSON. For any other
    /// body, the message is its text without tags.
    pub fn of_body(body: &[u8]) -> Said {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}').trim();
        let parsed = match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str::<Value>(text).ok().and_then(|error| of_json(&error)),
            Some(b'<') => of_xml(text).ok(),
            _ => None,
        };
        match parsed {
            Some((code, message)) if !(code.is_empty() && message.is_empty()) => Said::new(&code, &message),
            _ => Said::new("", &without_tags(text)),
        }
    }

    /// Whether the message contains `words`. Ignores case.
    pub fn mentions(&self, words: &str) -> bool {
        self.message.to_lowercase().contains(&words.to_lowercase())
    }

    /// `CODE: message`. An empty part is left out.
    pub fn in_words(&self) -> String {
        let words = [self.code.as_str(), self.message.as_str()];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

fn of_xml(text: &str) -> Result<(String, String), XmlDecodeError> {
    let mut document = Document::new(text);
    let mut root = document.root_element()?;
    let (mut code, mut message) = (String::new(), String::new());
    while let Some(mut tag) = root.next_tag() {
        match tag.start_el().local() {
            "Code" => code = try_data(&mut tag)?.into_owned(),
            "Message" => message = try_data(&mut tag)?.into_owned(),
            _ => {}
        }
    }
    Ok((code, message))
}

/// Reads three forms: `{"error": {"message", "status", "errors": [{"reason"}]}}`, `{"forbidden": {"message"}}` and
/// `{"error", "error_description"}`.
fn of_json(error: &Value) -> Option<(String, String)> {
    let about = error.as_object()?.values().find(|value| value["message"].is_string()).unwrap_or(error);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let code = text(&about["errors"][0]["reason"])
        .or_else(|| text(&about["status"]))
        .or_else(|| text(&error["error"]));
    let message = text(&about["message"]).or_else(|| text(&error["error_description"]));
    Some((code.unwrap_or_default(), message.unwrap_or_default()))
}

/// The text of a web page, without tags, scripts and styles.
fn without_tags(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        let hidden = ["script", "style"]
            .into_iter()
            .find(|name| tag.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)));
        let end = hidden.and_then(|name| tag.find(&format!("</{name}"))).unwrap_or_default();
        rest = tag[end..].split_once('>').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str, message: &str) -> Said {
        Said { code: code.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn the_code_and_message_of_each_kind_of_store_are_found() {
        for (body, expected) in [
            (
                "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Not &lt;allowed&gt;</Message><HostId>x</HostId></Error>",
                said("AccessDenied", "Not <allowed>"),
            ),
            (
                "\u{feff}<?xml version=\"1.0\"?><Error><Code>AuthorizationFailure</Code><Message>No.\nTime:1</Message></Error>",
                said("AuthorizationFailure", "No. Time:1"),
            ),
            (
                r#"{"error": {"code": 403, "message": "No access.", "errors": [{"message": "x", "reason": "forbidden"}]}}"#,
                said("forbidden", "No access."),
            ),
            (
                r#"{"error": {"code": 403, "message": "Off.", "status": "PERMISSION_DENIED"}}"#,
                said("PERMISSION_DENIED", "Off."),
            ),
            (r#"{"forbidden": {"message": "No.", "code": 403}}"#, said("", "No.")),
            (r#"{"error": "denied", "error_description": "No."}"#, said("denied", "No.")),
            (
                "<html><head><style>a { b }</style><title>403</title></head><body><h1>Access\n denied</h1><script>x<y</script> by the proxy</body>",
                said("", "403 Access denied by the proxy"),
            ),
            ("Caller does not have access.\r\n", said("", "Caller does not have access.")),
            ("{broken", said("", "{broken")),
            ("<", said("", "")),
            ("", said("", "")),
        ] {
            assert_eq!(Said::of_body(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn code_and_message_are_one_line_of_bounded_length() {
        let said = Said::new("Bad\u{1b}[2J", &format!("a\nb{}", "x".repeat(9000)));
        assert!(!said.code.contains('\u{1b}') && said.message.starts_with("a b"), "{said:?}");
        assert_eq!(said.message.chars().count(), LONGEST_WORDS);
    }
}
