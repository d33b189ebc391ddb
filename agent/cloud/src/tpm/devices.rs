//! Finds and opens a TPM.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::TpmProblem;

/// The device files to try, in this order. Several programs can use the first one, which belongs to the kernel's resource manager. The
/// resource manager removes a program's keys when the program ends (Linux 4.12). Only one program can open the second one, the bare TPM.
const DEVICES: [&str; 2] = ["/dev/tpmrm0", "/dev/tpm0"];

/// A TPM device: a write sends a command, and a read gets the answer.
pub trait TpmDevice: Read + Write {}

impl<D: Read + Write> TpmDevice for D {}

/// Finds and opens a TPM.
pub trait OpenTpm: fmt::Debug + Send + Sync {
    /// Opens the TPM. Fails if this machine has no TPM.
    fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem>;
}

#[derive(Debug)]
pub struct KernelTpm {
    /// The device files to try, in this order.
    devices: Vec<PathBuf>,
}

impl Default for KernelTpm {
    fn default() -> KernelTpm {
        KernelTpm { devices: DEVICES.map(PathBuf::from).into() }
    }
}

impl KernelTpm {
    #[cfg(any(test, feature = "testing"))]
    pub fn at(devices: Vec<PathBuf>) -> KernelTpm {
        KernelTpm { devices }
    }
}

impl OpenTpm for KernelTpm {
    fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem> {
        for path in &self.devices {
            match OpenOptions::new().read(true).write(true).open(path) {
                Ok(device) => return Ok(Box::new(device)),
                // A device file may exist although there is no device.
                Err(error) if error.kind() == ErrorKind::NotFound || is_without_device(&error) => {}
                Err(cause) => {
                    return Err(TpmProblem::Open { path: path.clone(), advice: advice(&cause, path), cause });
                }
            }
        }
        let devices: Vec<String> = self.devices.iter().map(|path| path.display().to_string()).collect();
        Err(TpmProblem::Absent { devices: devices.join(" nor ") })
    }
}

/// A software TPM in place of the kernel's TPM, for tests.
#[cfg(any(test, feature = "testing"))]
impl OpenTpm for kops_agent_tests::swtpm::Swtpm {
    fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem> {
        let problem = |cause| TpmProblem::Open { path: "swtpm".into(), cause, advice: "" };
        Ok(Box::new(self.connect().map_err(problem)?))
    }
}

fn is_without_device(error: &std::io::Error) -> bool {
    error
        .raw_os_error()
        .map(Errno::from_raw)
        .is_some_and(|errno| matches!(errno, Errno::ENXIO | Errno::ENODEV))
}

fn advice(cause: &std::io::Error, path: &Path) -> &'static str {
    match cause.kind() {
        ErrorKind::PermissionDenied => {
            "; run kops-agent as root; in a container, give it access to the device"
        }
        ErrorKind::ResourceBusy if path.ends_with("tpm0") => {
            "; only one program can open it at a time: stop the other program (`fuser /dev/tpm0` shows it), or use a \
             kernel that has /dev/tpmrm0"
        }
        _ => "",
    }
}
