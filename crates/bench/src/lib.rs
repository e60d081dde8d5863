//! The workloads of the papers that README names, and what is measured with them: `tidefall bench` and the program `tidefall-bench`.

pub mod cascade;
pub mod report;
pub mod sustained;
pub mod workload;
