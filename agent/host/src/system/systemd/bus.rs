//! Talks to systemd over the system bus: one connection for a whole run, and no child process per request.
//!
//! Source of all names: org.freedesktop.systemd1(5). Callers block threads that may belong to a tokio runtime. So the
//! connection has its own runtime with its own thread.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use zbus::message::Type;
use zbus::{
    Connection, DynamicType, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant, Variant, fdo,
};

use super::manager::Systemd;
use super::state::{self, PROPERTIES};
use super::unit::{Act, Job, UnitState};
use crate::error::{Error, Result};
use crate::system::clock::Clock;

/// The default address of the system bus. `DBUS_SYSTEM_BUS_ADDRESS` overrides it (D-Bus specification, "Well-known
/// Message Bus Instances"; systemd keeps it below /run).
const SOCKET: &str = "/run/dbus/system_bus_socket";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// systemd's error if the unit already exists.
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const PROPERTIES_OF: &str = "org.freedesktop.DBus.Properties";

/// Timeout for a bus that listens and does not answer. A bus that is just starting takes less time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of one answer. The slowest answer is a reload of all unit files. It does not limit a job: the unit has its
/// own timeouts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);
/// Capacity of the queue of ended jobs. Jobs of all units end up there until the agent reads its own.
const JOBS_IN_BETWEEN: usize = 4096;

/// This machine's systemd, asked over the system bus.
pub struct Bus {
    connection: Connection,
    /// `None` only while the value is dropped.
    runtime: Option<Runtime>,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// systemd answered with this error.
    Refused(Error),
    /// The connection to the bus or to systemd was lost before an answer came.
    Lost {
        has_begun: bool,
        /// The error of the connection.
        why: String,
    },
}

impl Failure {
    fn thread_has_ended() -> Failure {
        Failure::Lost { has_begun: false, why: "its thread has ended".into() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Refused(error) => error,
            Failure::Lost { why, .. } => Error::Path {
                doing: "ask",
                path: "systemd over the system bus".into(),
                reason: format!("{why}; see `journalctl -u dbus.service`"),
            },
        }
    }
}

impl Bus {
    /// Connects to systemd over the system bus.
    ///
    /// # Errors
    /// The bus is missing, or cannot be used. The error says why, in words.
    pub fn connect() -> Result<Bus, String> {
        let address = match std::env::var("DBUS_SYSTEM_BUS_ADDRESS") {
            Ok(address) if !address.is_empty() => address,
            _ if Path::new(SOCKET).exists() => format!("unix:path={SOCKET}"),
            _ => return Err(format!("there is no {SOCKET}")),
        };
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("systemd-bus").enable_all().build();
        let runtime = runtime.map_err(|error| format!("its thread cannot be started: {error}"))?;
        let connecting = connect(address.clone());
        let in_time = async move { tokio::time::timeout(CONNECT_TIMEOUT, connecting).await };
        match wait(&runtime, in_time) {
            Some(Ok(Ok(connection))) => Ok(Bus { connection, runtime: Some(runtime) }),
            failed => {
                runtime.shutdown_background();
                Err(match failed {
                    Some(Ok(Err(error))) => format!("{address} cannot be used: {error}"),
                    _ => format!("{address} does not answer"),
                })
            }
        }
    }

    pub(super) fn states(&self, units: &[&str]) -> Result<Vec<UnitState>, Failure> {
        let units: Vec<String> = units.iter().map(|unit| (*unit).to_owned()).collect();
        self.wait(|connection| async move {
            let asking = units.iter().map(|unit| async {
                let properties = properties(&connection, unit).await?;
                Ok(state::read(|name| properties.get(name).map_or("", String::as_str), &Clock::now()))
            });
            try_join_all(asking).await
        })
    }

    pub(super) fn reload(&self) -> Result<(), Failure> {
        self.wait(|connection| async move {
            let read = ask(&connection, "Reload", &()).await;
            read.map(drop).map_err(|why| why.while_doing("have systemd read", "all unit files"))
        })
    }

    pub(super) fn enable(&self, unit: &str) -> Result<(), Failure> {
        let unit = unit.to_owned();
        self.wait(|connection| async move {
            let arguments = (vec![&unit], false, false);
            // systemctl also handles an init script of the same name. That has no effect if a unit exists.
            let enabled = ask(&connection, "EnableUnitFiles", &arguments).await;
            enabled.map(drop).map_err(|why| why.while_doing("enable", &unit))
        })
    }

