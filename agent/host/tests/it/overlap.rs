//! Package installation in parallel with downloads: on a machine that is no node yet, and never on a node.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{Machine, Mirror, SCOPE, asset, mirror, state};
use kops_agent_host::system::packages::PackageManager;
use kops_agent_host::{Error, Host, Progress, Stopwatch};
use kops_agent_plan::resource::{DesiredState, Package, PackageSource};
use kops_agent_plan::timeline::Work;

/// Longer than any run takes, unless it hangs.
const AMPLE: Duration = Duration::from_secs(600);

/// A package manager that records what it installs, and signals when it begins.
struct Packages {
    installed: Mutex<BTreeSet<String>>,
    begins: Mutex<Sender<()>>,
}

impl Packages {
    fn new() -> (Arc<Packages>, Receiver<()>) {
        let (begins, begun) = channel();
        (Arc::new(Packages { installed: Mutex::default(), begins: Mutex::new(begins) }), begun)
    }

    fn has(&self, package: &str) -> bool {
        self.installed.lock().contains(package)
    }
}

impl PackageManager for Packages {
    fn installed(&self, packages: &[&str]) -> Result<BTreeSet<String>, Error> {
        let installed = self.installed.lock();
        Ok(packages.iter().filter(|name| installed.contains(**name)).map(|name| (*name).to_owned()).collect())
    }
    fn install(&self, packages: &[&str], _: &dyn Progress) -> Result<(), Error> {
        // The receiver may be gone already.
        let _ = self.begins.lock().send(());
        self.installed.lock().extend(packages.iter().map(|name| (*name).to_owned()));
        Ok(())
    }
    fn source(&self, _: &PackageSource) -> Result<Option<PackageSource>, Error> {
        Ok(None)
    }
    fn add_source(&self, _: &PackageSource, _: &[u8], _: &dyn Progress) -> Result<(), Error> {
        Ok(())
    }
    fn owned(&self, _: &[&str]) -> Result<BTreeSet<String>, Error> {
        Ok(BTreeSet::new())
    }
}

/// Blocks downloads until packages are being installed.
struct InStep(Mutex<Receiver<()>>);

impl Progress for InStep {
    fn download_started(&self, _: &str, _: Option<u64>, _: u64) {
        self.0.lock().recv_timeout(AMPLE).expect("packages are installed only after the downloads");
    }
}

fn package(name: &str) -> Package {
    Package { name: name.into() }
}

/// A node with packages and one download, whose content is right or wrong.
fn node(packages: &[&str], mirror: &Mirror, is_right: bool) -> DesiredState {
    let bytes = b"a program";
    let url = mirror.put("/program", bytes);
    let sha256 = match is_right {
        true => kops_agent_plan::digest::sha256_hex(bytes),
        false => "0".repeat(64),
    };
    let mut desired = state(packages.iter().map(|name| package(name)));
    desired.add(asset("/usr/bin/program", &url, &sha256, None));
    desired
}

async fn apply(
    machine: &Machine,
    host: &Host,
    desired: &DesiredState,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let plan = machine.plan(host, desired);
    host.apply(&plan, desired, &machine.store, &machine.downloads, progress, SCOPE).await.map(drop)
}

#[tokio::test]
async fn a_machine_that_is_no_node_gets_packages_while_it_downloads() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (packages, begun) = Packages::new();
    let stopwatch = Stopwatch::default();
    let host = machine.host().with_packages(packages.clone()).timed_by(stopwatch.clone());
    let desired = node(&["chrony", "conntrack"], &mirror, true);
    apply(&machine, &host, &desired, &InStep(Mutex::new(begun))).await.unwrap();
    assert!(packages.has("chrony") && packages.has("conntrack"));
    assert_eq!(machine.read("/usr/bin/program"), "a program");
    let timeline = host.keep_timeline(1, true).unwrap();
    let began = |work: Work| timeline.steps.iter().find(|step| step.work == work).unwrap().begin_us;
    let ended = |work: Work| timeline.steps.iter().find(|step| step.work == work).unwrap().end_us;
    assert!(began(Work::Packages) <= ended(Work::Downloads), "{timeline:?}");
    assert!(machine.plan(&host, &desired).is_empty());
}

#[tokio::test]
async fn a_first_run_whose_download_fails_has_left_packages_and_nothing_else() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (packages, begun) = Packages::new();
    let host = machine.host().with_packages(packages.clone());
    let wrong = node(&["chrony"], &mirror, false);
    let error = apply(&machine, &host, &wrong, &InStep(Mutex::new(begun))).await.unwrap_err().to_string();
    assert!(error.contains("its content is wrong"), "{error}");
    assert!(packages.has("chrony"), "its end was not waited for");
    assert_eq!(machine.tree(), [""; 0]);
    assert!(!machine.path("/var/lib/kops-agent/record.json").exists());

    // The next run is again a first run, and continues from there.
    let right = node(&["chrony"], &mirror, true);
    apply(&machine, &host, &right, &kops_agent_host::Silent).await.unwrap();
    assert!(machine.plan(&host, &right).is_empty());
}

#[tokio::test]
async fn a_node_that_works_gets_no_package_before_everything_is_verified() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (packages, _begun) = Packages::new();
    let host = machine.host().with_packages(packages.clone());
    apply(&machine, &host, &state([package("chrony")]), &kops_agent_host::Silent).await.unwrap();
    let error = apply(&machine, &host, &node(&["chrony", "new"], &mirror, false), &kops_agent_host::Silent)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("its content is wrong"), "{error}");
    assert!(!packages.has("new"));
    let right = node(&["chrony", "new"], &mirror, true);
    apply(&machine, &host, &right, &kops_agent_host::Silent).await.unwrap();
    assert!(packages.has("new") && machine.plan(&host, &right).is_empty());
}
