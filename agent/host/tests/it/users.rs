//! Users and groups are created and repaired by shadow's own programs. These programs need root, so
//! `tests/packages/run` runs these tests.
#![allow(clippy::unwrap_used)]

use crate::own_root::{on_a_machine, sh};
use crate::support::{CALM, Store, downloads};
use kops_agent_host::{Error, Host, Report, Scope, Silent};
use kops_agent_plan::diff::diff;
use kops_agent_plan::resource::{DesiredState, File, Group, User};
use kops_agent_spec::failure::Failing as _;

const UID: u32 = 10_002;

/// A user for a component, and a file of that user. Like nodeup, the agent sets the file's owner but not its group.
fn etcd() -> DesiredState {
    let mut desired = DesiredState::default();
    desired.add(User { name: "etcd".into(), uid: UID, home: String::new(), shell: "/sbin/nologin".into() });
    desired.add(File::text("/etc/etcd.conf", "").owned_by("etcd"));
    desired
}

/// Converges once. Checks that a second plan is empty.
fn converge(desired: &DesiredState) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (host, store) = (Host::machine().unwrap(), Store::new());
    let plan = diff(desired, &host.observe(desired, &store)?);
    let downloads = downloads(CALM);
    let report = runtime.block_on(host.apply(&plan, desired, &store, &downloads, &Silent, Scope::Part))?;
    let left = diff(desired, &host.observe(desired, &store)?);
    assert!(left.is_empty(), "{left:#?}");
    Ok(report)
}

fn passwd() -> String {
    sh("getent passwd etcd && stat --format=%U:%G /etc/etcd.conf")
}

#[test]
#[ignore = "makes users: tests/packages/run"]
fn a_user_is_made_with_its_group_and_no_home() {
    on_a_machine(|| {
        converge(&etcd()).unwrap();
        assert_eq!(passwd(), "etcd:x:10002:10002::/home/etcd:/sbin/nologin\netcd:root\n");
        sh("test ! -e /home/etcd");
    });
}

#[test]
#[ignore = "makes users: tests/packages/run"]
fn a_user_with_other_settings_is_repaired_with_its_files() {
    on_a_machine(|| {
        sh("useradd --uid 20000 --shell /bin/bash etcd");
        sh("touch /etc/etcd.conf; chown etcd:etcd /etc/etcd.conf");
        converge(&etcd()).unwrap();
        assert_eq!(passwd(), "etcd:x:10002:20000::/home/etcd:/sbin/nologin\netcd:etcd\n");
    });
}

#[test]
#[ignore = "makes users: tests/packages/run"]
fn a_user_without_its_group_gets_it() {
    on_a_machine(|| {
        // The state after an interrupted useradd: the group is missing.
        sh("useradd --uid 10002 --no-user-group --gid games --shell /sbin/nologin etcd");
        sh("touch /etc/etcd.conf");
        let error = converge(&etcd());
        assert!(error.is_ok(), "{:?}", error.err().map(|error| error.to_string()));
        assert_eq!(passwd(), "etcd:x:10002:10002::/home/etcd:/sbin/nologin\netcd:root\n");
    });
}

#[test]
#[ignore = "makes users: tests/packages/run"]
fn a_number_of_another_user_is_refused_before_anything_is_done() {
    on_a_machine(|| {
        sh("useradd --uid 10002 other; groupadd --gid 30000 others");
        let mut desired = etcd();
        let error = converge(&desired).unwrap_err();
        assert!(error.kind().is_configuration());
        assert_eq!(
            error.to_string(),
            "user etcd: its uid 10002 belongs to other on this machine; give other another uid with \
             `usermod --uid`, or remove other"
        );
        sh("test ! -e /etc/etcd.conf");
        desired = DesiredState::default();
        desired.add(Group { name: "mine".into(), gid: 30_000 });
        let error = converge(&desired).unwrap_err().to_string();
        assert!(error.contains("its gid 30000 belongs to others"), "{error}");
    });
}

#[test]
#[ignore = "makes users: tests/packages/run"]
fn a_group_gets_its_number() {
    on_a_machine(|| {
        sh("groupadd --gid 30000 mine");
        let mut desired = DesiredState::default();
        desired.add(Group { name: "mine".into(), gid: 31_000 });
        converge(&desired).unwrap();
        assert_eq!(sh("getent group mine"), "mine:x:31000:\n");
    });
}
