//! Checks that a unit's own process listens at its health URL. Another process may have taken the port first, and
//! kubelet keeps running without its health server.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use reqwest::Url;

use crate::system::commands::ask;
use crate::system::listeners::{has_any, sockets_at};
use crate::system::processes::{name_of, numbers, unit};

/// The processes of a unit, as systemd reports them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Processes {
    /// The PID of the main process. 0 if no process runs.
    pub(super) main: u32,
    /// The control group of all processes of the unit (`/system.slice/kubelet.service`). Empty if no process runs.
    pub(super) group: String,
}

impl Processes {
    /// Asks systemd for the processes of a unit. `None` if systemd does not answer.
    pub(super) fn from_unit(unit: &str) -> Option<Processes> {
        let outcome = ask(&["systemctl", "show", "--property=MainPID,ControlGroup", unit]).ok()?;
        outcome.status.success().then(|| Processes::parse(&outcome.stdout)).flatten()
    }

    fn parse(text: &str) -> Option<Processes> {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Some(Processes { main: value("MainPID")?.parse().ok()?, group: value("ControlGroup")?.to_owned() })
    }

    fn has(&self, number: u32, cgroups: &str) -> bool {
        let group = self.group.trim_end_matches('/');
        let is_below = |path: &str| {
            path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        number == self.main || !group.is_empty() && paths.any(is_below)
    }
}

/// Finds a process that does not belong to the unit and listens at the unit's URL. Returns a description of the
/// process. `None` if a process of the unit listens there, or if nothing listens. Also `None` if the process is
/// unknown: only root and the process's own user may inspect a process.
pub(super) fn other_listener(
    root: &Path,
    url: &str,
    name: &str,
    find: impl Fn() -> Option<Processes>,
) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host: IpAddr = url.host_str()?.trim_matches(['[', ']']).parse().ok()?;
    let address = SocketAddr::new(host, url.port_or_known_default()?);
    let sockets = sockets_at(root, address).ok()?;
    if sockets.is_empty() {
        return None;
    }
    let own = find()?;
    let folder = |number: u32| root.join(format!("proc/{number}"));
    // Usually the main process listens. Then a search through all processes is unnecessary.
    if own.main != 0 && has_any(&folder(own.main), &sockets) {
        return None;
    }
    let mut other_listener = None;
    for number in numbers(root).ok()? {
        let folder = folder(number);
        if !has_any(&folder, &sockets) {
            continue;
        }
        let cgroups = std::fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        if own.has(number, &cgroups) {
            return None;
        }
        let of = unit(&cgroups).map_or_else(String::new, |unit| format!(" of {unit}"));
        let process = name_of(&folder).unwrap_or_else(|| "a process".to_owned());
        other_listener = Some(format!(
            "{process} (process {number}{of}) listens at {address}, where {name} should listen"
        ));
    }
    other_listener
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use super::*;

    const URL: &str = "http://127.0.0.1:10248/healthz";
    const KUBELET: &str = "kubelet.service";

    fn kubelet() -> Option<Processes> {
        Some(Processes { main: 7, group: "/system.slice/kubelet.service".into() })
    }

    /// A machine on which a process with this PID and control group listens at an address.
    fn machine(local: &str, number: u32, cgroup: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(format!("proc/{number}"));
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let table = format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: \
             {local} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n"
        );
        fs::write(root.path().join("proc/net/tcp"), table).unwrap();
        symlink("socket:[4711]", folder.join("fd/3")).unwrap();
        fs::write(folder.join("comm"), "evil\u{1b}[2J\n").unwrap();
        fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        root
    }

    #[test]
    fn a_listener_outside_the_unit_is_found() {
        let told = |local: &str, number: u32, cgroup: &str| {
            other_listener(machine(local, number, cgroup).path(), URL, KUBELET, kubelet)
        };
        // A process belongs to the unit by its PID, even if it moved to another control group. A child of a start
        // script belongs to the unit by its control group.
        assert_eq!(told("0100007F:2808", 7, "/podruntime.slice/kubelet"), None);
        assert_eq!(told("0100007F:2808", 8, "/system.slice/kubelet.service"), None);
        assert_eq!(told("0100007F:2808", 8, "/system.slice/kubelet.service/below"), None);
        assert_eq!(
            told("0100007F:2808", 8, "/kubepods.slice/kubepods-pod1.slice/cri-1.scope").unwrap(),
            "evil?[2J (process 8) listens at 127.0.0.1:10248, where kubelet.service should listen"
        );
        // A systemd user instance may have a unit of the same name.
        let of_user = "/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service";
        assert!(told("0100007F:2808", 8, of_user).unwrap().contains("(process 8 of kubelet.service)"));
        assert!(told("0100007F:2808", 8, "/system.slice/kubelet.service.evil.service").is_some());
        // A process that listens at 0.0.0.0 also listens at the unit's address. A process at another address or port
        // does not.
        assert!(told("00000000:2808", 8, "/").is_some());
        assert_eq!(told("0200007F:2808", 8, "/"), None);
        assert_eq!(told("0100007F:2809", 8, "/"), None);
        let unknown = other_listener(machine("0100007F:2808", 8, "/").path(), URL, KUBELET, || None);
        assert_eq!(unknown, None);
    }

    #[test]
    fn this_very_process_is_no_process_of_a_unit() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let url = format!("http://{}/healthz", listener.local_addr().unwrap());
            let told = || other_listener("/".as_ref(), &url, KUBELET, || Some(Processes::default()));
            let own = || Some(Processes { main: std::process::id(), group: String::new() });
            let is_own = || other_listener("/".as_ref(), &url, KUBELET, own).is_none();
            let names_it =
                || told().is_some_and(|told| told.contains(&format!("(process {}", std::process::id())));
            // A child process that a concurrent test forks inherits the socket. So this test waits until the child no longer has the socket.
            let deadline = Instant::now() + Duration::from_secs(60);
            while !(names_it() && is_own()) {
                assert!(Instant::now() < deadline, "{:?}", told());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    #[test]
    fn processes_are_read_as_systemctl_shows_them() {
        let shown = "MainPID=7\nControlGroup=/system.slice/kubelet.service\n";
        assert_eq!(Processes::parse(shown), kubelet());
        assert_eq!(Processes::parse("MainPID=0\nControlGroup=\n"), Some(Processes::default()));
        assert_eq!(Processes::parse(""), None);
        assert!(!Processes::default().has(7, "0::/\n"));
    }
}
