#![allow(clippy::unwrap_used)]
use super::*;

const SECRET: &str = "tok'en: \"of\" it #1";

fn shown(text: &str) -> String {
    without_placeholders(&Manifest::read(text).unwrap().with_placeholders())
}

/// The same pod, with its variable in many forms of YAML.
fn forms() -> Vec<String> {
    let single = SECRET.replace('\'', "''");
    let double = SECRET.replace('"', "\\\"");
    let pod = |env: &str| format!("spec:\n  containers:\n  - name: a\n    env:{env}\n");
    let folded = SECRET.replace(' ', "\n          ");
    vec![
        pod(&format!("\n    - name: HCLOUD_TOKEN\n      value: '{single}'")),
        pod(&format!("\n    - value: \"{double}\"\n      name: HCLOUD_TOKEN # {SECRET}")),
        pod(&format!("\n    # was {SECRET}\n    - name: HCLOUD_TOKEN\n      value: |-\n        {SECRET}")),
        pod(&format!("\n    - name: HCLOUD_TOKEN\n      value: >-\n          {folded}")),
        pod(&format!("\n    - name: HCLOUD_TOKEN\n      value: \"{}\"", double.replace(' ', "\\\n       \\x20"))),
        pod(&format!("\n    - ? value\n      : '{single}'\n      ? name\n      : HCLOUD_TOKEN")),
        pod(&format!("\n    - name: HCLOUD_TOKEN\n      value: !!str '{single}'")),
        pod(&format!(" [{{name: HCLOUD_TOKEN, value: '{single}'}}]")),
        pod(&format!("\n    - {{\"name\": \"HCLOUD_TOKEN\", \"value\": \"{double}\"}}")),
        pod(&format!("\n    - name: HCLOUD_TOKEN\n      Value: '{single}'")),
        format!("x: &env\n- name: HCLOUD_TOKEN\n  value: '{single}'\n{}", pod(" *env")),
        format!("x: &v {{value: '{single}'}}\n{}", pod("\n    - name: HCLOUD_TOKEN\n      <<: *v")),
        format!("kind: Pod\n---\n{}", pod(&format!("\n    - name: HCLOUD_TOKEN\n      value: '{single}'"))),
        serde_json::json!({"spec": {"initContainers": [{"env": [{"name": "HCLOUD_TOKEN", "value": SECRET}]}]}})
            .to_string(),
    ]
}

#[test]
fn no_form_of_yaml_shows_the_value_of_a_variable() {
    for text in forms() {
        let manifest = Manifest::read(&text).unwrap();
        assert!(manifest.hidden().any(|(_, value)| value == SECRET), "{text}");
        let shown = shown(&text);
        for part in SECRET.split(' ').filter(|part| part.len() > 2) {
            assert!(!shown.contains(part), "{part} of\n{text}is in\n{shown}");
        }
        assert!(shown.contains("[***]") && shown.contains("HCLOUD_TOKEN"), "{shown}");
        assert!(!shown.contains(&sha256_hex(SECRET.as_bytes())), "a digest tells a short value: {shown}");
    }
}

#[test]
fn what_cannot_be_read_is_not_shown_at_all() {
    for text in ["spec: [", "a: !x b\n", "just text", "- a\n", "? [a]\n: b\n", "a: *none\n", "a: b\n---\n[\n"]
    {
        assert!(Manifest::read(text).is_none(), "{text}");
    }
    assert!(!Manifest::read("").unwrap().hides() && !Manifest::read("# c\n").unwrap().hides());
}

#[test]
fn what_is_elsewhere_in_a_pod_is_hidden_by_its_name_or_its_form() {
    let last_applied =
        serde_json::json!({"spec": {"containers": [{"env": [{"name": "A", "value": "hunter2"}]}]}});
    let pod = serde_json::json!({
        "metadata": {"annotations": {"last-applied": last_applied.to_string(), "x/api-token": "hunter2"}},
        "spec": {"automountServiceAccountToken": false, "containers": [{
            "image": "registry:5000/kops/channels@sha256:0123",
            "args": ["--token=hunter2", "--password", "hunter2", "--client-key", "/srv/a.key", "--anonymous-auth=false",
                "--proxy=http://user:hunter2@proxy:3128", "sh -c 'export DB_PASSWORD=hunter2'", "--v=4"],
            "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "Basic hunter2"}]}},
        }]},
    });
    let shown = shown(&pod.to_string());
    assert!(!shown.contains("hunter2"), "{shown}");
    for stays in [
        "--token=[***]",
        "/srv/a.key",
        "--anonymous-auth=false",
        "registry:5000/kops/channels@sha256:0123",
        "--v=4",
        "automountServiceAccountToken: false",
        "@proxy:3128",
    ] {
        assert!(shown.contains(stays), "{stays} is not in\n{shown}");
    }
}

