//! `tidefall serve`

use tidefall_server::{Server, ServerOptions, termination};
use tidefall_types::Result;

use super::runtime;
use crate::args::ServeArgs;

pub(crate) fn run(args: ServeArgs) -> Result<()> {
    let db = args.open()?;
    let options = ServerOptions {
        address: args.listen,
        body_bytes_max: args.body_max,
        ..ServerOptions::default()
    };
    runtime()?.block_on(async {
        let server = Server::bind(db, options).await?;
        println!("Tidefall listens on http://{}", server.address()?);
        server.run(termination()).await
    })
}
