//! Block devices that get a file system: waits for them, inspects them, and formats only blank devices.
//!
//! A disk may hold the only copy of its data. A missing signature does not prove that a disk is blank: raw data, plain
//! dm-crypt and LUKS with a detached header have no signature. So a device counts as blank only if both ends hold
//! nothing but zeros. New disks from a cloud and disks after `blkdiscard` are like that.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::commands::run;
use crate::error::{Error, Result};

/// How many bytes at the start and at the end of a blank device must be zero. File systems, partition tables, RAID,
/// LVM and LUKS store their headers there.
const END: u64 = 1024 * 1024;
/// Timeout for the kernel to list an attached volume.
const APPEARS_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
const BLOCK: &str = "/sys/class/block";

pub(super) fn wait_for(device: &str) -> Result<()> {
    wait(device, APPEARS_WITHIN, Path::new(BLOCK))
}

fn wait(device: &str, timeout: Duration, block: &Path) -> Result<()> {
    let start = Instant::now();
    while !Path::new(device).exists() {
        if start.elapsed() >= timeout {
            let there = names(block);
            return Err(refusal(
                device,
                &format!(
                    "the device did not appear within {} s; this machine has {}; attach the volume, or \
                     correct the device in volumeMounts",
                    timeout.as_secs(),
                    if there.is_empty() { "none".to_owned() } else { there.join(", ") }
                ),
            ));
        }
        sleep(PAUSE.min(timeout));
    }
    Ok(())
}

/// The disks and partitions of this machine, without loop devices and RAM disks.
pub fn names(block: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(block).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_disk = |name: &String| !name.starts_with("loop") && !name.starts_with("ram");
    let mut names: Vec<String> = names.filter(is_disk).map(|name| format!("/dev/{name}")).collect();
    names.sort();
    names
}

/// Makes a file system on a blank device. A device that already has this file system is left unchanged.
pub(super) fn format_if_blank(device: &str, filesystem: &str, options: &[String]) -> Result<()> {
    let present = run(&["wipefs", "--no-act", "--noheadings", "--output", "TYPE", "--", device])?;
    match present.split_whitespace().next() {
        Some(present) if present == filesystem => Ok(()),
        Some(present) => Err(refusal(
            device,
            &format!(
                "it holds {present}, not {filesystem}; only a blank device is formatted. If nobody needs the \
                 data on the device, wipe the device"
            ),
        )),
        None if !is_zero(device)? => Err(refusal(
            device,
            &format!(
                "it holds unknown data, not {filesystem}; only a blank device is formatted. If nobody needs \
                 the data on the device, overwrite its first and last MiB with zeros (`blkdiscard --zeroout`)"
            ),
        )),
        None => {
            let mkfs = format!("mkfs.{filesystem}");
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            run(&[&[mkfs.as_str()], options.as_slice(), &[device]].concat()).map(drop)
        }
    }
}

fn refusal(device: &str, why: &str) -> Error {
    Error::Path { doing: "mount", path: device.to_owned(), reason: why.to_owned() }
}

/// Whether both ends of a device hold nothing but zeros.
fn is_zero(device: &str) -> Result<bool> {
    let failed = |error| Error::path("read", device, error);
    let mut file = File::open(device).map_err(failed)?;
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    for start in [0, size.saturating_sub(END)] {
        let mut end = Vec::new();
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        (&mut file).take(END).read_to_end(&mut end).map_err(failed)?;
        if end.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 16 * 1024 * 1024;

    /// A file that stands in for a device. It has `bytes` at the offset `at`.
    fn device(at: usize, bytes: &[u8]) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        let mut content = vec![0; SIZE];
        content[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, content).unwrap();
        let path = path.display().to_string();
        (folder, path)
    }

    fn ext4(device: &str) -> Result<()> {
        format_if_blank(device, "ext4", &["-q".to_owned()])
    }

    #[test]
    fn a_blank_device_is_formatted_once() {
        let (_folder, path) = device(0, &[]);
        ext4(&path).unwrap();
        let formatted = std::fs::read(&path).unwrap();
        assert_eq!(formatted[0x438..0x43a], [0x53, 0xef], "ext4's magic number");
        ext4(&path).unwrap();
        assert!(std::fs::read(&path).unwrap() == formatted, "a formatted device stays unchanged");

        let error = format_if_blank(&path, "xfs", &[]).unwrap_err().to_string();
        assert!(error.contains("it holds ext4, not xfs"), "{error}");
        assert!(std::fs::read(&path).unwrap() == formatted);
    }

    #[test]
    fn only_a_blank_device_is_formatted() {
        // The protective MBR of a GPT: one partition of type 0xee.
        let mut gpt = [0; 512];
        gpt[446..462].copy_from_slice(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0x7f, 0, 0]);
        gpt[510..].copy_from_slice(&[0x55, 0xaa]);
        let luks = b"LUKS\xba\xbe\0\x01aes\0";
        let cases: [(&str, usize, &[u8]); 6] = [
            ("a partition table", 0, &gpt),
            ("LUKS", 0, luks),
            ("another file system", 0, b"XFSB\0\0\x10\0"),
            ("raw data", 0, b"data"),
            ("raw data later", 1024 * 1024 - 1, b"x"),
            ("a header at the end", SIZE - 512, b"x"),
        ];
        for (what, at, bytes) in cases {
            let (_folder, path) = device(at, bytes);
            let before = std::fs::read(&path).unwrap();
            let error = ext4(&path).unwrap_err().to_string();
            assert!(error.contains("only a blank device is formatted"), "{what}: {error}");
            assert!(std::fs::read(&path).unwrap() == before, "{what} was touched");
        }
    }

    #[test]
    fn the_error_of_a_missing_device_names_the_present_ones() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvme1n1", "nvme0n1", "loop0"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let error = wait("/no/such/device", Duration::ZERO, folder.path()).unwrap_err().to_string();
        assert!(error.contains("this machine has /dev/nvme0n1, /dev/nvme1n1;"), "{error}");

        let late = folder.path().join("late");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&late.display().to_string(), APPEARS_WITHIN, folder.path()));
            std::fs::write(&late, "").unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}
