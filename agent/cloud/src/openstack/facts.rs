//! Facts about an OpenStack server: its id from its metadata, and its address from the part of the metadata service that is
//! compatible with EC2's.

use std::net::IpAddr;
use std::path::Path;

use kops_agent_cluster::machine_id::IdForm;
use kops_agent_net::retry::Retries;
use kops_agent_spec::invalid::Invalid;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use super::config_drive::{self, META_DATA};
use crate::authenticate::AuthenticationError;
use crate::metadata::{MetadataError, MetadataService};

pub(super) const ENDPOINT: &str = "http://169.254.169.254";

/// The path of the server's address (upstream: `metadata://openstack` in util/pkg/vfs/context.go).
const LOCAL_IPV4: &str = "/latest/meta-data/local-ipv4";

/// The address of the server; empty if the metadata has no address.
pub(super) async fn local_ipv4(service: &MetadataService) -> Result<String, MetadataError> {
    let local_ipv4 = service.get(LOCAL_IPV4, &HeaderMap::new()).await?.unwrap_or_default();
    if !local_ipv4.is_empty() && local_ipv4.parse::<IpAddr>().is_err() {
        return Err(service.unusable(LOCAL_IPV4, format!("{local_ipv4:?} is not an IP address")));
    }
    Ok(local_ipv4)
}

/// The id of the server, from a config drive or else from the metadata service, as in upstream (`getMetadata` in upstream's `metadata.go`).
/// `root` is the root directory of this machine. If both sources fail, the error contains both reasons.
pub(super) async fn server_id(
    root: &Path,
    endpoint: &str,
    retries: Retries,
) -> Result<String, AuthenticationError> {
    let unknown =
        |drive: String, service: MetadataError| AuthenticationError::NoServerMetadata { drive, service };
    let service = MetadataService::new(endpoint, retries)
        .map_err(|error| unknown("kops-agent did not look for it".into(), error))?;
    let told = config_drive::read(root).await;
    let of_drive = match told.and_then(|meta_data| parse(&meta_data)) {
        Ok(id) => return Ok(id),
        Err(why) => why,
    };
    let asked = async {
        let meta_data = service.get_needed(META_DATA, &HeaderMap::new()).await?;
        parse(&meta_data).map_err(|problem| service.unusable(META_DATA, problem))
    };
    asked.await.map_err(|error| unknown(of_drive.into(), error))
}

/// Reads the id from `meta_data.json`. The file has secrets, such as the administrator's password, so errors do not repeat its content.
fn parse(meta_data: &str) -> Result<String, Invalid> {
    #[derive(Deserialize)]
    struct MetaData {
        uuid: String,
    }
    let parsed: Result<MetaData, _> = serde_json::from_str(meta_data);
    let uuid = parsed.map_err(|_| Invalid::new("its meta_data.json has no uuid"))?.uuid;
    match IdForm::Uuid.parse(&uuid) {
        Some(id) => Ok(id.to_string()),
        None => Err(Invalid::new("the uuid in its meta_data.json is malformed")),
    }
}

/// Like `server_id`, for tests of other crates.
#[cfg(any(test, feature = "testing"))]
pub async fn server_id_at(root: &Path, endpoint: &str) -> Result<String, AuthenticationError> {
    server_id(root, endpoint, Retries::default()).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    const ID: &str = "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";

    async fn address(status: u16, answer: &'static str) -> Result<String, MetadataError> {
        let server = TestServer::start(move |request| async move {
            assert_eq!(request.uri().path(), LOCAL_IPV4);
            Ok(text(status, answer))
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        local_ipv4(&service).await
    }

    #[tokio::test]
    async fn a_servers_address_is_observed() {
        assert_eq!(address(200, "10.0.0.5\n").await.unwrap(), "10.0.0.5");
        assert_eq!(address(404, "not here").await.unwrap(), "");
        assert_eq!(address(200, "").await.unwrap(), "");
        address(200, "none").await.unwrap_err();
        address(403, "").await.unwrap_err();
    }

    async fn id(status: u16, answer: String) -> Result<String, AuthenticationError> {
        let server = TestServer::start(move |request| {
            assert_eq!(request.uri().path(), META_DATA);
            let answer = answer.clone();
            async move { Ok(text(status, &answer)) }
        })
        .await;
        let root = tempfile::tempdir().unwrap();
        server_id_at(root.path(), &server.url).await
    }

    #[tokio::test]
    async fn without_a_config_drive_the_id_comes_from_the_metadata_service() {
        let told = format!(
            r#"{{"uuid": "{ID}", "admin_pass": "hidden", "hostname": "nodes-1a2b3c.novalocal", "name": "nodes-1a2b3c",
                "meta": {{"KubernetesCluster": "c"}}, "project_id": "f7ac731cc11f40efbc03a9f9e1d1d21f", "public_keys": {{}}}}"#
        );
        assert_eq!(id(200, told.clone()).await.unwrap(), ID);
        for (status, answer) in [
            (200, String::new()),
            (200, "{}".into()),
            (200, r#"{"uuid": "hidden"}"#.into()),
            (200, told[..told.len() / 2].to_owned()),
            (200, format!(r#"{{"uuid": "{ID}"}} hidden"#)),
            (200, told.replace(ID, &format!("{ID}\\n"))),
            (404, "not here".into()),
            (403, "hidden".into()),
        ] {
            let error = id(status, answer).await.unwrap_err().to_string();
            assert!(error.contains("config-2") && error.contains(META_DATA), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
