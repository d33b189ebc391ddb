//! A client for a TPM 2.0 that signs: it creates a key from a template in the TPM's memory, signs, and removes the key.
//!
//! The TPM runs one command after the other, and answers each command. The TPM 2.0 Library Specification, part 3 ("Commands"), defines the
//! commands. The crate tpm2-protocol encodes commands and decodes answers. If the TPM postpones a command, the command is retried until a
//! deadline. After the deadline, only the key is removed.

mod devices;
mod problem;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

use kops_agent_net::retry::{Backoff, Pauses};
use tpm2_protocol::basic::{TpmHandle, TpmUint16};
use tpm2_protocol::constant::{MAX_BUFFER_SIZE, TPM_MAX_COMMAND_SIZE};
use tpm2_protocol::data::{
    Tpm2bDigest, Tpm2bMaxBuffer, Tpm2bPublic, TpmAlgId, TpmCc, TpmRh, TpmSt, TpmaObject, TpmaSession,
    TpmsAuthCommand, TpmsSchemeHash, TpmtPublic, TpmtSigScheme, TpmtTkHashcheck, TpmuSigScheme,
    TpmuSignature,
};
use tpm2_protocol::frame::{
    TpmCreatePrimaryCommand, TpmFlushContextCommand, TpmFrame, TpmHashCommand, TpmHashResponse,
    TpmNvReadCommand, TpmNvReadPublicCommand, TpmNvReadPublicResponse, TpmNvReadResponse, TpmResponse,
    TpmSignCommand, TpmSignResponse, TpmUnmarshalBody, tpm_marshal_command,
};
use tpm2_protocol::{TpmUnmarshal as _, TpmWriter};

pub use devices::{KernelTpm, OpenTpm, TpmDevice};
pub use problem::{ResponseCode, TpmFailure, TpmProblem};

/// How many bytes one read of the TPM's memory gets. The TPM of a PC must support at least 512 bytes.
const BLOCK: u16 = 512;
/// The size of an answer's header in bytes. The header contains a tag, the answer's size and a response code.
const HEADER: usize = 10;
/// The pauses before a postponed command is retried.
const PAUSES: Pauses = Pauses { first: Duration::from_millis(5), longest: Duration::from_millis(500) };
/// The minimum time for the removal of a key, even if the deadline is earlier.
const TIME_TO_FORGET: Duration = Duration::from_secs(2);

/// A key in a TPM, until `forget` removes it.
#[derive(Clone, Copy)]
struct Key(TpmHandle);

pub struct Tpm {
    device: Box<dyn TpmDevice>,
    timeout: Duration,
    deadline: Instant,
}

impl Tpm {
    /// Opens a TPM. All commands must end within `timeout` from now.
    pub fn open(opener: &dyn OpenTpm, timeout: Duration) -> Result<Tpm, TpmProblem> {
        let deadline = Instant::now() + timeout;
        Ok(Tpm { device: opener.open()?, timeout, deadline })
    }

    /// Signs data with RSASSA-PKCS1-v1_5 and SHA-256. The key is in the endorsement hierarchy. The template at `template_index` of the
    /// TPM's memory defines the key. The TPM hashes the data itself, because a restricted key, such as an attestation key, cannot sign a
    /// digest that was computed outside the TPM.
    pub fn sign(&mut self, template_index: u32, data: &[u8]) -> Result<Vec<u8>, TpmProblem> {
        let template = self.template(template_index)?;
        let (digest, ticket) = self.hash(data)?;
        let key = self.create_primary(template)?;
        let signed = self.sign_digest(key, digest, ticket);
        // The TPM has room for about three keys. Without a resource manager, a key stays in the TPM after the program ends, so the key
        // is removed.
        if let Err(problem) = self.forget(key) {
            log::warn!("cannot remove a key from the TPM: {problem}");
        }
        signed
    }

