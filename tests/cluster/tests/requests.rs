//! Requests from a machine to a workload's service, one after another. A scenario checks with them that the workload keeps running.

use crate::cluster::{Cluster, Member};
use crate::workload;
use kops_agent_machines::machine::Machine;

const SCRIPT: &str = r#"
import os, sys, time, urllib.request
url, stop, told = sys.argv[1:]
# kube-proxy may not know the service yet.
while not os.path.exists(stop):
    try:
        urllib.request.urlopen(url, timeout=2).read()
        break
    except OSError:
        time.sleep(0.1)
asked, failures = 0, []
while not os.path.exists(stop):
    asked += 1
    try:
        urllib.request.urlopen(url, timeout=2).read()
    except OSError as error:
        failures.append(f"request {asked}: {error}")
    time.sleep(0.1)
with open(told + ".new", "w") as file:
    print(asked, *failures, sep="\n", file=file)
os.rename(told + ".new", told)
"#;
const STOP: &str = "/root/requests.stop";
const TOLD: &str = "/root/requests.told";

pub struct Requests<'a> {
    machine: &'a Machine,
}

impl Requests<'_> {
    /// Sends requests from this machine to a service until the call of [`Requests::were_all_answered`].
    pub fn begin<'a>(from: &'a Member, cluster: &Cluster, service: &str) -> Requests<'a> {
        let machine = &from.machine;
        let service = cluster.get("service", service).unwrap();
        let url = workload::url_of(service["spec"]["clusterIP"].as_str().unwrap(), workload::SERVICE_PORT);
        machine.run(&["rm", "--force", STOP, TOLD]);
        machine.run(&[
            "systemd-run",
            "--collect",
            "--unit=requests",
            "python3",
            "-c",
            SCRIPT,
            &url,
            STOP,
            TOLD,
        ]);
        Requests { machine }
    }

    #[track_caller]
    pub fn were_all_answered(self) {
        self.machine.write(STOP, "");
        let told = self.machine.until("they have ended", || {
            let told = self.machine.try_run(&["cat", TOLD]);
            (told.code == Some(0)).then_some(told.stdout)
        });
        let (asked, failures) = told.split_once('\n').unwrap();
        assert!(asked.parse::<usize>().unwrap() > 10, "there were hardly any: {told}");
        assert_eq!(failures, "", "of {asked} requests to the workload");
    }
}
