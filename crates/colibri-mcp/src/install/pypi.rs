//! Packages of PyPI: resolved to exact versions first, with the hash of each archive, and installed by those alone, in an
//! environment of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;
use tempfile::TempDir;

use super::tools::{is_executable, need, run};
use colibri_mcp::importers::Package;

/// The packages to install: requirements with version and hash of all.
#[derive(Debug)]
pub(crate) struct Pypi {
    /// Holds pip's cache, so that what was looked at needs not be fetched again.
    stage: TempDir,
    requirements: String,
    /// The version of the package that was asked for.
    pub version: String,
    /// Its name, as PEP 503 compares it.
    name: String,
    /// SHA-256 of its archive: pip(1) checks it, and that of each other.
    pub sha256: String,
    /// The program, in the environment's `bin`; empty: the interpreter alone.
    pub program: String,
    /// The number of packages beside it.
    pub others: u64,
    /// True if packages may be built here, which runs their code.
    scripts: bool,
}

/// Finds out what a package is now. Nothing is kept but in a temporary directory.
///
/// # Errors
/// Python is missing, or pip fails.
pub(super) fn resolve(package: &Package, scripts: bool) -> anyhow::Result<Pypi> {
    let bare = package.name.split('[').next().unwrap_or_default();
    let word = match package.version.as_deref() {
        Some(version) if version.starts_with(|c: char| c.is_ascii_digit()) => format!("{}=={version}", package.name),
        Some(range) => format!("{}{range}", package.name),
        None => package.name.clone(),
    };
    let words = [vec![word], package.with.clone()].concat();
    let mut found = resolve_all(&words, Some(bare), scripts)?;
    found.name = normal(bare);
    bare.clone_into(&mut found.program);
    if let Some(program) = &package.program {
        program.clone_into(&mut found.program);
    }
    if found.program.contains('/') || found.program.starts_with('.') {
        bail!("{} is not the name of a program", found.program);
    }
    Ok(found)
}

/// The same for requirements, none of which has a program that is run.
///
/// # Errors
/// As above.
pub(super) fn resolve_all(words: &[String], main: Option<&str>, scripts: bool) -> anyhow::Result<Pypi> {
    let stage = tempfile::tempdir().context("no temporary directory")?;
    let mut found = Pypi {
        requirements: String::new(),
        version: String::new(),
        name: String::new(),
        sha256: String::new(),
        program: String::new(),
        others: 0,
        scripts,
        stage,
    };
    if words.is_empty() {
        return Ok(found);
    }
    let venv = found.stage.path().join("venv");
    make_venv(&venv)?;
    let report = found.stage.path().join("report.json");
    let mut pip = found.pip(&venv);
    pip.args(["--quiet", "--dry-run", "--ignore-installed", "--report"])
        .arg(&report);
    run(pip.arg("--").args(words))?;
    let text = fs::read_to_string(&report).with_context(|| report.display().to_string())?;
    let report: Value = serde_json::from_str(&text).context("pip's report")?;
    let installs = report
        .get("install")
        .and_then(Value::as_array)
        .context("pip's report names nothing")?;
    for one in installs {
        let (name, version, hash) = pinned(one)?;
        if main.is_some_and(|main| normal(main) == normal(name)) {
            version.clone_into(&mut found.version);
            hash.clone_into(&mut found.sha256);
        } else {
            found.others += 1;
        }
        found
            .requirements
            .push_str(&format!("{name}=={version} --hash=sha256:{hash}\n"));
    }
    Ok(found)
}

/// Name, version and SHA-256 of what pip would install. They become a line of a file of requirements, which knows options
/// too: a package says of itself what it is called.
fn pinned(one: &Value) -> anyhow::Result<(&str, &str, &str)> {
    let text = |path: &str| one.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (name, version) = (text("/metadata/name"), text("/metadata/version"));
    let hash = text("/download_info/archive_info/hashes/sha256");
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+!-".contains(&b))
    };
    match [name, version, hash].into_iter().all(is_word) && hash.len() == 64 {
        true => Ok((name, version, hash)),
        false => Err(anyhow!(
            "{}: the registry has no hash of it, or no name and version that can be",
            colibri_text::brief(name, 60)
        )),
    }
}

/// A name as PEP 503 compares it.
fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

fn make_venv(at: &Path) -> anyhow::Result<()> {
    let python = need("python3", "Python 3")?;
    run(Command::new(python).args(["-m", "venv"]).arg(at)).map(drop)
}

