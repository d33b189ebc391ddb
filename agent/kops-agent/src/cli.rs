//! The command line.

mod change;
mod settled;

use std::path::PathBuf;

pub use kops_agent_controller::{ControllerArgs, ControllerCommand};
pub use kops_agent_process::output::Output;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use change::ChangeArgs;

/// The version with the commit it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("KOPS_AGENT_COMMIT"), ")");

const AFTER_HELP: &str = "\
Examples:
  kops-agent plan     --conf /opt/kops/conf/kube_env.yaml            what would change on this machine
  kops-agent converge --conf /opt/kops/conf/kube_env.yaml            make this machine the node it must be
  kops-agent converge --conf kube_env.yaml --root /tmp/node          the same, into a scratch root
  kops-agent render   --conf kube_env.yaml --facts facts.yaml -o json

Called with nodeup's own flags and no command, it does what nodeup does:
  kops-agent --conf=/opt/kops/conf/kube_env.yaml --install-systemd-unit --v=8

Exit codes: 0 converged, 1 failed, 2 wrong usage, 3 the configuration is wrong (retrying cannot help),
4 plan --exit-code or verify found a difference.";

/// The node side of kOps: makes this machine the node that its cluster's state store describes.
#[derive(Debug, Parser)]
#[command(name = "kops-agent", version = VERSION, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Say more: -v 2 tells each step, -v 8 also what other libraries say.
    #[arg(short = 'v', long = "v", global = true, value_name = "LEVEL", default_value_t = 1)]
    pub verbosity: u8,
}

/// What the agent can be asked to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this machine the node it must be; a second run changes nothing.
    Converge(ConvergeArgs),
    /// Show what converge would change, touching nothing.
    Plan(PlanArgs),
    /// Say what differs from what was last applied, and from what is wanted now.
    Verify(VerifyArgs),
    /// Say how this node is: converged or not, since when, what failed last, what expires.
    Status(StatusArgs),
    /// Take this node back to the machine that it was.
    Reset(ResetArgs),
    /// Print everything the node must have.
    Render(RenderArgs),
    /// Print what is observed on this machine and from its cloud.
    Facts(FactsArgs),
    /// Look at a configuration: derive, dump or check it.
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Control-plane mode: label nodes by their instance group, as kops-controller does.
    Controller(ControllerArgs),
    /// Say where a value on the machine comes from: a field of a file, a fact, or a default.
    Explain(ExplainArgs),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, in roff.
    Man,
    /// Do what nodeup does with the same flags.
    #[command(hide = true)]
    Nodeup(crate::nodeup::NodeupArgs),
}

/// What can be done with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print nodeupconfig.yaml of a group as kOps would have written it, byte for byte.
    Derive(DeriveArgs),
    /// Print what this node is decided from, every default settled.
    Dump(DumpArgs),
    /// Say all that is wrong, and which fields do less than they seem to.
    Check(CheckArgs),
}

/// Where the node's configuration comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ConfigFrom {
    /// From the cluster spec; where the boot config pins a nodeupconfig, both are compared and the pinned one wins.
    #[default]
    Auto,
    /// From cluster-completed.spec and the InstanceGroup.
    ClusterSpec,
    /// From the nodeupconfig.yaml that kOps wrote for the instance group.
    NodeupConfig,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Long enough for a network that comes up late, short enough to say what is wrong while somebody looks.
pub const STORE_PATIENCE: u64 = 60;

/// The default of `--download-patience`, in seconds.
pub const DOWNLOAD_PATIENCE: u64 = 300;

/// What decides a node: the same for every command that decides one.
#[derive(Args, Clone, Debug)]
pub struct SpecArgs {
    /// The boot config (kube_env.yaml), or the user-data that carries it.
    #[arg(long, value_name = "FILE")]
    pub conf: PathBuf,

    /// Where the configuration comes from.
    #[arg(long, value_enum, default_value_t)]
    pub config_from: ConfigFrom,

    /// The cluster's folder in the state store, instead of the boot config's ConfigBase.
    #[arg(long, value_name = "URL")]
    pub config_base: Option<String>,

    /// How the store is reached.
    #[command(flatten)]
    pub store: StoreArgs,

    /// Use these facts (YAML or JSON) instead of observing this machine and its cloud.
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,

    /// Hashes of downloads, as lines of `sha256  URL`, for those who cannot reach the publishers.
    #[arg(long, value_name = "FILE")]
    pub asset_hashes: Option<PathBuf>,

    /// What to do if the cluster spec does not give the configuration that the user-data pins, and no pinned one
    /// can be used instead.
    #[arg(long, value_enum, default_value_t)]
    pub on_hash_mismatch: OnHashMismatch,

    /// On a control plane, run control-plane mode as a service (`kops-agent controller`), in place of kOps'
    /// kops-controller: with its configuration, a kubeconfig and the unit. KOPS_AGENT_CONTROLLER=true says the same, and
    /// false takes it away; have it in /etc/environment, where every run finds it. Where neither is said it stays as it is.
    #[arg(long)]
    pub controller: bool,

    /// Where the files of the node are that is decided: what it has shows kops-controller who it is. [`Command::settled`]
    /// sets it from `--root`.
    #[arg(skip = PathBuf::from("/"))]
    pub node_root: PathBuf,
}

/// How the state store is reached.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,

    /// For how many seconds to try again to reach a store, or a kops-controller in its place, that does not answer.
    #[arg(long, value_name = "SECONDS", default_value_t = STORE_PATIENCE)]
    pub store_patience: u64,
}

