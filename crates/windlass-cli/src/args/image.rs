//! The arguments of `windlass image`.

use std::path::PathBuf;

use windlass_image::Reference;

use super::{ListFormat, parse_label};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Image {
    /// Make an image of a program or a directory, without a container engine
    Build(ImageBuild),
    /// Load images from a tar file, as `docker save` and `windlass image build` write them
    Load(ImageLoad),
    /// List the images that are kept on this machine
    List(ImageList),
    /// Remove images from this machine
    Remove(ImageRemove),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ImageLoad {
    /// The tar file: an OCI layout or an archive of docker, perhaps compressed with gzip
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The name of the image [default: the names that the file has]
    #[arg(short, long, value_name = "NAME[:TAG]")]
    pub tag: Option<Reference>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ImageList {
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ImageRemove {
    /// The names of the images
    #[arg(value_name = "NAME[:TAG]", required = true)]
    pub names: Vec<windlass_image::Name>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ImageBuild {
    /// The program, which comes with the libraries that it needs, or a directory with all files of the image
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    /// The name of the image
    #[arg(short, long, value_name = "NAME[:TAG]")]
    pub tag: Reference,
    /// Put the files on this image: an image with its registry, such as gcr.io/distroless/cc-debian12:nonroot, or an OCI
    /// layout on this machine, as a directory or a tar file [default: nothing but the program and its libraries]
    #[arg(long, value_name = "IMAGE|DIR|FILE")]
    pub base: Option<PathBuf>,
    /// The program to start [default: the program that the image is made of]
    #[arg(long, value_name = "PATH")]
    pub entrypoint: Option<String>,
    /// The user that the program runs as, by number and not root: generated manifests have `runAsNonRoot`
    #[arg(long, default_value = USER, value_name = "UID[:GID]", value_parser = parse_user)]
    pub user: String,
    /// A label of the image; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// The tar file to write [default: the name of the image and .tar, unless it is pushed]
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Push the image to the registry that its name begins with
    #[arg(long)]
    pub push: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

/// The user of images that `deploy` makes, and of all others unless they say more.
pub(crate) const USER: &str = "65532:65532";

/// A user by number that is not root: the kubelet starts no other with `runAsNonRoot`, which generated manifests have.
fn parse_user(text: &str) -> Result<String, String> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.chars().all(|c| c.is_ascii_digit()));
    let why = "generated manifests have runAsNonRoot, and with it the kubelet starts no container whose user";
    match (number(user), group.map(number)) {
        (Some(0), _) => Err(format!("{why} is root: use another number, such as {USER}")),
        (Some(_), None | Some(Some(_))) => Ok(text.to_owned()),
        (None, _) if user == "root" => Err(format!("{why} is root: use a number, such as {USER}")),
        (None, _) => Err(format!("{why} is not a number: use UID or UID:GID, such as {USER}")),
        (_, Some(None)) => Err(format!("the group is a number: use UID:GID, such as {USER}")),
    }
}
