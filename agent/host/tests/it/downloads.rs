//! Downloads from honest mirrors: fetched, unpacked, installed and cached.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use crate::support::{
    CALM, Fault, Machine, Mirror, SHORT, STEADY, asset, body, client, downloads, mirror, state, tar_gz,
};
use kops_agent_host::Downloads;
use kops_agent_plan::resource::{AssetContent, Content, DesiredState, File, Mode, Resource};
use kops_agent_spec::digest::sha256_hex;
use kops_agent_tests::loopback::Identity;

#[tokio::test]
async fn files_and_members_of_archives_are_installed_and_an_archive_is_fetched_once() {
    let (machine, mirror) = (Machine::new(), mirror());
    let program = body(300_000);
    let archive = tar_gz(&[("./bin/a", b"program a"), ("bin/b", b"program b"), ("bin/unwanted", b"x")]);
    let program_url = mirror.put("/kubelet", &program);
    let archive_url = mirror.put("/containerd.tar.gz", &archive);
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
    assert_eq!(std::fs::read(machine.path("/usr/local/bin/kubelet")).unwrap(), program);
    assert_eq!(machine.read("/usr/bin/a"), "program a");
    assert_eq!(machine.read("/opt/cni/bin/a"), "program a");
    assert_eq!(machine.read("/usr/bin/b"), "program b");
    assert_eq!(
        machine.tree(),
        ["/opt/cni/bin/a", "/opt/kubelet", "/usr/bin/a", "/usr/bin/b", "/usr/local/bin/kubelet"]
    );
    let heads = ["HEAD /containerd.tar.gz", "HEAD /kubelet", "GET /containerd.tar.gz", "GET /kubelet"];
    let mut requests = mirror.requests();
    requests.sort();
    let mut expected = heads.map(str::to_owned);
    expected.sort();
    assert_eq!(requests, expected);
    assert!(machine.plan(&machine.host(), &desired).is_empty());
    assert_eq!(machine.leftovers(), [""; 0]);
    assert_eq!(machine.cached().len(), 2);
}

#[tokio::test]
async fn many_small_files_share_a_few_connections() {
    let (machine, mirror) = (Machine::new(), mirror());
    let files = (0..30).map(|number| {
        let (path, bytes) = (format!("/{number}"), body(1000 + number));
        asset(&path, &mirror.put(&path, &bytes), &sha256_hex(&bytes), None)
    });
    machine.converge(&state(files)).await.unwrap();
    assert_eq!(machine.tree().len(), 30);
    // The client requests the sizes of at most 16 downloads at a time, so it opens at most 16 connections. Later
    // requests reuse these connections.
    assert!(mirror.connections() <= 16, "{} connections for 60 requests", mirror.connections());
}

#[tokio::test]
async fn over_http_2_one_connection_is_enough() {
    let identity = Identity::new().unwrap();
    let files: BTreeMap<String, Vec<u8>> =
        (0..8).map(|number| (format!("/{number}"), body(200_000 + number))).collect();
    let mirror = Mirror::start_tls(files.clone(), &identity).unwrap();
    let machine =
        Machine::new().downloading(Downloads::new(client(&[&identity.certificate_pem])).timeouts(CALM));
    let url = mirror.url();
    let files =
        files.iter().map(|(path, bytes)| asset(path, &format!("{url}{path}"), &sha256_hex(bytes), None));
    // The first request negotiates HTTP/2. Requests that begin during the negotiation may open more connections.
    let files: Vec<File> = files.collect();
    machine.converge(&state(files[..1].to_vec())).await.unwrap();
    let before = mirror.connections();
    machine.converge(&state(files)).await.unwrap();
    assert_eq!(machine.tree().len(), 8);
    assert_eq!(mirror.connections(), before, "7 files, {before} connections before");
}

#[tokio::test]
async fn a_cached_download_is_used_again_and_a_tampered_one_is_not() {
    let (machine, mirror) = (Machine::new(), mirror());
    let bytes = body(1000);
    let archive = tar_gz(&[("bin/b", b"program b")]);
    let (hash, archive_hash) = (sha256_hex(&bytes), sha256_hex(&archive));
    let desired = state([
        asset("/a", &mirror.put("/a", &bytes), &hash, None),
        asset("/b", &mirror.put("/b.tgz", &archive), &archive_hash, Some("bin/b")),
    ]);
    machine.converge(&desired).await.unwrap();
    for path in ["/a", "/b"] {
        std::fs::remove_file(machine.path(path)).unwrap();
    }
    machine.converge(&desired).await.unwrap();
    assert_eq!(machine.read("/b"), "program b");
    assert_eq!(mirror.requests().len(), 4, "cached files are not requested");

    std::fs::remove_file(machine.path("/a")).unwrap();
    std::fs::write(machine.path(&format!("/var/cache/nodeup/{hash}_a")), "tampered").unwrap();
    machine.converge(&desired).await.unwrap();
    assert_eq!((mirror.gets("/a").len(), mirror.gets("/b.tgz").len()), (2, 1));
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
}

