//! A real TPM 2.0 in software (swtpm) that behaves like the bare device: it has no resource manager, and room for three keys. Tests
//! can store Google's templates in its memory.
//!
//! Source: swtpm(8); go-tpm-tools' `cmd/attest_test.go` for Google's template.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;
use tpm2_protocol::basic::{TpmHandle, TpmUint16, TpmUint32};
use tpm2_protocol::constant::TPM_MAX_COMMAND_SIZE;
use tpm2_protocol::data::{
    Tpm2bAuth, Tpm2bMaxNvBuffer, Tpm2bNvPublic, Tpm2bPublic, TpmAlgId, TpmCap, TpmRcBase, TpmRh, TpmSt,
    TpmaNv, TpmaObject, TpmaSession, TpmsAuthCommand, TpmsNvPublic, TpmsRsaParms, TpmsSchemeHash, TpmtPublic,
    TpmtRsaScheme, TpmtSymDefObject, TpmuAsymScheme, TpmuCapabilities, TpmuPublicId, TpmuPublicParms,
};
use tpm2_protocol::frame::{
    TpmCreatePrimaryCommand, TpmCreatePrimaryResponse, TpmFlushContextCommand, TpmFlushContextResponse,
    TpmFrame, TpmGetCapabilityCommand, TpmGetCapabilityResponse, TpmHierarchyChangeAuthCommand,
    TpmHierarchyChangeAuthResponse, TpmNvDefineSpaceCommand, TpmNvDefineSpaceResponse, TpmNvWriteCommand,
    TpmNvWriteResponse, TpmResponse, TpmUnmarshalBody, tpm_marshal_command,
};
use tpm2_protocol::{TpmMarshal as _, TpmWriter};

/// The index in the TPM's memory at which Google stores the template of the RSA key.
const KEY_TEMPLATE: u32 = 0x01c1_0001;
const START_WITHIN: Duration = Duration::from_secs(30);
/// The size of the header (tag, size and code) in every answer of a TPM, in bytes.
const HEADER: usize = 10;
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The DER of a public 2048-bit RSA key without the modulus: the bytes before the modulus, and the bytes after the modulus, which
/// contain the usual exponent.
const SPKI: ([u8; 33], [u8; 5]) = (
    [
        0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
        0x05, 0x00, 0x03, 0x82, 0x01, 0x0f, 0x00, 0x30, 0x82, 0x01, 0x0a, 0x02, 0x82, 0x01, 0x01, 0x00,
    ],
    [0x02, 0x03, 0x01, 0x00, 0x01],
);

/// A template from which a TPM makes a 2048-bit RSA key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// Google's template. A key of this template signs only data that the TPM itself has hashed.
    Restricted,
    /// The template of a key that signs any data.
    Unrestricted,
    /// The template of a key that signs only with RSAPSS.
    Pss,
    Storage,
}

impl Template {
    fn public(self) -> TpmtPublic {
        let scheme = match self {
            Template::Restricted | Template::Unrestricted => TpmAlgId::Rsassa,
            Template::Pss => TpmAlgId::Rsapss,
            Template::Storage => TpmAlgId::Null,
        };
        let details = match self {
            Template::Storage => TpmuAsymScheme::Null,
            _ => TpmuAsymScheme::Hash(TpmsSchemeHash { hash_alg: TpmAlgId::Sha256 }),
        };
        let usual = [
            TpmaObject::FIXED_TPM,
            TpmaObject::FIXED_PARENT,
            TpmaObject::SENSITIVE_DATA_ORIGIN,
            TpmaObject::USER_WITH_AUTH,
        ];
        let own: &[TpmaObject] = match self {
            Template::Restricted => &[TpmaObject::SIGN_ENCRYPT, TpmaObject::RESTRICTED],
            Template::Unrestricted | Template::Pss => &[TpmaObject::SIGN_ENCRYPT],
            Template::Storage => &[TpmaObject::DECRYPT],
        };
        let attributes = usual.iter().chain(own).fold(0, |bits, attribute| bits | attribute.bits());
        TpmtPublic {
            object_type: TpmAlgId::Rsa,
            name_alg: TpmAlgId::Sha256,
            object_attributes: TpmaObject::from_bits_truncate(attributes),
            auth_policy: Default::default(),
            parameters: TpmuPublicParms::Rsa(TpmsRsaParms {
                symmetric: TpmtSymDefObject { algorithm: TpmAlgId::Null, ..Default::default() },
                scheme: TpmtRsaScheme { scheme, details },
                key_bits: TpmUint16::new(2048),
                exponent: TpmUint32::new(0),
            }),
            unique: TpmuPublicId::Rsa(Default::default()),
        }
    }

