//! The file system and the environment that commands see.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Error, IsolationLevel, PathError, SandboxSpec};

use super::{SandboxFixture, has, on_each_level, output};

on_each_level!(
    commands_get_only_the_given_environment,
    hidden_paths_are_not_visible,
    readable_paths_are_not_writable,
    the_home_is_private,
    the_temporary_directory_is_private,
    special_characters_in_names_are_preserved,
    hooks_and_configuration_of_git_cannot_be_written,
    missing_repository_files_cannot_be_created,
    a_read_only_repository_is_protected_too,
    a_git_file_cannot_be_written,
    a_git_file_that_names_the_workspace_is_reported,
    a_link_grants_no_access,
);

/// The path of the workspace in a sandbox whose `mount_path` is `place`.
fn shown_at(place: &str, home: Option<&str>) -> String {
    let fixture = SandboxFixture::with(IsolationLevel::Ns, |spec, _| {
        spec.mount_path = Some(place.into());
        spec.home = home.map(Into::into);
    });
    fixture.write("file", b"there\n").unwrap();
    assert_eq!(fixture.output("cat file; touch made; pwd | cat >/dev/null; ls /bin/sh"), "there\n/bin/sh");
    assert!(fixture.spec.directory.join("made").exists());
    let place = fixture.output("pwd");
    fixture.suspend();
    assert_eq!(fixture.output("pwd; cat \"$(pwd)/file\""), format!("{place}\nthere"));
    place
}

#[test]
fn the_workspace_is_mounted_at_the_requested_path() {
    if has(IsolationLevel::Ns) {
        let home = Some("/home/ada");
        for place in [
            "/workspace",
            "/home/ada/src/project",
            "/home/ada",
            "/home/ada/with space/\u{e4}:,\\",
            "/tmp/x/y",
            "/srv/app",
            "/var/lib/app",
            "/run/user/app",
            "/mnt",
            "/root/app",
        ] {
            assert_eq!(shown_at(place, home), place);
        }
    }
}

/// If the wanted path is used by the system or cannot be created, the workspace is mounted at the fallback path.
#[test]
fn the_workspace_does_not_cover_system_directories() {
    if has(IsolationLevel::Ns) {
        for place in [
            "/",
            "/usr",
            "/bin",
            "/lib",
            "/etc",
            "/sbin",
            "/opt",
            "/dev",
            "/proc",
            "/sys",
            "/tmp",
            "/run",
            "/var",
            "/home",
            "/usr/src/app-that-is-not-there",
            "/opt/none/app",
            "/proc/self/app",
            "/dev/shm/app",
            "/sys/app",
            "/var/tmp",
            "/var/tmp/app",
            "/var/run/app",
            "relative/app",
            "/srv/../srv/app",
            "/lib/app",
            "/etc/rath",
        ] {
            assert_eq!(shown_at(place, Some("/home/ada")), "/workspace", "{place}");
        }
    }
}

/// An existing directory below a system directory can be a workspace.
#[test]
fn a_workspace_in_a_system_directory_keeps_its_path() {
    if has(IsolationLevel::Ns) && rustix::process::geteuid().is_root() {
        let place = tempfile::tempdir_in("/opt").unwrap();
        assert_eq!(shown_at(place.path().to_str().unwrap(), None), place.path().to_str().unwrap());
        let fixture = SandboxFixture::with(IsolationLevel::Ns, |spec, _| spec.directory = place.path().into());
        assert_eq!(fixture.output("pwd; touch x"), place.path().to_str().unwrap());
    }
}

fn commands_get_only_the_given_environment(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, base| {
        spec.env = vec![("GIVEN".into(), "1".into()), ("LANG".into(), "C".into()), ("GIVEN".into(), "2".into())];
        spec.home = Some(base.join("home"));
    });
    let names = fixture.output("env | cut -d= -f1 | grep -v -e PWD -e _ -e RATH | sort | tr '\\n' ' '");
    let expected = if level == IsolationLevel::Ns { "GIVEN HOME LANG PATH " } else { "GIVEN HOME LANG PATH TMPDIR " };
    assert_eq!(names, expected.trim_end());
    assert_eq!(fixture.output("echo $GIVEN"), "2");
    let finished = fixture.run(Command::argv(["env"]).clean_env().env("ONLY", "this"));
    assert_eq!(finished.stdout.bytes, b"ONLY=this\n");
    let finished = fixture.run(Command::shell("echo $GIVEN$HOME").env("GIVEN", "3").env("HOME", "/there"));
    assert_eq!(finished.stdout.bytes, b"3/there\n");
}

