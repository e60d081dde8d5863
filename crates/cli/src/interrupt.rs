//! Ctrl-C, for work that stops where it may and keeps what it has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidefall_types::{Error, Result};

use crate::output::note;

/// What a shell takes for a command that Ctrl-C has ended.
const INTERRUPTED_STATUS: i32 = 130;

/// Whether somebody pressed Ctrl-C. From the first time on it is for the work to stop; the second time ends the process.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Hears Ctrl-C from now on, which no longer ends the process by itself.
    pub(crate) fn listen() -> Result<Self> {
        let failed = |error| Error::io("listening for Ctrl-C", &error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let is_pressed = Arc::new(AtomicBool::new(false));
        let mine = Arc::clone(&is_pressed);
        let listen = move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if mine.swap(true, Ordering::Relaxed) {
                        std::process::exit(INTERRUPTED_STATUS);
                    }
                    note!(
                        "stopping once the rows that are being read are there; Ctrl-C again ends it at once, and loses \
                         what is not on the disk"
                    );
                }
            });
        };
        // It ends with the process.
        std::thread::Builder::new()
            .name("tidefall-interrupt".into())
            .spawn(listen)
            .map_err(failed)?;
        Ok(Self(is_pressed))
    }

    /// An error once somebody has pressed Ctrl-C.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Error::closed("interrupted")),
            false => Ok(()),
        }
    }
}
