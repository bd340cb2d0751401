//! Every function an expression can call: its overloads, their types, and what computes them.
//!
//! The declarations are a table in text, in cel-go's order: function, overload id, signature. A
//! signature with a dot before its parenthesis has a receiver. Capital letters are type parameters.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::types::Type;

/// A function.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) overloads: Vec<Overload>,
}

/// One of a function's signatures.
#[derive(Debug)]
pub(super) struct Overload {
    pub(super) id: &'static str,
    pub(super) member: bool,
    pub(super) args: Vec<Type>,
    pub(super) result: Type,
    /// How many type parameters it has.
    pub(super) params: u8,
}

/// The function called `name`.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    static TABLE: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(table);
    TABLE.get(name)
}

fn table() -> HashMap<&'static str, Function> {
    let mut table: HashMap<&'static str, Function> = HashMap::new();
    for line in DECLARATIONS.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(id), Some(signature)) = (words.next(), words.next(), words.next()) else { continue };
        let function = table.entry(name).or_insert_with(|| Function { name, overloads: Vec::new() });
        for (id, signature) in templates(id, signature) {
            function.overloads.push(overload(id, &signature));
        }
    }
    table
}

/// Overloads that exist once for each of several types: `{c}` stands for every type that compares,
/// `{s}` for every type that adds up.
fn templates(id: &'static str, signature: &str) -> Vec<(&'static str, String)> {
    const COMPARABLE: &[&str] = &["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];
    const SUMMABLE: &[&str] = &["int", "uint", "double", "duration"];
    let (mark, types) = match () {
        () if id.contains("{c}") => ("{c}", COMPARABLE),
        () if id.contains("{s}") => ("{s}", SUMMABLE),
        () => return vec![(id, signature.to_owned())],
    };
    types.iter().map(|ty| (&*id.replace(mark, ty).leak(), signature.replace(mark, ty))).collect()
}

fn overload(id: &'static str, signature: &str) -> Overload {
    let mut reader = Reader { rest: signature, params: Vec::new() };
    let mut args = Vec::new();
    let member = !signature.starts_with('(');
    if member {
        args.push(reader.ty());
        reader.skip(".");
    }
    reader.skip("(");
    while !reader.rest.starts_with(')') {
        args.push(reader.ty());
        reader.skip(",");
    }
    reader.skip(")");
    reader.skip("->");
    let result = reader.ty();
    Overload { id, member, args, result, params: reader.params.len() as u8 }
}

struct Reader<'a> {
    rest: &'a str,
    params: Vec<char>,
}

impl Reader<'_> {
    fn skip(&mut self, symbol: &str) {
        self.rest = self.rest.trim_start();
        self.rest = self.rest.strip_prefix(symbol).unwrap_or(self.rest).trim_start();
    }

    fn ty(&mut self) -> Type {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        match name {
            "list" => Type::list(self.inner()),
            "optional" => Type::optional(self.inner()),
            "typeof" => Type::Meta(Some(Arc::new(self.inner()))),
            "map" => {
                self.skip("(");
                let key = self.ty();
                self.skip(",");
                let value = self.ty();
                self.skip(")");
                Type::map(key, value)
            }
            _ => self.simple(name),
        }
    }

    fn inner(&mut self) -> Type {
        self.skip("(");
        let ty = self.ty();
        self.skip(")");
        ty
    }

    fn simple(&mut self, name: &str) -> Type {
        if let Some(ty) = by_name(name) {
            return ty;
        }
        let letter = name.chars().next().unwrap_or('A');
        let param = self.params.iter().position(|known| *known == letter).unwrap_or_else(|| {
            self.params.push(letter);
            self.params.len() - 1
        });
        Type::Param(param as u8)
    }
}

fn by_name(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "ip" => Type::Opaque("net.IP"),
        "cidr" => Type::Opaque("net.CIDR"),
        "url" => Type::named("kubernetes.URL"),
        "quantity" => Type::named("kubernetes.Quantity"),
        "semver" => Type::named("kubernetes.Semver"),
        "format" => Type::named("kubernetes.NamedFormat"),
        "authorizer" => Type::named("kubernetes.authorization.Authorizer"),
        "path_check" => Type::named("kubernetes.authorization.PathCheck"),
        "group_check" => Type::named("kubernetes.authorization.GroupCheck"),
        "resource_check" => Type::named("kubernetes.authorization.ResourceCheck"),
        "decision" => Type::named("kubernetes.authorization.Decision"),
        _ => return None,
    })
}

