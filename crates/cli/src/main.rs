//! The binary `tidefall`; see the library beside it.

use std::process::ExitCode;

// Beside the system's, which keeps what many threads have freed in many places: it writes a fifth more readings of many sensors
// a second, and stays within the memory budget for as long as that goes on. Its second version gives free memory back after a tenth of
// a second, the third after a whole one, in which a hundred MiB are freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidefall_cli::run(std::env::args_os()).into()
}
