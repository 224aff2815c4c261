//! Packages of PyPI: resolved to exact versions first, with the hashes of their files, and
//! installed by those alone, in an environment of their own. uv does both where it is on PATH, else
//! pip.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use super::lock::{PackageLock, is_requirement, normal};
use super::tools::{find, is_executable, need, run};
use colibri_mcp::importers::Package;

/// Prints the SHA-256 of each file of packages, as their index has them (PEP 691).
const HASHES: &str = include_str!("hashes.py");
/// The index of pip(1) that is not told another.
const INDEX: &str = "https://pypi.org/simple";

/// The program that resolves and installs, with a cache of its own: what was looked at need not be
/// fetched again.
#[derive(Debug)]
pub(super) struct PythonTool {
    stage: PathBuf,
    python: PathBuf,
    kind: ToolKind,
}

#[derive(Debug)]
enum ToolKind {
    /// uv, at this path.
    Uv(PathBuf),
    /// pip of an environment in the stage, by its interpreter.
    Pip(PathBuf),
}

impl PythonTool {
    /// Finds uv, or makes an environment with pip in a temporary directory.
    ///
    /// # Errors
    /// There is no Python 3, or it cannot make environments.
    pub(super) fn new(stage: &Path) -> anyhow::Result<PythonTool> {
        let stage = stage.to_owned();
        // What is on PATH may be a script that chooses one.
        let said = run(Command::new(need("python3", "Python 3")?).args([
            "-I",
            "-c",
            "import sys; print(sys.executable)",
        ]))?;
        let python = PathBuf::from(String::from_utf8_lossy(&said).trim());
        let kind = match find("uv") {
            Some(uv) => ToolKind::Uv(uv),
            None => {
                let venv = stage.join("venv");
                run(Command::new(&python).args(["-m", "venv"]).arg(&venv))?;
                ToolKind::Pip(interpreter(&venv))
            }
        };
        Ok(PythonTool {
            stage,
            python,
            kind,
        })
    }

    /// Resolves requirements: a line for each package, with the hashes of all its files.
    ///
    /// # Errors
    /// They cannot be met, or a package has no hash.
    pub(super) fn resolve(&self, words: &[String], scripts: bool) -> anyhow::Result<Vec<String>> {
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let mut lines = match &self.kind {
            ToolKind::Uv(_) => self.compile(words, scripts)?,
            ToolKind::Pip(python) => self.report(python, words, scripts)?,
        };
        lines.sort();
        match lines.iter().find(|line| !is_requirement(line)) {
            Some(line) => Err(anyhow!(
                "{}: the registry has no hash of it, or no name and version that can be",
                colibri_text::brief(line, 60)
            )),
            None => Ok(lines),
        }
    }

    /// uv's resolution, for all platforms at once.
    fn compile(&self, words: &[String], scripts: bool) -> anyhow::Result<Vec<String>> {
        let file = self.stage.join("requirements.in");
        fs::write(&file, words.join("\n")).with_context(|| file.display().to_string())?;
        let mut uv = self.uv(
            &[
                "pip",
                "compile",
                "--universal",
                "--generate-hashes",
                "--python",
            ],
            &self.python,
        )?;
        uv.args(["--no-header", "--no-annotate"]);
        if !scripts {
            uv.args(["--only-binary", ":all:"]);
        }
        let said = run(uv.arg(&file))?;
        let said = String::from_utf8(said)
            .context("uv's answer")?
            .replace("\\\n", " ");
        let words = said
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(words.filter(|line| !line.is_empty()).collect())
    }

    /// pip's resolution, and the hashes of the other platforms' files from the index. Where that
    /// does not list them, the file of this platform alone has one.
    fn report(
        &self,
        python: &Path,
        words: &[String],
        scripts: bool,
    ) -> anyhow::Result<Vec<String>> {
        let report = self.stage.join("report.json");
        let mut pip = self.pip(python, python, scripts);
        pip.args(["--dry-run", "--ignore-installed", "--report"])
            .arg(&report);
        run(pip.arg("--").args(words))?;
        let text = fs::read_to_string(&report).with_context(|| report.display().to_string())?;
        let report: Value = serde_json::from_str(&text).context("pip's report")?;
        let installs = report
            .get("install")
            .and_then(Value::as_array)
            .context("pip's report names nothing")?;
        let found = installs
            .iter()
            .map(pinned)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let all = self.all_hashes(python, &found).unwrap_or_else(|_| {
            eprintln!(
                "colibri-mcp: the index does not list the files of other platforms: this lock is for machines like this one"
            );
            BTreeMap::new()
        });
        Ok(found
            .iter()
            .map(|(name, version, hash)| {
                let mut hashes = all.get(*name).cloned().unwrap_or_default();
                hashes.push((*hash).to_owned());
                hashes.sort();
                hashes.dedup();
                let hashes: String = hashes
                    .iter()
                    .map(|hash| format!(" --hash=sha256:{hash}"))
                    .collect();
                format!("{name}=={version}{hashes}")
            })
            .collect())
    }

