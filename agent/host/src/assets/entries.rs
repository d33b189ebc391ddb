//! Reads files from an unverified tar archive. The archive is unpacked while it arrives, and its hash is known only at
//! the end. So reading uses little memory and always ends, whatever the archive contains.

use std::io::{self, Read};
use std::mem;
use std::ops::ControlFlow;

use tar::{Entry, EntryType, PaxExtensions};

use super::error::in_units;
use super::unpack::UnpackError;

/// The maximum size of a tar entry that describes the next entry, in bytes. A path has at most 4 KiB, and other descriptions are smaller.
const LARGEST_EXTENSION: u64 = 64 * 1024;
/// The maximum unpacked size of an archive, in bytes. It equals the maximum size of a download.
const LARGEST_ARCHIVE: u64 = 8 << 30;

/// Passes each file to `take`, with its path and size, until `take` breaks.
///
/// Some entries only describe the next entry, for example its long path. This function reads them itself and limits their size, because
/// the `tar` crate would read them into memory without a limit.
pub(super) fn for_each_file(
    archive: impl Read,
    mut take: impl FnMut(&str, u64, &mut dyn Read) -> Result<ControlFlow<()>, UnpackError>,
) -> Result<(), UnpackError> {
    let mut archive = tar::Archive::new(Bounded { archive, left: LARGEST_ARCHIVE });
    let mut description = Description::default();
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        if describes_the_next(entry.header().entry_type()) {
            description.add(&mut entry)?;
            continue;
        }
        let description = mem::take(&mut description);
        description.agrees_with(&entry)?;
        if entry.header().entry_type().is_file() {
            let path = description.path.unwrap_or_else(|| entry.path_bytes().into_owned());
            if take(&String::from_utf8_lossy(&path), entry.size(), &mut entry)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Whether an entry describes the next entry: GNU's long names and link targets, and POSIX' extended headers (pax(1), "pax Interchange
/// Format").
fn describes_the_next(entry: EntryType) -> bool {
    entry.is_gnu_longname()
        || entry.is_gnu_longlink()
        || entry.is_pax_local_extensions()
        || entry.is_pax_global_extensions()
}

/// The path and size of a file, as stated by the tar entries directly before the file's own entry. A field is `None` if none of these
/// entries states it.
#[derive(Default)]
struct Description {
    path: Option<Vec<u8>>,
    size: Option<Vec<u8>>,
}

impl Description {
    fn add(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), UnpackError> {
        if entry.size() > LARGEST_EXTENSION {
            let (size, most) = (in_units(entry.size()), in_units(LARGEST_EXTENSION));
            return Err(unreadable(format!(
                "the name of a file in the archive is {size} long; the limit is {most}"
            )));
        }
        let kind = entry.header().entry_type();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        if kind.is_gnu_longname() {
            // A GNU long name usually ends with a zero byte.
            content.pop_if(|last| *last == 0);
            self.path = Some(content);
        } else if kind.is_pax_local_extensions() {
            for record in PaxExtensions::new(&content).flatten() {
                match record.key_bytes() {
                    // Like the `tar` crate, prefer a GNU long name.
                    b"path" if self.path.is_none() => self.path = Some(record.value_bytes().to_vec()),
                    b"size" => self.size = Some(record.value_bytes().to_vec()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Rejects an entry that does not end where its header says. Otherwise the data after its end could be read as the next entry.
    fn agrees_with(&self, entry: &Entry<'_, impl Read>) -> Result<(), UnpackError> {
        let size = entry.size().to_string();
        if self.size.as_ref().is_some_and(|other| other != size.as_bytes()) {
            return Err(unreadable("one of its files has two sizes".to_owned()));
        }
        let header = entry.header();
        if header.entry_type().is_gnu_sparse() && header.as_gnu().is_some_and(|gnu| gnu.is_extended()) {
            return Err(unreadable(
                "one of its files has holes (GNU tar's --sparse), which is not supported".to_owned(),
            ));
        }
        Ok(())
    }
}

fn unreadable(reason: String) -> UnpackError {
    UnpackError::Unreadable(reason)
}

/// A reader that fails after a maximum number of bytes, because a few kilobytes may unpack to any size.
struct Bounded<R> {
    archive: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.archive.read(buffer)?;
        self.left = self.left.checked_sub(size as u64).ok_or_else(|| {
            io::Error::other(format!("the archive unpacks to more than {}", in_units(LARGEST_ARCHIVE)))
        })?;
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use super::*;

    const EXTENSIONS: [u8; 4] = [b'L', b'K', b'x', b'g'];

    fn header(kind: u8, size: u64, path: &str) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::new(kind));
        header.set_path(path).unwrap();
        header.set_size(size);
        header.set_cksum();
        header
    }

    fn entry(kind: u8, path: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = header(kind, content.len() as u64, path).as_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn record(key: &str, value: &str) -> String {
        let rest = format!(" {key}={value}\n");
        let size = (1..).find(|size: &usize| size.to_string().len() + rest.len() == *size).unwrap();
        format!("{size}{rest}")
    }

    /// The paths and contents of all files, or the reason why the archive cannot be read.
    fn files(archive: impl Read) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut files = Vec::new();
        let read = for_each_file(archive, |path, size, content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            assert_eq!(bytes.len() as u64, size);
            files.push((path.to_owned(), bytes));
            Ok(ControlFlow::Continue(()))
        });
        match read {
            Ok(()) => Ok(files),
            Err(UnpackError::Unreadable(reason)) => Err(reason),
            Err(_) => Err("another error".to_owned()),
        }
    }

    #[test]
    fn long_names_of_all_kinds_are_read() {
        let long = format!("bin/{}", "n".repeat(300));
        let pax = record("mtime", "1.5") + &record("path", &long) + &record("size", "4");
        let gnu = format!("{long}\0");
        for before in [
            entry(b'L', "././@LongLink", gnu.as_bytes()),
            entry(b'x', "PaxHeaders/x", pax.as_bytes()),
            [entry(b'K', "././@LongLink", b"target\0"), entry(b'L', "././@LongLink", gnu.as_bytes())]
                .concat(),
            [
                entry(b'g', "pax_global_header", record("comment", "abc").as_bytes()),
                entry(b'x', "PaxHeaders/x", pax.as_bytes()),
            ]
            .concat(),
        ] {
            let archive = [before, entry(b'0', "short", b"long"), entry(b'0', "next", b"one")].concat();
            let expected = [(long.clone(), b"long".to_vec()), ("next".to_owned(), b"one".to_vec())];
            assert_eq!(files(archive.as_slice()).unwrap(), expected);
        }
    }

    #[test]
    fn archives_of_gnu_and_posix_archivers_are_read() {
        let long = "d/".repeat(80) + "file";
        let mut built = tar::Builder::new(Vec::new());
        built.append_pax_extensions([("comment", b"of the next".as_slice())]).unwrap();
        built.append_data(&mut header(b'0', 3, "x"), &long, b"abc".as_slice()).unwrap();
        let archive = built.into_inner().unwrap();
        assert_eq!(files(archive.as_slice()).unwrap(), [(long, b"abc".to_vec())]);
    }

    #[test]
    fn the_description_of_a_file_has_a_maximum_size() {
        for kind in EXTENSIONS {
            let size = 1536 << 20;
            let read = Cell::new(0_u64);
            let endless = io::repeat(b'a').take(size);
            let header = header(kind, size, "x");
            let bomb = header.as_bytes().chain(Counted(endless, &read));
            let reason = files(bomb).unwrap_err();
            assert!(reason.contains("is 1.5 GiB long") && reason.contains("64.0 KiB"), "{reason}");
            assert_eq!(read.get(), 0, "of {}", char::from(kind));

            // The descriptions have the maximum size, or one byte more.
            let largest = usize::try_from(LARGEST_EXTENSION).unwrap();
            let archive = |size| [entry(kind, "x", &vec![b'a'; size]), entry(b'0', "f", b"")].concat();
            assert_eq!(files(archive(largest).as_slice()).unwrap().len(), 1);
            files(archive(largest + 1).as_slice()).unwrap_err();
        }
    }

    #[test]
    fn archives_that_two_readers_read_differently_are_refused() {
        let hidden = entry(b'0', "hidden", b"");
        let sized = entry(b'x', "x", record("size", "0").as_bytes());
        let reason = files([sized, entry(b'0', "f", &hidden)].concat().as_slice()).unwrap_err();
        assert!(reason.contains("two sizes"), "{reason}");

        let mut sparse = header(b'S', 0, "sparse");
        sparse.as_gnu_mut().unwrap().set_is_extended(true);
        sparse.set_cksum();
        let reason = files([sparse.as_bytes().to_vec(), hidden].concat().as_slice()).unwrap_err();
        assert!(reason.contains("has holes"), "{reason}");
    }

    #[test]
    fn no_more_is_unpacked_than_the_limit() {
        let bounded = |left| Bounded { archive: io::repeat(0).take(1000), left }.read_to_end(&mut Vec::new());
        assert_eq!(bounded(1000).unwrap(), 1000);
        let error = bounded(999).unwrap_err().to_string();
        assert_eq!(error, "the archive unpacks to more than 8.0 GiB");
    }

    struct Counted<'a, R>(R, &'a Cell<u64>);

    impl<R: Read> Read for Counted<'_, R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.0.read(buffer)?;
            self.1.set(self.1.get() + size as u64);
            Ok(size)
        }
    }
}
