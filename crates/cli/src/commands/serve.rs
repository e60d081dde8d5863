//! `tidefall serve`

use tidefall_server::{Server, ServerOptions, termination};

use super::runtime;
use crate::args::ServeArgs;
use crate::output::{Outcome, Stop, say};

pub(crate) fn run(args: ServeArgs) -> Outcome {
    let db = args.open()?;
    let options = ServerOptions {
        address: args.listen,
        body_bytes_max: args.body_max,
        ..ServerOptions::default()
    };
    runtime()?.block_on(async {
        let server = Server::bind(db, options).await?;
        // A server has work to do, whoever reads this.
        let _ = say!("Tidefall listens on http://{}", server.address()?);
        server.run(termination()).await?;
        Ok::<_, Stop>(())
    })
}