fn hidden_paths_are_not_visible(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, base| {
        let files = &spec.directory;
        fs::create_dir_all(files.join("d/secrets")).unwrap();
        fs::create_dir_all(base.join("shown/secrets")).unwrap();
        for path in [files.join("d/secrets/key"), files.join(".env"), files.join("open"), base.join("shown/open")] {
            fs::write(path, "word\n").unwrap();
        }
        fs::write(base.join("shown/secrets/key"), "word\n").unwrap();
        fs::write(base.join("shown/key"), "word\n").unwrap();
        let linked = base.join("linked");
        symlink(files, &linked).unwrap();
        spec.readable = vec![base.join("shown")];
        let hidden = [files.join("d/secrets"), files.join("none"), base.join("shown/secrets"), base.join("shown/key")];
        spec.hidden = hidden.into_iter().chain([linked.join(".env")]).collect();
    });
    let shown = fixture.base.path().join("shown");
    let shown = shown.display();
    for _ in 0..2 {
        assert_eq!(fixture.output("cat d/secrets/key .env 2>/dev/null || cat open"), "word");
        assert_eq!(
            fixture.output(&format!("cat {shown}/secrets/key {shown}/key 2>/dev/null || cat {shown}/open")),
            "word"
        );
        let finished = fixture.shell("echo x >d/secrets/key; echo x >.env; rm -rf d/secrets .env");
        assert!(!finished.ended.success());
        for path in ["d/secrets/key", ".env", "d/../.env"] {
            assert!(fixture.read(path).is_err(), "{path}");
            assert!(fixture.write(path, b"x").is_err(), "{path}");
            assert!(is_refused(&fixture.remove(path), PathError::Hidden), "{path}");
        }
        assert!(is_refused(&fixture.remove("d"), PathError::Hidden));
        // A process outside replaces the file, so the new one is not covered.
        let env = fixture.spec.directory.join(".env");
        fs::write(env.with_extension("new"), "word\n").unwrap();
        fs::rename(env.with_extension("new"), &env).unwrap();
        assert!(is_refused(&fixture.read(".env"), PathError::Hidden));
        fixture.suspend();
    }
    assert_eq!(fs::read(fixture.spec.directory.join("d/secrets/key")).unwrap(), b"word\n");
    assert_eq!(fs::read(fixture.spec.directory.join(".env")).unwrap(), b"word\n");
    // It cannot be made visible by renaming a parent.
    fixture.shell("mv d other; mv d/secrets ./; ln .env env; ln d/secrets/key key; mv .env env; cp -r . /tmp/copy");
    fixture.suspend();
    assert_eq!(fixture.shell("cat env key secrets/key other/secrets/key").stdout.total, 0);
}

fn readable_paths_are_not_writable(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, base| {
        fs::create_dir_all(base.join("given dir/d")).unwrap();
        fs::write(base.join("given dir/d/file"), "word\n").unwrap();
        fs::write(base.join("given file"), "word\n").unwrap();
        fs::write(base.join("other"), "word\n").unwrap();
        symlink("given dir", base.join("link")).unwrap();
        spec.readable = ["given dir", "given file", "link", "none"].map(|name| base.join(name)).into();
    });
    let base = fixture.base.path().display();
    assert_eq!(
        fixture.output(&format!("cd {base}; cat 'given dir/d/file' 'given file' link/d/file")),
        "word\nword\nword"
    );
    for act in ["touch 'given dir/x'", "echo x >'given file'", "rm 'given dir/d/file'", "touch link/x", "cat other"] {
        assert!(!fixture.shell(&format!("cd {base} && {act}")).ended.success(), "{act}");
    }
}

fn the_home_is_private(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, base| {
        let home = base.join("home/ada");
        fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        for file in [".cargo/bin/tool", ".cargo/credentials.toml", ".ssh/id", ".netrc"] {
            fs::write(home.join(file), "word\n").unwrap();
        }
        spec.home = Some(home);
    });
    let home = fixture.spec.home.as_ref().unwrap().display();
    assert_eq!(fixture.output(&format!("cat {home}/.cargo/bin/tool")), "word");
    for file in [".cargo/credentials.toml", ".ssh/id", ".netrc"] {
        assert!(!fixture.shell(&format!("cat {home}/{file}")).ended.success(), "{file}");
    }
    assert!(!fixture.shell(&format!("echo x >{home}/.cargo/bin/tool")).ended.success());
    fixture.output("mkdir -p ~/.config; echo mine >~/.config/x; echo mine >~/.netrc");
    fixture.suspend();
    assert_eq!(fixture.output("cat ~/.config/x ~/.netrc"), "mine\nmine");
    assert_eq!(fs::read_to_string(fixture.spec.home.as_ref().unwrap().join(".netrc")).unwrap(), "word\n");
    if level == IsolationLevel::Ns {
        assert_eq!(
            fixture.output("echo ~; ls -A ~ ~/.cargo; ls -A ~/.."),
            format!("{home}\n{home}:\n.cargo\n.config\n.netrc\n\n{home}/.cargo:\nbin\nada")
        );
    }
}

