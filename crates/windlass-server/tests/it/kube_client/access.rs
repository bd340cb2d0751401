//! Who may do what, over TLS and inside the process.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Config};
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

use super::{check_refused, config, map};

#[tokio::test]
async fn the_certificate_says_who_it_is() {
    let server = Server::builder().start().await.unwrap();
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let address = listener.address().to_string();
    let namespaces = async |config: Config| {
        let api: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
        api.list(&ListParams::default()).await
    };
    namespaces(config(&authority, &address, "admin", "system:masters").await).await.unwrap();
    let mut nobody = config(&authority, &address, "admin", "system:masters").await;
    nobody.auth_info = kube::config::AuthInfo::default();
    check_refused(namespaces(nobody).await, 403, "Forbidden");
    // A certificate of another authority says nothing.
    let mut forged = config(&Authority::generate().unwrap(), &address, "admin", "system:masters").await;
    forged.root_cert = config(&authority, &address, "admin", "system:masters").await.root_cert;
    check_refused(namespaces(forged).await, 401, "Unauthorized");
    listener.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn tokens_and_services_stand_for_users() {
    let server = Server::builder().token("secret", User::admin()).start().await.unwrap();
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let mut with_token = config(&authority, &listener.address().to_string(), "x", "y").await;
    with_token.auth_info = kube::config::AuthInfo { token: Some("secret".to_owned().into()), ..Default::default() };
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(with_token.clone()).unwrap());
    maps.create(&PostParams::default(), &map("one")).await.unwrap();
    with_token.auth_info.token = Some("wrong".to_owned().into());
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(with_token).unwrap());
    check_refused(maps.get("one").await, 401, "Unauthorized");
    let nobody = Client::new(server.service_as(User::anonymous()), "default");
    check_refused(Api::<ConfigMap>::default_namespaced(nobody).get("one").await, 403, "Forbidden");
    listener.stop().await;
    server.stop().await.unwrap();
}
