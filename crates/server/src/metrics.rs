//! What has happened since the server started, counted.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use tidefall_storage::Db;
use tidefall_types::ErrorKind;

/// The endpoints that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Write,
    Sql,
    Frames,
    Query,
    Status,
    Other,
}

const ROUTES: [(Route, &str); 6] = [
    (Route::Write, "write"),
    (Route::Sql, "sql"),
    (Route::Frames, "frames"),
    (Route::Query, "query"),
    (Route::Status, "status"),
    (Route::Other, "other"),
];

impl Route {
    pub(crate) fn of_path(path: &str) -> Self {
        match path {
            "/write" | "/api/v2/write" => Self::Write,
            "/api/v1/sql" => Self::Sql,
            "/api/v1/frames" => Self::Frames,
            "/query" => Self::Query,
            "/ping" | "/health" | "/metrics" => Self::Status,
            _ => Self::Other,
        }
    }

    /// Whether requests for it count against the limit of requests.
    pub(crate) fn needs_place(self) -> bool {
        self != Self::Status
    }
}

const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

const KINDS: [ErrorKind; 11] = [
    ErrorKind::Invalid,
    ErrorKind::NotFound,
    ErrorKind::Conflict,
    ErrorKind::Corrupt,
    ErrorKind::Io,
    ErrorKind::Full,
    ErrorKind::Limit,
    ErrorKind::Locked,
    ErrorKind::Closed,
    ErrorKind::Unsupported,
    ErrorKind::Internal,
];

/// Upper ends of the classes of durations in microseconds: from a fraction of an fsync to the
/// longest queries.
const BUCKETS_US: [u64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000, 30_000_000,
];

#[derive(Debug, Default)]
struct RouteCounters {
    by_status: [AtomicU64; STATUS_CLASSES.len()],
    /// Requests by duration; those beyond the last bucket are only in `by_status`.
    by_time: [AtomicU64; BUCKETS_US.len()],
    time_us: AtomicU64,
}

/// The counters of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    routes: [RouteCounters; ROUTES.len()],
    errors: [AtomicU64; KINDS.len()],
    rows_written: AtomicU64,
    rows_dropped: AtomicU64,
    rows_replaced: AtomicU64,
    rows_answered: AtomicU64,
    bytes_received: AtomicU64,
    bytes_answered: AtomicU64,
    answers_cut_off: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Metrics {
    /// Counts a request; `time` is the time until its answer began.
    pub(crate) fn request_done(&self, route: Route, status: StatusCode, time: Duration) {
        let counters = &self.routes[route as usize];
        let class = (usize::from(status.as_u16() / 100)).clamp(1, STATUS_CLASSES.len()) - 1;
        add(&counters.by_status[class], 1);
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        add(&counters.time_us, time_us);
        if let Some(bucket) = BUCKETS_US.iter().position(|&end_us| time_us <= end_us) {
            add(&counters.by_time[bucket], 1);
        }
    }

    pub(crate) fn failed(&self, kind: ErrorKind) {
        if let Some(position) = KINDS.iter().position(|&known| known == kind) {
            add(&self.errors[position], 1);
        }
    }

    pub(crate) fn written(&self, rows: usize, dropped: usize) {
        add(&self.rows_written, rows as u64);
        add(&self.rows_dropped, dropped as u64);
    }

    /// Counts rows that took the place of others, where that is known.
    pub(crate) fn replaced(&self, rows: u64) {
        add(&self.rows_replaced, rows);
    }

    pub(crate) fn received(&self, bytes: usize) {
        add(&self.bytes_received, bytes as u64);
    }

    pub(crate) fn answered(&self, rows: usize, bytes: usize) {
        add(&self.rows_answered, rows as u64);
        add(&self.bytes_answered, bytes as u64);
    }

    pub(crate) fn answer_cut_off(&self, kind: ErrorKind) {
        add(&self.answers_cut_off, 1);
        self.failed(kind);
    }

    /// The counters, the bytes of answers that are on their way, and the figures of the database, as Prometheus reads them.
    pub(crate) fn render(&self, db: &Db, answers_bytes: u64) -> String {
        let mut page = Page::default();
        self.render_requests(&mut page);
        page.counter("tidefall_rows_written_total", "Rows written.", get(&self.rows_written));
        let help = "Lines that were refused: malformed, or not fitting their table.";
        page.counter("tidefall_rows_dropped_total", help, get(&self.rows_dropped));
        let help = "Rows that took the place of others, of those written as Arrow or as lines.";
        page.counter("tidefall_rows_replaced_total", help, get(&self.rows_replaced));
        let help = "Bytes of bodies received, as they came.";
        page.counter("tidefall_received_bytes_total", help, get(&self.bytes_received));
        page.counter("tidefall_rows_answered_total", "Rows sent.", get(&self.rows_answered));
        let help = "Bytes of answers to queries.";
        page.counter("tidefall_answered_bytes_total", help, get(&self.bytes_answered));
        let help = "Answers that an error or a limit ended early.";
        page.counter("tidefall_answers_cut_off_total", help, get(&self.answers_cut_off));
        page.head("tidefall_errors_total", "counter", "Failed requests by kind of error.");
        for (kind, counter) in KINDS.iter().zip(&self.errors) {
            let kind = kind.name().replace(' ', "_");
            page.line(format_args!("tidefall_errors_total{{kind=\"{kind}\"}}"), get(counter));
        }
        let help = "Bytes of long answers that are computed or wait for their clients.";
        page.gauge("tidefall_memory_answers_bytes", help, answers_bytes);
        render_database(&mut page, db);
        page.text
    }

    fn render_requests(&self, page: &mut Page) {
        page.head("tidefall_http_requests_total", "counter", "Requests answered.");
        for ((_, route), counters) in ROUTES.iter().zip(&self.routes) {
            for (class, counter) in STATUS_CLASSES.iter().zip(&counters.by_status) {
                let labels = format_args!("route=\"{route}\",status=\"{class}\"");
                page.line(format_args!("tidefall_http_requests_total{{{labels}}}"), get(counter));
            }
        }
        let name = "tidefall_http_request_seconds";
        page.head(name, "histogram", "Time until the answer began.");
        for ((_, route), counters) in ROUTES.iter().zip(&self.routes) {
            let mut below = 0;
            for (end_us, counter) in BUCKETS_US.iter().zip(&counters.by_time) {
                below += get(counter);
                let end = *end_us as f64 / 1e6;
                let labels = format_args!("route=\"{route}\",le=\"{end}\"");
                page.line(format_args!("{name}_bucket{{{labels}}}"), below);
            }
            // Requests may be counted in between; a histogram must not shrink towards its end.
            let all = counters.by_status.iter().map(get).sum::<u64>().max(below);
            page.line(format_args!("{name}_bucket{{route=\"{route}\",le=\"+Inf\"}}"), all);
            let seconds = get(&counters.time_us) as f64 / 1e6;
            page.line(format_args!("{name}_sum{{route=\"{route}\"}}"), seconds);
            page.line(format_args!("{name}_count{{route=\"{route}\"}}"), all);
        }
    }
}

