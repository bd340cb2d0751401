//! The attribute `#[windlass_testing::test]`. Use it through `windlass-testing`, which documents it.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Ident, ItemFn, LitInt, LitStr, Path, Token};

/// `#[windlass_testing::test]` is for an `async fn` with one argument, a `windlass_testing::Env`. Its own arguments are
/// any of:
///
/// - `bare`: an API server alone, without the built-in controllers: no garbage collection, no pods of Deployments, and
///   deleted namespaces stay.
/// - `paused`: Tokio's clock stands still and jumps to the next timer whenever all tasks wait.
/// - `nodes = 3`: so many simulated nodes, `node-0` and so on.
/// - `controllers = "*,-kube-scheduler"`: these built-in controllers and no others, as `windlass up --controllers` takes
///   them. `kube-scheduler` is one of them. Unless set, all run, and the scheduler if there are nodes.
/// - `setup = start`: the test begins with `start`, an `async fn(&Env) -> T`. If the test function has a second
///   argument, it is given what `start` returned.
#[proc_macro_attribute]
pub fn test(arguments: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(arguments.into(), item.into()).unwrap_or_else(Error::into_compile_error).into()
}

/// One argument of the attribute.
enum Argument {
    /// `bare` or `paused`: a method of `Options`.
    Option(Ident),
    /// `nodes = number`.
    Nodes(LitInt),
    /// `controllers = "list"`.
    Controllers(LitStr),
    /// `setup = path`.
    Setup(Path),
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let name: Ident = input.call(syn::ext::IdentExt::parse_any)?;
        if name == "bare" || name == "paused" {
            return Ok(Self::Option(name));
        }
        if name == "nodes" {
            let count = input.parse::<Token![=]>().and_then(|_| input.parse::<LitInt>());
            let expected = "expected `nodes = 3`, how many simulated nodes there are";
            let count = count.map_err(|error| Error::new(error.span(), expected))?;
            count.base10_parse::<u32>().map_err(|error| Error::new(error.span(), expected))?;
            return Ok(Self::Nodes(count));
        }
        if name == "controllers" {
            let list = input.parse::<Token![=]>().and_then(|_| input.parse::<LitStr>());
            let expected = "expected `controllers = \"*,-kube-scheduler\"`, the names of controllers";
            return list.map(Self::Controllers).map_err(|error| Error::new(error.span(), expected));
        }
        if name != "setup" {
            let expected = "expected `bare`, `paused`, `nodes = number`, `controllers = list` or `setup = function`";
            return Err(Error::new_spanned(name, expected));
        }
        let function = input.parse::<Token![=]>().and_then(|_| input.parse::<Path>());
        let expected = "expected `setup = function`, the path of an `async fn(&Env) -> T`";
        function.map(Self::Setup).map_err(|error| Error::new(error.span(), expected))
    }
}

fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let arguments = Punctuated::<Argument, Token![,]>::parse_terminated.parse2(arguments)?;
    let (mut options, mut setup) = (Vec::new(), None);
    for argument in arguments {
        match argument {
            Argument::Option(option) => options.push(quote!(#option())),
            Argument::Nodes(count) => options.push(quote!(nodes(#count))),
            Argument::Controllers(list) => options.push(quote!(controllers(#list))),
            Argument::Setup(function) if setup.is_some() => {
                return Err(Error::new_spanned(function, "expected one `setup`"));
            }
            Argument::Setup(function) => setup = Some(function),
        }
    }
    let mut function: ItemFn = syn::parse2(item)?;
    if function.sig.asyncness.is_none() {
        return Err(Error::new_spanned(function.sig.fn_token, "expected an `async fn`"));
    }
    let expected = match (&setup, function.sig.inputs.len()) {
        (_, 1) | (Some(_), 2) => None,
        (Some(_), _) => Some("expected one or two arguments: the `Env`, and what the setup returns"),
        (None, 2) => Some("expected one argument, the `Env`; a second one needs `setup = function`, which makes it"),
        (None, _) => Some("expected one argument, the `Env`"),
    };
    if let Some(expected) = expected {
        return Err(Error::new_spanned(&function.sig, expected));
    }
    let attributes = std::mem::take(&mut function.attrs);
    let (name, output) = (&function.sig.ident, &function.sig.output);
    let test = match setup {
        None => quote!(#name),
        Some(setup) => with_setup(&setup, &function),
    };
    Ok(quote! {
        #(#attributes)*
        #[::core::prelude::v1::test]
        fn #name() #output {
            // A test may have everything it needs done by its setup.
            #[allow(clippy::unused_async)]
            #function
            ::windlass_testing::run(::windlass_testing::Options::default() #(.#options)*, #test)
        }
    })
}

/// A closure that calls the setup, then the test.
fn with_setup(setup: &Path, function: &ItemFn) -> TokenStream {
    let name = &function.sig.ident;
    // Names that the user's code cannot mean; an error about the value is shown at the argument that takes it.
    let env = Ident::new("env", Span::mixed_site());
    let second = function.sig.inputs.iter().nth(1);
    let value = Ident::new(
        "_value",
        second.map_or_else(Span::mixed_site, |second| Span::mixed_site().located_at(second.span())),
    );
    let given = second.map(|_| quote!(, #value));
    quote! {
        async |#env: ::windlass_testing::Env| {
            let #value = #setup(&#env).await;
            #name(#env #given).await
        }
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;
    use quote::quote;

    use super::expand;

    /// The error of an expansion.
    fn refused(arguments: TokenStream, item: TokenStream) -> String {
        expand(arguments, item).map_or_else(|error| error.to_string(), |expanded| panic!("expanded to {expanded}"))
    }

    #[test]
    fn wrong_arguments_are_told_what_is_expected() {
        let item = || {
            quote!(
                async fn a_test(env: Env) {}
            )
        };
        let options = "expected `bare`, `paused`, `nodes = number`, `controllers = list` or `setup = function`";
        let setup = "expected `setup = function`, the path of an `async fn(&Env) -> T`";
        assert_eq!(refused(quote!(fast), item()), options);
        assert_eq!(refused(quote!(bare, fn), item()), options);
        let nodes = "expected `nodes = 3`, how many simulated nodes there are";
        assert_eq!(refused(quote!(nodes), item()), nodes);
        assert_eq!(refused(quote!(nodes = "3"), item()), nodes);
        assert_eq!(refused(quote!(nodes = -3), item()), nodes);
        let controllers = "expected `controllers = \"*,-kube-scheduler\"`, the names of controllers";
        assert_eq!(refused(quote!(controllers), item()), controllers);
        assert_eq!(refused(quote!(controllers = all), item()), controllers);
        assert_eq!(refused(quote!(setup), item()), setup);
        assert_eq!(refused(quote!(bare, setup = 5), item()), setup);
        assert_eq!(refused(quote!(setup = a, setup = b), item()), "expected one `setup`");
    }

    #[test]
    fn a_test_whose_setup_does_everything_is_linted_as_others() {
        let item = quote!(
            async fn starts(_env: Env) {}
        );
        let expanded = expand(quote!(setup = start), item).expect("it expands").to_string();
        assert!(expanded.contains("allow (clippy :: unused_async)] async fn starts"), "{expanded}");
    }

    #[test]
    fn wrong_functions_are_told_what_is_expected() {
        let refused_item = |item| refused(TokenStream::new(), item);
        assert_eq!(
            refused_item(quote!(
                fn a_test(env: Env) {}
            )),
            "expected an `async fn`"
        );
        assert_eq!(
            refused_item(quote!(
                async fn a_test() {}
            )),
            "expected one argument, the `Env`"
        );
        assert_eq!(
            refused_item(quote!(
                async fn a_test(env: Env, site: Site) {}
            )),
            "expected one argument, the `Env`; a second one needs `setup = function`, which makes it"
        );
        let three = quote!(
            async fn a_test(env: Env, a: A, b: B) {}
        );
        assert_eq!(
            refused(quote!(setup = common::start), three),
            "expected one or two arguments: the `Env`, and what the setup returns"
        );
    }
}
