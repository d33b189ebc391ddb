//! The answers to liars: a status, and no details.

use kops_agent_tests::ec2::{ACCOUNT, CLUSTER_TAG, INSTANCE_GROUP_TAG};
use kops_agent_tests::sts::Mood;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

const FORBIDDEN: &str = "failed to verify token";

fn empty() -> Vec<u8> {
    request(json!({}), json!({}), false)
}

async fn assert_refused(world: &World, token: &str, reason: &str) {
    assert_eq!(world.ask(token, empty()).await, (403, FORBIDDEN.to_owned()), "{reason}");
    assert!(world.counted(reason), "{reason}");
}

#[tokio::test]
async fn a_token_is_good_once_and_for_one_request() {
    let world = World::new().await;
    let machine = world.machine(ID);
    let token = world.v1(&machine, &empty());
    assert_eq!(world.ask(&token, empty()).await.0, 200);
    assert_refused(&world, &token, "TokenReplayed").await;
    assert_refused(&world, &world.v1(&machine, b"{}"), "TokenOfOtherRequest").await;
}

#[tokio::test]
async fn a_token_of_before_a_restart_is_not_taken_after_it() {
    let limits = (server::Limits::default(), admission::Limits::default());
    let world = World::since(Instant::now(), limits.0, limits.1).await;
    let machine = world.machine(ID);
    let now = seconds(SystemTime::now());
    let (host, body) = (world.sts.host(), empty());
    assert_refused(&world, &machine.token_v1(&host, REGION, &body, now - 30), "TokenOlderThanServer").await;
    assert_refused(&world, &machine.token_v2(&host, REGION, &body, now - 30), "TokenOlderThanServer").await;
    assert_eq!(world.sts.calls(), 0);
    assert_eq!(world.ask(&machine.token_v1(&host, REGION, &body, now), body).await.0, 200);
}

#[tokio::test]
async fn a_bad_token_is_refused_without_a_question() {
    let world = World::new().await;
    let machine = world.machine(ID);
    let (host, body, now) = (world.sts.host(), empty(), seconds(SystemTime::now()));
    for (token, reason) in [
        (String::new(), "UnknownToken"),
        ("Bearer x".into(), "UnknownToken"),
        ("x-aws-sts !".into(), "MalformedToken"),
        (machine.token_v1(&host, REGION, &body, now - 1000), "TokenExpired"),
        (machine.token_v1(&host, REGION, &body, now + 1000), "TokenFromTheFuture"),
        (machine.token_v1(&host, "eu-west-1", &body, now), "TokenForOtherCall"),
        (machine.token_v2("sts.example.com", REGION, &body, now), "TokenForOtherCall"),
        (machine.token_v2(&host, REGION, &body, now - 1000), "TokenExpired"),
    ] {
        assert_refused(&world, &token, reason).await;
    }
    assert_eq!((world.sts.calls(), world.ec2.calls().len()), (0, 0));
}

#[tokio::test]
async fn whom_sts_does_not_know_as_a_node_is_refused() {
    let world = World::new().await;
    let good = world.machine(ID);
    let body = empty();
    let forged = Principal { secret: "guessed".into(), ..good.clone() };
    assert_refused(&world, &world.v1(&forged, &body), "RefusedBySts").await;
    // In the first token format, the host is part of the signature, but is not sent.
    let elsewhere = good.token_v1("sts.example.com", REGION, &body, seconds(SystemTime::now()));
    assert_refused(&world, &elsewhere, "RefusedBySts").await;

    let key = |number: u8| format!("ASIAOTHER{number}");
    let elsewhere = good.arn.replace(ACCOUNT, "210987654321");
    for (principal, reason) in [
        (Principal { account: "210987654321".into(), arn: elsewhere, ..good.clone() }, "OtherAccount"),
        (Principal::instance("control-plane.c.example.com", ID), "OtherRole"),
        (Principal { user_id: "AROAEXAMPLE:i-0fffffffffffffff0".into(), ..good.clone() }, "OtherRole"),
        (Principal { arn: format!("arn:aws:iam::{ACCOUNT}:user/Alice"), ..good.clone() }, "OtherRole"),
    ]
    .into_iter()
    .zip(0..)
    .map(|((principal, reason), number)| (Principal { access_key: key(number), ..principal }, reason))
    {
        world.sts.put(&principal);
        assert_refused(&world, &world.v1(&principal, &body), reason).await;
    }
    assert!(world.ec2.calls().is_empty(), "EC2 is asked about nodes only");
}

