//! Users, groups, and the owners of files.

use kops_agent_plan::resource::{Group, User};

use super::commands::{ask, refused};
use crate::error::{Error, Result};
use crate::root::Root;

pub trait Users: Send + Sync {
    /// The user with this name. `None` also if the group of the same name is missing, because user and group are
    /// created together.
    fn user(&self, name: &str) -> Result<Option<User>>;

    fn group(&self, name: &str) -> Result<Option<Group>>;

    fn user_of_id(&self, uid: u32) -> Result<Option<String>>;

    fn group_of_id(&self, gid: u32) -> Result<Option<String>>;

    /// Creates or changes a user. A missing group of the same name is created, too.
    fn set_user(&self, user: &User) -> Result<()>;

    fn set_group(&self, group: &Group) -> Result<()>;

    /// The user ID of `owner` and the group ID of `group`, for the file at `path`. `None` if this implementation does
    /// not change owners. Then the file belongs to the user that writes it, and the agent only records the wanted
    /// owner.
    fn owner_ids(&self, path: &str, owner: &str, group: &str) -> Result<Option<(u32, u32)>>;

    /// The names of the owner and group with these IDs, for the file at `path`. An ID without a name is returned as a
    /// number.
    fn owner_names(&self, path: &str, uid: u32, gid: u32) -> Result<(String, String)>;
}

/// The users in `/etc/passwd` and `/etc/group` of this machine.
pub(crate) struct Machine(pub(crate) Root);

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// Maximum number of retries while another program has locked the user files.
const LOCKED_AGAIN: u32 = 7;

impl Machine {
    fn records(&self, path: &str) -> Result<Vec<Vec<String>>> {
        let bytes = self.0.read(path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect())
    }

    fn in_passwd(&self, name: &str) -> Result<Option<User>> {
        let records = self.records(PASSWD)?;
        Ok(records.iter().find(|record| record[0] == name).and_then(|record| parse_user(record)))
    }

    fn name_of(&self, path: &str, id: u32) -> Result<Option<String>> {
        if id == 0 {
            return Ok(Some("root".into()));
        }
        let id = id.to_string();
        let records = self.records(path)?;
        Ok(records
            .into_iter()
            .find(|record| record.get(2) == Some(&id))
            .map(|mut record| record.swap_remove(0)))
    }

    fn id(&self, path: &str, kind: &str, name: &str) -> Result<u32> {
        // The kernel defines root as ID 0. A different ID of root in `/etc/passwd` or `/etc/group` does not count.
        if name == "root" {
            return Ok(0);
        }
        let records = self.records(path)?;
        let id =
            records.iter().find(|record| record[0] == name).and_then(|record| record.get(2)?.parse().ok());
        // An owner without a name is given as a number.
        let id = id.or_else(|| name.parse().ok());
        id.ok_or_else(|| Error::Path {
            doing: "find",
            path: format!("the {kind} {name}"),
            reason: format!("it is not in {path}; create it, or install its package"),
        })
    }
}

impl Users for Machine {
    fn user(&self, name: &str) -> Result<Option<User>> {
        Ok(match self.group(name)? {
            Some(_) => self.in_passwd(name)?,
            None => None,
        })
    }

    fn group(&self, name: &str) -> Result<Option<Group>> {
        let records = self.records(GROUP)?;
        Ok(records
            .iter()
            .find(|record| record[0] == name)
            .and_then(|record| Some(Group { name: name.into(), gid: record.get(2)?.parse().ok()? })))
    }

    fn user_of_id(&self, uid: u32) -> Result<Option<String>> {
        self.name_of(PASSWD, uid)
    }

    fn group_of_id(&self, gid: u32) -> Result<Option<String>> {
        self.name_of(GROUP, gid)
    }

