//! A stand-in for the metadata service of EC2 (IMDSv2) or GCE, for the only machine of a test. A file has the machine's user-data.
//! A file in the folder `metadata` beside the user-data replaces the item with the file's path.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::example_store::REGION;
use crate::front::{Answer, Head};
use crate::imds::mac_of;

/// The token of GCE's service account.
pub const GCE_TOKEN: &str = "the-token-of-the-service-account";
const EC2_TOKEN: &str = "the-token";

/// A cloud whose metadata service this module can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cloud {
    Aws,
    Gce,
}

#[derive(Clone, Debug)]
pub struct Metadata {
    cloud: Cloud,
    items: BTreeMap<String, String>,
    user_data: PathBuf,
    told: PathBuf,
}

impl Metadata {
    /// Makes the metadata of a machine with this address and hostname. The file `user_data` contains the machine's user-data.
    pub fn new(cloud: Cloud, address: Ipv4Addr, hostname: &str, user_data: &Path) -> Metadata {
        let items = match cloud {
            Cloud::Aws => ec2(address, hostname),
            Cloud::Gce => gce(hostname),
        };
        Metadata { cloud, items, user_data: user_data.to_owned(), told: user_data.with_file_name("metadata") }
    }

    pub fn answer(&self, head: &Head) -> Answer {
        match self.cloud {
            Cloud::Aws => self.answer_as_ec2(head),
            Cloud::Gce => self.answer_as_gce(head),
        }
    }

    fn answer_as_ec2(&self, head: &Head) -> Answer {
        if head.path() == "/latest/api/token" {
            let is_asked =
                head.method == "PUT" && head.header("x-aws-ec2-metadata-token-ttl-seconds").is_some();
            return match is_asked {
                true => Answer::Text(200, EC2_TOKEN.into()),
                false => Answer::Text(400, String::new()),
            };
        }
        if head.header("x-aws-ec2-metadata-token") != Some(EC2_TOKEN) {
            return Answer::Text(401, String::new());
        }
        // The paths of EC2's metadata begin with any version of the API, for example /latest/… or /2021-03-23/….
        let item = head.path().trim_start_matches('/').split_once('/').map(|(_version, item)| item);
        match self.item(item, "user-data") {
            Answer::Text(404, _) => item.and_then(|item| self.listing(item)).unwrap_or_else(not_found),
            answer => answer,
        }
    }

    /// Lists a folder of items, one name in each line. The name of a folder ends with a slash.
    fn listing(&self, folder: &str) -> Option<Answer> {
        let below = format!("{}/", folder.trim_end_matches('/'));
        let names: BTreeSet<&str> = self
            .items
            .keys()
            .filter_map(|path| path.strip_prefix(below.as_str()))
            .filter_map(|rest| rest.split_inclusive('/').next())
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        (!names.is_empty()).then(|| Answer::Text(200, names.join("\n")))
    }

    fn answer_as_gce(&self, head: &Head) -> Answer {
        if head.header("metadata-flavor") != Some("Google") {
            return Answer::Text(403, String::new());
        }
        self.item(head.path().strip_prefix("/computeMetadata/v1/"), "instance/attributes/user-data")
    }

    fn item(&self, item: Option<&str>, user_data: &str) -> Answer {
        match item {
            Some(item) if item == user_data && fs::metadata(&self.user_data).is_ok() => {
                Answer::File(self.user_data.clone())
            }
            Some(item) if self.told.join(item).is_file() => Answer::File(self.told.join(item)),
            Some(item) if self.items.contains_key(item) => Answer::Text(200, self.items[item].clone()),
            _ => not_found(),
        }
    }
}

fn not_found() -> Answer {
    Answer::Text(404, String::new())
}

