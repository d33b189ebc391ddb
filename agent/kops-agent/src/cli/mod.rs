//! The command line.

mod change;
mod config;
mod fleet;
mod look;
mod machine;
mod nodeup;
mod spec;
pub mod spelling;

use std::path::PathBuf;

pub use kops_agent_controller::addons::AddonsCommand;
pub use kops_agent_controller::{ControllerArgs, ControllerCommand};
pub use kops_agent_process::output::Output;
pub use kops_agent_process::version::VERSION;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use kops_agent_process::exit;

pub use change::ChangeArgs;
pub use config::{CheckArgs, ConfigCommand, DeriveArgs, DumpArgs};
pub use fleet::{FleetCommand, FleetTellArgs};
pub use look::{DoctorArgs, LookArgs, SupportBundleArgs};
pub use machine::{DOWNLOAD_TIMEOUT, RootArgs};
pub use nodeup::NodeupArgs;
pub use spec::{STORE_TIMEOUT, SpecArgs, StoreArgs, default_conf};

const EXAMPLES: &str = "\
Examples:
  kops-agent plan                                                    what would change on this machine
  kops-agent converge                                                make this machine the node it must be
  kops-agent converge --conf kube_env.yaml --root /tmp/node          the same, into a scratch root
  kops-agent render   --conf kube_env.yaml --facts facts.yaml -o json

Called with nodeup's own flags and no command, it does what nodeup does:
  kops-agent --conf=/opt/kops/conf/kube_env.yaml --install-systemd-unit --v=8
";

/// What stands below the options.
fn after_help() -> String {
    let codes = exit::MEANINGS.iter().map(|(code, meaning)| format!("\n  {code}  {meaning}"));
    format!("{EXAMPLES}\nExit codes, the same for every command:{}", codes.collect::<String>())
}

/// The node side of kOps: makes this machine the node that its cluster's state store describes.
#[derive(Debug, Parser)]
#[command(name = "kops-agent", version = VERSION, after_help = after_help(), max_term_width = 110, disable_help_flag = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Say more: -v 2 tells each step, -v 10 also what libraries say.
    #[arg(short = 'v', long = "v", global = true, value_name = "LEVEL", default_value_t = 1, help_heading = GLOBAL)]
    pub verbosity: u8,

    /// Print help; -h prints a summary.
    #[arg(id = "help", short = 'h', long = "help", global = true, action = ArgAction::Help, help_heading = GLOBAL)]
    _help: Option<bool>,
}

/// What every command takes is listed apart from what it takes alone.
const GLOBAL: &str = "Global options";

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
    /// Say what would stop this machine from becoming its node, and what to do about it, changing nothing. Ends with 4 if
    /// anything would.
    Doctor(DoctorArgs),
    /// Write what a report needs about this machine into one file, without what is secret.
    SupportBundle(SupportBundleArgs),
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
    /// Look at a cluster's add-ons, and apply them, as kOps' channels pod does.
    Addons {
        /// What to do with them.
        #[command(subcommand)]
        command: AddonsCommand,
    },
    /// Look at the nodes of a cluster, which tell in their Nodes which configurations they run.
    Fleet {
        /// What to do with them.
        #[command(subcommand)]
        command: FleetCommand,
    },
    /// Say where a value on the machine comes from: a field of a file, a fact, or a default.
    Explain(ExplainArgs),
    /// Print completions for a shell.
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
    /// Print the version, and the commit of which this program was built.
    Version {
        /// How it is printed.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Do what nodeup does with the same flags.
    #[command(hide = true)]
    Nodeup(NodeupArgs),
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
    /// Show your own texts too: files, hooks, variables. Private keys and secrets of the store stay hidden.
    #[arg(long)]
    pub show_secrets: bool,
    /// Print only how much changes, and what restarts.
    #[arg(long)]
    pub summary: bool,
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
    /// Show instead what the last runs took their time for, step by step: the last one, and the last that changed
    /// something.
    #[arg(long)]
    pub timeline: bool,
    /// Write the metrics (--output prometheus) into this file below --root, whole at once, instead of printing them. Its folder
    /// may be node_exporter's own; it has to be there, and no link may lead to it.
    #[arg(long, value_name = "FILE", conflicts_with = "timeline")]
    pub write: Option<String>,
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
    /// Remove the boot config and the units' variables too, which a later node of the same cluster would need: before an image is made of
    /// the machine.
    #[arg(long)]
    pub purge: bool,
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

/// Arguments of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// A path (`/etc/containerd/config.toml`), a unit (`kubelet.service`), or a flag or setting (`--max-pods`).
    #[arg(value_name = "PATH|UNIT|FLAG", allow_hyphen_values = true)]
    pub question: String,
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// The root of the machine whose os-release and files are read.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Show your own texts too: files, hooks, variables. Private keys and secrets of the store stay hidden.
    #[arg(long)]
    pub show_secrets: bool,
    /// How the answer is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `facts`.
#[derive(Args, Clone, Debug)]
pub struct FactsArgs {
    /// The boot config, which names the cloud to ask. Without this it is that of this machine; where there is none, only the machine
    /// itself is observed.
    #[arg(long, value_name = "FILE|URL")]
    pub conf: Option<PathBuf>,
    /// How a store is reached that has the boot config.
    #[command(flatten)]
    pub store: StoreArgs,
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
