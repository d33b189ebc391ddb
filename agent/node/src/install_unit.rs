//! Writes and starts the unit that runs this binary at boot with the same flags, as nodeup's `--install-systemd-unit` does.
//!
//! Source: nodeup/pkg/bootstrap/install.go.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_host::system::programs;
use kops_agent_host::{Downloads, Host, Report, Scope};
use kops_agent_net::LocationClient;
use kops_agent_plan::diff::diff;
use kops_agent_plan::resource::{Content, DesiredState, File, Mode, SecretPiece};
use kops_agent_process::output::error_text;
use kops_agent_process::{exit, program};
use kops_agent_spec::kops_release::VARIABLE as KOPS_VERSION;

use super::environment::{OF_NODEUP as ENVIRONMENT, line, variables};
use super::materials::Materials;
use super::progress::Watch;
use super::run::{PAUSES, Printer};
use super::{kops_version, machine, own_services, upkeep};

/// The unit that runs this program at boot. It has the name of nodeup's unit.
pub const UNIT: &str = "kops-configuration.service";

/// The packages' unit, which also runs this program at boot.
const PACKAGED: &str = include_str!("../../../units/kops-agent.service");
/// The sandbox settings in the packages' unit. systemd ignores settings that it does not know.
const SANDBOX: [&str; 8] = [
    "CapabilityBoundingSet=",
    "RestrictAddressFamilies=",
    "RestrictNamespaces=",
    "RestrictRealtime=",
    "LockPersonality=",
    "SystemCallArchitectures=",
    "SystemCallFilter=",
    "SystemCallErrorNumber=",
];

/// The first version of systemd that allows `Restart=` for a oneshot. Older versions refuse to load the unit
/// (systemd's NEWS, CHANGES WITH 244).
const RESTARTS_ONESHOTS: u32 = 244;
/// Timeout of `systemctl --version`.
const SYSTEMD_TIMEOUT: Duration = Duration::from_secs(10);

/// Groups of variables that [`UNIT`] gets in addition to the variables of stores and clouds. A group is passed on only if
/// its first variable is set.
const VARIABLES: &[&[&str]] = &[
    // nodeup passes on OSS_REGION from kOps' boot script. It is listed here and not in `agent/store`, because no
    // store of kops-agent reads it.
    &["OSS_REGION"],
    &[own_services::CONTROLLER.variable],
    &[own_services::ADDONS.variable],
    &[own_services::FOLLOW.variable],
    &[upkeep::VARIABLE],
    &[KOPS_VERSION],
];

/// Installs and starts the unit on this machine, and prints a report. A failure is retried `retries` times. -1 means
/// without limit.
pub async fn until_installed(conf: &Path, mut retries: i64, printer: &dyn Printer) -> Result<u8> {
    let mut next_pause = PAUSES.jittered();
    loop {
        let error = match install_once(conf, printer).await {
            Err(error) if retries != 0 => error,
            result => return result,
        };
        let pause = next_pause();
        log::error!("{}", error_text(&error));
        log::info!("trying again in {} seconds to install {UNIT}", pause.as_secs());
        tokio::time::sleep(pause).await;
        retries -= i64::from(retries > 0);
    }
}

async fn install_once(conf: &Path, printer: &dyn Printer) -> Result<u8> {
    let report = install(conf, std::env::args().skip(1)).await?;
    printer.report(&report)?;
    Ok(exit::CONVERGED)
}

