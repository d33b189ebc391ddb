//! The stand-ins for S3 and for a mirror behave as the real servers do where it matters.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use kops_agent_tests::downloads::{Downloads, Fault};
use kops_agent_tests::example_store::{BUCKET, CLUSTER, ExampleStore, REGION};
use kops_agent_tests::s3::S3Server;

const PATH: &str = "/release/v1.34.2/bin/linux/amd64/kubelet";

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
    }
}

/// Sends a request without an HTTP client, so that the bytes of a truncated response stay unchanged.
fn get(url: &str, path: &str, headers: &str) -> Answer {
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nhost: mirror\r\nconnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    let end_of_head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    Answer {
        head: String::from_utf8(answer[..end_of_head].to_vec()).unwrap(),
        body: answer[end_of_head + 4..].to_vec(),
    }
}

fn mirror() -> Downloads {
    Downloads::start_with(BTreeMap::from([(PATH.to_owned(), b"0123456789".to_vec())])).unwrap()
}

#[test]
fn the_mirror_serves_a_file_and_its_checksum() {
    let mirror = mirror();
    assert_eq!(get(&mirror.url(), PATH, "").body, b"0123456789");
    assert_eq!(
        get(&mirror.url(), &format!("{PATH}.sha256"), "").body,
        b"84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"
    );
    assert_eq!(get(&mirror.url(), "/release/v9/kubelet", "").status(), "404");
    assert_eq!(mirror.paths(), [PATH]);
}

#[test]
fn the_mirror_resumes_only_the_same_file() {
    let mirror = mirror();
    let etag = get(&mirror.url(), PATH, "").header("etag").unwrap().to_owned();
    let rest = get(&mirror.url(), PATH, &format!("range: bytes=4-\r\nif-range: {etag}\r\n"));
    assert_eq!((rest.status(), rest.header("content-range")), ("206", Some("bytes 4-9/10")));
    assert_eq!(rest.body, b"456789");
    assert_eq!(get(&mirror.url(), PATH, "range: bytes=2-3\r\n").body, b"23");

    let other = get(&mirror.url(), PATH, "range: bytes=4-\r\nif-range: \"another\"\r\n");
    assert_eq!((other.status(), other.body.as_slice()), ("200", b"0123456789".as_slice()));
    assert_eq!(get(&mirror.url(), PATH, "range: bytes=10-\r\n").status(), "416");
    assert_eq!(mirror.requests()[1], format!("GET {PATH} bytes=4-"));
}

#[test]
fn the_mirror_has_the_set_faults_until_they_are_cleared() {
    let mirror = mirror();
    mirror.break_path(PATH, Fault::HtmlPage);
    let page = get(&mirror.url(), PATH, "");
    assert_eq!((page.status(), page.header("content-type")), ("200", Some("text/html")));

    mirror.break_path(PATH, Fault::StopsHalfway);
    let half = get(&mirror.url(), PATH, "");
    assert_eq!((half.header("content-length"), half.body.as_slice()), (Some("10"), b"01234".as_slice()));

    mirror.break_path(PATH, Fault::OtherBytes);
    assert_eq!(get(&mirror.url(), PATH, "").body, b"??????????");

    mirror.break_path(PATH, Fault::Status(503));
    assert_eq!(get(&mirror.url(), PATH, "").status(), "503");

    mirror.mend_path(PATH);
    assert_eq!(get(&mirror.url(), PATH, "").body, b"0123456789");
}

#[test]
fn the_s3_server_serves_the_store_to_signed_requests() {
    let folder = tempfile::tempdir().unwrap();
    let example = ExampleStore::write(folder.path(), None).unwrap();
    let s3 = S3Server::start(&example.buckets()).unwrap();
    let object = format!("/{BUCKET}/{CLUSTER}/instancegroup/nodes");

    let unsigned = get(&s3.endpoint(), &object, "");
    assert_eq!(unsigned.status(), "403", "{}", String::from_utf8_lossy(&unsigned.body));

    let signed = |secret: &str, object: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--noproxy", "*", "--write-out", "\n%{http_code}"])
            .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .args(["--aws-sigv4", &format!("aws:amz:{REGION}:s3")])
            .args(["--user", &format!("{}:{secret}", s3.access_key_id())])
            .arg(format!("{}{object}", s3.endpoint()));
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let group = std::fs::read_to_string(example.cluster_folder().join("instancegroup/nodes")).unwrap();
    assert_eq!(signed(s3.secret_access_key(), &object), format!("{group}\n200"));
    assert!(signed("not the secret", &object).ends_with("\n403"));
    assert!(
        signed(s3.secret_access_key(), &format!("/{BUCKET}/{CLUSTER}/instancegroup/none")).ends_with("\n404")
    );
    let status = |object: &str| signed(s3.secret_access_key(), object).lines().last().map(str::to_owned);
    assert!(signed(s3.secret_access_key(), "/another-bucket/object").contains("<Code>NoSuchBucket</Code>"));
    assert_eq!(status(&object).as_deref(), Some("200"));
    s3.forbid(&format!("{CLUSTER}/instancegroup/nodes"));
    assert_eq!(status(&object).as_deref(), Some("403"));
}
