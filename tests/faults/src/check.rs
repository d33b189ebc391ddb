//! Finds the problems of a tree after a fault.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _};

use super::tree::{Body, Node, Tree};
use kops_agent_tests::example_keys::TOKEN_MARK;

/// The folder of the agent's own state.
const NOTES: &str = "var/lib/kops-agent";
/// The folder in which the agent caches downloads.
const CACHE: &str = "var/cache/nodeup";
/// The suffix of temporary names. A file has a temporary name until it is complete.
const TEMPORARY: &str = ".kops-agent";
/// Files of up to this size, in bytes, are searched for secrets. No larger file contains a secret.
const LARGEST_SECRET: usize = 1 << 20;
/// A sequence of letters and digits of this length or more counts as random data.
const SHORTEST_RANDOM: usize = 40;

/// Whether a private key or a token is in a file that others may read.
pub fn shows_a_secret(node: &Node) -> bool {
    let Body::File(bytes) = &node.body else { return false };
    let has = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    node.mode & 0o077 != 0
        && bytes.len() <= LARGEST_SECRET
        && (has(b"PRIVATE KEY-----") || has(b"client-key-data:") || has(TOKEN_MARK.as_bytes()))
}

/// Whether a path is one of the agent's two folders, a path in them, or a parent of its cache. The agent creates these folders
/// when it needs them.
pub fn is_own(path: &str) -> bool {
    let is_in =
        |own: &str| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_in(NOTES) || is_in(CACHE) || CACHE.starts_with(&format!("{path}/"))
}

pub(super) fn is_temporary(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with('.') && name.ends_with(TEMPORARY)
}

/// The state of a machine before a run, and its expected state after the run.
#[derive(Clone, Debug)]
pub struct Expected {
    before: Tree,
    wanted: Tree,
    /// The state that the run reaches before a rollback. `None` if the run does not roll back.
    tried: Option<Tree>,
    /// Files with new random content in every run. Comparisons ignore the random data in these files.
    random: BTreeSet<String>,
}

impl Expected {
    /// `wanted` and `again` are the results of two undisturbed runs on `before`. A file that differs between them has random
    /// content.
    pub fn new(before: Tree, wanted: Tree, again: &Tree) -> Expected {
        let again = again.entries();
        let random = wanted
            .entries()
            .into_iter()
            .filter(|(path, node)| !is_own(path) && again.get(path).is_some_and(|one| one.body != node.body))
            .filter(|(_, node)| matches!(node.body, Body::File(_)))
            .map(|(path, _)| path)
            .collect();
        Expected { before, wanted, tried: None, random }
    }

    /// Sets the state that the run reaches before a rollback.
    pub fn trying(self, tried: Tree) -> Expected {
        Expected { tried: Some(tried), ..self }
    }

    /// A copy in which the files in `more` may also have new random content.
    pub fn with_random(&self, more: &BTreeSet<String>) -> Expected {
        Expected { random: self.random.union(more).cloned().collect(), ..self.clone() }
    }

    /// The paths whose contents differ between two trees, as messages. Ignores the agent's own paths.
    pub fn differences(one: &Tree, other: &Tree) -> Vec<String> {
        let (one, other) = (one.entries(), other.entries());
        let paths: BTreeSet<&String> = one.keys().chain(other.keys()).filter(|path| !is_own(path)).collect();
        let body =
            |tree: &BTreeMap<String, &Node>, path: &String| tree.get(path).map(|node| node.body.clone());
        let is_file = |body: &Option<Body>| !matches!(body, Some(Body::Directory(_)));
        paths
            .into_iter()
            .map(|path| (path, body(&one, path), body(&other, path)))
            .filter(|(_, one, other)| one != other && (is_file(one) || is_file(other)))
            .map(|(path, ..)| format!("/{path} has changed once more"))
            .collect()
    }

    pub fn wanted(&self) -> &Tree {
        &self.wanted
    }

    pub fn random(&self) -> &BTreeSet<String> {
        &self.random
    }

