//! Answers that look wrong and are right: kube-apiserver gives them as well.

/// An answer with code 500 that upstream gives, too.
pub(crate) struct Internal {
    /// What the message contains.
    pub(crate) words: &'static str,
    /// The file below Kubernetes' source.
    pub(crate) file: &'static str,
    /// When upstream answers so.
    pub(crate) condition: &'static str,
}

/// Every 500 that is no finding.
pub(crate) const INTERNAL: &[Internal] = &[
    Internal {
        words: "failed calling webhook",
        file: "staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go",
        condition: "a webhook with failurePolicy Fail does not answer",
    },
    Internal {
        words: "etcdserver: request is too large",
        file: "staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go",
        condition: "the object is larger than etcd takes, and etcd's error is passed on",
    },
    Internal {
        words: "rpc error: code = ResourceExhausted",
        file: "staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go",
        condition: "the object is larger than etcd's client sends, and its error is passed on",
    },
    Internal {
        words: "resourceVersion should not be set on objects to be created",
        file: "staging/src/k8s.io/apiserver/pkg/storage/errors.go",
        condition: "a create has a resourceVersion: ErrResourceVersionSetOnCreate is not interpreted",
    },
    Internal {
        words: "strconv.ParseUint: parsing",
        file: "staging/src/k8s.io/apiserver/pkg/storage/api_object_versioner.go",
        condition: "a resourceVersion is no number: neither ObjectResourceVersion's error nor ParseResourceVersion's is interpreted",
    },
    Internal {
        words: "failed to create typed patch object",
        file: "staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/structuredmerge.go",
        condition: "a configuration that is applied does not fit its schema",
    },
    Internal {
        words: "does not contain declared merge key",
        file: "staging/src/k8s.io/apimachinery/pkg/util/mergepatch/errors.go",
        condition: "a strategic patch has an item without its merge key",
    },
    Internal {
        words: "expected a map, but received",
        file: "staging/src/k8s.io/apimachinery/pkg/util/mergepatch/errors.go",
        condition: "a strategic patch has a value of another type",
    },
    Internal {
        words: "expected a map[string]interface {}, but received a",
        file: "staging/src/k8s.io/apimachinery/pkg/util/mergepatch/errors.go",
        condition: "a directive for a list of objects has other items: mergeKeyValueEqual of strategicpatch/patch.go",
    },
    Internal {
        words: "expected slice or array type, but got",
        file: "staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/meta.go",
        condition: "a strategic patch has a list in a field that is none",
    },
    Internal {
        words: "to proper version: unable to convert unstructured object to",
        file: "staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/structuredmerge.go",
        condition: "a configuration that is applied has a number that its type does not take",
    },
    Internal {
        words: "expected a []interface {}, but received a",
        file: "staging/src/k8s.io/apimachinery/pkg/util/mergepatch/errors.go",
        condition: "a directive for a list stands beside a value that is none",
    },
    Internal {
        words: "The order in patch list:",
        file: "staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go",
        condition: "$setElementOrder has other items than the list that is patched",
    },
    Internal {
        words: "merging an object in json but data type is not struct",
        file: "staging/src/k8s.io/apimachinery/third_party/forked/golang/json/fields.go",
        condition: "a directive of strategic patches stands in a map",
    },
    Internal {
        words: "unknown patch type: ",
        file: "staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go",
        condition: "$patch has an unknown value",
    },
    Internal {
        words: "unable to find api field in struct",
        file: "staging/src/k8s.io/apimachinery/third_party/forked/golang/json/fields.go",
        condition: "a strategic patch has an object or a list in a field that does not exist",
    },
    Internal {
        words: "merging lists cannot yet be specified in the patch",
        file: "staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go",
        condition: "$patch: merge stands in a list",
    },
    Internal {
        words: "no elements in any of the given slices",
        file: "staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go",
        condition: "lists are merged that have no items",
    },
    Internal {
        words: "list element types are not identical",
        file: "staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go",
        condition: "lists are merged that have items of several types",
    },
    Internal {
        words: "cannot merge lists without merge key",
        file: "staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go",
        condition: "a list of objects is merged that has no merge key",
    },
    Internal {
        words: "target.kind: Unsupported value",
        file: "pkg/registry/core/pod/storage/storage.go",
        condition: "a Binding is invalid: BindingREST returns an aggregate of field errors",
    },
    Internal {
        words: "target.name: Required value",
        file: "pkg/registry/core/pod/storage/storage.go",
        condition: "a Binding is invalid: BindingREST returns an aggregate of field errors",
    },
    Internal {
        words: "no preferred addresses found",
        file: "pkg/util/node/node.go",
        condition: "the node of a pod has no address to connect to",
    },
    Internal {
        words: "dial tcp",
        file: "staging/src/k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go",
        condition: "a kubelet does not answer",
    },
    Internal {
        words: "range is full",
        file: "pkg/registry/core/service/storage/alloc.go",
        condition: "no address or node port is left",
    },
    Internal {
        words: "the spec replicas field",
        file: "staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/etcd.go",
        condition: "the scale is read of a custom resource without replicas",
    },
    Internal {
        words: "accessor error: ",
        file: "staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/etcd.go",
        condition: "a field that the scale shows has another type",
    },
    Internal {
        words: "value cannot be set because",
        file: "staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/etcd.go",
        condition: "something on the way to the replicas is no object",
    },
    Internal {
        words: "request to convert CR to an invalid group/version",
        file: "staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/converter.go",
        condition: "a managed field or an applied scale names a version that there is not",
    },
    Internal {
        words: "all impersonation modes failed",
        file: "staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation/constrained_impersonation.go",
        condition: "impersonation is not decided",
    },
    Internal {
        words: "This pod has more than one PodDisruptionBudget",
        file: "pkg/registry/core/pod/storage/eviction.go",
        condition: "several budgets cover a pod that is evicted",
    },
    Internal {
        words: "unsupported role reference kind",
        file: "pkg/registry/rbac/validation/rule.go",
        condition: "a binding of a user without all rights names no kind of role",
    },
];

/// The row of a 500, if there is one.
pub(crate) fn internal(message: &str) -> Option<&'static Internal> {
    INTERNAL.iter().find(|row| message.contains(row.words))
}

/// Refusals that are text and no Status: their codes, and how they begin.
const TEXTS: &[(u16, &str)] = &[(404, "404 page not found"), (429, "Too many requests, please try again later.")];

/// Whether a refusal is text at upstream as well. OpenAPI's handlers refuse without a body: a document that there is not, or
/// not in the form that is asked for.
pub(crate) fn is_text(code: u16, uri: &str, text: &str) -> bool {
    TEXTS.iter().any(|(known, words)| *known == code && text.starts_with(words))
        || (matches!(code, 404 | 406) && uri.starts_with("/openapi/") && text.is_empty())
}

/// Whether a refusal follows a write that is done: an object is not shown as a list of metadata, nor a list as metadata.
pub(crate) fn is_refused_late(code: u16, message: &str) -> bool {
    code == 406 && message.contains("you requested PartialObjectMetadata")
}