    fn template(&mut self, index: u32) -> Result<TpmtPublic, TpmProblem> {
        let bytes = self.read_nv(index)?;
        let (template, _) = TpmtPublic::unmarshal(&bytes)
            .map_err(|error| TpmProblem::Template { index, problem: error.to_string() })?;
        let is_signing = template.object_attributes.contains(TpmaObject::SIGN_ENCRYPT);
        if template.object_type != TpmAlgId::Rsa || !is_signing {
            let problem = "it is not the template of an RSA signing key".into();
            return Err(TpmProblem::Template { index, problem });
        }
        Ok(template)
    }

    /// Reads the content at an index of the TPM's memory, with the owner's authorization, which has no password.
    fn read_nv(&mut self, index: u32) -> Result<Vec<u8>, TpmProblem> {
        let handle = TpmHandle::new(index);
        let public: TpmNvReadPublicResponse = self
            .ask(&TpmNvReadPublicCommand { handles: [handle] }, &[])
            .map_err(|problem| match problem {
                TpmProblem::Refused { code, .. } if code.is_no_such_handle() => {
                    TpmProblem::NoTemplate { index }
                }
                other => other,
            })?;
        let size = public.nv_public.inner.data_size.value();
        let mut bytes = Vec::new();
        let mut offset = 0;
        while offset < size {
            let length = BLOCK.min(size - offset);
            let command = TpmNvReadCommand {
                handles: [hierarchy(TpmRh::Owner), handle],
                size: TpmUint16::new(length),
                offset: TpmUint16::new(offset),
            };
            let block: TpmNvReadResponse = self.ask(&command, &[no_password()])?;
            if block.data.len() != usize::from(length) {
                return Err(unreadable(TpmCc::NvRead, "it does not have the requested length"));
            }
            bytes.extend_from_slice(&block.data);
            offset += length;
        }
        Ok(bytes)
    }

    /// The digest of data, and the TPM's ticket, which proves that the TPM computed the digest.
    fn hash(&mut self, data: &[u8]) -> Result<(Tpm2bDigest, TpmtTkHashcheck), TpmProblem> {
        let too_long = |_| TpmProblem::TooLong { length: data.len(), most: MAX_BUFFER_SIZE };
        let command = TpmHashCommand {
            handles: [],
            data: Tpm2bMaxBuffer::try_from(data).map_err(too_long)?,
            hash_alg: TpmAlgId::Sha256,
            hierarchy: TpmRh::Endorsement,
        };
        let hashed: TpmHashResponse = self.ask(&command, &[])?;
        Ok((hashed.out_hash, hashed.validation))
    }

    fn create_primary(&mut self, template: TpmtPublic) -> Result<Key, TpmProblem> {
        let command = TpmCreatePrimaryCommand {
            handles: [hierarchy(TpmRh::Endorsement)],
            in_sensitive: Default::default(),
            in_public: Tpm2bPublic { inner: template },
            outside_info: Default::default(),
            creation_pcr: Default::default(),
        };
        // Even if the rest of the answer is wrong, the key exists and must be removed. Therefore only the key's handle is decoded.
        let answer = self.run(&command, &[no_password()], self.deadline)?;
        match TpmHandle::unmarshal(&answer[HEADER..]) {
            Ok((handle, _)) => Ok(Key(handle)),
            Err(_) => Err(unreadable(TpmCc::CreatePrimary, "it does not name the key")),
        }
    }

    fn sign_digest(
        &mut self,
        key: Key,
        digest: Tpm2bDigest,
        validation: TpmtTkHashcheck,
    ) -> Result<Vec<u8>, TpmProblem> {
        let details = TpmuSigScheme::Hash(TpmsSchemeHash { hash_alg: TpmAlgId::Sha256 });
        let in_scheme = TpmtSigScheme { scheme: TpmAlgId::Rsassa, details };
        let command = TpmSignCommand { handles: [key.0], digest, in_scheme, validation };
        let signed: TpmSignResponse = self.ask(&command, &[no_password()])?;
        match signed.signature.signature {
            TpmuSignature::Rsassa(signature) if signature.hash == TpmAlgId::Sha256 => {
                Ok(signature.sig.to_vec())
            }
            _ => Err(unreadable(TpmCc::Sign, "its signature is not of the requested kind")),
        }
    }

