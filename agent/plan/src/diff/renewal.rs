//! Extracts from a plan the steps that renew certificates, for a node that must otherwise stay unchanged, even with drift.
//!
//! A certificate is renewed if its age is its only problem. A renewal writes the files of the certificate, and restarts the units and
//! static pods that read these files. Everything else on the machine stays unchanged.

use std::collections::BTreeSet;

use super::plan::Plan;
use super::pods::mounted;
use super::step::{Action, Change, Stage, Step};
use crate::resource::{Content, DesiredState, Kind, Resource, ResourceId};

/// Whether an earlier renewal was interrupted. After an interrupted renewal, a certificate may be new although the units and static pods
/// that read it have not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    No,
    Yes,
}

/// The part of `plan` that only renews certificates. The plan was made for `desired`.
pub fn renewal(plan: &Plan, desired: &DesiredState, interrupted: Interrupted) -> Plan {
    let due = due(plan, desired);
    let reads_renewed = |id: &ResourceId| match certificate_in(desired, id) {
        Some(certificate) => due.contains(certificate) || interrupted == Interrupted::Yes,
        None => id.kind == Kind::Certificate && due.contains(id.name.as_str()),
    };
    let part = |step: &Step| match (step.resource.kind, step.action) {
        (_, Action::Remove) => None,
        (Kind::Certificate, _) => due.contains(step.resource.name.as_str()).then(|| step.clone()),
        (Kind::File, _) if certificate_in(desired, &step.resource).is_some_and(|name| due.contains(name)) => {
            Some(step.clone())
        }
        _ => restart(step, desired, interrupted, &reads_renewed),
    };
    Plan { steps: plan.steps.iter().filter_map(part).collect(), ..Plan::default() }
}

/// The certificates that must be replaced only because of their age. Leaves out a certificate if one of its files would replace an object
/// of another type.
fn due<'a>(plan: &'a Plan, desired: &DesiredState) -> BTreeSet<&'a str> {
    let is_due = |step: &&Step| {
        step.resource.kind == Kind::Certificate
            && step.changes.iter().any(|change| matches!(change, Change::Issue { renewal: true, .. }))
    };
    let is_replaced = |name: &str| {
        plan.steps.iter().any(|step| {
            step.changes.iter().any(|change| matches!(change, Change::Replace { .. }))
                && certificate_in(desired, &step.resource) == Some(name)
        })
    };
    let names = plan.steps.iter().filter(is_due).map(|step| step.resource.name.as_str());
    names.filter(|name| !is_replaced(name)).collect()
}

/// The name of the certificate to which a file belongs. The file holds the certificate, its private key, or a kubeconfig that contains both.
fn certificate_in<'a>(desired: &'a DesiredState, id: &ResourceId) -> Option<&'a str> {
    match desired.get(id)? {
        Resource::File(file) => match &file.content {
            Content::Certificate(name) | Content::PrivateKey(name) => Some(name),
            Content::Kubeconfig(kubeconfig) => Some(&kubeconfig.certificate),
            _ => None,
        },
        _ => None,
    }
}

