//! The host side of the suite: planted secrets, listeners, a process, and files that attempts try to change.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::terminal;

/// A text that is in each secret.
pub(crate) const MARK: &str = "rath-planted-secret";

const SECRETS: &[&str] = &[
    ".ssh/id_rsa",
    ".aws/credentials",
    ".netrc",
    ".cargo/credentials.toml",
    ".config/gh/hosts.yml",
    ".docker/config.json",
];
const HOOK: &str = "#!/bin/sh\nexit 0\n";
const CONFIG: &str = "[core]\n\tbare = false\n";

/// The planted files and resources, which must exist during the suite.
pub(crate) struct Outside {
    base: PathBuf,
    facts: Vec<(&'static str, String)>,
    outsider: Child,
    shared: Vec<Shared>,
    _datagram: UnixDatagram,
}

/// System resources that must be removed explicitly.
enum Shared {
    Memory(i32),
    Queue(String),
    File(PathBuf),
}

impl Outside {
    pub(crate) fn create(base: &Path) -> Self {
        let outside = base.join("outside");
        for path in SECRETS.iter().map(|name| base.join("home").join(name)) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, MARK).unwrap();
        }
        fs::write(outside.join("secret"), MARK).unwrap();
        fs::write(outside.join("program"), HOOK).unwrap();
        fs::set_permissions(outside.join("program"), Permissions::from_mode(0o755)).unwrap();
        let secret = File::open(outside.join("secret")).unwrap();
        // Commands inherit this descriptor unless the sandbox closes it.
        unsafe { libc::dup(secret.as_raw_fd()) };
        let mut outsider = Command::new("/bin/sh");
        outsider.args(["-c", "while :; do sleep 1; done", "rath-outsider"]).current_dir(&outside).stdin(secret);
        let outsider = outsider.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

