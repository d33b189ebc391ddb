//! The checkout that the pages describe.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kops_agent_cluster::fleet::EARLY_WARNINGS;

use super::page::Page;

pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files of the checkout.
pub struct Repository {
    files: Vec<String>,
    /// The text of the sources, the units, the packaging and some tests, in one string.
    texts: String,
    /// The path and text of each source of the program. Strings over several lines are joined.
    sources: Vec<(String, String)>,
}

/// Top-level folders of this repository.
const FOLDERS: [&str; 7] = ["agent/", "docs/", "packaging/", "tests/", "units/", "vm-tests/", ".ci/"];

impl Repository {
    pub fn of_this_checkout() -> Repository {
        let mut files = Vec::new();
        collect(&checkout(), "", &mut files);
        let read = |path: &String| fs::read_to_string(checkout().join(path)).unwrap_or_default();
        let is_source =
            |path: &&String| path.starts_with("agent/") && path.contains("/src/") && path.ends_with(".rs");
        let sources: Vec<(String, String)> =
            files.iter().filter(is_source).map(|path| (path.clone(), joined(&read(path)))).collect();
        let ships = |path: &&String| {
            ["units/", "packaging/", "tests/run", "tests/controller/", "tests/src/", "tests/machines/"]
                .iter()
                .any(|folder| path.starts_with(folder))
        };
        let mut texts: String = files.iter().filter(ships).map(read).collect();
        sources.iter().for_each(|(_, source)| texts.push_str(source));
        Repository { files, texts, sources }
    }

    /// The commands that the program's messages and the alerts advise: one page for each source file, and one for the
    /// file of alerts.
    pub fn advice(&self) -> Vec<Page> {
        let alerts = "packaging/prometheus/rules.yaml";
        let alerts = advice(alerts, &self.script(alerts).unwrap_or_default());
        let sources = self.sources.iter().map(|(path, source)| advice(path, shipped(source)));
        sources.chain([alerts]).collect()
    }

    /// Whether a script of `packaging` or `tests` has this flag.
    pub fn scripts_have(&self, flag: &str) -> bool {
        let is_script = |path: &&String| {
            (path.starts_with("packaging/") || path.starts_with("tests/"))
                && !path.ends_with(".rs")
                && !path.ends_with(".md")
        };
        self.files
            .iter()
            .filter(is_script)
            .any(|path| self.script(path).is_some_and(|text| text.contains(flag)))
    }

    pub fn script(&self, path: &str) -> Option<String> {
        self.files
            .iter()
            .any(|file| file == path)
            .then(|| fs::read_to_string(checkout().join(path)).unwrap_or_default())
    }

    /// The paths on a page that the repository does not have.
    pub fn missing_paths(&self, page: &Page) -> Vec<String> {
        let mut missing = Vec::new();
        let firsts = page.spans.iter().map(|span| span.split([' ', ':']).next().unwrap_or_default());
        // In a command, only paths from the root of the repository are checked, because a command may name any
        // file, such as `config.rs`.
        let code = page.code();
        let words = code.split(|c: char| c.is_whitespace() || "'\"=:;,()".contains(c));
        let words = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
        for path in firsts.chain(words).collect::<BTreeSet<_>>() {
            let path = path.trim_end_matches('/');
            let is_pattern = path.contains(['*', '{', '<', '…', '$'])
                || path.chars().any(|c| c.is_ascii_uppercase() && !path.ends_with(".md"));
            let is_rooted = FOLDERS.iter().any(|folder| path.starts_with(folder));
            // `host/facts.rs` is short for agent/host/src/facts.rs. A short path may leave out the first folders
            // and `src/`.
            let is_short = path.ends_with(".rs") && !path.contains(' ');
            if is_pattern || !(is_rooted || is_short) || path.is_empty() {
                continue;
            }
            let within = format!("{path}/");
            let short = format!("/{path}");
            let is_there = self.files.iter().any(|file| {
                file == path
                    || file.starts_with(&within)
                    || (is_short && (file.ends_with(&short) || file.replace("/src/", "/").ends_with(&short)))
            });
            if !is_there {
                missing.push(format!("{}: there is no `{path}`", page.name));
            }
        }
        missing
    }