    /// The hashes of all files of packages, by name.
    fn all_hashes(
        &self,
        python: &Path,
        found: &[(&str, &str, &str)],
    ) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut setting = Command::new(python);
        setting.args(["-m", "pip", "config", "get", "global.index-url"]);
        let index = match std::env::var("PIP_INDEX_URL") {
            Ok(index) => index,
            Err(_) => run(&mut setting).map_or_else(
                |_| INDEX.to_owned(),
                |said| String::from_utf8_lossy(&said).into(),
            ),
        };
        let mut command = Command::new(python);
        command.args(["-I", "-c", HASHES, index.trim()]);
        command.args(
            found
                .iter()
                .map(|(name, version, _)| format!("{name}=={version}")),
        );
        if let Some(certificates) = std::env::var_os("PIP_CERT") {
            command.env("SSL_CERT_FILE", certificates);
        }
        Ok(serde_json::from_slice(&run(&mut command)?)?)
    }

    /// Installs exactly these, in an environment that is made.
    ///
    /// # Errors
    /// It fails, also where a file has none of the hashes.
    pub(super) fn install(
        &self,
        lines: &[String],
        scripts: bool,
        venv: &Path,
    ) -> anyhow::Result<()> {
        match &self.kind {
            ToolKind::Uv(_) => run(self.uv(&["venv", "--python"], &self.python)?.arg(venv))?,
            ToolKind::Pip(_) => run(Command::new(&self.python)
                .args(["-m", "venv", "--without-pip"])
                .arg(venv))?,
        };
        if lines.is_empty() {
            return Ok(());
        }
        let file = self.stage.join("requirements.txt");
        fs::write(&file, lines.join("\n")).with_context(|| file.display().to_string())?;
        let mut command = match &self.kind {
            ToolKind::Uv(_) => {
                let mut uv = self.uv(&["pip", "install", "--python"], &interpreter(venv))?;
                if !scripts {
                    uv.args(["--only-binary", ":all:"]);
                }
                uv
            }
            ToolKind::Pip(python) => self.pip(python, &interpreter(venv), scripts),
        };
        run(command
            .args(["--no-deps", "--require-hashes", "-r"])
            .arg(&file))
        .map(drop)
    }

    /// uv, with a command that ends with an option for a path.
    fn uv(&self, words: &[&str], path: &Path) -> anyhow::Result<Command> {
        let ToolKind::Uv(uv) = &self.kind else {
            bail!("uv is not what installs here");
        };
        let mut uv = Command::new(uv);
        uv.args(words)
            .arg(path)
            .args(["--quiet", "--cache-dir"])
            .arg(self.stage.join("cache"))
            .env_remove("VIRTUAL_ENV")
            .env_remove("UV_PYTHON")
            .env("UV_PYTHON_DOWNLOADS", "never");
        Ok(uv)
    }

    /// pip(1), told to install into the environment of an interpreter, without state beyond it.
    fn pip(&self, pip: &Path, python: &Path, scripts: bool) -> Command {
        let mut command = Command::new(pip);
        command.args([
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
            "--python",
        ]);
        command
            .arg(python)
            .arg("--cache-dir")
            .arg(self.stage.join("cache"));
        command
            .arg("install")
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONHOME")
            .env_remove("PIP_TARGET")
            .env_remove("PIP_PREFIX")
            .env("PIP_USER", "0");
        if !scripts {
            command.args(["--only-binary", ":all:"]);
        }
        command
    }
}

/// Finds out what a package is now: its lock. Nothing is kept but in a temporary directory.
///
/// # Errors
/// Python is missing, or the package cannot be resolved.
pub(super) fn resolve(
    tool: &PythonTool,
    package: &Package,
    scripts: bool,
) -> anyhow::Result<PackageLock> {
    let bare = package.name.split('[').next().unwrap_or_default();
    let word = match package.version.as_deref() {
        Some(version) if version.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{}=={version}", package.name)
        }
        Some(range) => format!("{}{range}", package.name),
        None => package.name.clone(),
    };
    let words = [vec![word], package.with.clone()].concat();
    let lines = tool.resolve(&words, scripts)?;
    let mut lock = PackageLock {
        from: String::new(),
        run: package.program.clone().unwrap_or_else(|| bare.to_owned()),
        program: package.program.clone(),
        with: package.with.clone(),
        scripts,
        url: None,
        requirements: Some(lines),
        npm: None,
    };
    if lock.run.contains('/') || lock.run.starts_with('.') {
        bail!("{} is not the name of a program", lock.run);
    }
    let packages = lock.packages();
    let its = packages
        .iter()
        .find(|(name, _)| normal(name) == normal(bare));
    let (_, version) =
        its.with_context(|| format!("{} is not in what was found for it", package.name))?;
    lock.from = format!("pypi:{}=={version}", package.name);
    Ok(lock)
}

/// The program of a package in the environment in which it was installed.
///
/// # Errors
/// The package has no program of this name.
pub(super) fn program(lock: &PackageLock, package: &str, venv: &Path) -> anyhow::Result<PathBuf> {
    let bare = package.split('[').next().unwrap_or_default();
    let programs = programs(venv, &normal(bare));
    let program = venv.join("bin").join(&lock.run);
    match programs.contains(&lock.run) && is_executable(&program) {
        true => Ok(program),
        false => Err(anyhow!(
            "the package has no program {}; it has {}",
            lock.run,
            programs.join(", ")
        )),
    }
}

/// Name, version and SHA-256 of what pip would install. They become a line of a file of
/// requirements, which knows options too: a package says of itself what it is called.
fn pinned(one: &Value) -> anyhow::Result<(&str, &str, &str)> {
    let text = |path: &str| {
        one.pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (name, version) = (text("/metadata/name"), text("/metadata/version"));
    let hash = text("/download_info/archive_info/hashes/sha256");
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._+!-".contains(&b))
    };
    match [name, version, hash].into_iter().all(is_word) && hash.len() == 64 {
        true => Ok((name, version, hash)),
        false => Err(anyhow!(
            "{}: the registry has no hash of it, or no name and version that can be",
            colibri_text::brief(name, 60)
        )),
    }
}

/// The programs that a package has put into an environment, by its list of files (PEP 376,
/// `RECORD`). The environment's own, such as pip(1), and those of other packages are not among
/// them: they would do what their arguments say.
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
    let lists = libraries
        .flat_map(directories)
        .map(|entry| entry.path())
        .filter(is_its);
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
