//! What happens in the demos of the examples.
//!
//! Objects are written as a user writes them: no type of an example is used here, only its operator.

use anyhow::Result;
use futures::FutureExt as _;
use pod_crud::crud;
use serde_json::{Value, json};
use workloads::app::App;
use workloads::progress;

use super::display::Playbill;
use super::tale::{Scene, Tale, local};

/// The demos, in the order in which they are listed.
pub(crate) const ALL: &[Tale] =
    &[AT, SAMPLE_CONTROLLER, APP_SERVICE, GUESTBOOK, IP_POOL, HOME, POD_CRUD, WORKLOADS, OPEN_TELEMETRY_COLLECTOR];

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// An object in the namespace `default`.
fn object(api_version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "namespace": "default" });
    json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec })
}

/// Whether the condition `Ready` is true for the spec as it is now.
fn is_ready(object: &Value) -> bool {
    ready(object).is_some_and(|condition| condition["status"] == "True")
}

fn reason_is(object: &Value, reason: &str) -> bool {
    ready(object).is_some_and(|condition| condition["reason"] == reason)
}

fn ready(object: &Value) -> Option<&Value> {
    let generation = &object["metadata"]["generation"];
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready" && condition["observedGeneration"] == *generation)
}

const AT: Tale = Tale {
    name: "at",
    playbill: Playbill {
        about: "a command that runs once, in a Pod, when its time has come",
        objects: "objects",
        commands: &["get ats --watch", "get pods", "describe at soon"],
    },
    definitions: || Ok(at_api::definitions()?),
    operator: Some(|builder| Ok(at::operator(builder)?)),
    resources: &["/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/default/ats", PODS],
    story: |scene| {
        async move {
            let (soon, never) = (at_object("soon", 2), at_object("never", 3600));
            scene
                .step("applying two Ats", "two Ats applied", async {
                    scene.apply(&soon).await?;
                    scene.apply(&never).await?;
                    scene.until(&soon, |at| at["status"]["phase"].is_string()).await?;
                    Ok("one runs in two seconds, the other in an hour")
                })
                .await?;
            scene.show().await?;
            scene
                .step("waiting for the time to come", "the Pod runs", async {
                    scene.until(&soon, |at| at["status"]["phase"] != "PENDING").await?;
                    Ok("no sooner, and once")
                })
                .await?;
            scene
                .step("waiting for the command to end", "the command has ended", async {
                    scene.until(&soon, |at| at["status"]["phase"] == "DONE").await?;
                    Ok("PENDING, RUNNING, DONE")
                })
                .await?;
            scene
                .step("editing what has run", "the edit is refused", async {
                    let mut edited = soon.clone();
                    edited["spec"]["command"] = "echo too late".into();
                    scene.refused(&edited).await?;
                    Ok("by a rule of the definition")
                })
                .await?;
            scene.show().await
        }
        .boxed()
    },
    ending: |scene| {
        async move {
            scene
                .step("deleting both", "both deleted", async {
                    for name in ["soon", "never"] {
                        scene.delete(&at_object(name, 0)).await?;
                    }
                    scene.until_empty(AT.resources).await?;
                    Ok("and the Pod with its At")
                })
                .await
        }
        .boxed()
    },
};

/// An At that runs in so many seconds, and whose command takes a second.
fn at_object(name: &str, seconds: i64) -> Value {
    let now = k8s_openapi::jiff::Timestamp::now();
    let whole = k8s_openapi::jiff::Timestamp::from_second(now.as_second() + seconds).unwrap_or(now);
    let spec = json!({ "schedule": whole.to_string(), "command": "echo YAY" });
    let mut at = object("cnat.programming-kubernetes.info/v1alpha1", "At", name, &spec);
    at["metadata"]["annotations"] = json!({ "simulation.windlass.dev/run-time": "1s" });
    at
}

