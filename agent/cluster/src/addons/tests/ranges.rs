//! Tests of version ranges. Upstream's library computed the expected results in the grid.

use super::*;

fn has(range: &str, version: &str) -> bool {
    range.parse::<VersionRange>().unwrap().has(kubernetes(version))
}

#[test]
fn a_range_contains_versions_like_upstreams_library() {
    for (range, inside, outside) in [
        (">=1.6.0", &["1.6.0", "1.30.1"][..], &["1.5.9"][..]),
        ("<1.6.0", &["1.5.9"], &["1.6.0"]),
        (">=1.4.0 <1.6.0", &["1.4.0", "1.5.9"], &["1.6.0", "1.3.9"]),
        (">= 1.4.0  < 1.6.0", &["1.5.9"], &["1.6.0"]),
        (">1.4.0", &["1.4.1"], &["1.4.0"]),
        ("<=1.4.0", &["1.4.0"], &["1.4.1"]),
        ("1.4.0", &["1.4.0"], &["1.4.1"]),
        ("=1.4.0 || ==1.5.0", &["1.4.0", "1.5.0"], &["1.4.1"]),
        ("!=1.4.0", &["1.4.1"], &["1.4.0"]),
        ("!1.4.0", &["1.4.1"], &["1.4.0"]),
        ("1.4.x", &["1.4.0", "1.4.9"], &["1.5.0", "1.3.9"]),
        ("1.x", &["1.0.0", "1.99.0"], &["2.0.0"]),
        ("1.x.x", &["1.0.0"], &["1.1.0", "2.0.0"]),
        (">1.4.x", &["1.5.0"], &["1.4.9"]),
        (">=1.4.x", &["1.4.0"], &["1.3.9"]),
        ("<1.4.x", &["1.3.9"], &["1.4.0"]),
        ("<=1.4.x", &["1.4.9"], &["1.5.0"]),
        ("!=1.4.x", &[], &["1.3.0", "1.4.0", "1.5.0"]),
        (">=1.4.0-alpha.1", &["1.4.0"], &["1.3.9"]),
        ("<1.4.0-alpha.1", &["1.3.9"], &["1.4.0"]),
        ("<1.4.0+build", &["1.3.9"], &["1.4.0"]),
    ] {
        for version in inside {
            assert!(has(range, version), "{range} should have {version}");
        }
        for version in outside {
            assert!(!has(range, version), "{range} should not have {version}");
        }
    }
}

#[test]
fn an_invalid_range_is_an_error() {
    for range in [
        "newest",
        ">=",
        ">=1",
        ">=1.4",
        ">=1.04.0",
        "~1.4.0",
        "^1.4.0",
        ">=1.4.0 ||",
        "|| 1.4.0",
        "1.4.0-",
        "1.2.3.4",
        ">=1.4.0 && <2.0.0",
    ] {
        let problem = range.parse::<VersionRange>().unwrap_err().to_string();
        assert!(problem.contains(&format!("{range:?} is not a version range")), "{problem}");
    }
}

#[test]
fn the_version_of_an_api_server_is_read() {
    for (text, same) in [
        ("v1.36.1", "1.36.1"),
        (" 1.36 ", "1.36.0"),
        ("v1.36.0-rc.1+abc", "1.36.0"),
        ("v1.36.2-gke.100", "1.36.2"),
        ("1", "1.0.0"),
    ] {
        assert_eq!(kubernetes(text), kubernetes(same), "{text}");
    }
    for text in ["", "v", "main", "1.2.3.4", "1.x.0"] {
        assert_eq!(ServerVersion::parse(text), None, "{text}");
    }
}
