//! A software TPM in place of the kernel's TPM, for tests.

use kops_agent_tests::swtpm::Swtpm;

use super::{OpenTpm, TpmDevice, TpmProblem};

impl OpenTpm for Swtpm {
    fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem> {
        let problem = |cause| TpmProblem::Open { path: "swtpm".into(), cause, advice: "" };
        Ok(Box::new(self.connect().map_err(problem)?))
    }
}
