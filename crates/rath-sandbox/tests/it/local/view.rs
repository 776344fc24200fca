//! What commands see.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use pollster::block_on;
use rath_sandbox::{Backend as _, Command, Error, Spec, Tier, Why};

use super::{Bench, has, on_each_tier, says};

on_each_tier!(
    the_environment_is_what_was_given,
    what_is_hidden_is_not_there,
    what_is_readable_is_not_writable,
    the_home_is_private,
    the_temporary_directory_is_private,
    odd_names_are_names,
    hooks_and_configuration_of_git_cannot_be_written,
    what_a_repository_lacks_cannot_be_made,
    a_repository_that_is_only_to_be_read_is_kept_too,
    a_git_file_cannot_be_written,
    a_git_file_that_leads_inside_is_told,
    a_link_opens_nothing,
);

/// Where the workspace is shown when it is to appear at `place`.
fn shown_at(place: &str, home: Option<&str>) -> String {
    let bench = Bench::with(Tier::Ns, |spec, _| {
        spec.appears_at = Some(place.into());
        spec.home = home.map(Into::into);
    });
    bench.write("file", b"there\n").unwrap();
    assert_eq!(bench.says("cat file; touch made; pwd | cat >/dev/null; ls /bin/sh"), "there\n/bin/sh");
    assert!(bench.spec.directory.join("made").exists());
    let place = bench.says("pwd");
    bench.rest();
    assert_eq!(bench.says("pwd; cat \"$(pwd)/file\""), format!("{place}\nthere"));
    place
}

