//! Names and values of labels and taints, as the API server accepts them (`IsQualifiedName` and `IsValidLabelValue` in
//! k8s.io/apimachinery/pkg/util/validation).

/// The most characters that a name, and a value, may have.
const LONGEST: usize = 63;
/// The most characters that the domain before the `/` of a key may have.
const LONGEST_DOMAIN: usize = 253;

/// Whether it is a key: a name, or `domain/name`.
///
/// # Errors
/// What a key looks like.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    if is_word(name) && domain.is_none_or(is_domain) {
        return Ok(());
    }
    Err(format!(
        "{key:?} is no key that the API server accepts; a key is NAME or DOMAIN/NAME. NAME has at most {LONGEST} letters, \
         digits, '-', '_' and '.', and begins and ends with a letter or digit; DOMAIN has lower-case letters only"
    ))
}

/// Whether it is a value; empty is one.
///
/// # Errors
/// What a value looks like.
pub(super) fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_word(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is no value that the API server accepts; a value is empty, or has at most {LONGEST} letters, digits, '-', \
         '_' and '.', and begins and ends with a letter or digit"
    ))
}

fn is_word(word: &str) -> bool {
    let ends_well = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    word.len() <= LONGEST
        && ends_well(word.chars().next())
        && ends_well(word.chars().last())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// A DNS subdomain of RFC 1123.
fn is_domain(domain: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_edge) && part.ends_with(is_edge) && part.chars().all(|c| is_edge(c) || c == '-')
    };
    domain.len() <= LONGEST_DOMAIN && domain.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_with_or_without_a_domain() {
        let long = "a".repeat(63);
        for key in ["a", "A_b.c-1", "kops.k8s.io/gpu", "node-role.kubernetes.io/node", "a/B", &long] {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        for key in ["", "a b", "-a", "a-", "a/", "/a", "A.b/c", "a..b/c", "a/b/c", "ä", &format!("{long}a")]
        {
            assert!(check_key(key).is_err(), "{key}");
        }
    }

    #[test]
    fn values_may_be_empty() {
        for value in ["", "true", "1.34.0", "a_B-c"] {
            assert_eq!(check_value(value), Ok(()), "{value}");
        }
        for value in ["a/b", "a b", ".a", "a.", &"a".repeat(64)] {
            assert!(check_value(value).is_err(), "{value}");
        }
    }
}
