//! Secrets that their form tells: keys of clouds and of other services, bootstrap tokens, what follows `Bearer`, and
//! `user:password` without a URL about it.

use super::MARK;

/// What tokens of services begin with.
const BEGINNINGS: [&str; 11] = [
    "dop_v1_",
    "doo_v1_",
    "dor_v1_",
    "ghp_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hvs.",
    "xoxb-",
    "xoxp-",
    "xapp-",
];
/// How long the id of an access key of AWS is, and what it begins with.
const ACCESS_KEY: (usize, [&str; 2]) = (20, ["AKIA", "ASIA"]);
/// How long the two parts of a bootstrap token of Kubernetes are.
const BOOTSTRAP_TOKEN: (usize, usize) = (6, 16);
/// A token is not shorter where only the word before it says that it is one.
const SHORTEST: usize = 8;

/// A text without them.
pub(super) fn without_tokens(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let (mut rest, mut before) = (text, "");
    while let Some(begin) = rest.find(is_of_token) {
        let token = &rest[begin..];
        let token = &token[..token.find(|c| !is_of_token(c)).unwrap_or(token.len())];
        shown.push_str(&rest[..begin]);
        rest = &rest[begin + token.len()..];
        let hidden = hidden_of(token, before);
        shown.push_str(&token[..token.len() - hidden]);
        if hidden > 0 {
            shown.push_str(MARK);
        }
        before = token;
    }
    shown.push_str(rest);
    shown
}

fn is_of_token(c: char) -> bool {
    !c.is_whitespace()
        && !matches!(c, '"' | '\'' | ',' | ';' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '=' | '`')
}

/// How much of the end of a word is hidden. `before` is the word before it.
fn hidden_of(token: &str, before: &str) -> usize {
    let bare = token.trim_end_matches(['.', ':', '!', '?']);
    let is_after_scheme = matches!(before, "Bearer" | "Basic")
        && bare.len() >= SHORTEST
        && bare.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
    if is_after_scheme || is_known_form(bare) {
        return token.len();
    }
    // `user:password`, of curl's flag and before an `@`; a digest of an image is no host.
    let is_login = match token.rsplit_once('@') {
        Some((user, host)) => {
            user.contains(':') && !host.is_empty() && !host.starts_with("sha256:") && !token.contains("://")
        }
        None => matches!(before, "-u" | "--user"),
    };
    let password = token.split_once(':').filter(|_| is_login);
    password.map_or(0, |(_, password)| password.len())
}

fn is_known_form(token: &str) -> bool {
    let is_access_key = token.len() == ACCESS_KEY.0
        && ACCESS_KEY.1.iter().any(|begin| token.starts_with(begin))
        && token.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let is_part = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let is_bootstrap_token = token.split_once('.').is_some_and(|(id, secret)| {
        is_part(id, BOOTSTRAP_TOKEN.0)
            && is_part(secret, BOOTSTRAP_TOKEN.1)
            && secret.contains(|c: char| c.is_ascii_digit())
    });
    let is_of_service = BEGINNINGS.iter().any(|begin| token.len() > begin.len() && token.starts_with(begin));
    is_access_key || is_bootstrap_token || is_of_service
}
