//! Checks the signed release files (`InRelease`) of apt's repositories. apt itself reads them, so that its proxies,
//! keys and clock apply. The download goes to a folder that nothing else reads.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use kops_agent_plan::doctor::{Repositories, Seen, Unseen};
use kops_agent_spec::terminal::one_line;

use crate::system::commands::{Outcome, prepare};
use crate::system::deadline::ask_prepared;

const TIMEOUT: Duration = Duration::from_secs(25);
/// Timeout of one connection, in seconds. A short timeout leaves time for the other repositories if one is silent.
const ACQUIRE_TIMEOUT: &str = "10";
/// The kinds of index files that `apt-get update` downloads besides release files. The first check of [`of_apt`] does
/// not download them (apt.conf(5)). This check still downloads index files of other kinds, which other programs have
/// added to apt's configuration.
const INDEXES: [&str; 3] = ["deb::Packages", "deb::Translations", "deb-src::Sources"];

/// Removes the hooks that packages add to `apt-get update`, because hooks change the machine. A command-line option
/// cannot empty a list, but a file can. apt reads the file of `-c` after the machine's own configuration (apt.conf(5)).
const WITHOUT_HOOKS: &str = "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n\
                             #clear APT::Update::Post-Invoke-Success;\n#clear APT::Update::Post-Invoke-Stats;\n";
/// Maximum length of the message about one repository, in characters.
const LONGEST_COMPLAINT: usize = 300;
/// apt's last line, after the errors of the single repositories.
const SUMMARY: &str = "Some index files failed to download";

/// Checks which repositories in apt's configuration respond. `options` are additional options of apt.
pub(super) fn of_apt(options: &[&str]) -> Seen<Repositories> {
    let no_indexes = INDEXES.map(|index| format!("Acquire::IndexTargets::{index}::DefaultEnabled=false"));
    let heads: Vec<&str> = no_indexes.iter().map(String::as_str).chain(options.iter().copied()).collect();
    let answers = ask(&heads)?;
    // apt reads the index of a trusted repository even without a release file. So if a release file is missing, a second
    // check also requests the indexes.
    match answers.of_repositories.values().any(|answer| *answer == Answer::NoReleaseFile) {
        true => Ok(ask(options)?.into()),
        false => Ok(answers.into()),
    }
}

fn ask(options: &[&str]) -> Seen<Answers> {
    let cannot = |doing: &str, error: io::Error| {
        Unseen::new(format_args!("cannot {doing} a temporary folder: {error}"))
    };
    let folder = tempfile::tempdir().map_err(|error| cannot("create", error))?;
    prepare_folder(folder.path()).map_err(|error| cannot("prepare", error))?;
    let configuration = folder.path().join("apt.conf").display().to_string();
    let mut all = vec![
        format!("Dir::State::Lists={}", folder.path().join("lists").display()),
        format!("Dir::Cache={}", folder.path().join("cache").display()),
        "APT::Update::Error-Mode=any".to_owned(),
        "Acquire::Retries=0".to_owned(),
    ];
    all.extend(["http", "https"].map(|scheme| format!("Acquire::{scheme}::Timeout={ACQUIRE_TIMEOUT}")));
    all.extend(options.iter().map(|option| (*option).to_owned()));
    let mut command = vec!["apt-get", "-c", &configuration];
    all.iter().for_each(|option| command.extend(["-o", option]));
    command.push("update");
    let prepared = prepare(&command).map_err(Unseen::new)?;
    let asked = ask_prepared(&["apt-get", "update"], prepared, b"", TIMEOUT);
    let outcome = asked.map_err(Unseen::new)?;
    read(&outcome.ok_or_else(|| Unseen::new("apt-get is not installed"))?)
}