fn the_temporary_directory_is_private(level: IsolationLevel) {
    let (one, two) = (SandboxFixture::open(level), SandboxFixture::open(level));
    let file = tempfile::NamedTempFile::new().unwrap();
    let outside = file.path().display();
    let tmp = if level == IsolationLevel::Ns { "/tmp" } else { "$TMPDIR" };
    assert_eq!(one.output(&format!("f=$(mktemp); echo 1 >$f; cat {tmp}/tmp.*")), "1");
    assert!(!two.shell(&format!("cat {tmp}/tmp.*")).ended.success());
    one.shell(&format!("echo x >{outside}"));
    assert_eq!(fs::read(file.path()).unwrap(), b"");
    one.suspend();
    assert_eq!(one.output(&format!("cat {tmp}/tmp.*")), "1");
    if level == IsolationLevel::Ns {
        assert_eq!(one.output("cat /var/tmp/tmp.*; touch /var/tmp/x; ls /tmp/x"), "1\n/tmp/x");
        assert!(!two.shell(&format!("test -e {outside}")).ended.success());
    }
}

fn special_characters_in_names_are_preserved(level: IsolationLevel) {
    let base = tempfile::tempdir().unwrap();
    let odd = base.path().join("a b:c,d\\e \u{e4}'\"$(x)\n");
    fs::create_dir(&odd).unwrap();
    let mut spec = super::spec_in(&odd);
    spec.home = Some(odd.join("home \\040"));
    let fixture = SandboxFixture::over(level, base, spec, |_, _| {});
    fixture.write("x y", b"there\n").unwrap();
    assert_eq!(
        fixture.output("pwd; cat *; echo 1 >\"$HOME/f\"; cat \"$HOME/f\""),
        format!("{}\nthere\n1", odd.join("files").display())
    );
}

/// Creates a minimal repository.
fn repository(git: &Path) {
    fs::create_dir_all(git.join("objects")).unwrap();
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(git.join("config"), "[core]\n").unwrap();
    fs::write(git.join("hooks/pre-commit.sample"), "").unwrap();
}

fn hooks_and_configuration_of_git_cannot_be_written(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, _| {
        repository(&spec.directory.join(".git"));
        fs::create_dir(spec.directory.join("src")).unwrap();
        symlink(".git", spec.directory.join("g")).unwrap();
        symlink(".git/config", spec.directory.join("c")).unwrap();
    });
    for act in [
        "echo x >.git/hooks/pre-commit",
        "echo x >>.git/config",
        "rm -f .git/config",
        "echo x >new; mv new .git/config",
        "mv .git/hooks .git/old",
        "mv .git old",
        "rm -rf .git/hooks",
        "ln -sf x .git/hooks/pre-push",
        "mv .git/config .git/other",
        "mkdir other && mv -T other .git",
        "echo x >.git/config.worktree",
        "echo x >new; mv -T new .git/config.worktree",
        "ln -sfT ../new .git/config.worktree",
        "echo x >.git/commondir",
    ] {
        assert!(!fixture.shell(act).ended.success(), "{act}");
    }
    assert_eq!(fixture.output("cat .git/config; touch src/x"), "[core]");
    // File operations run in this process, which mounts do not restrict.
    let config = fixture.spec.directory.join(".git/config");
    for replaced in [false, true] {
        for path in [
            ".git/config",
            ".git/config.worktree",
            ".git/commondir",
            ".git/hooks/pre-commit",
            ".git/hooks/deep/er",
            "src/../.git/config",
            "g/config",
            "c",
        ] {
            let written = fixture.write(path, b"[core]\nfsmonitor = true\n");
            assert!(is_refused(&written, PathError::Protected), "{path}: {written:?}");
        }
        for path in [".git/config", "g/hooks/pre-commit.sample", ".git/hooks", ".git/commondir", ".git"] {
            let removed = fixture.remove(path);
            assert!(is_refused(&removed, PathError::Protected), "{path}: {removed:?}");
        }
        assert_eq!(fixture.read(".git/config").unwrap(), b"[core]\n");
        if !replaced {
            // A process outside replaces the file, as `git config` does, so the new one is not covered.
            fs::write(config.with_extension("lock"), "[core]\n").unwrap();
            fs::rename(config.with_extension("lock"), &config).unwrap();
        }
    }
    assert_eq!(fixture.write(".git/index", b"x").is_ok(), level == IsolationLevel::Ns);
    fixture.write(".gitignore", b"x").unwrap();
    if level == IsolationLevel::Ns {
        assert_eq!(
            fixture.output("echo x >.git/index; mkdir .git/objects/ab; mv .git/index .git/index2; cat .git/index2"),
            "x"
        );
    }
    fixture.suspend();
    let git = fixture.spec.directory.join(".git");
    assert_eq!(fs::read(git.join("config")).unwrap(), b"[core]\n");
    assert_eq!(fs::read_dir(git.join("hooks")).unwrap().count(), 1);
    for file in ["config.worktree", "commondir"] {
        assert!(fs::symlink_metadata(git.join(file)).is_err(), "{file}");
    }
}

