//! Finds the owner that files have after a user or group gets another number. Files keep the old number.

use std::borrow::Cow;

use super::observed::Observed;
use super::plan::Plan;
use super::step::Change;
use crate::resource::{Kind, Resource, ResourceId};

/// The observed file or directory after the plan has changed users and groups. If the plan changes the uid of the owner
/// or the gid of the group, the file keeps the old number.
pub(super) fn as_left<'a>(present: &'a Observed, plan: &Plan) -> Cow<'a, Observed> {
    let (owner, group) = match present {
        Observed::File(file) => (&file.access.owner, &file.access.group),
        Observed::Resource(Resource::Directory(directory)) => (&directory.owner, &directory.group),
        _ => return Cow::Borrowed(present),
    };
    let old_owner = old_number(plan, Kind::User, owner, "uid");
    let old_group = old_number(plan, Kind::Group, group, "gid");
    if old_owner.is_none() && old_group.is_none() {
        return Cow::Borrowed(present);
    }
    let mut left = present.clone();
    let (owner, group) = match &mut left {
        Observed::File(file) => (&mut file.access.owner, &mut file.access.group),
        Observed::Resource(Resource::Directory(directory)) => (&mut directory.owner, &mut directory.group),
        _ => return Cow::Borrowed(present),
    };
    *owner = old_owner.unwrap_or_else(|| owner.clone());
    *group = old_group.unwrap_or_else(|| group.clone());
    Cow::Owned(left)
}

/// The old number of a user or group. `None` if this plan does not change the number.
fn old_number(plan: &Plan, kind: Kind, name: &str, number: &str) -> Option<String> {
    plan.step(&ResourceId::new(kind, name))?.changes.iter().find_map(|change| match change {
        Change::Set { field, from, .. } if field == number => from.clone(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ObservedState, diff};
    use crate::resource::{DesiredState, Directory, Resource, User};

    #[test]
    fn files_of_a_renumbered_user_get_the_new_owner() {
        let user = |uid| User { name: "etcd".into(), uid, home: String::new(), shell: String::new() };
        let mut directory = Directory::new("/var/etcd");
        directory.owner = "etcd".into();
        let mut desired = DesiredState::default();
        desired.add(user(10_002));
        desired.add(directory.clone());
        desired.add(Directory::new("/etc/other"));
        let found = [user(20_000).into(), directory.into(), Directory::new("/etc/other").into()];
        let observed: ObservedState =
            found.into_iter().map(|found: Resource| (found.id(), super::Observed::Resource(found))).collect();
        let plan = serde_json::to_value(diff(&desired, &observed)).expect("a plan");
        let steps = plan["steps"].as_array().expect("steps");
        assert_eq!(steps.len(), 2, "{steps:#?}");
        assert_eq!(
            steps[1]["changes"],
            serde_json::json!([{"do": "set", "field": "owner", "from": "20000", "to": "etcd"}])
        );
    }
}
