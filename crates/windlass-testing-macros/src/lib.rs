//! The attribute `#[windlass_testing::test]`. Use it through `windlass-testing`, which documents it.

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Error, Ident, ItemFn, Token};

/// `#[windlass_testing::test]` is for an `async fn` with one argument, a `windlass_testing::Env`. Its own arguments are
/// any of:
///
/// - `bare`: an API server alone, without the built-in controllers: no garbage collection, no pods of Deployments, and
///   deleted namespaces stay.
/// - `paused`: Tokio's clock stands still and jumps to the next timer whenever all tasks wait.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(arguments: TokenStream, item: TokenStream) -> Result<proc_macro2::TokenStream, Error> {
    let options = Punctuated::<Ident, Token![,]>::parse_terminated.parse(arguments)?;
    for option in &options {
        if option != "paused" && option != "bare" {
            return Err(Error::new_spanned(option, "expected `paused` or `bare`"));
        }
    }
    let options = options.iter();
    let mut function: ItemFn = syn::parse(item)?;
    if function.sig.asyncness.is_none() {
        return Err(Error::new_spanned(function.sig.fn_token, "expected an `async fn`"));
    }
    if function.sig.inputs.len() != 1 {
        return Err(Error::new_spanned(&function.sig, "expected one argument, the `Env`"));
    }
    let attributes = std::mem::take(&mut function.attrs);
    let (name, output) = (&function.sig.ident, &function.sig.output);
    Ok(quote! {
        #(#attributes)*
        #[::core::prelude::v1::test]
        fn #name() #output {
            #function
            ::windlass_testing::run(::windlass_testing::Options::default() #(.#options())*, #name)
        }
    })
}
