//! URLs as plans, logs and errors show them.

/// A URL without the parts that may contain credentials: the user and password, the query and the fragment.
pub fn shown_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or(url);
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    // If the text after the last colon has letters, it is no port. It is a part of a password with an unescaped slash.
    let port = authority.rsplit_once(':').filter(|(host, _)| !host.starts_with('[')).map(|(_, port)| port);
    let is_login = port.is_some_and(|port| !port.bytes().all(|c| c.is_ascii_digit()));
    match rest.rsplit_once('@') {
        Some((_, after)) if is_login && !authority.contains('@') => format!("{scheme}://{after}"),
        _ => format!("{scheme}://{}{path}", authority.rsplit('@').next().unwrap_or(authority)),
    }
}

/// Splits an entry of `Assets` in nodeupconfig.yaml, `sha256@url[,mirror…]`, into the hash and the URLs. The hash is `None` if the entry
/// has no hash. A URL may also contain an `@`, before the host.
pub fn hash_and_urls(entry: &str) -> (Option<&str>, &str) {
    match entry.split_once('@') {
        Some((hash, urls)) if !hash.contains("://") => (Some(hash), urls),
        _ => (None, entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_hidden() {
        const SHOWN: &str = "https://mirror.example.com:8443/a/kubelet";
        assert_eq!(shown_url("https://user:token@mirror.example.com:8443/a/kubelet?sig=abc#x"), SHOWN);
        for plain in [SHOWN, "s3://bucket/a@b", "https://host", "no URL"] {
            assert_eq!(shown_url(plain), plain);
        }
        assert_eq!(shown_url("https://robot:p/ss@mirror.example.com/a"), "https://mirror.example.com/a");
        assert_eq!(shown_url("https://[fd00::1]:8443/a@b"), "https://[fd00::1]:8443/a@b");
    }
}