#[tokio::test]
async fn an_instance_that_is_no_node_of_the_cluster_is_refused() {
    let world = World::new().await;
    let machine = world.machine(ID);
    let with = |change: fn(&mut Instance)| {
        let mut instance = Instance::of_group(CLUSTER, "nodes");
        change(&mut instance);
        instance
    };
    for (instance, reason) in [
        (with(|instance| instance.state = "stopped".into()), "InstanceNotRunning"),
        (with(|instance| instance.state = "terminated".into()), "InstanceNotRunning"),
        (Instance::of_group("other.example.com", "nodes"), "InstanceOfOtherCluster"),
        (with(|instance| drop(instance.tags.remove(CLUSTER_TAG))), "InstanceOfOtherCluster"),
        (with(|instance| drop(instance.tags.remove(INSTANCE_GROUP_TAG))), "InstanceGroupUnknown"),
    ] {
        world.ec2.put(ID, instance);
        assert_refused(&world, &world.v1(&machine, &empty()), reason).await;
    }
    world.ec2.remove(ID);
    assert_refused(&world, &world.v1(&machine, &empty()), "InstanceNotFound").await;
}

/// An attacker who assumes the nodes' role can choose any session name. So the attacker can claim to be any instance.
#[tokio::test]
async fn instances_that_a_role_makes_up_are_asked_for_together() {
    const LIES: usize = 128;
    let world = World::new().await;
    let machine = world.machine(ID);
    let lie = async |number: usize| {
        let made_up = Principal::instance(ROLE, &format!("i-{number:017x}"));
        world.sts.put(&made_up);
        let client = world.client(Ipv4Addr::new(127, 0, 3, 1 + (number % 8) as u8));
        let request = client.post(world.url()).header("Authorization", world.v1(&made_up, &empty()));
        request.body(empty()).send().await.unwrap().status().as_u16()
    };
    let honest = world.v1(&machine, &empty());
    let (answers, (honest, _)) =
        tokio::join!(futures_util::future::join_all((1..=LIES).map(lie)), world.ask(&honest, empty()));
    assert!(answers.iter().all(|status| *status == 403), "{answers:?}");
    assert_eq!(honest, 200);
    assert!(world.counted("InstanceNotFound"));
    let calls = world.ec2.calls();
    assert!(calls.len() <= LIES / 2, "{calls:?}");
}

#[tokio::test]
async fn an_sts_in_a_mood_is_believed_nothing() {
    let world = World::new().await;
    let machine = world.machine(ID);
    // The first request also makes the server look up its own identity, which happens only once.
    assert_eq!(world.ask(&world.v1(&machine, &empty()), empty()).await.0, 200);
    let elsewhere = TestServer::start(|_| async { Ok(text(200, "<Arn>evil</Arn>")) }).await;
    for mood in [Mood::Redirecting(elsewhere.url.clone()), Mood::Down, Mood::Endless] {
        world.sts.set_mood(mood.clone());
        let answer = world.ask(&world.v1(&machine, &empty()), empty()).await;
        assert_eq!(answer, (500, "internal error".into()), "{mood:?}");
        assert!(world.counted("StsUnavailable"));
    }
    world.sts.set_mood(Mood::Good);
    world.ec2.set_mood(kops_agent_tests::ec2::Mood::Down);
    let answer = world.ask(&world.v1(&machine, &empty()), empty()).await;
    assert_eq!(answer, (500, "internal error".into()));
    assert!(world.counted("Ec2Unavailable"));
}

