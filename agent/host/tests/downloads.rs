//! Downloads from a mirror that lies, stalls and stops half-way.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use kops_agent_host::Downloads;
use kops_agent_plan::diff::sha256_hex;
use kops_agent_plan::resource::{AssetContent, Content, File, Mode};
use support::{Answer, Machine, Mirror, asset, impatient, state};

fn body(size: usize) -> Arc<Vec<u8>> {
    Arc::new((0..size).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect())
}

fn tar_gz(members: &[(&str, &[u8])]) -> Arc<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    Arc::new(tar.into_inner().unwrap().finish().unwrap())
}

fn cached(machine: &Machine) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(machine.path("/var/cache/nodeup"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn files_and_members_of_archives_are_installed_and_an_archive_is_fetched_once() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let program = body(300_000);
    let archive = tar_gz(&[("./bin/a", b"program a"), ("bin/b", b"program b"), ("bin/unwanted", b"x")]);
    let program_url = mirror.at("/kubelet", [Answer::Whole(program.clone())]);
    let archive_url = mirror.at("/containerd.tar.gz", [Answer::Whole(archive.clone())]);
    let (program_hash, archive_hash) = (sha256_hex(&program), sha256_hex(&archive));
    let desired = state([
        asset("/usr/local/bin/kubelet", &program_url, &program_hash, None),
        asset("/opt/kubelet", &program_url, &program_hash, None),
        asset("/usr/bin/a", &archive_url, &archive_hash, Some("bin/a")),
        asset("/opt/cni/bin/a", &archive_url, &archive_hash, Some("bin/a")),
        asset("/usr/bin/b", &archive_url, &archive_hash, Some("./bin/b")),
    ]);
    let report = machine.converge(&desired).await.unwrap();
    assert_eq!(report.applied.len(), 5);
    assert_eq!(std::fs::read(machine.path("/usr/local/bin/kubelet")).unwrap(), *program);
    assert_eq!(machine.read("/usr/bin/a"), "program a");
    assert_eq!(machine.read("/opt/cni/bin/a"), "program a");
    assert_eq!(machine.read("/usr/bin/b"), "program b");
    assert_eq!(
        machine.tree(),
        ["/opt/cni/bin/a", "/opt/kubelet", "/usr/bin/a", "/usr/bin/b", "/usr/local/bin/kubelet"]
    );
    assert_eq!(mirror.requests("/kubelet").len(), 1);
    assert_eq!(mirror.requests("/containerd.tar.gz").len(), 1);
    assert!(machine.plan(&machine.host(), &desired).is_empty());
    assert_eq!(machine.leftovers(), [""; 0]);
}

#[tokio::test]
async fn a_cached_download_is_used_again_and_a_tampered_one_is_not() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let bytes = body(1000);
    let url = mirror.at("/a", [Answer::Whole(bytes.clone())]);
    let hash = sha256_hex(&bytes);
    let desired = state([asset("/a", &url, &hash, None)]);
    machine.converge(&desired).await.unwrap();
    std::fs::remove_file(machine.path("/a")).unwrap();
    machine.converge(&desired).await.unwrap();
    assert_eq!(mirror.requests("/a").len(), 1);

    std::fs::remove_file(machine.path("/a")).unwrap();
    std::fs::write(machine.path(&format!("/var/cache/nodeup/{hash}_a")), "tampered").unwrap();
    machine.converge(&desired).await.unwrap();
    assert_eq!(mirror.requests("/a").len(), 2);
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), *bytes);
}

#[tokio::test]
async fn a_broken_off_download_is_gone_on_with_where_it_broke_off() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let bytes = body(100_000);
    let answers = [
        Answer::Status(503, "busy"),
        Answer::CutAfter(bytes.clone(), 40_000),
        Answer::Silence,
        Answer::Whole(bytes.clone()),
    ];
    let url = mirror.at("/a", answers);
    machine.converge(&state([asset("/a", &url, &sha256_hex(&bytes), None)])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), *bytes);
    let range = Some("bytes=40000-".to_owned());
    assert_eq!(mirror.requests("/a"), [None, None, range.clone(), range]);
}