const SAMPLE_CONTROLLER: Tale = Tale {
    name: "sample-controller",
    playbill: Playbill {
        about: "the sample-controller of Kubernetes: a Deployment for each Foo",
        objects: "objects",
        commands: &["get foos --watch", "get deployments", "edit foo example-foo"],
    },
    definitions: || Ok(sample_controller_api::definitions()?),
    operator: Some(|builder| Ok(sample_controller::operator(builder)?)),
    resources: &["/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos", DEPLOYMENTS],
    story: |scene| {
        let of_size = |replicas: i32| {
            let spec = json!({ "deploymentName": "example-foo", "replicas": replicas });
            object("samplecontroller.k8s.io/v1alpha1", "Foo", "example-foo", &spec)
        };
        scale(scene, "Foo", [of_size(1), of_size(3)]).boxed()
    },
    ending: |scene| {
        let example = object("samplecontroller.k8s.io/v1alpha1", "Foo", "example-foo", &Value::Null);
        vanish(scene, example, SAMPLE_CONTROLLER.resources).boxed()
    },
};

const APP_SERVICE: Tale = Tale {
    name: "app-service",
    playbill: Playbill {
        about: "a Deployment for each AppService, with server-side apply",
        objects: "objects",
        commands: &["get appservices --watch", "get deployments", "scale appservice example-app --replicas 5"],
    },
    definitions: || Ok(app_service_api::definitions()?),
    operator: Some(|builder| Ok(app_service::operator(builder)?)),
    resources: &["/apis/appcontroller.k8s.io/v1alpha1/namespaces/default/appservices", DEPLOYMENTS],
    story: |scene| {
        let app = |replicas: i32| {
            let spec = json!({ "deploymentName": "example-app", "replicas": replicas });
            object("appcontroller.k8s.io/v1alpha1", "AppService", "example-app", &spec)
        };
        scale(scene, "AppService", [app(1), app(3)]).boxed()
    },
    ending: |scene| {
        let app = object("appcontroller.k8s.io/v1alpha1", "AppService", "example-app", &Value::Null);
        vanish(scene, app, APP_SERVICE.resources).boxed()
    },
};

/// Creates an object that asks for Pods, and then wants more of them.
async fn scale(scene: &Scene<'_>, kind: &str, [one, three]: [Value; 2]) -> Result<()> {
    let available = |object: &Value| object["status"]["availableReplicas"] == object["spec"]["replicas"];
    scene
        .step(&format!("applying a {kind}"), "Deployment available", async {
            scene.apply(&one).await?;
            scene.until(&one, available).await?;
            Ok("made by the operator, and run by a simulated node")
        })
        .await?;
    scene.show().await?;
    scene
        .step("asking for three replicas", "three are available", async {
            scene.apply(&three).await?;
            let is_three = |object: &Value| object["status"]["availableReplicas"] == 3;
            scene.until(&three, is_three).await?;
            Ok("status.availableReplicas says so")
        })
        .await?;
    scene.show().await
}

/// Deletes an object, and waits until everything that it owned is gone.
async fn vanish(scene: &Scene<'_>, object: Value, resources: &[&str]) -> Result<()> {
    scene
        .step("deleting it", "deleted", async {
            scene.delete(&object).await?;
            scene.until_empty(resources).await?;
            Ok("and everything that it owned")
        })
        .await
}

