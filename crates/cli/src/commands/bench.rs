//! `tidefall bench`

use tidefall_bench::cascade::{self, CascadeOptions};
use tidefall_bench::report::Report;
use tidefall_types::{Error, Result};

use crate::args::{BenchArgs, BenchCascadeArgs, BenchWhat};

pub(crate) fn run(args: BenchArgs) -> Result<()> {
    match args.what {
        BenchWhat::Cascade(args) => run_cascade(args),
    }
}

fn run_cascade(args: BenchCascadeArgs) -> Result<()> {
    if !(args.seconds.is_finite() && args.seconds > 0.0) {
        return Err(Error::invalid("--seconds must be above 0"));
    }
    let options = CascadeOptions {
        sensors: args.sensors,
        days: args.days,
        memory_mib: args.memory,
        seconds: args.seconds,
        work: args.work,
    };
    cascade::run(&options, &mut |report| match args.json {
        true => report.print(),
        false => print_line(&report),
    })
}

/// The median, how far the runs lie apart, and how it was measured.
fn print_line(report: &Report) {
    let (median, spread) = report.median_and_spread();
    let amount = match median {
        1e6.. => format!("{:.2} M", median / 1e6),
        1e3.. => format!("{median:.0}"),
        _ => format!("{median:.3}"),
    };
    let spread = format!("\u{b1}{:.0} %", spread * 50.0);
    let more: String = report
        .more
        .iter()
        .map(|(name, value)| format!("; {} {value:.3}", name.replace('_', " ")))
        .collect();
    println!(
        "{:<52} {amount:>10} {} {spread}  ({}{more})",
        report.bench, report.unit, report.settings
    );
}
