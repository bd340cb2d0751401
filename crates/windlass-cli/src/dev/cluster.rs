//! What the inner loop does to the cluster: definitions, samples, and the events that it shows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::samples::{Content, Sample};
use crate::against::apply::{self, Change, Done};
use crate::against::definitions::is_definition;
use crate::against::kinds::Kinds;
use crate::against::{POLL, documents, is_missing, order, request};
use crate::args::Operator;
use crate::operator;

/// How long samples may be refused while the operator starts: its webhooks may not answer yet.
const SAMPLES_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a kind may take to be served, and deleted samples to go.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many events are shown.
const EVENTS: usize = 15;

/// The cluster, as the tasks of the loop use it.
#[derive(Clone)]
pub(super) struct Cluster {
    pub client: kube::Client,
    pub namespace: String,
    pub samples: PathBuf,
    /// The groups and kinds whose versions the operator converts.
    pub converted: Vec<(String, String)>,
}

/// Samples that were read, and what became of applying them.
pub(super) struct Applied {
    /// What each file holds; empty if a file cannot be read.
    pub files: Vec<Content>,
    pub result: Result<Vec<Done>>,
}

impl Cluster {
    fn options(&self) -> apply::Options {
        let namespace = self.namespace.clone();
        apply::Options { namespace, dry_run: false, force: true, timeout: TIMEOUT, notes: false }
    }

    /// Installs the definitions that the program declares, if they are not those that were installed before. Returns
    /// them, and the names of those that are new or have changed.
    pub(super) async fn install(
        &self,
        program: &Path,
        operator: &Operator,
        arguments: &[String],
        before: &[Value],
    ) -> Result<(Vec<Value>, Vec<String>)> {
        let (program, operator) = (program.to_owned(), operator.clone());
        let (arguments, namespace) = (arguments.to_vec(), self.namespace.clone());
        let asked = tokio::task::spawn_blocking(move || {
            operator::manifests_of(&program, &operator, &arguments, Some(&namespace))
        });
        let mut definitions = asked.await.context("the operator was not asked")??;
        definitions.retain(is_definition);
        let changed: Vec<Value> =
            definitions.iter().filter(|definition| !before.contains(definition)).cloned().collect();
        let name = |definition: &Value| definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names = changed.iter().map(name).collect();
        if !changed.is_empty() {
            apply::apply_all(&self.client, changed, &self.options(), |_| {}).await?;
        }
        Ok((definitions, names))
    }

    /// The samples of these files, or all: what each file holds. One that is gone holds nothing.
    fn read(&self, files: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<Value>)>> {
        let files = match files {
            [] if self.samples.exists() => documents::files(&self.samples, true)?,
            [] => Vec::new(),
            // A directory that was gone and is there again: its files are reported by themselves.
            named => named.iter().filter(|path| !path.is_dir()).cloned().collect(),
        };
        let held = files.into_iter().map(|file| {
            let objects = if file.exists() { documents::read_file(&file)? } else { Vec::new() };
            Ok((file, objects))
        });
        held.collect()
    }

    /// Applies the samples of these files, or all.
    pub(super) async fn apply(&self, files: &[PathBuf]) -> Applied {
        let read = match self.read(files) {
            Ok(read) => read,
            Err(error) => return Applied { files: Vec::new(), result: Err(error) },
        };
        let of_file = |(path, objects): &(PathBuf, Vec<Value>)| Content {
            path: path.clone(),
            objects: objects.iter().map(|object| Sample::of(object, &self.namespace)).collect(),
        };
        let files = read.iter().map(of_file).collect();
        let objects = read.into_iter().flat_map(|(_, objects)| objects).collect();
        Applied { files, result: self.apply_objects(objects).await }
    }

