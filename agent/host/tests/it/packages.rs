//! The real apt and the real dnf install packages from repositories that the tests make.
//!
//! That needs root, so `tests/packages/run` runs these tests.
#![allow(clippy::unwrap_used)]

use kops_agent_spec::failure::Failing as _;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use parking_lot::Mutex;

use crate::own_root::{on_a_machine, sh};
use crate::support::{CALM, Mirror, Store, downloads};
use kops_agent_host::{Error, Host, PackageVersion, Progress, Report, Scope};
use kops_agent_plan::diff::diff;
use kops_agent_plan::resource::{DesiredState, Package, PackageSource};

const ROCKY: &str =
    "NAME=\"Rocky Linux\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.5\"\n";

/// Makes a signed apt repository with its key in /srv/key.asc. It has two versions of a package `tiny`, and a package
/// whose setup fails without the file /root/ready.
fn apt_repository() {
    sh(r#"
        mkdir -p /srv/debs; cd /srv
        make() { # name, version, postinst
            mkdir -p "build/DEBIAN" && chmod 755 build/DEBIAN
            printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: test <t@example.com>\nProvides: %s-service\nDescription: test\n' \
                "$1" "$2" "$1" >build/DEBIAN/control
            printf '#!/bin/sh\n%s\n' "$3" >build/DEBIAN/postinst
            chmod 755 build/DEBIAN/postinst
            dpkg-deb --build build "debs/$1_$2_all.deb" >/dev/null
            rm -r build
        }
        make tiny 1.0-1 true
        make tiny 2.0-1 true
        make picky 1.0 'test -e /root/ready'
        cd debs
        apt-ftparchive packages . >Packages
        apt-ftparchive release . >../Release; mv ../Release .
        export GNUPGHOME=/srv/gnupg; mkdir -m 700 $GNUPGHOME
        gpg --batch --quiet --passphrase '' --quick-gen-key test@example.com rsa2048 sign never 2>/dev/null
        gpg --batch --quiet --yes --clearsign --output InRelease Release
        gpg --batch --quiet --armor --export test@example.com >../key.asc
        gpg --batch --quiet --passphrase '' --quick-gen-key other@example.com rsa2048 sign never 2>/dev/null
        gpg --batch --quiet --armor --export other@example.com >../other.asc
        gpgconf --kill all
        chmod -R a+rX /srv/debs
    "#);
}

/// Makes a dnf repository with two versions of a package `tiny`.
fn dnf_repository() {
    fs::write("/etc/os-release", ROCKY).unwrap();
    sh(r#"
        mkdir -p /srv/rpms /etc/yum.repos.d; cd /srv
        for version in 1.0 2.0; do
            printf 'Name: tiny\nVersion: %s\nRelease: 1\nSummary: test\nLicense: none\nBuildArch: noarch\nProvides: tiny-service\n%%description\ntest\n%%files\n' \
                $version >tiny.spec
            rpmbuild --quiet -bb --define '_rpmdir /srv/rpms' --define '_topdir /srv/build' tiny.spec 2>/dev/null
        done
        createrepo_c --quiet /srv/rpms
        printf '[local]\nname=local\nbaseurl=file:///srv/rpms\ngpgcheck=0\nenabled=1\n' >/etc/yum.repos.d/local.repo
    "#);
}

/// Records the messages of a run. Kills the holder of a lock as soon as the run waits for the lock.
#[derive(Default)]
struct Said(Mutex<(Vec<String>, Option<Holder>)>);

/// A process that holds a lock until it is dropped.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _has_ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Progress for Said {
    fn waiting_for(&self, what: &str) {
        let mut state = self.0.lock();
        state.0.push(what.to_owned());
        state.1 = None;
    }

    fn warned(&self, what: &str) {
        self.0.lock().0.push(what.to_owned());
    }
}

impl Said {
    fn says(&self, what: &str) -> bool {
        self.0.lock().0.iter().any(|said| said.contains(what))
    }
}

fn wanted(packages: &[&str]) -> DesiredState {
    let mut desired = DesiredState::default();
    for name in packages {
        desired.add(Package { name: (*name).into() });
    }
    desired
}

/// Converges once. Checks that a second plan is empty.
fn converge(desired: &DesiredState, said: &Said) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (host, store) = (Host::machine().unwrap(), Store::new());
    let plan = diff(desired, &host.observe(desired, &store)?);
    let downloads = downloads(CALM);
    let report = runtime.block_on(host.apply(&plan, desired, &store, &downloads, said, Scope::Part))?;
    let left = diff(desired, &host.observe(desired, &store)?);
    assert!(left.is_empty(), "{left:#?}");
    Ok(report)
}