/// Installs and starts the unit on this machine. Does not wait for the unit, because the unit may need something from a
/// later part of the user-data. cloud-init runs that part only after this command. `conf` is the boot config for the
/// unit's run. `flags` are the flags of this process.
async fn install(conf: &Path, flags: impl Iterator<Item = String>) -> Result<Report> {
    let program = program::path().context("finding the path of this program for its unit")?;
    // The program and the boot config must be on the disk before the unit. The boot script has just written both, and
    // does not run again after a power cut.
    let conf = conf.to_str().and_then(|conf| conf.strip_prefix("file://")).map_or(conf, Path::new);
    let is_file = !conf.to_string_lossy().contains("://");
    for file in [program.as_path()].into_iter().chain(is_file.then_some(conf)) {
        // A file system without fsync must not keep the machine from becoming a node.
        if let Err(error) = sync(file) {
            log::warn!("cannot sync {} to the disk before {UNIT} is written: {error}", file.display());
        }
    }
    let flags = flags.filter(|flag| !flag.trim_start_matches('-').starts_with("install-systemd-unit"));
    let command = std::iter::once(program.display().to_string()).chain(flags).collect::<Vec<_>>().join(" ");

    let host = Host::machine()?;
    // Another run may have the lock, for example the run of the packages' unit.
    let _lock = machine::lock(true, &host).await?;
    let unit_file = host.upstreams_unit_path(UNIT);
    let unit = unit(&command, systemd_version());
    let variable = |name: &str| match (std::env::var(name), name) {
        (Err(_), KOPS_VERSION) => kops_version::of_boot_script(),
        (set, _) => set.ok(),
    };
    let environment = environment(variable, &before(ENVIRONMENT)?);
    let desired = desired(&unit_file, unit, environment);
    let materials = Materials::default();
    let plan = diff(&desired, &host.observe(&desired, &materials)?);
    let downloads = Downloads::new(LocationClient::new()?);
    let report = host.apply(&plan, &desired, &materials, &downloads, &*Watch::start(), Scope::Part).await?;
    // An earlier kops-agent may have written the unit to a folder that overrides the folder of nodeup's unit.
    host.remove_superseded_unit(UNIT)?;
    host.start_now_and_at_boot(UNIT)?;
    Ok(report)
}

/// Syncs a file and its folder to the disk. A missing file is no error here, because the unit's run reports a missing
/// boot config.
fn sync(file: &Path) -> io::Result<()> {
    let file = match file.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let sync_one = |path: &Path| std::fs::File::open(path)?.sync_all();
    sync_one(&file)?;
    file.parent().map_or(Ok(()), sync_one)
}

/// The files of the unit. The unit itself is not in this state, because [`Host::apply`] would start the unit and wait
/// for it. But the unit's run would wait for the lock, which this run holds.
fn desired(unit_file: &str, unit: String, environment: String) -> DesiredState {
    let mut desired = DesiredState::default();
    let environment = Content::SecretText(vec![SecretPiece::Text(environment)]);
    desired.add(File::new(ENVIRONMENT, environment).mode(Mode::PRIVATE));
    desired.add(File::text(unit_file, unit));
    desired
}

/// Reads a file that an earlier run may have written. A missing file counts as empty.
fn before(path: &str) -> Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("reading {path}")),
    }
}

/// The lines of the environment file. `before` is the file's present text. The variables form groups. If this process
/// lacks the first variable of a group, the group's lines in `before` stay, because a shell that starts this run may lack
/// the variable.
fn environment(variable: impl Fn(&str) -> Option<String>, before: &str) -> String {
    let is_set = |group: &[&str]| variable(group[0]).is_some_and(|value| !value.is_empty());
    let before = variables(before);
    let mut lines = String::new();
    // Unlike upstream's unit, this unit also gets the cloud tokens. Upstream's kops-controller needs these tokens, too,
    // but it is a pod and does not get them from the unit.
    let groups = kops_agent_store::variables().into_iter().chain(VARIABLES.iter().copied());
    for group in groups.chain(kops_agent_cloud::variables()) {
        if is_set(group) {
            lines.extend(group.iter().filter_map(|name| Some(line(name, &variable(name)?))));
        } else {
            let of_group = before.iter().filter(|(name, _)| group.contains(&name.as_str()));
            lines.extend(of_group.map(|(name, value)| line(name, value)));
        }
    }
    lines
}

