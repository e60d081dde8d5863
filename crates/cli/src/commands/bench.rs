//! `tidefall bench`

use tidefall_bench::cascade::{self, CascadeOptions};
use tidefall_bench::report::Report;
use tidefall_types::Error;

use crate::args::{BenchArgs, BenchCascadeArgs, BenchWhat};
use crate::output::{Outcome, say};

pub(crate) fn run(args: BenchArgs) -> Outcome {
    match args.what {
        BenchWhat::Cascade(args) => run_cascade(args),
    }
}

fn run_cascade(args: BenchCascadeArgs) -> Outcome {
    if !(args.seconds.is_finite() && args.seconds > 0.0) {
        return Err(Error::invalid("--seconds must be above 0").into());
    }
    let options = CascadeOptions {
        sensors: args.sensors,
        days: args.days,
        memory_mib: args.memory,
        seconds: args.seconds,
        work: args.work,
    };
    let mut said = Ok(());
    cascade::run(&options, &mut |report| match args.json {
        true => report.print(),
        false if said.is_ok() => said = print_line(&report),
        false => {}
    })?;
    said
}

/// The median, how far the runs lie apart, and how it was measured.
fn print_line(report: &Report) -> Outcome {
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
    say!("{:<52} {amount:>10} {} {spread}  ({}{more})", report.bench, report.unit, report.settings)
}
