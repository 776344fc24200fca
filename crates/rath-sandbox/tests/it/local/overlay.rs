//! Workspaces with layers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use rath_sandbox::{Backend as _, IsolationLevel, Local, Overlay, Sandbox, SandboxSpec};
use tempfile::TempDir;

use super::{everything_below, output};

/// Layers in a directory with a given name.
struct Layers {
    place: PathBuf,
    lowers: Vec<PathBuf>,
    _base: TempDir,
}

/// Creates lower layers. Each has its own file, its own file in a shared directory, and a file that all of them have.
fn layers(name: &OsStr, count: usize) -> Layers {
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join(name);
    let lower = |n: usize| place.join(format!("lower-{n}-{}", "0123456789abcdef".repeat(2)));
    let lowers: Vec<PathBuf> = (0..count).map(lower).collect();
    for (n, lower) in lowers.iter().enumerate() {
        fs::create_dir_all(lower.join("shared/deep")).unwrap();
        for path in [format!("own{n}"), format!("shared/deep/{n}"), "common".into()] {
            fs::write(lower.join(path), format!("{n}\n")).unwrap();
        }
    }
    Layers { place, lowers, _base: base }
}

impl Layers {
    /// A workspace with these layers and its own upper directory.
    fn spec(&self, name: &str) -> SandboxSpec {
        let at = |what: &str| self.place.join(format!("{name}-{what}"));
        for what in ["state", "upper", "work", "merged"] {
            fs::create_dir_all(at(what)).unwrap();
        }
        let overlay = Overlay { lowers: self.lowers.clone(), upper: at("upper"), work: at("work") };
        let mut spec = SandboxSpec::new(at("merged"), at("state"));
        spec.mount_path = Some("/work".into());
        spec.overlay = Some(overlay);
        spec
    }
}

fn open(spec: &SandboxSpec) -> Arc<dyn Sandbox> {
    block_on(Local::only(IsolationLevel::Ns).open(spec.clone())).unwrap()
}

/// Whether this machine supports layers.
fn possible() -> bool {
    super::has(IsolationLevel::Ns) && {
        let possible = Local::new().supports_layers_in(&std::env::temp_dir());
        if !possible {
            rath_testkit::Requirement::Mounts.skip(format_args!("{} takes no layers", std::env::temp_dir().display()));
        }
        possible
    }
}

#[test]
fn writes_go_to_the_upper_layer_only() {
    for count in [1, 3, 9] {
        if !possible() {
            return;
        }
        let layers = layers("plain".as_ref(), count);
        let before: Vec<_> = layers.lowers.iter().map(|lower| everything_below(lower)).collect();
        let spec = layers.spec("a");
        let upper = spec.overlay.as_ref().unwrap().upper.clone();
        let sandbox = open(&spec);
        assert_eq!(output(&sandbox, "pwd; cat common; ls | wc -l"), format!("/work\n0\n{}", count + 2));
        assert_eq!(output(&sandbox, "ls shared/deep | wc -l"), count.to_string());
        let last = count - 1;
        output(&sandbox, &format!("echo new >new; echo more >>common; rm own{last}; mv shared moved; chmod 700 moved"));
        block_on(sandbox.write("by/rath".as_ref(), b"rath\n", None)).unwrap();
        block_on(sandbox.remove("moved/deep".as_ref())).unwrap();
        let look = "cat new common by/rath; ls; find moved";
        let seen = output(&sandbox, look);
        let own: String = (0..last).map(|n| format!("own{n}\n")).collect();
        assert_eq!(seen, format!("new\n0\nmore\nrath\nby\ncommon\nmoved\nnew\n{own}moved"));
        let whiteout = fs::symlink_metadata(upper.join(format!("own{last}"))).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
        assert_eq!(fs::read(upper.join("common")).unwrap(), b"0\nmore\n");
        for round in 0..2 {
            block_on(sandbox.suspend()).unwrap();
            assert_eq!(output(&sandbox, look), seen, "{round}");
        }
        drop(sandbox);
        assert_eq!(output(&open(&spec), look), seen);
        let after: Vec<_> = layers.lowers.iter().map(|lower| everything_below(lower)).collect();
        assert_eq!(after, before);
    }
}

