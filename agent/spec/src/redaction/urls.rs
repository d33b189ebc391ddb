//! The parts of a URL that may be credentials: its user and password, its query and its fragment.
//!
//! A password may contain any character, escaped or not. So a URL's login extends to the last `@` before a space, the
//! next URL or the quote around the URL. The scan reads the text once, so its time is linear in the length of a line.

use super::MARK;

const SCHEME: &str = "://";
/// The prefix of an image's digest. An `@` before this prefix is part of the image's name. It is not the end of a login.
const DIGEST: &str = "sha256:";

/// Replaces the credentials in all URLs of a text with marks.
pub fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SCHEME) {
        let (before, after) = rest.split_at(at + SCHEME.len());
        shown.push_str(before);
        let url = Url::at(&before[..at], after);
        if url.userinfo > 0 {
            shown.push_str(MARK);
        }
        let place = &after[url.userinfo..url.end];
        let Some(query) = place.find(['?', '#']) else {
            shown.push_str(place);
            rest = &after[url.end..];
            continue;
        };
        shown.push_str(&place[..=query]);
        // The query may contain another URL, so it may extend beyond `url.end`.
        let query = &after[url.userinfo + query + 1..];
        let length = query.find(ends_query).unwrap_or(query.len());
        if length > 0 {
            shown.push_str(MARK);
        }
        rest = &query[length..];
    }
    shown.push_str(rest);
    shown
}

/// Whether the whole text is one URL with a user or a password.
pub(super) fn is_with_login(text: &str) -> bool {
    text.split_once(SCHEME).is_some_and(|(scheme, after)| {
        !scheme.is_empty() && scheme.chars().all(is_of_scheme) && Url::at(scheme, after).userinfo > 0
    })
}

/// The passwords in all URLs of a text.
pub(super) fn passwords(text: &str) -> Vec<&str> {
    let mut passwords = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(SCHEME) {
        let after = &rest[at + SCHEME.len()..];
        let url = Url::at(&rest[..at], after);
        passwords.extend(password(&after[..url.userinfo]));
        rest = &after[url.end..];
    }
    passwords
}

fn password(userinfo: &str) -> Option<&str> {
    userinfo.split_once(':').map(|(_, password)| password).filter(|password| !password.is_empty())
}

/// Offsets in the part of a URL after its `://`.
struct Url {
    /// The end of the user and password, which is the offset of the `@`. 0 if the URL has no user and no password.
    userinfo: usize,
    /// The end of the URL. The URL's query may extend beyond this end.
    end: usize,
}

impl Url {
    fn at(before: &str, after: &str) -> Url {
        // The URL ends at a space, or before the scheme of the next URL.
        let next = after.find(SCHEME).unwrap_or(after.len());
        let space = after[..next].find(char::is_whitespace);
        let limit = space.unwrap_or_else(|| match next == after.len() {
            true => next,
            false => after[..next].trim_end_matches(is_of_scheme).len(),
        });
        let quote = before.trim_end_matches(is_of_scheme).chars().next_back().filter(|c| is_quote(*c));
        // A URL in quotes ends at the closing quote.
        let limit = match quote {
            Some(quote) => after[..limit].find([quote, '\\']).unwrap_or(limit),
            None => limit,
        };
        let all = &after[..limit];
        let authority = &all[..all.find(|c| matches!(c, '/' | '?' | '#') || ends_url(c)).unwrap_or(limit)];
        // A password may contain an unescaped `/`, `@` or quote, although this is not allowed.
        let last = all.rfind('@').filter(|at| !all[at + 1..].starts_with(DIGEST));
        let is_login = authority.contains(':') && !authority.starts_with('[');
        let at = last.filter(|_| is_login).or_else(|| authority.rfind('@')).unwrap_or(0);
        let end = all[at..].find(ends_query).map_or(limit, |end| at + end);
        Url { userinfo: at, end }
    }
}

fn is_of_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-')
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

fn ends_query(c: char) -> bool {
    c.is_whitespace() || is_quote(c) || matches!(c, '<' | '>' | '\\')
}

fn ends_url(c: char) -> bool {
    ends_query(c) || matches!(c, ',' | ';' | ')' | ']' | '}' | '|')
}
