//! Renewal requests of running nodes, and of impostors.

mod configurations;

use kops_agent_cluster::bootstrap::renewal::holder;
use rcgen::{DistinguishedName, DnType, ExtendedKeyUsagePurpose, date_time_ymd};
use time::OffsetDateTime;

use super::*;
use crate::test_log;
use kops_agent_net::tls;

const OTHER_ID: &str = "i-0123456789abcdef1";

/// A certificate and its key, in PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The fields of a client certificate.
struct Shown<'a> {
    organizations: &'a [&'a str],
    name: &'a str,
    usage: Option<ExtendedKeyUsagePurpose>,
    until: OffsetDateTime,
}

impl<'a> Shown<'a> {
    fn kubelet(name: &'a str) -> Shown<'a> {
        let until = OffsetDateTime::now_utc() + time::Duration::days(30);
        Shown {
            organizations: &["system:nodes"],
            name,
            usage: Some(ExtendedKeyUsagePurpose::ClientAuth),
            until,
        }
    }

    fn signed_by(&self, authority: &Authority) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // rcgen keeps one value per type of name. It treats the type of the second organization as another type, because this type is
        // written as an OID.
        let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        for (kind, organization) in types.into_iter().zip(self.organizations) {
            params.distinguished_name.push(kind, *organization);
        }
        params.distinguished_name.push(DnType::CommonName, self.name);
        params.extended_key_usages = self.usage.clone().into_iter().collect();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), self.until);
        let issued = authority.issue(&params).unwrap();
        Pair { certificate: issued.certificate, key: issued.private_key }
    }
}

pub(super) fn kubelet(world: &World, id: &str) -> Pair {
    Shown::kubelet(&format!("system:node:{id}")).signed_by(&world.authority)
}

/// A machine whose Node is Ready.
pub(super) fn node(world: &World, id: &str) -> Principal {
    let machine = world.machine(id);
    world.ready.lock().insert(id.into());
    let provider_id = format!("aws:///us-test-1a/{id}");
    world.provider_ids.lock().insert(id.into(), provider_id);
    machine
}

/// Sends a renewal request with a client certificate. Returns the status and the text of the answer. If TLS fails, the status is 0.
pub(super) async fn renew(world: &World, shown: Option<&Pair>, token: &str, body: Vec<u8>) -> (u16, String) {
    let pem = &world.authority.pem;
    let config = match shown {
        Some(pair) => tls::client_config_trusting_as(pem, &pair.certificate, &pair.key).unwrap(),
        None => tls::client_config_trusting(pem).unwrap(),
    };
    renew_from(Ipv4Addr::LOCALHOST, config, world, token, body).await
}

async fn renew_from(
    from: Ipv4Addr,
    config: ClientConfig,
    world: &World,
    token: &str,
    body: Vec<u8>,
) -> (u16, String) {
    let client = Client::builder().tls_backend_preconfigured(config).no_proxy().resolve(NAME, world.address);
    let client = client.local_address(IpAddr::from(from)).timeout(ANSWERED_WITHIN).build().unwrap();
    let url = format!("https://{NAME}:{}/renew", world.address.port());
    match client.post(url).header("Authorization", token).body(body).send().await {
        Ok(answer) => (answer.status().as_u16(), text_of(answer).await),
        Err(error) => (0, kops_agent_net::http::innermost_cause(error)),
    }
}

async fn assert_refused(world: &World, shown: &Pair, machine: &Principal, reason: &str) {
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let token = world.v1(machine, &body);
    assert_eq!(renew(world, Some(shown), &token, body).await, (403, reason.to_owned()));
    assert!(renewals(world).contains(&format!("outcome=\"refused\",reason=\"{reason}\"")), "{reason}");
    assert!(!renewals(world).contains("granted"), "{}", renewals(world));
}

