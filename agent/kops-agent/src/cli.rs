//! The command line.

mod addons;
mod change;
mod config;
mod controller;
mod diagnosis;
mod fleet;
mod kubeconfig;
mod live;
mod machine;
mod nodeup;
mod rollout;
mod spec;
pub mod spelling;

use std::path::PathBuf;

pub use kops_agent_process::version::VERSION;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use kops_agent_process::exit;

pub use addons::{AddonsApplyArgs, AddonsArgs, AddonsCommand, AddonsDiffArgs, AddonsRemoveArgs};
pub use change::ChangeArgs;
pub use config::{AssetsArgs, CheckArgs, CheckOutput, ConfigCommand, DeriveArgs, DumpArgs};
pub use controller::{ControllerArgs, ControllerCommand, TakeoverArgs};
pub use diagnosis::{DoctorArgs, SupportBundleArgs};
pub use fleet::{FleetCommand, FleetFollowArgs, FleetPlanArgs, FleetStatusArgs, FleetTellArgs};
pub use kubeconfig::KubeconfigArgs;
pub use machine::{DOWNLOAD_TIMEOUT, RootArgs};
pub use nodeup::NodeupArgs;
pub use rollout::{DrainArg, RebootArgs, RolloutCommand, RolloutStartArgs, RolloutStatusArgs, UpgradeArgs};
pub use spec::{ConfigArgs, FollowArgs, STORE_TIMEOUT, SpecArgs, StoreArgs};

const EXAMPLES: &str = "\
Examples:
  kops-agent plan                                                    what would change on this machine
  kops-agent converge                                                make this machine the node it must be
  kops-agent converge --conf kube_env.yaml --root /tmp/node          the same, into a scratch root
  kops-agent render   --conf kube_env.yaml --facts facts.yaml -o json

Called with nodeup's own flags and no command, it does what nodeup does:
  kops-agent --conf=/opt/kops/conf/kube_env.yaml --install-systemd-unit --v=8
";

/// The text below the options in the help.
fn after_help() -> String {
    let codes = exit::MEANINGS.iter().map(|(code, meaning)| format!("\n  {code}  {meaning}"));
    format!("{EXAMPLES}\nExit codes, the same for every command:{}", codes.collect::<String>())
}

/// The node side of kOps: makes this machine the node that its cluster's state store describes.
#[derive(Debug, Parser)]
#[command(name = "kops-agent", version = VERSION, after_help = after_help(), max_term_width = 110, disable_help_flag = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// Log more: -v 2 logs each step, -v 10 also messages of libraries.
    #[arg(short = 'v', long = "v", global = true, value_name = "LEVEL", default_value_t = 1, help_heading = GLOBAL)]
    pub verbosity: u8,

    /// Print help; -h prints a summary.
    #[arg(id = "help", short = 'h', long = "help", global = true, action = ArgAction::Help, help_heading = GLOBAL)]
    _help: Option<bool>,
}

/// The help heading for flags of every command. The help lists them apart from a command's own flags.
const GLOBAL: &str = "Global options";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this machine the node it must be; a second run changes nothing.
    Converge(ConvergeArgs),
    /// Show what converge would change, touching nothing.
    Plan(PlanArgs),
    /// Show how this machine differs from its last applied configuration, and from the configuration that it should have now.
    Verify(VerifyArgs),
    /// Show node status: converged or not, since when, the last failure, the next certificate to expire.
    Status(StatusArgs),
    /// Show what stops this machine from becoming a node, and what to do about it. Changes nothing. Ends with 4 if
    /// anything stops it.
    Doctor(DoctorArgs),
    /// Write a support bundle about this machine into one file, without secrets.
    SupportBundle(SupportBundleArgs),
    /// Turn this node back into the machine that it was before it became a node.
    Reset(ResetArgs),
    /// Print everything the node must have.
    Render(RenderArgs),
    /// Print the facts observed on this machine and from its cloud.
    Facts(FactsArgs),
    /// Derive, dump or check a configuration, or list what nodes download.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Control-plane mode: label nodes by their instance group, as kops-controller does.
    Controller(ControllerArgs),
    /// Show a cluster's add-ons, and apply them, as kOps' channels pod does.
    Addons {
        #[command(subcommand)]
        command: AddonsCommand,
    },
    /// Show which configurations the nodes of a cluster run, or report this node's.
    Fleet {
        #[command(subcommand)]
        command: FleetCommand,
    },
    /// Show where a value on the machine comes from: a field of a file, a fact, or a default.
    Explain(ExplainArgs),
    /// Print the script that completes commands in a shell, with the names of the cluster's instance groups and Nodes.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, in roff.
    Man {
        /// Write the pages of this program and of each verb into a folder instead, as kops-agent.1, kops-agent-plan.1, …
        #[arg(long, value_name = "DIR")]
        all: Option<PathBuf>,
    },
    /// Print the version and the commit of this program.
    Version {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Do what nodeup does with the same flags.
    #[command(hide = true)]
    Nodeup(NodeupArgs),
}

