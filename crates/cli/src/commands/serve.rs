//! `tidefall serve`

use tidefall_server::{Server, ServerOptions, listen, termination};

use super::runtime;
use crate::args::ServeArgs;
use crate::output::{Outcome, Stop, say};

pub(crate) fn run(args: ServeArgs) -> Outcome {
    let options = ServerOptions {
        address: args.listen,
        body_bytes_max: args.body_max,
        ..ServerOptions::default()
    };
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