fn renewals(world: &World) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    world.metrics.register(&mut registry);
    let all = super::super::super::metrics::text(&registry);
    all.lines().filter(|line| line.contains("renewal_requests_total")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_ready_node_gets_the_same_certificates_as_at_bootstrap() {
    let world = World::new().await;
    let machine = node(&world, ID);
    let present = kubelet(&world, ID);
    let key = KeyPair::generate().unwrap();
    let names = ["kubelet", "kubelet-server", "kube-proxy", "etcd-client-cilium"];
    let body = for_certificates(&names, &key);
    assert_eq!(world.ask(&world.v1(&machine, &body), body.clone()).await.0, 409, "it bootstraps no more");

    let (status, answer) = renew(&world, Some(&present), &world.v1(&machine, &body), body).await;
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["Certs"].as_object().unwrap().len(), 4);
    let subject = |name: &str| {
        let pem = answer["Certs"][name].as_str().unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        assert_eq!(certificate.public_key().raw, key.subject_public_key_info());
        let days = certificate.validity().time_to_expiration().unwrap().whole_days();
        assert!((454..490).contains(&days), "{days}");
        certificate.subject().to_string()
    };
    assert_eq!(subject("kubelet"), format!("O=system:nodes, CN=system:node:{ID}"));
    assert_eq!(subject("kubelet-server"), format!("CN={ID}"));

    let body = request(Value::Null, Value::Null, true);
    let (status, answer) = renew(&world, Some(&present), &world.v1(&machine, &body), body).await;
    assert!(status == 200 && answer.contains("Networking"), "{status} {answer}");
    assert!(renewals(&world).contains("{outcome=\"granted\",reason=\"Granted\"} 2"), "{}", renewals(&world));
    assert!(!world.counted("Granted\"} 3"));
}

#[tokio::test]
async fn a_certificate_that_is_not_good_ends_the_handshake_and_is_written_down() {
    let world = World::new().await;
    let machine = node(&world, ID);
    let name = format!("system:node:{ID}");
    let expired = Shown { until: date_time_ymd(2021, 1, 1), ..Shown::kubelet(&name) };
    let server = Shown { usage: Some(ExtendedKeyUsagePurpose::ServerAuth), ..Shown::kubelet(&name) };
    let ours = Shown::kubelet(&name);
    let of_kubelet = kubelet(&world, ID);
    let stolen_without_key = Pair { key: KeyPair::generate().unwrap().serialize_pem(), ..of_kubelet };
    for (count, shown) in [
        ours.signed_by(&new_authority("kubernetes-ca")),
        expired.signed_by(&world.authority),
        server.signed_by(&world.authority),
    ]
    .iter()
    .enumerate()
    {
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let (status, problem) = renew(&world, Some(shown), &world.v1(&machine, &body), body).await;
        assert_eq!(status, 0, "{problem}");
        let line = format!("{{outcome=\"refused\",reason=\"ClientCertificateRefused\"}} {}", count + 1);
        eventually(|| renewals(&world).contains(&line)).await;
    }
    let pem = &world.authority.pem;
    let (certificate, key) = (&stolen_without_key.certificate, &stolen_without_key.key);
    assert!(tls::client_config_trusting_as(pem, certificate, key).is_err(), "our own TLS already says no");
    assert_eq!(world.sts.calls(), 0);
    // A machine does not need a client certificate to bootstrap.
    world.ready.lock().clear();
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    assert_eq!(world.ask(&world.v1(&machine, &body), body).await.0, 200);
}

/// The server rejects a chain of several certificates early. Otherwise webpki would try 20 authorities of one name in all orders, which
/// takes seconds.
#[tokio::test]
async fn a_client_that_shows_more_than_its_own_certificate_is_refused_before_verification() {
    test_log::start();
    let world = World::new().await;
    let machine = node(&world, ID);
    let decoys = || (0..20).map(|_| new_authority("kubernetes-ca").pem).collect::<String>();
    let own = kubelet(&world, ID);
    for (from, beside) in [(71, world.authority.pem.clone()), (72, decoys())] {
        let shown = Pair { certificate: own.certificate.clone() + &beside, key: own.key.clone() };
        let config =
            tls::client_config_trusting_as(&world.authority.pem, &shown.certificate, &shown.key).unwrap();
        let from = Ipv4Addr::new(127, 0, 1, from);
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let (status, problem) = renew_from(from, config, &world, &world.v1(&machine, &body), body).await;
        assert_eq!(status, 0, "{problem}");
        let line = || test_log::lines_with(&format!(" at {from}:")).pop();
        eventually(|| line().is_some()).await;
        let text = line().unwrap().text;
        assert!(text.contains("show only the client's certificate"), "{text}");
    }
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let answer = renew(&world, Some(&own), &world.v1(&machine, &body), body).await;
    assert_eq!(answer.0, 200, "{}", answer.1);
}

