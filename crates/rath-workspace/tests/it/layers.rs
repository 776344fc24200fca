//! Layered workspaces, compared with real overlay mounts.
//!
//! A mount needs a user namespace. Without one, these tests print that they are skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use rath_core::Store;
use rath_core::files::Version;
use rath_store::Embedded;
use rath_workspace::{Options, OverlayDirs, Workspace};
use tempfile::TempDir;

use super::{Files, in_version, on_disk};

/// A store, and a directory for layered workspaces.
pub(crate) struct Layers {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: Options,
}

impl Layers {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let store = Embedded::create(dir.path().join("store")).unwrap();
        Self::with(store, dir)
    }

    pub(crate) fn with(store: Arc<dyn Store>, dir: TempDir) -> Self {
        fs::create_dir(dir.path().join("home")).unwrap();
        Self { dir, store, options: Options::default() }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    /// The version that a plain directory with these files has.
    pub(crate) fn version(&self, files: &[(&str, &str)]) -> Version {
        let plain = TempDir::new_in(self.dir.path()).unwrap();
        for (path, content) in files {
            let path = plain.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        self.version_of(plain.path())
    }

    pub(crate) fn version_of(&self, directory: &Path) -> Version {
        let state = TempDir::new_in(self.dir.path()).unwrap();
        let options = Options { anywhere: true, ..self.options.clone() };
        let (mut workspace, _) = Workspace::open(self.store.clone(), directory, state.path(), &options).unwrap();
        workspace.save().unwrap().version
    }

    pub(crate) fn create_layered(&self, name: &str, version: &Version) -> Workspace {
        Workspace::create_layered(self.store.clone(), &self.home(), &self.state(name), version, &self.options)
            .unwrap()
            .0
    }

    pub(crate) fn open(&self, name: &str) -> Workspace {
        let (workspace, recovered) =
            Workspace::open_layered(self.store.clone(), &self.home(), &self.state(name), &self.options).unwrap();
        assert!(recovered.is_none());
        workspace
    }

    pub(crate) fn in_version(&self, version: &Version) -> Files {
        in_version(&self.store, version)
    }

    /// Runs a shell script in a mount of a workspace.
    pub(crate) fn run(&self, workspace: &Workspace, script: impl AsRef<[u8]>) {
        run_mounted(&workspace.overlay().unwrap(), self.dir.path(), script.as_ref());
    }

    /// The files that a mount of a workspace shows.
    pub(crate) fn view(&self, workspace: &Workspace) -> Files {
        view(&workspace.overlay().unwrap(), self.dir.path())
    }
}

/// Runs a script in a mount. Files that it creates outside of the mount are below `dir`.
pub(crate) fn run_mounted(overlay: &OverlayDirs, dir: &Path, script: &[u8]) {
    let mount = dir.join("mount");
    fs::create_dir_all(&mount).unwrap();
    fs::write(dir.join("script"), script).unwrap();
    let lowers: Vec<_> = overlay.lowers.iter().map(|path| path.to_str().unwrap()).collect();
    let options = format!(
        "userxattr,lowerdir={},upperdir={},workdir={}",
        lowers.join(":"),
        overlay.upper.display(),
        overlay.work.display()
    );
    let inside = r#"mount -t overlay overlay -o "$1" "$2" && cd "$2" && sh "$3""#;
    let done =
        unshare().args(["sh", "-c", inside, "sh", &options]).arg(&mount).arg(dir.join("script")).output().unwrap();
    assert!(done.status.success(), "{options}: {}", String::from_utf8_lossy(&done.stderr));
}

pub(crate) fn view(overlay: &OverlayDirs, dir: &Path) -> Files {
    let copy = dir.join("copy");
    let _ = rath_workspace::remove_tree(&copy);
    run_mounted(overlay, dir, format!("mkdir '{0}' && cp -a . '{0}'", copy.display()).as_bytes());
    let files = on_disk(&copy);
    rath_workspace::remove_tree(&copy).unwrap();
    files
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]);
    command
}

/// Whether overlays can be mounted. Prints that the test is skipped if not.
pub(crate) fn can_mount() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    let can = *CAN.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        for name in ["l", "u", "w", "m"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let inside = "mount -t overlay overlay -o userxattr,lowerdir=l,upperdir=u,workdir=w m";
        let mut command = unshare();
        command.args(["sh", "-c", inside]).current_dir(dir.path()).stderr(Stdio::null());
        let can = command.status().is_ok_and(|status| status.success());
        let _ = rath_workspace::remove_tree(dir.path());
        can
    });
    if !can {
        rath_testkit::Requirement::Mounts.skip("no overlay in a user namespace");
    }
    can
}
