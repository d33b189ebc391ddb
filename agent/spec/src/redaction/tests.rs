#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;

use super::*;

/// Texts that are common in journals and errors. They look like secrets but must stay visible.
const HARMLESS: [&str; 9] = [
    "E1123 06:08:44.123456    1234 reflector.go:147] token expired; password: unset",
    "sha256:0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9",
    "k3mXq0zT9vB1Rj5Yw8LcPd2Ns7Gh4Fa6Ue+Io/QtZxE=",
    "--kubeconfig=/var/lib/kubelet/kubeconfig --authorization-rbac-super-user=admin",
    "--concurrent-serviceaccount-token-syncs=5 --tls-private-key-file=/srv/kubernetes/server.key",
    "S3_SECRET_ACCESS_KEY is not set",
    "http://[fd00::1]:3988/ answers 503",
    "git@github.com:kubernetes/kops.git at 10:30",
    "-----BEGIN CERTIFICATE-----",
];

#[test]
fn harmless_texts_stay_visible() {
    for text in HARMLESS {
        assert_eq!(Redactor::default().text(text), text);
    }
}

#[test]
fn private_keys_and_url_credentials_are_hidden_by_form() {
    for (text, shown) in [
        ("http://user:pa55@proxy:3128/ said no", "http://[***]@proxy:3128/ said no"),
        (
            "Get \"https://b.example.com/k?X-Amz-Signature=ab12&x=y\": EOF",
            "Get \"https://b.example.com/k?[***]\": EOF",
        ),
        ("http://user:p/ss@proxy/x", "http://[***]@proxy/x"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        (
            "[https://one.example,https://root:pw@two.example]",
            "[https://one.example,https://[***]@two.example]",
        ),
        ("https://mirror:5000/a@sha256:0a1b", "https://mirror:5000/a@sha256:0a1b"),
        ("-----BEGIN PRIVATE KEY-----\nabcd\n-----END PRIVATE KEY-----", "[***]\n[***]\n[***]"),
    ] {
        assert_eq!(Redactor::default().text(text), shown, "{text}");
        assert_eq!(Redactor::default().text(shown), shown, "{text}");
    }
}

#[test]
fn a_known_value_is_hidden_everywhere() {
    let value = "correct \"horse\"\nbattery staple";
    let redactor = Redactor::default().hiding(value);
    for text in [
        value.to_owned(),
        json!(value).to_string(),
        STANDARD.encode(value),
        "said: battery staple.".to_owned(),
        r#"{"line": "correct \"horse\""}"#.to_owned(),
    ] {
        let shown = redactor.text(&text);
        assert!(shown.contains(MARK) && !shown.contains("horse") && !shown.contains("staple"), "{shown}");
    }
    assert_eq!(redactor.text("one\ntwo").lines().count(), 2);
    assert_eq!(Redactor::default().hiding("abc").hiding("true").text("abcdef is true"), "abcdef is true");
}

#[test]
fn each_value_of_a_secret_that_is_a_document_is_hidden() {
    let login =
        r#"{"auths":{"registry.example.com":{"auth":"cm9ib3Q6aHVudGVyMg==","identitytoken":"a-token"}}}"#;
    let redactor = Redactor::default().hiding_secret(login);
    let shown = redactor.text("registry.example.com: cm9ib3Q6aHVudGVyMg==, robot:hunter2, hunter2, a-token");
    assert_eq!(shown, "registry.example.com: [***], [***], [***], [***]");
    let encryption = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n  \
                      - aescbc: {keys: [{name: key1, secret: c2VjcmV0LW9mLWV0Y2Q=}]}\n";
    let redactor = Redactor::default().hiding_secret(encryption);
    assert_eq!(redactor.text("secrets: c2VjcmV0LW9mLWV0Y2Q= of key1"), "secrets: [***] of key1");
}

#[test]
fn words_of_free_text_are_hidden_unless_they_are_public() {
    let unit = "[Service]\nEnvironment=API=of-the-user1\nExecStart=/usr/bin/containerd --x\n";
    let redactor = Redactor::default().hiding_words(unit).showing("ExecStart=/usr/bin/containerd\n[Service]");
    assert_eq!(
        redactor.text("/usr/bin/containerd[1]: refused of-the-user1; ExecStart=x"),
        "/usr/bin/containerd[1]: refused [***]; ExecStart=x"
    );
    let encoded = STANDARD.encode("password: correcthorse\n");
    let shown = Redactor::default().hiding_words(&encoded).text("it is correcthorse");
    assert_eq!(shown, "it is [***]");
    let redactor = Redactor::default()
        .hiding_free_text("eu-west-1")
        .hiding_free_text("eu-west-9")
        .showing("region: eu-west-1");
    assert_eq!(redactor.text("eu-west-1, eu-west-9"), "eu-west-1, [***]");
    assert_eq!(redactor.of_secrets().text("eu-west-9"), "eu-west-9");
}

#[test]
fn a_variables_value_is_a_login_or_free_text() {
    let redactor = Redactor::default()
        .hiding_variable("HCLOUD_TOKEN", "abcd")
        .hiding_variable("OF_AN_OPERATOR", "hunter2")
        .hiding_variable("LEVEL", "info")
        .hiding_variable("https_proxy", "http://robot:pa55@proxy:3128");
    assert_eq!(
        redactor.text("abcd, hunter2, info, pa55 at proxy:3128"),
        "[***], [***], info, [***] at proxy:3128"
    );
}

#[test]
fn passwords_of_urls_are_found() {
    for value in ["http://user:p%40ssword@proxy:3128", "robot:p@ssword@proxy:3128"] {
        let redactor = Redactor::default().hiding_variable("HTTPS_PROXY", value);
        assert_eq!(redactor.text("the proxy refuses p@ssword"), "the proxy refuses [***]", "{value}");
    }
    let image = "registry:5000/pause@sha256:e1f2";
    assert_eq!(Redactor::default().hiding_passwords(image).text("pulling 5000/pause"), "pulling 5000/pause");
}

#[test]
fn a_variable_has_a_login_by_its_name_or_as_a_url() {
    for (name, value) in [
        ("OS_PASSWORD", "x"),
        ("S3_ENDPOINT", "https://robot:pa55@minio:9000"),
        ("DATABASE", "postgres://robot@db/x"),
        ("https_proxy", "http://robot:pa55@proxy:3128"),
        ("HTTPS_PROXY", "robot:pa55@proxy:3128"),
    ] {
        assert!(is_login(name, value), "{name}");
    }
    for (name, value) in [
        ("EMAIL", "operator@example.com"),
        ("IMAGE", "registry:5000/pause@sha256:e1f2"),
        ("SSH_TARGET", "git@github.com:22"),
        ("HTTPS_PROXY", "http://proxy:3128"),
        ("HTTPS_PROXY", "proxy:3128"),
        ("S3_ENDPOINT", "https://minio/a@b"),
    ] {
        assert!(!is_login(name, value), "{name}={value}");
    }
}

#[test]
fn the_beginning_of_a_hidden_value_at_a_cut_is_found() {
    let redactor = Redactor::default().hiding("secret-a").hiding_free_text("first line\nsecond \"line\"");
    for (text, before) in [
        ("is s", "is "),
        ("is secret-", "is "),
        ("is secret-a", "is "),
        ("is secret-b", "is secret-b"),
        ("first line\nsec", ""),
        ("1: second \"li", "1: "),
        ("1: second \\\"li", "1: "),
        ("ä", "ä"),
        ("", ""),
    ] {
        assert_eq!(redactor.before_cut(text), before, "{text}");
    }
    assert_eq!(Redactor::default().before_cut("secret"), "secret");
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_known_value_survives_redaction(before in "[ -~ä\n]{0,30}", after in "[ -~ä\n]{0,30}", secret in "[ -~ä\n]{4,40}") {
        let secret = secret.trim();
        prop_assume!(is_hidden(secret) && !MARK.contains(secret));
        let redactor = Redactor::default().hiding(secret);
        let shown = redactor.text(&format!("{before}{secret}{after}{secret}"));
        prop_assert!(!shown.contains(secret), "{shown:?}");
        prop_assert_eq!(redactor.text(&shown), shown);
        let value = redactor.json(&json!({"field": [format!("{before}{secret}"), after]})).to_string();
        prop_assert!(!value.contains(&json_escaped(secret)), "{value}");
    }
}
