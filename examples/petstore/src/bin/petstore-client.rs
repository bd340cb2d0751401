// SPDX-License-Identifier: Apache-2.0

//! Prints the pets of a pet store.

use std::error::Error;

use clap::Parser;
use petstore::service::proto::{SearchPetsReq, pet_store_client::PetStoreClient};

/// Prints the pets of a pet store, the oldest entry first.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Where the pet store is.
    #[arg(long, env = "PETSTORE_ADDR", default_value = "127.0.0.1:6742", value_name = "HOST:PORT")]
    petstore_addr: String,

    /// Only pets with this name. May be given more than once.
    #[arg(long)]
    name: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Options { petstore_addr, name: names } = Options::parse();
    let mut client = PetStoreClient::connect(format!("http://{petstore_addr}")).await?;
    let mut pets = client.search_pets(SearchPetsReq { names, ..SearchPetsReq::default() }).await?.into_inner();
    while let Some(pet) = pets.message().await? {
        let species = pet.r#type().as_str_name().trim_start_matches("PT").to_lowercase();
        let birthday = pet.birthday.unwrap_or_default();
        let (year, month, day) = (birthday.year, birthday.month, birthday.day);
        println!("{} {species:<8} {year:04}-{month:02}-{day:02} {}", pet.id, pet.name);
    }
    Ok(())
}
