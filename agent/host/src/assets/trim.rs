//! Trims the cache after a successful run. The downloads of the current and the previous state stay, so that a
//! rollback needs no network.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde::{Deserialize, Serialize};

use super::cache::{Cache, hash_in};
use crate::error::{Error, Result};
use crate::root::Entry;

const GENERATIONS: &str = "generations.json";
const PART: &str = ".part";

/// The hashes of the downloads that the current and the previous state want.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Generations {
    current: BTreeSet<String>,
    previous: BTreeSet<String>,
}

/// A file in the cache that is removed only if the cache is larger than its limit.
struct Kept {
    is_current: bool,
    size: u64,
    name: String,
}

impl Cache {
    /// Keeps all downloads with a hash in `wanted`, and the complete downloads of the previous generation. Removes all other downloads. If
    /// the kept downloads have more than `limit` bytes, also removes some of them: first from the previous generation, then from `wanted`,
    /// each time the largest first. Files of other programs stay.
    pub(super) fn trim(&self, wanted: &BTreeSet<&str>, limit: u64) -> Result<()> {
        let generations = self.advance(wanted)?;
        let mut kept = Vec::new();
        for name in self.dir.names()? {
            let Some(hash) = hash_in(&name) else { continue };
            let Some(Entry::File(metadata)) = self.dir.entry(&name)? else { continue };
            let is_current = generations.current.contains(hash);
            if is_current || (generations.previous.contains(hash) && !name.contains(PART)) {
                kept.push(Kept { is_current, size: metadata.size, name });
            } else {
                self.dir.remove(&name)?;
            }
        }
        let mut size: u64 = kept.iter().map(|kept| kept.size).sum();
        kept.sort_by_key(|kept| (kept.is_current, std::cmp::Reverse(kept.size)));
        for Kept { size: freed, name, .. } in kept {
            if size <= limit {
                break;
            }
            self.dir.remove(&name)?;
            size -= freed;
        }
        Ok(())
    }

    /// Writes the wanted hashes to the file `GENERATIONS` if they changed. The former hashes become the previous generation.
    fn advance(&self, wanted: &BTreeSet<&str>) -> Result<Generations> {
        let noted = match self.dir.entry(GENERATIONS)? {
            Some(Entry::File(_)) => self.dir.read(GENERATIONS)?,
            _ => Vec::new(),
        };
        // Unreadable notes count as empty. The only effect is that the downloads of the previous generation are not kept.
        let mut generations: Generations = serde_json::from_slice(&noted).unwrap_or_default();
        if !generations.current.iter().map(String::as_str).eq(wanted.iter().copied()) {
            let current = wanted.iter().map(|hash| (*hash).to_owned()).collect();
            generations.previous = std::mem::replace(&mut generations.current, current);
            let temporary = format!(".{GENERATIONS}");
            self.dir.remove(&temporary)?;
            let written = serde_json::to_vec(&generations)
                .map_err(std::io::Error::from)
                .and_then(|json| {
                    self.dir.create_new(&temporary).map(|file| (file, json)).map_err(std::io::Error::other)
                })
                .and_then(|(mut file, json)| file.write_all(&json));
            written.map_err(|error| Error::path("write", self.dir.shown(GENERATIONS), error))?;
            self.dir.rename(&temporary, GENERATIONS)?;
        }
        Ok(generations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;

    const UNLIMITED: u64 = u64::MAX;

    fn hash(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    struct Scene {
        temp: tempfile::TempDir,
        cache: Cache,
    }

    impl Scene {
        fn with(files: &[(char, &str, usize)]) -> Scene {
            let temp = tempfile::tempdir().unwrap();
            let cache = Cache::open(&Root::open(temp.path()).unwrap(), None).unwrap();
            let scene = Scene { temp, cache };
            for (digit, suffix, size) in files {
                let name = format!("var/cache/nodeup/{}_{suffix}", hash(*digit));
                std::fs::write(scene.temp.path().join(name), vec![0; *size]).unwrap();
            }
            scene
        }

        fn trim(&self, wanted: &[char], limit: u64) {
            let wanted: Vec<String> = wanted.iter().map(|digit| hash(*digit)).collect();
            self.cache.trim(&wanted.iter().map(String::as_str).collect(), limit).unwrap();
        }

        /// The remaining files. Each is shown by the first digit and the end of its name.
        fn left(&self) -> Vec<String> {
            let names = self.cache.dir.names().unwrap().into_iter();
            names.filter_map(|name| Some(format!("{}{}", &hash_in(&name)?[..1], &name[64..]))).collect()
        }
    }

    #[test]
    fn the_current_and_the_previous_generation_stay() {
        let scene = Scene::with(&[
            ('a', "x", 1),
            ('b', "x", 1),
            ('c', "x", 1),
            ('b', "x.part", 1),
            ('c', "x.part", 1),
        ]);
        scene.trim(&['a', 'b'], UNLIMITED);
        assert_eq!(scene.left(), ["a_x", "b_x", "b_x.part"]);
        scene.trim(&['a'], UNLIMITED);
        scene.trim(&['a'], UNLIMITED);
        assert_eq!(scene.left(), ["a_x", "b_x"], "the same downloads make no new generation");
        scene.trim(&['a', 'd'], UNLIMITED);
        assert_eq!(scene.left(), ["a_x"]);
    }

    #[test]
    fn above_the_limit_older_and_larger_files_go_first() {
        let scene = Scene::with(&[('a', "x", 10), ('b', "x", 10), ('c', "x", 30), ('d', "x", 20)]);
        scene.trim(&['a', 'b'], UNLIMITED);
        let scene = Scene::with(&[('a', "x", 10), ('b', "x", 10), ('c', "x", 30), ('d', "x", 20)]);
        scene.trim(&['a', 'b', 'c', 'd'], UNLIMITED);
        scene.trim(&['c', 'd'], 60);
        assert_eq!(scene.left(), ["b_x", "c_x", "d_x"]);
        scene.trim(&['c', 'd'], 25);
        assert_eq!(scene.left(), ["d_x"]);
        scene.trim(&['c', 'd'], 0);
        assert_eq!(scene.left(), [""; 0]);
    }

    #[test]
    fn files_of_other_programs_stay() {
        let scene = Scene::with(&[]);
        let cache = scene.temp.path().join("var/cache/nodeup");
        std::fs::create_dir(cache.join("extracted")).unwrap();
        std::fs::write(cache.join(format!("sha256:{}_kubelet", hash('a'))), "upstream's").unwrap();
        std::fs::write(cache.join(GENERATIONS), "{torn").unwrap();
        scene.trim(&['b'], 0);
        assert!(cache.join("extracted").exists());
        assert!(cache.join(format!("sha256:{}_kubelet", hash('a'))).exists());
    }
}