fn render_database(page: &mut Page, db: &Db) {
    let stats = db.stats();
    page.gauge("tidefall_memory_rows_bytes", "Bytes of rows in memory.", stats.kv_bytes);
    page.gauge(
        "tidefall_memory_retained_bytes",
        "Bytes of rows that have left memory and that readers still hold.",
        stats.retained_bytes,
    );
    page.gauge("tidefall_memory_budget_bytes", "The memory budget.", stats.memory_bytes);
    let help = "Commits of the manifest.";
    page.gauge("tidefall_manifest_version", help, stats.manifest_version);
    let help = "1 while writes are taken, 0 after a failure of the disk.";
    page.gauge("tidefall_accepts_writes", help, u64::from(!stats.is_failed));
    render_work(page, db);
    let Ok(tables) = db.inspect() else { return };
    page.gauge("tidefall_tables", "Tables.", tables.len() as u64);
    let sensors = tables.iter().map(|table| u64::from(table.sensors)).sum();
    page.gauge("tidefall_sensors", "Sensors of all tables.", sensors);
    let in_memory = tables.iter().map(|table| table.rows_in_memory).sum();
    page.gauge("tidefall_memory_rows", "Rows in memory.", in_memory);
    let mut models: Vec<(String, [u64; 3])> = Vec::new();
    let of_series = tables.iter().flat_map(|table| &table.models).map(|report| {
        let name = report.model.name();
        (name, [report.objects, report.rows, report.bytes])
    });
    let of_records = tables
        .iter()
        .filter_map(|table| table.segments)
        .map(|report| ("records", [report.objects, report.rows, report.bytes]));
    for (name, figures) in of_series.chain(of_records) {
        let name = name.to_owned();
        let at = models.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            models.push((name, [0; 3]));
            models.len() - 1
        });
        let sums = &mut models[at].1;
        for (sum, more) in sums.iter_mut().zip(figures) {
            *sum += more;
        }
    }
    let figures = [
        ("tidefall_objects", "Objects on disk by storage model."),
        ("tidefall_rows", "Rows on disk by storage model."),
        ("tidefall_object_bytes", "Bytes on disk by storage model."),
    ];
    for (position, (name, help)) in figures.into_iter().enumerate() {
        page.head(name, "gauge", help);
        for (model, sums) in &models {
            page.line(format_args!("{name}{{model=\"{model}\"}}"), sums[position]);
        }
    }
}

fn render_work(page: &mut Page, db: &Db) {
    let work = db.work();
    let help = "Bytes of objects that new rows became.";
    page.counter("tidefall_flushed_bytes_total", help, work.flushed_bytes);
    let help = "Bytes of objects that older objects became.";
    page.counter("tidefall_rewritten_bytes_total", help, work.rewritten_bytes);
    let name = "tidefall_write_amplification";
    page.head(name, "gauge", "How often each byte was written, the log aside.");
    page.line(name, work.amplification().unwrap_or(0.0));
    let help = "Writes that waited for rows to leave memory, or for objects to be laid together.";
    page.counter("tidefall_delayed_writes_total", help, work.delayed_writes);
    let name = "tidefall_delayed_writes_seconds_total";
    page.head(name, "counter", "How long these waited.");
    page.line(name, work.delayed.as_secs_f64());
    let help = "Objects that wait to be laid together with others.";
    page.gauge("tidefall_objects_to_compact", help, work.objects_to_compact);
    let help = "Objects that were replaced and are still on the disk.";
    page.gauge("tidefall_replaced_objects", help, work.replaced_objects);
    let help = "For how long the oldest step of the upkeep has been due.";
    page.gauge("tidefall_behind_seconds", help, work.behind.unwrap_or_default().as_secs());
}

/// Text in the format of Prometheus.
#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: impl Display, value: impl Display) {
        let _ = writeln!(self.text, "{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.line(name, value);
    }
}
