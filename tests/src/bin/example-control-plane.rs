//! Runs the example's control plane on loopback until standard input closes: an API server with Nodes, and a stand-in
//! for EC2.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use kops_agent_tests::example_control_plane::ExampleControlPlane;
use kops_agent_tests::example_store::REGION;

#[derive(Parser)]
struct Arguments {
    /// Output folder for the store and the controller's configuration; created if missing.
    folder: PathBuf,
    /// Folder with the programs etcd, kube-apiserver and kubectl.
    #[arg(long)]
    assets: PathBuf,
    /// Manifest with the RBAC rights of kops-controller.
    #[arg(long)]
    rbac: PathBuf,
}

/// Prints the variables for `packaging/demo-control-plane` in shell syntax, and an empty line once all servers are
/// ready.
fn main() -> anyhow::Result<()> {
    let Arguments { folder, assets, rbac } = Arguments::parse();
    let rbac = std::fs::read_to_string(&rbac).with_context(|| format!("reading {}", rbac.display()))?;
    let example = ExampleControlPlane::start(&assets, &folder, &rbac)?;
    let mut output = io::stdout().lock();
    for (name, value) in example.ec2.environment() {
        writeln!(output, "{name}={value}")?;
    }
    writeln!(output, "AWS_REGION={REGION}")?;
    writeln!(output, "CONFIG={}", example.config.display())?;
    writeln!(output, "KUBECONFIG={}", example.kubeconfig.display())?;
    writeln!(output, "STORE_MIRROR={}\n", example.store_mirror)?;
    output.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