    fn bytes(self) -> Result<Vec<u8>> {
        let mut buffer = [0; 1024];
        let mut writer = TpmWriter::new(&mut buffer);
        self.public().marshal(&mut writer).map_err(|error| anyhow::anyhow!("a template: {error}"))?;
        Ok(writer.as_bytes().to_vec())
    }
}

/// A running TPM with its own seed. Dropping it stops the TPM.
#[derive(Debug)]
pub struct Swtpm {
    process: Child,
    folder: TempDir,
}

impl Swtpm {
    /// Starts a TPM that stores this template. If swtpm is not installed, prints that the test is skipped, and returns `None`.
    pub fn start_with(template: Template) -> Result<Option<Swtpm>> {
        let swtpm = Swtpm::start()?;
        if let Some(swtpm) = &swtpm {
            swtpm.put_template(template)?;
        }
        Ok(swtpm)
    }

    /// Like `start_with`, but the TPM stores no template.
    #[allow(clippy::print_stderr)]
    pub fn start() -> Result<Option<Swtpm>> {
        let folder = tempfile::tempdir().context("a folder for a TPM")?;
        let at = |name: &str| format!("type=unixio,path={}", folder.path().join(name).display());
        let process = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
            .args(["--tpmstate", &format!("dir={}", folder.path().display())])
            .args(["--server", &at("device"), "--ctrl", &at("control")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("skipped: there is no swtpm");
                return Ok(None);
            }
            Err(error) => return Err(error).context("starting swtpm"),
        };
        let mut swtpm = Swtpm { process, folder };
        let until = Instant::now() + START_WITHIN;
        while let Err(error) = swtpm.connect() {
            if let Some(status) = swtpm.process.try_wait()? {
                bail!("swtpm ended: {status}");
            }
            ensure!(Instant::now() < until, "swtpm does not listen: {error}");
            sleep(Duration::from_millis(10));
        }
        Ok(Some(swtpm))
    }

    /// Connects to the TPM's device. A write is a command, and a read returns the answer. As with `/dev/tpm0`, only one client at a
    /// time can use the device, and the next client waits.
    pub fn connect(&self) -> std::io::Result<UnixStream> {
        let device = UnixStream::connect(self.folder.path().join("device"))?;
        device.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(device)
    }

    /// Stores this template at the index of Google's template for RSA keys.
    fn put_template(&self, template: Template) -> Result<()> {
        self.put_template_bytes(&template.bytes()?)
    }

    /// Stores these bytes at the index of Google's template for RSA keys.
    pub fn put_template_bytes(&self, bytes: &[u8]) -> Result<()> {
        let attributes = [
            TpmaNv::PPWRITE,
            TpmaNv::WRITEDEFINE,
            TpmaNv::PPREAD,
            TpmaNv::OWNERREAD,
            TpmaNv::AUTHREAD,
            TpmaNv::NO_DA,
            TpmaNv::PLATFORMCREATE,
        ];
        let attributes = attributes.iter().fold(0, |bits, attribute| bits | attribute.bits());
        let (platform, index) = (handle(TpmRh::Platform), TpmHandle::new(KEY_TEMPLATE));
        let public = TpmsNvPublic {
            nv_index: index,
            name_alg: TpmAlgId::Sha256,
            attributes: TpmaNv::from_bits_truncate(attributes),
            auth_policy: Default::default(),
            data_size: TpmUint16::new(bytes.len().try_into()?),
        };
        let define = TpmNvDefineSpaceCommand {
            handles: [platform],
            auth: Default::default(),
            public_info: Tpm2bNvPublic { inner: public },
        };
        let _: TpmNvDefineSpaceResponse = self.run(&define, true)?;
        let data =
            Tpm2bMaxNvBuffer::try_from(bytes).map_err(|error| anyhow::anyhow!("a template: {error}"))?;
        let write = TpmNvWriteCommand { handles: [platform, index], data, offset: TpmUint16::new(0) };
        let _: TpmNvWriteResponse = self.run(&write, true)?;
        Ok(())
    }

