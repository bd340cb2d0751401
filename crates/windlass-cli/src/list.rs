//! `windlass list`: the clusters on this machine.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::args::List;
use crate::home::Home;
use crate::output;

pub(crate) fn run(args: &List) -> Result<ExitCode> {
    let homes = Home::names()?.into_iter().map(|name| Home::of(&name)).collect::<Result<Vec<Home>>>()?;
    let document = || {
        let cluster = |home: &Home| {
            let run = home.running();
            json!({"name": home.name, "running": run.is_some(), "server": run.and_then(|run| run.server)})
        };
        homes.iter().map(cluster).collect()
    };
    if output::document(args.output, document) {
        return Ok(ExitCode::SUCCESS);
    }
    if homes.is_empty() {
        output::line("no clusters; start one with `windlass up`");
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("{:<20} {:<9} SERVER", "NAME", "STATE"));
    for home in &homes {
        let run = home.running();
        let state = if run.is_some() { "running" } else { "stopped" };
        let server = run.and_then(|run| run.server).unwrap_or_default();
        output::line(format_args!("{:<20} {state:<9} {server}", home.name));
    }
    Ok(ExitCode::SUCCESS)
}