    pub(super) fn disable(&self, unit: &str) -> Result<(), Failure> {
        let unit = unit.to_owned();
        self.wait(|connection| async move {
            let arguments = (vec![&unit], false);
            let disabled = ask(&connection, "DisableUnitFiles", &arguments).await;
            disabled.map(drop).map_err(|why| why.while_doing("disable", &unit))
        })
    }

    pub(super) fn start(&self, unit: &str) -> Result<(), Failure> {
        self.job(Act::Start, unit)
    }

    pub(super) fn enqueue_start(&self, unit: &str) -> Result<(), Failure> {
        let unit = unit.to_owned();
        self.wait(|connection| async move {
            match ask(&connection, "StartUnit", &(&unit, "replace")).await {
                Ok(_) => Ok(()),
                Err(why) => Err(why.while_doing("start", &unit)),
            }
        })
    }

    pub(super) fn run_apart(&self, unit: &str, command: &[&str]) -> Result<(), Failure> {
        let unit = unit.to_owned();
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        self.wait(|connection| async move { run_apart(&connection, &unit, &command).await })
    }

    pub(super) fn stop(&self, unit: &str) -> Result<(), Failure> {
        self.job(Act::Stop, unit)
    }

    pub(super) fn restart(&self, unit: &str) -> Result<(), Failure> {
        self.job(Act::Restart, unit)
    }

    /// Requests a job. The connection's own thread waits for its end.
    pub(super) fn begin(
        &self,
        act: Act,
        unit: &str,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let (tell, told) = oneshot::channel();
        let (connection, unit) = (self.connection.clone(), unit.to_owned());
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                // The waiting future may have been dropped.
                let _ = tell.send(job(&connection, act, &unit).await);
            });
        }
        async move { told.await.unwrap_or_else(|_| Err(Failure::thread_has_ended())) }
    }

    pub(super) fn is_starting(&self, unit: &str) -> Result<bool, Failure> {
        let unit = unit.to_owned();
        self.wait(|connection| async move {
            let properties = properties(&connection, &unit).await?;
            Ok(state::is_starting(|name| properties.get(name).map_or("", String::as_str)))
        })
    }

    pub(super) fn kill(&self, unit: &str) -> Result<(), Failure> {
        let unit = unit.to_owned();
        self.wait(|connection| async move {
            match ask(&connection, "KillUnit", &(&unit, "all", nix::libc::SIGKILL)).await {
                // systemd refuses if no process is left. That counts as success.
                Ok(_) | Err(Unanswered::Refused(_)) => Ok(()),
                Err(lost) => Err(lost.while_doing("kill", &unit)),
            }
        })
    }

    fn job(&self, act: Act, unit: &str) -> Result<(), Failure> {
        let unit = unit.to_owned();
        self.wait(move |connection| async move { job(&connection, act, &unit).await })
    }

    /// Runs a future on the connection's own thread and waits for it.
    fn wait<T, F>(&self, act: impl FnOnce(Connection) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let acting = act(self.connection.clone());
        let outcome = self.runtime.as_ref().and_then(|runtime| wait(runtime, acting));
        outcome.unwrap_or_else(|| Err(Failure::thread_has_ended()))
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // This may run inside a runtime, which must not block.
            runtime.shutdown_background();
        }
    }
}

impl Systemd for Bus {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        Ok(Bus::states(self, units)?)
    }

    fn reload(&self) -> Result<()> {
        Ok(Bus::reload(self)?)
    }

    fn enable(&self, unit: &str) -> Result<()> {
        Ok(Bus::enable(self, unit)?)
    }

    fn disable(&self, unit: &str) -> Result<()> {
        Ok(Bus::disable(self, unit)?)
    }

    fn start(&self, unit: &str) -> Result<()> {
        Ok(Bus::start(self, unit)?)
    }

    fn enqueue_start(&self, unit: &str) -> Result<()> {
        Ok(Bus::enqueue_start(self, unit)?)
    }

    fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        Ok(Bus::run_apart(self, unit, command)?)
    }

    fn stop(&self, unit: &str) -> Result<()> {
        Ok(Bus::stop(self, unit)?)
    }

    fn kill(&self, unit: &str) -> Result<()> {
        Ok(Bus::kill(self, unit)?)
    }

    fn restart(&self, unit: &str) -> Result<()> {
        Ok(Bus::restart(self, unit)?)
    }

    fn begin(&self, act: Act, unit: &str) -> Job {
        let job = Bus::begin(self, act, unit);
        Box::pin(async move { Ok(job.await?) })
    }

    fn is_starting(&self, unit: &str) -> Result<bool> {
        Ok(Bus::is_starting(self, unit)?)
    }
}

