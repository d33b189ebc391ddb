//! Every request writes one line to the log, with the node and the result.

use super::*;
use crate::test_log::{self, Line};

/// Sends one request from an address. Returns the status of the answer, and the log line of the request.
async fn asked_from(world: &World, from: Ipv4Addr, token: &str, body: Vec<u8>) -> (u16, Line) {
    let request = world.client(from).post(world.url()).header("Authorization", token).body(body);
    let status = request.send().await.unwrap().status().as_u16();
    let lines = test_log::lines_with(&format!(" at {from}:"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(!lines[0].text.contains(['\n', '\r', '\x1b']), "{lines:?}");
    (status, lines[0].clone())
}

#[tokio::test]
async fn a_grant_is_logged_with_the_node_and_its_certificates() {
    test_log::start();
    let world = World::new().await;
    let body = for_certificates(&["kubelet", "kube-proxy"], &KeyPair::generate().unwrap());
    let token = world.v1(&world.machine(ID), &body);
    let (status, line) = asked_from(&world, Ipv4Addr::new(127, 0, 9, 1), &token, body).await;
    assert_eq!(status, 200);
    let said =
        format!("bootstrap: granted kube-proxy, kubelet to the node {ID} ({ID} of nodes) at 127.0.9.1:");
    assert!(line.text.starts_with(&said), "{line:?}");
    for field in
        ["outcome=granted", &format!("node={ID}"), "instance_group=nodes", "given=kube-proxy, kubelet"]
    {
        assert!(line.fields.iter().any(|known| known == field), "{field}: {line:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_written_down_with_its_reason() {
    test_log::start();
    let world = World::new().await;
    let body = request(json!({}), json!({}), true);
    let known = world.machine(ID);
    let forged = Principal { secret: "guessed".into(), ..known.clone() };
    let token = world.v1(&forged, &body);
    let (status, line) = asked_from(&world, Ipv4Addr::new(127, 0, 9, 2), &token, body.clone()).await;
    assert_eq!(status, 403);
    assert!(line.text.starts_with("bootstrap: refused a machine at 127.0.9.2:"), "{line:?}");
    assert!(line.text.contains(": RefusedBySts: ") && !line.text.contains(&token), "{line:?}");
    assert!(line.fields.contains(&"reason=RefusedBySts".to_owned()), "{line:?}");

    world.ready.lock().insert(ID.into());
    let token = world.v1(&known, &body);
    let (status, line) = asked_from(&world, Ipv4Addr::new(127, 0, 9, 3), &token, body).await;
    assert_eq!(status, 409);
    assert!(line.text.starts_with(&format!("bootstrap: refused {ID} at 127.0.9.3:")), "{line:?}");
    assert!(line.fields.contains(&"outcome=refused".to_owned()), "{line:?}");
}

#[tokio::test]
async fn a_stranger_writes_no_line_of_their_own() {
    test_log::start();
    let world = World::new().await;
    let forged = Principal { secret: "guessed".into(), ..Principal::instance(ROLE, ID) };
    let body = request(json!({"x\r\nbootstrap: granted all to the node evil\u{1b}[2J": 1}), json!({}), false);
    let token = world.v1(&forged, &body);
    let (status, line) = asked_from(&world, Ipv4Addr::new(127, 0, 9, 4), &token, body).await;
    assert_eq!(status, 400);
    assert!(line.text.starts_with("bootstrap: refused a machine at 127.0.9.4:"), "{line:?}");
}

/// Waits for the only log line about requests from an address.
async fn line_of(from: Ipv4Addr) -> Line {
    let written = async {
        loop {
            let lines = test_log::lines_with(&format!(" at {from}:"));
            if let [line] = lines.as_slice() {
                return line.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), written).await.expect("it is written down")
}

#[tokio::test]
async fn a_machine_that_hangs_up_is_written_down_and_leaves_its_place_to_others() {
    test_log::start();
    let one_at_a_time = admission::Limits { at_once: 1, ..admission::Limits::default() };
    let world = World::with(server::Limits::default(), one_at_a_time).await;
    let machine = world.machine(ID);
    let body = request(json!({}), json!({}), false);
    world.sts.set_mood(kops_agent_tests::sts::Mood::Late(Duration::from_secs(5)));
    let from = Ipv4Addr::new(127, 0, 9, 5);
    let asking = world.client(from).post(world.url()).header("Authorization", world.v1(&machine, &body));
    let asking = tokio::spawn(asking.body(body.clone()).send());
    while world.sts.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    asking.abort();
    let line = line_of(from).await;
    assert!(line.text.starts_with(&format!("bootstrap: refused a machine at {from}:")), "{line:?}");
    assert!(line.fields.contains(&"reason=Abandoned".to_owned()), "{line:?}");
    assert!(world.counted("Abandoned"));
    world.sts.set_mood(kops_agent_tests::sts::Mood::Good);
    assert_eq!(world.ask(&world.v1(&machine, &body), body).await.0, 200);
}

#[tokio::test]
async fn a_body_that_is_not_read_is_written_down() {
    test_log::start();
    let world = World::new().await;
    // The size of a chunked body is only known after it has arrived. The log line must be like the line for a body of known size.
    let too_large =
        futures_util::stream::iter((0..3).map(|_| Ok::<_, std::io::Error>(vec![b' '; 32 * 1024])));
    for (number, status, reason, body) in [
        (6, 413, "BodyTooLarge", vec![b' '; 64 * 1024 + 1].into()),
        (7, 413, "BodyTooLarge", reqwest::Body::wrap_stream(too_large)),
    ] {
        let from = Ipv4Addr::new(127, 0, 9, number);
        // If the client is still sending, it may miss the answer.
        if let Ok(answer) = world.client(from).post(world.url()).body(body).send().await {
            assert_eq!(answer.status().as_u16(), status);
        }
        let line = line_of(from).await;
        assert!(line.fields.contains(&format!("reason={reason}")), "{line:?}");
        assert!(world.counted(reason));
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_written_down() {
    test_log::start();
    let limits = server::Limits { timeout: Duration::from_millis(300), ..server::Limits::default() };
    let world = World::with(limits, admission::Limits::default()).await;
    // On a busy machine, even the TLS handshake may time out. In this case, the loop tries again.
    for number in 1.. {
        let from = Ipv4Addr::new(127, 0, 12, number);
        let endless = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let request = world.client(from).post(world.url()).body(reqwest::Body::wrap_stream(endless));
        let Ok(answer) = request.send().await else { continue };
        assert_eq!(answer.status().as_u16(), 408);
        let line = line_of(from).await;
        assert!(line.fields.contains(&"reason=BodyTooSlow".to_owned()), "{line:?}");
        assert!(world.counted("BodyTooSlow"));
        return;
    }
}