    /// The public key that this TPM creates from a template, in Google's PEM format.
    pub fn public_key(&self, template: Template) -> Result<String> {
        let create = TpmCreatePrimaryCommand {
            handles: [handle(TpmRh::Endorsement)],
            in_sensitive: Default::default(),
            in_public: Tpm2bPublic { inner: template.public() },
            outside_info: Default::default(),
            creation_pcr: Default::default(),
        };
        let created: TpmCreatePrimaryResponse = self.run(&create, true)?;
        let flush = TpmFlushContextCommand { handles: [], flush_handle: created.handles[0] };
        let _: TpmFlushContextResponse = self.run(&flush, false)?;
        let TpmuPublicId::Rsa(modulus) = created.out_public.inner.unique else { bail!("no RSA key") };
        ensure!(modulus.len() == 256, "the modulus has {} bytes", modulus.len());
        let (before, after) = SPKI;
        let key = STANDARD.encode([before.as_slice(), &modulus, &after].concat());
        let lines: Vec<&str> =
            key.as_bytes().chunks(64).map(std::str::from_utf8).collect::<Result<_, _>>()?;
        Ok(format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n")))
    }

    pub fn loaded_keys(&self) -> Result<usize> {
        let command = TpmGetCapabilityCommand {
            handles: [],
            cap: TpmCap::Handles,
            property: TpmUint32::new(0x8000_0000),
            property_count: TpmUint32::new(64),
        };
        let answer: TpmGetCapabilityResponse = self.run(&command, false)?;
        match answer.capability_data.data {
            TpmuCapabilities::Handles(handles) => Ok(handles.len()),
            other => bail!("handles were asked for, and {other:?} came"),
        }
    }

    pub fn set_endorsement_password(&self, password: &str) -> Result<()> {
        let new_auth = Tpm2bAuth::try_from(password.as_bytes())
            .map_err(|error| anyhow::anyhow!("a password: {error}"))?;
        let command = TpmHierarchyChangeAuthCommand { handles: [handle(TpmRh::Endorsement)], new_auth };
        let _: TpmHierarchyChangeAuthResponse = self.run(&command, true)?;
        Ok(())
    }

    /// Runs a command. If the command needs authorization, uses the empty password.
    fn run<C: TpmFrame, R: TpmUnmarshalBody>(&self, command: &C, needs_proof: bool) -> Result<R> {
        let proof = TpmsAuthCommand {
            session_handle: handle(TpmRh::Pw),
            nonce: Default::default(),
            session_attributes: TpmaSession::CONTINUE_SESSION,
            hmac: Default::default(),
        };
        let (tag, sessions) =
            if needs_proof { (TpmSt::Sessions, vec![proof]) } else { (TpmSt::NoSessions, Vec::new()) };
        let mut buffer = [0; TPM_MAX_COMMAND_SIZE];
        let mut writer = TpmWriter::new(&mut buffer);
        let name = command.cc();
        tpm_marshal_command(command, tag, &sessions, &mut writer)
            .map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        let until = Instant::now() + ANSWER_WITHIN;
        loop {
            let answer = self.exchange(writer.as_bytes()).with_context(|| name.to_string())?;
            let answer = TpmResponse::cast(&answer).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            match answer.rc().map(|code| code.base()) {
                // The TPM tests itself before the first command that needs the test. Until then, it answers with a
                // request to retry.
                Ok(TpmRcBase::Retry | TpmRcBase::Testing) if Instant::now() < until => {}
                Ok(TpmRcBase::Success) => {
                    return answer.unmarshal().map_err(|error| anyhow::anyhow!("{name}: {error}"));
                }
                other => bail!("{name}: {other:?}"),
            }
        }
    }

    fn exchange(&self, command: &[u8]) -> Result<Vec<u8>> {
        let mut device = self.connect()?;
        device.write_all(command)?;
        let mut answer = vec![0; TPM_MAX_COMMAND_SIZE];
        device.read_exact(&mut answer[..HEADER])?;
        let length = u32::from_be_bytes([answer[2], answer[3], answer[4], answer[5]]) as usize;
        ensure!((HEADER..=answer.len()).contains(&length), "an answer of {length} bytes");
        device.read_exact(&mut answer[HEADER..length])?;
        answer.truncate(length);
        Ok(answer)
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        // `kill` fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn handle(handle: TpmRh) -> TpmHandle {
    TpmHandle::new(handle as u32)
}
