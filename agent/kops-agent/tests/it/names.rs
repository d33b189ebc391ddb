//! A name server that fails for a while: the agent waits, says what it waits for, and converges.
//!
//! In a network namespace of each test's own, where port 53 is free, with an `/etc/resolv.conf` of its own. That takes
//! root; without it there is nothing to see here.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::downloads::stand_ins;
use crate::example::apart::apart;
use crate::example::{Ended, Machine};
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_store::NODES;
use kops_agent_tests::loopback::Identity;
use kops_agent_tests::name_server::{NameFault, NameServer};

const STORE: &str = "store.test";
const MIRROR: &str = "mirror.test";
const BUNDLE: &str = "bundle.pem";

/// A worker of which the store and the mirror have names, and its mirror, which is believed by TLS.
fn machine() -> (Machine, Downloads) {
    let (machine, identity) = (Machine::of(NODES), Identity::named(&[MIRROR]).unwrap());
    let mirror = Downloads::start_tls(stand_ins(), &identity).unwrap();
    fs::write(machine.folder().join(BUNDLE), &identity.certificate_pem).unwrap();
    for file in ["config", "cluster-completed.spec"] {
        let url = machine.downloads().url();
        machine.cluster.edit(file, &url, &mirror.url().replace("127.0.0.1", MIRROR)).unwrap();
    }
    (machine, mirror)
}

/// Converges it with a name server that fails so for the first questions for each name.
fn converge(machine: &Machine, fault: NameFault, store: usize, mirror: usize) -> Ended {
    let names = NameServer::start(fault, &[(STORE, store), (MIRROR, mirror)]).unwrap();
    let mut agent = machine.agent("converge");
    agent.env("SSL_CERT_FILE", machine.folder().join(BUNDLE)).env("NO_PROXY", MIRROR);
    agent.env("S3_ENDPOINT", machine.cluster.s3.endpoint().replace("127.0.0.1", STORE));
    let ended = Ended::of(agent.args(["--download-timeout", "120", "--store-timeout", "120"]));
    assert!(names.asked(STORE) > store && names.asked(MIRROR) > mirror, "{ended:#?}");
    ended
}

/// `reason` is what the agent tells. `questions` are more than the resolver asks by itself before the agent hears of it.
fn recovers_from(fault: NameFault, questions: usize, reason: &str) {
    apart("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", || {
        let (machine, _mirror) = machine();
        let unresolved = |name: &str| format!("the name {name} cannot be resolved: {reason}");
        let of_store = format!(
            "s3://clusters.example.com/demo.example.com/cluster-completed.spec: {}; trying again",
            unresolved(STORE)
        );
        // The cluster and the group are asked for at once, and so are all hashes.
        let ended = converge(&machine, fault, 2 * questions, 5 * questions);
        ended.with(0, &[&of_store, "the SHA-256 of ", &unresolved(MIRROR)]);

        // They are known by now: only its size and the download itself are asked of the mirror.
        fs::remove_file(machine.root().join("usr/sbin/runc")).unwrap();
        fs::remove_dir_all(machine.root().join("var/cache/nodeup")).unwrap();
        let ended = converge(&machine, fault, 2 * questions, 2 * questions);
        ended.with(0, &[&of_store, &unresolved(MIRROR)]);
        assert!(!ended.stderr.contains("the SHA-256 of "), "{ended:#?}");
        assert!(machine.root().join("usr/sbin/runc").is_file());
    });
}

#[test]
fn names_that_the_server_cannot_tell_for_a_while() {
    recovers_from(NameFault::CannotTell, 6, "the name server answers Server Failure");
}

#[test]
fn names_that_are_not_there_for_a_while() {
    recovers_from(NameFault::NoSuchName, 4, "the name server says that there is no such name");
}

#[test]
fn a_name_server_that_says_nothing_for_a_while() {
    recovers_from(NameFault::Silent, 14, "no name server answers");
}
