//! Desired resources that cannot be made now, because a store denies access or does not answer. Such resources stay unchanged, and the plan
//! reports them. A denied or unreachable object does not count as missing.

use super::observed::{Observed, ObservedContent, ObservedState};
use super::removals::{Keeping, Kept};
use crate::resource::{DesiredState, ResourceId};

/// The resources with an unknown desired state, and the certificates without an available issuer, in the order of the desired state. They
/// stay unchanged.
pub(super) fn kept(desired: &DesiredState, observed: &ObservedState) -> Vec<Kept> {
    desired.iter().filter_map(|(id, _)| keep(id, observed.get(id)?)).collect()
}

fn keep(id: &ResourceId, observed: &Observed) -> Option<Kept> {
    let (why, keeping) = match observed {
        Observed::File(file) => match &file.content {
            ObservedContent::Unknown { why, differs: false } => (why, Keeping::Unknown),
            ObservedContent::Unknown { why, differs: true } => (why, Keeping::Unmended),
            _ => return None,
        },
        Observed::Certificate(certificate) => (certificate.stuck.as_ref()?, Keeping::Unmended),
        _ => return None,
    };
    Some(Kept { resource: id.clone(), why: why.clone(), keeping })
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Change, Enablement, ObservedFile, ObservedUnit, diff, unit_reading};
    use super::*;
    use crate::resource::{Content, File, Kind, Mode, SecretPiece, Unit};
    use kops_agent_spec::digest::sha256_hex;

    const PATH: &str = "/root/.docker/config.json";

    fn desired() -> DesiredState {
        let mut desired = DesiredState::default();
        let secret = Content::SecretText(vec![SecretPiece::Secret("dockerconfig".into())]);
        desired.add(File::new(PATH, secret).mode(Mode::PRIVATE));
        desired
    }

    fn observed(mode: Mode, differs: bool) -> ObservedState {
        let access = Access { mode, ..Access::of_roots() };
        let content = ObservedContent::Unknown { why: "access denied (403)".into(), differs };
        let sha256 = sha256_hex(b"left");
        let file = ObservedFile {
            access,
            sha256,
            content,
            commands_ran_for: None,
            serves: None,
            pod_mounted: None,
            free_text: None,
        };
        ObservedState::from([(ResourceId::new(Kind::File, PATH), Observed::File(file))])
    }

    #[test]
    fn unknown_content_stays_and_is_reported() {
        for (differs, keeping) in [(false, Keeping::Unknown), (true, Keeping::Unmended)] {
            let plan = diff(&desired(), &observed(Mode::PRIVATE, differs));
            assert!(plan.is_empty(), "{plan:?}");
            let kept = plan.kept.iter().map(|kept| (kept.why.as_str(), kept.keeping)).collect::<Vec<_>>();
            assert_eq!(kept, [("access denied (403)", keeping)]);
        }
    }

    #[test]
    fn the_mode_of_a_file_with_unknown_content_is_corrected() {
        let plan = diff(&desired(), &observed(Mode::FILE, false));
        let step = plan.step(&ResourceId::new(Kind::File, PATH)).unwrap();
        assert!(!step.changes_content(), "{step:?}");
        assert!(
            matches!(step.changes.as_slice(), [Change::Set { field, .. }] if field == "mode"),
            "{step:?}"
        );
    }

    #[test]
    fn unknown_content_restarts_nothing() {
        let mut desired = desired();
        let unit = Unit::new("x.service", "[Service]\n").restarted_by_files([PATH]);
        desired.add(unit.clone());
        let mut observed = observed(Mode::PRIVATE, true);
        let running = ObservedUnit {
            text: unit.text.clone(),
            edited: false,
            path: "/lib/systemd/system/x.service".into(),
            belongs: "/lib/systemd/system/x.service".into(),
            access: Some(Access::of_roots()),
            enablement: Enablement::Enabled,
            running: true,
            starting: false,
            stamp: unit_reading(&unit, &observed),
            overridden: None,
            free_text: None,
        };
        observed.insert(ResourceId::new(Kind::Unit, "x.service"), Observed::Unit(running));
        assert_eq!(diff(&desired, &observed).steps, []);
    }
}
