//! A name server that fails for a while: the agent waits, logs the reason, and converges.
//!
//! Each test runs in its own network namespace, where port 53 is free, with its own `/etc/resolv.conf`. That needs
//! root. Without root the tests are skipped.

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

/// A worker whose store and mirror have host names. Also returns the mirror, which uses TLS.
fn machine() -> (Machine, Downloads) {
    let (machine, identity) = (Machine::new(NODES), Identity::named(&[MIRROR]).unwrap());
    let mirror = Downloads::start_tls(stand_ins(), &identity).unwrap();
    fs::write(machine.folder().join(BUNDLE), &identity.certificate_pem).unwrap();
    for file in ["config", "cluster-completed.spec"] {
        let url = machine.downloads().url();
        machine.cluster.edit(file, &url, &mirror.url().replace("127.0.0.1", MIRROR)).unwrap();
    }
    (machine, mirror)
}

/// Converges the worker. The name server fails for the first `store` questions about the store's name, and for the
/// first `mirror` questions about the mirror's name.
fn converge(machine: &Machine, fault: NameFault, store: usize, mirror: usize) -> Ended {
    let names = NameServer::start(fault, &[(STORE, store), (MIRROR, mirror)]).unwrap();
    let mut agent = machine.agent("converge");
    agent.env("SSL_CERT_FILE", machine.folder().join(BUNDLE)).env("NO_PROXY", MIRROR);
    agent.env("S3_ENDPOINT", machine.cluster.s3.endpoint().replace("127.0.0.1", STORE));
    let ended = Ended::from_command(agent.args(["--download-timeout", "120", "--store-timeout", "120"]));
    assert!(names.asked(STORE) > store && names.asked(MIRROR) > mirror, "{ended:#?}");
    ended
}

/// Asserts that a run reports `reason`, and then recovers from `fault`. The resolver gives up after fewer than
/// `questions` failed DNS queries.
fn recovers_from(fault: NameFault, questions: usize, reason: &str) {
    apart("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", || {
        let (machine, _mirror) = machine();
        let unresolved = |name: &str| format!("the name {name} cannot be resolved: {reason}");
        let of_store = format!(
            "s3://clusters.example.com/demo.example.com/cluster-completed.spec: {}; trying again",
            unresolved(STORE)
        );
        // The requests for the cluster and the group run at the same time, and so do the requests for hashes.
        let ended = converge(&machine, fault, 2 * questions, 5 * questions);
        ended.with(0, &[&of_store, "the SHA-256 of ", &unresolved(MIRROR)]);

        // The agent now knows the hashes. So it asks the mirror only for the size and for the file.
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