/// The text of the unit. The unit is a oneshot, as in nodeup: units ordered after it wait until the node has converged.
/// As in `units/kops-agent.service`, the run reports its progress, and the watchdog ends a stuck run. If systemd allows
/// `Restart=` for a oneshot, systemd restarts a run that the watchdog or the OOM killer ended. It does not restart a
/// run that exited by itself.
fn unit(command: &str, systemd_version: Option<u32>) -> String {
    let restart = match systemd_version {
        Some(RESTARTS_ONESHOTS..) => "Restart=on-abnormal\nRestartSec=30s\n",
        _ => "",
    };
    format!(
        "[Unit]\nDescription=Make this machine a node (kops-agent)\nDocumentation=https://github.com/kubernetes/kops\n\n\
         [Service]\nEnvironmentFile={ENVIRONMENT}\nEnvironmentFile=-/etc/environment\nExecStart={command}\nType=oneshot\n\
         NotifyAccess=main\nWatchdogSec=2min\nWatchdogSignal=SIGTERM\nLimitCORE=0\nKillMode=mixed\nTimeoutStopSec=15min\n\
         {restart}{}\n[Install]\nWantedBy=multi-user.target\n",
        sandbox()
    )
}

/// The lines of the packaged unit's sandbox.
fn sandbox() -> String {
    let is_of_sandbox = |line: &&str| SANDBOX.iter().any(|setting| line.starts_with(setting));
    PACKAGED.lines().filter(is_of_sandbox).flat_map(|line| [line, "\n"]).collect()
}

/// The version of this machine's systemd. `None` if it is unknown.
fn systemd_version() -> Option<u32> {
    let answer = programs::ask(&["systemctl", "--version"], SYSTEMD_TIMEOUT);
    let said = answer.map(|answer| answer.stdout).unwrap_or_else(|problem| {
        log::debug!("the version of systemd is not known: {problem}");
        String::new()
    });
    version_in(&said)
}

