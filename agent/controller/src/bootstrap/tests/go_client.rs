//! kOps' nodeup is written in Go. Here Go's own TLS (`tests/go-client`) connects to a server that asks each client for a
//! certificate. Skipped without a `go` command.

#![allow(clippy::print_stderr)]

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::*;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/go-client");

async fn post(program: &Path, world: &World, path: &str, token: &str, body: &[u8], tls: &str) -> [String; 3] {
    let authority = world.folder.path().join("authority.pem");
    fs::write(&authority, &world.authority.pem).unwrap();
    let mut client = Command::new(program)
        .arg(format!("https://{NAME}:{}{path}", world.address.port()))
        .arg(world.address.to_string())
        .arg(authority)
        .args([token, tls])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(body).await.unwrap();
    drop(stdin);
    let output = client.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut parts = text.splitn(3, '\n').map(str::to_owned);
    [(); 3].map(|()| parts.next().unwrap())
}

#[tokio::test]
async fn gos_tls_bootstraps_without_a_certificate_of_its_own() {
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("go-client");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(SOURCE);
    match build.status().await {
        Ok(status) => assert!(status.success(), "{SOURCE} cannot be built"),
        Err(error) => {
            return eprintln!("skipped: how Go's TLS meets our server, for there is no go: {error}");
        }
    }
    let world = World::new().await;
    let machine = world.machine(ID);
    for (tls, spoken) in [("1.2", "TLS 1.2"), ("1.3", "TLS 1.3")] {
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let token = world.v1(&machine, &body);
        let [version, status, answer] = post(&program, &world, "/bootstrap", &token, &body, tls).await;
        assert_eq!((version.as_str(), status.as_str()), (spoken, "200"), "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["Certs"]["kubelet"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
        // The client presents no certificate, so the endpoint `/renew` rejects the request.
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let token = world.v1(&machine, &body);
        let [_, status, answer] = post(&program, &world, "/renew", &token, &body, tls).await;
        assert_eq!((status.as_str(), answer.as_str()), ("403", "NoClientCertificate"));
    }
}
