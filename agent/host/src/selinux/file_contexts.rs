//! Finds the label that SELinux's policy gives a path, from the files that `restorecon` reads.
//!
//! Source: file_contexts(5), selabel_file(5), and libselinux's label_file.c for the precedence of rules.

use std::sync::OnceLock;

use regex_lite::Regex;

/// The kinds of files that the agent labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Directory,
    Symlink,
}

/// The special characters of a regular expression. After a backslash, they are literal.
const META: [char; 13] = ['.', '^', '$', '?', '*', '+', '|', '[', '(', '{', ']', ')', '}'];
/// Characters besides `META` that may follow a backslash in the rule of a single path.
const ESCAPED: [char; 3] = ['-', '_', ','];

/// The rules of a policy.
#[derive(Debug, Default)]
pub(super) struct FileContexts {
    /// The rules of single paths. They take precedence over patterns.
    single: Vec<(String, Rule)>,
    patterns: Vec<Pattern>,
    /// Paths that get the labels of other paths: the machine's own aliases, and the distribution's aliases.
    aliases: [Vec<(String, String)>; 2],
}

#[derive(Debug)]
struct Rule {
    /// The kind of files to which the rule applies; `None` for all kinds.
    of: Option<Kind>,
    /// The label of the files that match the rule. `None` if the rule gives them no label.
    label: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Made(FileKind),
    /// A device, a socket or a pipe.
    Special,
}

#[derive(Debug)]
struct Pattern {
    /// The literal text at the beginning of every matching path.
    beginning: String,
    text: String,
    /// The regular expression, compiled on first use. `None` if the `regex` crate does not support the rule.
    regex: OnceLock<Option<Regex>>,
    rule: Rule,
}

impl FileContexts {
    /// Parses a policy. `rules` are the texts of `file_contexts`, `file_contexts.homedirs` and `file_contexts.local`, in this order. `subs`
    /// and `subs_dist` are the texts of `file_contexts.subs` and `file_contexts.subs_dist`.
    pub(super) fn parse(rules: &[&str], subs: &str, subs_dist: &str) -> FileContexts {
        let aliases = [aliases(subs), aliases(subs_dist)];
        let mut contexts = FileContexts { aliases, ..FileContexts::default() };
        for (text, rule) in rules.iter().flat_map(|rules| rules.lines()).filter_map(rule) {
            match single_path(text) {
                Ok(path) => contexts.single.push((path, rule)),
                Err(beginning) => contexts.patterns.push(Pattern {
                    beginning,
                    text: text.to_owned(),
                    regex: OnceLock::new(),
                    rule,
                }),
            }
        }
        contexts
    }

    /// The label for an absolute path; `None` if the policy has no label for the path.
    pub(super) fn label(&self, path: &str, kind: FileKind) -> Option<&str> {
        let [own, distribution] = &self.aliases;
        let path = substituted(distribution, substituted(own, clean(path)));
        let is_for = |rule: &Rule| rule.of.is_none_or(|of| of == Kind::Made(kind));
        // If several rules match, the last rule counts.
        let single = self.single.iter().rev().find(|(of, rule)| *of == path && is_for(rule));
        let rule = single.map(|(_, rule)| rule).or_else(|| {
            let patterns = self.patterns.iter().rev().filter(|pattern| is_for(&pattern.rule));
            patterns.into_iter().find(|pattern| pattern.fits(&path)).map(|pattern| &pattern.rule)
        });
        rule?.label.as_deref()
    }
}

impl Pattern {
    fn fits(&self, path: &str) -> bool {
        path.starts_with(&self.beginning) && self.regex().is_some_and(|regex| regex.is_match(path))
    }

    fn regex(&self) -> Option<&Regex> {
        let compile = || match Regex::new(&format!("(?s)^{}$", self.text)) {
            Ok(regex) => Some(regex),
            Err(error) => {
                log::debug!("the SELinux policy's rule for {} is passed over: {error}", self.text);
                None
            }
        };
        self.regex.get_or_init(compile).as_ref()
    }
}

