//! Facts about a GCE instance from its metadata server.

use kops_agent_cluster::fleet::ObservedMachine;
use kops_agent_spec::facts::GceFacts;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::metadata::{MetadataError, MetadataService};
use kops_agent_net::retry::Retries;

const PROJECT: &str = "project/project-id";

/// The endpoint of the metadata server. `GCE_METADATA_HOST`, which Google's own clients also read, replaces the default endpoint.
pub(super) fn endpoint_of_environment() -> String {
    let host = std::env::var("GCE_METADATA_HOST").ok().filter(|host| !host.is_empty());
    format!("http://{}", host.as_deref().unwrap_or("169.254.169.254"))
}

pub(super) async fn observe(service: &MetadataService) -> Result<GceFacts, MetadataError> {
    Ok(GceFacts {
        hostname: get(service, "instance/hostname").await?,
        project: get(service, PROJECT).await?,
        zone: zone(service).await?,
        name: get(service, "instance/name").await?,
    })
}

/// Asks for the type and the image of this instance. An instance that starts from a disk has no image.
pub(super) async fn observe_machine(service: &MetadataService) -> Result<ObservedMachine, MetadataError> {
    // The answer has the form `projects/NUMBER/machineTypes/TYPE`.
    let machine_type = get(service, "instance/machine-type").await?;
    let machine_type = machine_type.rsplit('/').next().unwrap_or_default().to_owned();
    let image = item(service, "instance/image").await?;
    Ok(ObservedMachine::new(Some(machine_type), image.as_deref().and_then(image_of_project)))
}

/// Turns `projects/PROJECT/global/images/NAME` into `PROJECT/NAME`, the form in which instance groups name an image
/// (upstream: `upup/pkg/fi/cloudup/gcetasks/instancetemplate.go`).
fn image_of_project(path: &str) -> Option<String> {
    let (project, name) = path.strip_prefix("projects/")?.split_once("/global/images/")?;
    let is_part = |part: &str| !part.is_empty() && !part.contains('/');
    (is_part(project) && is_part(name)).then(|| format!("{project}/{name}"))
}

/// The project and the zone of this instance.
pub(crate) async fn place() -> Result<Place, MetadataError> {
    let service = MetadataService::new(endpoint_of_environment(), Retries::default())?;
    Ok(Place { project: get(&service, PROJECT).await?, zone: zone(&service).await? })
}

pub(crate) struct Place {
    pub project: String,
    pub zone: String,
}

async fn zone(service: &MetadataService) -> Result<String, MetadataError> {
    // The answer has the form `projects/NUMBER/zones/ZONE`.
    let path = get(service, "instance/zone").await?;
    Ok(path.rsplit('/').next().unwrap_or_default().to_owned())
}

async fn get(service: &MetadataService, item: &str) -> Result<String, MetadataError> {
    service.get_needed(&path_of(item), &headers()).await
}

/// An item of the metadata; `None` if the server does not have it.
pub(super) async fn item(service: &MetadataService, item: &str) -> Result<Option<String>, MetadataError> {
    service.get(&path_of(item), &headers()).await
}

fn path_of(item: &str) -> String {
    format!("/computeMetadata/v1/{item}")
}

fn headers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("metadata-flavor"), HeaderValue::from_static("Google"))])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn an_instance_is_observed() {
        let server = TestServer::start(|request| async move {
            let asked_rightly =
                request.headers().get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
            Ok(match request.uri().path() {
                _ if !asked_rightly => text(403, ""),
                "/computeMetadata/v1/instance/hostname" => text(200, "nodes-1.c.project.internal\n"),
                "/computeMetadata/v1/project/project-id" => text(200, "project"),
                "/computeMetadata/v1/instance/zone" => text(200, "projects/123/zones/europe-west1-b"),
                "/computeMetadata/v1/instance/name" => text(200, "nodes-1"),
                _ => text(404, ""),
            })
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        let facts = observe(&service).await.unwrap();
        assert_eq!(
            facts,
            GceFacts {
                hostname: "nodes-1.c.project.internal".into(),
                project: "project".into(),
                zone: "europe-west1-b".into(),
                name: "nodes-1".into(),
            }
        );
    }

    #[tokio::test]
    async fn the_type_and_the_image_are_observed_as_instance_groups_name_them() {
        let server = TestServer::start(|request| async move {
            Ok(match request.uri().path() {
                "/computeMetadata/v1/instance/machine-type" => {
                    text(200, "projects/123/machineTypes/e2-medium")
                }
                "/computeMetadata/v1/instance/image" => {
                    text(200, "projects/ubuntu-os-cloud/global/images/ubuntu-2404-noble-amd64-v20260101")
                }
                _ => text(404, ""),
            })
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        let image = "ubuntu-os-cloud/ubuntu-2404-noble-amd64-v20260101".to_owned();
        let expected = ObservedMachine::new(Some("e2-medium".into()), Some(image));
        assert_eq!(observe_machine(&service).await.unwrap(), expected);
        for other in ["", "images/a", "projects/p/global/images/family/f", "projects//global/images/a"] {
            assert_eq!(image_of_project(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn answers_of_another_service_are_rejected() {
        let server = TestServer::start(|_| async { Ok(text(404, "")) }).await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        let error = observe(&service).await.unwrap_err().to_string();
        assert!(error.contains("instance/hostname: it is empty or does not exist"), "{error}");
    }
}