    fn forget(&mut self, key: Key) -> Result<(), TpmProblem> {
        let until = self.deadline.max(Instant::now() + TIME_TO_FORGET);
        self.run(&TpmFlushContextCommand { handles: [], flush_handle: key.0 }, &[], until).map(drop)
    }

    /// Runs a command before the deadline, and decodes its answer.
    fn ask<C: TpmFrame, R: TpmUnmarshalBody>(
        &mut self,
        command: &C,
        sessions: &[TpmsAuthCommand],
    ) -> Result<R, TpmProblem> {
        let answer = self.run(command, sessions, self.deadline)?;
        TpmResponse::cast(&answer)
            .and_then(TpmResponse::unmarshal)
            .map_err(|error| unreadable(command.cc(), error.to_string()))
    }

    /// Runs a command, and returns its answer if it succeeds. If the TPM postpones the command, the command is retried until `until`.
    fn run<C: TpmFrame>(
        &mut self,
        command: &C,
        sessions: &[TpmsAuthCommand],
        until: Instant,
    ) -> Result<Vec<u8>, TpmProblem> {
        let name = command.cc();
        let mut buffer = [0; TPM_MAX_COMMAND_SIZE];
        let mut writer = TpmWriter::new(&mut buffer);
        let tag = if sessions.is_empty() { TpmSt::NoSessions } else { TpmSt::Sessions };
        tpm_marshal_command(command, tag, sessions, &mut writer)
            .map_err(|error| TpmProblem::Unwritable { command: name, problem: error.to_string() })?;
        let remaining = until.saturating_duration_since(Instant::now());
        let mut backoff = Backoff::new(remaining, PAUSES.growing());
        while Instant::now() < until {
            let answer = self
                .exchange(writer.as_bytes())
                .map_err(|cause| TpmProblem::Exchange { command: name, cause })?;
            let code =
                ResponseCode::from_answer(&answer).ok_or_else(|| unreadable(name, "it is incomplete"))?;
            if code.is_success() {
                return Ok(answer);
            }
            if !code.is_put_off() {
                return Err(TpmProblem::Refused { command: name, code });
            }
            let Some(pause) = backoff.next_pause() else { break };
            log::debug!("{name}: {code}; trying again");
            thread::sleep(pause);
        }
        Err(TpmProblem::TooSlow { command: name, seconds: self.timeout.as_secs() })
    }

    /// Sends a command, and reads its answer. The header of the answer has the size of the answer.
    fn exchange(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        // The kernel accepts a command only in one write, and keeps the answer until it is read.
        self.device.write_all(command)?;
        let mut answer = vec![0; TPM_MAX_COMMAND_SIZE];
        let mut length = 0;
        loop {
            let read = match self.device.read(&mut answer[length..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            length += read;
            let says = answer.get(2..6).filter(|_| length >= HEADER).and_then(|size| size.try_into().ok());
            let size = says.map(|size| u32::from_be_bytes(size) as usize);
            match size {
                Some(size) if size == length && size >= HEADER => {
                    answer.truncate(length);
                    return Ok(answer);
                }
                Some(size) if size <= length || size > TPM_MAX_COMMAND_SIZE => {
                    let problem = format!("its answer announces {size} bytes, but has {length}");
                    return Err(io::Error::new(ErrorKind::InvalidData, problem));
                }
                _ => {}
            }
        }
    }
}

fn hierarchy(hierarchy: TpmRh) -> TpmHandle {
    TpmHandle::new(hierarchy as u32)
}

/// The authorization of a hierarchy that has no password.
fn no_password() -> TpmsAuthCommand {
    TpmsAuthCommand {
        session_handle: hierarchy(TpmRh::Pw),
        nonce: Default::default(),
        session_attributes: TpmaSession::CONTINUE_SESSION,
        hmac: Default::default(),
    }
}

fn unreadable(command: TpmCc, problem: impl Into<String>) -> TpmProblem {
    TpmProblem::Unreadable { command, problem: problem.into() }
}
