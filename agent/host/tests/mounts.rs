//! Volumes of a machine: mounted over nothing.
#![allow(clippy::unwrap_used)]

mod support;

use kops_agent_plan::resource::*;
use support::{Machine, state};

fn volume(device: &str, path: &str) -> Resource {
    let (device, path) = (device.to_owned(), path.to_owned());
    let (format_options, mount_options) = (vec![], vec![]);
    Mount { device, path, filesystem: "ext4".into(), format_options, mount_options }.into()
}

#[tokio::test]
async fn a_device_is_not_mounted_over_another() {
    let machine = Machine::new();
    machine.converge(&state([volume("/dev/xvdd", "/data")])).await.unwrap();
    let before = machine.requests();
    assert_eq!(before, ["mounts: mount /dev/xvdd at /data (ext4; formatted if it is blank)"]);
    let error = machine.error(&state([volume("/dev/xvde", "/data")])).await;
    assert!(error.contains("/dev/xvde: /dev/xvdd is mounted at /data already"), "{error}");
    assert_eq!(machine.requests(), before);
}
