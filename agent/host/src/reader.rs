//! Reads files of a machine, for example for a report. The disk may be untrusted, so no link leads out of the root, and
//! only regular files up to a size limit are read.

use std::io::Read as _;
use std::path::Path;

use crate::error::{Error, Result};
use crate::root::Root;

/// Reads the files below a directory that stands for `/`.
#[derive(Clone)]
pub struct Reader {
    pub(crate) root: Root,
}

impl Reader {
    pub fn open(root: &Path) -> Result<Reader> {
        if !root.is_dir() {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::path("open the directory", root.display().to_string(), missing));
        }
        Ok(Reader { root: Root::open(root)? })
    }

    /// Reads a whole file; `None` if the file does not exist. Fails if the file is not regular, or is larger than `longest` bytes.
    pub fn read(&self, path: &str, longest: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.root.open_file(path)? else { return Ok(None) };
        let failed = |error| Error::path("read", self.root.shown(path), error);
        let mut bytes = Vec::new();
        file.take(longest + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > longest {
            let reason = format!("the file has more than {longest} bytes");
            return Err(Error::Path { doing: "read", path: self.root.shown(path), reason });
        }
        Ok(Some(bytes))
    }

    /// Reads a whole file like [`Reader::read`], as text. Replaces invalid UTF-8.
    pub fn text(&self, path: &str, longest: u64) -> Result<Option<String>> {
        Ok(self.read(path, longest)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn no_link_leaves_the_root_and_only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("outside"), "of the host").unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/real"), "real").unwrap();
        symlink("/etc/real", root.join("etc/inner")).unwrap();
        symlink(folder.path().join("outside"), root.join("etc/outer")).unwrap();
        symlink("../../outside", root.join("etc/above")).unwrap();
        mkfifo(&root.join("etc/fifo"), Mode::S_IRUSR).unwrap();
        let reader = Reader::open(&root).unwrap();
        let read = |path: &str| reader.text(path, 4);
        assert_eq!(read("/etc/inner").unwrap().as_deref(), Some("real"));
        for path in ["/etc/outer", "/etc/above", "/etc/none", "/none/real", "/etc/real/x"] {
            assert_eq!(read(path).unwrap(), None, "{path}");
        }
        for path in ["/etc/fifo", "/etc"] {
            assert!(read(path).unwrap_err().to_string().contains("no regular file"), "{path}");
        }
        assert!(reader.text("/etc/real", 3).unwrap_err().to_string().contains("more than 3 bytes"));
        assert!(Reader::open(&root.join("none")).is_err() && !root.join("none").exists());
    }
}
