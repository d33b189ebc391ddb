//! `kops-agent verify`: shows drift from the last applied state, which needs no state store, and differences from the
//! wanted state, which needs one.

use anyhow::Result;
use kops_agent_host::Depth;
use kops_agent_node::run::verify::{self, Verify};

use crate::cli::VerifyArgs;
use crate::output::ResultPrinter;

pub(super) async fn run(args: &VerifyArgs) -> Result<u8> {
    let root = &args.root.root;
    if args.repair && verify::is_in_sandbox(root) {
        return verify::repair_outside(std::env::args().skip(1));
    }
    let on = args.root.options(!args.only.is_empty(), args.change.pacing()?);
    let printer = ResultPrinter { output: args.output, color: args.color };
    let run = Verify {
        options: args.spec.for_machine(root),
        on: on.allowing_no_server(args.change.allow_no_server),
        settings: args.change.host_settings(),
        depth: if args.deep { Depth::Content } else { Depth::Touched },
        renew: args.renew,
        repair: args.repair,
        only: &args.only,
        printer: &printer,
    };
    run.run().await
}
