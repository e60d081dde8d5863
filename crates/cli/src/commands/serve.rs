//! `tidefall serve`

use tidefall_server::{Server, ServerOptions, listen, termination};
use tidefall_storage::store::allow_more_files;

use super::runtime;
use crate::args::ServeArgs;
use crate::output::{Outcome, Stop, note, say};

pub(crate) fn run(args: ServeArgs) -> Outcome {
    let options = ServerOptions {
        address: args.listen,
        body_bytes_max: args.body_max,
        ..ServerOptions::default()
    };
    // Without that it serves fewer connections and objects at a time.
    if let Err(error) = allow_more_files() {
        note!("{error}");
    }
    runtime()?.block_on(async {
        // First of all: where the port is in use, no new database must be left behind.
        let listener = listen(args.listen).await?;
        let server = Server::new(listener, args.open()?, options)?;
        // A server has work to do, whoever reads this.
        let _ = say!("Tidefall listens on http://{}", server.address()?);
        server.run(termination()).await?;
        Ok::<_, Stop>(())
    })
}
