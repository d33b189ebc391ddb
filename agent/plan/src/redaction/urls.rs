//! What of a URL lets one in: its user and password, its query and its fragment.

use super::MARK;

const SCHEME: &str = "://";

/// A text whose URLs have none of it.
pub(super) fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SCHEME) {
        let (before, after) = rest.split_at(at + SCHEME.len());
        shown.push_str(before);
        let url = &after[..after.find(ends_url).unwrap_or(after.len())];
        rest = &after[url.len()..];
        let userinfo = userinfo_end(url);
        if userinfo > 0 {
            shown.push_str(MARK);
        }
        let place = &url[userinfo..];
        match place.find(['?', '#']) {
            // Where nothing follows there is nothing to hide.
            Some(query) if query + 1 < place.len() => {
                shown.push_str(&place[..=query]);
                shown.push_str(MARK);
            }
            _ => shown.push_str(place),
        }
    }
    shown.push_str(rest);
    shown
}

/// The password of a URL that has one.
pub(super) fn password(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once(SCHEME)?;
    let userinfo = &rest[..userinfo_end(rest)];
    userinfo.split_once(':').map(|(_, password)| password).filter(|password| !password.is_empty())
}

/// Where user and password end, which is at an `@`; 0 where there are none.
fn userinfo_end(url: &str) -> usize {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    if let Some(at) = authority.rfind('@') {
        return at;
    }
    // A password with `/` in it, which should have been written otherwise: what stands after the colon is no port.
    let is_port = |port: &str| port.chars().all(|c| c.is_ascii_digit() || c == ']' || c == ':');
    match authority.split_once(':') {
        Some((host, port)) if !is_port(port) && !host.starts_with('[') => url.rfind('@').unwrap_or(0),
        _ => 0,
    }
}

fn ends_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '\\')
}