/// The restart of a unit or static pod that reads a renewed file. All other changes of the step are left out.
fn restart(
    step: &Step,
    desired: &DesiredState,
    interrupted: Interrupted,
    reads_renewed: &dyn Fn(&ResourceId) -> bool,
) -> Option<Step> {
    if step.resource.kind != Kind::Unit && step.stage != Stage::Pods {
        return None;
    }
    let because = step.changes.iter().find_map(|change| match change {
        Change::Restart { because } => Some(because),
        _ => None,
    })?;
    // If an earlier run changed the files and was interrupted before the restart, this plan changes no file of the unit or pod. Then
    // `because` is empty.
    let is_left_due = interrupted == Interrupted::Yes
        && because.is_empty()
        && match desired.get(&step.resource)? {
            Resource::Unit(unit) => unit.restarted_by.iter().any(reads_renewed),
            Resource::File(file) => mounted(file, desired).iter().any(|(id, _)| reads_renewed(id)),
            _ => false,
        };
    let because: Vec<ResourceId> = because.iter().filter(|id| reads_renewed(id)).cloned().collect();
    (is_left_due || !because.is_empty()).then(|| Step {
        action: Action::Restart,
        changes: vec![Change::Restart { because }],
        ..step.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::super::{
        Access, Enablement, Observed, ObservedCertificate, ObservedState, ObservedUnit, diff, unit_reading,
    };
    use super::*;
    use crate::resource::{Certificate, CertificateType, File, Issuer, Subject, Unit};

    fn certificate(name: &str) -> Certificate {
        Certificate {
            name: name.into(),
            signer: "kubernetes-ca".into(),
            keypair_id: String::new(),
            certificate_type: CertificateType::Client,
            subject: Subject::default(),
            sans: vec![],
            issuer: Issuer::Bootstrap,
            include_root: false,
        }
    }

    fn unit(name: &str, reads: &[&str]) -> Unit {
        Unit::new(name, "[Service]\n").restarted_by_files(reads.iter().copied())
    }

    /// A node with two units. Each unit reads a certificate and a setting.
    fn desired() -> DesiredState {
        let mut desired = DesiredState::default();
        for name in ["old", "good"] {
            desired.add(certificate(name));
            desired.add(File::new(format!("/{name}.crt"), Content::Certificate(name.into())));
            desired.add(File::new(format!("/{name}.key"), Content::PrivateKey(name.into())));
            desired.add(File::text(format!("/{name}.conf"), "as it is wanted"));
            let files = [format!("/{name}.crt"), format!("/{name}.key"), format!("/{name}.conf")];
            desired.add(unit(&format!("{name}.service"), &files.each_ref().map(String::as_str)));
        }
        desired
    }

    /// The observed state of a node whose unit settings and unit texts differ from `desired`. The certificate `old` is observed
    /// as `of_old`.
    fn observed(desired: &DesiredState, of_old: ObservedCertificate) -> ObservedState {
        let good =
            ObservedCertificate { fingerprint: "good".into(), replace: None, is_due: false, stuck: None };
        let mut observed = ObservedState::from([
            (ResourceId::new(Kind::Certificate, "old"), Observed::Certificate(of_old)),
            (ResourceId::new(Kind::Certificate, "good"), Observed::Certificate(good)),
        ]);
        for (id, resource) in desired.iter() {
            let Resource::Unit(unit) = resource else { continue };
            let running = ObservedUnit {
                text: Some("[Service]\nNice=5\n".into()),
                edited: true,
                path: "/lib/systemd/system/x".into(),
                belongs: "/lib/systemd/system/x".into(),
                overridden: None,
                free_text: None,
                access: Some(Access::of_roots()),
                enablement: Enablement::Disabled,
                running: true,
                starting: false,
                stamp: unit_reading(unit, &ObservedState::new()),
            };
            observed.insert(id.clone(), Observed::Unit(running));
        }
        observed
    }

    fn aged(is_due: bool) -> ObservedCertificate {
        let replace = Some("less than a third of its life is left".into());
        ObservedCertificate { fingerprint: "old".into(), replace, is_due, stuck: None }
    }

    fn names(plan: &Plan) -> Vec<String> {
        plan.steps.iter().map(|step| step.resource.to_string()).collect()
    }

    #[test]
    fn a_renewal_changes_only_due_certificates() {
        let desired = desired();
        let whole = diff(&desired, &observed(&desired, aged(true)));
        assert!(names(&whole).len() > 6, "{:?}", names(&whole));
        let part = renewal(&whole, &desired, Interrupted::No);
        assert_eq!(names(&part), ["certificate old", "file /old.crt", "file /old.key", "unit old.service"]);
        let because = ["/old.crt", "/old.key"].map(|path| ResourceId::new(Kind::File, path)).to_vec();
        let restart = part.steps.last().map(|step| step.changes.clone());
        assert_eq!(restart, Some(vec![Change::Restart { because }]), "the unit's text stays as it is");
    }

    #[test]
    fn a_certificate_with_another_problem_is_not_renewed() {
        let desired = desired();
        let whole = diff(&desired, &observed(&desired, aged(false)));
        assert!(whole.step(&ResourceId::new(Kind::Certificate, "old")).is_some());
        assert_eq!(names(&renewal(&whole, &desired, Interrupted::No)), [""; 0]);
    }

    #[test]
    fn restarts_that_an_interrupted_renewal_left_undone_are_done() {
        let desired = desired();
        let restart = |name: &str, because: Vec<ResourceId>| Step {
            stage: Stage::Services,
            resource: ResourceId::new(Kind::Unit, name),
            action: Action::Restart,
            changes: vec![Change::Restart { because }],
        };
        let of_setting = vec![ResourceId::new(Kind::File, "/good.conf")];
        let plan = Plan {
            steps: vec![restart("old.service", vec![]), restart("good.service", of_setting)],
            ..Plan::default()
        };
        assert_eq!(names(&renewal(&plan, &desired, Interrupted::Yes)), ["unit old.service"]);
        assert_eq!(names(&renewal(&plan, &desired, Interrupted::No)), [""; 0]);
    }
}