        let number = std::process::id();
        let name = format!("rath-escape-{number}");
        terminal::open_controlling_terminal();
        let datagram = UnixDatagram::bind(outside.join("datagram")).unwrap();
        let space = fs::metadata("/proc/self/ns/pid").unwrap().ino();
        let shared_file = Path::new("/dev/shm").join(&name);
        let shared_tmp = Path::new("/tmp").join(&name);
        for path in [&shared_file, &shared_tmp] {
            fs::write(path, MARK).unwrap();
        }
        let shared = vec![
            share_memory(number),
            share_queue(&name),
            Shared::File(shared_file.clone()),
            Shared::File(shared_tmp.clone()),
        ];
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let below = |name: &str| text(&base.join(name));
        let mut facts = vec![
            ("home", below("home")),
            ("secret", below("outside/secret")),
            ("victim", below("outside/victim")),
            ("outside", below("outside")),
            ("other", below("other")),
            ("state", below("state")),
            ("store", "vault".to_owned()),
            ("sibling", "sibling".to_owned()),
            ("pid", outsider.id().to_string()),
            ("pid_namespace", space.to_string()),
            ("port", greet_tcp("0.0.0.0:0").unwrap()),
            ("udp", echo_udp()),
            ("abstract", name.clone()),
            ("socket", greet_at(outside.join("socket"))),
            ("agent", greet_at(outside.join("agent"))),
            ("bus", greet_at(outside.join("bus"))),
            ("datagram", below("outside/datagram")),
            ("shared_key", number.to_string()),
            ("shared_file", text(&shared_file)),
            ("shared_tmp", text(&shared_tmp)),
            ("queue", name.clone()),
        ];
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        greet(UnixListener::bind_addr(&abstract_name).unwrap());
        facts.extend(greet_tcp("[::1]:0").map(|port| ("port_six", port)));
        facts.extend(own_address().map(|address| ("addresses", address)));
        facts.extend(sockets_of_the_machine());
        for name in ["passwd", "hosts", "ld.so.cache", "resolv.conf", "profile"] {
            let file = fs::metadata(Path::new("/etc").join(name));
            facts.extend(file.map(|file| (name, format!("{}:{}", file.dev(), file.ino()))));
        }
        if base.join("workspace/set-user-id").exists() {
            facts.push(("set_user_id", "./set-user-id".to_owned()));
        }
        let outside = Self { base: base.to_owned(), facts, outsider, shared, _datagram: datagram };
        outside.restore();
        outside
    }

    /// The facts for the attempts.
    pub(crate) fn facts(&self) -> impl Iterator<Item = String> {
        self.facts.iter().map(|(name, value)| format!("{name}={value}"))
    }

    /// Processes of the suite, the only ones that attempts may access without a sandbox.
    pub(crate) fn own_processes(&self) -> String {
        format!("look_at={},{}", std::process::id(), self.outsider.id())
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.base.join("workspace")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    /// Files that no attempt may change, with their content.
    fn protected_files(&self) -> Vec<(PathBuf, &'static str)> {
        let all = [
            ("outside/secret", MARK),
            ("outside/victim", "untouched"),
            ("sibling", "untouched"),
            ("home/.bashrc", "untouched"),
            ("other/notes", MARK),
            ("workspace/vault/records", MARK),
            ("workspace/.git/config", CONFIG),
            ("workspace/.git/hooks/pre-commit", HOOK),
            ("workspace/.git/hooks/sleeping", HOOK),
            ("workspace/.rath/settings.toml", "untouched"),
        ];
        all.into_iter().map(|(path, content)| (self.base.join(path), content)).collect()
    }

    /// Files that the attempts created outside of the workspace and in protected directories.
    fn unexpected_files(&self) -> Vec<PathBuf> {
        let mut known: Vec<PathBuf> = self.protected_files().into_iter().map(|(path, _)| path).collect();
        let names = ["program", "socket", "agent", "bus", "datagram"].map(|name| format!("outside/{name}"));
        let top = ["suite", "escape", "home", "tmp", "outside", "other", "state", "workspace"].map(str::to_owned);
        known.extend(names.into_iter().chain(top).map(|name| self.base.join(name)));
        let directories = ["outside", "workspace/vault", "workspace/.git/hooks", "workspace/.rath", "other", ""];
        let entries = directories.iter().filter_map(|name| fs::read_dir(self.base.join(name)).ok());
        let paths = entries.flat_map(|entries| entries.flatten().map(|entry| entry.path()));
        paths.filter(|path| !known.contains(path)).collect()
    }

    /// The first difference from the planted state; `None` if nothing changed.
    pub(crate) fn first_change(&mut self) -> Option<String> {
        for (path, content) in self.protected_files() {
            let name = path.strip_prefix(&self.base).unwrap().display();
            match (fs::read(&path), fs::metadata(&path)) {
                (Ok(found), _) if found != content.as_bytes() => return Some(format!("{name} was changed")),
                (Ok(_), Ok(file)) if file.mode() & 0o777 != 0o644 => return Some(format!("{name} has another mode")),
                (Ok(_), _) => {}
                (Err(error), _) => return Some(format!("{name}: {error}")),
            }
        }
        if let Some(path) = self.unexpected_files().first() {
            return Some(format!("{} was made", path.strip_prefix(&self.base).unwrap().display()));
        }
        if !self.state().join("sandbox.json").exists() {
            return Some("the sandbox's state file is missing".to_owned());
        }
        if let Some(path) = special(&self.workspace()) {
            return Some(format!("{} is a special file", path.display()));
        }
        self.outsider.try_wait().unwrap().map(|status| format!("the process outside ended: {status}"))
    }

    /// Restores what was changed. Unchanged files are not replaced, because a sandbox may have mounts over them.
    pub(crate) fn restore(&self) {
        let workspace = self.workspace();
        let kept = ["set-user-id", "escape", "vault", "scratch", ".git", ".rath"].map(|name| workspace.join(name));
        let inside = ["", "scratch"].into_iter().filter_map(|name| fs::read_dir(workspace.join(name)).ok());
        let inside = inside.flat_map(|entries| entries.flatten().map(|entry| entry.path()));
        for path in inside.filter(|path| !kept.contains(path)).chain(self.unexpected_files()) {
            remove(&path);
        }
        for (path, content) in self.protected_files() {
            let parent = path.parent().unwrap();
            if parent.is_symlink() {
                remove(parent);
            }
            fs::create_dir_all(parent).unwrap();
            if fs::read(&path).ok().as_deref() != Some(content.as_bytes()) {
                let _ = fs::remove_file(&path);
                fs::write(&path, content).unwrap();
            }
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        if !workspace.join("escape").exists() {
            fs::copy(self.base.join("escape"), workspace.join("escape")).unwrap();
        }
        for directory in [".git/objects", "scratch"] {
            fs::create_dir_all(workspace.join(directory)).unwrap();
        }
        fs::write(workspace.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    }
}

fn remove(path: &Path) {
    let directory = fs::symlink_metadata(path).is_ok_and(|file| file.is_dir());
    if directory { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.outsider.kill();
        let _ = self.outsider.wait();
        for shared in &self.shared {
            match shared {
                Shared::Memory(id) => {
                    unsafe { libc::shmctl(*id, libc::IPC_RMID, std::ptr::null_mut()) };
                }
                Shared::Queue(name) => {
                    unsafe { libc::syscall(libc::SYS_mq_unlink, format!("{name}\0").as_ptr()) };
                }
                Shared::File(path) => drop(fs::remove_file(path)),
            }
        }
    }
}

/// Finds a device or a set-user-id file in the workspace.
fn special(directory: &Path) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let (path, file) = (entry.path(), entry.metadata().ok()?);
        let kind = file.file_type();
        let device = kind.is_block_device() || kind.is_char_device();
        let odd = device || (kind.is_file() && file.mode() & 0o6000 != 0 && entry.file_name() != "set-user-id");
        if kind.is_dir() { special(&path) } else { odd.then_some(path) }
    })
}