const GUESTBOOK: Tale = Tale {
    name: "guestbook",
    playbill: Playbill {
        about: "the Guestbook of Kubernetes, with webhooks for defaults and checks",
        objects: "objects",
        commands: &["get guestbooks --watch", "get deployments,services", "edit guestbook visitors"],
    },
    definitions: || Ok(guestbook_api::definitions()?),
    operator: Some(|builder| Ok(guestbook::operator(builder.webhooks(local(guestbook::webhook::webhooks())))?)),
    resources: &["/apis/webapp.my.domain/v1/namespaces/default/guestbooks", DEPLOYMENTS],
    story: |scene| {
        async move {
            scene
                .step("applying a Guestbook", "visitors can use it", async {
                    scene.apply(&guestbook_object(&json!({}))).await?;
                    scene.until(&guestbook_object(&Value::Null), is_ready).await?;
                    Ok("the webhook has said how large it is")
                })
                .await?;
            scene.show().await?;
            scene
                .step("removing the followers", "leader answers reads", async {
                    let smaller =
                        guestbook_object(&json!({ "followers": 0, "frontends": 1, "deletionProtection": true }));
                    scene.apply(&smaller).await?;
                    scene.until(&smaller, |book| is_ready(book) && book["status"]["availableFrontends"] == 1).await?;
                    Ok("their Deployment and Service are pruned")
                })
                .await?;
            scene
                .step("deleting it", "the webhook refuses", async {
                    match scene.delete(&guestbook_object(&Value::Null)).await {
                        Ok(()) => anyhow::bail!("the webhook should have refused this"),
                        Err(_) => Ok("because of spec.deletionProtection"),
                    }
                })
                .await?;
            scene.show().await
        }
        .boxed()
    },
    ending: |scene| {
        async move {
            scene.apply(&guestbook_object(&json!({ "deletionProtection": false }))).await?;
            vanish(scene, guestbook_object(&Value::Null), GUESTBOOK.resources).await
        }
        .boxed()
    },
};

fn guestbook_object(spec: &Value) -> Value {
    object("webapp.my.domain/v1", "Guestbook", "visitors", spec)
}

const IP_POOL: Tale = Tale {
    name: "ippool",
    playbill: Playbill {
        about: "addresses of a pool for claims, none of them twice",
        objects: "objects",
        commands: &["get ippools,ipclaims,ipallocations", "delete ipclaim claim-1", "get ipclaims --watch"],
    },
    definitions: || Ok(ippool_api::definitions()?),
    operator: Some(|builder| Ok(ippool::operator(builder)?)),
    resources: &[
        "/apis/tsi.tiduyun.com/v1alpha1/ippools",
        "/apis/tsi.tiduyun.com/v1alpha1/namespaces/default/ipclaims",
    ],
    story: |scene| {
        async move {
            scene
                .step("applying a pool and three claims", "two have addresses", async {
                    scene.apply(&pool_object()).await?;
                    for number in [1, 2] {
                        scene.apply(&claim_object(number)).await?;
                        scene.until(&claim_object(number), is_ready).await?;
                    }
                    scene.apply(&claim_object(3)).await?;
                    scene.until(&claim_object(3), |claim| reason_is(claim, "PoolExhausted")).await?;
                    Ok("the pool has no more")
                })
                .await?;
            scene.show().await?;
            scene
                .step("deleting the first claim", "third has its address", async {
                    scene.delete(&claim_object(1)).await?;
                    scene.until(&claim_object(3), is_ready).await?;
                    Ok("freed, and given again")
                })
                .await?;
            scene.show().await
        }
        .boxed()
    },
    ending: |scene| {
        async move {
            scene
                .step("deleting everything", "everything deleted", async {
                    scene.delete(&pool_object()).await?;
                    for number in [2, 3] {
                        scene.delete(&claim_object(number)).await?;
                    }
                    scene.until_empty(IP_POOL.resources).await?;
                    Ok("the pool last: it was in use")
                })
                .await
        }
        .boxed()
    },
};

fn pool_object() -> Value {
    json!({
        "apiVersion": "tsi.tiduyun.com/v1alpha1", "kind": "IPPool",
        "metadata": { "name": "office" }, "spec": { "cidrs": ["10.20.0.0/30"] },
    })
}

fn claim_object(number: u32) -> Value {
    object("tsi.tiduyun.com/v1alpha1", "IPClaim", &format!("claim-{number}"), &json!({ "pool": "office" }))
}