    pub fn broken_links(&self, page: &Page, all: &[Page]) -> Vec<String> {
        let mut broken = Vec::new();
        let local: Vec<&String> = page.links.iter().filter(|link| !link.contains("://")).collect();
        for (link, target) in local.iter().zip(page.linked_pages()) {
            let (path, heading) = link.split_once('#').map_or((link.as_str(), None), |(p, h)| (p, Some(h)));
            let name = if path.is_empty() { page.name.clone() } else { target };
            let within = format!("{name}/");
            let has = |page: &Page, heading: &str| page.anchors.iter().any(|anchor| anchor == heading);
            let is_there = match heading {
                _ if path.is_empty() => heading.is_some_and(|heading| has(page, heading)),
                Some(heading) => all.iter().any(|page| page.name == name && has(page, heading)),
                None => self.files.iter().any(|file| *file == name || file.starts_with(&within)),
            };
            if !is_there {
                broken.push(format!("{}: the link {link} leads nowhere", page.name));
            }
        }
        broken
    }

    /// The names of metrics, alerts, conditions, variables and units that a page's code contains, but this repository
    /// does not define.
    pub fn unknown_names(&self, page: &Page) -> Vec<String> {
        let code = page.code();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = code.split(|c| !is_of_name(c)).filter(|name| !self.has_name(name));
        let is_of_unit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '@');
        let units =
            code.split(|c| !is_of_unit(c)).filter(|unit| is_own_unit(unit) && !self.texts.contains(unit));
        let unknown: BTreeSet<&str> = names.chain(units).collect();
        unknown.into_iter().map(|name| format!("{}: there is no {name}", page.name)).collect()
    }

    fn has_name(&self, word: &str) -> bool {
        match word {
            // The metrics client adds `_total` to the names of counters. A name with `_` at its end stands for all
            // names that begin with it.
            _ if word.starts_with("kops_agent_") => {
                let registered = word.strip_suffix("_total").unwrap_or(word).trim_end_matches('_');
                let short = registered.strip_prefix("kops_agent_").unwrap_or(registered);
                self.texts.contains(registered) || self.texts.contains(&format!("\"{short}\""))
            }
            _ if word.starts_with("KOPS_AGENT_") => self.texts.contains(word),
            _ if EARLY_WARNINGS.contains(&word) => true,
            _ if word.starts_with("KopsAgent") => self.texts.contains(&format!("alert: {word}\n")),
            _ => true,
        }
    }

    /// Whether a source starts a thread with this name.
    pub fn has_thread(&self, name: &str) -> bool {
        self.texts.contains(&format!(".name(\"{name}\".into())"))
    }

    /// The page's wrong links to release files. A wrong link names a version other than this one, or a file that
    /// `packaging/release` does not make.
    pub fn unknown_downloads(page: &Page) -> Vec<String> {
        const RELEASES: &str = "https://github.com/kops-agent/kops-agent/releases/download/";
        let version = env!("CARGO_PKG_VERSION");
        let is_known = |name: &str| {
            let of_architecture = ["amd64", "arm64"].iter().any(|architecture| {
                let program = format!("kops-agent-linux-{architecture}");
                name == program
                    || name == format!("{program}.xz")
                    || name == format!("kops-agent_{version}-1_{architecture}.deb")
            });
            matches!(name, "" | "SHA256SUMS" | "SHA256SUMS.sig" | "kops-agent-image.tar")
                || name == format!("kops-agent-controller_{version}-1_all.deb")
                || of_architecture
        };
        let urls = page.text.split(RELEASES).skip(1);
        let urls = urls.map(|rest| {
            rest.split(|c: char| c.is_whitespace() || "`)\"'".contains(c)).next().unwrap_or_default()
        });
        urls.filter(|rest| {
            let (tag, name) = rest.split_once('/').unwrap_or((rest, ""));
            tag != format!("v{version}") || !is_known(name)
        })
        .map(|rest| format!("{}: no release has {rest}", page.name))
        .collect()
    }

    /// Messages in the tables of a page that the program never prints. `…` stands for any text.
    pub fn unknown_messages(&self, page: &Page) -> Vec<String> {
        let is_printed = |part: &str| self.sources.iter().any(|(_, source)| source.contains(part));
        messages(page)
            .into_iter()
            .filter_map(|message| {
                let lost = parts(&message).into_iter().find(|part| !is_printed(part))?;
                Some(format!("{}: no source has {lost:?} of `{message}`", page.name))
            })
            .collect()
    }

    /// All reasons why a machine or a Node is rejected. Reasons that the page explains are left out.
    pub fn reasons_without_explanation(&self, page: &Page) -> Vec<String> {
        let mut reasons = BTreeSet::new();
        for (path, source) in &self.sources {
            let shipped = shipped(source);
            let is_verifier = path.starts_with("agent/cloud/src/") && path.contains("/verify");
            let is_server =
                (is_verifier || path.contains("/controller/src/bootstrap/")) && !path.contains("/tests");
            let is_decision = ["agent/cluster/src/bootstrap/", "agent/cluster/src/identity/"]
                .iter()
                .any(|folder| path.starts_with(folder));
            let is_cloud = path.starts_with("agent/cloud/src/");
            let begin = match () {
                () if is_server => "\"",
                () if is_cloud => "unavailable: \"",
                () => "=> \"",
            };
            if is_server || is_cloud || is_decision {
                let words = shipped.split(begin).skip(1).filter_map(|rest| rest.split('"').next());
                reasons.extend(words.filter(|word| is_reason(word)).map(str::to_owned));
            }
        }
        assert!(reasons.len() > 30, "{reasons:?}");
        let is_told = |reason: &&String| page.text.contains(&format!("`{reason}`"));
        reasons
            .iter()
            .filter(|reason| !is_told(reason))
            .map(|reason| format!("{} has no {reason}", page.name))
            .collect()
    }

    /// Returns a line for each source file that defines error messages, if the page lists none of these messages.
    pub fn families_without_message(&self, page: &Page) -> Vec<String> {
        let messages = messages(page);
        let is_told = |source: &str| {
            messages.iter().any(|message| parts(message).iter().all(|part| source.contains(part)))
        };
        self.sources
            .iter()
            .filter(|(path, source)| {
                source.contains("#[error(") && !PARTS_OF_OTHERS.contains(&path.as_str()) && !is_told(source)
            })
            .map(|(path, _)| format!("{} has no message of {path}", page.name))
            .collect()
    }
}

