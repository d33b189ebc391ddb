//! nodeup's way of spelling a command line.

use super::Cli;

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
    use clap::CommandFactory;
    let commands = Cli::command();
    args.iter().skip(1).any(|arg| commands.get_subcommands().any(|command| command.get_name() == arg))
}
