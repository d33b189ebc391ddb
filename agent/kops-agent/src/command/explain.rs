//! `kops-agent explain`: shows where a value on the machine comes from.

use anyhow::Result;
use kops_agent_plan::explain::Question;
use kops_agent_plan::settings;

use crate::cli::{ExplainArgs, Output};
use crate::output;
use kops_agent_node::{decide, explanation, spec};
use kops_agent_spec::failure::{Failure, Kind};

pub(super) async fn run(args: &ExplainArgs) -> Result<u8> {
    let options = args.spec.for_machine(&args.root);
    let spec = spec::read_to_show(&options.store.open()?, &options).await?;
    let question = Question::read(&args.question);
    let conf = args.spec.config.conf.display().to_string();
    let lines = explanation::explain(&spec, &conf, &question, args.show_secrets)?;
    if lines.is_empty() {
        // Errors in the node's configuration come first, because they make every explanation wrong.
        let node = decide::resolve(spec)?;
        if let Some(answer) = settings::not_set(&args.question, &node) {
            return match args.output {
                Output::Json => output::print_explanation(&lines, args.output),
                Output::Text => output::print_text(&(answer + "\n")),
            };
        }
        let problem = format!(
            "this node has nothing with the name {}; `kops-agent render` lists everything that this node must have",
            args.question
        );
        return Err(Failure::new(Kind::NoSuchName, problem).into());
    }
    output::print_explanation(&lines, args.output)
}