/// Whether the word is the name of a unit of kops-agent or of kOps.
fn is_own_unit(word: &str) -> bool {
    (word.starts_with("kops-agent") || word.starts_with("kops-configuration"))
        && [".service", ".timer"].iter().any(|kind| word.ends_with(kind))
}

/// Source files whose errors have no text of their own, or only appear within other errors.
const PARTS_OF_OTHERS: [&str; 5] = [
    "agent/cloud/src/control_plane.rs",
    "agent/spec/src/failure.rs",
    "agent/spec/src/invalid.rs",
    "agent/net/src/aws_sdk.rs",
    "agent/cluster/src/bootstrap/challenge.rs",
];

/// Whether the word consists of two or more capitalized parts, such as `TokenExpired`.
fn is_reason(word: &str) -> bool {
    let capitals = word.chars().filter(char::is_ascii_uppercase).count();
    capitals > 1
        && word.contains(|c: char| c.is_ascii_lowercase())
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphabetic())
}

/// The source without its tests.
fn shipped(source: &str) -> &str {
    source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// The commands of kops-agent in a file, as spans of a page. Comments in Rust are left out. Each placeholder in a
/// format string is replaced by an example.
pub fn advice(path: &str, text: &str) -> Page {
    let mut page = Page::parse(path, "");
    let is_command = |span: &&str| span.starts_with("kops-agent ") && !span.contains('"');
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for span in line.split('`').skip(1).step_by(2).filter(is_command) {
            let mut parts = span.split('{');
            let mut command = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                command += "a/b";
                command += part.split_once('}').map_or(part, |(_, rest)| rest);
            }
            page.spans.push(command);
        }
    }
    page
}

fn messages(page: &Page) -> Vec<String> {
    let spans =
        page.first_cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned));
    spans.filter(|span| span.contains(' ')).collect()
}

fn parts(message: &str) -> Vec<String> {
    message.split('…').map(|part| part.trim().to_owned()).filter(|part| part.len() > 3).collect()
}

/// The source text. Each string that spans several lines is joined, and quotes are written as the program prints them.
fn joined(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        match line.strip_suffix('\\') {
            Some(begun) => {
                text.push_str(begun);
                let mut rest = lines.next().unwrap_or_default().trim_start();
                while let Some(more) = rest.strip_suffix('\\') {
                    text.push_str(more);
                    rest = lines.next().unwrap_or_default().trim_start();
                }
                text.push_str(rest);
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text.replace("\\\"", "\"")
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            if !matches!(name.as_str(), "target" | ".git" | "node_modules") {
                collect(&entry.path(), &format!("{path}/"), files);
            }
        } else {
            files.push(path);
        }
    }
}