const HOME: Tale = Tale {
    name: "home",
    playbill: Playbill {
        about: "the rooms of a home and their thermostats, with webhooks",
        objects: "objects",
        commands: &["get homes --watch", "get configmap cottage-thermostats -o yaml", "edit home cottage"],
    },
    definitions: || Ok(home_api::definitions()?),
    operator: Some(|builder| Ok(home::operator(builder.webhooks(local(home::webhook::webhooks())))?)),
    resources: &["/apis/ajd.my.domain/v1/namespaces/default/homes", CONFIG_MAPS],
    story: |scene| {
        async move {
            let rooms = json!([{ "name": "kitchen", "celsius": 21 }, { "name": "bedroom" }]);
            let home = home_object("1 Main Street", &rooms);
            scene
                .step("applying a Home", "thermostats set", async {
                    scene.apply(&home).await?;
                    scene.until(&home, |home| is_ready(home) && home["spec"]["rooms"][1]["celsius"] == 20).await?;
                    Ok("the webhook has set the one of the bedroom")
                })
                .await?;
            scene.show().await?;
            scene
                .step("moving it", "the webhook refuses", async {
                    scene.refused(&home_object("2 Main Street", &json!([]))).await?;
                    Ok("a home does not move")
                })
                .await?;
            scene.show().await
        }
        .boxed()
    },
    ending: |scene| {
        async move {
            let home = home_object("1 Main Street", &json!([]));
            vanish(scene, home, &HOME.resources[..1]).await
        }
        .boxed()
    },
};

fn home_object(address: &str, rooms: &Value) -> Value {
    object("ajd.my.domain/v1", "Home", "cottage", &json!({ "address": address, "rooms": rooms }))
}

const POD_CRUD: Tale = Tale {
    name: "pod-crud",
    playbill: Playbill {
        about: "a program that creates, labels and deletes a Pod, and an informer that sees it",
        objects: "objects",
        commands: &["get pods --watch", "label pod foo a=b", "delete pod foo"],
    },
    definitions: || Ok(Vec::new()),
    operator: None,
    resources: &[PODS],
    story: |scene| {
        async move {
            let pods = kube::Api::default_namespaced(scene.client.clone());
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": crud::NAME, "namespace": "default" } });
            scene
                .step(
                    "creating a Pod",
                    "the Pod runs",
                    Box::pin(async {
                        crud::create(&pods).await?;
                        scene.until(&pod, |pod| pod["status"]["phase"] == "Running").await?;
                        Ok("on a simulated node")
                    }),
                )
                .await?;
            scene.show().await?;
            scene
                .step("updating it from two programs", "both updates stored", Box::pin(async {
                    let (one, other) = ([("a".to_owned(), "1".to_owned())].into(), [("a".to_owned(), "2".to_owned())].into());
                    let updates = (crud::label(&pods, crud::NAME, &one), crud::label(&pods, crud::NAME, &other));
                    tokio::try_join!(updates.0, updates.1)?;
                    Ok("a conflict is answered with another attempt")
                }))
                .await?;
            scene
                .step("starting an informer", "the cache is filled", async {
                    let (factory, informer) = pod_crud::informer::pods(scene.client.clone(), |_| {});
                    factory.start();
                    factory.wait_synced().await?;
                    anyhow::ensure!(informer.lister().len() == 1, "the cache should have the Pod");
                    factory.stop().await;
                    Ok("it has the Pod")
                })
                .await?;
            scene.show().await
        }
        .boxed()
    },
    ending: |scene| {
        async move {
            let pods = kube::Api::default_namespaced(scene.client.clone());
            scene
                .step("deleting the Pod", "deleted", async {
                    crud::delete(&pods, crud::NAME).await?;
                    scene.until_empty(POD_CRUD.resources).await?;
                    Ok("after its containers have stopped")
                })
                .await
        }
        .boxed()
    },
};

