//! `windlass image`: images without a container engine.
//!
//! `build` makes an image of a program or a directory. It goes into the store of this machine. It is
//! also written as an OCI layout in a tar file, which `docker load`, `podman load`, `ctr images import` and `kind load
//! image-archive` read, or pushed to a registry. Equal input gives an equal image: files are sorted and carry no time.

mod base;
mod elf;
mod layer;
mod layout;
mod stored;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use windlass_image::{Reference, Store};

use crate::against;
use crate::args::{Image, ImageBuild};
use crate::output;

pub(crate) use layout::Image as Built;

pub(crate) fn run(args: &Image) -> Result<ExitCode> {
    match args {
        Image::Build(args) => build_command(args),
        Image::Load(args) => stored::load(args),
        Image::List(args) => stored::list(args),
        Image::Remove(args) => stored::remove(args),
    }
}

fn build_command(args: &ImageBuild) -> Result<ExitCode> {
    let reference = args.tag.clone();
    let settings = Settings {
        entrypoint: args.entrypoint.clone(),
        user: args.user.clone(),
        labels: args.label.clone(),
        base: args.base.clone(),
    };
    let image = build(&args.path, &settings)?;
    keep(&image, &reference);
    let file = match &args.file {
        Some(file) => Some(file.clone()),
        None if args.push => None,
        None => Some(PathBuf::from(format!("{}.tar", reference.short_name()))),
    };
    if let Some(file) = &file {
        write(&image, &reference, file)?;
    }
    let pushed = || {
        against::block_on(async {
            image.push(&reference).await?;
            Ok(ExitCode::SUCCESS)
        })
    };
    if args.push && pushed()? != ExitCode::SUCCESS {
        bail!("the image was not pushed");
    }
    let document = || {
        json!({
            "image": reference.to_string(), "digest": image.digest(), "file": file, "pushed": args.push,
            "bytes": image.size(),
        })
    };
    if output::document(args.output, document) {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &file {
        output::line(format_args!("wrote {} to {}", image.digest(), file.display()));
    }
    if args.push {
        output::line(format_args!("pushed {reference}@{}", image.digest()));
    }
    Ok(ExitCode::SUCCESS)
}

/// What an image says besides its files.
pub(crate) struct Settings {
    pub entrypoint: Option<String>,
    pub user: String,
    pub labels: Vec<(String, String)>,
    /// The image to build on: an OCI layout, or the name of an image with its registry.
    pub base: Option<PathBuf>,
}

/// Builds the image of a program or of a directory.
pub(crate) fn build(path: &Path, settings: &Settings) -> Result<Built> {
    let (layer, base) =
        layer::of(path, |architecture| settings.base.as_ref().map(|path| base::read(path, architecture)).transpose())?;
    let entrypoint = match (&settings.entrypoint, layer.program.as_ref()) {
        (Some(entrypoint), _) => entrypoint.clone(),
        (None, Some(program)) => program.clone(),
        (None, None) => bail!("{} is a directory; name the program in it with --entrypoint", path.display()),
    };
    if !layer.has(&entrypoint) && !base.as_ref().is_some_and(|base| base.has(&entrypoint)) {
        bail!("the image has no file {entrypoint}");
    }
    layout::Image::new(layer, base, &entrypoint, settings)
}

/// Writes the image as a tar file, all of it or nothing.
pub(crate) fn write(image: &Built, reference: &Reference, file: &Path) -> Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Others may read it, as the user's umask says: it goes to container engines that run as another user.
    let readable = std::fs::Permissions::from_mode(0o644);
    let temporary = tempfile::Builder::new().permissions(readable).tempfile_in(directory);
    let mut temporary = temporary.with_context(|| format!("cannot write {}", file.display()))?;
    image.write(reference, temporary.as_file_mut())?;
    temporary.persist(file).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

/// Puts the image into the store of this machine. Where that fails, the image can still be written and pushed, so only a
/// note says why.
pub(crate) fn keep(image: &Built, reference: &Reference) {
    let kept = || -> Result<()> {
        let store = Store::of_user()?;
        image.keep(&store, reference)?;
        // What had the name before is not needed any more.
        store.collect()?;
        Ok(())
    };
    if let Err(error) = kept() {
        output::note(format_args!("the image is not kept on this machine: {}", output::with_causes(&error)));
    }
}

/// Pushes the image to its registry.
pub(crate) async fn push(image: &Built, reference: &Reference) -> Result<()> {
    image.push(reference).await
}
