//! The stage of packages. On a new machine, packages may be fetched and installed during the downloads
//! ([`kops_agent_plan::overlap`] decides when).
//!
//! A package manager is never interrupted: even if the run fails meanwhile, it waits for the package manager to end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use kops_agent_plan::diff::{Action, Plan, Stage, Step};
use kops_agent_plan::resource::{DesiredState, Resource};
use kops_agent_plan::timeline::Work;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::run::{Run, Steps};
use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::prepare::find;
use crate::system::packages::PackageManager;

/// Packages that another thread fetches and, when the run allows it, installs. Dropping this value waits until the thread ends.
pub(super) struct Installing<'a> {
    /// The steps of the plan that install the fetched packages.
    steps: Vec<&'a Step>,
    thread: Option<JoinHandle<Result<()>>>,
    said: UnboundedReceiver<Said>,
    /// The last message that says what the package manager waits for.
    waiting: Option<String>,
}

/// A message of the package manager.
enum Said {
    WaitingFor(String),
    Warned(String),
}

/// Forwards the package manager's messages to the thread of the run, which reports them.
struct Passing(UnboundedSender<Said>);

impl Passing {
    fn pass(&self, said: Said) {
        // If the run has stopped, the receiver is closed, and the message is not needed.
        let _ = self.0.send(said);
    }
}

impl Progress for Passing {
    fn waiting_for(&self, what: &str) {
        self.pass(Said::WaitingFor(what.to_owned()));
    }

    fn warned(&self, what: &str) {
        self.pass(Said::Warned(what.to_owned()));
    }
}

impl<'a> Installing<'a> {
    /// Starts to fetch all packages of a plan. If the caller calls the returned function, the packages are also installed. If the caller
    /// drops the function, they are not installed.
    pub(super) fn begin(
        host: &Host,
        plan: &'a Plan,
        desired: &DesiredState,
    ) -> Result<(Installing<'a>, impl FnOnce() + use<>)> {
        let (mut steps, mut names) = (Vec::new(), Vec::new());
        for step in plan.stage(Stage::Packages).filter(|step| step.action != Action::Remove) {
            if let Resource::Package(package) = find(desired, &step.resource)? {
                steps.push(step);
                names.push(package.name.clone());
            }
        }
        log::info!("fetching packages while this run prepares other changes: {}", names.join(", "));
        let (tell, said) = unbounded_channel();
        let (allow, allowed) = channel();
        let packages = Arc::clone(&host.packages);
        let stopwatch = host.stopwatch.clone();
        let work = move || {
            // When the thread ends, it drops the sender. The run recognizes the end of the thread by the closed channel.
            let passing = Passing(tell);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let step = stopwatch.begin(Work::Packages, "packages are fetched");
            let is_fetched = packages.fetch(&names);
            drop(step);
            if is_fetched {
                log::info!("the packages are fetched");
            }
            if allowed.recv().is_err() {
                log::info!("this run failed, so the packages are not installed");
                return Ok(());
            }
            let _step = stopwatch.begin(Work::Packages, Stage::Packages.name());
            install(&*packages, &names, is_fetched, &passing)
        };
        let thread =
            thread::Builder::new().name("packages".into()).spawn(work).map_err(|error| Error::Path {
                doing: "start",
                path: "a thread for installing packages".into(),
                reason: error.to_string(),
            })?;
        let allow = move || {
            // If the thread has panicked, `ended` raises the panic.
            let _ = allow.send(());
        };
        Ok((Installing { steps, thread: Some(thread), said, waiting: None }, allow))
    }

    /// Waits until the package manager has ended. Reports its messages in the meantime.
    pub(super) async fn ended(&mut self, progress: &dyn Progress) -> Result<()> {
        while let Some(said) = self.said.recv().await {
            match said {
                Said::WaitingFor(what) => {
                    progress.waiting_for(&what);
                    self.waiting = Some(what);
                }
                Said::Warned(what) => progress.warned(&what),
            }
        }
        self.join()
    }