#[tokio::test]
async fn a_server_that_knows_no_ranges_is_read_from_the_start() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let bytes = body(5000);
    let url = mirror.at("/a", [Answer::CutAfter(bytes.clone(), 100), Answer::NoRanges(bytes.clone())]);
    machine.converge(&state([asset("/a", &url, &sha256_hex(&bytes), None)])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), *bytes);
}

#[tokio::test]
async fn what_always_stops_half_way_is_given_up_and_the_next_run_goes_on() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let bytes = body(5000);
    let url = mirror.at("/a", [Answer::CutAfter(bytes.clone(), 2000), Answer::Status(502, "")]);
    let desired = state([asset("/a", &url, &sha256_hex(&bytes), None)]);
    let error = machine.error(&desired).await;
    assert!(error.contains(&url) && error.contains("502") && error.contains("tried 3 times"), "{error}");
    assert_eq!(machine.tree(), [""; 0]);
    mirror.at("/a", [Answer::Whole(bytes.clone())]);
    machine.converge(&desired).await.unwrap();
    assert_eq!(mirror.requests("/a").last().unwrap().as_deref(), Some("bytes=2000-"));
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), *bytes);
}

#[tokio::test]
async fn a_truncated_answer_is_told_by_its_length() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let bytes = body(5000);
    // Always from the start and always half: nothing is gained by going on.
    let url = mirror.at("/a", [Answer::CutAfter(bytes.clone(), 0)]);
    let error = machine.error(&state([asset("/a", &url, &sha256_hex(&bytes), None)])).await;
    assert!(error.contains(&url) && error.contains("tried 3 times"), "{error}");
    assert_eq!(machine.tree(), [""; 0]);
}

#[tokio::test]
async fn wrong_bytes_are_not_kept_and_both_hashes_are_named() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let (right, wrong) = (body(5000), body(5001));
    let url = mirror.at("/a", [Answer::Whole(wrong.clone())]);
    let mut desired = state([asset("/a", &url, &sha256_hex(&right), None)]);
    desired.add(File::text("/etc/b", "not to be written either"));
    let error = machine.error(&desired).await;
    for part in [&url, &sha256_hex(&right), &sha256_hex(&wrong), "5001 bytes"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(machine.tree(), [""; 0]);
    assert_eq!(cached(&machine), [""; 0]);
}

#[tokio::test]
async fn an_html_page_is_recognised() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let url = mirror.at("/a", [Answer::Status(200, "\n <!DOCTYPE html><html>log in first</html>")]);
    let error = machine.error(&state([asset("/a", &url, &sha256_hex(b"x"), None)])).await;
    assert!(error.contains("a proxy or mirror answered with an HTML page"), "{error}");
    assert_eq!(cached(&machine), [""; 0]);
}

#[tokio::test]
async fn a_part_that_was_wrong_from_the_start_is_thrown_away() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let bytes = body(5000);
    let hash = sha256_hex(&bytes);
    std::fs::create_dir_all(machine.path("/var/cache/nodeup")).unwrap();
    for wrong in [vec![1; 100], vec![1; 5000], vec![1; 9000]] {
        let _ = std::fs::remove_file(machine.path("/a"));
        let _ = std::fs::remove_file(machine.path(&format!("/var/cache/nodeup/{hash}_a")));
        std::fs::write(machine.path(&format!("/var/cache/nodeup/{hash}_a.part")), wrong).unwrap();
        let url = mirror.at("/a", [Answer::Whole(bytes.clone())]);
        machine.converge(&state([asset("/a", &url, &hash, None)])).await.unwrap();
        assert_eq!(std::fs::read(machine.path("/a")).unwrap(), *bytes);
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_tried_again() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let url = mirror.at("/a", [Answer::Status(404, "")]);
    let error = machine.error(&state([asset("/a", &url, &sha256_hex(b"x"), None)])).await;
    assert!(error.contains("404 Not Found"), "{error}");
    assert_eq!(mirror.requests("/a").len(), 1);
    let refused = machine.error(&state([asset("/a", "s3://bucket/a", &sha256_hex(b"x"), None)])).await;
    assert!(refused.contains("s3:// is not supported"), "{refused}");
}

