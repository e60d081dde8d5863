//! The binary `tidefall`; see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidefall_storage::limit_arenas();
    tidefall_cli::run(std::env::args_os()).into()
}
