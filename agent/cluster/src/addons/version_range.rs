//! Ranges of Kubernetes versions in channels: `>=1.30.0 <1.34.0 || 1.36.x`.
//!
//! Source: `ParseRange` and `ParseTolerant` of github.com/blang/semver/v4, which upstream uses.

use std::cmp::Ordering;
use std::str::FromStr;

use kops_agent_spec::invalid::Invalid;

/// The version of an API server without its pre-release: `1.36.0-rc.1` becomes `1.36.0`, as in upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    core: [u64; 3],
}

impl ServerVersion {
    /// Reads `gitVersion` of the API server's `/version`. Returns `None` if the text is not a version.
    pub fn parse(git_version: &str) -> Option<ServerVersion> {
        let text = git_version.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let core = text.split(['-', '+']).next()?;
        let mut numbers = core.split('.').map(str::parse::<u64>);
        let mut next = || numbers.next().unwrap_or(Ok(0)).ok();
        let version = ServerVersion { core: [next()?, next()?, next()?] };
        numbers.next().is_none().then_some(version)
    }
}

/// A range of versions. A version is in the range if all comparisons of one alternative hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    alternatives: Vec<Vec<Comparison>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparison {
    operator: Operator,
    core: [u64; 3],
    /// Whether the compared version is a pre-release. A pre-release is lower than every server version with the same numbers.
    is_pre_release: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl VersionRange {
    pub fn has(&self, version: ServerVersion) -> bool {
        self.alternatives.iter().any(|all| all.iter().all(|comparison| comparison.holds(version)))
    }
}

impl FromStr for VersionRange {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<VersionRange, Invalid> {
        let alternatives: Result<Vec<_>, String> = text.split("||").map(alternative).collect();
        alternatives.map(|alternatives| VersionRange { alternatives }).map_err(|problem| {
            Invalid::new(format!("{text:?} is not a version range such as \">=1.30.0 <1.34.0\": {problem}"))
        })
    }
}

fn alternative(text: &str) -> Result<Vec<Comparison>, String> {
    let mut comparisons = Vec::new();
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        // A space may separate an operator from its version.
        match is_operator(word) {
            true => comparisons.extend(comparison(&format!("{word}{}", words.next().unwrap_or_default()))?),
            false => comparisons.extend(comparison(word)?),
        }
    }
    match comparisons.is_empty() {
        true => Err("a side of || is empty".to_owned()),
        false => Ok(comparisons),
    }
}

fn is_operator(word: &str) -> bool {
    word.ends_with(['<', '>', '='])
}

/// The comparisons that one word of a version range stands for. A version with an `x` is itself a range, so one word may stand for two
/// comparisons.
fn comparison(word: &str) -> Result<Vec<Comparison>, String> {
    let at = word.find(|c: char| c.is_ascii_digit()).ok_or_else(|| format!("{word:?} has no version"))?;
    let (operator, version) = word.split_at(at);
    let operator = match operator {
        "" | "=" | "==" => Operator::Is,
        "!" | "!=" => Operator::IsNot,
        ">" => Operator::Above,
        ">=" => Operator::AtLeast,
        "<" => Operator::Below,
        "<=" => Operator::AtMost,
        other => return Err(format!("{other:?} is not a comparison operator")),
    };
    match wildcard(version) {
        Some((first, after)) => Ok(expanded(operator, first, after)),
        None => {
            let (core, is_pre_release) = exact(version)?;
            Ok(vec![Comparison { operator, core, is_pre_release }])
        }
    }
}

/// Expands a comparison with `1.2.x` or `1.x`. `first` is the first version of the range, `after` the first version after it. The rule for
/// `!=` is upstream's: both comparisons must hold, so no version matches.
fn expanded(operator: Operator, first: [u64; 3], after: [u64; 3]) -> Vec<Comparison> {
    let of = |operator, core| Comparison { operator, core, is_pre_release: false };
    match operator {
        Operator::Is => vec![of(Operator::AtLeast, first), of(Operator::Below, after)],
        Operator::IsNot => vec![of(Operator::Below, first), of(Operator::AtLeast, after)],
        Operator::Above => vec![of(Operator::AtLeast, after)],
        Operator::AtLeast => vec![of(Operator::AtLeast, first)],
        Operator::Below => vec![of(Operator::Below, first)],
        Operator::AtMost => vec![of(Operator::Below, after)],
    }
}

/// The first version of `1.2.x`, `1.x` or `1.x.x`, and the first version after that range.
fn wildcard(version: &str) -> Option<([u64; 3], [u64; 3])> {
    let parts: Vec<&str> = version.split('.').collect();
    match parts[..] {
        [major, "x"] => {
            let major = number(major)?;
            Some(([major, 0, 0], [major.checked_add(1)?, 0, 0]))
        }
        // Upstream's library reads `1.x.x` as `1.0.x`.
        [major, "x", "x"] => {
            let major = number(major)?;
            Some(([major, 0, 0], [major, 1, 0]))
        }
        [major, minor, "x"] => {
            let (major, minor) = (number(major)?, number(minor)?);
            Some(([major, minor, 0], [major, minor.checked_add(1)?, 0]))
        }
        _ => None,
    }
}

/// Reads a full version. Also returns whether it is a pre-release.
fn exact(version: &str) -> Result<([u64; 3], bool), String> {
    let wrong = || format!("{version:?} is not a version of three numbers");
    let without_build = version.split_once('+').map_or(version, |(before, _)| before);
    let (core, pre_release) =
        without_build.split_once('-').map_or((without_build, None), |(core, pre)| (core, Some(pre)));
    let mut parts = core.split('.').map(number);
    let mut next = || parts.next().flatten().ok_or_else(wrong);
    let core = [next()?, next()?, next()?];
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    match parts.next().is_some() || pre_release.is_some_and(|pre| !pre.split('.').all(is_word)) {
        true => Err(wrong()),
        false => Ok((core, pre_release.is_some())),
    }
}

/// Reads a number without leading zeros, as semantic versioning requires.
fn number(text: &str) -> Option<u64> {
    let is_one = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_one { text.parse().ok() } else { None }
}

impl Comparison {
    fn holds(&self, version: ServerVersion) -> bool {
        let order = version.core.cmp(&self.core);
        // A server version is greater than a pre-release with the same numbers.
        let order = if order.is_eq() && self.is_pre_release { Ordering::Greater } else { order };
        match self.operator {
            Operator::Is => order.is_eq(),
            Operator::IsNot => order.is_ne(),
            Operator::Above => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
            Operator::Below => order.is_lt(),
            Operator::AtMost => order.is_le(),
        }
    }
}
