//! The errors of a TPM, and their messages.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tpm2_protocol::data::{TpmCc, TpmRc, TpmRcBase};

/// Why a TPM does not sign.
#[derive(Debug, Error)]
pub enum TpmProblem {
    /// There is no TPM.
    #[error("this machine shows no TPM: there is neither {devices}")]
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
    /// The device rejects the command, or no answer comes.
    #[error("the TPM does not carry out {command}: {cause}")]
    Exchange { command: TpmCc, cause: io::Error },
    /// The command cannot be encoded.
    #[error("{command} cannot be put into words for the TPM: {problem}")]
    Unwritable { command: TpmCc, problem: String },
    /// The answer cannot be decoded.
    #[error("the TPM's answer to {command} cannot be read: {problem}")]
    Unreadable { command: TpmCc, problem: String },
    /// The TPM rejects the command.
    #[error("the TPM refuses {command}: {code}")]
    Refused { command: TpmCc, code: ResponseCode },
    /// The TPM's memory has no key template at this index.
    #[error("the TPM has no template of a key at {index:#010x}")]
    NoTemplate {
        /// The index in the TPM's memory.
        index: u32,
    },
    #[error("what the TPM has at {index:#010x} makes no key that signs: {problem}")]
    Template {
        /// The index in the TPM's memory.
        index: u32,
        problem: String,
    },
    /// The TPM does not hash this much data at once.
    #[error("{length} bytes are to be signed, and a TPM takes no more than {most} at a time")]
    TooLong {
        length: usize,
        /// The maximum number of bytes.
        most: usize,
    },
    /// The deadline has passed.
    #[error(
        "the TPM is busy: it had not got to {command} after {seconds} seconds; does another program keep it busy, or does it \
         test itself?"
    )]
    TooSlow {
        command: TpmCc,
        /// The timeout, in seconds.
        seconds: u64,
    },
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
    #[error("the TPM says nothing for {seconds} seconds; restart this instance")]
    Silent {
        /// How long the caller waited, in seconds.
        seconds: u64,
    },
    /// The TPM has not finished the previous request.
    #[error("the TPM has said nothing since it was last asked; restart this instance")]
    StillSilent,
    #[error("the TPM cannot be asked: {0}")]
    NoThread(std::io::Error),
}

/// Advice for GCE; begins with punctuation, or is empty.
fn advice_on_gce(problem: &TpmProblem) -> &'static str {
    match problem {
        TpmProblem::Absent { .. } => {
            "; turn on vTPM in the instance template of its group (Shielded VM; the image must be one that UEFI boots) and \
             replace this instance"
        }
        TpmProblem::NoTemplate { .. } | TpmProblem::Template { .. } => {
            "; is it the vTPM that the cloud gives an instance? Turn on vTPM in the instance template of its group and replace \
             this instance"
        }
        _ => "",
    }
}

/// The response code of an answer (TPM 2.0 Library Specification, part 2, "TPM_RC"). Its `Display` is its name, with advice if
/// there is some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCode(u32);

impl ResponseCode {
    /// The code of an answer; `None` if the answer is too short.
    pub fn of(answer: &[u8]) -> Option<ResponseCode> {
        let code = answer.get(6..10)?.try_into().ok()?;
        Some(ResponseCode(u32::from_be_bytes(code)))
    }

    /// Whether the command was carried out.
    pub fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Whether the same command may succeed a little later.
    pub fn is_put_off(self) -> bool {
        matches!(self.base(), Some(TpmRcBase::Retry | TpmRcBase::Yielded | TpmRcBase::Testing))
    }

    /// Whether the object of the command does not exist.
    pub fn is_no_such_handle(self) -> bool {
        self.base() == Some(TpmRcBase::Handle)
    }

    /// The code of the TPM. The kernel's resource manager uses the same codes, with its own layer in the upper bits (Linux:
    /// `TSS2_RESMGR_TPM_RC_LAYER` in drivers/char/tpm/tpm.h).
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
                "; it has a password where none should be: a new instance has a new TPM"
            }
            Some(TpmRcBase::AuthUnavailable | TpmRcBase::NvAuthorization | TpmRcBase::Policy) => {
                "; it lets others than its owner do that: a new instance has a new TPM"
            }
            Some(TpmRcBase::Hierarchy) => {
                "; its endorsement hierarchy is switched off until the next start: restart this instance, and see what \
                 switches it off"
            }
            Some(TpmRcBase::Lockout) => {
                "; it has been given too many wrong passwords and takes none for a while (tpm2_dictionarylockout shows for \
                 how long): see who tries them"
            }
            Some(TpmRcBase::ObjectMemory | TpmRcBase::ObjectHandles | TpmRcBase::Memory) => {
                "; it has no room for another key: a program that uses /dev/tpm0 has left keys in it, which \
                 `tpm2_flushcontext --transient-object` or a restart of this instance removes"
            }
            Some(TpmRcBase::NvUninitialized) => "; nothing has been written there",
            Some(TpmRcBase::NvLocked) => "; it must not be read before the next start",
            Some(TpmRcBase::Scheme | TpmRcBase::Attributes | TpmRcBase::Key) => {
                "; its key does not sign with RSASSA and SHA-256"
            }
            Some(TpmRcBase::Failure) => "; it has failed its own test: restart this instance",
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
