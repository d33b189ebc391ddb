//! URLs as people are shown them, in plans, logs and errors.

/// A URL without what is secret in it: without the user and password, the query and the fragment, each of which may let
/// one in.
pub fn shown_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or(url);
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lets_one_in_is_not_told() {
        const SHOWN: &str = "https://mirror.example.com:8443/a/kubelet";
        assert_eq!(shown_url("https://user:token@mirror.example.com:8443/a/kubelet?sig=abc#x"), SHOWN);
        for plain in [SHOWN, "s3://bucket/a@b", "https://host", "no URL"] {
            assert_eq!(shown_url(plain), plain);
        }
    }
}