    /// The problems of a tree after a fault. Each file without a temporary name must have one of three contents: the content before the
    /// run, the content after the run, or the content before the rollback.
    pub fn half_done(&self, tree: &Tree) -> Vec<String> {
        let (before, wanted, now) = (self.before.entries(), self.wanted.entries(), tree.entries());
        let tried = self.tried.as_ref().map(Tree::entries).unwrap_or_default();
        let mut wrong = shown(&now);
        for (path, node) in now.iter().filter(|(path, _)| !is_own(path) && !is_temporary(path)) {
            let is_right =
                |then: Option<&&Node>| then.is_some_and(|then| self.is_same_content(path, then, node));
            if !is_right(before.get(path)) && !is_right(wanted.get(path)) && !is_right(tried.get(path)) {
                let was_known = before.contains_key(path) || wanted.contains_key(path);
                let what = if was_known { "neither as it was nor as it is to be" } else { "of no use" };
                wrong.push(format!("/{path} is {what} ({})", describe(node)));
            }
        }
        for path in before.keys().filter(|path| !is_own(path)) {
            if wanted.contains_key(path) && !now.contains_key(path) {
                wrong.push(format!("/{path} is gone"));
            }
        }
        wrong
    }

    /// The problems of a tree after a run that converged.
    pub fn not_converged(&self, tree: &Tree) -> Vec<String> {
        let (wanted, now) = (self.wanted.entries(), tree.entries());
        let mut wrong = shown(&now);
        for path in wanted.keys().filter(|path| !is_own(path) && !now.contains_key(*path)) {
            wrong.push(format!("/{path} is not there"));
        }
        for (path, node) in &now {
            match wanted.get(path) {
                _ if is_temporary(path) => wrong.push(format!("/{path} is left behind")),
                _ if is_own(path) => {}
                None => wrong.push(format!("/{path} is not wanted")),
                Some(then) if !self.is_same_content(path, then, node) => {
                    wrong.push(format!("/{path} has another content ({})", describe(node)));
                }
                Some(then) if (then.mode, then.owner) != (node.mode, node.owner) => {
                    wrong.push(format!("/{path} has mode {:o} and owner {:?}", node.mode, node.owner));
                }
                Some(_) => {}
            }
        }
        wrong.extend(self.random.iter().filter_map(|path| apart(path, &now)));
        wrong
    }

    fn is_same_content(&self, path: &str, one: &Node, other: &Node) -> bool {
        match (&one.body, &other.body) {
            (Body::Directory(_), Body::Directory(_)) => true,
            (Body::File(one), Body::File(other)) if self.random.contains(path) => form(one) == form(other),
            (one, other) => one == other,
        }
    }
}

fn describe(node: &Node) -> String {
    match &node.body {
        Body::File(bytes) => format!("a file of {} bytes, mode {:o}", bytes.len(), node.mode),
        Body::Directory(_) => format!("a directory, mode {:o}", node.mode),
        Body::Symlink(target) => format!("a link to {target}"),
    }
}

fn shown(entries: &BTreeMap<String, &Node>) -> Vec<String> {
    let shown = entries.iter().filter(|(_, node)| shows_a_secret(node));
    shown.map(|(path, node)| format!("/{path} has a key or a token in it and mode {:o}", node.mode)).collect()
}

/// The content of a file, in which `…` replaces random data. Random data is a long sequence of letters and digits, which may span several
/// lines.
pub(super) fn form(bytes: &[u8]) -> String {
    let is_digit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<&str> = Vec::new();
    let mut is_in_block = false;
    for line in text.split_inclusive('\n') {
        let end = line.trim_end().trim_end_matches(is_digit).len();
        let is_random = line.trim_end().len() - end >= SHORTEST_RANDOM;
        // The last line of a PEM block may be shorter than `SHORTEST_RANDOM`, but is random data too.
        match is_random || (is_in_block && end == 0) {
            true if end == 0 => {
                if !is_in_block {
                    lines.push("…");
                }
                is_in_block = true;
            }
            true => {
                lines.extend([&line[..end], "…"]);
                is_in_block = false;
            }
            false => {
                lines.push(line);
                is_in_block = false;
            }
        }
    }
    lines.concat()
}

