//! What a TPM does not do, and why, in words.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tpm2_protocol::data::{TpmCc, TpmRc, TpmRcBase};

/// Why a TPM does not sign.
#[derive(Debug, Error)]
pub enum TpmProblem {
    /// There is none.
    #[error("this machine shows no TPM: there is neither {devices}")]
    Absent {
        /// Where it was looked for, with "nor" between them.
        devices: String,
    },
    #[error("{} cannot be opened: {cause}{advice}", path.display())]
    Open {
        path: PathBuf,
        /// Why not.
        cause: io::Error,
        /// What to do; begins with punctuation.
        advice: &'static str,
    },
    /// A command is not taken, or no answer comes.
    #[error("the TPM does not carry out {command}: {cause}")]
    Exchange { command: TpmCc, cause: io::Error },
    /// A command cannot be written.
    #[error("{command} cannot be put into words for the TPM: {problem}")]
    Unwritable { command: TpmCc, problem: String },
    /// An answer is none.
    #[error("the TPM's answer to {command} cannot be read: {problem}")]
    Unreadable { command: TpmCc, problem: String },
    /// It says no.
    #[error("the TPM refuses {command}: {code}")]
    Refused { command: TpmCc, code: ResponseCode },
    /// There is nothing where the template of the key should be.
    #[error("the TPM has no template of a key at {index:#010x}")]
    NoTemplate {
        /// The index of its memory.
        index: u32,
    },
    #[error("what the TPM has at {index:#010x} makes no key that signs: {problem}")]
    Template {
        /// The index of its memory.
        index: u32,
        /// What is wrong with it.
        problem: String,
    },
    /// It takes no more at a time.
    #[error("{length} bytes are to be signed, and a TPM takes no more than {most} at a time")]
    TooLong {
        length: usize,
        /// How many there may be.
        most: usize,
    },
    /// There is no time left.
    #[error(
        "the TPM is busy: it had not got to {command} after {seconds} seconds; does another program keep it busy, or does it \
         test itself?"
    )]
    TooSlow {
        command: TpmCc,
        /// For how long it was waited.
        seconds: u64,
    },
}

/// Why the TPM of an instance of GCE does not sign.
#[derive(Debug, Error)]
pub enum TpmFailure {
    /// It says why, or there is none.
    #[error("{problem}{advice}", advice = advice_on_gce(.problem))]
    Problem {
        #[from]
        problem: TpmProblem,
    },
    #[error("the TPM says nothing for {seconds} seconds; restart this instance")]
    Silent {
        /// For how long it was waited.
        seconds: u64,
    },
    /// It has not finished what it was last asked.
    #[error("the TPM has said nothing since it was last asked; restart this instance")]
    StillSilent,
    #[error("the TPM cannot be asked: {0}")]
    NoThread(std::io::Error),
}

/// What to do on GCE; begins with punctuation.
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

/// What an answer begins with (TPM 2.0 Library Specification, part 2, "TPM_RC"). Its `Display` is the name, and what to do
/// where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCode(u32);

impl ResponseCode {
    /// The one of an answer; `None` where it is too short to have one.
    pub fn of(answer: &[u8]) -> Option<ResponseCode> {
        let code = answer.get(6..10)?.try_into().ok()?;
        Some(ResponseCode(u32::from_be_bytes(code)))
    }

    /// Whether the command was carried out.
    pub fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Whether the same command may well be carried out a little later.
    pub fn is_put_off(self) -> bool {
        matches!(self.base(), Some(TpmRcBase::Retry | TpmRcBase::Yielded | TpmRcBase::Testing))
    }

    /// Whether what the command is about is not there.
    pub fn is_no_such_handle(self) -> bool {
        self.base() == Some(TpmRcBase::Handle)
    }

    /// What the TPM says; the kernel's resource manager says the same in its own name, which are the bits above
    /// (Linux: `TSS2_RESMGR_TPM_RC_LAYER` in drivers/char/tpm/tpm.h).
    fn name(self) -> Option<TpmRc> {
        TpmRc::try_from(self.0 & 0xffff).ok()
    }

    fn base(self) -> Option<TpmRcBase> {
        self.name().map(|name| name.base())
    }

    /// What to do about it; begins with punctuation.
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
