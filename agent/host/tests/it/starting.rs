//! Downloaded programs that do not start on this machine.
#![allow(clippy::unwrap_used)]

use kops_agent_spec::failure::Failing as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::support::{Machine, asset, mirror, state, tar_gz};
use kops_agent_host::Result;
use kops_agent_host::system::commands::{Commands, NotStarting};
use kops_agent_spec::digest::sha256_hex;

/// A machine on which programs with the content `unfit` do not start.
#[derive(Default)]
struct Old {
    unfit: &'static [u8],
    tried: Mutex<Vec<(Vec<u8>, String)>>,
}

impl Commands for Old {
    fn run(&self, _: &[String]) -> Result<()> {
        Ok(())
    }

    fn why_it_does_not_start(&self, program: &Path, flag: &str) -> Option<NotStarting> {
        let bytes = std::fs::read(program).unwrap();
        let is_unfit = bytes == self.unfit;
        self.tried.lock().push((bytes, flag.to_owned()));
        is_unfit.then(|| NotStarting { why: "it needs GLIBC_2.34".into(), is_of_library: false })
    }
}

#[tokio::test]
async fn a_program_that_does_not_start_is_refused_before_anything_changes() {
    let (machine, mirror) = (Machine::new(), mirror());
    let archive = tar_gz(&[("bin/containerd", b"new"), ("bin/containerd-stress", b"stress")]);
    let (url, hash) = (mirror.put("/containerd.tar.gz", &archive), sha256_hex(&archive));
    let desired = |old: &str| {
        let text = kops_agent_plan::resource::File::text("/etc/before", old);
        let containerd = asset("/usr/bin/containerd", &url, &hash, Some("bin/containerd"));
        state([
            text,
            containerd,
            asset("/usr/bin/containerd-stress", &url, &hash, Some("bin/containerd-stress")),
        ])
    };
    let commands = Arc::new(Old { unfit: b"new", ..Old::default() });
    let host = machine.host().with_commands(commands.clone());
    let error = machine.converge_with(&host, &desired("x")).await.unwrap_err();
    assert!(error.kind().is_configuration(), "{error:?}");
    let told = error.to_string();
    for part in [
        "file /usr/bin/containerd: ",
        "does not start on this machine: it needs GLIBC_2.34; ",
        "containerd-static-",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(machine.tree(), [""; 0]);
    assert_eq!(*commands.tried.lock(), [(b"new".to_vec(), "--version".to_owned())]);

    let host = machine.host().with_commands(Arc::new(Old { unfit: b"other", ..Old::default() }));
    machine.converge_with(&host, &desired("x")).await.unwrap();
    assert_eq!(machine.tree(), ["/etc/before", "/usr/bin/containerd", "/usr/bin/containerd-stress"]);
}