/// Missing files cannot be covered by mounts, and commands must not create them.
fn missing_repository_files_cannot_be_created(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, _| {
        let git = spec.directory.join(".git");
        fs::create_dir_all(git.join("objects")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        // A linked worktree, which uses these files too.
        fs::create_dir_all(git.join("worktrees/wt")).unwrap();
        fs::write(git.join("worktrees/wt/commondir"), "../..\n").unwrap();
        fs::write(git.join("worktrees/wt/index"), "").unwrap();
    });
    for act in [
        "mkdir -p .git/hooks && echo x >.git/hooks/pre-commit",
        "rmdir .git/hooks && mkdir .git/hooks && echo x >.git/hooks/pre-commit",
        "echo x >.git/config",
        "echo x >.git/config.worktree",
        "echo x >.git/commondir",
        "echo x >.git/worktrees/wt/config.worktree",
        "echo x >.git/worktrees/wt/commondir",
        "mv .git/worktrees/wt .git/worktrees/old",
        "mv .git/worktrees .git/old",
    ] {
        assert!(!fixture.shell(act).ended.success(), "{act}");
    }
    for path in [".git/config", ".git/worktrees/wt/config.worktree", ".git/worktrees/wt/commondir"] {
        assert!(is_refused(&fixture.write(path, b"x"), PathError::Protected), "{path}");
    }
    for path in [".git/worktrees/wt", ".git/worktrees"] {
        assert!(is_refused(&fixture.remove(path), PathError::Protected), "{path}");
    }
    if level == IsolationLevel::Ns {
        fixture.output("echo x >.git/worktrees/wt/index; mkdir .git/worktrees/new");
    }
    fixture.suspend();
    let git = fixture.spec.directory.join(".git");
    for file in ["config", "config.worktree", "commondir", "worktrees/wt/config.worktree", "hooks/pre-commit"] {
        assert!(fs::symlink_metadata(git.join(file)).is_err(), "{file}");
    }
    assert_eq!(fs::read(git.join("worktrees/wt/commondir")).unwrap(), b"../..\n");
}

/// If a placeholder cannot be created, a command that owns the directory could change its permissions and create the
/// file.
fn a_read_only_repository_is_protected_too(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, _| {
        let git = spec.directory.join(".git");
        repository(&git);
        fs::set_permissions(&git, fs::Permissions::from_mode(0o555)).unwrap();
    });
    for file in ["config.worktree", "commondir"] {
        let act = format!("chmod u+w .git; echo x >.git/{file}");
        assert!(!fixture.shell(&act).ended.success(), "{act}");
    }
    fixture.suspend();
    let git = fixture.spec.directory.join(".git");
    assert!(fs::symlink_metadata(git.join("config.worktree")).is_err());
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
}

/// If `.git` names a repository inside the workspace, that repository is not protected, which is reported.
fn a_git_file_that_names_the_workspace_is_reported(level: IsolationLevel) {
    for (leads_to, is_reported) in [("./bare", true), ("../main.git", false)] {
        let fixture = SandboxFixture::with(level, |spec, base| {
            repository(&spec.directory.join("bare"));
            repository(&base.join("main.git"));
            fs::write(spec.directory.join(".git"), format!("gitdir: {leads_to}\n")).unwrap();
        });
        let lacks = fixture.sandbox.not_enforced();
        assert_eq!(lacks.iter().any(|lack| lack.starts_with(".git names a repository")), is_reported, "{lacks:?}");
    }
}