/// Runs a future on the thread of `runtime` and blocks the caller, which may be in another runtime. `None` if the
/// future panicked.
fn wait<T: Send + 'static>(runtime: &Runtime, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let (done, waiting) = sync_channel(1);
    runtime.spawn(async move {
        // The waiting thread stays until this message comes.
        let _ = done.send(future.await);
    });
    waiting.recv().ok()
}

async fn connect(address: String) -> zbus::Result<Connection> {
    let builder = zbus::connection::Builder::address(address.as_str());
    let connection = builder.method_timeout(ANSWER_TIMEOUT).build().await?;
    // systemd sends job signals only after this call. The call also proves that systemd is on this bus.
    call(&connection, MANAGER_PATH, MANAGER, "Subscribe", &()).await?;
    Ok(connection)
}

async fn call<B: serde::Serialize + DynamicType>(
    connection: &Connection,
    path: &str,
    interface: &str,
    method: &str,
    arguments: &B,
) -> zbus::Result<Message> {
    connection.call_method(Some(SYSTEMD), path, Some(interface), method, arguments).await
}

/// Why a request has no answer.
enum Unanswered {
    /// systemd refused, with this message.
    Refused(String),
    /// The connection was lost, for this reason.
    Lost(String),
}

impl Unanswered {
    fn while_doing(self, doing: &'static str, unit: &str) -> Failure {
        match self {
            Unanswered::Refused(reason) => {
                Failure::Refused(Error::Unit { doing, unit: unit.to_owned(), reason })
            }
            Unanswered::Lost(why) => Failure::Lost { has_begun: false, why },
        }
    }
}

impl From<zbus::Error> for Unanswered {
    fn from(error: zbus::Error) -> Unanswered {
        match &error {
            zbus::Error::MethodError(name, said, _) => {
                Unanswered::Refused(said.clone().unwrap_or_else(|| name.to_string()))
            }
            zbus::Error::FDO(standard) => match &**standard {
                fdo::Error::Failed(said)
                | fdo::Error::NoMemory(said)
                | fdo::Error::NotSupported(said)
                | fdo::Error::LimitsExceeded(said)
                | fdo::Error::AccessDenied(said)
                | fdo::Error::InteractiveAuthorizationRequired(said)
                | fdo::Error::InvalidArgs(said)
                | fdo::Error::FileNotFound(said)
                | fdo::Error::FileExists(said) => Unanswered::Refused(said.clone()),
                _ => Unanswered::Lost(error.to_string()),
            },
            _ => Unanswered::Lost(error.to_string()),
        }
    }
}

/// Calls a method of systemd's manager.
async fn ask<B: serde::Serialize + DynamicType>(
    connection: &Connection,
    method: &str,
    arguments: &B,
) -> Result<Message, Unanswered> {
    Ok(call(connection, MANAGER_PATH, MANAGER, method, arguments).await?)
}

/// The relevant properties of a unit, in the format of `systemctl show`.
async fn properties(connection: &Connection, unit: &str) -> Result<BTreeMap<String, String>, Failure> {
    let all = async {
        let path: OwnedObjectPath = ask(connection, "LoadUnit", &(unit,)).await?.body().deserialize()?;
        // The empty interface name returns the properties of all interfaces, as systemctl does it.
        let shown = call(connection, path.as_str(), PROPERTIES_OF, "GetAll", &("",)).await?;
        let shown: BTreeMap<String, OwnedVariant> = shown.body().deserialize()?;
        Ok(shown)
    };
    let shown = all.await.map_err(|why: Unanswered| why.while_doing("look at", unit))?;
    let is_read = |(name, value): (String, OwnedVariant)| {
        let is_read = PROPERTIES.contains(&name.as_str());
        is_read.then(|| (name, as_text(value)))
    };
    Ok(shown.into_iter().filter_map(is_read).collect())
}