    fn set_user(&self, user: &User) -> Result<()> {
        let uid = user.uid.to_string();
        let mut command = vec![];
        if self.in_passwd(&user.name)?.is_some() {
            command.push("usermod");
            // useradd creates the user before the group. After an interrupted useradd, the group may be missing.
            if self.group(&user.name)?.is_none() {
                let is_free = self.group_of_id(user.uid)?.is_none();
                let gid: &[&str] = if is_free { &["--gid", &uid] } else { &["--system"] };
                change(&[&["groupadd"], gid, &["--", &user.name]].concat())?;
                command.extend(["--gid", &user.name]);
            }
        } else {
            command.extend(["useradd", "--no-create-home"]);
            match self.group(&user.name)? {
                Some(_) => command.extend(["--gid", &user.name]),
                None => command.push("--user-group"),
            }
        }
        command.extend(["--uid", &uid]);
        if !user.shell.is_empty() {
            command.extend(["--shell", &user.shell]);
        }
        if !user.home.is_empty() {
            command.extend(["-d", &user.home]);
        }
        command.extend(["--", &user.name]);
        change(&command)
    }

    fn set_group(&self, group: &Group) -> Result<()> {
        let program = if self.group(&group.name)?.is_some() { "groupmod" } else { "groupadd" };
        change(&[program, "--gid", &group.gid.to_string(), "--", &group.name])
    }

    fn owner_ids(&self, _path: &str, owner: &str, group: &str) -> Result<Option<(u32, u32)>> {
        Ok(Some((self.id(PASSWD, "user", owner)?, self.id(GROUP, "group", group)?)))
    }

    fn owner_names(&self, _path: &str, uid: u32, gid: u32) -> Result<(String, String)> {
        let name = |path: &str, id: u32| -> Result<String> {
            Ok(self.name_of(path, id)?.unwrap_or_else(|| id.to_string()))
        };
        Ok((name(PASSWD, uid)?, name(GROUP, gid)?))
    }
}

/// Changes users or groups with the shadow programs (`useradd`). These programs lock the user files, and replace them
/// by new files. If another program holds the lock, for example the installation of a package, these programs wait for
/// 15 seconds.
fn change(command: &[&str]) -> Result<()> {
    let mut outcome = ask(command)?;
    for _again in 0..LOCKED_AGAIN {
        if !outcome.says("cannot lock") {
            break;
        }
        outcome = ask(command)?;
    }
    if outcome.status.success() { Ok(()) } else { Err(refused(command, &outcome)) }
}

fn parse_user(record: &[String]) -> Option<User> {
    Some(User {
        name: record.first()?.clone(),
        uid: record.get(2)?.parse().ok()?,
        home: record.get(5)?.clone(),
        shell: record.get(6)?.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> (tempfile::TempDir, Machine) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("etc")).unwrap();
        let passwd = "root:x:0:0:root:/root:/bin/bash\netcd:x:10002:10003::/var/etcd:/sbin/nologin\n\nbroken\n\
             lonely:x:10004:10004::/:/sbin/nologin\n";
        std::fs::write(temp.path().join("etc/passwd"), passwd).unwrap();
        std::fs::write(temp.path().join("etc/group"), "root:x:0:\netcd:x:10003:\n").unwrap();
        let root = Root::open(temp.path()).unwrap();
        (temp, Machine(root))
    }

    #[test]
    fn users_and_groups_are_read() {
        let (_temp, machine) = machine();
        let etcd =
            User { name: "etcd".into(), uid: 10002, home: "/var/etcd".into(), shell: "/sbin/nologin".into() };
        assert_eq!(machine.user("etcd").unwrap(), Some(etcd));
        assert_eq!(machine.user("broken").unwrap(), None);
        assert_eq!(machine.user("lonely").unwrap(), None);
        assert_eq!(machine.user("nobody").unwrap(), None);
        assert_eq!(machine.group("etcd").unwrap(), Some(Group { name: "etcd".into(), gid: 10003 }));
    }

    #[test]
    fn owners_are_found_both_ways() {
        let (_temp, machine) = machine();
        assert_eq!(machine.owner_ids("/a", "etcd", "root").unwrap(), Some((10002, 0)));
        assert_eq!(machine.owner_names("/a", 10002, 10003).unwrap(), ("etcd".into(), "etcd".into()));
        assert_eq!(machine.user_of_id(10002).unwrap().as_deref(), Some("etcd"));
        assert_eq!(machine.group_of_id(10002).unwrap(), None);
        assert_eq!(machine.owner_names("/a", 0, 77).unwrap(), ("root".into(), "77".into()));
        let error = machine.owner_ids("/a", "nobody", "root").unwrap_err().to_string();
        assert!(error.contains("the user nobody"), "{error}");
    }
}
