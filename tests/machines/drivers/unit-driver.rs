//! Converges this machine to the units in a folder, with the agent's own code. It exits like the agent: with 1 if a unit
//! failed, and immediately on SIGTERM.
//!
//! `unit-driver FOLDER [EXISTING | DEVICE=PATH | image:NAME]...`: each file in FOLDER is a unit file. The other arguments
//! are units of the distribution, volumes to mount, and images to pull.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use kops_agent_host::{Downloads, Host, NoSecrets, Progress, Scope};
use kops_agent_net::LocationClient;
use kops_agent_plan::diff::{Step, diff_with_owned};
use kops_agent_plan::resource::{DesiredState, Image, Mount, Unit};
use tokio::signal::unix::{SignalKind, signal};

struct Lines;

impl Progress for Lines {
    fn applying(&self, step: &Step) {
        println!("applying {}", step.resource);
    }
    fn warned(&self, what: &str) {
        println!("{what}");
    }
}

fn main() -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unit-driver: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = terminated.recv() => bail!("stopped"),
        outcome = converge() => outcome,
    }
}

async fn converge() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((folder, existing)) = arguments.split_first() else { bail!("no folder is named") };
    let desired = desired(Path::new(folder), existing)?;
    let host = Host::machine()?;
    let plan = diff_with_owned(&desired, &host.observe(&desired, &NoSecrets)?, &host.owned()?);
    // An error means that a provider is already installed, which is enough.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = LocationClient::built_by(|redirects| {
        reqwest::Client::builder().redirect(redirects).tls_certs_only([]).build()
    })?;
    let scope =
        Scope::Node { config_hash: "units", known_hashes: &BTreeMap::new(), without: &BTreeSet::new() };
    host.apply(&plan, &desired, &NoSecrets, &Downloads::new(client), &Lines, scope).await?;
    println!("converged");
    Ok(())
}

fn volume(device: &str, path: &str) -> Mount {
    Mount {
        device: device.to_owned(),
        path: path.to_owned(),
        filesystem: "ext4".to_owned(),
        format_options: vec![],
        mount_options: vec!["noatime".to_owned()],
        at_boot: true,
    }
}

fn desired(folder: &Path, existing: &[String]) -> anyhow::Result<DesiredState> {
    let mut desired = DesiredState::default();
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        desired.add(Unit::new(name, std::fs::read_to_string(&path)?));
    }
    for argument in existing {
        if let Some(name) = argument.strip_prefix("image:") {
            desired.add(Image { name: name.to_owned(), sources: vec![], sha256: String::new() });
            continue;
        }
        match argument.split_once('=') {
            Some((device, path)) => desired.add(volume(device, path)),
            None => desired.add(Unit::existing(argument)),
        }
    }
    Ok(desired)
}
