//! A real software TPM, and a TPM that follows a script.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;

use kops_agent_tests::swtpm::{Swtpm, Template};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;

const INDEX: u32 = 0x01c1_0001;
const TIMEOUT: Duration = Duration::from_secs(60);

fn sign(opener: &dyn OpenTpm, data: &[u8]) -> Result<Vec<u8>, TpmProblem> {
    Tpm::open(opener, TIMEOUT).unwrap().sign(INDEX, data)
}

fn is_signed(public_key: &str, data: &[u8], signature: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-verify"]).arg(at("key", public_key.as_bytes()));
    openssl.arg("-signature").arg(at("signature", signature)).arg(at("data", data));
    openssl.output().unwrap().status.success()
}

/// Gives each command the next of these answers. After the last answer, it no longer responds.
#[derive(Clone, Debug, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Vec<u8>>>>,
    commands: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Scripted {
    fn saying(answers: impl IntoIterator<Item = Vec<u8>>) -> Scripted {
        Scripted { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Scripted::default() }
    }
}

impl OpenTpm for Scripted {
    fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem> {
        Ok(Box::new(self.clone()))
    }
}

impl Write for Scripted {
    fn write(&mut self, command: &[u8]) -> io::Result<usize> {
        self.commands.lock().push(command.to_vec());
        Ok(command.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let answer = self.answers.lock().pop_front().unwrap_or_default();
        let length = answer.len().min(buffer.len());
        buffer[..length].copy_from_slice(&answer[..length]);
        Ok(length)
    }
}

/// An answer that consists of a header with this response code.
fn code(code: u32) -> Vec<u8> {
    [[0x80, 0x01, 0, 0, 0, 10].as_slice(), &code.to_be_bytes()].concat()
}

/// Records the answers of the software TPM `swtpm` during one signature.
#[derive(Clone, Debug)]
struct Recorder<'a> {
    swtpm: &'a Swtpm,
    answers: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

struct Recording<D> {
    device: D,
    answers: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

impl OpenTpm for Recorder<'_> {
    fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem> {
        let device = self.swtpm.connect().unwrap();
        Ok(Box::new(Recording { device, answers: self.answers.clone() }))
    }
}

impl<D: Write> Write for Recording<D> {
    fn write(&mut self, command: &[u8]) -> io::Result<usize> {
        self.answers.lock().push_back(Vec::new());
        self.device.write(command)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}

impl<D: Read> Read for Recording<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.device.read(buffer)?;
        self.answers.lock().back_mut().unwrap().extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

#[test]
fn it_signs_with_the_key_of_the_template_and_removes_the_key() {
    for template in [Template::Restricted, Template::Unrestricted] {
        let Some(swtpm) = Swtpm::start_with(template).unwrap() else { return };
        let key = swtpm.public_key(template).unwrap();
        // The TPM has room for only three keys, so each signature must remove its key.
        for number in 0..20 {
            let data = format!("{{\"number\":{number}}}").into_bytes();
            let signature = sign(&swtpm, &data).unwrap();
            assert!(is_signed(&key, &data, &signature), "{template:?} {number}");
            assert!(!is_signed(&key, b"other", &signature));
        }
        assert_eq!(swtpm.loaded_keys().unwrap(), 0);
    }
}

#[test]
fn data_above_the_tpms_limit_is_rejected() {
    let Some(swtpm) = Swtpm::start_with(Template::Restricted).unwrap() else { return };
    let key = swtpm.public_key(Template::Restricted).unwrap();
    let longest = vec![b'{'; 1024];
    assert!(is_signed(&key, &longest, &sign(&swtpm, &longest).unwrap()));
    let error = sign(&swtpm, &[b'{'; 1025]).unwrap_err().to_string();
    assert!(error.contains("1025 bytes") && error.contains("at most 1024"), "{error}");
}

#[test]
fn a_key_that_does_not_sign_is_removed_too() {
    let Some(other_scheme) = Swtpm::start_with(Template::Pss).unwrap() else { return };
    for _ in 0..5 {
        let error = sign(&other_scheme, b"{}").unwrap_err().to_string();
        assert!(error.contains("TPM_CC_Sign") && error.contains("TPM_RC_SCHEME"), "{error}");
        assert!(error.contains("does not sign with RSASSA and SHA-256"), "{error}");
    }
    assert_eq!(other_scheme.loaded_keys().unwrap(), 0);
}

#[test]
fn an_invalid_template_is_an_error() {
    let Some(nothing) = Swtpm::start().unwrap() else { return };
    let error = sign(&nothing, b"{}").unwrap_err();
    assert!(matches!(error, TpmProblem::NoTemplate { index: INDEX }), "{error}");
    assert!(error.to_string().contains("0x01c10001"), "{error}");

    nothing.put_template_bytes(b"no template").unwrap();
    let error = sign(&nothing, b"{}").unwrap_err().to_string();
    assert!(error.contains("gives no signing key"), "{error}");

    let Some(storage) = Swtpm::start_with(Template::Storage).unwrap() else { return };
    let error = sign(&storage, b"{}").unwrap_err().to_string();
    assert!(error.contains("not the template of an RSA signing key"), "{error}");
    assert_eq!(storage.loaded_keys().unwrap(), 0);
}

#[test]
fn a_password_of_the_endorsement_hierarchy_is_reported() {
    let Some(swtpm) = Swtpm::start_with(Template::Restricted).unwrap() else { return };
    swtpm.set_endorsement_password("secret").unwrap();
    let error = sign(&swtpm, b"{}").unwrap_err().to_string();
    assert!(error.contains("TPM_CC_CreatePrimary") && error.contains("TPM_RC_BAD_AUTH"), "{error}");
    assert!(error.contains("requires a password, although it should have none"), "{error}");
}

#[test]
fn a_postponed_command_is_retried() {
    let (retry, yielded, testing, no_such_handle) = (0x922, 0x908, 0x90a, 0x18b);
    let tpm = Scripted::saying([retry, yielded, testing, retry, no_such_handle].map(code));
    let error = sign(&tpm, b"{}").unwrap_err();
    assert!(matches!(error, TpmProblem::NoTemplate { .. }), "{error}");
    let commands = tpm.commands.lock();
    let read_public = [0x80, 0x01, 0, 0, 0, 14, 0, 0, 0x01, 0x69, 0x01, 0xc1, 0, 0x01];
    assert_eq!(*commands, [read_public; 5]);
}

#[test]
fn a_busy_tpm_times_out() {
    let tpm = Scripted::saying(std::iter::repeat_n(code(0x922), 1000));
    let error = Tpm::open(&tpm, Duration::from_millis(100)).unwrap().sign(INDEX, b"{}").unwrap_err();
    assert!(matches!(error, TpmProblem::TooSlow { .. }), "{error}");
    assert!(error.to_string().contains("the TPM is busy"), "{error}");
    // The pauses grow, so there are few commands.
    let commands = tpm.commands.lock().len();
    assert!(commands < 20, "{commands}");
}

#[test]
fn response_codes_are_reported_by_name() {
    for (number, expected) in [
        (0x921, "TPM_RC_LOCKOUT (0x921); it received too many wrong passwords"),
        (0x902, "TPM_RC_OBJECT_MEMORY (0x902); it has no room for another key"),
        (0x085, "TPM_RC_HIERARCHY (0x85); its endorsement hierarchy is disabled"),
        (0x98e, "TPM_RC_AUTH_FAIL"),
        (0x149, "TPM_RC_NV_AUTHORIZATION"),
        (0x14a, "this index of its memory is empty"),
        (0x101, "TPM_RC_FAILURE (0x101); its self-test failed"),
        // The code of Linux's TPM resource manager for a command that the TPM does not support.
        (0x000b_0143, "TPM_RC_COMMAND_CODE (0xb0143)"),
        (0x5555, "response code 0x5555"),
    ] {
        let error = sign(&Scripted::saying([code(number)]), b"{}").unwrap_err().to_string();
        assert!(error.contains("the TPM rejects TPM_CC_NV_ReadPublic: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn truncated_answers_are_errors() {
    for answer in [
        Vec::new(),
        vec![0x80],
        code(0)[..9].to_vec(),
        [0x80, 0x01, 0, 0, 0, 9, 0, 0, 0, 0].to_vec(),
        [0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0].to_vec(),
        [code(0), vec![0]].concat(),
    ] {
        let error = sign(&Scripted::saying([answer.clone()]), b"{}").unwrap_err();
        assert!(matches!(error, TpmProblem::Exchange { .. }), "{answer:02x?}: {error}");
    }
    let error = sign(&Scripted::saying([code(0)]), b"{}").unwrap_err();
    assert!(matches!(error, TpmProblem::Unreadable { .. }), "{error}");
}

#[test]
fn damaged_answers_never_panic_and_the_key_is_removed() {
    let Some(swtpm) = Swtpm::start_with(Template::Restricted).unwrap() else { return };
    let recorder = Recorder { swtpm: &swtpm, answers: Arc::default() };
    Tpm::open(&recorder, TIMEOUT).unwrap().sign(INDEX, b"{}").unwrap();
    let mut answers: Vec<Vec<u8>> = recorder.answers.lock().drain(..).collect();
    // The TPM postpones its first command to test itself. The answers to postponed commands are dropped.
    answers.retain(|answer| ResponseCode::from_answer(answer).unwrap().is_success());
    // There is one answer for each of these: the size of the template, the template, the digest, the key, the signature, and the removal of
    // the key.
    assert_eq!(answers.len(), 6, "{answers:02x?}");
    for (number, answer) in answers.iter().enumerate() {
        for length in HEADER..answer.len() {
            let size = u32::try_from(length).unwrap().to_be_bytes();
            let cut = [&answer[..2], size.as_slice(), &answer[6..length]].concat();
            let mut script = answers.clone();
            script[number] = cut;
            let tpm = Scripted::saying(script);
            let signed = sign(&tpm, b"{}");
            // Answers 1 and 4 may lack their last five bytes. These bytes are the authorization, which has no meaning without a password.
            // Only the handle of answer 3 is read. Answer 5 confirms the removal of the key, and has no content.
            let fails = match number {
                0 | 2 => true,
                1 | 4 => length + 5 != answer.len(),
                3 => length < HEADER + 4,
                _ => false,
            };
            assert_eq!(signed.is_err(), fails, "answer {number} of {length} bytes");
            let commands = tpm.commands.lock();
            let is_loaded = !fails || number > 3;
            let forgotten = commands.last().is_some_and(|last| last[6..10] == [0, 0, 0x01, 0x65]);
            assert_eq!(forgotten, is_loaded, "answer {number} of {length} bytes");
        }
    }
}

proptest! {
    /// Every answer of a TPM leads to an error or a signature.
    #[test]
    fn arbitrary_answers_never_panic(
        answers in prop::collection::vec((any::<bool>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..600)), 0..8)
    ) {
        let answers = answers.into_iter().map(|(is_framed, has_sessions, body)| match is_framed {
            true => {
                let size = u32::try_from(HEADER + body.len()).unwrap().to_be_bytes();
                [&[0x80, 1 + u8::from(has_sessions)], size.as_slice(), &[0; 4], &body].concat()
            }
            false => body,
        });
        let tpm = Scripted::saying(answers);
        let _ = Tpm::open(&tpm, Duration::from_millis(20)).unwrap().sign(INDEX, b"{}");
    }
}

#[test]
fn a_missing_device_differs_from_an_unreadable_device() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("tpmrm0"), folder.path().join("tpm0"));
    let opener = KernelTpm::at(vec![first.clone(), second.clone()]);
    let error = opener.open().err().unwrap().to_string();
    let expected = format!("there is neither {} nor {}", first.display(), second.display());
    assert!(error.contains(&expected), "{error}");
    std::fs::create_dir(&second).unwrap();
    let error = opener.open().err().unwrap().to_string();
    assert!(error.contains(&format!("{} cannot be opened: ", second.display())), "{error}");
}