#[test]
fn values_that_differ_have_placeholders_that_do() {
    let text = |value: &str| {
        let pod = format!("spec: {{containers: [{{env: [{{name: A, value: {value}}}]}}]}}");
        Manifest::read(&pod).unwrap().with_placeholders()
    };
    assert_ne!(text("one"), text("two"));
    assert_eq!(without_placeholders(&text("one")), without_placeholders(&text("two")));
    assert_eq!(text("one"), text("'one'"));
}

#[test]
fn credentials_are_what_a_name_or_a_url_says() {
    let has = |name: &str, value: &str| {
        let pod = serde_json::json!({"spec": {"containers": [{"env": [{"name": name, "value": value}]}]}});
        Manifest::read(&pod.to_string()).unwrap().has_credentials()
    };
    for name in [
        "HCLOUD_TOKEN",
        "LINODE_TOKEN",
        "DIGITALOCEAN_ACCESS_TOKEN",
        "OS_PASSWORD",
        "OS_APPLICATION_CREDENTIAL_SECRET",
        "S3_ACCESS_KEY_ID",
        "S3_SECRET_ACCESS_KEY",
        "SCW_ACCESS_KEY",
        "SCW_SECRET_KEY",
        "AWS_SECRET_ACCESS_KEY",
    ] {
        assert!(has(name, "/x") && !has(name, ""), "{name}");
    }
    assert!(has("https_proxy", "http://user:secret@proxy.internal:3128"));
    for (name, value) in [
        ("AWS_REGION", "eu-west-1"),
        ("KUBECONFIG", "/var/lib/kops/kubeconfig"),
        ("HOME", "/tmp"),
        ("OS_USERNAME", "kops"),
        ("https_proxy", "http://proxy.internal:3128"),
        ("NO_PROXY", "a,b"),
        ("X_TOKEN_FILE", "/run/token"),
        ("USE_TOKEN", "true"),
    ] {
        assert!(!has(name, value), "{name}={value}");
    }
}

#[test]
fn what_gives_a_secret_name_a_value_is_hidden_in_each_form_of_a_list() {
    let words =
        ["env", "API_TOKEN=hunter2-a", "-e", "DB_PASSWORD=hunter2=b", "A=b", "user=robot,password=hunter2-c"];
    let login =
        ["/usr/bin/mysql", "-phunter2-d", "-u", "robot:hunter2-e", "-p", "hunter2-f", "--user", "1000:1000"];
    let json = serde_json::json!({"spec": {"containers": [{"command": words, "args": login}]}}).to_string();
    let flow = format!(
        "spec: {{containers: [{{command: [{}], args: [{}]}}]}}\n",
        words.join(", "),
        login.join(", ")
    );
    for text in [json, flow.replace("user=robot,password=hunter2-c", "'user=robot,password=hunter2-c'")] {
        let manifest = Manifest::read(&text).unwrap();
        assert!(manifest.has_credentials(), "{text}");
        let shown = shown(&text);
        assert!(!shown.contains("hunter2"), "{shown}");
        for part in [
            "API_TOKEN=[***]",
            "DB_PASSWORD=[***]",
            "A=b",
            "robot,password=[***]",
            "-p[***]",
            "robot:[***]",
            "1000:1000",
        ] {
            assert!(shown.contains(part), "{part:?} is not in {shown}");
        }
    }
    let switches = "spec: {command: [--anonymous-auth=false, API_TOKEN=/etc/token, 'https://h/?token=']}\n";
    assert!(!Manifest::read(switches).unwrap().has_credentials());
}
