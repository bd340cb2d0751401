//! Lists: selectors, pages, metadata, revisions.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams, VersionMatch};
use kube::{Api, Client, ResourceExt as _};

use super::{check_refused, everywhere, map, pod, server_and_store};

async fn create(maps: &Api<ConfigMap>, names: &[&str]) {
    for name in names {
        maps.create(&PostParams::default(), &map(name)).await.unwrap();
    }
}

fn names<K: kube::Resource>(items: &[K]) -> Vec<String> {
    items.iter().map(|item| item.meta().name.clone().unwrap()).collect()
}

#[tokio::test]
async fn selectors_choose() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        create(&maps, &["one", "two", "three"]).await;
        let by = async |params: ListParams| names(&maps.list(&params).await.unwrap().items);
        assert_eq!(by(ListParams::default().labels("app=two")).await, ["two"]);
        assert_eq!(by(ListParams::default().labels("app notin (two)")).await, ["one", "three"]);
        assert_eq!(by(ListParams::default().fields("metadata.name!=one")).await, ["three", "two"]);
        check_refused(maps.list(&ListParams::default().fields("data.a=1")).await, 400, "BadRequest");
        check_refused(maps.list(&ListParams::default().labels("a=b=c")).await, 400, "BadRequest");

        let pods: Api<Pod> = Api::all(client.clone());
        Api::default_namespaced(client).create(&PostParams::default(), &pod("p")).await.unwrap();
        let pending = ListParams::default().fields("status.phase=Pending,spec.restartPolicy=Always");
        assert_eq!(names(&pods.list(&pending).await.unwrap().items), ["p"]);
        let running = ListParams::default().fields("status.phase=Running");
        assert!(pods.list(&running).await.unwrap().items.is_empty());
    })
    .await;
}

#[tokio::test]
async fn pages_are_of_one_moment() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        create(&maps, &["a", "b", "c", "d", "e"]).await;
        let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
        assert_eq!(names(&first.items), ["a", "b"]);
        assert_eq!(first.metadata.remaining_item_count, Some(3));
        // What happens in between is not seen.
        maps.delete("d", &kube::api::DeleteParams::default()).await.unwrap();
        create(&maps, &["c1"]).await;
        let token = first.metadata.continue_.clone().unwrap();
        let second = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
        assert_eq!(names(&second.items), ["c", "d"]);
        assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
        let token = second.metadata.continue_.clone().unwrap();
        let third = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
        assert_eq!(names(&third.items), ["e"]);
        assert_eq!(third.metadata.continue_.as_deref().unwrap_or_default(), "");
        check_refused(maps.list(&ListParams::default().continue_token("nonsense")).await, 400, "BadRequest");
    })
    .await;
}

#[tokio::test]
async fn a_list_can_be_of_the_past() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        create(&maps, &["a"]).await;
        let then = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        create(&maps, &["b"]).await;
        let exact = ListParams::default().at(&then).matching(VersionMatch::Exact);
        assert_eq!(names(&maps.list(&exact).await.unwrap().items), ["a"]);
        let newer = ListParams::default().at(&then).matching(VersionMatch::NotOlderThan);
        assert_eq!(names(&maps.list(&newer).await.unwrap().items), ["a", "b"]);
        assert_eq!(names(&maps.list(&ListParams::default().match_any()).await.unwrap().items), ["a", "b"]);
    })
    .await;
}

#[tokio::test]
async fn a_page_of_a_past_that_is_gone_has_expired() {
    let (server, client, store) = server_and_store().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    create(&maps, &["a", "b", "c"]).await;
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    create(&maps, &["d"]).await;
    let newest = *store.revision().borrow();
    store.compact(newest).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    check_refused(maps.list(&ListParams::default().limit(1).continue_token(&token)).await, 410, "Expired");
    let past = ListParams::default().at(&page.metadata.resource_version.unwrap()).matching(VersionMatch::Exact);
    check_refused(maps.list(&past).await, 410, "Expired");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn metadata_comes_without_the_rest() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        create(&maps, &["one", "two"]).await;
        let list = maps.list_metadata(&ListParams::default().labels("app=two")).await.unwrap();
        assert_eq!(names(&list.items), ["two"]);
        assert_eq!(list.items[0].types.as_ref().unwrap().kind, "PartialObjectMetadata");
        let one = maps.get_metadata("one").await.unwrap();
        assert_eq!(one.labels()["app"], "one");
        assert!(maps.get_metadata_opt("nope").await.unwrap().is_none());
        let patch = kube::core::PartialObjectMetaExt::into_request_partial::<ConfigMap>(one.metadata.clone());
        let patched =
            maps.patch_metadata("one", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&patch)).await;
        assert_eq!(patched.unwrap().resource_version(), one.resource_version());
    })
    .await;
}
