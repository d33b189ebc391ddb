//! The errors of a TPM, and their messages.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tpm2_protocol::data::{TpmCc, TpmRc, TpmRcBase};

/// Why a TPM does not sign.
#[derive(Debug, Error)]
pub enum TpmProblem {
    #[error("this machine has no TPM: there is neither {devices}")]
    Absent {
        /// The device files that were tried, with "nor" between them.
        devices: String,
    },
    #[error("{} cannot be opened: {cause}{advice}", path.display())]
    Open {
        path: PathBuf,
        cause: io::Error,
        /// Advice; begins with punctuation, or is empty.
        advice: &'static str,
    },
    /// The device rejects the command, or returns no answer.
    #[error("the TPM cannot run {command}: {cause}")]
    Exchange { command: TpmCc, cause: io::Error },
    #[error("cannot encode {command} for the TPM: {problem}")]
    Unwritable { command: TpmCc, problem: String },
    #[error("the TPM's answer to {command} cannot be read: {problem}")]
    Unreadable { command: TpmCc, problem: String },
    #[error("the TPM rejects {command}: {code}")]
    Refused { command: TpmCc, code: ResponseCode },
    #[error("the TPM has no key template at {index:#010x}")]
    NoTemplate {
        /// The index in the TPM's memory.
        index: u32,
    },
    #[error("the TPM's key template at {index:#010x} gives no signing key: {problem}")]
    Template {
        /// The index in the TPM's memory.
        index: u32,
        problem: String,
    },
    /// The TPM does not hash this much data at once.
    #[error("cannot sign {length} bytes: a TPM accepts at most {most} bytes at a time")]
    TooLong { length: usize, most: usize },
    /// The deadline has passed.
    #[error(
        "the TPM is busy: it did not run {command} within {seconds} seconds; does another program use it, or does it \
         run its self-test?"
    )]
    TooSlow { command: TpmCc, seconds: u64 },
}

/// Why the TPM of an instance of GCE does not sign.
#[derive(Debug, Error)]
pub enum TpmFailure {
    /// The TPM reports an error, or there is no TPM.
    #[error("{problem}{advice}", advice = advice_on_gce(.problem))]
    Problem {
        #[from]
        problem: TpmProblem,
    },
    #[error("the TPM has not answered for {seconds} seconds; restart this instance")]
    Silent {
        /// How long the caller waited, in seconds.
        seconds: u64,
    },
    #[error("the TPM has still not answered the previous request; restart this instance")]
    StillSilent,
    #[error("cannot start a thread for the TPM: {0}")]
    NoThread(std::io::Error),
}

/// Advice for GCE; begins with punctuation, or is empty.
fn advice_on_gce(problem: &TpmProblem) -> &'static str {
    match problem {
        TpmProblem::Absent { .. } => {
            "; turn on vTPM in the instance template of its group (Shielded VM; the image must support UEFI) and \
             replace this instance"
        }
        TpmProblem::NoTemplate { .. } | TpmProblem::Template { .. } => {
            "; is it the cloud's vTPM? Turn on vTPM in the instance template of its group and replace this instance"
        }
        _ => "",
    }
}

/// The response code of an answer (TPM 2.0 Library Specification, part 2, "TPM_RC"). `Display` shows the name of the code, and advice for
/// some codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCode(u32);

impl ResponseCode {
    /// The code of an answer; `None` if the answer is too short.
    pub fn from_answer(answer: &[u8]) -> Option<ResponseCode> {
        let code = answer.get(6..10)?.try_into().ok()?;
        Some(ResponseCode(u32::from_be_bytes(code)))
    }

    /// Whether the command was carried out.
    pub fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Whether a retry of the command may succeed soon.
    pub fn is_put_off(self) -> bool {
        matches!(self.base(), Some(TpmRcBase::Retry | TpmRcBase::Yielded | TpmRcBase::Testing))
    }

    /// Whether the object that the command names does not exist.
    pub fn is_no_such_handle(self) -> bool {
        self.base() == Some(TpmRcBase::Handle)
    }

    /// The TPM's own code, without the upper bits. The kernel's resource manager uses the same codes for its own answers, and marks these
    /// answers in the upper bits (Linux: `TSS2_RESMGR_TPM_RC_LAYER` in drivers/char/tpm/tpm.h).
    fn name(self) -> Option<TpmRc> {
        TpmRc::try_from(self.0 & 0xffff).ok()
    }

    fn base(self) -> Option<TpmRcBase> {
        self.name().map(|name| name.base())
    }

    /// Advice; begins with punctuation, or is empty.
    fn advice(self) -> &'static str {
        match self.base() {
            Some(TpmRcBase::AuthFail | TpmRcBase::BadAuth) => {
                "; it requires a password, although it should have none: replace this instance to get a new TPM"
            }
            Some(TpmRcBase::AuthUnavailable | TpmRcBase::NvAuthorization | TpmRcBase::Policy) => {
                "; it does not permit its owner to do this: replace this instance to get a new TPM"
            }
            Some(TpmRcBase::Hierarchy) => {
                "; its endorsement hierarchy is disabled until the next boot: restart this instance, and find the \
                 program that disables it"
            }
            Some(TpmRcBase::Lockout) => {
                "; it received too many wrong passwords, and rejects all passwords for a while \
                 (tpm2_dictionarylockout shows for how long): find the program that tries them"
            }
            Some(TpmRcBase::ObjectMemory | TpmRcBase::ObjectHandles | TpmRcBase::Memory) => {
                "; it has no room for another key: a program that uses /dev/tpm0 left keys in it. Remove them with \
                 `tpm2_flushcontext --transient-object`, or restart this instance"
            }
            Some(TpmRcBase::NvUninitialized) => "; this index of its memory is empty",
            Some(TpmRcBase::NvLocked) => "; this index of its memory is locked until the next boot",
            Some(TpmRcBase::Scheme | TpmRcBase::Attributes | TpmRcBase::Key) => {
                "; its key does not sign with RSASSA and SHA-256"
            }
            Some(TpmRcBase::Failure) => "; its self-test failed: restart this instance",
            _ => "",
        }
    }
}

impl fmt::Display for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:#x}){}", self.0, self.advice()),
            None => write!(f, "response code {:#x}", self.0),
        }
    }
}
