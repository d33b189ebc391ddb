//! Packages are fetched and installed in parallel with downloads: on a machine that is no node yet, and never on a node.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{Machine, Mirror, SCOPE, asset, mirror, state};
use kops_agent_host::system::commands::{Commands, NotStarting};
use kops_agent_host::system::packages::PackageManager;
use kops_agent_host::{Error, Host, Progress, Stopwatch};
use kops_agent_plan::resource::{DesiredState, File, Image, Package, PackageSource, Resource};
use kops_agent_plan::timeline::Work;

/// A timeout longer than any run takes, unless the run hangs.
const AMPLE: Duration = Duration::from_secs(600);

/// A package manager that records what it installs, and signals what it does.
struct Packages {
    installed: Mutex<BTreeSet<String>>,
    does: Mutex<Sender<Doing>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Fetches,
    Installs,
}

impl Packages {
    fn new() -> (Arc<Packages>, Receiver<Doing>) {
        let (does, doing) = channel();
        (Arc::new(Packages { installed: Mutex::default(), does: Mutex::new(does) }), doing)
    }

    fn signal(&self, doing: Doing) {
        // The test may have dropped the receiver.
        let _ = self.does.lock().send(doing);
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
        self.signal(Doing::Installs);
        self.installed.lock().extend(packages.iter().map(|name| (*name).to_owned()));
        Ok(())
    }
    fn fetch(&self, _: &[&str]) -> bool {
        self.signal(Doing::Fetches);
        true
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

/// Asserts that the download of files starts while packages are being downloaded, and the download of images starts
/// while packages are being installed.
struct InStep(Mutex<Receiver<Doing>>);

impl Progress for InStep {
    fn download_started(&self, name: &str, _: Option<u64>, _: u64) {
        let doing = self.0.lock().recv_timeout(AMPLE).expect("packages wait for the downloads");
        let expected = if name.ends_with(IMAGE) { Doing::Installs } else { Doing::Fetches };
        assert_eq!(doing, expected, "{name}");
    }
}

const IMAGE: &str = "/image.tar";

fn package(name: &str) -> Package {
    Package { name: name.into() }
}

/// An image that the run downloads as an archive, even if no program can load it.
fn image(mirror: &Mirror) -> Image {
    Image {
        name: "registry.example.com/image:1".into(),
        sources: vec![mirror.put(IMAGE, b"an image")],
        sha256: kops_agent_spec::digest::sha256_hex(b"an image"),
    }
}

/// A node with packages and one download, whose content is right or wrong.
fn node(packages: &[&str], mirror: &Mirror, is_right: bool) -> DesiredState {
    let bytes = b"a program";
    let url = mirror.put("/program", bytes);
    let sha256 = match is_right {
        true => kops_agent_spec::digest::sha256_hex(bytes),
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
async fn a_new_machine_installs_packages_during_downloads() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (packages, doing) = Packages::new();
    let stopwatch = Stopwatch::default();
    let host = machine.host().with_packages(packages.clone()).timed_by(stopwatch.clone());
    let mut desired = node(&["chrony", "conntrack"], &mirror, true);
    desired.add(image(&mirror));
    apply(&machine, &host, &desired, &InStep(Mutex::new(doing))).await.unwrap();
    assert!(packages.has("chrony") && packages.has("conntrack"));
    assert_eq!(machine.read("/usr/bin/program"), "a program");
    let timeline = host.keep_timeline(1, true).unwrap();
    let began = |work: Work| timeline.steps.iter().find(|step| step.work == work).unwrap().begin_us;
    let ended = |work: Work| timeline.steps.iter().find(|step| step.work == work).unwrap().end_us;
    assert!(began(Work::Packages) <= ended(Work::Downloads), "{timeline:?}");
    assert!(machine.plan(&host, &desired).is_empty());
}

#[tokio::test]
async fn a_first_run_whose_download_fails_changes_nothing() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (packages, doing) = Packages::new();
    let host = machine.host().with_packages(packages.clone());
    let wrong = node(&["chrony"], &mirror, false);
    let error = apply(&machine, &host, &wrong, &InStep(Mutex::new(doing))).await.unwrap_err().to_string();
    assert!(error.contains("the content is wrong"), "{error}");
    assert!(!packages.has("chrony"));
    assert_eq!(machine.tree(), [""; 0]);
    assert!(!machine.path("/var/lib/kops-agent/record.json").exists());

    // The failed run wrote no record. So the next run is a first run, too, and completes the node.
    let right = node(&["chrony"], &mirror, true);
    apply(&machine, &host, &right, &kops_agent_host::Silent).await.unwrap();
    assert!(machine.plan(&host, &right).is_empty());
}

/// A machine on which a downloaded program starts only after a package has provided its library.
struct Old {
    packages: Arc<Packages>,
    is_of_library: bool,
}

impl Commands for Old {
    fn run(&self, _: &[String]) -> Result<(), Error> {
        Ok(())
    }

    fn why_it_does_not_start(&self, _: &Path, _: &str) -> Option<NotStarting> {
        let is_mended = self.is_of_library && self.packages.has("libseccomp2");
        (!is_mended).then(|| NotStarting { why: "it needs more".into(), is_of_library: self.is_of_library })
    }
}

#[tokio::test]
async fn a_first_run_whose_program_does_not_start_changes_nothing() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (packages, _doing) = Packages::new();
    let mut desired = state([package("libseccomp2"), package("chrony")]);
    desired.add(File::text("/etc/before", "x"));
    let url = mirror.put("/runc", b"runc");
    desired.add(asset("/usr/bin/runc", &url, &kops_agent_spec::digest::sha256_hex(b"runc"), None));
    let host = |is_of_library| {
        let old = Old { packages: packages.clone(), is_of_library };
        machine.host().with_packages(packages.clone()).with_commands(Arc::new(old))
    };
    let error =
        apply(&machine, &host(false), &desired, &kops_agent_host::Silent).await.unwrap_err().to_string();
    assert!(
        error.contains("does not start on this machine: it needs more; set spec.containerd.runc"),
        "{error}"
    );
    assert!(packages.installed.lock().is_empty());
    assert_eq!(machine.tree(), [""; 0]);

    // A package may provide the missing library. So packages are installed first, and then the program is tried again.
    let without =
        state(desired.iter().map(|(_, resource)| resource.clone()).filter(
            |resource| !matches!(resource, Resource::Package(package) if package.name == "libseccomp2"),
        ));
    let error =
        apply(&machine, &host(true), &without, &kops_agent_host::Silent).await.unwrap_err().to_string();
    assert!(error.contains("does not start on this machine: it needs more"), "{error}");
    assert_eq!((packages.has("chrony"), machine.tree()), (true, vec![]));
    apply(&machine, &host(true), &desired, &kops_agent_host::Silent).await.unwrap();
    assert_eq!(machine.read("/usr/bin/runc"), "runc");
}

#[tokio::test]
async fn a_working_node_installs_packages_after_everything_is_verified() {
    let (machine, mirror) = (Machine::new(), mirror());
    let (packages, _doing) = Packages::new();
    let host = machine.host().with_packages(packages.clone());
    apply(&machine, &host, &state([package("chrony")]), &kops_agent_host::Silent).await.unwrap();
    let error = apply(&machine, &host, &node(&["chrony", "new"], &mirror, false), &kops_agent_host::Silent)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("the content is wrong"), "{error}");
    assert!(!packages.has("new"));
    let right = node(&["chrony", "new"], &mirror, true);
    apply(&machine, &host, &right, &kops_agent_host::Silent).await.unwrap();
    assert!(packages.has("new") && machine.plan(&host, &right).is_empty());
}