/// Parses a rule, which consists of a regular expression, an optional kind, and a label.
fn rule(line: &str) -> Option<(&str, Rule)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (text, kind, label) = match words[..] {
        [text, ..] if text.starts_with('#') => return None,
        [text, label] => (text, None, label),
        [text, kind, label] => (text, Some(kind), label),
        _ => return None,
    };
    let of = match kind {
        None => None,
        Some("--") => Some(Kind::Made(FileKind::File)),
        Some("-d") => Some(Kind::Made(FileKind::Directory)),
        Some("-l") => Some(Kind::Made(FileKind::Symlink)),
        Some("-b" | "-c" | "-p" | "-s") => Some(Kind::Special),
        Some(_) => return None,
    };
    Some((text, Rule { of, label: (label != "<<none>>").then(|| label.to_owned()) }))
}

/// The only path that a regular expression matches. If it matches several paths, the error is the literal text with which every match
/// begins.
fn single_path(text: &str) -> Result<String, String> {
    let mut path = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped) if META.contains(&escaped) || ESCAPED.contains(&escaped) => path.push(escaped),
                _ => break,
            },
            meta if META.contains(&meta) => {
                if matches!(meta, '?' | '*' | '{') {
                    // The character before `?`, `*` or `{` is optional.
                    path.pop();
                }
                return Err(if is_choice(text) { String::new() } else { path });
            }
            other => path.push(other),
        }
        if characters.as_str().is_empty() {
            return Ok(path);
        }
    }
    Err(if is_choice(text) { String::new() } else { path })
}

/// Whether a regular expression has alternatives outside of all groups.
fn is_choice(text: &str) -> bool {
    let (mut depth, mut is_in_class) = (0, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            ']' => is_in_class = false,
            _ if is_in_class => {}
            '[' => is_in_class = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Parses pairs of paths, one pair a line. Returns the last pair first, because the last matching pair counts.
fn aliases(text: &str) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let mut words =
            line.split_whitespace().filter(|word| !line.trim_start().starts_with('#') && !word.is_empty());
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let mut pairs: Vec<_> = text.lines().filter_map(pair).collect();
    pairs.reverse();
    pairs
}

fn substituted(aliases: &[(String, String)], path: String) -> String {
    for (alias, of) in aliases {
        if let Some(rest) = path.strip_prefix(alias.as_str())
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return format!("{}{rest}", if of == "/" && !rest.is_empty() { "" } else { of });
        }
    }
    path
}

