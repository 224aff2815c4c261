//! Packages of npm: resolved to exact versions first, with the hash of each archive, and installed
//! by those alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use super::lock::{NpmLock, PackageLock};
use super::tools::{need, node, run, run_whole, text};
use colibri_mcp::importers::Package;
use colibri_text::brief;

/// The registry that every npm(1) knows. Where another is set, npm(1) takes archives of this one
/// from there.
const REGISTRY: &str = "https://registry.npmjs.org/";

/// Finds out what a package is now: its lock, and the packages in it that have scripts. Nothing is
/// kept but in a temporary directory.
///
/// # Errors
/// npm(1) is missing or fails, or the package has no program.
pub(super) fn resolve(
    stage: &Path,
    package: &Package,
    scripts: bool,
) -> anyhow::Result<(PackageLock, Vec<String>)> {
    let place = tempfile::tempdir_in(stage).context("no temporary directory")?;
    let place = place.path();
    let own = r#"{"name":"colibri-server","version":"0.0.0","private":true}"#;
    write(&place.join("package.json"), own)?;
    let word = match &package.version {
        Some(version) => format!("{}@{version}", package.name),
        None => package.name.clone(),
    };
    let mut npm = npm(place, stage)?;
    npm.args([
        "install",
        "--package-lock-only",
        "--ignore-scripts",
        "--save-exact",
    ]);
    run(npm.arg("--").arg(word).args(&package.with))?;
    let file = |name: &str| {
        let text = read(&place.join(name))?;
        serde_json::from_str::<Value>(&text).with_context(|| format!("npm's {name}"))
    };
    let (own, mut lock) = (file("package.json")?, file("package-lock.json")?);
    // The list for npm 6, which newer ones still write in version 2 and do not read.
    lock.as_object_mut().map(|lock| lock.remove("dependencies"));
    let packages = lock
        .get("packages")
        .and_then(Value::as_object)
        .context("npm's package-lock.json has no packages")?;
    let at = format!("node_modules/{}", package.name);
    let facts = packages
        .get(&at)
        .with_context(|| format!("npm did not find {}", package.name))?;
    let text = |key: &str| facts.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("integrity").is_empty() {
        bail!("{}: the registry has no hash of it", package.name);
    }
    let scripted = packages
        .iter()
        .filter(|(_, facts)| facts.get("hasInstallScript") == Some(&Value::Bool(true)));
    let scripted = scripted.map(|(path, _)| {
        path.rsplit("node_modules/")
            .next()
            .unwrap_or(path)
            .to_owned()
    });
    let scripted = scripted.collect();
    let lock = PackageLock {
        from: format!("npm:{}@{}", package.name, text("version")),
        run: format!("{at}/{}", script(package, facts)?),
        program: package.program.clone(),
        with: package.with.clone(),
        scripts,
        url: None,
        requirements: None,
        npm: Some(NpmLock { package: own, lock }),
    };
    lock.check()?;
    Ok((lock, scripted))
}

/// The path of the program in its package.
fn script(package: &Package, facts: &Value) -> anyhow::Result<String> {
    let own_name = package.name.rsplit('/').next().unwrap_or_default();
    let bins: Vec<(&str, &str)> = match facts.get("bin") {
        Some(Value::String(path)) => vec![(own_name, path)],
        Some(Value::Object(bins)) => bins
            .iter()
            .filter_map(|(name, path)| Some((name.as_str(), path.as_str()?)))
            .collect(),
        _ => Vec::new(),
    };
    let wanted = package.program.as_deref().unwrap_or(own_name);
    let found = bins.iter().find(|(name, _)| *name == wanted);
    let path = match (found, bins.as_slice()) {
        (Some((_, path)), _) => *path,
        // npm-exec(1) takes the only one there is, whatever it is called.
        (None, [(_, path)]) if package.program.is_none() => *path,
        (None, []) => bail!("{} has no program", package.name),
        (None, bins) => {
            let names: Vec<&str> = bins.iter().map(|(name, _)| *name).collect();
            bail!(
                "{} has no program {wanted}; it has {}",
                package.name,
                names.join(", ")
            );
        }
    };
    let path = path.strip_prefix("./").unwrap_or(path);
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        bail!("{}: the path of its program leads out of it", package.name);
    }
    Ok(path.to_owned())
}

/// Installs exactly this into a directory; the command that runs it.
///
/// # Errors
/// An archive is at no registry of this machine's, or npm(1) fails: also where an archive is not
/// what its hash says.
pub(super) fn install(
    stage: &Path,
    lock: &PackageLock,
    files: &NpmLock,
    prefix: &Path,
) -> anyhow::Result<Vec<String>> {
    let node = text(&node()?)?;
    for (name, file) in [
        ("package.json", &files.package),
        ("package-lock.json", &files.lock),
    ] {
        write(&prefix.join(name), &format!("{file:#}\n"))?;
    }
    check_archives(files, prefix, stage)?;
    let mut npm = npm(prefix, stage)?;
    npm.arg("ci");
    if !lock.scripts {
        npm.arg("--ignore-scripts");
    }
    // It calls it a success if it could not write what it unpacked, as on a disk that is full.
    let (_, said) = run_whole(npm.env("npm_config_loglevel", "warn"))?;
    if let Some(line) = said.lines().find(|line| line.contains("TAR_ENTRY_ERROR")) {
        bail!("npm did not unpack all: {}", brief(line, 200));
    }
    let script = prefix.join(&lock.run);
    match script.is_file() {
        true => Ok(vec![node, text(&script)?]),
        false => Err(anyhow!("{} is not in what npm installed", lock.run)),
    }
}