fn has(package: &str) -> bool {
    let host = Host::machine().unwrap();
    let desired = wanted(&[package]);
    diff(&desired, &host.observe(&desired, &Store::new()).unwrap()).is_empty()
}

fn trust_local_debs() {
    fs::write("/etc/apt/sources.list.d/local.list", "deb [trusted=yes] file:/srv/debs ./\n").unwrap();
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn apt_installs_from_a_repository_by_its_own_key() {
    on_a_machine(|| {
        apt_repository();
        let files = ["key", "other"]
            .map(|name| (format!("/{name}.asc"), fs::read(format!("/srv/{name}.asc")).unwrap()));
        let keys = Mirror::start_with(BTreeMap::from(files)).unwrap();
        let source = |key: &str| PackageSource {
            name: "local".into(),
            keyring: format!("{}/{key}.asc", keys.url()),
            sources: vec!["deb [arch=amd64] file:/srv/debs ./".into()],
        };
        let desired = |key: &str| {
            let mut desired = wanted(&["tiny"]);
            desired.add(source(key));
            desired
        };
        let error = converge(&desired("other"), &Said::default()).unwrap_err().to_string();
        assert!(error.contains("NO_PUBKEY") || error.contains("not signed"), "{error}");
        let left =
            ["sources.list.d/local.list", "keyrings/local.asc"].map(|path| Path::new("/etc/apt").join(path));
        assert!(left.iter().all(|path| !path.exists()), "the unreadable repository was not removed");

        converge(&desired("key"), &Said::default()).unwrap();
        assert_eq!(sh("dpkg-query --show --showformat='${Version}' tiny"), "2.0-1");
        assert!(left.iter().all(|path| path.exists()));
        assert_eq!(converge(&desired("key"), &Said::default()).unwrap().applied, []);
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn apt_installs_the_wanted_version_or_a_package_that_provides_the_name() {
    on_a_machine(|| {
        apt_repository();
        trust_local_debs();
        converge(&wanted(&["tiny"]), &Said::default()).unwrap();
        assert!(has("tiny=2.0-1") && has("tiny-service") && !has("tiny=1.0-1"));
        converge(&wanted(&["tiny=1.0*"]), &Said::default()).unwrap();
        assert!(has("tiny=1.0-1"));
        sh("apt-mark hold tiny");
        assert!(has("tiny"), "a package on hold is installed");
        let error = converge(&wanted(&["nosuch"]), &Said::default()).unwrap_err().to_string();
        assert!(error.contains("Unable to locate package nosuch"), "{error}");
    });
}

fn tiny(version: &str) -> Vec<PackageVersion> {
    vec![PackageVersion { name: "tiny".to_owned(), version: version.to_owned() }]
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn apt_replaces_a_version_and_removes_nothing_for_it() {
    on_a_machine(|| {
        apt_repository();
        trust_local_debs();
        let host = Host::machine().unwrap();
        let asked = [tiny("1.0-1"), tiny("3.0-1")].concat();
        assert_eq!(host.packages_not_offered(&asked).unwrap(), tiny("3.0-1"));
        host.replace_packages(&tiny("2.0-1")).unwrap();
        assert!(host.has_packages(&tiny("2.0-1")).unwrap());
        host.replace_packages(&tiny("3.0-1")).unwrap_err();
        sh(r#"
            cd /srv; mkdir -p build/DEBIAN && chmod 755 build/DEBIAN
            printf 'Package: bound\nVersion: 1.0\nArchitecture: all\nMaintainer: test <t@example.com>\nDepends: tiny (>= 2.0)\nDescription: test\n' \
                >build/DEBIAN/control
            dpkg-deb --build build bound.deb >/dev/null
            dpkg --install bound.deb
        "#);
        host.replace_packages(&tiny("1.0-1")).unwrap_err();
        assert!(host.has_packages(&tiny("2.0-1")).unwrap() && has("bound"));
        sh("dpkg --purge bound");
        host.replace_packages(&tiny("1.0-1")).unwrap();
        assert!(host.has_packages(&tiny("1.0-1")).unwrap());
        // The repository no longer has version 1.0, but the machine has it installed.
        sh(r#"
            cd /srv/debs; rm tiny_1.0-1_all.deb InRelease
            apt-ftparchive packages . >Packages
            apt-ftparchive release . >../Release; mv ../Release .
        "#);
        assert_eq!(host.packages_not_offered(&tiny("1.0-1")).unwrap(), tiny("1.0-1"));
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn apt_replaces_a_version_beside_a_package_that_cannot_be_configured() {
    on_a_machine(|| {
        apt_repository();
        trust_local_debs();
        converge(&wanted(&["picky"]), &Said::default()).unwrap_err();
        let host = Host::machine().unwrap();
        for version in ["2.0-1", "1.0-1"] {
            host.replace_packages(&tiny(version)).unwrap();
            assert!(host.has_packages(&tiny(version)).unwrap() && !has("picky"));
        }
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn an_interrupted_dpkg_is_finished() {
    on_a_machine(|| {
        apt_repository();
        trust_local_debs();
        let error = converge(&wanted(&["picky"]), &Said::default()).unwrap_err().to_string();
        assert!(error.contains("picky"), "{error}");
        assert!(!has("picky"), "a half-configured package counts as installed");
        fs::write("/root/ready", "").unwrap();
        // This file looks as if a power cut interrupted dpkg.
        fs::write("/var/lib/dpkg/updates/0001", "").unwrap();
        let said = Said::default();
        converge(&wanted(&["tiny"]), &said).unwrap();
        assert!(has("picky") && said.says("had been interrupted"));

        // The package is only half removed, so it must be reinstalled.
        sh(
            "sed -i '/^Package: picky$/,/^$/s/^Status: .*/Status: install reinstreq half-installed/' /var/lib/dpkg/status",
        );
        assert!(!has("picky"));
        converge(&wanted(&["picky"]), &Said::default()).unwrap();
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn the_process_that_holds_apts_lock_is_waited_for_and_named() {
    on_a_machine(|| {
        apt_repository();
        trust_local_debs();
        for lock in ["/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"]
        {
            let said = Said(Mutex::new((vec![], Some(holding(lock)))));
            converge(&wanted(&["tiny"]), &said).unwrap();
            assert!(said.says("waiting for python3 (process ") && said.says(lock), "{lock}");
            sh("dpkg --purge tiny");
        }
    });
}

/// A process that locks a file by fcntl(2).
fn holding(path: &str) -> Holder {
    let script = format!(
        "import fcntl, time\nfile = open({path:?}, 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n\
         open('/root/held', 'w').close()\ntime.sleep(600)"
    );
    let _absent = fs::remove_file("/root/held");
    let holder = Command::new("/usr/bin/python3").args(["-c", &script]).spawn().unwrap();
    while !Path::new("/root/held").exists() {
        std::thread::yield_now();
    }
    Holder(holder)
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn a_repository_that_nothing_comes_from_may_be_out_of_order() {
    on_a_machine(|| {
        apt_repository();
        trust_local_debs();
        fs::write("/etc/apt/sources.list.d/broken.list", "deb file:/srv/nowhere ./\n").unwrap();
        let said = Said::default();
        converge(&wanted(&["tiny"]), &said).unwrap();
        assert!(said.says("some package lists may be outdated") && said.says("nowhere"));
        let error = converge(&wanted(&["nosuch"]), &said).unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("nowhere"), "{error}");
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn dnf_installs_finds_and_refuses() {
    on_a_machine(|| {
        dnf_repository();
        assert!(!has("tiny"));
        converge(&wanted(&["tiny"]), &Said::default()).unwrap();
        assert!(has("tiny-2.0") && has("tiny-2.0-1.noarch") && has("tiny-service") && !has("tiny-1.0"));
        assert_eq!(sh("rpm --query tiny").trim(), "tiny-2.0-1.noarch");
        assert_eq!(converge(&wanted(&["tiny", "tiny-service"]), &Said::default()).unwrap().applied, []);
        let error = converge(&wanted(&["nosuch"]), &Said::default()).unwrap_err().to_string();
        assert!(error.contains("dnf install") && error.contains("nosuch"), "{error}");
        converge(&wanted(&["tiny-1.0"]), &Said::default()).unwrap();
        assert!(has("tiny-1.0-1"), "the wanted version is older than what was there");
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn dnf_replaces_a_version_by_an_older_one() {
    on_a_machine(|| {
        dnf_repository();
        let host = Host::machine().unwrap();
        let asked = [tiny("1.0-1"), tiny("3.0-1")].concat();
        assert_eq!(host.packages_not_offered(&asked).unwrap(), tiny("3.0-1"));
        for version in ["2.0-1", "1.0-1"] {
            host.replace_packages(&tiny(version)).unwrap();
            assert!(host.has_packages(&tiny(version)).unwrap());
        }
        host.replace_packages(&tiny("3.0-1")).unwrap_err();
        assert!(host.has_packages(&tiny("1.0-1")).unwrap());
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn the_process_that_holds_dnfs_lock_is_waited_for_and_named() {
    on_a_machine(|| {
        dnf_repository();
        sh("dnf --quiet repolist; rpm --initdb");
        let sleeping = || {
            let sleeping = Command::new("/bin/sleep").arg("600").spawn().unwrap();
            fs::write("/var/lib/dnf/rpmdb_lock.pid", sleeping.id().to_string()).unwrap();
            Holder(sleeping)
        };
        let database = sh("rpm --eval '%{_dbpath}'");
        let in_a_transaction = || holding(&format!("{}/.rpm.lock", database.trim()));
        let holders: [(&dyn Fn() -> Holder, &str); 2] =
            [(&sleeping, "sleep"), (&in_a_transaction, "python3")];
        for (hold, name) in holders {
            let said = Said(Mutex::new((vec![], Some(hold()))));
            converge(&wanted(&["tiny"]), &said).unwrap();
            assert!(said.says(&format!("waiting for {name} (process ")), "{name}");
            sh("rpm --erase tiny");
        }
    });
}

#[test]
#[ignore = "installs packages: tests/packages/run"]
fn a_machine_of_rpms_takes_no_repository_of_apts() {
    on_a_machine(|| {
        dnf_repository();
        let keys = Mirror::start_with(BTreeMap::from([("/key".into(), b"\x99key".to_vec())])).unwrap();
        let mut desired = DesiredState::default();
        desired.add(PackageSource {
            name: "x".into(),
            keyring: format!("{}/key", keys.url()),
            sources: vec![],
        });
        let error = converge(&desired, &Said::default()).unwrap_err();
        assert!(error.kind().is_configuration() && error.to_string().contains("package-source x"), "{error}");
        assert!(!Path::new("/etc/apt/sources.list.d/x.list").exists());
    });
}
