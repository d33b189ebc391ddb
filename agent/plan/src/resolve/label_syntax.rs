//! Checks that the API server accepts the keys and values of labels and taints.

use kops_agent_cluster::labels::{LONGEST, is_domain, is_name};
use kops_agent_spec::invalid::Invalid;

/// Checks the key of a label or taint: a name, or `domain/name`.
pub(super) fn check_key(key: &str) -> Result<(), Invalid> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    if is_name(name) && domain.is_none_or(is_domain) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "{key:?} is no key that the API server accepts; a key is NAME or DOMAIN/NAME. NAME has at most {LONGEST} letters, \
         digits, '-', '_' and '.', and begins and ends with a letter or digit; DOMAIN is a DNS name in lower case"
    )))
}

/// Checks the value of a label or taint. An empty value is valid.
pub(super) fn check_value(value: &str) -> Result<(), Invalid> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "{value:?} is no value that the API server accepts; a value is empty, or has at most {LONGEST} letters, digits, '-', \
         '_' and '.', and begins and ends with a letter or digit"
    )))
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