fn as_text(value: OwnedVariant) -> String {
    if let Ok(text) = <&str>::try_from(&value) {
        return text.to_owned();
    }
    if let Ok(number) = u64::try_from(&value) {
        return number.to_string();
    }
    if let Ok(is_so) = bool::try_from(&value) {
        return if is_so { "yes" } else { "no" }.to_owned();
    }
    // The only other type among these properties is a list of strings.
    Vec::<String>::try_from(value).unwrap_or_default().join(" ")
}

/// Runs a program as a transient unit, unless that unit already runs.
async fn run_apart(connection: &Connection, unit: &str, command: &[String]) -> Result<(), Failure> {
    let Some(program) = command.first() else { return Ok(()) };
    let properties = [
        ("ExecStart", Variant::from(vec![(program, command, false)])),
        ("CollectMode", Variant::from("inactive-or-failed")),
        // The program's memory may hold a key, so it must not dump core.
        ("LimitCORE", Variant::from(0_u64)),
    ];
    let others: [(&str, Vec<(&str, Variant<'_>)>); 0] = [];
    let arguments = (unit, "fail", &properties[..], &others[..]);
    match call(connection, MANAGER_PATH, MANAGER, "StartTransientUnit", &arguments).await {
        Ok(_) => Ok(()),
        Err(zbus::Error::MethodError(name, ..)) if name == UNIT_EXISTS => Ok(()),
        Err(error) => Err(Unanswered::from(error).while_doing("start", unit)),
    }
}

/// Requests a job and waits for its end.
async fn job(connection: &Connection, act: Act, unit: &str) -> Result<(), Failure> {
    let doing = act.name();
    let method = match act {
        Act::Start => "StartUnit",
        Act::Stop => "StopUnit",
        Act::Restart => "RestartUnit",
    };
    let lost = |has_begun| move |error: zbus::Error| Failure::Lost { has_begun, why: error.to_string() };
    // Listens before the request, because the job may end immediately.
    let mut ends = ends_of_jobs(connection).await.map_err(lost(false))?;
    let job =
        ask(connection, method, &(unit, "replace")).await.map_err(|why| why.while_doing(doing, unit))?;
    let job: OwnedObjectPath = job.body().deserialize().map_err(lost(true))?;
    while let Some(end) = ends.next().await {
        let end = end.map_err(lost(true))?;
        let body = end.body();
        let (_, ended, _, result): (u32, OwnedObjectPath, String, String) =
            body.deserialize().map_err(lost(true))?;
        if ended != job {
            continue;
        }
        return match result.as_str() {
            // A skipped job was not needed, which counts as success.
            "done" | "skipped" => Ok(()),
            _ => Err(Failure::Refused(Error::Unit {
                doing,
                unit: unit.to_owned(),
                reason: why_it_ended(connection, unit, &result).await,
            })),
        };
    }
    Err(Failure::Lost { has_begun: true, why: "the connection has ended".into() })
}

async fn ends_of_jobs(connection: &Connection) -> zbus::Result<MessageStream> {
    let rule = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender(SYSTEMD)
        .path(MANAGER_PATH)
        .interface(MANAGER)
        .member("JobRemoved")
        .build()?;
    MessageStream::for_match_rule(rule, connection, NonZeroUsize::new(JOBS_IN_BETWEEN)).await
}

/// Explains the result of a job (org.freedesktop.systemd1(5), "JobRemoved").
async fn why_it_ended(connection: &Connection, unit: &str, result: &str) -> String {
    let meaning = match result {
        "failed" => {
            // If systemd does not answer any more, the unit's log still has the result.
            let properties = properties(connection, unit).await.unwrap_or_default();
            match properties.get("Result").map(String::as_str) {
                None | Some("" | "success") => "its job has failed".to_owned(),
                Some(result) => format!("it has failed with the result {result}"),
            }
        }
        "timeout" => "its job took longer than it may".to_owned(),
        "dependency" => "a unit that it needs did not start".to_owned(),
        "canceled" | "collected" => "another request to systemd took the place of this one".to_owned(),
        other => format!("its job ended as `{other}`"),
    };
    format!("{meaning}; see `journalctl -u {unit}`")
}