    /// Runs `beside` to its end and waits until the package manager has ended. If both fail, returns the error of
    /// `beside`, and reports the error of the packages as a warning.
    pub(super) async fn beside<T>(
        mut self,
        beside: impl Future<Output = Result<T>>,
        progress: &dyn Progress,
    ) -> Result<T> {
        let mut beside = std::pin::pin!(beside);
        let (installed, done) = tokio::select! {
            installed = self.ended(progress) => (installed, beside.await),
            done = &mut beside => {
                // From here on, the run only waits for the package manager, which may take long.
                if let Err(error) = &done {
                    progress.warned(&format!("{error}; this run waits until the package manager ends"));
                }
                if let Some(step) = self.steps.last() {
                    progress.applying(step);
                }
                // Repeat the message about the wait, because messages about downloads have replaced it.
                if let Some(what) = &self.waiting {
                    progress.waiting_for(what);
                }
                (self.ended(progress).await, done)
            }
        };
        match (done, installed) {
            (Ok(done), Ok(())) => Ok(done),
            (Ok(_), Err(error)) => Err(error),
            (Err(error), Ok(())) => Err(error),
            (Err(error), Err(other)) => {
                progress.warned(&format!("the installation of packages failed, too: {other}"));
                Err(error)
            }
        }
    }

    fn join(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // If the thread has panicked, raise its panic here.
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Installing<'_> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            log::info!("waiting for the package manager to finish");
            // Ignore the result of the package manager, because the next run checks which packages are installed.
            let _ = thread.join();
        }
    }
}

impl Run<'_> {
    /// Adds repositories and installs packages, unless they were already installed during the downloads.
    pub(super) fn packages(&self, steps: &Steps<'_>) -> Result<()> {
        let mut names = Vec::new();
        for (step, resource) in steps {
            self.progress.applying(step);
            match resource {
                Resource::PackageSource(source) => {
                    let key = self.inputs.key(&source.keyring)?;
                    self.host.packages.add_source(source, key, self.progress)?;
                }
                Resource::Package(package) => names.push(package.name.as_str()),
                _ => {}
            }
        }
        if !names.is_empty() && !self.has_packages {
            let _step = self.host.measure(Work::Packages, Stage::Packages.name());
            install(&*self.host.packages, &names, false, self.progress)?;
        }
        self.inputs.refuse_what_still_does_not_start(&*self.host.commands)
    }
}