/// What to do with a derived configuration that is not the pinned one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnHashMismatch {
    /// Say so, and use it.
    #[default]
    Warn,
    /// Touch nothing.
    Refuse,
}

/// The machine that is looked at and changed.
#[derive(Args, Clone, Debug)]
pub struct RootArgs {
    /// A scratch root instead of this machine: files are written below it, everything else is recorded there.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// Where downloads are kept, below the root.
    #[arg(long, value_name = "DIR", default_value = "/var/cache/nodeup")]
    pub cache: PathBuf,

    /// After how many seconds without anything coming from any of its mirrors a download is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = DOWNLOAD_PATIENCE)]
    pub download_patience: u64,

    /// Whether a run waits for another that is at work on the root, instead of failing: what runs at boot does.
    #[arg(skip)]
    pub waits_for_lock: bool,
}

/// Arguments of `converge`.
#[derive(Args, Clone, Debug)]
pub struct ConvergeArgs {
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// What is changed.
    #[command(flatten)]
    pub root: RootArgs,
    /// How a node that works is changed.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// On a machine that nodeup has made a node: have what is as it should be belong to the agent, so that what is no longer
    /// wanted is removed later and `reset` takes it away.
    #[arg(long)]
    pub adopt: bool,
    /// How often to try again after a failure, whatever it is, also a configuration that is wrong; -1 for as long as it
    /// takes. Pauses grow from five seconds to some minutes.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub retries: i64,
    /// How the report is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}

/// Arguments of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// What is looked at.
    #[command(flatten)]
    pub root: RootArgs,
    /// On a machine that nodeup has made a node: have what is as it should be belong to the agent, so that what is no longer
    /// wanted is removed later and `reset` takes it away.
    #[arg(long)]
    pub adopt: bool,
    /// End with 4 if there is a difference.
    #[arg(long)]
    pub exit_code: bool,
    /// How the plan is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}

/// Arguments of `verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// What is looked at.
    #[command(flatten)]
    pub root: RootArgs,
    /// Read every file, also those that nothing has touched.
    #[arg(long)]
    pub deep: bool,
    /// Renew certificates of which less than a third of their life is left, restart what reads them, and change nothing
    /// else.
    #[arg(long)]
    pub renew: bool,
    /// Converge if there is a difference, which renews certificates, too.
    #[arg(long)]
    pub repair: bool,
    /// How a node that works is changed.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// How the differences are printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}

/// How a status is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
    /// For node_exporter's textfile collector.
    Prometheus,
}

/// Arguments of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: StatusOutput,
}

/// Arguments of `reset`.
#[derive(Args, Clone, Debug)]
pub struct ResetArgs {
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Do it without asking.
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `render`.
#[derive(Args, Clone, Debug)]
pub struct RenderArgs {
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Print private keys and secrets too.
    #[arg(long)]
    pub show_secrets: bool,
    /// How the state is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `config derive`.
#[derive(Args, Clone, Debug)]
pub struct DeriveArgs {
    /// The cluster's folder in the state store.
    #[arg(long, value_name = "URL")]
    pub config_base: String,
    /// The instance group.
    #[arg(long, value_name = "NAME")]
    pub instance_group: String,
    /// How the store is reached.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Hashes of downloads, as lines of `sha256  URL`, for those who cannot reach the publishers.
    #[arg(long, value_name = "FILE")]
    pub asset_hashes: Option<PathBuf>,
}

/// Arguments of `config dump`.
#[derive(Args, Clone, Debug)]
pub struct DumpArgs {
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// How it is printed: as YAML, or as JSON.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `config check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The boot config of a machine, which is then checked as a whole.
    #[arg(long, value_name = "FILE", required_unless_present = "instance_group")]
    pub conf: Option<PathBuf>,
    /// The instance group, if it is to be checked without a machine.
    #[arg(long, value_name = "NAME", requires = "config_base", conflicts_with = "conf")]
    pub instance_group: Option<String>,
    /// The cluster's folder in the state store, instead of the boot config's ConfigBase.
    #[arg(long, value_name = "URL")]
    pub config_base: Option<String>,
    /// Where the configuration of a machine comes from.
    #[arg(long, value_enum, default_value_t = ConfigFrom::ClusterSpec)]
    pub config_from: ConfigFrom,
    /// How the store is reached.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Use these facts (YAML or JSON) instead of observing this machine and its cloud.
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// How the findings are printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

impl CheckArgs {
    /// What decides the machine, where there is one.
    pub fn spec(&self) -> Option<SpecArgs> {
        Some(SpecArgs {
            conf: self.conf.clone()?,
            config_from: self.config_from,
            config_base: self.config_base.clone(),
            store: self.store.clone(),
            facts: self.facts.clone(),
            asset_hashes: None,
            on_hash_mismatch: OnHashMismatch::Warn,
            controller: false,
            node_root: PathBuf::from("/"),
        })
    }
}

/// Arguments of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// A path (`/etc/containerd/config.toml`), a unit (`kubelet.service`), or a flag or setting (`--max-pods`).
    #[arg(value_name = "PATH|UNIT|FLAG", allow_hyphen_values = true)]
    pub question: String,
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// How the answer is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `facts`.
#[derive(Args, Clone, Debug)]
pub struct FactsArgs {
    /// The boot config, which names the cloud to ask; without one only the machine itself is observed.
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// The root whose os-release is read.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print JSON instead of YAML.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