#[tokio::test]
async fn only_a_kubelets_certificate_renews() {
    let world = World::new().await;
    let machine = node(&world, ID);
    let name = format!("system:node:{ID}");
    let two_groups = ["system:nodes", "system:masters"];
    for shown in [
        Shown { organizations: &[], ..Shown::kubelet("system:kube-controller-manager") },
        Shown::kubelet("system:kube-controller-manager"),
        Shown { organizations: &["system:masters"], ..Shown::kubelet(&name) },
        Shown { organizations: &[], ..Shown::kubelet(&name) },
        Shown { organizations: &two_groups, ..Shown::kubelet(&name) },
        Shown::kubelet("system:node:"),
        Shown::kubelet("system:node:../x"),
        Shown::kubelet(ID),
        // A certificate without any usage is valid for every usage (RFC 5280, section 4.2.1.12).
        Shown { usage: None, ..Shown::kubelet(&name) },
    ] {
        assert_refused(&world, &shown.signed_by(&world.authority), &machine, "CertificateOfNoNode").await;
    }
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let answer = renew(&world, None, &world.v1(&machine, &body), body).await;
    assert_eq!(answer, (403, "NoClientCertificate".to_owned()));
    assert_eq!(holder(Some(b"no certificate")).unwrap_err().reason(), "CertificateOfNoNode");
    assert_eq!(world.sts.calls(), 0, "no cloud is asked for it");
}

#[tokio::test]
async fn the_machine_must_be_the_one_whose_certificate_it_shows() {
    let world = World::new().await;
    let (machine, other) = (node(&world, ID), node(&world, OTHER_ID));
    // A pod on each machine presents the machine's token with a certificate that was stolen from the other machine.
    assert_refused(&world, &kubelet(&world, OTHER_ID), &machine, "CertificateOfOtherNode").await;
    assert_refused(&world, &kubelet(&world, ID), &other, "CertificateOfOtherNode").await;
    // Now an unknown machine presents a stolen certificate.
    let stranger = Principal::instance(ROLE, "i-0aaaaaaaaaaaaaaaa");
    world.sts.put(&stranger);
    assert_refused(&world, &kubelet(&world, ID), &stranger, "InstanceNotFound").await;
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let (status, answer) = renew(&world, Some(&kubelet(&world, ID)), "", body).await;
    assert_eq!((status, answer.as_str()), (403, "UnknownToken"));
}

#[tokio::test]
async fn a_renewal_asks_the_cloud_again_about_the_machine() {
    for (instance, reason) in [
        (
            Instance { state: "terminated".into(), ..Instance::of_group(CLUSTER, "nodes") },
            "InstanceNotRunning",
        ),
        (Instance::of_group("other.example.com", "nodes"), "InstanceOfOtherCluster"),
    ] {
        let world = World::new().await;
        let machine = node(&world, ID);
        world.ec2.put(ID, instance);
        assert_refused(&world, &kubelet(&world, ID), &machine, reason).await;
    }
}