const WORKLOADS: Tale = Tale {
    name: "workloads",
    playbill: Playbill {
        about: "a program that deploys a load-balanced web application and removes it again",
        objects: "objects",
        commands: &["get all -n foo", "scale deployment hello-world -n foo --replicas=3", "delete namespace foo"],
    },
    definitions: || Ok(Vec::new()),
    operator: None,
    resources: &[
        "/apis/apps/v1/namespaces/foo/deployments",
        "/api/v1/namespaces/foo/pods",
        "/api/v1/namespaces/foo/services",
        "/apis/networking.k8s.io/v1/namespaces/foo/ingresses",
    ],
    story: |scene| {
        async move {
            let (client, app) = (&scene.client, web_application());
            scene
                .step(
                    "creating a Deployment",
                    "two pods are ready",
                    Box::pin(async {
                        app.create_namespace(client).await?;
                        app.create_deployment(client).await?;
                        progress::ready(client, &app, |_| {}).await?;
                        Ok("on a simulated node, in a namespace of its own")
                    }),
                )
                .await?;
            scene
                .step(
                    "creating a Service and an Ingress",
                    "both created",
                    Box::pin(async {
                        app.create_service_and_ingress(client).await?;
                        Ok("where containers run, the Ingress has an address for a browser")
                    }),
                )
                .await?;
            scene.show().await
        }
        .boxed()
    },
    ending: |scene| {
        async move {
            let app = web_application();
            scene
                .step(
                    "deleting the namespace",
                    "deleted",
                    Box::pin(async {
                        app.delete(&scene.client).await?;
                        progress::gone(&scene.client, &app).await?;
                        Ok("with everything in it")
                    }),
                )
                .await
        }
        .boxed()
    },
};

fn web_application() -> App {
    App {
        namespace: "foo".into(),
        name: "hello-world".into(),
        image: "windlass/hello:v1".into(),
        port: 8080,
        replicas: 2,
        path: "/hello".into(),
    }
}

const OPEN_TELEMETRY_COLLECTOR: Tale = Tale {
    name: "opentelemetry-collector",
    playbill: Playbill {
        about: "a collector that is rolled out again when its configuration changes",
        objects: "objects",
        commands: &[
            "get opentelemetrycollectors --watch",
            "get deployments,services,configmaps",
            "edit otelcol simplest",
        ],
    },
    definitions: || Ok(opentelemetry_collector_api::definitions()?),
    operator: Some(|builder| Ok(opentelemetry_collector::operator(builder)?)),
    resources: &["/apis/opentelemetry.io/v1alpha1/namespaces/default/opentelemetrycollectors", PODS],
    story: |scene| {
        async move {
            let first = collector_object("receivers:\n  otlp:\n    protocols:\n      grpc:\n      http:\n");
            scene
                .step("applying a collector", "the collector runs", async {
                    scene.apply(&first).await?;
                    scene.until(&first, is_ready).await?;
                    Ok("a ConfigMap, a Deployment and a Service")
                })
                .await?;
            scene.show().await?;
            scene
                .step("changing its configuration", "rolled out", async {
                    let second = collector_object("receivers:\n  zipkin:\n");
                    scene.apply(&second).await?;
                    scene.until(&second, is_ready).await?;
                    Ok("new Pods, and another port of the Service")
                })
                .await?;
            scene
                .step("making a mistake in it", "the Pods stay", async {
                    let wrong = collector_object("receivers: [");
                    scene.apply(&wrong).await?;
                    scene.until(&wrong, |collector| reason_is(collector, "InvalidConfig")).await?;
                    Ok("the condition says what is wrong")
                })
                .await?;
            scene.show().await
        }
        .boxed()
    },
    ending: |scene| vanish(scene, collector_object(""), OPEN_TELEMETRY_COLLECTOR.resources).boxed(),
};

fn collector_object(config: &str) -> Value {
    object(
        "opentelemetry.io/v1alpha1",
        "OpenTelemetryCollector",
        "simplest",
        &json!({ "config": config, "replicas": 2 }),
    )
}
