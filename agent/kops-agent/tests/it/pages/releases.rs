//! The tables of kOps releases, Kubernetes versions and distributions, generated from the tests. The sources are the
//! lists of `tests/conformance`, the names of the tests of `tests/machines`, and the tables of supported versions in
//! the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::process::Command;

use kops_agent_plan::resolve::{Distribution, KubernetesVersion, PackageFormat};
use kops_agent_spec::facts::Distro;
use kops_agent_spec::kops_release::{KopsRelease, WrittenBy};

use super::repository::checkout;

/// The line above the generated tables of the page.
const GENERATED: &str = "<!-- Written by `INSTA_UPDATE=always cargo test -p kops-agent --test it pages::releases`. Edit what is above. -->\n";
const PAGE: &str = "docs/releases.md";

fn read(path: &str) -> String {
    fs::read_to_string(checkout().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines of a file, each split at spaces.
fn lines(path: &str) -> Vec<Vec<String>> {
    read(path).lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// The name of a distribution in conformance cases: `ubuntu2404`.
fn in_cases(distro: &Distro) -> String {
    format!("{}{}", distro.id, distro.version_id.replace('.', ""))
}

fn in_words(distro: &Distro) -> String {
    let name = match distro.id.as_str() {
        "amzn" => "Amazon Linux",
        "centos" => "CentOS",
        "cos" => "Container-Optimized OS",
        "debian" => "Debian",
        "fedora" => "Fedora",
        "flatcar" => "Flatcar",
        "rhel" => "RHEL",
        "rocky" => "Rocky Linux",
        "ubuntu" => "Ubuntu",
        other => panic!("{other} has no name here"),
    };
    format!("{name} {}", distro.version_id).trim_end().to_owned()
}

/// Every distribution that any release supports, sorted by name and version.
fn distributions() -> Vec<Distro> {
    let mut all: Vec<Distro> = Vec::new();
    for distro in KopsRelease::supported().flat_map(Distribution::supported) {
        if !all.contains(&distro) {
            all.push(distro);
        }
    }
    all.sort_by_key(|distro| {
        let version =
            distro.version_id.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
        (in_words(&Distro { version_id: String::new(), ..distro.clone() }), version)
    });
    all
}

fn package_format(distro: &Distro, release: KopsRelease) -> PackageFormat {
    Distribution::find(distro, release).unwrap().package_format
}

fn kubernetes(release: KopsRelease) -> RangeInclusive<u64> {
    release.oldest_kubernetes_minor()..=KubernetesVersion::NEWEST_KNOWN_MINOR
}

/// The results of the tests for one kOps release.
struct Ran {
    release: KopsRelease,
    /// Two numbers of nodes for which kops-agent derives the same desired state as upstream's nodeup. For the first
    /// number, kops-agent reads `nodeupconfig.yaml`. For the second number, it reads the cluster spec.
    passing: [usize; 2],
    /// For each Kubernetes minor version and distribution: the number of nodes with the same desired state as upstream.
    /// kops-agent derives this state from `nodeupconfig.yaml` and again from the cluster spec, and both must match.
    cases: BTreeMap<(u64, String), usize>,
    /// The Kubernetes minor version and the distribution of each booted machine.
    booted: BTreeSet<(u64, String)>,
}

impl Ran {
    fn new(release: KopsRelease) -> Ran {
        let is_main = release == KopsRelease::NEWEST;
        let suffix = if is_main { String::new() } else { format!("-{release}") };
        let mut cases: [BTreeSet<String>; 2] = Default::default();
        let list = format!("tests/conformance/passing{suffix}.txt");
        for words in lines(&list) {
            let [mode, case] = &words[..] else { panic!("{list}: {words:?}") };
            let of_mode = match mode.as_str() {
                "nodeup-config" => &mut cases[0],
                "cluster-spec" => &mut cases[1],
                other => panic!("{list}: {other}"),
            };
            of_mode.insert(case.clone());
        }
        let name = if is_main { "main".to_owned() } else { release.to_string() };
        let versions = lines("tests/conformance/kubernetes.txt");
        let kubernetes_of = |store: &str| -> u64 {
            let line = versions.iter().find(|words| words[0] == name && words[1] == store);
            let line = line.unwrap_or_else(|| panic!("kubernetes.txt has no store {store} of kOps {name}"));
            line[2].strip_prefix("1.").unwrap().parse().unwrap()
        };
        let passing = [cases[0].len(), cases[1].len()];
        let mut counts = BTreeMap::new();
        for case in cases[0].intersection(&cases[1]) {
            let (store, _) = case.split_once("--").unwrap();
            let (distribution, _) = case.rsplit_once("--").unwrap().1.split_once('-').unwrap();
            *counts.entry((kubernetes_of(store), distribution.to_owned())).or_default() += 1;
        }
        Ran { release, passing, cases: counts, booted: booted(release) }
    }

    fn cell(&self, minor: u64, distro: &Distro) -> String {
        if !kubernetes(self.release).contains(&minor) || Distribution::find(distro, self.release).is_none() {
            return "refused".to_owned();
        }
        let key = (minor, in_cases(distro));
        let count = self.cases.get(&key).copied().unwrap_or_default();
        match (self.booted.contains(&key), count) {
            (true, 0) => "booted".to_owned(),
            (true, count) => format!("booted, {count}"),
            (false, 0) => format!("({})", self.count_of_family(distro)),
            (false, count) => count.to_string(),
        }
    }

    /// The sum of `cases` over all Kubernetes versions and all distributions with the package format of `distro`.
    /// Never 0.
    fn count_of_family(&self, distro: &Distro) -> usize {
        let format = package_format(distro, self.release);
        let is_kin = |case: &str| {
            let of_case = Distribution::supported(self.release).find(|distro| in_cases(distro) == case);
            of_case.is_some_and(|distro| package_format(&distro, self.release) == format)
        };
        let kin = self.cases.iter().filter(|((_, case), _)| is_kin(case));
        let count: usize = kin.map(|(_, count)| count).sum();
        assert!(count > 0, "no conformance case passes for the package format of {}", in_words(distro));
        count
    }

    fn table(&self) -> String {
        let oldest = KopsRelease::supported().map(KopsRelease::oldest_kubernetes_minor).min().unwrap();
        let minors = oldest..=KubernetesVersion::NEWEST_KNOWN_MINOR;
        let mut text = format!("\n## kOps {}\n\n| |", self.release);
        for minor in minors.clone() {
            write!(text, " 1.{minor} |").unwrap();
        }
        text.push_str("\n| --- |");
        minors.clone().for_each(|_| text.push_str(" --- |"));
        for distro in distributions() {
            write!(text, "\n| {} |", in_words(&distro)).unwrap();
            for minor in minors.clone() {
                write!(text, " {} |", self.cell(minor, &distro)).unwrap();
            }
        }
        text + "\n"
    }
}

/// The Kubernetes minor version and distribution of each machine that `tests/machines` boots from a store of this
/// release. The name of a test has both, for example `debian_13_becomes_a_cluster_of_kops_1_34_with_kubernetes_1_34`.
/// A test without versions in its name uses the example store.
fn booted(release: KopsRelease) -> BTreeSet<(u64, String)> {
    let version = read("tests/example/store/kops-version.txt");
    let of_example = WrittenBy::of_store(Some(&version)).unwrap().release.to_string();
    let go_mod = read("tests/kube/go.mod");
    let (_, of_go_mod) = go_mod.split_once("k8s.io/kubernetes v").unwrap();
    let tests = read("tests/machines/tests/main.rs");
    let names = tests.lines().filter_map(|line| line.strip_prefix("fn ")?.strip_suffix("() {"));
    let clusters = names.filter_map(|name| name.split_once("_becomes_a_cluster"));
    let booted = clusters.filter_map(|(distribution, of)| {
        let of = of.replace('_', ".");
        let (kops, kubernetes) = match of.strip_prefix(".of.kops.") {
            Some(versions) => versions.split_once(".with.kubernetes.").unwrap(),
            None => (of_example.as_str(), of_go_mod),
        };
        let minor = kubernetes.split('.').nth(1).unwrap().parse().unwrap();
        (kops == release.to_string()).then(|| (minor, distribution.replace('_', "")))
    });
    let booted: BTreeSet<(u64, String)> = booted.collect();
    assert!(!booted.is_empty(), "tests/machines boots nothing of kOps {release}");
    booted
}

#[test]
fn the_page_of_releases_lists_the_cases_that_ran() {
    let page = read(PAGE);
    let (prose, tables) =
        page.split_once(GENERATED).unwrap_or_else(|| panic!("{PAGE} has no line {GENERATED}"));
    let ran: Vec<Ran> = KopsRelease::supported().map(Ran::new).collect();
    let known: BTreeSet<String> = distributions().iter().map(in_cases).collect();
    for (_, distribution) in ran.iter().flat_map(|ran| ran.cases.keys().chain(&ran.booted)) {
        assert!(known.contains(distribution), "{distribution} is in no row of {PAGE}");
    }
    let expected: String = ran.iter().rev().map(Ran::table).collect();
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(checkout().join(PAGE), format!("{prose}{GENERATED}{expected}")).unwrap();
    } else {
        assert!(tables == expected, "{PAGE} is not what ran; now it is\n{expected}");
    }
}

#[test]
fn the_readme_has_the_results_of_each_release() {
    let readme = read("README.md");
    for Ran { release, passing: [written, derived], .. } in KopsRelease::supported().map(Ran::new) {
        let name = if release == KopsRelease::NEWEST {
            format!("main ({release}-alpha)")
        } else {
            release.to_string()
        };
        let kubernetes = kubernetes(release);
        let begin = format!("| {name} | 1.{} to 1.{} | {written} of ", kubernetes.start(), kubernetes.end());
        let row = readme.lines().find(|line| line.starts_with(&begin));
        let row = row.unwrap_or_else(|| panic!("README.md has no row {begin}"));
        assert!(row[begin.len()..].contains(&format!(" | {derived} of ")), "{row}");
    }
}

/// The words that a call of a function in `packaging/versions.bash` prints.
fn versions_bash(call: &str) -> Vec<String> {
    let script = format!("source packaging/versions.bash; {call}");
    let output = Command::new("bash").args(["-euc", &script]).current_dir(checkout()).output().unwrap();
    assert!(output.status.success(), "{call}: {output:?}");
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_scripts_know_the_same_releases_and_their_programs() {
    let bounds = |minor: u64| {
        versions_bash(&format!(
            "for version in 1.{minor}.0-alpha.1 1.{minor}.9; do \
             if is_too_old $version; then echo old; elif is_not_known_yet $version; then echo new; else echo known; fi; done"
        ))
    };
    let minors: Vec<u64> = KopsRelease::supported()
        .map(|release| release.to_string().strip_prefix("1.").unwrap().parse().unwrap())
        .collect();
    let (oldest, newest) = (*minors.first().unwrap(), *minors.last().unwrap());
    assert_eq!((bounds(oldest - 1), bounds(newest + 1)), (vec!["old".into(); 2], vec!["new".into(); 2]));
    for (minor, release) in minors.into_iter().zip(KopsRelease::supported()) {
        assert_eq!(bounds(minor), ["known"; 2], "{release}");
        let programs: &[&str] = match (release.protokube_applies_addons(), release.has_gossip()) {
            (true, _) => &["protokube", "channels"],
            (false, true) => &["protokube"],
            (false, false) => &[],
        };
        assert_eq!(versions_bash(&format!("beside_nodeup {release}.2")), programs, "{release}");
    }
}