/// The output format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// A shell that can complete commands. PowerShell is none of them: the script of `clap_complete` for PowerShell runs the typed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Elvish,
    Fish,
    Zsh,
}

impl Shell {
    pub fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Elvish => "elvish",
            Shell::Fish => "fish",
            Shell::Zsh => "zsh",
        }
    }
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

#[derive(Args, Clone, Debug)]
pub struct ConvergeArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    #[command(flatten)]
    pub follow: FollowArgs,
    #[command(flatten)]
    pub root: RootArgs,
    #[command(flatten)]
    pub change: ChangeArgs,
    /// On a node that nodeup made, take ownership of everything that already matches. Later runs remove it when it is
    /// no longer wanted, and `reset` removes it.
    #[arg(long)]
    pub adopt: bool,
    /// Number of retries after a failure, including a wrong configuration; -1 retries forever. Pauses grow from five
    /// seconds to some minutes.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub retries: i64,
    /// If another run is in progress on this machine, wait for its end instead of failing. A run with --retries waits, too.
    #[arg(long)]
    pub wait: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}

#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    #[command(flatten)]
    pub follow: FollowArgs,
    #[command(flatten)]
    pub root: RootArgs,
    /// On a node that nodeup made, take ownership of everything that already matches. Later runs remove it when it is
    /// no longer wanted, and `reset` removes it.
    #[arg(long)]
    pub adopt: bool,
    /// End with 4 if there is a difference.
    #[arg(long)]
    pub exit_code: bool,
    /// Show your own texts too: files, hooks, variables. Private keys and secrets of the store stay hidden.
    #[arg(long)]
    pub show_secrets: bool,
    /// Print only how much changes, and what restarts.
    #[arg(long)]
    pub summary: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}

#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    #[command(flatten)]
    pub root: RootArgs,
    /// Read every file, also files whose inode, size and change time have not changed.
    #[arg(long)]
    pub deep: bool,
    /// Renew certificates with less than a third of their life left, restart the components that read them, and change
    /// nothing else.
    #[arg(long)]
    pub renew: bool,
    /// Converge if there is a difference. This renews certificates too.
    #[arg(long)]
    pub repair: bool,
    /// Repair nothing if another resource differs than these, or if a rollback is not finished. Waits for a run in
    /// progress. After a rollout has replaced kops-agent on this machine, the new one starts this command for its own units.
    #[arg(long, value_name = "RESOURCE", requires = "repair", hide = true)]
    pub only: Vec<String>,
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}

/// Output formats of `status`.
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

#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: StatusOutput,
    /// Show instead the duration of each step, for the last run and for the last run that changed something.
    #[arg(long)]
    pub timeline: bool,
    /// Write the metrics (--output prometheus) atomically into this file below --root, instead of printing them. The
    /// file's folder must exist, and no link may lead to it. The folder may belong to node_exporter.
    #[arg(long, value_name = "FILE", conflicts_with = "timeline")]
    pub write: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct ResetArgs {
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Reset without asking.
    #[arg(long)]
    pub yes: bool,
    /// Also remove the boot config and the units' variables, which a later node of the same cluster would need. Use
    /// this before making an image of the machine.
    #[arg(long)]
    pub purge: bool,
    /// Reset this machine even if machines can bootstrap at no other control plane of the cluster afterwards. Without this
    /// flag, such a reset ends with 1, and changes nothing.
    #[arg(long)]
    pub allow_no_server: bool,
}

#[derive(Args, Clone, Debug)]
pub struct RenderArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Print private keys and secrets too.
    #[arg(long)]
    pub show_secrets: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// A path (`/etc/containerd/config.toml`), a unit (`kubelet.service`), or a flag or setting (`--max-pods`).
    #[arg(value_name = "PATH|UNIT|FLAG", allow_hyphen_values = true)]
    pub question: String,
    #[command(flatten)]
    pub spec: SpecArgs,
    /// The root of the machine whose os-release and files are read.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Show your own texts too: files, hooks, variables. Private keys and secrets of the store stay hidden.
    #[arg(long)]
    pub show_secrets: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct FactsArgs {
    /// Boot config, which names the cloud to ask. Default: the boot config of this machine. Without one, only the
    /// machine itself is observed.
    #[arg(long, value_name = "FILE|URL")]
    pub conf: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreArgs,
    /// The root whose os-release is read.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Output format; text is YAML.
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