#[tokio::test]
async fn files_of_this_machine_are_downloads_too() {
    let machine = Machine::new();
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), "local").unwrap();
    let url = format!("file://{}", source.path().display());
    machine.converge(&state([asset("/a", &url, &sha256_hex(b"local"), None)])).await.unwrap();
    assert_eq!(machine.read("/a"), "local");
    let error = machine.error(&state([asset("/b", "file:///no/such", &sha256_hex(b"x"), None)])).await;
    assert!(error.contains("No such file"), "{error}");
}

#[tokio::test]
async fn nothing_is_installed_unverified() {
    let machine = Machine::new();
    let content = AssetContent { url: "https://example.com/a".into(), sha256: None, member: None };
    let error = machine.error(&state([File::new("/a", Content::Asset(content))])).await;
    assert!(error.contains("the hash of https://example.com/a is not known"), "{error}");
    let error = machine.error(&state([asset("/a", "https://example.com/a", "ABC", None)])).await;
    assert!(error.contains("is not a SHA-256"), "{error}");
    assert_eq!(machine.tree(), [""; 0]);
}

#[tokio::test]
async fn archives_that_lack_a_member_or_are_none_are_refused() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let archive = tar_gz(&[("bin/a", b"a"), ("bin/b", b"b")]);
    let url = mirror.at("/a.tgz", [Answer::Whole(archive.clone())]);
    let desired = state([
        asset("/a", &url, &sha256_hex(&archive), Some("bin/a")),
        asset("/c", &url, &sha256_hex(&archive), Some("bin/c")),
    ]);
    let error = machine.error(&desired).await;
    assert!(error.contains("has no file bin/c; it has bin/a, bin/b"), "{error}");
    let garbage = body(3000);
    let url = mirror.at("/b.tgz", [Answer::Whole(garbage.clone())]);
    let error = machine.error(&state([asset("/b", &url, &sha256_hex(&garbage), Some("bin/b"))])).await;
    assert!(error.contains(&url), "{error}");
    assert_eq!(machine.tree(), [""; 0]);
}

#[tokio::test]
async fn a_changed_archive_or_a_changed_file_is_installed_anew() {
    let (machine, mirror) = (Machine::new(), Mirror::start().await);
    let (one, two) = (tar_gz(&[("a", b"same")]), tar_gz(&[("a", b"same"), ("b", b"")]));
    let state_with =
        |archive: &Arc<Vec<u8>>, url: &str| state([asset("/a", url, &sha256_hex(archive), Some("a"))]);
    let first = state_with(&one, &mirror.at("/1", [Answer::Whole(one.clone())]));
    let second = state_with(&two, &mirror.at("/2", [Answer::Whole(two.clone())]));
    machine.converge(&first).await.unwrap();
    assert_eq!(machine.plan(&machine.host(), &second).steps.len(), 1);
    machine.converge(&second).await.unwrap();
    assert!(machine.plan(&machine.host(), &second).is_empty());
    std::fs::write(machine.path("/a"), "tampered").unwrap();
    machine.converge(&second).await.unwrap();
    assert_eq!(machine.read("/a"), "same");
    // Only the mode: nothing is fetched or written for it.
    let mut private = state_with(&two, "http://127.0.0.1:1/gone");
    let file = private.iter().next().unwrap().1.clone();
    if let kops_agent_plan::resource::Resource::File(file) = file {
        private = state([file.mode(Mode::PRIVATE)]);
    }
    machine.converge(&private).await.unwrap();
}

#[tokio::test]
async fn a_cache_outside_the_root_is_shared() {
    let (one, two, mirror) = (Machine::new(), Machine::new(), Mirror::start().await);
    let cache = tempfile::tempdir().unwrap();
    let bytes = body(1000);
    let url = mirror.at("/a", [Answer::Whole(bytes.clone())]);
    let desired = state([asset("/a", &url, &sha256_hex(&bytes), None)]);
    for machine in [one, two] {
        let downloads: Downloads = impatient().cache(cache.path());
        let machine = Machine { downloads, ..machine };
        machine.converge(&desired).await.unwrap();
        assert!(!machine.path("/var/cache").exists());
    }
    assert_eq!(mirror.requests("/a").len(), 1);
}
