//! Mirrors that are dead, stall or lie.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::{
    CALM, Fault, Machine, Mirror, SHORT, STEADY, asset, body, client, downloads, mirror, mirrored, state,
    tar_gz,
};
use kops_agent_host::{DownloadTimeouts, Downloads};
use kops_agent_plan::resource::{Content, File};
use kops_agent_spec::digest::sha256_hex;
use kops_agent_tests::loopback::Identity;

const DEAD: &str = "http://127.0.0.1:1/a";
const SIZE: usize = 50_000;

/// A mirror with one file, and a machine that needs it.
struct Scene {
    machine: Machine,
    mirror: Mirror,
    bytes: Vec<u8>,
    url: String,
}

impl Scene {
    fn with(fault: Fault) -> Scene {
        let (mirror, bytes) = (mirror(), body(SIZE));
        let url = mirror.put("/a", &bytes);
        mirror.break_path("/a", fault);
        Scene { machine: Machine::new().downloading(downloads(SHORT)), mirror, bytes, url }
    }

    fn hash(&self) -> String {
        sha256_hex(&self.bytes)
    }

    fn file(&self) -> File {
        asset("/a", &self.url, &self.hash(), None)
    }

    /// Checks that a run fails with a message that contains `parts`, and places no file. Then checks that a run
    /// succeeds once the mirror serves the right file.
    async fn refuses(self, parts: &[&str]) -> Mirror {
        let mut desired = state([self.file()]);
        desired.add(File::text("/etc/b", "not to be written either"));
        let error = self.machine.error(&desired).await;
        for part in parts.iter().chain(&[self.url.as_str()]) {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
        assert_eq!(self.machine.tree(), [""; 0]);
        self.heals().await
    }

    async fn heals(mut self) -> Mirror {
        self.mirror.mend_path("/a");
        self.machine = self.machine.downloading(downloads(CALM));
        self.machine.converge(&state([self.file()])).await.unwrap();
        assert_eq!(std::fs::read(self.machine.path("/a")).unwrap(), self.bytes);
        assert_eq!(self.machine.cached(), [format!("{}_a", self.hash())]);
        self.mirror
    }
}

#[tokio::test]
async fn wrong_bytes_are_not_kept_and_both_hashes_are_named() {
    let scene = Scene::with(Fault::OtherBytes);
    let (right, wrong) = (scene.hash(), sha256_hex(&[b'?'; SIZE]));
    let mirror = scene.refuses(&[&right, &wrong, "50000 bytes"]).await;
    assert_eq!(mirror.gets("/a"), ["", ""], "a mirror with wrong bytes is not asked again");
}

#[tokio::test]
async fn wrong_bytes_in_an_archive_are_never_placed_though_they_can_be_unpacked() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (right, wrong) = (tar_gz(&[("bin/a", b"right")]), tar_gz(&[("bin/a", b"evil")]));
    let url = mirror.put("/a.tgz", &wrong);
    let desired = state([asset("/a", &url, &sha256_hex(&right), Some("bin/a"))]);
    let error = machine.error(&desired).await;
    assert!(error.contains(&sha256_hex(&wrong)), "{error}");
    assert_eq!((machine.tree(), machine.cached()), (vec![], vec![]));
}

#[tokio::test]
async fn a_wrong_length_is_detected() {
    for (fault, said) in [(Fault::Truncated, "25000 bytes"), (Fault::TooLong, "50008 bytes")] {
        Scene::with(fault).refuses(&["expected SHA-256", said]).await;
    }
}

#[tokio::test]
async fn a_mirror_that_never_sends_a_byte_ends_the_retries() {
    Scene::with(Fault::StopsAfter(0)).refuses(&["cannot download"]).await;
}

#[tokio::test]
async fn a_mirror_that_always_stops_half_way_ends_the_retries() {
    Scene::with(Fault::StopsHalfway)
        .refuses(&["24.4 KiB of it are downloaded and kept", "the next run"])
        .await;
}

#[tokio::test]
async fn a_web_page_is_recognized() {
    Scene::with(Fault::HtmlPage).refuses(&["a proxy or mirror answered with an HTML page"]).await;
}

#[tokio::test]
async fn a_body_that_does_not_end_is_cut_off() {
    let scene = Scene::with(Fault::Endless);
    let machine = scene.machine.downloading(downloads(SHORT).largest(1 << 20));
    let scene = Scene { machine, ..scene };
    scene.refuses(&["more than 1.0 MiB and does not end"]).await;
}

