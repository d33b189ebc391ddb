//! Where a TPM is.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::TpmProblem;

/// The TPM behind the kernel's resource manager, which others may use at the same time, and which forgets the keys of a
/// program that ends (Linux 4.12); and the bare one, which only one program may have open.
const DEVICES: [&str; 2] = ["/dev/tpmrm0", "/dev/tpm0"];

/// What takes a command when it is written to and gives the answer when it is read.
pub trait TpmDevice: Read + Write {}

impl<D: Read + Write> TpmDevice for D {}

/// Knows where a TPM is.
pub trait OpenTpm: fmt::Debug + Send + Sync {
    /// Opens it.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem>;
}

/// The TPM that the kernel knows.
#[derive(Debug)]
pub struct KernelTpm {
    /// Where to look for it, in this order.
    devices: Vec<PathBuf>,
}

impl Default for KernelTpm {
    fn default() -> KernelTpm {
        KernelTpm { devices: DEVICES.map(PathBuf::from).into() }
    }
}

impl KernelTpm {
    /// One of these, for tests of what happens where there is none.
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
                // A device file may be there without a device.
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

fn is_without_device(error: &std::io::Error) -> bool {
    error
        .raw_os_error()
        .map(Errno::from_raw)
        .is_some_and(|errno| matches!(errno, Errno::ENXIO | Errno::ENODEV))
}

fn advice(cause: &std::io::Error, path: &Path) -> &'static str {
    match cause.kind() {
        ErrorKind::PermissionDenied => {
            "; run kops-agent as root, and where it is kept in a container, let it have the device"
        }
        ErrorKind::ResourceBusy if path.ends_with("tpm0") => {
            "; only one program may have it open: end the other one (fuser /dev/tpm0 names it), or use a kernel that has \
             /dev/tpmrm0"
        }
        _ => "",
    }
}
