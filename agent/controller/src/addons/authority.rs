//! The authority of an add-on (`needsPKI`): a Secret with its key, and an Issuer of cert-manager that signs with it.
//!
//! Source: `installPKI` and `IsPKIInstalled` of upstream's `channels/pkg/channels`.

use kops_agent_cluster::addons::manifest::ObjectKind;
use kops_agent_cluster::addons::prune::Listed;
use kops_agent_pki::self_signed_authority;
use kops_agent_spec::failure::{Failing as _, Failure};
use serde_json::json;
use time::OffsetDateTime;

use super::objects::Objects;
use super::resources::Resource;
use kops_agent_kube::api_error::ApiError;

/// The namespace of the Secret and the Issuer of every add-on, also of add-ons in other namespaces.
const NAMESPACE: &str = "kube-system";

pub fn secret_name(addon: &str) -> String {
    format!("{addon}-ca")
}

pub async fn is_there(objects: &Objects, addon: &str) -> Result<bool, ApiError> {
    let has_secret = objects.get(&secrets(), NAMESPACE, &secret_name(addon)).await?.is_some();
    Ok(has_secret && objects.get(&issuers(), NAMESPACE, addon).await?.is_some())
}

/// Returns the Secret and the Issuer of an add-on if they exist, and a problem for each failed lookup. A cluster without cert-manager has
/// no Issuers.
pub async fn found(objects: &Objects, addon: &str) -> (Vec<(Resource, Listed)>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for (resource, name) in [(secrets(), secret_name(addon)), (issuers(), addon.to_owned())] {
        match objects.get(&resource, NAMESPACE, &name).await {
            Ok(Some(_)) => found.push((
                resource,
                Listed { namespace: NAMESPACE.to_owned(), name, is_paused: false, is_owned: false },
            )),
            Ok(None) => {}
            Err(error) => {
                problems.push(format!("looking for {} {NAMESPACE}/{name}: {error}", resource.api.kind))
            }
        }
    }
    (found, problems)
}

/// Creates the Secret and the Issuer if they are missing. An existing Secret keeps its key: another control plane may have just
/// created it.
pub async fn make(objects: &Objects, addon: &str, now: OffsetDateTime) -> Result<(), Failure> {
    let authority = self_signed_authority(addon, now)
        .map_err(|error| Failure::new(error.kind(), format!("creating the add-on's authority: {error}")))?;
    let name = secret_name(addon);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "stringData": { "tls.crt": authority.certificate, "tls.key": authority.private_key },
    });
    let made = objects.create(&secrets(), NAMESPACE, secret).await;
    made.map_err(|error| {
        Failure::new(error.kind(), format!("creating the Secret {NAMESPACE}/{name}: {error}"))
    })?;
    let issuer = json!({
        "apiVersion": issuers().api.api_version, "kind": "Issuer",
        "metadata": { "name": addon, "namespace": NAMESPACE },
        "spec": { "ca": { "secretName": name } },
    });
    objects.create(&issuers(), NAMESPACE, issuer).await.map_err(|error| {
        let hint =
            if error.is_not_found() { "; install cert-manager first, which defines this kind" } else { "" };
        Failure::new(error.kind(), format!("creating the Issuer {NAMESPACE}/{addon}: {error}{hint}"))
    })
}

fn secrets() -> Resource {
    resource("v1", "Secret", "secrets")
}

fn issuers() -> Resource {
    resource("cert-manager.io/v1", "Issuer", "issuers")
}

fn resource(api_version: &str, kind: &str, plural: &str) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = ObjectKind { group: group.into(), version: version.into(), kind: kind.into() };
    Resource::new(&kind, plural, true)
}
