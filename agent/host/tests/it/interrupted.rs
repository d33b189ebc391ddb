//! The next run completes an interrupted run, wherever the interruption was.
#![allow(clippy::unwrap_used)]

use crate::converge::{node, with};
use crate::rollback::scene::Node;
use crate::support::{Machine, noon};
use kops_agent_host::Host;
use kops_agent_host::health::HealthTimings;
use kops_agent_plan::resource::*;

#[tokio::test]
async fn the_next_run_completes_a_run_interrupted_anywhere() {
    let changed = with(node(), File::text("/etc/sysconfig/kubelet", "DAEMON_ARGS=\"--v=4\"\n"));
    // Both runs together send 9 requests to systemd: 1 reload, 3 to enable units, 3 to start units, and 2 for the
    // changed file.
    for after in 0..9 {
        let machine = Machine::new();
        let systemd = Node::new(&machine);
        systemd.lose_power_after(after);
        // The timeout of zero disables the rollback, because a machine without power cannot roll back.
        let hasty = HealthTimings { timeout: std::time::Duration::ZERO, ..HealthTimings::default() };
        let host = || {
            let host = Host::scratch(machine.root.path()).unwrap().with_clock(noon);
            host.with_systemd(systemd.clone()).with_health_timings(hasty)
        };
        let first = machine.converge_with(&host(), &node()).await;
        let second = match &first {
            Ok(_) => Some(machine.converge_with(&host(), &changed).await),
            Err(_) => None,
        };
        assert!(first.is_err() || second.is_some_and(|second| second.is_err()), "after {after}");
        systemd.lose_power_after(usize::MAX);
        machine.converge_with(&host(), &changed).await.unwrap();
        assert!(machine.plan(&host(), &changed).is_empty(), "after {after}");
        let asked = systemd.news();
        let last = asked.iter().rfind(|what| what.ends_with("kubelet.service")).unwrap();
        let expected = if first.is_ok() { "restart kubelet.service" } else { "start kubelet.service" };
        assert_eq!(last, expected, "after {after}");
        assert_eq!(machine.leftovers(), [""; 0]);
    }
}