/// A placeholder exists as long as any sandbox needs it, and one that a crash left behind is removed too.
#[test]
fn git_placeholders_are_shared() {
    if !has(IsolationLevel::Ns) {
        return;
    }
    let one = SandboxFixture::with(IsolationLevel::Ns, |spec, _| {
        repository(&spec.directory.join(".git"));
        // Left behind by a crash.
        fs::write(spec.directory.join(".git/config.worktree"), "").unwrap();
    });
    let mut other = one.spec.clone();
    other.state = one.base.path().join("state2");
    fs::create_dir(&other.state).unwrap();
    let two = block_on(one.local.open(other)).unwrap();
    let line = "until test -e go; do sleep 0.01; done; echo x >.git/config.worktree || echo x >.git/commondir";
    let running = block_on(two.exec(Command::shell(line))).unwrap();
    one.suspend();
    fs::write(one.spec.directory.join("go"), "").unwrap();
    assert!(!block_on(running.finish()).unwrap().ended.success());
    block_on(two.suspend()).unwrap();
    let git = one.spec.directory.join(".git");
    for file in ["config.worktree", "commondir"] {
        assert!(fs::symlink_metadata(git.join(file)).is_err(), "{file}");
    }
    // A file that was written by something else is not removed.
    fs::write(git.join("config.worktree"), "[core]\n").unwrap();
    assert!(!one.shell("echo x >>.git/config.worktree").ended.success());
    one.suspend();
    assert_eq!(fs::read(git.join("config.worktree")).unwrap(), b"[core]\n");
}

/// A link in the workspace gives no access that its target does not have.
fn a_link_grants_no_access(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, base| {
        repository(&spec.directory.join(".git"));
        fs::create_dir(base.join("elsewhere")).unwrap();
        fs::write(base.join("elsewhere/key"), "word\n").unwrap();
        symlink(base.join("elsewhere"), spec.directory.join("out")).unwrap();
        symlink(".git/config", spec.directory.join("in")).unwrap();
    });
    for act in ["cat out/key", "echo x >out/new", "echo x >>in", "echo x >in"] {
        assert!(!fixture.shell(act).ended.success(), "{act}");
    }
    assert!(fixture.read("out/key").is_err());
    assert!(fixture.write("out/key", b"x").is_err());
    assert_eq!(fs::read(fixture.base.path().join("elsewhere/key")).unwrap(), b"word\n");
}

fn a_git_file_cannot_be_written(level: IsolationLevel) {
    let fixture = SandboxFixture::with(level, |spec, base| {
        repository(&base.join("main.git"));
        fs::write(spec.directory.join(".git"), "gitdir: ../main.git\n").unwrap();
    });
    for act in ["echo x >.git", "rm -f .git", "mv .git old", "mkdir d && mv -T d .git", "echo x >new && mv new .git"] {
        assert!(!fixture.shell(act).ended.success(), "{act}");
    }
    assert!(is_refused(&fixture.write(".git", b"gitdir: evil\n"), PathError::Protected));
    assert!(is_refused(&fixture.remove(".git"), PathError::Protected));
    assert_eq!(fixture.output("cat .git"), "gitdir: ../main.git");
}

fn is_refused<T>(done: &Result<T, Error>, wanted: PathError) -> bool {
    matches!(done, Err(Error::BadPath { why, .. }) if *why == wanted)
}

/// In a workspace without a repository, commands can create one.
#[test]
fn a_repository_can_be_created() {
    if has(IsolationLevel::Ns) {
        let fixture = SandboxFixture::open(IsolationLevel::Ns);
        fixture.output("mkdir -p .git/hooks; echo x >.git/config");
        assert_eq!(block_on(fixture.sandbox.list(Path::new(""))).unwrap().len(), 1);
    }
}

/// A workspace inside another one: each sandbox sees its own files.
#[test]
fn nested_sandboxes_see_their_own_files() {
    if has(IsolationLevel::Ns) {
        let outer = SandboxFixture::open(IsolationLevel::Ns);
        let inner = SandboxSpec::new(outer.spec.directory.join("in"), outer.base.path().join("state2"));
        fs::create_dir(&inner.directory).unwrap();
        fs::create_dir(&inner.state).unwrap();
        let inner = block_on(outer.local.open(inner)).unwrap();
        output(&inner, "echo 1 >file");
        assert_eq!(outer.output("cat in/file"), "1");
        assert_eq!(output(&inner, "ls .."), "in");
    }
}