#[tokio::test]
async fn a_length_without_disk_space_is_refused_before_the_first_byte() {
    let scene = Scene::with(Fault::Claims(1 << 60));
    let machine = scene.machine.downloading(downloads(SHORT).largest(u64::MAX));
    let scene = Scene { machine, ..scene };
    let error = scene.machine.error(&state([scene.file()])).await;
    let folder = scene.machine.path("/var/cache/nodeup").display().to_string();
    for part in [&folder, "not enough disk space", "2048.0 PiB needed", "free"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    assert_eq!(scene.mirror.gets("/a"), [""; 0]);
    assert_eq!(scene.machine.tree(), [""; 0]);
    scene.heals().await;
}

#[tokio::test]
async fn if_the_first_mirror_states_a_wrong_size_the_others_are_asked() {
    for lie in [Fault::Claims(1 << 60), Fault::Endless] {
        let (first, second, bytes) = (mirror(), mirror(), body(SIZE));
        let urls = [first.put("/a", &bytes), second.put("/a", &bytes)];
        let largest = if lie == Fault::Endless { 1 << 20 } else { u64::MAX };
        first.break_path("/a", lie.clone());
        let machine = Machine::new().downloading(downloads(CALM).largest(largest));
        machine.converge(&state([mirrored("/a", &[&urls[0], &urls[1]], &sha256_hex(&bytes))])).await.unwrap();
        assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes, "{lie:?}");
        assert!(!second.gets("/a").is_empty(), "{lie:?}");
    }
}

#[tokio::test]
async fn a_user_cannot_block_runs_by_a_lock_on_the_cache_folder() {
    let scene = Scene::with(Fault::Status(404));
    scene.mirror.mend_path("/a");
    let cache = scene.machine.path("/var/cache/nodeup");
    std::fs::create_dir_all(&cache).unwrap();
    let folder = std::fs::File::open(&cache).unwrap();
    folder.lock().unwrap();
    scene.machine.converge(&state([scene.file()])).await.unwrap();
}

#[tokio::test]
async fn a_download_above_the_size_limit_is_not_started() {
    let scene = Scene::with(Fault::Claims(1 << 33));
    let machine = scene.machine.downloading(downloads(SHORT).largest(1 << 30));
    let scene = Scene { machine, ..scene };
    scene.refuses(&["a size of 8.0 GiB, but no download may be larger than 1.0 GiB"]).await;
}

#[tokio::test]
async fn a_server_without_head_is_asked_for_the_file_itself() {
    let scene = Scene::with(Fault::IgnoresHead);
    let machine = Machine::new();
    machine.converge(&state([scene.file()])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), scene.bytes);
    assert_eq!(scene.mirror.gets("/a").len(), 1);
}

#[tokio::test]
async fn a_download_with_too_few_bytes_has_stalled() {
    let started = Instant::now();
    let scene = Scene::with(Fault::Drips);
    scene.refuses(&["the server sent no more than", "bytes in 3s"]).await;
    // The whole file, at fifty bytes a second, would take a quarter of an hour.
    assert!(started.elapsed() < Duration::from_secs(450), "{:?}", started.elapsed());
}

/// Timeouts that make the client treat a response as slow after two seconds.
const BRISK: DownloadTimeouts =
    DownloadTimeouts { slow_after: Duration::from_secs(2), least_unless_slow: u64::MAX, ..CALM };

