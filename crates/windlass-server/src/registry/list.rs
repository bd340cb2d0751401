//! GET a collection: selectors, pages, revisions, and the list as a stream of bytes.

use bytes::Bytes;
use windlass_store::{Entry, Range, StoreError};

use super::continue_token::{self, Token};
use super::get::wait_for;
use super::matcher::Matcher;
use super::{Answer, Context};
use crate::answer::ListMeta;
use crate::field::quote;
use crate::options::{ListOptions, VersionMatch, parse_revision};
use crate::status::Status;

/// How many entries are read at once while a selector is looking for matches.
const SCAN: usize = 2000;

/// What a list holds.
pub(super) struct Page {
    /// The matching objects, in key order.
    pub entries: Vec<Entry>,
    /// The list's own metadata.
    pub meta: ListMeta,
}

impl Page {
    /// The page as the answer to a request.
    pub(super) fn answer(self, context: &Context) -> Answer {
        Answer::List { entries: self.entries, meta: self.meta, warnings: context.warnings.clone() }
    }
}

/// Answers a list.
pub(super) async fn list(context: &Context) -> Result<Answer, Status> {
    let options = ListOptions::parse(&context.query, false)?;
    let page = select(context, options).await?;
    Ok(page.answer(context))
}

/// Reads the objects that a list or deletecollection is about.
pub(super) async fn select(context: &Context, options: ListOptions) -> Result<Page, Status> {
    let from_cache = options.resource_version.as_deref() == Some("0");
    let limit = if from_cache { 0 } else { options.limit };
    let at = revision_to_read(context, &options).await?;
    let prefix = prefix(context);
    let (at, start) = match &options.continue_token {
        Some(token) => {
            let Token { revision, start } = continue_token::decode(token)?;
            if let Some(revision) = revision {
                wait_for(context, revision).await?;
            }
            (revision, Some(start))
        }
        None => (at, None),
    };
    let matcher = Matcher::new(&context.served, options.labels, options.fields)?;
    let mut range = Range::prefix(prefix.clone());
    if let Some(start) = &start {
        range = range.starting_at(format!("{prefix}{start}"));
    }
    if let (Some(name), true) = (matcher.only_name(), context.path.namespace.is_some() || !context.served.namespaced) {
        // One key can match: read that one.
        range = one_key(range, format!("{prefix}{name}"));
    }
    let mut found = read(context, &matcher, range, at, limit, start.as_deref()).await?;
    let more = found.more.take();
    let meta = ListMeta {
        revision: found.revision,
        remaining: more.as_ref().filter(|_| matcher.is_empty()).map(|more| more.remaining),
        continue_token: more.map(|more| continue_token::encode(found.revision, &more.last, &prefix)),
    };
    Ok(Page { entries: found.entries, meta })
}

struct Found {
    revision: u64,
    entries: Vec<Entry>,
    more: Option<More>,
}

struct More {
    last: Bytes,
    remaining: usize,
}

async fn read(
    context: &Context,
    matcher: &Matcher,
    mut range: Range,
    mut at: Option<u64>,
    limit: usize,
    continued_at: Option<&str>,
) -> Result<Found, Status> {
    let failed = |error| match error {
        StoreError::Compacted { .. } => expired(continued_at),
        other => Status::internal(other),
    };
    if matcher.is_empty() {
        let snapshot = context.api.store.range(range, at, limit).await.map_err(failed)?;
        let last = snapshot.entries.last().filter(|_| snapshot.remaining > 0).map(|entry| entry.key.clone());
        let more = last.map(|last| More { last, remaining: snapshot.remaining });
        return Ok(Found { revision: snapshot.revision, entries: snapshot.entries, more });
    }
    let mut entries = Vec::new();
    loop {
        let scan = if limit == 0 { 0 } else { SCAN.max(limit) };
        let snapshot = context.api.store.range(range.clone(), at, scan).await.map_err(failed)?;
        at = Some(snapshot.revision);
        let last = snapshot.entries.last().map(|entry| entry.key.clone());
        let read = snapshot.entries.len();
        let matches = matcher.select(&context.api, &snapshot.entries).await?;
        for (i, (entry, matches)) in snapshot.entries.into_iter().zip(matches).enumerate() {
            if matches {
                let key = entry.key.clone();
                entries.push(entry);
                if entries.len() == limit {
                    let remaining = read - i - 1 + snapshot.remaining;
                    let more = (remaining > 0).then_some(More { last: key, remaining });
                    return Ok(Found { revision: snapshot.revision, entries, more });
                }
            }
        }
        match last {
            Some(last) if snapshot.remaining > 0 => range = range.starting_at(after(&last)),
            _ => return Ok(Found { revision: snapshot.revision, entries, more: None }),
        }
    }
}

/// The key right behind `key`.
fn after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

fn one_key(range: Range, key: String) -> Range {
    let end = after(key.as_bytes());
    let start = range.start.max(Bytes::from(key));
    Range { end: Some(Bytes::from(end).max(start.clone())), start }
}

/// The prefix of the keys that the path is about.
pub(super) fn prefix(context: &Context) -> String {
    match &context.path.namespace {
        Some(namespace) => format!("{}{namespace}/", context.served.prefix),
        None => context.served.prefix.to_string(),
    }
}

/// The revision to read at: `None` is the newest. Waits for a revision that is still to come.
async fn revision_to_read(context: &Context, options: &ListOptions) -> Result<Option<u64>, Status> {
    let Some(text) = options.resource_version.as_deref() else { return Ok(None) };
    if options.continue_token.is_some() && text != "0" {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    let revision = parse_revision(text).map_err(|why| {
        Status::bad_request(format!("invalid resource version: resourceVersion: Invalid value: {}: {why}", quote(text)))
    })?;
    wait_for(context, revision).await?;
    let exact = match options.version_match {
        Some(how) => how == VersionMatch::Exact,
        None => options.limit > 0 && revision > 0,
    };
    Ok(exact.then_some(revision))
}

fn expired(start: Option<&str>) -> Status {
    let Some(start) = start else { return Status::expired("The resourceVersion for the provided list is too old.") };
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token = Some(continue_token::encode_inconsistent(start));
    status
}
