//! Asks the workload's service from a worker, again and again, so that a scenario can say that the workload went on.

use crate::cluster::Cluster;
use kops_agent_machines::machine::Machine;

const SCRIPT: &str = r#"
import os, sys, time, urllib.request
url, stop, told = sys.argv[1:]
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
const STOP: &str = "/root/witness.stop";
const TOLD: &str = "/root/witness.told";

/// What asks.
pub struct Witness<'a> {
    machine: &'a Machine,
}

impl Witness<'_> {
    /// Asks from now on.
    pub fn start(cluster: &Cluster) -> Witness<'_> {
        let machine = &cluster.workers()[0].machine;
        let service = cluster.get("service", "hello").unwrap();
        let url = format!("http://{}", service["spec"]["clusterIP"].as_str().unwrap());
        machine.run(&["rm", "--force", STOP, TOLD]);
        machine.run(&[
            "systemd-run",
            "--collect",
            "--unit=witness",
            "python3",
            "-c",
            SCRIPT,
            &url,
            STOP,
            TOLD,
        ]);
        Witness { machine }
    }

    /// Asks no more; each request was answered.
    #[track_caller]
    pub fn saw_no_failure(self) {
        self.machine.write(STOP, "");
        let told = self.machine.until("the witness tells", || {
            let told = self.machine.try_run(&["cat", TOLD]);
            (told.code == Some(0)).then_some(told.stdout)
        });
        let (asked, failures) = told.split_once('\n').unwrap();
        assert!(asked.parse::<usize>().unwrap() > 10, "it hardly asked: {told}");
        assert_eq!(failures, "", "of {asked} requests to the workload");
    }
}
