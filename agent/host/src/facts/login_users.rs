//! The users who can log in to this machine.

use kops_agent_spec::facts::LoginUser;

/// Users that have the UID of a person and a login shell (`passwd(5)`, `group(5)`, `login.defs(5)`).
pub(super) fn parse_login_users(passwd: &str, groups: &str) -> Vec<LoginUser> {
    let group_name = |gid: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == gid).then(|| name.to_owned())
        })
    };
    passwd
        .lines()
        .filter_map(|line| {
            let [name, _, uid, gid, _, home, shell] = line.split(':').collect::<Vec<_>>()[..] else {
                return None;
            };
            let is_person = uid.parse::<u32>().is_ok_and(|uid| (500..65534).contains(&uid));
            let can_log_in = !shell.ends_with("nologin") && !shell.ends_with("false");
            (is_person && can_log_in).then(|| LoginUser {
                name: name.to_owned(),
                group: group_name(gid).unwrap_or_else(|| name.to_owned()),
                home: home.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_with_a_shell_are_login_users() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nadmin:x:1000:1001:Debian:/home/admin:/bin/bash\n\
                      svc:x:1002:1002::/srv:/usr/sbin/nologin\nbroken line\n";
        let user = LoginUser { name: "admin".into(), group: "staff".into(), home: "/home/admin".into() };
        assert_eq!(parse_login_users(passwd, "root:x:0:\nstaff:x:1001:\n"), [user]);
    }
}