#[tokio::test]
async fn a_certificate_that_no_node_may_have_is_refused() {
    let world = World::new().await;
    let machine = world.machine(ID);
    let key = KeyPair::generate().unwrap();
    let (good, ids) = (public_key(&key), json!({"kubernetes-ca": "7"}));
    let weak = "-----BEGIN RSA PUBLIC KEY-----\nMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCmtZ7vL+XHZiartfTdALlc8bK+\n87K10bc5w4JqQXI4SjZhlqw5Q3UIOzAO7JgE4P4IQvYpKfic1iO37ejZzMkNfKlO\ng0MXFQyqry7obl3HwqJd2JuyTMNo8wFp8u9n09426UIkM2+mFEMaj+EWcMe2QtQ1\nE7HQvXnmYPVh7SFBkQIDAQAB\n-----END RSA PUBLIC KEY-----\n";
    for (certs, ids, expected) in [
        (
            json!({"kube-router": good}),
            ids.clone(),
            "failed to issue \"kube-router\": no certificate of that name",
        ),
        (json!({"admin": good}), ids.clone(), "failed to issue \"admin\": no certificate of that name"),
        (
            json!({"kubelet": good}),
            json!({"kubernetes-ca": "6"}),
            "trusts the key pair \"6\" of kubernetes-ca",
        ),
        (
            json!({"kubelet": good}),
            json!({"service-account": "7"}),
            "trusts the key pair \"\" of kubernetes-ca",
        ),
        (json!({"kubelet": "x"}), ids.clone(), "is not a SubjectPublicKeyInfo"),
        (json!({"kubelet": good.replace("RSA ", "")}), ids.clone(), "is not a SubjectPublicKeyInfo"),
        (json!({"kubelet": weak}), ids.clone(), "neither an RSA key of 2048"),
    ] {
        let body = request(certs, ids, false);
        let (status, answer) = world.ask(&world.v1(&machine, &body), body).await;
        assert!(status == 400 && answer.contains(expected), "{status} {answer}");
    }
    for body in [&b"junk"[..], br#"{"apiVersion":"v2"}"#] {
        let (status, answer) = world.ask(&world.v1(&machine, body), body.to_vec()).await;
        assert!(status == 400 && answer.starts_with("failed to decode"), "{status} {answer}");
    }
    // If a request has no key pair ids, the server does not check them. Clients before kOps 1.22 send none.
    let body = request(json!({"kubelet": good}), Value::Null, false);
    assert_eq!(world.ask(&world.v1(&machine, &body), body).await.0, 200);
}

#[tokio::test]
async fn requests_of_another_form_are_rejected() {
    let world = World::new().await;
    let client = world.client(Ipv4Addr::LOCALHOST);
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    assert_eq!(status(client.get(world.url())).await, 405);
    assert_eq!(status(client.put(world.url())).await, 405);
    assert_eq!(status(client.post(world.url().replace("/bootstrap", "/healthz"))).await, 405);
    assert_eq!(status(client.post(world.url() + "/../secrets")).await, 404);
    // The server answers before it reads the body. If the client is still sending, it may miss the answer.
    let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let large = client
        .post(world.url())
        .header("Content-Length", 32 * 1024 + 1)
        .body(reqwest::Body::wrap_stream(never));
    assert_eq!(status(large).await, 413);
    let token = format!("x-aws-sts {}", "A".repeat(20 * 1024));
    let huge = client.post(world.url()).header("Authorization", token).send().await;
    assert!(huge.is_err() || huge.unwrap().status().as_u16() == 431);
    let twice = client.post(world.url()).header("Authorization", "a").header("Authorization", "b");
    assert_eq!(status(twice).await, 403);
}

#[tokio::test]
async fn slow_connections_and_those_without_tls_are_hung_up_on() {
    let limits = server::Limits { timeout: Duration::from_millis(300), ..server::Limits::default() };
    let world = World::with(limits, admission::Limits::default()).await;
    for said in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"] {
        let mut socket = TcpStream::connect(world.address).await.unwrap();
        socket.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        // The server may close or reset the connection.
        let _ = socket.read_to_end(&mut heard).await;
        assert!(!String::from_utf8_lossy(&heard).contains("HTTP"), "{said:?}");
    }
    // The body of this request never arrives. On a busy machine, even the handshake may time out. In this case, the request is retried.
    let client = world.client(Ipv4Addr::LOCALHOST);
    let answer = loop {
        let endless = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let request = client.post(world.url()).body(reqwest::Body::wrap_stream(endless));
        if let Ok(answer) = request.send().await {
            break answer;
        }
    };
    assert_eq!(answer.status().as_u16(), 408);
}

#[tokio::test]
async fn a_silent_connection_keeps_no_other_of_its_address_out() {
    let limits = server::Limits { connections_of_one: 2, ..server::Limits::default() };
    let world = World::with(limits, admission::Limits::default()).await;
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    let machine = world.machine(ID);
    world.sts.set_mood(Mood::Hanging);
    let asking = async {
        let answer = world.ask(&world.v1(&machine, &empty()), empty()).await;
        // On a busy machine, the server's call to STS may time out, which gives 500.
        assert!([200, 500].contains(&answer.0), "a connection that has asked is not cut off: {answer:?}");
    };
    let crowd = async {
        while world.sts.calls() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let newcomer = TcpStream::connect(world.address).await.unwrap();
        // The server ends the oldest connection that has sent no request, although its timeout is not over.
        let heard = silent.read(&mut [0]).await;
        assert!(matches!(heard, Ok(0) | Err(_)), "{heard:?}");
        world.sts.set_mood(Mood::Good);
        assert_eq!(world.metrics.connections_refused.get(), 1);
        drop(newcomer);
    };
    tokio::join!(asking, crowd);
}