/// Refuses a lock with an archive at another host than those of the registries that npm(1) is told
/// here. Its hash says what it is; but the lock may be a stranger's, and nobody agreed to connect
/// to that host.
fn check_archives(files: &NpmLock, directory: &Path, stage: &Path) -> anyhow::Result<()> {
    let packages = files.lock.get("packages").and_then(Value::as_object);
    let archives = packages.into_iter().flatten();
    let archives = archives
        .filter_map(|(path, facts)| Some((path.as_str(), facts.get("resolved")?.as_str()?)));
    let elsewhere: Vec<(&str, &str)> = archives
        .filter(|(_, url)| !url.starts_with(REGISTRY))
        .collect();
    if elsewhere.is_empty() {
        return Ok(());
    }
    let settings = run(npm(directory, stage)?.args(["config", "list", "--long", "--json"]))?;
    let settings: Value = serde_json::from_slice(&settings).context("npm's settings")?;
    if settings
        .get("replace-registry-host")
        .and_then(Value::as_str)
        == Some("always")
    {
        return Ok(());
    }
    let registries = registries(&settings);
    let is_known = |url: &str| registries.iter().any(|registry| url.starts_with(registry));
    let Some((path, url)) = elsewhere.into_iter().find(|(_, url)| !is_known(url)) else {
        return Ok(());
    };
    let name = path.rsplit("node_modules/").next().unwrap_or(path);
    let key = match name.split_once('/') {
        Some((scope, _)) => format!("{scope}:registry"),
        None => "registry".to_owned(),
    };
    Err(anyhow!(
        "{}: its archive is at {}, and the registries of npm are {} here; if you trust that one, name it first: npm config \
         set {} URL",
        brief(path, 120),
        brief(url, 200),
        registries.join(", "),
        brief(&key, 120)
    ))
}

/// The registries in npm's settings, each with scheme, host, port and the slash after them, so that
/// no longer host begins with one. A password before the host is left out.
fn registries(settings: &Value) -> Vec<String> {
    let settings = settings.as_object().into_iter().flatten();
    let named = settings.filter(|(key, _)| {
        *key == "registry" || key.starts_with('@') && key.ends_with(":registry")
    });
    let origin = |url: &str| {
        let (scheme, rest) = url.split_once("://")?;
        let host = rest.split('/').next()?.rsplit('@').next()?;
        Some(format!("{scheme}://{host}/").to_ascii_lowercase())
    };
    let mut registries: Vec<String> = named.filter_map(|(_, url)| origin(url.as_str()?)).collect();
    registries.sort();
    registries.dedup();
    registries
}

/// npm(1) in a directory, without state beyond it: its cache and logs go with the stage. And
/// without git(1): a package that depends on a repository would have it cloned before anybody
/// agreed, by settings of the repository's own.
fn npm(directory: &Path, stage: &Path) -> anyhow::Result<Command> {
    let mut npm = Command::new(need("npm", "npm")?);
    npm.current_dir(directory)
        .env("npm_config_cache", stage.join("cache"))
        .env("npm_config_update_notifier", "false")
        .env("npm_config_fund", "false")
        .env("npm_config_audit", "false")
        .env("npm_config_git", "/nonexistent/git")
        .env_remove("npm_config_prefix")
        .arg("--prefix")
        .arg(directory)
        .arg("--global=false");
    Ok(npm)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_mcp::importers::PackageRegistry;
    use serde_json::json;

    fn of(program: Option<&str>, bin: Value) -> anyhow::Result<String> {
        let package = Package {
            registry: PackageRegistry::Npm,
            name: "@scope/server".to_owned(),
            version: None,
            program: program.map(str::to_owned),
            with: Vec::new(),
        };
        script(&package, &json!({ "bin": bin }))
    }

    #[test]
    fn the_program_is_the_one_that_npx_would_run() {
        assert_eq!(of(None, json!("./cli.js")).unwrap(), "cli.js");
        assert_eq!(
            of(None, json!({ "a": "a.js", "server": "dist/s.js" })).unwrap(),
            "dist/s.js"
        );
        assert_eq!(
            of(None, json!({ "mcp-server": "dist/s.js" })).unwrap(),
            "dist/s.js"
        );
        assert_eq!(
            of(Some("a"), json!({ "a": "a.js", "server": "s.js" })).unwrap(),
            "a.js"
        );
        assert!(
            of(None, json!({ "a": "a.js", "b": "b.js" }))
                .unwrap_err()
                .to_string()
                .contains("a, b")
        );
        assert!(of(None, json!(null)).is_err());
        assert!(of(None, json!({ "a": "../../x" })).is_err());
    }

    #[test]
    fn a_registry_is_known_by_scheme_host_and_port() {
        let settings = json!({ "registry": "https://Registry.npmjs.org/", "@a:registry": "http://10.0.0.1:4873/npm/x",
            "@b:registry": "https://me:secret@b", "//b/:_authToken": "(protected)", "@c:registry": null, "@d:scope": "http://d/" });
        let known = registries(&settings);
        assert_eq!(
            known,
            [
                "http://10.0.0.1:4873/",
                "https://b/",
                "https://registry.npmjs.org/"
            ]
        );
        let is_known = |url: &str| known.iter().any(|registry| url.starts_with(registry));
        assert!(is_known("https://b/p/-/p-1.tgz") && is_known("http://10.0.0.1:4873/other/p.tgz"));
        for url in [
            "https://bb/p.tgz",
            "http://b/p.tgz",
            "https://b:444/p.tgz",
            "https://b@evil/p.tgz",
            "https://b\\@evil/p.tgz",
            "https://registry.npmjs.org.evil/p.tgz",
            "http://10.0.0.1:48731/p.tgz",
        ] {
            assert!(!is_known(url), "{url}");
        }
        assert!(registries(&json!({})).is_empty() && registries(&json!(7)).is_empty());
    }
}
