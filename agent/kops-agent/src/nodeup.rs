//! nodeup's own way of being called, so that a machine's user-data works unchanged.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, CommandFactory as _};

use crate::cli::{
    ChangeArgs, Cli, Color, ConfigFrom, ConvergeArgs, DOWNLOAD_PATIENCE, OnHashMismatch, Output, PlanArgs,
    RootArgs, STORE_PATIENCE, SpecArgs, StoreArgs,
};
use crate::{converge_with_retries, install_unit, plan};

/// nodeup's own flags (cmd/nodeup/main.go).
#[derive(Args, Clone, Debug)]
pub struct NodeupArgs {
    /// Where the boot config is.
    #[arg(long, default_value = "node.yaml")]
    pub conf: PathBuf,
    /// Where downloads are kept.
    #[arg(long, default_value = "/var/cache/nodeup")]
    pub cache: PathBuf,
    /// How often to try again after a failure; -1 for as long as it takes.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub retries: i64,
    /// Show what would be done.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    pub dryrun: bool,
    /// `direct`, or `dryrun`.
    #[arg(long, default_value = "direct", value_parser = ["direct", "dryrun"])]
    pub target: String,
    /// Install a unit that does this at boot, and start it, instead of doing it now. Does not wait until it is done.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, require_equals = true)]
    pub install_systemd_unit: bool,
}

/// Installs the unit, shows the plan, or converges, as the flags ask.
pub(crate) async fn run(args: NodeupArgs) -> Result<u8> {
    if args.install_systemd_unit {
        return install_unit::install(args.retries).await;
    }
    let spec = SpecArgs {
        conf: args.conf,
        config_from: ConfigFrom::default(),
        config_base: None,
        store: StoreArgs { store_mirror: Vec::new(), store_patience: STORE_PATIENCE },
        facts: None,
        asset_hashes: None,
        on_hash_mismatch: OnHashMismatch::default(),
        controller: false,
        node_root: PathBuf::from("/"),
    };
    let root = RootArgs {
        root: PathBuf::from("/"),
        cache: args.cache,
        download_patience: DOWNLOAD_PATIENCE,
        waits_for_lock: false,
    };
    let (output, color) = (Output::default(), Color::default());
    if args.dryrun || args.target == "dryrun" {
        return plan(&PlanArgs { spec, root, adopt: false, exit_code: false, output, color }).await;
    }
    converge_with_retries(&ConvergeArgs {
        spec,
        root,
        change: ChangeArgs::default(),
        adopt: false,
        retries: args.retries,
        output,
        color,
    })
    .await
}

const NODEUP_FLAGS: [&str; 6] = ["conf", "cache", "retries", "dryrun", "target", "install-systemd-unit"];

/// The arguments with nodeup's way of calling made ours: no command means `nodeup`, and one dash is
/// as good as two before its flags, as Go's flag package has it.
pub fn with_nodeup_spelling(args: Vec<String>) -> Vec<String> {
    let called_like_nodeup =
        args.get(1).is_some_and(|first| nodeup_flag(first).is_some() || is_verbosity(first));
    if !called_like_nodeup || has_command(&args) {
        return args;
    }
    let mut spelled = vec![args[0].clone(), "nodeup".to_owned()];
    spelled.extend(args.into_iter().skip(1).map(|arg| nodeup_flag(&arg).unwrap_or(arg)));
    spelled
}

/// `-conf=x` or `--conf=x` as `--conf=x`, if it is a flag of nodeup's.
fn nodeup_flag(arg: &str) -> Option<String> {
    let flag = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
    let name = flag.split('=').next()?;
    NODEUP_FLAGS.contains(&name).then(|| format!("--{flag}"))
}

fn is_verbosity(arg: &str) -> bool {
    ["-v", "--v"]
        .iter()
        .any(|flag| arg == *flag || arg.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')))
}

fn has_command(args: &[String]) -> bool {
    let commands = Cli::command();
    args.iter().skip(1).any(|arg| commands.get_subcommands().any(|command| command.get_name() == arg))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser as _;

    use super::*;
    use crate::cli::Command;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(with_nodeup_spelling(args.iter().map(|arg| (*arg).to_owned()).collect()))
    }

    #[test]
    fn nodeups_own_call_is_understood() {
        let cli =
            parse(&["kops-agent", "--install-systemd-unit", "--conf=/opt/kops/conf/kube_env.yaml", "--v=8"])
                .unwrap();
        let Command::Nodeup(args) = cli.command else { panic!("{cli:?}") };
        assert!(args.install_systemd_unit && !args.dryrun);
        assert_eq!(args.conf, PathBuf::from("/opt/kops/conf/kube_env.yaml"));
        assert_eq!((args.retries, cli.verbosity), (-1, 8));
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let cli = parse(&["nodeup", "-conf", "x.yaml", "-retries=3", "-dryrun", "-v", "2"]).unwrap();
        let Command::Nodeup(args) = cli.command else { panic!("{cli:?}") };
        assert!(args.dryrun);
        assert_eq!((args.retries, cli.verbosity), (3, 2));
    }

    #[test]
    fn commands_are_not_taken_for_nodeups_flags() {
        let cli = parse(&["kops-agent", "-v", "2", "plan", "--conf", "x.yaml"]).unwrap();
        assert!(matches!(cli.command, Command::Plan(_)));
        assert!(parse(&["kops-agent", "--wrong"]).is_err());
    }
}