#[tokio::test]
async fn the_cache_keeps_the_current_and_the_previous_downloads() {
    let (machine, mirror) = (Machine::new(), mirror());
    let version = |number: u8| {
        let bytes = vec![number; 1000];
        let url = mirror.put(&format!("/v{number}"), &bytes);
        state([asset("/a", &url, &sha256_hex(&bytes), None)])
    };
    let kept = |machine: &Machine| -> Vec<String> {
        machine.cached().iter().map(|name| name.rsplit('_').next().unwrap().to_owned()).collect()
    };
    let mut sorted = Vec::new();
    for number in 1..=3 {
        machine.converge(&version(number)).await.unwrap();
        sorted = kept(&machine);
        sorted.sort();
    }
    assert_eq!(sorted, ["v2", "v3"]);
    // The machine goes back to version 2 while no mirror serves this version. The cache still has it.
    let before = version(2);
    mirror.break_path("/v2", Fault::Status(503));
    machine.converge(&before).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), [2; 1000]);
    assert_eq!(mirror.gets("/v2").len(), 1);
    let machine = machine.downloading(downloads(CALM).cache_limit(1500));
    machine.converge(&before).await.unwrap();
    assert_eq!(kept(&machine), ["v2"]);
}

#[tokio::test]
async fn an_interrupted_download_resumes_where_it_ended() {
    let (machine, mirror) = (Machine::new().downloading(downloads(STEADY)), mirror());
    let bytes = body(100_000);
    let url = mirror.put("/a", &bytes);
    mirror.break_next(
        "/a",
        [Fault::Status(503), Fault::StopsAfter(40_000), Fault::Silent, Fault::StopsAfter(1)],
    );
    machine.converge(&state([asset("/a", &url, &sha256_hex(&bytes), None)])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    assert_eq!(mirror.gets("/a"), ["", "", "bytes=40000-", "bytes=40000-", "bytes=40001-"]);
}

#[tokio::test]
async fn an_archive_that_breaks_off_is_unpacked_over_several_answers() {
    let (machine, mirror) = (Machine::new(), mirror());
    let programs: Vec<(String, Vec<u8>)> = (0..5)
        .map(|number| (format!("bin/{number}"), sha256_hex(&[number]).repeat(2000).into_bytes()))
        .collect();
    let members: Vec<(&str, &[u8])> =
        programs.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let archive = tar_gz(&members);
    let step = archive.len() / 4;
    let url = mirror.put("/a.tgz", &archive);
    mirror.break_next("/a.tgz", (0..3).map(|_| Fault::StopsAfter(step)));
    let files =
        programs.iter().map(|(name, _)| asset(&format!("/{name}"), &url, &sha256_hex(&archive), Some(name)));
    machine.converge(&state(files)).await.unwrap();
    for (name, bytes) in &programs {
        assert_eq!(&std::fs::read(machine.path(name)).unwrap(), bytes);
    }
    assert_eq!(mirror.gets("/a.tgz").len(), 4);
}

#[tokio::test]
async fn a_server_that_knows_no_ranges_is_read_from_the_start() {
    let (machine, mirror) = (Machine::new(), mirror());
    let bytes = body(5000);
    let url = mirror.put("/a", &bytes);
    mirror.break_next("/a", [Fault::StopsAfter(100), Fault::IgnoresRanges]);
    machine.converge(&state([asset("/a", &url, &sha256_hex(&bytes), None)])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    assert_eq!(mirror.gets("/a"), ["", "bytes=100-"]);
}

#[tokio::test]
async fn a_file_that_changes_in_between_is_not_mixed() {
    let (machine, mirror) = (Machine::new(), mirror());
    let bytes = body(50_000);
    let url = mirror.put("/a", &bytes);
    mirror.break_next("/a", [Fault::StopsHalfwayOfAnother]);
    machine.converge(&state([asset("/a", &url, &sha256_hex(&bytes), None)])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    // The client asked for the rest of the old version. The mirror answered with the whole new version.
    assert_eq!(mirror.gets("/a"), ["", "bytes=25000-"]);
}

#[tokio::test]
async fn the_next_run_resumes_a_download_of_the_same_version() {
    let (mut machine, mirror) = (Machine::new(), mirror());
    let bytes = body(50_000);
    let url = mirror.put("/a", &bytes);
    let desired = state([asset("/a", &url, &sha256_hex(&bytes), None)]);
    for first in [Fault::StopsAfter(20_000), Fault::StopsHalfwayOfAnother] {
        let _ = std::fs::remove_file(machine.path("/a"));
        for name in machine.path("/var/cache/nodeup").is_dir().then(|| machine.cached()).into_iter().flatten()
        {
            std::fs::remove_file(machine.path("/var/cache/nodeup").join(name)).unwrap();
        }
        mirror.break_path("/a", Fault::Status(502));
        mirror.break_next("/a", [vec![first], vec![Fault::Status(502); 1000]].concat());
        machine = machine.downloading(downloads(SHORT));
        let error = machine.error(&desired).await;
        assert!(error.contains(&url) && error.contains("502") && error.contains("times"), "{error}");
        assert_eq!(machine.tree(), [""; 0]);
        mirror.mend_path("/a");
        let before = mirror.gets("/a").len();
        machine.converge(&desired).await.unwrap();
        assert_eq!(
            mirror.gets("/a").len(),
            before + 1,
            "one request for the rest, whichever version it is of"
        );
        assert_ne!(mirror.gets("/a")[before], "", "the download did not resume");
        assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_part_with_wrong_bytes_is_discarded() {
    let (machine, mirror) = (Machine::new(), mirror());
    let bytes = body(5000);
    let hash = sha256_hex(&bytes);
    std::fs::create_dir_all(machine.path("/var/cache/nodeup")).unwrap();
    let url = mirror.put("/a", &bytes);
    for wrong in [vec![1; 100], vec![1; 5000], vec![1; 9000]] {
        let _ = std::fs::remove_file(machine.path("/a"));
        let _ = std::fs::remove_file(machine.path(&format!("/var/cache/nodeup/{hash}_a")));
        std::fs::write(machine.path(&format!("/var/cache/nodeup/{hash}_a.part")), wrong).unwrap();
        machine.converge(&state([asset("/a", &url, &hash, None)])).await.unwrap();
        assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    }
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
    let content =
        AssetContent { url: "https://example.com/a".into(), mirrors: vec![], sha256: None, member: None };
    let error = machine.error(&state([File::new("/a", Content::Asset(content))])).await;
    assert!(error.contains("the hash of https://example.com/a is unknown"), "{error}");
    let error = machine.error(&state([asset("/a", "https://example.com/a", "ABC", None)])).await;
    assert!(error.contains("is not a SHA-256"), "{error}");
    assert_eq!(machine.tree(), [""; 0]);
}

#[tokio::test]
async fn broken_archives_and_archives_without_the_member_are_refused() {
    let (machine, mirror) = (Machine::new(), mirror());
    let archive = tar_gz(&[("bin/a", b"a"), ("bin/b", b"b")]);
    let url = mirror.put("/a.tgz", &archive);
    let desired = state([
        asset("/a", &url, &sha256_hex(&archive), Some("bin/a")),
        asset("/c", &url, &sha256_hex(&archive), Some("bin/c")),
    ]);
    let error = machine.error(&desired).await;
    assert!(error.contains("has no file bin/c; it has bin/a, bin/b"), "{error}");
    let garbage = body(3000);
    let url = mirror.put("/b.tgz", &garbage);
    let error = machine.error(&state([asset("/b", &url, &sha256_hex(&garbage), Some("bin/b"))])).await;
    assert!(error.contains(&url) && error.contains("cannot unpack"), "{error}");
    assert_eq!(machine.tree(), [""; 0]);
}

#[tokio::test]
async fn a_changed_archive_or_a_changed_file_is_installed_anew() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (one, two) = (tar_gz(&[("a", b"same")]), tar_gz(&[("a", b"same"), ("b", b"")]));
    let state_with = |archive: &[u8], url: &str| -> DesiredState {
        state([asset("/a", url, &sha256_hex(archive), Some("a"))])
    };
    let first = state_with(&one, &mirror.put("/1", &one));
    let second = state_with(&two, &mirror.put("/2", &two));
    machine.converge(&first).await.unwrap();
    assert_eq!(machine.plan(&machine.host(), &second).steps.len(), 1);
    machine.converge(&second).await.unwrap();
    assert!(machine.plan(&machine.host(), &second).is_empty());
    std::fs::write(machine.path("/a"), "tampered").unwrap();
    machine.converge(&second).await.unwrap();
    assert_eq!(machine.read("/a"), "same");
    // Only the mode changes, so nothing is fetched or written.
    let mut private = state_with(&two, "http://127.0.0.1:1/gone");
    let file = private.iter().next().unwrap().1.clone();
    if let Resource::File(file) = file {
        private = state([file.mode(Mode::PRIVATE)]);
    }
    machine.converge(&private).await.unwrap();
}

#[tokio::test]
async fn a_cache_outside_the_root_is_shared_even_from_another_file_system() {
    let (one, two, mirror) = (Machine::new(), Machine::new(), mirror());
    // If /dev/shm exists, the cache is on another file system than the machines' root directories. Then files are
    // copied.
    let cache = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let bytes = body(1000);
    let url = mirror.put("/a", &bytes);
    let desired = state([asset("/a", &url, &sha256_hex(&bytes), None)]);
    for machine in [one, two] {
        let machine = machine.downloading(downloads(CALM).cache(cache.path()));
        machine.converge(&desired).await.unwrap();
        assert!(!machine.path("/var/cache").exists());
        assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
        assert_eq!(machine.leftovers(), [""; 0]);
        assert!(machine.plan(&machine.host(), &desired).is_empty());
    }
    assert_eq!(mirror.gets("/a").len(), 1);
}