#[tokio::test]
async fn the_node_must_be_the_machines_own_still() {
    let world = World::new().await;
    let machine = node(&world, ID);
    let present = kubelet(&world, ID);
    let says = |provider_id: &str| {
        world.provider_ids.lock().insert(ID.into(), provider_id.into());
    };
    for provider_id in ["", "aws:///us-test-1a/i-0123456789abcdef1", "gce://p/us-test1-a/n"] {
        says(provider_id);
        assert_refused(&world, &present, &machine, "NodeOfOtherInstance").await;
    }
    world.provider_ids.lock().clear();
    world.ready.lock().clear();
    assert_refused(&world, &present, &machine, "NodeNotFound").await;

    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    world.api_is_down.store(true, Ordering::Relaxed);
    assert_eq!(renew(&world, Some(&present), &world.v1(&machine, &body), body.clone()).await.0, 500);
    world.api_is_down.store(false, Ordering::Relaxed);
    // The machine registers its Node again. Whether the Node is Ready does not matter.
    says(&format!("aws:///us-test-1a/{ID}"));
    assert_eq!(renew(&world, Some(&present), &world.v1(&machine, &body), body).await.0, 200);
}

#[tokio::test]
async fn no_other_names_are_given_than_by_a_bootstrap() {
    let world = World::new().await;
    let machine = node(&world, ID);
    let present = kubelet(&world, ID);
    for name in
        ["kube-controller-manager", "kube-scheduler", "kops", "aggregator", "kubelet-api", "kube-router"]
    {
        let body = for_certificates(&["kubelet", name], &KeyPair::generate().unwrap());
        let (status, answer) = renew(&world, Some(&present), &world.v1(&machine, &body), body).await;
        assert!(status == 400 && answer.contains("no certificate of that name"), "{status} {answer}");
    }
    assert!(!renewals(&world).contains("granted"));
}

#[tokio::test]
async fn a_node_that_repeats_requests_is_limited_and_costs_other_nodes_nothing() {
    let world = World::new().await;
    let (machine, other) = (node(&world, ID), node(&world, OTHER_ID));
    let present = kubelet(&world, ID);
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let token = world.v1(&machine, &body);
    assert_eq!(renew(&world, Some(&present), &token, body.clone()).await.0, 200);
    // Repeat one request many times, like an eavesdropper's replay or a faulty node.
    let mut statuses = BTreeMap::<u16, usize>::new();
    for _ in 0..40 {
        let (status, answer) = renew(&world, Some(&present), &token, body.clone()).await;
        if status == 429 {
            assert!(answer.contains("asks too often"), "{answer}");
        } else {
            assert_eq!((status, answer.as_str()), (403, "TokenReplayed"));
        }
        *statuses.entry(status).or_default() += 1;
    }
    assert_eq!(statuses, BTreeMap::from([(403, 11), (429, 29)]));
    assert!(world.sts.calls() <= 2, "the cloud is not asked for what is too often");
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let given = renew(&world, Some(&kubelet(&world, OTHER_ID)), &world.v1(&other, &body), body).await;
    assert_eq!(given.0, 200, "{}", given.1);
}

/// Sends many requests from an address, with a stolen certificate but without a token. Returns how many exceeded the rate limit.
async fn flood(world: &World, stolen: &Pair, from: Ipv4Addr, times: usize) -> usize {
    let mut too_often = 0;
    for _ in 0..times {
        let (pem, key) = (&stolen.certificate, &stolen.key);
        let config = tls::client_config_trusting_as(&world.authority.pem, pem, key).unwrap();
        match renew_from(from, config, world, "", Vec::new()).await {
            (403, text) => assert_eq!(text, "UnknownToken"),
            (429, _) => too_often += 1,
            other => panic!("{other:?}"),
        }
    }
    too_often
}

#[tokio::test]
async fn a_stolen_certificate_takes_nothing_of_its_nodes_allowance_elsewhere() {
    let world = World::new().await;
    let (machine, other) = (node(&world, ID), node(&world, OTHER_ID));
    let stolen = kubelet(&world, ID);
    let thief = Ipv4Addr::new(127, 0, 20, 1);
    assert_eq!(flood(&world, &stolen, thief, 20).await, 8);
    let honest = async || {
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        renew(&world, Some(&stolen), &world.v1(&machine, &body), body).await.0
    };
    assert_eq!(honest().await, 200, "the node is at another address");
    // A thief with many addresses must not use up the allowance of all nodes with one certificate.
    let mut too_often = 0;
    for last in 2..40 {
        too_often += flood(&world, &stolen, Ipv4Addr::new(127, 0, 20, last), 4).await;
    }
    assert!(too_often > 90, "{too_often} of 152");
    assert_eq!(honest().await, 200, "the node was seen at its address before");
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let given = renew(&world, Some(&kubelet(&world, OTHER_ID)), &world.v1(&other, &body), body).await;
    assert_eq!(given.0, 200, "{}", given.1);
    assert_eq!(world.sts.calls(), 4, "{}", renewals(&world));
}