#[test]
fn the_workspace_appears_where_it_is_told() {
    if has(Tier::Ns) {
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

/// Where something else must be, or nothing can be put, the workspace appears in a place of its own.
#[test]
fn the_workspace_does_not_take_the_place_of_the_system() {
    if has(Tier::Ns) {
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

/// A directory of the system that is there may be a workspace.
#[test]
fn a_workspace_below_the_system_appears_where_it_is() {
    if has(Tier::Ns) && rustix::process::geteuid().is_root() {
        let place = tempfile::tempdir_in("/opt").unwrap();
        assert_eq!(shown_at(place.path().to_str().unwrap(), None), place.path().to_str().unwrap());
        let bench = Bench::with(Tier::Ns, |spec, _| spec.directory = place.path().into());
        assert_eq!(bench.says("pwd; touch x"), place.path().to_str().unwrap());
    }
}

fn the_environment_is_what_was_given(tier: Tier) {
    let bench = Bench::with(tier, |spec, base| {
        spec.env = vec![("GIVEN".into(), "1".into()), ("LANG".into(), "C".into()), ("GIVEN".into(), "2".into())];
        spec.home = Some(base.join("home"));
    });
    let names = bench.says("env | cut -d= -f1 | grep -v -e PWD -e _ -e RATH | sort | tr '\\n' ' '");
    let expected = if tier == Tier::Ns { "GIVEN HOME LANG PATH " } else { "GIVEN HOME LANG PATH TMPDIR " };
    assert_eq!(names, expected.trim_end());
    assert_eq!(bench.says("echo $GIVEN"), "2");
    let finished = bench.run(Command::argv(["env"]).clean_env().env("ONLY", "this"));
    assert_eq!(finished.stdout.bytes, b"ONLY=this\n");
    let finished = bench.run(Command::shell("echo $GIVEN$HOME").env("GIVEN", "3").env("HOME", "/there"));
    assert_eq!(finished.stdout.bytes, b"3/there\n");
}

fn what_is_hidden_is_not_there(tier: Tier) {
    let bench = Bench::with(tier, |spec, base| {
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
    let shown = bench.base.path().join("shown");
    let shown = shown.display();
    for _ in 0..2 {
        assert_eq!(bench.says("cat d/secrets/key .env 2>/dev/null || cat open"), "word");
        assert_eq!(bench.says(&format!("cat {shown}/secrets/key {shown}/key 2>/dev/null || cat {shown}/open")), "word");
        let finished = bench.shell("echo x >d/secrets/key; echo x >.env; rm -rf d/secrets .env");
        assert!(!finished.ended.well());
        for path in ["d/secrets/key", ".env", "d/../.env"] {
            assert!(bench.read(path).is_err(), "{path}");
            assert!(bench.write(path, b"x").is_err(), "{path}");
            assert!(is_kept(&bench.remove(path), Why::Hidden), "{path}");
        }
        assert!(is_kept(&bench.remove("d"), Why::Hidden));
        // Somebody outside replaces it: nothing lies over the new one.
        let env = bench.spec.directory.join(".env");
        fs::write(env.with_extension("new"), "word\n").unwrap();
        fs::rename(env.with_extension("new"), &env).unwrap();
        assert!(is_kept(&bench.read(".env"), Why::Hidden));
        bench.rest();
    }
    assert_eq!(fs::read(bench.spec.directory.join("d/secrets/key")).unwrap(), b"word\n");
    assert_eq!(fs::read(bench.spec.directory.join(".env")).unwrap(), b"word\n");
    // Nor can it be brought to light by another name.
    bench.shell("mv d other; mv d/secrets ./; ln .env env; ln d/secrets/key key; mv .env env; cp -r . /tmp/copy");
    bench.rest();
    assert_eq!(bench.shell("cat env key secrets/key other/secrets/key").stdout.total, 0);
}

fn what_is_readable_is_not_writable(tier: Tier) {
    let bench = Bench::with(tier, |spec, base| {
        fs::create_dir_all(base.join("given dir/d")).unwrap();
        fs::write(base.join("given dir/d/file"), "word\n").unwrap();
        fs::write(base.join("given file"), "word\n").unwrap();
        fs::write(base.join("other"), "word\n").unwrap();
        symlink("given dir", base.join("link")).unwrap();
        spec.readable = ["given dir", "given file", "link", "none"].map(|name| base.join(name)).into();
    });
    let base = bench.base.path().display();
    assert_eq!(bench.says(&format!("cd {base}; cat 'given dir/d/file' 'given file' link/d/file")), "word\nword\nword");
    for act in ["touch 'given dir/x'", "echo x >'given file'", "rm 'given dir/d/file'", "touch link/x", "cat other"] {
        assert!(!bench.shell(&format!("cd {base} && {act}")).ended.well(), "{act}");
    }
}

fn the_home_is_private(tier: Tier) {
    let bench = Bench::with(tier, |spec, base| {
        let home = base.join("home/ada");
        fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        for file in [".cargo/bin/tool", ".cargo/credentials.toml", ".ssh/id", ".netrc"] {
            fs::write(home.join(file), "word\n").unwrap();
        }
        spec.home = Some(home);
    });
    let home = bench.spec.home.as_ref().unwrap().display();
    assert_eq!(bench.says(&format!("cat {home}/.cargo/bin/tool")), "word");
    for file in [".cargo/credentials.toml", ".ssh/id", ".netrc"] {
        assert!(!bench.shell(&format!("cat {home}/{file}")).ended.well(), "{file}");
    }
    assert!(!bench.shell(&format!("echo x >{home}/.cargo/bin/tool")).ended.well());
    bench.says("mkdir -p ~/.config; echo mine >~/.config/x; echo mine >~/.netrc");
    bench.rest();
    assert_eq!(bench.says("cat ~/.config/x ~/.netrc"), "mine\nmine");
    assert_eq!(fs::read_to_string(bench.spec.home.as_ref().unwrap().join(".netrc")).unwrap(), "word\n");
    if tier == Tier::Ns {
        assert_eq!(
            bench.says("echo ~; ls -A ~ ~/.cargo; ls -A ~/.."),
            format!("{home}\n{home}:\n.cargo\n.config\n.netrc\n\n{home}/.cargo:\nbin\nada")
        );
    }
}

fn the_temporary_directory_is_private(tier: Tier) {
    let (one, two) = (Bench::open(tier), Bench::open(tier));
    let file = tempfile::NamedTempFile::new().unwrap();
    let outside = file.path().display();
    let tmp = if tier == Tier::Ns { "/tmp" } else { "$TMPDIR" };
    assert_eq!(one.says(&format!("f=$(mktemp); echo 1 >$f; cat {tmp}/tmp.*")), "1");
    assert!(!two.shell(&format!("cat {tmp}/tmp.*")).ended.well());
    one.shell(&format!("echo x >{outside}"));
    assert_eq!(fs::read(file.path()).unwrap(), b"");
    one.rest();
    assert_eq!(one.says(&format!("cat {tmp}/tmp.*")), "1");
    if tier == Tier::Ns {
        assert_eq!(one.says("cat /var/tmp/tmp.*; touch /var/tmp/x; ls /tmp/x"), "1\n/tmp/x");
        assert!(!two.shell(&format!("test -e {outside}")).ended.well());
    }
}

fn odd_names_are_names(tier: Tier) {
    let base = tempfile::tempdir().unwrap();
    let odd = base.path().join("a b:c,d\\e \u{e4}'\"$(x)\n");
    fs::create_dir(&odd).unwrap();
    let mut spec = super::spec_in(&odd);
    spec.home = Some(odd.join("home \\040"));
    let bench = Bench::over(tier, base, spec, |_, _| {});
    bench.write("x y", b"there\n").unwrap();
    assert_eq!(
        bench.says("pwd; cat *; echo 1 >\"$HOME/f\"; cat \"$HOME/f\""),
        format!("{}\nthere\n1", odd.join("files").display())
    );
}

/// A repository, as far as these tests need one.
fn repository(git: &Path) {
    fs::create_dir_all(git.join("objects")).unwrap();
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(git.join("config"), "[core]\n").unwrap();
    fs::write(git.join("hooks/pre-commit.sample"), "").unwrap();
}

fn hooks_and_configuration_of_git_cannot_be_written(tier: Tier) {
    let bench = Bench::with(tier, |spec, _| {
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
        assert!(!bench.shell(act).ended.well(), "{act}");
    }
    assert_eq!(bench.says("cat .git/config; touch src/x"), "[core]");
    // Files are read and written by this process, which no mount keeps from it.
    let config = bench.spec.directory.join(".git/config");
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
            let written = bench.write(path, b"[core]\nfsmonitor = true\n");
            assert!(is_kept(&written, Why::Protected), "{path}: {written:?}");
        }
        for path in [".git/config", "g/hooks/pre-commit.sample", ".git/hooks", ".git/commondir", ".git"] {
            let removed = bench.remove(path);
            assert!(is_kept(&removed, Why::Protected), "{path}: {removed:?}");
        }
        assert_eq!(bench.read(".git/config").unwrap(), b"[core]\n");
        if !replaced {
            // As `git config` does it, outside: nothing lies over the new one.
            fs::write(config.with_extension("lock"), "[core]\n").unwrap();
            fs::rename(config.with_extension("lock"), &config).unwrap();
        }
    }
    assert_eq!(bench.write(".git/index", b"x").is_ok(), tier == Tier::Ns);
    bench.write(".gitignore", b"x").unwrap();
    if tier == Tier::Ns {
        assert_eq!(
            bench.says("echo x >.git/index; mkdir .git/objects/ab; mv .git/index .git/index2; cat .git/index2"),
            "x"
        );
    }
    bench.rest();
    let git = bench.spec.directory.join(".git");
    assert_eq!(fs::read(git.join("config")).unwrap(), b"[core]\n");
    assert_eq!(fs::read_dir(git.join("hooks")).unwrap().count(), 1);
    for file in ["config.worktree", "commondir"] {
        assert!(fs::symlink_metadata(git.join(file)).is_err(), "{file}");
    }
}

/// What is not there cannot be covered, and must not be made all the same.
fn what_a_repository_lacks_cannot_be_made(tier: Tier) {
    let bench = Bench::with(tier, |spec, _| {
        let git = spec.directory.join(".git");
        fs::create_dir_all(git.join("objects")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        // A worktree elsewhere, which reads these too.
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
        assert!(!bench.shell(act).ended.well(), "{act}");
    }
    for path in [".git/config", ".git/worktrees/wt/config.worktree", ".git/worktrees/wt/commondir"] {
        assert!(is_kept(&bench.write(path, b"x"), Why::Protected), "{path}");
    }
    for path in [".git/worktrees/wt", ".git/worktrees"] {
        assert!(is_kept(&bench.remove(path), Why::Protected), "{path}");
    }
    if tier == Tier::Ns {
        bench.says("echo x >.git/worktrees/wt/index; mkdir .git/worktrees/new");
    }
    bench.rest();
    let git = bench.spec.directory.join(".git");
    for file in ["config", "config.worktree", "commondir", "worktrees/wt/config.worktree", "hooks/pre-commit"] {
        assert!(fs::symlink_metadata(git.join(file)).is_err(), "{file}");
    }
    assert_eq!(fs::read(git.join("worktrees/wt/commondir")).unwrap(), b"../..\n");
}

/// Where rath cannot put what stands in for it, a command that owns the directory could still make it.
fn a_repository_that_is_only_to_be_read_is_kept_too(tier: Tier) {
    let bench = Bench::with(tier, |spec, _| {
        let git = spec.directory.join(".git");
        repository(&git);
        fs::set_permissions(&git, fs::Permissions::from_mode(0o555)).unwrap();
    });
    for file in ["config.worktree", "commondir"] {
        let act = format!("chmod u+w .git; echo x >.git/{file}");
        assert!(!bench.shell(&act).ended.well(), "{act}");
    }
    bench.rest();
    let git = bench.spec.directory.join(".git");
    assert!(fs::symlink_metadata(git.join("config.worktree")).is_err());
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A repository that `.git` names may lie where everything may happen. Then that is said.
fn a_git_file_that_leads_inside_is_told(tier: Tier) {
    for (leads_to, told) in [("./bare", true), ("../main.git", false)] {
        let bench = Bench::with(tier, |spec, base| {
            repository(&spec.directory.join("bare"));
            repository(&base.join("main.git"));
            fs::write(spec.directory.join(".git"), format!("gitdir: {leads_to}\n")).unwrap();
        });
        let lacks = bench.sandbox.not_enforced();
        assert_eq!(lacks.iter().any(|lack| lack.starts_with(".git leads to a repository")), told, "{lacks:?}");
    }
}

/// What stands in for files of a repository stays as long as somebody needs it, and goes even after a crash.
#[test]
fn what_stands_in_is_shared() {
    if !has(Tier::Ns) {
        return;
    }
    let one = Bench::with(Tier::Ns, |spec, _| {
        repository(&spec.directory.join(".git"));
        // Left behind.
        fs::write(spec.directory.join(".git/config.worktree"), "").unwrap();
    });
    let mut other = one.spec.clone();
    other.state = one.base.path().join("state2");
    fs::create_dir(&other.state).unwrap();
    let two = block_on(one.local.open(other)).unwrap();
    let line = "until test -e go; do sleep 0.01; done; echo x >.git/config.worktree || echo x >.git/commondir";
    let running = block_on(two.exec(Command::shell(line))).unwrap();
    one.rest();
    fs::write(one.spec.directory.join("go"), "").unwrap();
    assert!(!block_on(running.finish()).unwrap().ended.well());
    block_on(two.rest()).unwrap();
    let git = one.spec.directory.join(".git");
    for file in ["config.worktree", "commondir"] {
        assert!(fs::symlink_metadata(git.join(file)).is_err(), "{file}");
    }
    // What somebody wrote is nobody's to remove.
    fs::write(git.join("config.worktree"), "[core]\n").unwrap();
    assert!(!one.shell("echo x >>.git/config.worktree").ended.well());
    one.rest();
    assert_eq!(fs::read(git.join("config.worktree")).unwrap(), b"[core]\n");
}

/// A link that somebody put into the workspace leads no further than its target is open anyway.
fn a_link_opens_nothing(tier: Tier) {
    let bench = Bench::with(tier, |spec, base| {
        repository(&spec.directory.join(".git"));
        fs::create_dir(base.join("elsewhere")).unwrap();
        fs::write(base.join("elsewhere/key"), "word\n").unwrap();
        symlink(base.join("elsewhere"), spec.directory.join("out")).unwrap();
        symlink(".git/config", spec.directory.join("in")).unwrap();
    });
    for act in ["cat out/key", "echo x >out/new", "echo x >>in", "echo x >in"] {
        assert!(!bench.shell(act).ended.well(), "{act}");
    }
    assert!(bench.read("out/key").is_err());
    assert!(bench.write("out/key", b"x").is_err());
    assert_eq!(fs::read(bench.base.path().join("elsewhere/key")).unwrap(), b"word\n");
}

fn a_git_file_cannot_be_written(tier: Tier) {
    let bench = Bench::with(tier, |spec, base| {
        repository(&base.join("main.git"));
        fs::write(spec.directory.join(".git"), "gitdir: ../main.git\n").unwrap();
    });
    for act in ["echo x >.git", "rm -f .git", "mv .git old", "mkdir d && mv -T d .git", "echo x >new && mv new .git"] {
        assert!(!bench.shell(act).ended.well(), "{act}");
    }
    assert!(is_kept(&bench.write(".git", b"gitdir: evil\n"), Why::Protected));
    assert!(is_kept(&bench.remove(".git"), Why::Protected));
    assert_eq!(bench.says("cat .git"), "gitdir: ../main.git");
}

fn is_kept<T>(done: &Result<T, Error>, wanted: Why) -> bool {
    matches!(done, Err(Error::BadPath { why, .. }) if *why == wanted)
}

/// In a workspace that has no repository one can be made.
#[test]
fn a_repository_can_be_made() {
    if has(Tier::Ns) {
        let bench = Bench::open(Tier::Ns);
        bench.says("mkdir -p .git/hooks; echo x >.git/config");
        assert_eq!(block_on(bench.sandbox.list(Path::new(""))).unwrap().len(), 1);
    }
}

/// Two that lie in each other's way see what they are to see.
#[test]
fn sandboxes_may_nest() {
    if has(Tier::Ns) {
        let outer = Bench::open(Tier::Ns);
        let inner = Spec::new(outer.spec.directory.join("in"), outer.base.path().join("state2"));
        fs::create_dir(&inner.directory).unwrap();
        fs::create_dir(&inner.state).unwrap();
        let inner = block_on(outer.local.open(inner)).unwrap();
        says(&inner, "echo 1 >file");
        assert_eq!(outer.says("cat in/file"), "1");
        assert_eq!(says(&inner, "ls .."), "in");
    }
}