/// Installs packages and checks that they are installed.
fn install(
    packages: &dyn PackageManager,
    names: &[&str],
    is_fetched: bool,
    progress: &dyn Progress,
) -> Result<()> {
    match is_fetched {
        true => packages.install_fetched(names, progress)?,
        false => packages.install(names, progress)?,
    }
    let installed: BTreeSet<String> = packages.installed(names)?;
    match names.iter().find(|name| !installed.contains(**name)) {
        None => Ok(()),
        Some(name) => Err(Error::Path {
            doing: "install",
            path: format!("the package {name}"),
            reason: "the package manager succeeded, but does not list it as installed".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender};

    use kops_agent_plan::diff::diff;
    use kops_agent_plan::resource::{Package, PackageSource};
    use parking_lot::Mutex;

    use super::*;

    /// A package manager that sends a message, and works until the test lets it end. It may fail.
    struct Slow {
        may_end: Mutex<Receiver<()>>,
        has_ended: AtomicBool,
        fails: bool,
    }

    impl Slow {
        fn new(fails: bool) -> (Arc<Slow>, Sender<()>) {
            let (end, may_end) = channel();
            let (may_end, has_ended) = (Mutex::new(may_end), AtomicBool::new(false));
            (Arc::new(Slow { may_end, has_ended, fails }), end)
        }

        fn has_ended(&self) -> bool {
            self.has_ended.load(Ordering::SeqCst)
        }
    }

    impl PackageManager for Slow {
        fn installed(&self, packages: &[&str]) -> Result<BTreeSet<String>> {
            Ok(packages.iter().map(|name| (*name).to_owned()).collect())
        }
        fn install(&self, _: &[&str], progress: &dyn Progress) -> Result<()> {
            progress.waiting_for("waiting for apt");
            self.may_end.lock().recv().unwrap();
            self.has_ended.store(true, Ordering::SeqCst);
            match self.fails {
                true => Err(failed("apt-get install")),
                false => Ok(()),
            }
        }
        fn source(&self, _: &PackageSource) -> Result<Option<PackageSource>> {
            Ok(None)
        }
        fn add_source(&self, _: &PackageSource, _: &[u8], _: &dyn Progress) -> Result<()> {
            Ok(())
        }
        fn owned(&self, _: &[&str]) -> Result<BTreeSet<String>> {
            Ok(BTreeSet::new())
        }
    }

    fn failed(command: &str) -> Error {
        Error::Command { command: command.into(), outcome: "failed (exit status: 100)".into() }
    }

    /// Records the messages on the thread of the run. Each message about a wait lets the package manager end.
    struct Told {
        lines: Mutex<Vec<String>>,
        end: Sender<()>,
    }

    impl Progress for Told {
        fn waiting_for(&self, what: &str) {
            self.lines.lock().push(what.to_owned());
            // `beside` repeats this message after the other work. By then, the package manager may have ended, so sending may fail.
            let _ = self.end.send(());
        }
        fn warned(&self, what: &str) {
            self.lines.lock().push(what.to_owned());
        }
        fn applying(&self, step: &Step) {
            self.lines.lock().push(format!("applying {}", step.resource));
        }
    }

    struct Scene {
        _root: tempfile::TempDir,
        host: Host,
        desired: DesiredState,
        plan: Plan,
    }

    impl Scene {
        fn new(packages: Arc<Slow>) -> Scene {
            let root = tempfile::tempdir().unwrap();
            let host = Host::scratch(root.path()).unwrap().with_packages(packages);
            let mut desired = DesiredState::default();
            desired.add(Package { name: "chrony".into() });
            let plan = diff(&desired, &Default::default());
            Scene { _root: root, host, desired, plan }
        }

        /// Begins to fetch packages, and allows their installation.
        fn begin(&self) -> Installing<'_> {
            let (installing, allow) = Installing::begin(&self.host, &self.plan, &self.desired).unwrap();
            allow();
            installing
        }
    }

    async fn beside(fails: bool, done: Result<u32>) -> (Result<u32>, Vec<String>, bool) {
        let (slow, end) = Slow::new(fails);
        let scene = Scene::new(slow.clone());
        let told = Told { lines: Mutex::default(), end };
        let outcome = scene.begin().beside(async { done }, &told).await;
        (outcome, told.lines.into_inner(), slow.has_ended())
    }

    #[tokio::test]
    async fn a_run_waits_for_the_package_manager_whatever_fails() {
        // In this test, the package manager ends only after the run has received the message `waiting for apt`.
        let (outcome, told, has_ended) = beside(false, Ok(1)).await;
        assert_eq!((outcome.unwrap(), has_ended), (1, true));
        assert!(told.contains(&"waiting for apt".to_owned()), "{told:?}");

        let (outcome, _, has_ended) = beside(false, Err(failed("download"))).await;
        assert!(outcome.unwrap_err().to_string().contains("download") && has_ended);

        let (outcome, _, has_ended) = beside(true, Ok(1)).await;
        assert!(outcome.unwrap_err().to_string().contains("apt-get install") && has_ended);

        let (outcome, told, _) = beside(true, Err(failed("download"))).await;
        assert!(outcome.unwrap_err().to_string().contains("download"));
        assert!(told.last().unwrap().contains("apt-get install"), "{told:?}");
    }

    #[tokio::test]
    async fn failed_packages_do_not_end_the_work_beside_them() {
        let (slow, end) = Slow::new(true);
        let scene = Scene::new(slow);
        let told = Told { lines: Mutex::default(), end };
        let mut polls = 0;
        let done = std::future::poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls < 100 { std::task::Poll::Pending } else { std::task::Poll::Ready(Ok(())) }
        });
        scene.begin().beside(done, &told).await.unwrap_err();
        assert_eq!(polls, 100);
    }

    #[tokio::test]
    async fn a_failure_before_packages_are_allowed_prevents_their_installation() {
        let (slow, end) = Slow::new(false);
        let scene = Scene::new(slow.clone());
        let told = Told { lines: Mutex::default(), end };
        let (installing, allow) = Installing::begin(&scene.host, &scene.plan, &scene.desired).unwrap();
        let failing = async move {
            let _allow = allow;
            Err::<(), _>(failed("download"))
        };
        let error = installing.beside(failing, &told).await.unwrap_err().to_string();
        assert!(error.contains("download") && !slow.has_ended(), "{error}");
    }

    #[test]
    fn a_dropped_run_waits_for_the_package_manager() {
        let (slow, end) = Slow::new(false);
        let scene = Scene::new(slow.clone());
        let installing = scene.begin();
        let (dropping, dropped) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                dropped.recv().unwrap();
                end.send(()).unwrap();
            });
            dropping.send(()).unwrap();
            drop(installing);
            assert!(slow.has_ended());
        });
    }
}