fn greet(listener: UnixListener) {
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|mut stream| drop(stream.write_all(MARK.as_bytes())));
    });
}

fn greet_at(path: PathBuf) -> String {
    greet(UnixListener::bind(&path).unwrap());
    path.to_str().unwrap().to_owned()
}

/// Listens on a TCP port and returns it. `None` if the machine does not have such an address.
fn greet_tcp(address: &str) -> Option<String> {
    let listener = TcpListener::bind(address).ok()?;
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|mut stream| drop(stream.write_all(MARK.as_bytes())));
    });
    Some(port.to_string())
}

fn echo_udp() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
            let _ = socket.send_to(MARK.as_bytes(), from);
        }
    });
    port.to_string()
}

/// The address from which the machine would send packets. Sends nothing.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// Sockets of common servers that exist on this machine.
fn sockets_of_the_machine() -> Vec<(&'static str, String)> {
    let user = unsafe { libc::getuid() };
    let known = [
        ("system_bus", vec!["/run/dbus/system_bus_socket".to_owned(), format!("/run/user/{user}/bus")]),
        (
            "docker",
            ["docker.sock", "podman/podman.sock", "containerd/containerd.sock", "crio/crio.sock", "snapd.socket"]
                .map(|name| format!("/run/{name}"))
                .to_vec(),
        ),
        ("systemd", ["private", "notify", "journal/socket"].map(|name| format!("/run/systemd/{name}")).to_vec()),
    ];
    let there = |paths: Vec<String>| paths.into_iter().filter(|path| Path::new(path).exists()).collect::<Vec<_>>();
    let found = known.into_iter().map(|(name, paths)| (name, there(paths).join(",")));
    found.filter(|(_, paths)| !paths.is_empty()).collect()
}

fn share_memory(key: u32) -> Shared {
    unsafe {
        let id = libc::shmget(key as i32, 4096, libc::IPC_CREAT | 0o600);
        let at = libc::shmat(id, std::ptr::null(), 0);
        assert!(id >= 0 && at as isize != -1);
        at.cast::<u8>().copy_from(MARK.as_ptr(), MARK.len());
        Shared::Memory(id)
    }
}

fn share_queue(name: &str) -> Shared {
    let flags = libc::O_CREAT | libc::O_RDWR;
    unsafe { libc::syscall(libc::SYS_mq_open, format!("{name}\0").as_ptr(), flags, 0o600, 0) };
    Shared::Queue(name.to_owned())
}
