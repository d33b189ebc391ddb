//! Accepts nodeup's own command line, so that a machine's user-data works unchanged.

use clap::CommandFactory as _;

use super::Cli;

const NODEUP_FLAGS: [&str; 6] = ["conf", "cache", "retries", "dryrun", "target", "install-systemd-unit"];

/// Translates nodeup's command line into ours. No command means `nodeup`. nodeup's flags may have one dash or two, as
/// in Go's flag package.
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

/// Returns a nodeup flag with two dashes: `-conf=x` becomes `--conf=x`. `None` for any other argument.
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
    use std::path::PathBuf;

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

    #[test]
    fn flags_that_were_renamed_are_understood_by_their_old_names() {
        let old = ["--health-patience=1", "--store-patience=2", "--download-patience=3"];
        let cli = parse(&[&["kops-agent", "converge", "--conf=x.yaml"], &old[..]].concat()).unwrap();
        let Command::Converge(args) = cli.command else { panic!("{cli:?}") };
        let timeouts =
            (args.change.health_timeout, args.spec.store.store_timeout, args.root.download_timeout);
        assert_eq!(timeouts, (1, 2, 3));
    }
}
