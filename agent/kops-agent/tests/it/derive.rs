//! `config derive` prints the bytes that kOps wrote, whatever the source of the hashes of downloads. The conformance
//! corpus is no part of the repository. Without it these tests print that they are skipped.

// A skipped test prints why it is skipped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kops_agent_tests::program::kops_agent;
use kops_agent_tests::publishers::Publishers;

/// A `nodeupconfig.yaml` in the conformance corpus.
struct Pinned {
    /// A value of `--store-mirror`: the bucket's URL and its folder.
    mirror: String,
    config_base: String,
    group: String,
    text: String,
}

/// The conformance corpus: the folder in KOPS_AGENT_CONFORMANCE, or `shared/conformance` in a folder above this
/// crate.
fn corpus() -> Option<PathBuf> {
    let given = std::env::var_os("KOPS_AGENT_CONFORMANCE").map(PathBuf::from);
    let beside =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("shared/conformance"));
    let found = given.into_iter().chain(beside).find(|folder| folder.join("stores").is_dir());
    if found.is_none() {
        eprintln!("skipped: no conformance corpus; name its folder in KOPS_AGENT_CONFORMANCE");
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Copies the stores of the corpus to `folder`. Replaces each kops-version.txt with the file of the example store,
/// because upstream's test data has an older version.
fn stores_of_their_release(corpus: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join("stores");
    let copied =
        Command::new("cp").args(["-r", "--no-preserve=mode"]).arg(corpus.join("stores")).arg(&copy).status();
    assert!(copied.unwrap().success());
    let written = Command::new("find")
        .arg(&copy)
        .args(["-name", "kops-version.txt", "-exec", "cp", "--remove-destination"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/example/store/kops-version.txt"))
        .args(["{}", ";"])
        .status();
    assert!(written.unwrap().success());
    copy
}

/// Every `<fixture>/<bucket>/<cluster>/igconfig/<role>/<group>/nodeupconfig.yaml` in `stores`.
fn every_pinned(stores: &Path) -> Vec<Pinned> {
    let mut found = Vec::new();
    for bucket in entries(stores).iter().flat_map(|fixture| entries(fixture)) {
        for cluster in entries(&bucket) {
            let text = fs::read_to_string(cluster.join("cluster-completed.spec")).unwrap_or_default();
            let Some(base) = text.lines().find_map(|line| line.trim().strip_prefix("configBase: ")) else {
                continue;
            };
            let bucket_url = base.strip_suffix(&format!("/{}", name(&cluster))).unwrap();
            for group in entries(&cluster.join("igconfig")).iter().flat_map(|role| entries(role)) {
                let Ok(text) = fs::read_to_string(group.join("nodeupconfig.yaml")) else { continue };
                found.push(Pinned {
                    mirror: format!("{bucket_url}={}", bucket.display()),
                    config_base: base.to_owned(),
                    group: name(&group),
                    text,
                });
            }
        }
    }
    assert!(!found.is_empty(), "the corpus has no nodeupconfig.yaml");
    found
}

/// The hashes in a `nodeupconfig.yaml`, by URL.
fn hashes(text: &str) -> BTreeMap<String, String> {
    let document: serde_json::Value = serde_yaml::from_str(text).unwrap();
    let assets = document["Assets"].as_object().unwrap().values().flat_map(|urls| urls.as_array().unwrap());
    let told = assets.map(|asset| asset.as_str().unwrap().split_once('@').unwrap());
    let mut hashes: BTreeMap<String, String> = told
        .flat_map(|(hash, urls)| urls.split(',').map(move |url| (url.to_owned(), hash.to_owned())))
        .collect();
    let images = document["images"].as_object().into_iter().flat_map(|images| images.values());
    for image in images.flat_map(|images| images.as_array().unwrap()) {
        for source in image["sources"].as_array().unwrap() {
            hashes.insert(source.as_str().unwrap().to_owned(), image["hash"].as_str().unwrap().to_owned());
        }
    }
    hashes
}

fn derive(pinned: &Pinned) -> Command {
    let mut agent = Command::new(kops_agent(env!("CARGO_BIN_EXE_kops-agent")));
    agent.env_clear().args(["config", "derive", "--config-base", &pinned.config_base]);
    agent.args(["--instance-group", &pinned.group, "--store-mirror", &pinned.mirror]);
    agent
}

/// The difference between the output and the expected output. `None` if they are equal.
fn problem(agent: &mut Command, pinned: &Pinned) -> Option<String> {
    let output = agent.output().unwrap();
    if output.status.code() == Some(0) && output.stdout == pinned.text.as_bytes() {
        return None;
    }
    let ours = String::from_utf8_lossy(&output.stdout);
    let line = ours.lines().zip(pinned.text.lines()).find(|(ours, theirs)| ours != theirs);
    Some(format!(
        "{}: {}: {line:?}{}",
        pinned.config_base,
        pinned.group,
        String::from_utf8_lossy(&output.stderr)
    ))
}

#[test]
fn the_bytes_are_kops_own_with_hashes_from_a_file() {
    let Some(corpus) = corpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hashes");
    let mut compared = 0;
    let mut problems = Vec::new();
    for pinned in every_pinned(&stores_of_their_release(&corpus, folder.path())) {
        let lines: String =
            hashes(&pinned.text).iter().map(|(url, hash)| format!("{hash}  {url}\n")).collect();
        fs::write(&file, lines).unwrap();
        // No program listens at this proxy, so no publisher can be reached. All hashes come from the file.
        let mut agent = derive(&pinned);
        agent.env("HTTPS_PROXY", "http://127.0.0.1:1").arg("--asset-hashes").arg(&file);
        problems.extend(problem(&mut agent, &pinned));
        compared += 1;
    }
    assert!(problems.is_empty(), "{} of {compared} differ:\n{}", problems.len(), problems.join("\n"));
    eprintln!("{compared} of {compared} derived configs are byte-identical");
}

/// The stores that kOps releases wrote contain addresses of load balancers (`ApiserverAdditionalIPs`). The stores from
/// kOps' main branch contain none. The derivation takes these addresses from the nodeupconfig that kOps wrote.
#[test]
fn the_bytes_are_those_of_each_release() {
    let Some(corpus) = corpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hashes");
    for release in entries(&corpus.join("../conformance-releases")).iter().filter(|path| path.is_dir()) {
        let (mut problems, mut with_addresses) = (Vec::new(), 0);
        let every = every_pinned(&release.join("stores"));
        for pinned in &every {
            let lines: String =
                hashes(&pinned.text).iter().map(|(url, hash)| format!("{hash}  {url}\n")).collect();
            fs::write(&file, lines).unwrap();
            let mut agent = derive(pinned);
            agent.env("HTTPS_PROXY", "http://127.0.0.1:1").arg("--asset-hashes").arg(&file);
            problems.extend(problem(&mut agent, pinned));
            with_addresses += usize::from(pinned.text.contains("\nApiserverAdditionalIPs:"));
        }
        assert!(
            problems.is_empty(),
            "{} of {} differ:\n{}",
            problems.len(),
            every.len(),
            problems.join("\n")
        );
        assert!(with_addresses > 0, "no group of kOps {} has addresses", name(release));
        eprintln!("kOps {}: {} derived configs are byte-identical", name(release), every.len());
    }
}

#[test]
fn the_bytes_are_kops_own_with_hashes_from_the_publishers() {
    let Some(corpus) = corpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let every_pinned = every_pinned(&stores_of_their_release(&corpus, folder.path()));
    let told = every_pinned.iter().flat_map(|pinned| hashes(&pinned.text)).collect();
    let publishers = Publishers::start(&told, folder.path()).unwrap();
    let problems: Vec<String> = every_pinned
        .iter()
        .filter_map(|pinned| problem(derive(pinned).envs(publishers.environment()), pinned))
        .collect();
    let compared = every_pinned.len();
    assert!(problems.is_empty(), "{} of {compared} differ:\n{}", problems.len(), problems.join("\n"));
    assert!(publishers.asked().iter().any(|url| url.ends_with("/kubelet.sha256")));
}

#[test]
fn a_hash_that_no_publisher_tells_is_named_and_nothing_printed() {
    let Some(corpus) = corpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pinned = every_pinned(&corpus.join("stores")).swap_remove(0);
    let mut told = hashes(&pinned.text);
    let (untold, _) = told.pop_first().unwrap();
    let publishers = Publishers::start(&told, folder.path()).unwrap();
    let output = derive(&pinned).envs(publishers.environment()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&untold) && stderr.contains("--asset-hashes"), "{stderr}");
}