/// Creates the folders that apt needs. apt downloads as an unprivileged user, who must be able to enter the folders.
fn prepare_folder(folder: &Path) -> io::Result<()> {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(folder.join("apt.conf"), WITHOUT_HOOKS)?;
    std::fs::create_dir_all(folder.join("lists/partial"))?;
    std::fs::create_dir_all(folder.join("cache/archives/partial"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    /// apt skipped the release file (`Ign`), for example because a trusted repository has none.
    NoReleaseFile,
    Came,
    Failed,
}

#[derive(Debug, PartialEq, Eq)]
struct Answers {
    /// The answer of each repository, by URL and suite. If a repository has several answers, the last one in the
    /// order of the variants of `Answer` counts.
    of_repositories: BTreeMap<String, Answer>,
    complaints: Vec<String>,
}

impl From<Answers> for Repositories {
    fn from(answers: Answers) -> Repositories {
        let failed = |answer: &&Answer| **answer != Answer::Failed;
        let answering = answers.of_repositories.values().filter(failed).count();
        Repositories { answering, complaints: answers.complaints }
    }
}

/// Parses apt's output. Each release file and index has a line with `Get`, `Hit`, `Ign` or `Err`. The errors come at
/// the end.
fn read(outcome: &Outcome) -> Seen<Answers> {
    let mut of_repositories: BTreeMap<String, Answer> = BTreeMap::new();
    for line in outcome.stdout.lines() {
        let Some((result, what)) = line.split_once(':') else { continue };
        let words: Vec<&str> = what.split_whitespace().skip(1).collect();
        let answer = match result {
            "Get" | "Hit" => Answer::Came,
            "Ign" => Answer::NoReleaseFile,
            "Err" => Answer::Failed,
            _ => continue,
        };
        // The line of an index has the component after the suite: `bookworm/main amd64 Packages`.
        let [url, suite, ..] = words[..] else { continue };
        if words.iter().any(|word| matches!(*word, "InRelease" | "Release" | "Packages")) {
            let suite = suite.split_once('/').map_or(suite, |(suite, _)| suite);
            let known = of_repositories.entry(format!("{url} {suite}")).or_insert(answer);
            *known = answer.max(*known);
        }
    }
    let complaints: Vec<String> = outcome
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("E: "))
        .filter(|said| !said.starts_with(SUMMARY))
        .map(|said| one_line(said, LONGEST_COMPLAINT))
        .collect();
    if !outcome.status.success() && complaints.is_empty() {
        return Err(Unseen::new(format_args!("apt-get update ended with {}", outcome.status)));
    }
    Ok(Answers { of_repositories, complaints })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Checks the repositories of a list. In the tests, repositories are folders, so apt needs no network.
    fn of_list(list: &str) -> Seen<Repositories> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, list).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let list = format!("Dir::Etc::sourcelist={}", path.display());
        of_apt(&[&list, "Dir::Etc::sourceparts=-"])
    }

    #[test]
    fn apt_says_which_repository_cannot_be_read() {
        if !Path::new("/usr/bin/apt-get").exists() {
            return;
        }
        assert_eq!(of_list(""), Ok(Repositories::default()));
        let found = of_list("deb file:/no/such/repository stable main\n").unwrap();
        assert_eq!(found.answering, 0);
        assert!(found.complaints.iter().any(|said| said.contains("/no/such/repository")), "{found:?}");
        let malformed = of_list("nonsense\n").unwrap();
        assert!(malformed.complaints[0].contains("source list"), "{malformed:?}");
    }

    #[test]
    fn only_a_downloaded_release_file_counts_as_an_answer() {
        use std::os::unix::process::ExitStatusExt as _;
        let outcome = Outcome {
            status: std::process::ExitStatus::from_raw(100 << 8),
            stdout: "Hit:1 http://a.test stable InRelease\nGet:2 http://b.test stable InRelease [9 kB]\n\
                     Err:3 http://c.test stable InRelease\n  Could not connect\nIgn:4 http://d.test ./ InRelease\n\
                     Ign:5 http://e.test ./ InRelease\nIgn:6 http://d.test ./ Release\n\
                     Err:7 http://e.test ./ Packages\nGet:8 http://b.test stable/main amd64 Packages [4 kB]\n"
                .into(),
            stderr: "W: old\nE: Failed to fetch http://c.test  503  \u{1b}[2J\n\
                     E: Some index files failed to download. They have been ignored.\n"
                .into(),
        };
        let answers = read(&outcome).unwrap();
        let told: Vec<_> = answers.of_repositories.values().copied().collect();
        assert_eq!(told, [Answer::Came, Answer::Came, Answer::Failed, Answer::NoReleaseFile, Answer::Failed]);
        let complaints = vec!["Failed to fetch http://c.test  503   [2J".to_owned()];
        assert_eq!(Repositories::from(answers), Repositories { answering: 3, complaints });
        let silent = Outcome { stderr: String::new(), ..outcome };
        assert!(read(&silent).unwrap_err().to_string().contains("apt-get update ended with"));
    }
}