/// Parses the version in the first line of systemctl's output: `systemd 252 (252.39-1~deb12u1)`.
fn version_in(said: &str) -> Option<u32> {
    let version = said.strip_prefix("systemd ")?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use kops_agent_plan::resource::Kind;

    use super::*;

    #[test]
    fn nothing_is_started_while_others_are_kept_from_the_machine() {
        let desired = desired("/lib/systemd/system/x", unit("nodeup --conf=x", None), String::new());
        assert!(desired.iter().all(|(id, _)| id.kind == Kind::File), "{desired:?}");
    }

    #[test]
    fn a_boot_config_that_is_not_there_is_not_synced() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("kube_env.yaml");
        sync(&conf).unwrap();
        std::fs::write(&conf, "").unwrap();
        sync(&conf).unwrap();
        assert!(sync(&conf.join("below-a-file")).is_err());
    }

    #[test]
    fn systemd_hears_of_the_run_and_ends_one_that_is_stuck() {
        let unit = unit("/opt/kops/bin/nodeup --conf=x", None);
        let (_, service) = unit.split_once("[Service]\n").unwrap();
        let (service, install) = service.split_once("\n\n").unwrap();
        for line in
            ["Type=oneshot", "NotifyAccess=main", "WatchdogSec=2min", "WatchdogSignal=SIGTERM", "LimitCORE=0"]
        {
            assert!(service.lines().any(|found| found == line), "{line} is not in {unit}");
        }
        assert_eq!(install, "[Install]\nWantedBy=multi-user.target\n");
    }

    #[test]
    fn the_unit_has_the_sandbox_of_the_packaged_unit() {
        let unit = unit("/opt/kops/bin/nodeup --conf=x", None);
        let (_, service) = unit.split_once("[Service]\n").unwrap();
        for setting in SANDBOX {
            assert!(service.contains(&format!("\n{setting}")), "{setting} is not in {unit}");
        }
        // After `ExecStart=`, the packages' unit has only sandbox settings and `WantedBy=`.
        let (_, packaged) = PACKAGED.split_once("--retries=-1 --v=2\n").unwrap();
        let packaged = packaged.lines().filter(|line| line.contains('=') && !line.starts_with(['#', 'W']));
        assert!(sandbox().lines().eq(packaged), "{}", sandbox());
    }

    #[test]
    fn a_run_that_was_killed_is_started_again_where_systemd_takes_that() {
        for (said, restarts) in [
            ("systemd 252 (252.39-1~deb12u1)\n+PAM", true),
            ("systemd 244\n", true),
            ("systemd 239 (239-82.el8)\n", false),
            ("systemd 219\n", false),
            ("", false),
            ("bash: systemctl: command not found", false),
        ] {
            let unit = unit("nodeup", version_in(said));
            assert_eq!(unit.contains("\nRestart=on-abnormal\nRestartSec=30s\n"), restarts, "{said}: {unit}");
        }
    }

    #[test]
    fn credentials_are_passed_on_only_where_their_endpoint_is_set() {
        let endpoint = |name: &str| {
            (![
                "OS_AUTH_URL",
                "AWS_REGION",
                "OSS_REGION",
                "AZURE_STORAGE_ACCOUNT",
                "AZURE_CLIENT_ID",
                "AZURE_STORAGE_SERVICE_ENDPOINT",
                "GOOGLE_APPLICATION_CREDENTIALS",
                "HCLOUD_TOKEN",
                "DIGITALOCEAN_ACCESS_TOKEN",
                "LINODE_TOKEN",
                "SCW_SECRET_KEY",
                own_services::CONTROLLER.variable,
                own_services::ADDONS.variable,
                own_services::FOLLOW.variable,
                upkeep::VARIABLE,
                KOPS_VERSION,
            ]
            .contains(&name))
            .then(|| format!("{name}-value"))
        };
        assert_eq!(
            environment(endpoint, ""),
            "S3_ENDPOINT=S3_ENDPOINT-value\nS3_REGION=S3_REGION-value\nS3_ACCESS_KEY_ID=S3_ACCESS_KEY_ID-value\n\
             S3_SECRET_ACCESS_KEY=S3_SECRET_ACCESS_KEY-value\n"
        );
        assert_eq!(environment(|_| None, ""), "");
        let on_hetzner = |name: &str| (name == "HCLOUD_TOKEN").then(|| "x".into());
        assert_eq!(environment(on_hetzner, ""), "HCLOUD_TOKEN=x\n");
    }

    #[test]
    fn the_variables_of_stores_come_first_then_the_units_own_then_those_of_clouds() {
        let text = environment(|_| Some("x".into()), "");
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix("=x")).collect();
        let of_clouds: Vec<&str> = kops_agent_cloud::variables().flatten().copied().collect();
        let of_stores: Vec<&str> = kops_agent_store::variables().into_iter().flatten().copied().collect();
        for name in
            ["S3_ENDPOINT", "S3_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_SERVICE_ENDPOINT"]
        {
            assert!(of_stores.contains(&name), "{of_stores:?}");
        }
        let own = [
            "OSS_REGION",
            "KOPS_AGENT_CONTROLLER",
            "KOPS_AGENT_ADDONS",
            "KOPS_AGENT_ROLLOUTS",
            "KOPS_AGENT_TIMERS",
            KOPS_VERSION,
        ];
        assert_eq!(names, [&of_stores, own.as_slice(), &of_clouds].concat());
    }

    #[test]
    fn credentials_that_are_not_set_now_stay() {
        let before = "AWS_REGION=a\nOS_AUTH_URL=https://a\nOS_PASSWORD=\"p\\\\q \n\"\nOTHER=x\n";
        let kept = environment(|_| None, before);
        assert_eq!(kept, "AWS_REGION=a\nOS_AUTH_URL=https://a\nOS_PASSWORD=\"p\\\\q \n\"\n");
        assert_eq!(environment(|_| None, &kept), kept);
        let other_login = |name: &str| (name == "OS_AUTH_URL").then(|| "https://b".into());
        assert_eq!(environment(other_login, before), "AWS_REGION=a\nOS_AUTH_URL=https://b\n");
    }
}
