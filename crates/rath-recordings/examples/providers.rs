//! Compares recorded answers of providers with what the vendors' own clients made of them: `cargo xtask providers
//! [DIR]`.

use std::path::Path;
use std::process::ExitCode;

use rath_recordings::check;

/// Checks every recording in a folder. The last line of the output is the count.
fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("error: missing argument: the folder with the recordings");
        return ExitCode::FAILURE;
    };
    let folder = Path::new(&folder);
    if !folder.join("recordings").is_dir() {
        println!("skipped: no recordings in {}", folder.display());
        println!("0 equal, 0 differ, 0 skipped");
        return ExitCode::SUCCESS;
    }
    match check(folder) {
        Ok(report) => {
            println!("{report}");
            if report.differ() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: cannot read {}: {error:#}", folder.display());
            ExitCode::FAILURE
        }
    }
}