#[tokio::test]
async fn a_slow_mirror_is_replaced_by_one_that_has_not_failed() {
    let (first, second, bytes) = (mirror(), mirror(), body(SIZE));
    let urls = [first.put("/a", &bytes), second.put("/a", &bytes)];
    first.break_path("/a", Fault::Drips);
    let machine = Machine::new().downloading(downloads(BRISK));
    machine.converge(&state([mirrored("/a", &[&urls[0], &urls[1]], &sha256_hex(&bytes))])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    assert_eq!((first.gets("/a").len(), second.gets("/a").len()), (1, 1));
    assert!(second.gets("/a")[0].starts_with("bytes="), "the bytes of the first mirror are kept");
}

#[tokio::test]
async fn if_all_mirrors_are_slow_each_may_be_slow() {
    let (first, second, bytes) = (mirror(), mirror(), body(SIZE));
    let urls = [first.put("/a", &bytes), second.put("/a", &bytes)];
    // The client switches away from the second mirror only if that mirror stalls.
    for mirror in [&first, &second] {
        mirror.break_next("/a", [Fault::Drips]);
    }
    let machine = Machine::new()
        .downloading(downloads(DownloadTimeouts { stalled_after: Duration::from_secs(3), ..BRISK }));
    machine.converge(&state([mirrored("/a", &[&urls[0], &urls[1]], &sha256_hex(&bytes))])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    assert_eq!((first.gets("/a").len(), second.gets("/a").len()), (2, 1));
}

#[tokio::test]
async fn a_silent_mirror_ends_the_retries_whenever_the_silence_begins() {
    Scene::with(Fault::Silent).refuses(&["the server did not answer for 3s"]).await;
    Scene::with(Fault::StallsHalfway).refuses(&["the server", "3s"]).await;
}

#[tokio::test]
async fn a_missing_file_is_not_requested_again() {
    let scene = Scene::with(Fault::Status(404));
    let error = scene.machine.error(&state([scene.file()])).await;
    assert_eq!(error, format!("cannot download {}: the server answered 404 Not Found", scene.url));
    assert_eq!(scene.mirror.gets("/a").len(), 1);
    for (url, said) in [
        ("swift://container/a", "swift:// is not supported for downloads yet"),
        ("s3://bucket/a", "s3:// is not supported"),
        ("nowhere", "it is not a URL"),
    ] {
        let error = scene.machine.error(&state([asset("/a", url, &scene.hash(), None)])).await;
        assert!(error.contains(said), "{error}");
    }
}

#[tokio::test]
async fn redirects_are_followed_but_not_in_circles() {
    let scene = Scene::with(Fault::Status(404));
    let elsewhere = mirror();
    let there = elsewhere.put("/there", &scene.bytes);
    scene.mirror.break_path("/a", Fault::RedirectsTo(there));
    let machine = Machine::new();
    machine.converge(&state([scene.file()])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), scene.bytes);

    let scene = Scene::with(Fault::Status(404));
    scene.mirror.put("/b", b"");
    scene.mirror.break_path("/a", Fault::RedirectsTo("/b".into()));
    scene.mirror.break_path("/b", Fault::RedirectsTo("/a".into()));
    let mirror = scene.refuses(&["it redirects in a circle, through http://127.0.0.1"]).await;
    assert_eq!(mirror.gets("/b").len(), 1, "a circular redirect is requested once");
}

#[tokio::test]
async fn no_redirect_from_https_to_http_is_followed() {
    let (plain, bytes, identity) = (mirror(), body(SIZE), Identity::new().unwrap());
    let there = plain.put("/there", &bytes);
    let safe = Mirror::start_tls(BTreeMap::from([("/a".to_owned(), bytes.clone())]), &identity).unwrap();
    let machine =
        Machine::new().downloading(Downloads::new(client(&[&identity.certificate_pem])).timeouts(CALM));
    let desired = state([asset("/a", &format!("{}/a", safe.url()), &sha256_hex(&bytes), None)]);
    safe.break_path("/a", Fault::RedirectsTo(there.clone()));
    let error = machine.error(&desired).await;
    assert!(error.contains(&format!("it redirects from https to {there}")), "{error}");
    assert_eq!(plain.requests(), [""; 0]);
    safe.mend_path("/a");
    machine.converge(&desired).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_refused() {
    let (bytes, identity) = (body(SIZE), Identity::new().unwrap());
    let mirror = Mirror::start_tls(BTreeMap::from([("/a".to_owned(), bytes.clone())]), &identity).unwrap();
    let machine = Machine::new().downloading(downloads(SHORT));
    let error =
        machine.error(&state([asset("/a", &format!("{}/a", mirror.url()), &sha256_hex(&bytes), None)])).await;
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test]
async fn mirrors_are_tried_in_turn_and_resume_each_other() {
    let (first, second, machine, bytes) = (mirror(), mirror(), Machine::new(), body(SIZE));
    let urls = [first.put("/a", &bytes), second.put("/a", &bytes)];
    // The first mirror breaks off its response, and fails every later request.
    first.break_path("/a", Fault::Status(500));
    first.break_next("/a", [vec![Fault::StopsAfter(30_000)], vec![Fault::Status(500); 100]].concat());
    machine.converge(&state([mirrored("/a", &[&urls[0], &urls[1]], &sha256_hex(&bytes))])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
    assert_eq!((first.gets("/a").len(), second.gets("/a")), (2, vec!["bytes=30000-".to_owned()]));
}

#[tokio::test]
async fn the_next_mirror_replaces_one_with_wrong_bytes() {
    for fault in [
        Fault::OtherBytes,
        Fault::HtmlPage,
        Fault::Truncated,
        Fault::Drips,
        Fault::StallsHalfway,
        Fault::Status(404),
    ] {
        let (liar, honest, machine, bytes) =
            (mirror(), mirror(), Machine::new().downloading(downloads(STEADY)), body(SIZE));
        let urls = [liar.put("/a", &bytes), honest.put("/a", &bytes)];
        liar.break_path("/a", fault.clone());
        let desired = state([mirrored("/a", &[&urls[0], &urls[1]], &sha256_hex(&bytes))]);
        machine.converge(&desired).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes, "{fault:?}");
    }
}

#[tokio::test]
async fn wrong_bytes_of_one_mirror_do_not_spoil_the_next_ones() {
    let (liar, honest, machine, bytes) = (mirror(), mirror(), Machine::new(), body(SIZE));
    let urls = [liar.put("/a", &bytes), honest.put("/a", &bytes)];
    liar.break_path("/a", Fault::StopsHalfwayOfAnother);
    machine.converge(&state([mirrored("/a", &[&urls[0], &urls[1]], &sha256_hex(&bytes))])).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
}

#[tokio::test]
async fn the_run_waits_only_once_for_a_dead_mirror() {
    let (silent, honest) = (mirror(), mirror());
    let mut files = Vec::new();
    for number in 0..12 {
        let (path, bytes) = (format!("/{number}"), body(1000 + number));
        let urls = [silent.put(&path, &bytes), honest.put(&path, &bytes)];
        silent.break_path(&path, Fault::Silent);
        files.push(mirrored(&path, &[&urls[0], &urls[1]], &sha256_hex(&bytes)));
    }
    let machine = Machine::new().downloading(downloads(STEADY));
    machine.converge(&state(files)).await.unwrap();
    assert_eq!(machine.tree().len(), 12);
    // The run requests the sizes of all files at the same time, so it waits only once for the silent mirror. After this
    // wait, no file is requested from the silent mirror.
    let gets = silent.requests().iter().filter(|request| request.starts_with("GET")).count();
    assert_eq!(gets, 0);
}

#[tokio::test]
async fn if_all_mirrors_are_dead_each_is_named_and_a_recovered_one_is_used() {
    let (machine, mirror, bytes) = (Machine::new().downloading(downloads(SHORT)), mirror(), body(SIZE));
    let url = mirror.put("/a", &bytes);
    mirror.break_path("/a", Fault::Status(503));
    let desired = state([mirrored("/a", &[DEAD, &url], &sha256_hex(&bytes))]);
    let error = machine.error(&desired).await;
    for part in ["any of its 2 mirrors", DEAD, "refused", &url, "503 Service Unavailable", "tried"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    let machine = machine.downloading(downloads(CALM));
    mirror.break_next("/a", vec![Fault::Status(503); 6]);
    machine.converge(&desired).await.unwrap();
    assert_eq!(std::fs::read(machine.path("/a")).unwrap(), bytes);
}

#[tokio::test]
async fn an_archive_that_claims_a_huge_size_is_not_unpacked() {
    // An archive of a few hundred bytes, with the header of a 4 GiB file in it.
    let mut header = tar::Header::new_gnu();
    header.set_path("bin/a").unwrap();
    header.set_size(4 << 30);
    header.set_mode(0o755);
    header.set_cksum();
    let bomb = header.as_bytes().to_vec();
    let mirror = mirror();
    let url = mirror.put("/bomb.tar", &bomb);
    let machine = Machine::new().downloading(downloads(SHORT));
    let error = machine.error(&state([asset("/a", &url, &sha256_hex(&bomb), Some("bin/a"))])).await;
    assert!(error.contains("bin/a would take 4.0 GiB unpacked"), "{error}");
    assert_eq!(machine.tree(), [""; 0]);
    // A mirror with a wrong archive is reported, and the next mirror serves the right archive.
    let right = tar_gz(&[("bin/a", b"right")]);
    let lying = mirror.put("/right.tar.gz", &bomb);
    let honest = mirror.put("/mirror/right.tar.gz", &right);
    let mut file = mirrored("/a", &[&lying, &honest], &sha256_hex(&right));
    if let Content::Asset(asset) = &mut file.content {
        asset.member = Some("bin/a".into());
    }
    let machine = Machine::new().downloading(downloads(CALM));
    machine.converge(&state([file])).await.unwrap();
    assert_eq!(machine.read("/a"), "right");
}
