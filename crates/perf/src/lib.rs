//! Measurements of Outboard: workloads, processor accounting, results and reports.
//!
//! A *workload* ([`file`], [`load`], [`idle`]) is run on several *subjects* (the kernel, the host
//! architecture, a front-end processor), each on a [`site::Site`] of its own in the laboratory, in alternating trials
//! ([`runner`]). Before and after each part of a trial the site's clocks are read ([`meter`]). What comes out is one
//! [`results::Document`], of which [`report`] makes tables and pictures.
//!
//! Reading order: [`results`], [`site`], [`meter`], [`runner`], then a workload. [`ends`] is the native program that
//! the workloads run beside unmodified ones.

pub mod compare;
pub mod content;
pub mod ends;
pub mod file;
mod histogram;
pub mod hogs;
pub mod idle;
pub mod interrupt;
pub mod load;
pub mod machine;
pub mod meter;
pub mod metrics;
mod native;
pub mod pattern;
pub mod progress;
pub mod remote;
pub mod report;
pub mod reproduce;
mod reserve;
pub mod results;
pub mod runner;
pub mod schema;
pub mod site;
pub mod stats;
pub mod steer;
pub mod storm;
pub mod trace;
pub mod units;

pub use lab;
