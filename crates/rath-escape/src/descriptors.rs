//! Attempts to use inherited descriptors.

use std::fs::{self, File};

use crate::attempt::{Attempt, Tried, harmless, refused};
use crate::facts::Facts;
use crate::sys::{any_of, c_path, call, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("inherited-files", "use an inherited descriptor other than 0, 1 and 2", inherited),
    harmless("reopen-standard", "open a standard stream again for writing to the file behind it", reopen),
    harmless("open-by-handle", "open a file by its handle, past all paths", by_handle),
];

fn inherited(_: &Facts) -> Tried {
    let open = (3..4096).filter(|number| call!(libc::SYS_fcntl, *number, libc::F_GETFD).is_ok());
    any_of("open files", open, |number: i32| {
        let to = fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
        Ok(format!("{number} leads to {}", to.display()))
    })
}

fn reopen(_: &Facts) -> Tried {
    any_of("streams", 0..3, |number| {
        let path = format!("/proc/self/fd/{number}");
        let file = File::options().write(true).open(&path)?;
        match file.metadata()?.is_file() {
            true => Ok(format!("may write to {}", fs::read_link(path)?.display())),
            false => Err(refused(format!("{number} is not a file"))),
        }
    })
}

#[repr(C)]
struct Handle {
    size: u32,
    kind: i32,
    bytes: [u8; 128],
}

fn by_handle(_: &Facts) -> Tried {
    let mut handle = Handle { size: 128, kind: 0, bytes: [0; 128] };
    let (mut mount, path) = (0i32, c_path("."));
    let here = libc::AT_FDCWD;
    let (to, id) = (&raw mut handle, &raw mut mount);
    call!(libc::SYS_name_to_handle_at, here, path.as_ptr(), to, id, 0).map_err(named("name_to_handle_at"))?;
    call!(libc::SYS_open_by_handle_at, here, to, libc::O_RDONLY).map_err(named("open_by_handle_at"))?;
    Ok("opened the workspace by its handle; any file of the disk can be had so".to_owned())
}
