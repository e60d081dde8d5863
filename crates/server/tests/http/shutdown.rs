//! Stopping while clients write and read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidefall_sql::Session;

use crate::client::{TestServer, open, send};

#[test]
fn what_was_acknowledged_is_there_after_a_shutdown_under_load() {
    const CLIENTS: usize = 8;
    let mut server = TestServer::start();
    let address = server.address;
    let acknowledged: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let sent: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (acknowledged, sent) = (&acknowledged[client], &sent[client]);
            scope.spawn(move || {
                for i in 0.. {
                    let line = format!("m,client=c{client} v={i} {i}");
                    sent.store(i + 1, Ordering::Release);
                    match send(address, "POST", "/write", "", line.as_bytes()) {
                        Ok(reply) if reply.status == 204 => {
                            acknowledged.store(i + 1, Ordering::Release);
                        }
                        // The server is gone, or about to be.
                        _ => break,
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(700));
        let start = Instant::now();
        server.stop();
        server.join();
        assert!(start.elapsed() < Duration::from_secs(10), "stopping took {:?}", start.elapsed());
    });
    let session = Session::new(open(&server.dir));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for client in 0..CLIENTS {
        let sql = format!("SELECT count(*) AS n FROM m WHERE client = 'c{client}'");
        let batches = runtime.block_on(session.collect(&sql)).unwrap();
        let count = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int64Type>(
            batches[0].column(0),
        )
        .value(0) as u64;
        let acknowledged = acknowledged[client].load(Ordering::Acquire);
        let sent = sent[client].load(Ordering::Acquire);
        assert!(acknowledged > 0, "client {client} never wrote");
        assert!(
            (acknowledged..=sent).contains(&count),
            "client {client}: {acknowledged} acknowledged, {sent} sent, {count} there"
        );
    }
}

#[test]
fn idle_connections_do_not_hold_it_up() {
    let mut server = TestServer::start();
    let _idle: Vec<_> =
        (0..5).map(|_| std::net::TcpStream::connect(server.address).unwrap()).collect();
    let start = Instant::now();
    server.stop();
    server.join();
    assert!(start.elapsed() < Duration::from_secs(5), "stopping took {:?}", start.elapsed());
}