fn ec2(address: Ipv4Addr, hostname: &str) -> BTreeMap<String, String> {
    const ID: &str = "i-0d3a0c0ffee000001";
    // vm-tests/lib/case.bash gives the machine the same MAC address.
    let mac = mac_of(address.into());
    let full_hostname = format!("{hostname}.{REGION}.compute.internal");
    let zone = format!("{REGION}a");
    let document = serde_json::json!({
        "architecture": "x86_64", "availabilityZone": &zone, "instanceId": ID, "instanceType": "m6i.large",
        "privateIp": address.to_string(), "region": REGION,
    });
    let items = [
        ("ami-id", "ami-0d3a0c0ffee000001".to_owned()),
        ("hostname", full_hostname.clone()),
        ("instance-id", ID.to_owned()),
        ("instance-type", "m6i.large".to_owned()),
        ("placement/region", REGION.to_owned()),
        ("placement/availability-zone", zone),
        ("local-ipv4", address.to_string()),
        ("local-hostname", full_hostname),
        ("mac", mac.clone()),
    ];
    // cloud-init configures the network with these items.
    let of_interface = [
        ("device-number", "0".to_owned()),
        ("local-ipv4s", address.to_string()),
        ("mac", mac.clone()),
        ("subnet-ipv4-cidr-block", "10.99.0.0/16".to_owned()),
    ];
    let of_interface =
        of_interface.map(|(item, text)| (format!("meta-data/network/interfaces/macs/{mac}/{item}"), text));
    let mut told: BTreeMap<String, String> =
        items.map(|(item, text)| (format!("meta-data/{item}"), text)).into();
    told.extend(of_interface);
    told.insert("dynamic/instance-identity/document".to_owned(), document.to_string());
    told
}

fn gce(hostname: &str) -> BTreeMap<String, String> {
    let token = format!(r#"{{"access_token": "{GCE_TOKEN}", "expires_in": 3599, "token_type": "Bearer"}}"#);
    let items = [
        ("instance/hostname", format!("{hostname}.europe-west1-b.c.example-project.internal")),
        ("instance/id", "7000000000000000001".to_owned()),
        ("instance/name", hostname.to_owned()),
        ("instance/zone", "projects/123456789012/zones/europe-west1-b".to_owned()),
        ("instance/service-accounts/default/token", token),
        ("project/project-id", "example-project".to_owned()),
    ];
    items.map(|(item, text)| (item.to_owned(), text)).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn head(method: &str, target: &str, header: &str, value: &str) -> Head {
        Head { method: method.into(), target: target.into(), headers: vec![(header.into(), value.into())] }
    }

    #[test]
    fn ec2_items_need_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let user_data = folder.path().join("user-data");
        let aws = Metadata::new(Cloud::Aws, Ipv4Addr::new(10, 99, 0, 10), "ip-1", &user_data);
        let token = head("PUT", "/latest/api/token", "x-aws-ec2-metadata-token-ttl-seconds", "60");
        assert_eq!(aws.answer(&token), Answer::Text(200, EC2_TOKEN.into()));
        let ask = |target| aws.answer(&head("GET", target, "x-aws-ec2-metadata-token", EC2_TOKEN));
        assert_eq!(ask("/latest/meta-data/mac"), Answer::Text(200, "02:00:0a:63:00:0a".into()));
        assert_eq!(ask("/latest/user-data"), Answer::Text(404, String::new()));
        fs::write(&user_data, "#!/bin/sh").unwrap();
        assert_eq!(ask("/latest/user-data"), Answer::File(user_data));
        assert_eq!(ask("/2021-03-23/meta-data/placement/region"), Answer::Text(200, REGION.into()));
        let placement = Answer::Text(200, "availability-zone\nregion".into());
        assert_eq!(
            [ask("/latest/meta-data/placement"), ask("/latest/meta-data/placement/")],
            [placement.clone(), placement]
        );
        assert_eq!(ask("/latest/dynamic"), Answer::Text(200, "instance-identity/".into()));
        assert_eq!(ask("/latest/meta-data/place"), Answer::Text(404, String::new()));
        let state = folder.path().join("metadata/meta-data/autoscaling/target-lifecycle-state");
        assert_eq!(
            ask("/latest/meta-data/autoscaling/target-lifecycle-state"),
            Answer::Text(404, String::new())
        );
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        fs::write(&state, "Warmed:Stopped").unwrap();
        assert_eq!(ask("/latest/meta-data/autoscaling/target-lifecycle-state"), Answer::File(state));
        let without = head("GET", "/latest/user-data", "x", "y");
        assert_eq!(aws.answer(&without), Answer::Text(401, String::new()));
    }

    #[test]
    fn gce_items_need_their_header() {
        let gce = Metadata::new(Cloud::Gce, Ipv4Addr::LOCALHOST, "nodes-1", Path::new("/no"));
        let name = "/computeMetadata/v1/instance/name";
        assert_eq!(
            gce.answer(&head("GET", name, "metadata-flavor", "Google")),
            Answer::Text(200, "nodes-1".into())
        );
        assert_eq!(gce.answer(&head("GET", name, "a", "b")), Answer::Text(403, String::new()));
    }
}
