//! `/debug/api_priority_and_fairness/`: what the queues look like at this moment, as tables for people.
//!
//! Mirrors `apf_controller_debug.go`. Of requests, those that wait are shown; those that are executed are counted only.

use std::fmt::Write as _;

use http::{Response, StatusCode};

use super::FlowControl;
use crate::body::{self, Body};
use crate::request::Query;

const PREFIX: &str = "/debug/api_priority_and_fairness/";

/// Answers a request for a dump; `None` if the path is none.
pub(crate) fn answer(control: &FlowControl, path: &str, query: &Query) -> Option<Response<Body>> {
    let table = match path.strip_prefix(PREFIX)? {
        "dump_priority_levels" => control.dump_levels(),
        "dump_queues" => control.dump_queues(),
        "dump_requests" => control.dump_requests(query.get("includeRequestDetails").is_some()),
        _ => return None,
    };
    Some(body::text(StatusCode::OK, &aligned(&table)))
}

pub(super) type Row = Vec<String>;

fn row<const N: usize>(columns: [&dyn std::fmt::Display; N]) -> Row {
    columns.iter().map(ToString::to_string).collect()
}

impl FlowControl {
    pub(super) fn dump_levels(&self) -> Vec<Row> {
        let mut rows = vec![row([
            &"PriorityLevelName",
            &"ActiveQueues",
            &"IsIdle",
            &"IsQuiescing",
            &"WaitingRequests",
            &"ExecutingRequests",
            &"DispatchedRequests",
            &"RejectedRequests",
            &"TimedoutRequests",
            &"CancelledRequests",
        ])];
        for level in self.levels.lock().by_name.values() {
            let state = level.state.lock();
            let active = state.set.queues().iter().filter(|queue| queue.waiting().len() > 0).count();
            rows.push(row([
                &level.name,
                &active,
                &state.set.is_idle(),
                &state.is_quiescing,
                &state.set.waiting(),
                &state.set.executing(),
                &state.totals.dispatched,
                &state.totals.rejected,
                &state.totals.timed_out,
                &state.totals.cancelled,
            ]));
        }
        rows
    }

    fn dump_queues(&self) -> Vec<Row> {
        let mut rows = vec![row([
            &"PriorityLevelName",
            &"Index",
            &"PendingRequests",
            &"ExecutingRequests",
            &"SeatsInUse",
            &"NextDispatchR",
            &"InitialSeatsSum",
            &"MaxSeatsSum",
            &"TotalWorkSum",
        ])];
        for level in self.levels.lock().by_name.values() {
            let state = level.state.lock();
            for (index, queue) in state.set.queues().iter().enumerate() {
                let seats = queue.waiting().map(|(_, work)| (work.initial, work.width()));
                let (initial, widest) = seats.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                rows.push(row([
                    &level.name,
                    &index,
                    &queue.waiting().len(),
                    &queue.executing(),
                    &queue.seats_in_use(),
                    &format_args!("{:.8}ss", queue.next_dispatch()),
                    &initial,
                    &widest,
                    &format_args!("{:.8}ss", queue.work_waiting()),
                ]));
            }
        }
        rows
    }

    fn dump_requests(&self, details: bool) -> Vec<Row> {
        let mut head = row([
            &"PriorityLevelName",
            &"FlowSchemaName",
            &"QueueIndex",
            &"RequestIndexInQueue",
            &"FlowDistingsher",
            &"ArriveTime",
            &"InitialSeats",
            &"FinalSeats",
            &"AdditionalLatency",
            &"StartTime",
        ]);
        if details {
            head.extend(row([
                &"UserName",
                &"Verb",
                &"APIPath",
                &"Namespace",
                &"Name",
                &"APIVersion",
                &"Resource",
                &"SubResource",
            ]));
        }
        let mut rows = vec![head];
        for level in self.levels.lock().by_name.values() {
            let state = level.state.lock();
            for (queue_index, queue) in state.set.queues().iter().enumerate() {
                for (index, (waiter, work)) in queue.waiting().enumerate() {
                    let about = &waiter.about;
                    let mut columns = row([
                        &level.name,
                        &state.schemas[waiter.schema].name,
                        &queue_index,
                        &index,
                        &about.distinguisher,
                        &about.arrived,
                        &work.initial,
                        &work.last,
                        &format_args!("{}ms", work.linger / 1_000_000),
                        &"0001-01-01T00:00:00Z",
                    ]);
                    if details {
                        columns.extend(row([
                            &about.user,
                            &about.verb,
                            &about.path,
                            &about.namespace,
                            &about.name,
                            &about.api_version,
                            &about.resource,
                            &about.subresource,
                        ]));
                    }
                    rows.push(columns);
                }
            }
        }
        rows
    }
}

/// Columns are as wide as their widest cell, at least 8, and separated by commas.
fn aligned(rows: &[Row]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count() + 2).max().unwrap_or_default().max(8);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (i, cell) in row.iter().enumerate() {
            if i + 1 == columns {
                out.push_str(cell);
            } else {
                let _ = write!(out, "{:width$}", format!("{cell},"), width = widths[i]);
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [row([&"PriorityLevelName", &"Index"]), row([&"exempt", &1])];
        assert_eq!(aligned(&rows), "PriorityLevelName, Index\nexempt,            1\n");
    }
}