/// A problem if the certificate at `path` does not match its key. `None` if they match, or if one of them is missing.
pub(super) fn apart(path: &str, now: &BTreeMap<String, &Node>) -> Option<String> {
    let text = |path: &str| match &now.get(path)?.body {
        Body::File(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    };
    let (certificate, key) = if let Some(stem) = path.strip_suffix(".crt") {
        (text(path)?, text(&format!("{stem}.key"))?)
    } else {
        let kubeconfig: serde_yaml::Value = serde_yaml::from_str(&text(path)?).ok()?;
        let user = kubeconfig.get("users")?.get(0)?.get("user")?;
        let decoded = |field: &str| String::from_utf8(STANDARD.decode(user.get(field)?.as_str()?).ok()?).ok();
        (decoded("client-certificate-data")?, decoded("client-key-data")?)
    };
    match belong_together(&certificate, &key) {
        true => None,
        false => Some(format!("/{path}: the certificate and the key do not belong together")),
    }
}

fn belong_together(certificate: &str, key: &str) -> bool {
    let body: String = certificate
        .lines()
        .skip_while(|line| !line.starts_with("-----BEGIN CERTIFICATE"))
        .skip(1)
        .take_while(|line| !line.starts_with("-----"))
        .collect();
    match (STANDARD.decode(body), KeyPair::from_pem(key)) {
        (Ok(certificate), Ok(key)) => {
            let public = key.der_bytes();
            certificate.windows(public.len()).any(|window| window == public)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::operation::{Logged, Operation};
    use crate::tree::ROOT;

    fn tree(files: &[(&str, &str, u32)]) -> Tree {
        let at = SystemTime::UNIX_EPOCH;
        let mut tree = Tree::empty(at);
        for (name, content, mode) in files {
            let body = Body::File(Arc::new(content.as_bytes().to_vec()));
            let node = Node { mode: *mode, owner: (0, 0), modified: at, changed: at, body };
            let inode = tree.unused();
            let operation = Operation::Make { parent: ROOT, name: (*name).into(), inode, node };
            tree.apply(&Logged { operation, at }).unwrap();
        }
        tree
    }

    fn expected(before: &[(&str, &str, u32)], wanted: &[(&str, &str, u32)]) -> Expected {
        Expected::new(tree(before), tree(wanted), &tree(wanted))
    }

    #[test]
    fn readable_secrets_are_found() {
        let token = format!("{TOKEN_MARK}abc,kube,kube");
        for text in ["-----BEGIN PRIVATE KEY-----", "client-key-data: x", &token] {
            assert_eq!(shown(&tree(&[("a", text, 0o640)]).entries()).len(), 1, "{text}");
            assert_eq!(shown(&tree(&[("a", text, 0o600)]).entries()), [""; 0], "{text}");
        }
    }

    #[test]
    fn old_and_new_contents_are_not_half_done() {
        let expected = expected(&[("a", "old", 0o644)], &[("a", "new", 0o644), ("b", "new", 0o600)]);
        for fine in [&[("a", "old", 0o644)][..], &[("a", "new", 0o644), (".b.kops-agent", "n", 0o600)]] {
            assert_eq!(expected.half_done(&tree(fine)), [""; 0]);
            assert_ne!(expected.not_converged(&tree(fine)), [""; 0]);
        }
        for wrong in [&[("a", "ne", 0o644)][..], &[("a", "old", 0o644), ("b", "", 0o600)], &[]] {
            assert_eq!(expected.half_done(&tree(wrong)).len(), 1, "{wrong:?}");
        }
        let done = [("a", "new", 0o644), ("b", "new", 0o600)];
        assert_eq!(expected.not_converged(&tree(&done)), [""; 0]);
        assert_eq!(expected.not_converged(&tree(&[done[0], ("b", "new", 0o644)])).len(), 1);
        assert_eq!(expected.not_converged(&tree(&[done[0], done[1], (".b.kops-agent", "", 0)])).len(), 1);
    }

    #[test]
    fn random_contents_are_compared_by_form() {
        let pem = |letter: &str, lines: usize| {
            let body = format!("{}\n", letter.repeat(64)).repeat(lines);
            format!("-----BEGIN X-----\n{body}{letter}==\n-----END X-----\n")
        };
        assert_eq!(form(pem("a", 3).as_bytes()), form(pem("b", 4).as_bytes()));
        assert_ne!(form(pem("a", 3).as_bytes()), form(&pem("a", 3).as_bytes()[..100]));
        let yaml = |letter: &str| format!("key: {}\nname: x\n", letter.repeat(80));
        assert_eq!(form(yaml("a").as_bytes()), form(yaml("b").as_bytes()));
        assert_ne!(form(yaml("a").as_bytes()), form(b"key: \nname: x\n"));
    }

    #[test]
    fn a_key_that_others_may_read_is_found() {
        let expected = expected(&[], &[]);
        let key = "-----BEGIN PRIVATE KEY-----\n";
        assert_eq!(expected.half_done(&tree(&[(".a.kops-agent", key, 0o600)])), [""; 0]);
        assert_eq!(expected.half_done(&tree(&[(".a.kops-agent", key, 0o640)])).len(), 1);
    }

    #[test]
    fn a_certificate_is_for_its_key() {
        let make = || {
            let key = KeyPair::generate().unwrap();
            let certificate =
                rcgen::CertificateParams::new(vec!["x".into()]).unwrap().self_signed(&key).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let (one, other) = (make(), make());
        assert!(belong_together(&one.0, &one.1));
        assert!(!belong_together(&one.0, &other.1));
    }
}