impl Pypi {
    /// pip(1) of an environment, told to install, without state beyond it.
    fn pip(&self, venv: &Path) -> Command {
        let mut pip = Command::new(venv.join("bin/python"));
        pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input", "--cache-dir"])
            .arg(self.stage.path().join("cache"))
            .arg("install")
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONHOME")
            .env_remove("PIP_TARGET")
            .env_remove("PIP_PREFIX")
            .env("PIP_USER", "0");
        if !self.scripts {
            pip.args(["--only-binary", ":all:"]);
        }
        pip
    }

    /// Installs exactly this, in an environment that is made.
    ///
    /// # Errors
    /// pip(1) fails, also where an archive is not what its hash says; or the program is not there then.
    pub(super) fn install(&self, venv: &Path) -> anyhow::Result<()> {
        make_venv(venv)?;
        if self.requirements.is_empty() {
            return Ok(());
        }
        let file = self.stage.path().join("requirements.txt");
        fs::write(&file, &self.requirements).with_context(|| file.display().to_string())?;
        let mut pip = self.pip(venv);
        run(pip.args(["--quiet", "--no-deps", "--require-hashes", "-r"]).arg(&file))?;
        let programs = programs(venv, &self.name);
        let is_there = programs.contains(&self.program) && is_executable(&venv.join("bin").join(&self.program));
        match self.program.is_empty() || is_there {
            true => Ok(()),
            false => Err(anyhow!(
                "the package has no program {}; it has {}",
                self.program,
                programs.join(", ")
            )),
        }
    }
}

/// The programs that a package has put into an environment, by its list of files (PEP 376, `RECORD`). The environment's
/// own, such as pip(1), and those of other packages are not among them: they would do what their arguments say.
fn programs(venv: &Path, package: &str) -> Vec<String> {
    let directories = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let libraries = directories(venv.join("lib")).map(|entry| entry.path().join("site-packages"));
    let is_its = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".dist-info"));
        let name = name.and_then(|name| name.rsplit_once('-'));
        name.is_some_and(|(name, _)| normal(name) == package)
    };
    let lists = libraries.flat_map(directories).map(|entry| entry.path()).filter(is_its);
    let texts = lists.filter_map(|list| fs::read_to_string(list.join("RECORD")).ok());
    let mut names: Vec<String> = texts
        .flat_map(|text| {
            let programs = text.lines().filter_map(|line| {
                let (path, _) = line.split_once(',')?;
                path.strip_prefix("../../../bin/").map(str::to_owned)
            });
            programs.collect::<Vec<_>>()
        })
        .collect();
    names.sort();
    names
}

/// The interpreter of an environment.
pub(super) fn interpreter(venv: &Path) -> PathBuf {
    venv.join("bin/python3")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_program_is_one_that_the_package_brings() {
        let venv = tempfile::tempdir().unwrap();
        let library = venv.path().join("lib/python3.12/site-packages");
        for (package, record) in [
            (
                "My_Server-1.0",
                "../../../bin/my-server,sha256=x,1\nmy_server/bin/other,,\n../../../bin/more,,\n",
            ),
            ("pip-25.0", "../../../bin/pip,,\n../../../bin/pip3,,\n"),
            ("uv-0.9", "../../../bin/uv,sha256=x,1\n"),
        ] {
            let list = library.join(format!("{package}.dist-info"));
            fs::create_dir_all(&list).unwrap();
            fs::write(list.join("RECORD"), record).unwrap();
        }
        assert_eq!(programs(venv.path(), "my-server"), ["more", "my-server"]);
        assert_eq!(programs(venv.path(), "my"), Vec::<String>::new());
    }

    #[test]
    fn what_a_package_calls_itself_becomes_no_option_of_pip() {
        let one = |name: &str, version: &str, hash: &str| {
            let one = json!({ "metadata": { "name": name, "version": version },
                "download_info": { "archive_info": { "hashes": { "sha256": hash } } } });
            pinned(&one).map(drop)
        };
        let hash = "0".repeat(64);
        one("a.b-c_d", "1!2.0+x", &hash).unwrap();
        for (name, version) in [
            ("", "1"),
            ("-e", "1"),
            ("a\n-r /x", "1"),
            ("a", "1 --index-url=x"),
            ("a", ""),
        ] {
            assert!(one(name, version, &hash).is_err(), "{name:?} {version:?}");
        }
        assert!(one("a", "1", "").is_err() && one("a", "1", "00").is_err());
    }
}
