//! Certificates that a plan needs and this machine cannot sign. The machine generates the keys, and asks
//! kops-controller once for all certificates. The response is verified before anything is written.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kops_agent_host::{Host, Secrets as _};
use kops_agent_pki::{NodeKey, PemPair};
use kops_agent_plan::diff::{Action, Plan, Step};
use kops_agent_plan::resource::{Certificate, DesiredState, Issuer, Kind, Resource};
use kops_agent_plan::timeline::Work;
use kops_agent_source::bootstrap_client::{BootstrapError, KopsController};
use kops_agent_spec::invalid::Invalid;

use super::decide::Decision;
use super::materials::Materials;
use super::plan::plan_with;

/// Gets the keys and certificates for a plan from kops-controller. If kops-controller issues none because the node is
/// registered, the node keeps its certificates, even those that are due for renewal. Then the returned plan differs
/// from `plan`. Fails if kops-controller does not issue a certificate that the node lacks, or if the request fails for
/// another reason. A repair to the last applied state does not fail for these reasons.
pub async fn with_certificates(host: &Host, decision: &Decision, plan: Plan) -> Result<(Plan, Materials)> {
    let materials = decision.materials.clone();
    let wanted = to_be_asked_for(&plan, &decision.desired, &materials);
    if wanted.is_empty() {
        return Ok((plan, materials));
    }
    let asking = host.measure(Work::Other, "certificates of kops-controller");
    let server = match issued(host, &decision.kops_controller, &wanted, &materials).await {
        Ok(issued) => return Ok((plan, materials.with_bootstrapped(issued))),
        Err(BootstrapError::AlreadyRegistered { server, .. }) => server,
        Err(error) if decision.is_last_applied => return without_issuer(host, decision, &error),
        Err(error) => return Err(error).context("getting this node's certificates"),
    };
    drop(asking);
    let due = names(&wanted);
    let kept = materials.keeping(wanted.iter().map(|certificate| certificate.name.clone()));
    let plan = plan_with(host, decision, &kept)?;
    let missing = to_be_asked_for(&plan, &decision.desired, &kept);
    if !missing.is_empty() {
        let missing = format!("; it still needs {}", names(&missing));
        let error = BootstrapError::AlreadyRegistered { server, missing };
        return if decision.is_last_applied {
            without_issuer(host, decision, &error)
        } else {
            Err(error.into())
        };
    }
    warn_kept(&due, &server);
    Ok((plan, kept))
}

/// Whether a plan creates certificates that this machine has never had and that only kops-controller issues.
pub fn are_missing(decision: &Decision, plan: &Plan) -> bool {
    let wanted = to_be_asked_for(plan, &decision.desired, &decision.materials);
    let is_missing = |step: &Step| {
        step.action == Action::Create && wanted.iter().any(|wanted| wanted.name == step.resource.name)
    };
    plan.steps.iter().filter(|step| step.resource.kind == Kind::Certificate).any(is_missing)
}

/// Gets the keys and certificates for a plan that only renews certificates. `None` if kops-controller issues none
/// because the node is registered. Then the node keeps its certificates.
pub async fn to_renew(host: &Host, decision: &Decision, plan: &Plan) -> Result<Option<Materials>> {
    let materials = decision.materials.clone();
    let wanted = to_be_asked_for(plan, &decision.desired, &materials);
    if wanted.is_empty() {
        return Ok(Some(materials));
    }
    match issued(host, &decision.kops_controller, &wanted, &materials).await {
        Ok(issued) => Ok(Some(materials.with_bootstrapped(issued))),
        Err(BootstrapError::AlreadyRegistered { server, .. }) => {
            warn_kept(&names(&wanted), &server);
            Ok(None)
        }
        Err(error) => Err(error).context("renewing this node's certificates"),
    }
}

fn warn_kept(due: &str, server: &str) {
    log::warn!(
        "certificates due for renewal ({due}) are not renewed: {server} issues no certificates to a node \
         that is registered and ready. The node keeps these certificates until they expire. To renew them, \
         run kops-agent's controller in place of kOps' kops-controller. Otherwise replace this instance \
         before the certificates expire. If the certificate authority is being rotated, replace this \
         instance before `kops distrust keypair`"
    );
}

/// The plan and its materials if kops-controller issues no certificates. The plan has all other changes, and names the
/// certificates that are due.
fn without_issuer(host: &Host, decision: &Decision, error: &BootstrapError) -> Result<(Plan, Materials)> {
    let materials = decision.materials.clone().without_issuer(error.to_string());
    Ok((plan_with(host, decision, &materials)?, materials))
}

/// The planned certificates that this machine cannot issue itself.
fn to_be_asked_for<'a>(
    plan: &Plan,
    desired: &'a DesiredState,
    materials: &Materials,
) -> Vec<&'a Certificate> {
    let issued = |step: &&Step| step.resource.kind == Kind::Certificate && step.action != Action::Remove;
    plan.steps
        .iter()
        .filter(issued)
        .filter_map(|step| match desired.get(&step.resource) {
            Some(Resource::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .filter(|wanted| wanted.issuer == Issuer::Bootstrap)
        .filter(|wanted| materials.keyset_item(&wanted.signer, &wanted.keypair_id).is_none())
        .collect()
}

/// Requests all certificates in one request. Retries use the same keys. So the server can repeat a response that was
/// lost.
async fn issued(
    host: &Host,
    kops_controller: &KopsController,
    wanted: &[&Certificate],
    materials: &Materials,
) -> Result<BTreeMap<String, PemPair>, BootstrapError> {
    let mut keys = BTreeMap::new();
    for certificate in wanted {
        keys.insert(certificate.name.as_str(), NodeKey::generate(&certificate.name)?);
        // This lets the run react to a stop signal between two keys.
        tokio::task::yield_now().await;
    }
    let public_keys = keys.iter().map(|(name, key)| ((*name).to_owned(), key.public_pem())).collect();
    let keypair_ids = wanted
        .iter()
        .filter(|certificate| !certificate.keypair_id.is_empty())
        .map(|certificate| (certificate.signer.clone(), certificate.keypair_id.clone()))
        .collect();
    let accept = |certificates: BTreeMap<String, String>| {
        wanted
            .iter()
            .map(|wanted| {
                let name = &wanted.name;
                let pair = certificates
                    .get(name)
                    .zip(keys.get(name.as_str()))
                    .map(|(certificate, key)| key.with_certificate(certificate))
                    .ok_or_else(|| format!("has no certificate {name} in it"))?;
                match host.why_unfit(&pair, wanted, materials) {
                    Ok(None) => Ok((name.clone(), pair)),
                    Ok(Some(why)) => Err(Invalid::new(format!(
                        "has a certificate {name} that does not fit the request: {why}"
                    ))),
                    Err(error) => Err(Invalid::new(format!(
                        "has a certificate {name} that cannot be verified: {error}"
                    ))),
                }
            })
            .collect()
    };
    kops_controller.certificates(public_keys, keypair_ids, accept).await
}

fn names(certificates: &[&Certificate]) -> String {
    certificates.iter().map(|certificate| certificate.name.as_str()).collect::<Vec<_>>().join(", ")
}