/// The path without empty components.
fn clean(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules in the style of Fedora's policy.
    const RULES: &str = "
# a comment
/.*                                     system_u:object_r:default_t:s0
/etc/.*                                 system_u:object_r:etc_t:s0
/etc/kubernetes(/.*)?                   system_u:object_r:kubernetes_file_t:s0
/etc/hosts              --              system_u:object_r:net_conf_t:s0
/usr/(.*/)?bin(/.*)?                    system_u:object_r:bin_t:s0
/usr/s?bin/kubelet.*    --              system_u:object_r:kubelet_exec_t:s0
/usr/bin/.*             -l              system_u:object_r:link_t:s0
/var/lib/kubelet(/.*)?                  system_u:object_r:container_var_lib_t:s0
/var/lib/kubelet/pods   -s              system_u:object_r:socket_t:s0
/etc/my\\.conf                          system_u:object_r:my_conf_t:s0
/run/.*                                 <<none>>
/opt/[^/]+/bin(/.*)?|/srv/bin           system_u:object_r:bin_t:s0
";

    fn contexts() -> FileContexts {
        FileContexts::parse(
            &[RULES],
            "/cni /usr/local/cni\n",
            "# these\n/usr/local /usr\n/var/run /run\n/sysroot /\n",
        )
    }

    #[track_caller]
    fn has(path: &str, kind: FileKind, kind_of_label: Option<&str>) {
        let contexts = contexts();
        let label = contexts.label(path, kind).map(|label| label.split(':').nth(2).unwrap());
        assert_eq!(label, kind_of_label, "{path}");
    }

    #[test]
    fn the_last_match_wins_and_a_single_path_wins_over_patterns() {
        use FileKind::{Directory, File, Symlink};
        has("/x", File, Some("default_t"));
        has("/etc/x", File, Some("etc_t"));
        has("/etc/kubernetes", Directory, Some("kubernetes_file_t"));
        has("/etc/kubernetes/manifests/x.yaml", File, Some("kubernetes_file_t"));
        has("/etc/kubernetes.conf", File, Some("etc_t"));
        has("/etc/hosts", File, Some("net_conf_t"));
        has("/etc/hosts", Directory, Some("etc_t"));
        has("//etc//hosts/", File, Some("net_conf_t"));
        has("/usr/libexec/bin/x", File, Some("bin_t"));
        has("/usr/bin/kubelet", File, Some("kubelet_exec_t"));
        has("/usr/sbin/kubelet", File, Some("kubelet_exec_t"));
        has("/usr/bin/kubelet", Symlink, Some("link_t"));
        has("/var/lib/kubelet/pods", Directory, Some("container_var_lib_t"));
        has("/etc/my.conf", File, Some("my_conf_t"));
        has("/etc/myxconf", File, Some("etc_t"));
        has("/opt/cni/bin/bridge", File, Some("bin_t"));
        has("/srv/bin", Directory, Some("bin_t"));
    }

    #[test]
    fn a_path_without_a_rule_gets_no_label() {
        has("/run/x", FileKind::File, None);
        assert_eq!(FileContexts::default().label("/x", FileKind::File), None);
    }

    #[test]
    fn aliases_of_paths_are_substituted() {
        has("/usr/local/bin/kubelet", FileKind::File, Some("kubelet_exec_t"));
        has("/usr/localized", FileKind::File, Some("default_t"));
        has("/var/run/x", FileKind::File, None);
        has("/cni/bin/x", FileKind::File, Some("bin_t"));
        has("/sysroot/etc/hosts", FileKind::File, Some("net_conf_t"));
        let twice = FileContexts::parse(
            &["/first/x u:r:first_t:s0\n/second/x u:r:second_t:s0"],
            "",
            "/a /first\n/a /second",
        );
        assert_eq!(twice.label("/a/x", FileKind::File), Some("u:r:second_t:s0"));
    }

    #[test]
    fn local_rules_come_after_the_policys_rules() {
        let contexts =
            FileContexts::parse(&[RULES, "", "/etc/kubernetes/own(/.*)?  u:object_r:own_t:s0"], "", "");
        assert_eq!(contexts.label("/etc/kubernetes/own/x", FileKind::File), Some("u:object_r:own_t:s0"));
    }

    #[test]
    fn unreadable_rules_are_skipped() {
        let contexts = FileContexts::parse(
            &["/a(?=b).* x:x:lookahead_t:s0\n/a.* -? x:x:x_t:s0\n/a\n/a.*b x:x:a_t:s0"],
            "/x",
            "",
        );
        assert_eq!(contexts.label("/ab", FileKind::File), Some("x:x:a_t:s0"));
    }

    #[test]
    fn the_literal_beginning_of_a_rule_is_found() {
        for (text, beginning) in [
            ("/a/b.*", "/a/b"),
            ("/a/bc?", "/a/b"),
            ("/a(b|c)", "/a"),
            ("/a[(]|/b", ""),
            ("/a?|/b", ""),
            ("/a\\(.|/b", ""),
            ("/a\\.b.*", "/a.b"),
            ("/a\\d", "/a"),
        ] {
            assert_eq!(single_path(text), Err(beginning.to_owned()), "{text}");
        }
        assert_eq!(single_path("/a\\.b\\+\\-"), Ok("/a.b+-".to_owned()));
    }
}