    async fn apply_objects(&self, mut objects: Vec<Value>) -> Result<Vec<Done>> {
        let until = Instant::now() + SAMPLES_TIMEOUT;
        self.wait_for_conversions(&objects, until).await?;
        let mut all = Vec::new();
        loop {
            let done = apply::apply(&self.client, objects.clone(), &self.options(), |_| {}).await?;
            let (failed, applied): (Vec<Done>, Vec<Done>) = done.into_iter().partition(Done::failed);
            all.extend(applied);
            let Some(first) = failed.first() else { return Ok(all) };
            // What the server refuses for good is not tried again.
            let waits = failed.iter().all(|done| matches!(&done.change, Change::Failed(why) if is_passing(why)));
            if !waits || Instant::now() >= until {
                let Change::Failed(why) = &first.change else { bail!("{} failed", first.title()) };
                bail!("{}: {why}", first.title());
            }
            objects.retain(|object| failed.iter().any(|done| same(done, object)));
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the operator has registered its conversions. Before that, the server takes a sample of another version
    /// for one of the version that is stored, and drops the fields that this does not have.
    async fn wait_for_conversions(&self, objects: &[Value], until: Instant) -> Result<()> {
        let group = |object: &Value| object["apiVersion"].as_str()?.split_once('/').map(|(group, _)| group.to_owned());
        let has_sample = |(of, kind): &(String, String)| {
            objects.iter().any(|object| object["kind"] == kind.as_str() && group(object).as_ref() == Some(of))
        };
        let needed: Vec<_> = self.converted.iter().filter(|one| has_sample(one)).collect();
        while !needed.is_empty() && Instant::now() < until {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let definitions = self.client.request::<Value>(request("GET", path, None)?).await?;
            let is_converted = |(group, kind): &(String, String)| {
                definitions["items"].as_array().into_iter().flatten().any(|definition| {
                    let spec = &definition["spec"];
                    spec["group"] == group.as_str()
                        && spec["names"]["kind"] == kind.as_str()
                        && spec["conversion"]["strategy"] == "Webhook"
                })
            };
            if needed.iter().all(|one| is_converted(one)) {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Deletes objects, and does not wait until they are gone: the operator may have to clean up first.
    pub(super) async fn delete(&self, samples: &[Sample]) -> Result<()> {
        let mut kinds = Kinds::new(self.client.clone());
        for sample in samples {
            // The kind may be gone, and the object with it.
            let Some(place) = kinds.place(&sample.api_version, &sample.kind).await? else { continue };
            let path = place.object(Some(&sample.namespace), &sample.name);
            match self.client.request::<Value>(request("DELETE", &path, None)?).await {
                Err(error) if !is_missing(&error) => {
                    return Err(error).with_context(|| format!("cannot delete {path}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes all samples, waits until they are gone, and applies them again.
    pub(super) async fn recreate(&self) -> Applied {
        match self.delete_all().await {
            Ok(()) => self.apply(&[]).await,
            Err(error) => Applied { files: Vec::new(), result: Err(error) },
        }
    }

    async fn delete_all(&self) -> Result<()> {
        let mut objects: Vec<Value> = self.read(&[])?.into_iter().flat_map(|(_, objects)| objects).collect();
        order::sort(&mut objects);
        let mut kinds = Kinds::new(self.client.clone());
        let mut paths = Vec::new();
        for object in objects.iter().rev() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let Some(place) = kinds.place(&text(&object["apiVersion"]), &text(&object["kind"])).await? else {
                continue;
            };
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
            let path = place.object(Some(namespace), &text(&object["metadata"]["name"]));
            match self.client.request::<Value>(request("DELETE", &path, None)?).await {
                Err(error) if !is_missing(&error) => {
                    return Err(error).with_context(|| format!("cannot delete {path}"));
                }
                _ => paths.push(path),
            }
        }
        let until = Instant::now() + TIMEOUT;
        for path in paths {
            while apply::get(&self.client, &path).await?.is_some() {
                if Instant::now() >= until {
                    bail!("{path} is not gone after {} s: its finalizers wait for the operator", TIMEOUT.as_secs());
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// The last events about objects of these definitions' kinds.
    pub(super) async fn events(&self, definitions: &[Value]) -> Result<Vec<String>> {
        let kinds: Vec<&Value> = definitions.iter().map(|definition| &definition["spec"]["names"]["kind"]).collect();
        let list: Value = self.client.request(request("GET", "/api/v1/events?limit=1000", None)?).await?;
        let items = list["items"].as_array().into_iter().flatten();
        let mut found: Vec<(String, String)> =
            items.filter(|event| kinds.contains(&&event["involvedObject"]["kind"])).map(event).collect();
        found.sort();
        let from = found.len().saturating_sub(EVENTS);
        Ok(found.split_off(from).into_iter().map(|(_, line)| line).collect())
    }
}

/// When an event was seen last, and its line.
fn event(event: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    let time = times.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned();
    let object = &event["involvedObject"];
    let line = format!(
        "{time} {} {} {}: {} {}",
        text(&event["type"]),
        text(&object["kind"]),
        text(&object["name"]),
        text(&event["reason"]),
        text(&event["message"])
    );
    (time, line)
}

/// Whether a refusal may be over in a moment, as that of a webhook that is not served yet.
fn is_passing(why: &str) -> bool {
    ["failed calling webhook", "conversion webhook", "connection refused", "no kind"]
        .iter()
        .any(|part| why.contains(part))
}

fn same(done: &Done, object: &Value) -> bool {
    object["kind"] == done.kind.as_str()
        && object["apiVersion"] == done.api_version.as_str()
        && object["metadata"]["name"] == done.name.as_str()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const HEN: &str = "/apis/farm.example.com/v2/namespaces/default/hens/hen";

    /// A server whose kind is converted from the `after`th look at it on, and the requests that it was sent.
    fn server(after: usize) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let requests = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (method, path) = (request.method().as_str(), request.uri().path());
            let mut requests = requests.lock().expect("not poisoned");
            requests.push(format!("{method} {path}"));
            let looks = requests.iter().filter(|request| request.ends_with(DEFINITIONS)).count();
            let strategy = if looks >= after { "Webhook" } else { "None" };
            let (status, answer) = match (method, path) {
                ("GET", DEFINITIONS) => {
                    let names = json!({"kind": "Hen", "plural": "hens"});
                    let spec =
                        json!({"group": "farm.example.com", "names": names, "conversion": {"strategy": strategy}});
                    (StatusCode::OK, json!({"items": [{"spec": spec}]}))
                }
                ("GET", "/apis/farm.example.com/v2") => {
                    let hens = json!({"name": "hens", "namespaced": true, "kind": "Hen", "verbs": ["patch"]});
                    (StatusCode::OK, json!({"resources": [hens]}))
                }
                ("PATCH", HEN) => (StatusCode::OK, json!({"metadata": {"name": "hen", "resourceVersion": "1"}})),
                _ => {
                    let status = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
                    (StatusCode::NOT_FOUND, status)
                }
            };
            let response = Response::builder().status(status).header("content-type", "application/json");
            std::future::ready(response.body(Body::from(answer.to_string().into_bytes())))
        });
        (kube::Client::new(service, "default"), asked)
    }

    /// Applies a sample of the kind, and returns how often its definition was looked at before that.
    async fn looks_before_the_sample(converted: &[(&str, &str)], after: usize) -> usize {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let samples = directory.path().join("hen.yaml");
        std::fs::write(&samples, "apiVersion: farm.example.com/v2\nkind: Hen\nmetadata: {name: hen}\n")
            .expect("written");
        let (client, asked) = server(after);
        let converted = converted.iter().map(|(group, kind)| ((*group).to_owned(), (*kind).to_owned())).collect();
        let cluster = Cluster { client, namespace: "default".to_owned(), samples, converted };
        let done = cluster.apply(&[]).await.result.expect("applied");
        assert_eq!(done.len(), 1);
        let asked = asked.lock().expect("not poisoned");
        let patch = asked.iter().position(|request| *request == format!("PATCH {HEN}")).expect("it was applied");
        let looks = asked.iter().filter(|request| request.ends_with(DEFINITIONS)).count();
        assert_eq!(asked[..patch].iter().filter(|request| request.ends_with(DEFINITIONS)).count(), looks, "{asked:?}");
        looks
    }

    #[tokio::test]
    async fn samples_wait_until_their_kind_is_converted() {
        assert_eq!(looks_before_the_sample(&[("farm.example.com", "Hen")], 3).await, 3);
        assert_eq!(looks_before_the_sample(&[("farm.example.com", "Hen")], 1).await, 1);
        // Neither kinds without conversion nor those without samples are waited for.
        assert_eq!(looks_before_the_sample(&[], 9).await, 0);
        assert_eq!(looks_before_the_sample(&[("zoo.example.com", "Hen"), ("farm.example.com", "Egg")], 9).await, 0);
    }
}