#[tokio::test]
async fn the_authority_that_signs_now_is_the_one_that_vouches() {
    let mut world = World::new().await;
    let machine = node(&world, ID);
    let before = kubelet(&world, ID);
    world.promote(new_authority("kubernetes-ca"));
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    assert_eq!(renew(&world, Some(&before), &world.v1(&machine, &body), body.clone()).await.0, 0);
    let after = kubelet(&world, ID);
    assert_eq!(renew(&world, Some(&after), &world.v1(&machine, &body), body).await.0, 200);
}

#[tokio::test]
async fn one_that_is_trusted_still_vouches_for_nodes_until_it_is_distrusted() {
    let mut world = World::new().await;
    let machine = node(&world, ID);
    let before = kubelet(&world, ID);
    let promoted = new_authority("kubernetes-ca");
    let trusted = world.pki().join(kops_agent_plan::desired::NODE_AUTHORITIES);
    fs::write(&trusted, format!("{}{}", world.authority.pem, promoted.pem)).unwrap();
    world.promote(promoted);
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    assert_eq!(renew(&world, Some(&before), &world.v1(&machine, &body), body).await.0, 200);

    fs::write(&trusted, &world.authority.pem).unwrap();
    world.keystore.refresh();
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    assert_eq!(renew(&world, Some(&before), &world.v1(&machine, &body), body).await.0, 0);

    // If one authority is invalid, the other authorities stay valid.
    fs::write(&trusted, "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n").unwrap();
    world.keystore.refresh();
    let after = kubelet(&world, ID);
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    assert_eq!(renew(&world, Some(&after), &world.v1(&machine, &body), body).await.0, 200);
}

#[tokio::test]
async fn each_renewal_is_a_line_of_the_log_with_the_certificate_that_was_shown() {
    test_log::start();
    let world = World::new().await;
    let machine = node(&world, ID);
    let of_other = new_authority("kubernetes-ca");
    let name = format!("system:node:{ID}");
    for (last, shown, begins, fields) in [
        (
            1,
            kubelet(&world, ID),
            format!("renewal: granted kubelet to the node {ID} ({ID} of nodes) at 127.0.10.1:"),
            &["outcome=granted", "given=kubelet"][..],
        ),
        (
            2,
            kubelet(&world, OTHER_ID),
            format!("renewal: refused {ID} at 127.0.10.2:"),
            &["outcome=refused", "reason=CertificateOfOtherNode"],
        ),
        (
            3,
            Shown::kubelet(&name).signed_by(&of_other),
            "renewal: refused a machine at 127.0.10.3:".to_owned(),
            &["outcome=refused", "reason=ClientCertificateRefused"],
        ),
    ] {
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let token = world.v1(&machine, &body);
        let from = Ipv4Addr::new(127, 0, 10, last);
        let pem = &world.authority.pem;
        let config = tls::client_config_trusting_as(pem, &shown.certificate, &shown.key).unwrap();
        renew_from(from, config, &world, &token, body).await;
        let lines = test_log::lines_with(&format!(" at {from}:"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].text.starts_with(&begins), "{lines:?}");
        let (_, pem) = x509_parser::pem::parse_x509_pem(shown.certificate.as_bytes()).unwrap();
        let serial = pem.parse_x509().unwrap().raw_serial_as_string().replace(':', "");
        // The log line has no serial number, because a certificate that TLS rejects is not parsed further.
        let serial = if last == 3 { "serial=".to_owned() } else { format!("serial={serial}") };
        for field in fields.iter().chain([&serial.as_str()]) {
            assert!(lines[0].fields.iter().any(|known| known == field), "{field}: {lines:?}");
        }
    }
}
