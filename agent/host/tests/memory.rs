//! Peak memory of downloads, in a separate process.
#![allow(clippy::unwrap_used)]

#[path = "it"]
mod it {
    pub(crate) mod support;
}

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use it::support::{Machine, asset, state};
use sha2::Digest as _;

/// Downloads may increase this process's peak memory by less than this number of KiB. `tests/bench/run` allows 24 MiB
/// for the whole agent. `peak_kb` leaves out the process's code, because the code of this test is not optimized.
const LIMIT_KB: u64 = 12 * 1024;
const SIZE: usize = 32 * 1024 * 1024;
const FILES: [&str; 4] = ["a", "b", "c", "d"];

/// Peak memory of this process in KiB, without mapped files such as its code.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    field("VmHWM:") - field("RssFile:")
}

/// Serves large files without holding them in memory. The content is the number in the file's name, repeated.
fn serve_large_files() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let first = lines.next()?;
                lines.find(String::is_empty)?;
                let piece = vec![first.split(' ').nth(1)?.as_bytes()[1]; 65536];
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\nconnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                let pieces = if first.starts_with("HEAD") { 0 } else { SIZE / piece.len() };
                (0..pieces).try_for_each(|_| stream.write_all(&piece)).ok()
            });
        }
    });
    address
}

#[tokio::test]
async fn large_downloads_are_never_held_in_memory() {
    let machine = Machine::new();
    let url = serve_large_files();
    let files = FILES.map(|name| {
        let mut hasher = sha2::Sha256::new();
        (0..SIZE / 65536).for_each(|_| hasher.update(vec![name.as_bytes()[0]; 65536]));
        let hash = hex::encode(hasher.finalize());
        asset(&format!("/{name}"), &format!("{url}/{name}"), &hash, None)
    });
    let before = peak_kb();
    machine.converge(&state(files)).await.unwrap();
    for name in FILES {
        assert_eq!(std::fs::metadata(machine.path(&format!("/{name}"))).unwrap().len(), SIZE as u64);
    }
    let grown = peak_kb() - before;
    assert!(grown < LIMIT_KB, "{grown} kB over the {before} kB of before");
}