/// The type an identifier names, e.g. `int` in `type(x) == int`.
pub(super) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" | "bytes" | "double" | "int" | "string" | "uint" => by_name(name)?,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "type" => Type::Meta(None),
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    })
}

const DECLARATIONS: &str = "
_?_:_ conditional (bool, A, A) -> A
_&&_ logical_and (bool, bool) -> bool
_||_ logical_or (bool, bool) -> bool
!_ logical_not (bool) -> bool
@not_strictly_false not_strictly_false (bool) -> bool
_==_ equals (A, A) -> bool
_!=_ not_equals (A, A) -> bool
_+_ add_bytes (bytes, bytes) -> bytes
_+_ add_double (double, double) -> double
_+_ add_duration_duration (duration, duration) -> duration
_+_ add_duration_timestamp (duration, timestamp) -> timestamp
_+_ add_timestamp_duration (timestamp, duration) -> timestamp
_+_ add_int64 (int, int) -> int
_+_ add_list (list(A), list(A)) -> list(A)
_+_ add_string (string, string) -> string
_+_ add_uint64 (uint, uint) -> uint
_/_ divide_double (double, double) -> double
_/_ divide_int64 (int, int) -> int
_/_ divide_uint64 (uint, uint) -> uint
_%_ modulo_int64 (int, int) -> int
_%_ modulo_uint64 (uint, uint) -> uint
_*_ multiply_double (double, double) -> double
_*_ multiply_int64 (int, int) -> int
_*_ multiply_uint64 (uint, uint) -> uint
-_ negate_double (double) -> double
-_ negate_int64 (int) -> int
_-_ subtract_double (double, double) -> double
_-_ subtract_duration_duration (duration, duration) -> duration
_-_ subtract_int64 (int, int) -> int
_-_ subtract_timestamp_duration (timestamp, duration) -> timestamp
_-_ subtract_timestamp_timestamp (timestamp, timestamp) -> duration
_-_ subtract_uint64 (uint, uint) -> uint
_<_ less_bool (bool, bool) -> bool
_<_ less_int64 (int, int) -> bool
_<_ less_int64_double (int, double) -> bool
_<_ less_int64_uint64 (int, uint) -> bool
_<_ less_uint64 (uint, uint) -> bool
_<_ less_uint64_double (uint, double) -> bool
_<_ less_uint64_int64 (uint, int) -> bool
_<_ less_double (double, double) -> bool
_<_ less_double_int64 (double, int) -> bool
_<_ less_double_uint64 (double, uint) -> bool
_<_ less_string (string, string) -> bool
_<_ less_bytes (bytes, bytes) -> bool
_<_ less_timestamp (timestamp, timestamp) -> bool
_<_ less_duration (duration, duration) -> bool
_<=_ less_equals_bool (bool, bool) -> bool
_<=_ less_equals_int64 (int, int) -> bool
_<=_ less_equals_int64_double (int, double) -> bool
_<=_ less_equals_int64_uint64 (int, uint) -> bool
_<=_ less_equals_uint64 (uint, uint) -> bool
_<=_ less_equals_uint64_double (uint, double) -> bool
_<=_ less_equals_uint64_int64 (uint, int) -> bool
_<=_ less_equals_double (double, double) -> bool
_<=_ less_equals_double_int64 (double, int) -> bool
_<=_ less_equals_double_uint64 (double, uint) -> bool
_<=_ less_equals_string (string, string) -> bool
_<=_ less_equals_bytes (bytes, bytes) -> bool
_<=_ less_equals_timestamp (timestamp, timestamp) -> bool
_<=_ less_equals_duration (duration, duration) -> bool
_>_ greater_bool (bool, bool) -> bool
_>_ greater_int64 (int, int) -> bool
_>_ greater_int64_double (int, double) -> bool
_>_ greater_int64_uint64 (int, uint) -> bool
_>_ greater_uint64 (uint, uint) -> bool
_>_ greater_uint64_double (uint, double) -> bool
_>_ greater_uint64_int64 (uint, int) -> bool
_>_ greater_double (double, double) -> bool
_>_ greater_double_int64 (double, int) -> bool
_>_ greater_double_uint64 (double, uint) -> bool
_>_ greater_string (string, string) -> bool
_>_ greater_bytes (bytes, bytes) -> bool
_>_ greater_timestamp (timestamp, timestamp) -> bool
_>_ greater_duration (duration, duration) -> bool
_>=_ greater_equals_bool (bool, bool) -> bool
_>=_ greater_equals_int64 (int, int) -> bool
_>=_ greater_equals_int64_double (int, double) -> bool
_>=_ greater_equals_int64_uint64 (int, uint) -> bool
_>=_ greater_equals_uint64 (uint, uint) -> bool
_>=_ greater_equals_uint64_double (uint, double) -> bool
_>=_ greater_equals_uint64_int64 (uint, int) -> bool
_>=_ greater_equals_double (double, double) -> bool
_>=_ greater_equals_double_int64 (double, int) -> bool
_>=_ greater_equals_double_uint64 (double, uint) -> bool
_>=_ greater_equals_string (string, string) -> bool
_>=_ greater_equals_bytes (bytes, bytes) -> bool
_>=_ greater_equals_timestamp (timestamp, timestamp) -> bool
_>=_ greater_equals_duration (duration, duration) -> bool
_[_] index_list (list(A), int) -> A
_[_] index_map (map(A, B), A) -> B
_[_] optional_list_index_int (optional(list(V)), int) -> optional(V)
_[_] optional_map_index_value (optional(map(K, V)), K) -> optional(V)
@in in_list (A, list(A)) -> bool
@in in_map (A, map(A, B)) -> bool
size size_bytes (bytes) -> int
size bytes_size bytes.() -> int
size size_list (list(A)) -> int
size list_size list(A).() -> int
size size_map (map(A, B)) -> int
size map_size map(A, B).() -> int
size size_string (string) -> int
size string_size string.() -> int
type type (A) -> typeof(A)
bool bool_to_bool (bool) -> bool
bool string_to_bool (string) -> bool
bytes bytes_to_bytes (bytes) -> bytes
bytes string_to_bytes (string) -> bytes
double double_to_double (double) -> double
double int64_to_double (int) -> double
double string_to_double (string) -> double
double uint64_to_double (uint) -> double
duration duration_to_duration (duration) -> duration
duration string_to_duration (string) -> duration
dyn to_dyn (A) -> dyn
int int64_to_int64 (int) -> int
int double_to_int64 (double) -> int
int duration_to_int64 (duration) -> int
int string_to_int64 (string) -> int
int timestamp_to_int64 (timestamp) -> int
int uint64_to_int64 (uint) -> int
string string_to_string (string) -> string
string bool_to_string (bool) -> string
string bytes_to_string (bytes) -> string
string double_to_string (double) -> string
string duration_to_string (duration) -> string
string int64_to_string (int) -> string
string timestamp_to_string (timestamp) -> string
string uint64_to_string (uint) -> string
string ip_to_string (ip) -> string
string cidr_to_string (cidr) -> string
timestamp timestamp_to_timestamp (timestamp) -> timestamp
timestamp int64_to_timestamp (int) -> timestamp
timestamp string_to_timestamp (string) -> timestamp
uint uint64_to_uint64 (uint) -> uint
uint double_to_uint64 (double) -> uint
uint int64_to_uint64 (int) -> uint
uint string_to_uint64 (string) -> uint
contains contains_string string.(string) -> bool
endsWith ends_with_string string.(string) -> bool
startsWith starts_with_string string.(string) -> bool
matches matches (string, string) -> bool
matches matches_string string.(string) -> bool
getFullYear timestamp_to_year timestamp.() -> int
getFullYear timestamp_to_year_with_tz timestamp.(string) -> int
getMonth timestamp_to_month timestamp.() -> int
getMonth timestamp_to_month_with_tz timestamp.(string) -> int
getDayOfYear timestamp_to_day_of_year timestamp.() -> int
getDayOfYear timestamp_to_day_of_year_with_tz timestamp.(string) -> int
getDayOfMonth timestamp_to_day_of_month timestamp.() -> int
getDayOfMonth timestamp_to_day_of_month_with_tz timestamp.(string) -> int
getDate timestamp_to_day_of_month_1_based timestamp.() -> int
getDate timestamp_to_day_of_month_1_based_with_tz timestamp.(string) -> int
getDayOfWeek timestamp_to_day_of_week timestamp.() -> int
getDayOfWeek timestamp_to_day_of_week_with_tz timestamp.(string) -> int
getHours timestamp_to_hours timestamp.() -> int
getHours timestamp_to_hours_with_tz timestamp.(string) -> int
getHours duration_to_hours duration.() -> int
getMinutes timestamp_to_minutes timestamp.() -> int
getMinutes timestamp_to_minutes_with_tz timestamp.(string) -> int
getMinutes duration_to_minutes duration.() -> int
getSeconds timestamp_to_seconds timestamp.() -> int
getSeconds timestamp_to_seconds_with_tz timestamp.(string) -> int
getSeconds duration_to_seconds duration.() -> int
getMilliseconds timestamp_to_milliseconds timestamp.() -> int
getMilliseconds timestamp_to_milliseconds_with_tz timestamp.(string) -> int
getMilliseconds duration_to_milliseconds duration.() -> int
optional.of optional_of (V) -> optional(V)
optional.ofNonZeroValue optional_ofNonZeroValue (V) -> optional(V)
optional.none optional_none () -> optional(V)
value optional_value optional(V).() -> V
hasValue optional_hasValue optional(V).() -> bool
or optional_or_optional optional(V).(optional(V)) -> optional(V)
orValue optional_orValue_value optional(V).(V) -> V
_?._ select_optional_field (dyn, string) -> optional(V)
_[?_] list_optindex_optional_int (list(V), int) -> optional(V)
_[?_] optional_list_optindex_optional_int (optional(list(V)), int) -> optional(V)
_[?_] map_optindex_optional_value (map(K, V), K) -> optional(V)
_[?_] optional_map_optindex_optional_value (optional(map(K, V)), K) -> optional(V)
last list_last list(V).() -> optional(V)
first list_first list(V).() -> optional(V)
optional.unwrap optional_unwrap (list(optional(V))) -> list(V)
unwrapOpt optional_unwrapOpt list(optional(V)).() -> list(V)
cel.@mapInsert @mapInsert_map_key_value (map(K, V), K, V) -> map(K, V)
cel.@mapInsert @mapInsert_map_map (map(K, V), map(K, V)) -> map(K, V)
charAt string_char_at_int string.(int) -> string
indexOf string_index_of_string string.(string) -> int
indexOf string_index_of_string_int string.(string, int) -> int
lastIndexOf string_last_index_of_string string.(string) -> int
lastIndexOf string_last_index_of_string_int string.(string, int) -> int
lowerAscii string_lower_ascii string.() -> string
replace string_replace_string_string string.(string, string) -> string
replace string_replace_string_string_int string.(string, string, int) -> string
split string_split_string string.(string) -> list(string)
split string_split_string_int string.(string, int) -> list(string)
substring string_substring_int string.(int) -> string
substring string_substring_int_int string.(int, int) -> string
trim string_trim string.() -> string
upperAscii string_upper_ascii string.() -> string
format string_format string.(list(dyn)) -> string
strings.quote strings_quote (string) -> string
join list_join list(string).() -> string
join list_join_string list(string).(string) -> string
sets.contains list_sets_contains_list (list(T), list(T)) -> bool
sets.equivalent list_sets_equivalent_list (list(T), list(T)) -> bool
sets.intersects list_sets_intersects_list (list(T), list(T)) -> bool
slice list_slice list(T).(int, int) -> list(T)
flatten list_flatten list(list(T)).() -> list(T)
flatten list_flatten_int list(dyn).(int) -> list(dyn)
sort list_{c}_sort list({c}).() -> list({c})
@sortByAssociatedKeys list_{c}_sortByAssociatedKeys list(T).(list({c})) -> list(T)
lists.range lists_range (int) -> list(int)
reverse list_reverse list(T).() -> list(T)
distinct list_distinct list(T).() -> list(T)
isSorted list_{c}_is_sorted_bool list({c}).() -> bool
sum list_{s}_sum_{s} list({s}).() -> {s}
max list_{c}_max_{c} list({c}).() -> {c}
min list_{c}_min_{c} list({c}).() -> {c}
indexOf list_a_index_of_int list(A).(A) -> int
lastIndexOf list_a_last_index_of_int list(A).(A) -> int
find string_find_string string.(string) -> string
findAll string_find_all_string string.(string) -> list(string)
findAll string_find_all_string_int string.(string, int) -> list(string)
url string_to_url (string) -> url
getScheme url_get_scheme url.() -> string
getHost url_get_host url.() -> string
getHostname url_get_hostname url.() -> string
getPort url_get_port url.() -> string
getEscapedPath url_get_escaped_path url.() -> string
getQuery url_get_query url.() -> map(string, list(string))
isURL is_url_string (string) -> bool
quantity string_to_quantity (string) -> quantity
isQuantity is_quantity_string (string) -> bool
sign quantity_sign (quantity) -> int
isGreaterThan quantity_is_greater_than quantity.(quantity) -> bool
isGreaterThan semver_is_greater_than semver.(semver) -> bool
isLessThan quantity_is_less_than quantity.(quantity) -> bool
isLessThan semver_is_less_than semver.(semver) -> bool
compareTo quantity_compare_to quantity.(quantity) -> int
compareTo semver_compare_to semver.(semver) -> int
asApproximateFloat quantity_get_float quantity.() -> double
asInteger quantity_get_int quantity.() -> int
isInteger quantity_is_integer quantity.() -> bool
add quantity_add quantity.(quantity) -> quantity
add quantity_add_int quantity.(int) -> quantity
sub quantity_sub quantity.(quantity) -> quantity
sub quantity_sub_int quantity.(int) -> quantity
ip string_to_ip (string) -> ip
ip cidr_ip cidr.() -> ip
family ip_family ip.() -> int
ip.isCanonical ip_is_canonical (string) -> bool
isUnspecified ip_is_unspecified ip.() -> bool
isLoopback ip_is_loopback ip.() -> bool
isLinkLocalMulticast ip_is_link_local_multicast ip.() -> bool
isLinkLocalUnicast ip_is_link_local_unicast ip.() -> bool
isGlobalUnicast ip_is_global_unicast ip.() -> bool
isIP is_ip (string) -> bool
cidr string_to_cidr (string) -> cidr
containsIP cidr_contains_ip_string cidr.(string) -> bool
containsIP cidr_contains_ip_ip cidr.(ip) -> bool
containsCIDR cidr_contains_cidr_string cidr.(string) -> bool
containsCIDR cidr_contains_cidr cidr.(cidr) -> bool
prefixLength cidr_prefix_length cidr.() -> int
masked cidr_masked cidr.() -> cidr
isCIDR is_cidr (string) -> bool
validate format-validate format.(string) -> optional(list(string))
format.named format-named (string) -> optional(format)
format.dns1123Label format.dns1123Label () -> format
format.dns1123Subdomain format.dns1123Subdomain () -> format
format.dns1035Label format.dns1035Label () -> format
format.qualifiedName format.qualifiedName () -> format
format.dns1123LabelPrefix format.dns1123LabelPrefix () -> format
format.dns1123SubdomainPrefix format.dns1123SubdomainPrefix () -> format
format.dns1035LabelPrefix format.dns1035LabelPrefix () -> format
format.labelValue format.labelValue () -> format
format.uri format.uri () -> format
format.uuid format.uuid () -> format
format.byte format.byte () -> format
format.date format.date () -> format
format.datetime format.datetime () -> format
semver string_to_semver (string) -> semver
semver string_bool_to_semver (string, bool) -> semver
isSemver is_semver_string (string) -> bool
isSemver is_semver_string_bool (string, bool) -> bool
major semver_major semver.() -> int
minor semver_minor semver.() -> int
patch semver_patch semver.() -> int
path authorizer_path authorizer.(string) -> path_check
group authorizer_group authorizer.(string) -> group_check
serviceAccount authorizer_serviceaccount authorizer.(string, string) -> authorizer
resource groupcheck_resource group_check.(string) -> resource_check
subresource resourcecheck_subresource resource_check.(string) -> resource_check
namespace resourcecheck_namespace resource_check.(string) -> resource_check
name resourcecheck_name resource_check.(string) -> resource_check
check pathcheck_check path_check.(string) -> decision
check resourcecheck_check resource_check.(string) -> decision
allowed decision_allowed decision.() -> bool
reason decision_reason decision.() -> string
errored decision_errored decision.() -> bool
error decision_error decision.() -> string
jsonpatch.escapeKey string_jsonpatch_escapeKey_string (string) -> string
fieldSelector authorizer_fieldselector resource_check.(string) -> resource_check
labelSelector authorizer_labelselector resource_check.(string) -> resource_check
";
