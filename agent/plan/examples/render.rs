//! Development only: `render` for the conformance check before the binary exists.
#![allow(clippy::all, clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stdout, missing_docs)]
use kops_agent_plan::{facts::Facts, resolve::*, spec::*};
use std::collections::{BTreeMap, BTreeSet};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |name: &str| args.iter().position(|a| a == name).map(|i| args[i + 1].clone());
    let conf = std::fs::read(get("--conf").unwrap()).unwrap();
    let boot = BootConfig::parse(&conf, "conf").unwrap();
    let facts: Facts = serde_yaml::from_slice(&std::fs::read(get("--facts").unwrap()).unwrap()).unwrap();
    let mirror = get("--store-mirror").unwrap();
    let (url, dir) = mirror.rsplit_once('=').unwrap();
    let base = get("--config-base").unwrap();
    let read = |u: &str| std::fs::read(u.replacen(url, dir, 1));
    let cfg_url = format!(
        "{base}/igconfig/{}/{}/nodeupconfig.yaml",
        boot.instance_group_role.folder(),
        boot.instance_group_name
    );
    let mut config = NodeupConfig::parse(&read(&cfg_url).unwrap(), &cfg_url).unwrap();
    if let Some(s) = &boot.config_server {
        config.cas.insert("kubernetes-ca".into(), s.ca_certificates.clone());
    }
    let mut inputs = Inputs {
        boot,
        config,
        keysets: BTreeMap::new(),
        secret_names: BTreeSet::new(),
        manifests: BTreeMap::new(),
        facts,
    };
    if inputs.boot.config_base.is_some() {
        for k in inputs.wanted_keysets() {
            let u = format!("{base}/pki/private/{k}/keyset.yaml");
            if let Ok(b) = read(&u) {
                inputs.keysets.insert(k, Keyset::parse(&b, &u).unwrap());
            }
        }
        for s in inputs.wanted_secrets() {
            if read(&format!("{base}/secrets/{s}")).is_ok() {
                inputs.secret_names.insert(s);
            }
        }
    }
    for p in inputs.wanted_manifests() {
        let u = if p.contains("://") { p.clone() } else { format!("{base}/{p}") };
        inputs.manifests.insert(p, String::from_utf8(read(&u).unwrap()).unwrap());
    }
    let node = match resolve(inputs) {
        Ok(n) => n,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(3)
        }
    };
    let state = match kops_agent_plan::desired::desired(&node) {
        Ok(s) => s,
        Err(e) => {
            for c in e {
                eprintln!("{c}");
            }
            std::process::exit(3)
        }
    };
    let resources: Vec<_> = state
        .iter()
        .map(|(_, r)| r)
        .map(|r| {
            let mut v = serde_json::to_value(r).unwrap();
            if let Some(pieces) = v["content"].get("secretText").cloned() {
                let mut text = String::new();
                for p in pieces.as_array().unwrap() {
                    if let Some(t) = p.get("text") {
                        text.push_str(t.as_str().unwrap())
                    } else if let Some(s) = p.get("secret") {
                        let j: serde_json::Value = serde_json::from_slice(
                            &read(&format!("{base}/secrets/{}", s.as_str().unwrap())).unwrap(),
                        )
                        .unwrap();
                        text.push_str(&b64(j["Data"].as_str().unwrap()));
                    } else {
                        let k = &p["keysetPrivateKey"];
                        let y: serde_json::Value = serde_yaml::from_slice(
                            &read(&format!(
                                "{base}/pki/private/{}/keyset.yaml",
                                k["keyset"].as_str().unwrap()
                            ))
                            .unwrap(),
                        )
                        .unwrap();
                        let item = y["spec"]["keys"]
                            .as_array()
                            .unwrap()
                            .iter()
                            .find(|i| i["id"] == k["id"])
                            .unwrap();
                        text.push_str(&b64(item["privateMaterial"].as_str().unwrap()));
                    }
                }
                v["content"] = serde_json::json!({"text": text});
            }
            v
        })
        .collect();
    println!("{}", serde_json::json!({ "resources": resources }));
}
fn b64(s: &str) -> String {
    use base64::Engine;
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(s).unwrap()).unwrap()
}
