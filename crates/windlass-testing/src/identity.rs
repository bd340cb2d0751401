//! Clients and managers with the permissions of a role, as in production: [`Env::client_as`], [`Env::manager_as`].

use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::core::{NamespaceResourceScope, Resource};
use serde::de::DeserializeOwned;
use windlass::manager::ManagerBuilder;
use windlass::rbac::Rules;
use windlass::{CachedClient, Manager};

use crate::Env;
use crate::requests::Caller;

/// On everything that is made for an account.
const LABEL: &str = "testing.windlass.dev/account";
/// Longer than any test.
const TOKEN_SECONDS: i64 = 24 * 3600;
const RBAC: &str = "rbac.authorization.k8s.io";

impl Env {
    /// Describes a manager that runs as a ServiceAccount with exactly these permissions, to prove that a role
    /// suffices. The rules are usually those that the operator [asks for](Manager::rules), or those of the role that
    /// it is deployed with.
    ///
    /// The account is called `name` in the namespace `default`; written `namespace/name`, it is in that namespace,
    /// which must exist, as must the namespaces that the rules name. The account, its roles and bindings are made, and
    /// requests carry a token of the account, as they do in a cluster. Called again for the same account, this
    /// replaces the permissions of the account.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass::manager::{ManagerBuilder, ManagerError};
    /// use windlass::rbac::Rules;
    /// use windlass::{Controller, Manager, Outcome, controller};
    /// use windlass_testing::{Env, Options, run};
    ///
    /// fn operator(builder: ManagerBuilder) -> Manager {
    ///     let mut manager = builder.build().expect("a manager");
    ///     let idle = controller::from_key_fn(|_, _| async { Ok(Outcome::Done) });
    ///     manager.add(Controller::<ConfigMap>::new("settings").complete_keyed(idle)).expect("added");
    ///     manager
    /// }
    ///
    /// run(Options::default().bare(), async |env: Env| {
    ///     let nothing = env.run(operator(env.manager_as("operator", &Rules::default()).await));
    ///     assert!(matches!(nothing.ended().await, Err(ManagerError::Forbidden { .. })));
    ///
    ///     let rules = operator(env.manager()).rules();
    ///     env.run_ready(operator(env.manager_as("operator", &rules).await)).await;
    /// });
    /// ```
    ///
    /// # Panics
    /// When the account or its permissions cannot be made.
    pub async fn manager_as(&self, name: &str, rules: &Rules) -> ManagerBuilder {
        Manager::builder(self.kube_as(name, rules).await)
    }

    /// A client that is a ServiceAccount with exactly these permissions: see [`Env::manager_as`].
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use windlass::ObjectKey;
    /// use windlass::rbac::Rules;
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default().bare(), async |env: Env| {
    ///     let mut rules = Rules::default();
    ///     rules.allow(None, "", ["configmaps"], ["get", "list", "watch"]);
    ///     let reader = env.client_as("reader", &rules).await;
    ///     assert!(reader.list::<ConfigMap>().await.is_ok());
    ///     assert!(reader.live().get::<Secret>(&ObjectKey::new("default", "key")).await.is_err());
    /// });
    /// ```
    ///
    /// # Panics
    /// When the account or its permissions cannot be made.
    pub async fn client_as(&self, name: &str, rules: &Rules) -> CachedClient {
        let client = CachedClient::standalone(self.kube_as(name, rules).await, name.replace('/', "-"));
        self.inner.clients.lock().push(client.clone());
        client
    }

    /// The same as a `kube::Client`, whose default namespace is that of the account.
    ///
    /// # Panics
    /// When the account or its permissions cannot be made.
    pub async fn kube_as(&self, name: &str, rules: &Rules) -> kube::Client {
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let account = Account { env: self, namespace, name };
        let token = match account.make(rules).await {
            Ok(token) => token,
            Err(error) => panic!("the account {namespace}/{name} cannot be made: {error}"),
        };
        let token = HeaderValue::try_from(format!("Bearer {token}")).expect("invariant: a token is text");
        self.inner.gate.client(Caller::Operator, Some(token), namespace)
    }
}

/// A ServiceAccount, and how its permissions are made.
struct Account<'a> {
    env: &'a Env,
    namespace: &'a str,
    name: &'a str,
}

impl Account<'_> {
    /// Makes the account, gives it these permissions and no others, and returns a token.
    async fn make(&self, rules: &Rules) -> Result<String, kube::Error> {
        let kube = self.env.harness();
        self.clear(&Api::<ClusterRoleBinding>::all(kube.clone())).await?;
        self.clear(&Api::<ClusterRole>::all(kube.clone())).await?;
        self.clear_namespaced::<RoleBinding>().await?;
        self.clear_namespaced::<Role>().await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(kube.clone(), self.namespace);
        if accounts.get_opt(self.name).await?.is_none() {
            let metadata = ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() };
            let account = ServiceAccount { metadata, ..ServiceAccount::default() };
            accounts.create(&PostParams::default(), &account).await?;
        }
        if let Some(mut role) = rules.cluster_role(self.name) {
            role.metadata = self.metadata(None);
            let binding = ClusterRoleBinding {
                metadata: self.metadata(None),
                role_ref: self.role_ref("ClusterRole"),
                subjects: Some(vec![self.subject()]),
            };
            Api::all(kube.clone()).create(&PostParams::default(), &role).await?;
            Api::all(kube.clone()).create(&PostParams::default(), &binding).await?;
        }
        for mut role in rules.roles(self.name) {
            let namespace = role.metadata.namespace.take().unwrap_or_default();
            role.metadata = self.metadata(Some(&namespace));
            let binding = RoleBinding {
                metadata: self.metadata(Some(&namespace)),
                role_ref: self.role_ref("Role"),
                subjects: Some(vec![self.subject()]),
            };
            Api::namespaced(kube.clone(), &namespace).create(&PostParams::default(), &role).await?;
            Api::namespaced(kube.clone(), &namespace).create(&PostParams::default(), &binding).await?;
        }
        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let made = accounts.create_token_request(self.name, &PostParams::default(), &request).await?;
        Ok(made.status.unwrap_or_default().token.unwrap_or_default())
    }

    /// Names of accounts of several namespaces do not clash.
    fn role_name(&self) -> String {
        format!("{}:{}", self.namespace, self.name)
    }

    fn label(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }

    fn metadata(&self, namespace: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.role_name()),
            namespace: namespace.map(str::to_owned),
            labels: Some([(LABEL.to_owned(), self.label())].into()),
            ..ObjectMeta::default()
        }
    }

    fn role_ref(&self, kind: &str) -> RoleRef {
        RoleRef { api_group: Some(RBAC.to_owned()), kind: kind.to_owned(), name: self.role_name() }
    }

    fn subject(&self) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            name: self.name.to_owned(),
            namespace: Some(self.namespace.to_owned()),
            ..Subject::default()
        }
    }

    async fn clear_namespaced<K>(&self) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let everywhere: Api<K> = Api::all(self.env.harness().clone());
        for object in everywhere.list(&ListParams::default().labels(&self.selector())).await?.items {
            let namespace = object.meta().namespace.as_deref().unwrap_or_default();
            self.clear(&Api::<K>::namespaced(self.env.harness().clone(), namespace)).await?;
        }
        Ok(())
    }

    async fn clear<K>(&self, objects: &Api<K>) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let chosen = ListParams::default().labels(&self.selector());
        objects.delete_collection(&DeleteParams::default(), &chosen).await?;
        Ok(())
    }

    fn selector(&self) -> String {
        format!("{LABEL}={}", self.label())
    }
}
