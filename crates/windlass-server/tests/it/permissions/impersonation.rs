//! Acting as another user: every header takes a right.

use serde_json::{Value, json};
use windlass_server::Server;
use windlass_server::authn::User;

use super::{Ask, Checker, grant};
use crate::client::Answer;

const MYSELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn review(headers: &[(&'static str, &'static str)]) -> Ask<'static> {
    Ask::post(MYSELF, json!({})).with(headers)
}

/// What is said to a request that may not be made on behalf of another.
fn not_on_behalf(mode: &str) -> String {
    format!(
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"USER\" cannot impersonate-on:{mode}:create \
         resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
    )
}

#[tokio::test]
async fn every_header_takes_a_right() {
    let mut checker = Checker::start().await;
    let jane = ("impersonate-user", "jane");
    let robot = ("impersonate-user", "system:serviceaccount:ns:robot");
    for (header, rights) in [
        (jane, vec!["impersonate users:jane"]),
        (robot, vec!["impersonate serviceaccounts:robot"]),
        (("impersonate-group", "devs"), vec!["impersonate users:jane", "impersonate groups:devs"]),
        (("impersonate-uid", "1"), vec!["impersonate users:jane", "impersonate uids.authentication.k8s.io:1"]),
        (
            ("impersonate-extra-acme.com%2fteam", "a"),
            vec!["impersonate users:jane", "impersonate userextras.authentication.k8s.io/acme.com/team:a"],
        ),
        (("impersonate-group", "system:masters"), vec!["impersonate users:jane", "impersonate groups:system:masters"]),
    ] {
        let headers = if header.0 == "impersonate-user" { vec![header] } else { vec![jane, header] };
        let refused = if header == robot { "serviceaccount" } else { "user-info" };
        for missing in 0..rights.len() {
            let mut rights = rights.clone();
            rights.remove(missing);
            checker.refuses(&rights, review(&headers), &not_on_behalf(refused)).await;
        }
        checker.answers(&rights, review(&headers), 201).await;
    }
    // Headers about a user take the name of one.
    let answer = checker.answers(&[], review(&[("impersonate-uid", "1")]), 400).await;
    let why = "requested &user.DefaultInfo{Name:\"\", UID:\"1\", Groups:[]string(nil), Extra:map[string][]string(nil)} \
               without impersonating a user name";
    assert_eq!(answer.message(), why);
    // The user that is acted as needs the rights to what is requested.
    let why = "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the \
               namespace \"default\"";
    let list = Ask::get(CONFIG_MAPS).with(&[jane]);
    checker.refuses(&["impersonate users", "list configmaps"], list, why).await;
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn constrained_impersonation_is_for_single_verbs_and_resources() {
    let mut checker = Checker::start().await;
    grant(&checker.server, "jane", &["list,get configmaps"]).await;
    let jane = [("impersonate-user", "jane")];
    let as_jane = "impersonate:user-info users.authentication.k8s.io:jane";
    let to_list = "impersonate-on:user-info:list configmaps";
    let list = || Ask::get(CONFIG_MAPS).with(&jane);
    let on = "configmaps is forbidden: User \"USER\" cannot impersonate-on:user-info:list resource \"configmaps\" in API \
              group \"\" in the namespace \"default\"";
    checker.refuses(&[as_jane], list(), on).await;
    let whom = "users.authentication.k8s.io \"jane\" is forbidden: User \"USER\" cannot impersonate:user-info resource \
                \"users\" in API group \"authentication.k8s.io\" at the cluster scope";
    checker.refuses(&[to_list], list(), whom).await;
    checker.answers(&[as_jane, to_list], list(), 200).await;
    let one = format!("{CONFIG_MAPS}/one");
    checker.answers(&[as_jane, to_list], Ask::get(&one).with(&jane), 403).await;
    checker.answers(&[as_jane, "impersonate-on:user-info:get configmaps:one"], Ask::get(&one).with(&jane), 404).await;
    // No user becomes a master this way.
    let masters = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
    let all = [as_jane, to_list, "impersonate:user-info groups.authentication.k8s.io"];
    let why = "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"USER\" cannot impersonate:user-info \
               resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the \
               system:masters group is not allowed";
    checker.refuses(&all, Ask::get(CONFIG_MAPS).with(&masters), why).await;
    checker.server.stop().await.unwrap();
}

async fn who(server: &Server, user: User, headers: &[(&'static str, &'static str)]) -> Answer {
    review(headers).send(server, user).await
}

fn groups(answer: &Answer) -> &Value {
    &answer.body["status"]["userInfo"]["groups"]
}

#[tokio::test]
async fn a_service_account_acts_as_its_own_node() {
    let checker = Checker::start().await;
    let name = "system:serviceaccount:ns:agent";
    let on = "impersonate-on:associated-node:create selfsubjectreviews.authentication.k8s.io";
    grant(&checker.server, name, &[on, "impersonate:associated-node nodes.authentication.k8s.io"]).await;
    let mut agent = User::new(name, []);
    agent.extra.insert("authentication.kubernetes.io/node-name".into(), vec!["one".into()]);
    let own = who(&checker.server, agent.clone(), &[("impersonate-user", "system:node:one")]).await;
    assert_eq!((own.code, groups(&own)), (201, &json!(["system:nodes", "system:authenticated"])), "{}", own.body);
    let other = who(&checker.server, agent, &[("impersonate-user", "system:node:two")]).await;
    assert_eq!(other.message(), not_on_behalf("arbitrary-node").replace("USER", name));
    let elsewhere = who(&checker.server, User::new(name, []), &[("impersonate-user", "system:node:one")]).await;
    assert_eq!(elsewhere.code, 403, "{}", elsewhere.body);
    checker.server.stop().await.unwrap();
}