#[test]
fn layers_may_be_in_directories_with_any_name() {
    if !possible() {
        return;
    }
    let long = "x".repeat(200);
    let names: [&[u8]; 9] = [
        b"a b",
        b"a:b",
        b"a,b",
        b"a\\b",
        b"a\\:,b",
        "\u{e4}\u{1f600}".as_bytes(),
        b"not\xffutf8",
        b"new\nline",
        long.as_bytes(),
    ];
    for name in names.map(OsStr::from_bytes) {
        let layers = layers(name, 3);
        let spec = layers.spec("odd: a,b\\");
        let sandbox = open(&spec);
        assert_eq!(output(&sandbox, "cat common; mv shared e; echo 1 >x; ls e/deep"), "0\n0\n1\n2", "{name:?}");
        assert_eq!(fs::read(spec.overlay.unwrap().upper.join("x")).unwrap(), b"1\n");
    }
}

#[test]
fn layers_may_be_in_unrelated_directories() {
    if !possible() {
        return;
    }
    let (here, there) = (layers("a:b \u{e4}".as_ref(), 2), layers(OsStr::from_bytes(b"c,\\\xff"), 9));
    let mut spec = here.spec("x");
    spec.overlay.as_mut().unwrap().lowers.extend(there.lowers.clone());
    let sandbox = open(&spec);
    assert_eq!(output(&sandbox, "cat common own8; ls shared/deep | wc -l"), "0\n8\n9");
}

#[test]
fn layers_may_be_given_by_links_and_relative_paths() {
    if !possible() {
        return;
    }
    let layers = layers("real".as_ref(), 2);
    let mut spec = layers.spec("x");
    let link = layers.place.with_file_name("link");
    std::os::unix::fs::symlink(&layers.place, &link).unwrap();
    let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    let relative = |path: &Path| up.join(path.strip_prefix("/").unwrap());
    let overlay = spec.overlay.as_mut().unwrap();
    overlay.lowers[0] = relative(&overlay.lowers[0]);
    overlay.lowers[1] = link.join(overlay.lowers[1].file_name().unwrap());
    overlay.upper = relative(&overlay.upper);
    overlay.work = link.join(overlay.work.file_name().unwrap());
    assert_eq!(output(&open(&spec), "cat common own1; touch x"), "0\n1");
}

#[test]
fn sandboxes_share_lower_layers() {
    if !possible() {
        return;
    }
    let layers = layers("plain".as_ref(), 3);
    let sandboxes = ["a", "b"].map(|name| open(&layers.spec(name)));
    for (n, sandbox) in sandboxes.iter().enumerate() {
        output(sandbox, &format!("cat common; echo {n} >common; rm own{n}; mv shared {n}"));
    }
    assert_eq!(output(&sandboxes[0], "cat common; ls"), "0\n0\ncommon\nown1\nown2");
    assert_eq!(output(&sandboxes[1], "cat common; ls"), "1\n1\ncommon\nown0\nown2");
}

/// A hidden path is given relative to the workspace directory, and only a layer has it.
#[test]
fn a_path_that_only_a_layer_has_can_be_hidden() {
    if !possible() {
        return;
    }
    let layers = layers("plain".as_ref(), 3);
    let mut spec = layers.spec("a");
    spec.hidden = vec![spec.directory.join("own2"), spec.directory.join("shared/deep")];
    let sandbox = open(&spec);
    assert_eq!(output(&sandbox, "cat own2; ls shared/deep; cat own1"), "1");
    assert_eq!(
        output(&sandbox, "(echo x >own2) 2>/dev/null || echo kept; mv shared other 2>/dev/null || echo kept"),
        "kept\nkept"
    );
}

/// Without mounts, a workspace would have to be copied.
#[test]
fn landlock_alone_supports_no_layers() {
    if super::has(IsolationLevel::Landlock) {
        let layers = layers("plain".as_ref(), 1);
        assert!(!Local::only(IsolationLevel::Landlock).supports_layers_in(&layers.place));
        let error = block_on(Local::only(IsolationLevel::Landlock).open(layers.spec("a"))).unwrap_err();
        assert_eq!(error.code(), "backend-incapable");
    }
}
